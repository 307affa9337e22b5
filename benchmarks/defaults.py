"""Does O-DICE's default work on a log that nobody tuned for? Every cell (log, who, seed) is a run directory: run again,
it continues.

    python benchmarks/defaults.py make                         # the logs, into runs/defaults/data
    python benchmarks/defaults.py run --logs hospital --who bc iql default --seeds 0 1
    python benchmarks/defaults.py table

Two of the logs are small ones of the local suite. The others come from elsewhere: docs/defaults.md says how.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path("runs/defaults")
NETS = {"value_hidden": (64, 64), "policy_hidden": (64, 64)}
FAST = {"value_lr": 1e-3, "policy_lr": 1e-3}


def make_logs() -> None:
    """The two small ones, which are the suite's (`odice suite`) with fewer episodes."""
    from odice.collection.discrete import cartpole_log, hospital_log

    (ROOT / "data").mkdir(parents=True, exist_ok=True)
    for name, data in (("hospital", hospital_log(300)), ("cartpole", cartpole_log(600))):
        path = data.save(ROOT / "data" / f"{name}.hdf5")
        print(f"{path}: {data.n_steps} steps, {data.n_episodes} episodes, return {data.returns.mean():.3f}")


LOGS: dict[str, dict[str, Any]] = {
    "hospital": {
        "data": "hospital.hdf5",
        "env": "odice/Hospital-v0",
        "steps": 6000,
        "eval_episodes": 100,
    },
    "cartpole": {"data": "cartpole.hdf5", "env": "CartPole-v1", "steps": 6000, "eval_episodes": 10},
    "bundled": {"data": "bundled/hopper-replay", "env": "Hopper-v5", "steps": 9600, "eval_episodes": 5},
    "many-bad": {"data": "hopper-replay.hdf5", "env": "Hopper-v5", "steps": 9600, "eval_episodes": 5},
    "medium-expert": {"data": "hopper-medium-expert.hdf5", "env": "Hopper-v5", "steps": 9600, "eval_episodes": 5},
    "maze": {"data": "pointmaze-medium-diverse.hdf5", "env": None, "steps": 9600, "eval_episodes": 5},
}


WHO: dict[str, dict[str, Any]] = {
    "bc": {"algo": "bc", "policy_hidden": (64, 64), "policy_lr": 1e-3},
    "iql": {"algo": "iql", "critic_hidden": (64, 64), "critic_lr": 1e-3, **NETS, **FAST},
    "iql-maze": {
        "algo": "iql",
        "critic_hidden": (64, 64),
        "critic_lr": 1e-3,
        "expectile": 0.9,
        "beta": 10.0,
        "reward": "minus-1",
        **NETS,
        **FAST,
    },
    "default": {"algo": "auto", **NETS},
    "old": {"algo": "odice", "preset": "paper", "reward": "none", "normalize_obs": True, **NETS, **FAST},
}
"""`old` are the settings of the paper's text, on rewards as they are."""


def cell(log: str, who: str, seed: int) -> None:
    """One run, unless it is there already."""
    import odice

    out = ROOT / "runs" / log / who / f"seed-{seed}"
    if (out / "result.json").exists():
        return
    about, settings = dict(LOGS[log]), dict(WHO[who])
    data = about.pop("data")
    dataset = odice.load(data if "/" in data else ROOT / "data" / data)
    odice.train(
        dataset,
        out=str(out),
        seed=seed,
        eval_every=about["steps"] // 12,
        allow=("all",),
        quiet=True,
        convention="bootstrap",
        checkpoint_every=10**6,
        **about,
        **settings,
    )


def last_ten(log: str, who: str, seed: int) -> np.ndarray | None:
    """The mean returns of the last ten evaluations."""
    path = ROOT / "runs" / log / who / f"seed-{seed}" / "evaluations.jsonl"
    if not path.exists():
        return None
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    return np.array([np.mean(row["returns"]) for row in rows])[-10:] if rows else None


def table(logs: list[str], whos: list[str], seeds: list[int]) -> None:
    """A line for each log and who: mean, spread, worst and last of the last ten evaluations, per seed."""
    for log in logs:
        for who in whos or sorted(p.name for p in (ROOT / "runs" / log).glob("*")):
            found = [x for s in seeds if (x := last_ten(log, who, s)) is not None]
            if found:
                cells = "  ".join(
                    f"{x.mean():8.2f} +- {x.std():7.2f} (worst {x.min():8.2f}, last {x[-1]:8.2f})" for x in found
                )
                print(f"{log:14s} {who:22s} {cells}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("do", choices=("make", "run", "table"))
    parser.add_argument("--logs", nargs="*", default=list(LOGS))
    parser.add_argument("--who", nargs="*", default=[])
    parser.add_argument("--seeds", nargs="*", type=int, default=[0])
    args = parser.parse_args()
    if args.do == "make":
        make_logs()
    elif args.do == "run":
        for seed in args.seeds:
            for log in args.logs:
                for who in args.who:
                    begin = time.time()
                    cell(log, who, seed)
                    print(f"[{time.time() - begin:.0f} s] ", end="", flush=True)
                    table([log], [who], [seed])
    else:
        table(args.logs, args.who, args.seeds)
