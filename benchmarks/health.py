"""Does a run know whether it learned? Many small runs in worlds with known truth: what health said, against what
happened.

    python benchmarks/health.py --out runs/health              # about ten minutes on two busy cores
    python benchmarks/health.py --out runs/health --table     # the table again, by the limits of today
    python benchmarks/health.py --out runs/health-1 --log 1   # logs and seeds the limits were not chosen on

A run is good if its policy earns at least 70 % of what the log's behavior earns beyond random actions, failed below 50
%, and neither in between; by 400 episodes in the world itself, which the run never sees. Each setting runs with three
seeds.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections import Counter
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

import odice
from odice.algos import entry
from odice.data.build import from_steps
from odice.data.dataset import Dataset
from odice.data.meta import Meta
from odice.data.preprocess import register_reward_map
from odice.errors import OdiceError
from odice.training.health import weigh
from odice.training.run import Run
from tests.worlds import arm, hospital, hvac, record, simulate, traffic

EPISODES, GOOD, FAILED, SEEDS = 400, 0.7, 0.5, 3
register_reward_map("thousandth", reward_scale=1e-3)
register_reward_map("thousandfold", reward_scale=1e3)

FAST: dict[str, Any] = {"steps": 800, "eval_every": 100, "policy_lr": 1e-3, "batch_size": 64, "policy_hidden": (32,)}
V: dict[str, Any] = {"value_hidden": (32,), "value_lr": 1e-3}
Q: dict[str, Any] = {**V, "critic_hidden": (32,), "critic_lr": 1e-3}
C: dict[str, Any] = {"critic_hidden": (32,), "critic_lr": 1e-3}
PAPER: dict[str, Any] = {
    "algo": "odice",
    **V,
    "preset": "paper",
    "normalize_obs": True,
    "holdout": 0.1,
    "convention": "bootstrap",
}
"""The paper's settings on rewards as they are, which the default was when the limits were chosen."""
SHARED: dict[str, dict[str, Any]] = {
    "bc": {"algo": "bc"},
    "bc, 20 updates": {"algo": "bc", "steps": 20, "eval_every": 10},
    "bc, rate 3": {"algo": "bc", "policy_lr": 3.0},
    "iql": {"algo": "iql", **Q},
    "iql, rates 0.3": {"algo": "iql", **Q, "policy_lr": 0.3, "value_lr": 0.3, "critic_lr": 0.3},
    "iql, rewards x 1000": {"algo": "iql", **Q, "reward": "thousandfold"},
    "auto": {"algo": "auto", **V},
    "odice, lam 0.6": {**PAPER, "reward": "none", "lam": 0.6},
    "odice, lam 0.4": {**PAPER, "reward": "none", "lam": 0.4},
    "odice, rewards / 1000": {**PAPER, "reward": "thousandth", "lam": 0.6},
    "odice, lam 0.99": {**PAPER, "reward": "none", "lam": 0.99},
}
CONTINUOUS: dict[str, dict[str, Any]] = {
    "td3-bc": {"algo": "td3-bc", **C},
    "td3-bc, alpha 1000": {"algo": "td3-bc", **C, "alpha": 1000.0},
}
SETTINGS: dict[ModuleType, dict[str, dict[str, Any]]] = {
    hospital: SHARED,
    arm: SHARED | CONTINUOUS,
    traffic: {name: SHARED[name] for name in ("bc", "iql", "auto", "odice, lam 0.6", "bc, rate 3")},
    hvac: {name: (SHARED | CONTINUOUS)[name] for name in ("bc", "iql", "auto", "odice, lam 0.6", "td3-bc")},
}


def dataset(world: ModuleType, seed: int) -> Dataset:
    steps = record(world.WORLD, seed, 300)
    meta: dict[str, Any] = {"n_actions": int(steps.actions.max()) + 1}
    if steps.actions.ndim == 2:
        meta = {
            name: tuple(bound.astype(float).tolist())
            for name, bound in (("action_low", steps.actions.min(axis=0)), ("action_high", steps.actions.max(axis=0)))
        }
    ends: dict[str, Any] = {"terminated": steps.terminated, "truncated": steps.truncated, "episode": steps.episode}
    return from_steps(
        steps.observations, steps.actions, steps.rewards, **ends, meta=Meta(source=world.__name__, **meta)
    )


def worth(world: ModuleType, data: Dataset, act: Any) -> float:
    """A policy's mean return, between random actions (0) and the log's behavior (1)."""
    rng, spec = np.random.default_rng(0), data.spec

    def random(obs: np.ndarray) -> np.ndarray:
        if spec.discrete:
            return rng.integers(0, spec.action_dim, len(obs))
        return rng.uniform(data.actions.min(axis=0), data.actions.max(axis=0), (len(obs), spec.action_dim))

    floor, usual = (simulate(world.WORLD, random, EPISODES, 1).returns.mean(), data.returns.mean())
    return float((simulate(world.WORLD, act, EPISODES, 1).returns.mean() - floor) / (usual - floor))


def runs(world: ModuleType, out: Path, seed: int) -> None:
    data, name = dataset(world, seed), world.__name__.rpartition(".")[2]
    for label, options in SETTINGS[world].items():
        file = out / f"{name}, {label}.json".replace("/", "per")
        if file.exists():
            continue
        rows = []
        with tempfile.TemporaryDirectory() as folder:
            given = {**FAST, **options, "out": folder, "env": "none", "quiet": True, "allow": ("all",)}
            try:
                odice.train(data, **given, seed=SEEDS * seed, seeds=SEEDS, parallel="vmap")
            except OdiceError as error:
                print(error)
            for path in sorted(Path(folder).glob("seed-*")):
                run = Run.open(path)
                if not run.result:  # it stopped by itself, and said why
                    rows.append({"truth": None, "verdict": "diverged", "says": "stopped: diverged", "measures": {}})
                    continue
                rows.append({"truth": worth(world, data, run.policy), **run.result["health"]})
        file.write_text(json.dumps({"world": name, "setting": label, "runs": rows}))
        print(f"{name}, {label}: {[(r['truth'] and round(r['truth'], 2), r['verdict']) for r in rows]}", flush=True)


def table(out: Path) -> None:
    counts: Counter[tuple[str, str]] = Counter()
    reasons: Counter[str] = Counter()
    print("| world | setting | truth: share of the behavior's worth | what health said |\n|---|---|---|---|")
    for file in sorted(out.glob("*.json")):
        record = json.loads(file.read_text())
        for run in record["runs"]:
            truth = run["truth"]
            if truth is not None:  # by the limits of today
                run |= weigh(entry(record["setting"].partition(",")[0]), run["measures"]).to_dict()
            kind = "failed" if truth is None or truth < FAILED else "good" if truth >= GOOD else "between"
            counts[kind, run["verdict"]] += 1
            if kind == "failed":
                for finding in run.get("findings", []):
                    if finding["stop"]:
                        reasons[finding["metric"]] += 1
        truths = ", ".join("-" if run["truth"] is None else f"{run['truth']:.2f}" for run in record["runs"])
        said = ", ".join(f"{n} {verdict}" for verdict, n in Counter(run["verdict"] for run in record["runs"]).items())
        print(f"| {record['world']} | {record['setting']} | {truths} | {said} |")
    verdicts = ("good", "not checked", "watch", "do not deploy", "diverged")
    print("\n| the run was | " + " | ".join(verdicts) + " | runs |\n|---|---|---|---|---|---|")
    for kind in ("good", "between", "failed"):
        numbers = [counts[kind, verdict] for verdict in verdicts]
        print(f"| {kind} | {' | '.join(map(str, numbers))} | {sum(numbers)} |")
    print("\nwhat stopped the failed ones:", dict(reasons))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument(
        "--log", type=int, default=0, help="seed of the logs; the limits were chosen on those of seed 0"
    )
    parser.add_argument("--table", action="store_true", help="only print the table of what is there")
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    if not arguments.table:
        for world in SETTINGS:
            runs(world, arguments.out, arguments.log)
    table(arguments.out)


if __name__ == "__main__":
    main()
