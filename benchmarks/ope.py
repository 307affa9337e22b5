"""Verdicts on trained policies whose true return a simulator knows.

    python benchmarks/ope.py run --out runs/ope --data FOLDERS --logs hospital bundled ...
    python benchmarks/ope.py table --out runs/ope

Each log has 21 policies: three algorithms at three checkpoints, and the last ones with noise on their weights at four
levels, so that they spread from good to bad. Logs are cut to 50,000 steps; half of the episodes is held out of training
and judges. Everything made is a file, and what is there is not made again: stop it and start it again.

| number   | what it is                                                                                        |
|----------|---------------------------------------------------------------------------------------------------|
| rank     | Spearman's correlation between FQE and truth, over the policies of a log                          |
| coverage | share of FQE's 95 % intervals that hold the truth, give or take two of its standard errors        |
| verdicts | how often it said "better", "not better" or "cannot tell", and how often the sign was wrong       |
| health   | of the nine policies without noise: the verdict of their runs' health check                       |
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))

import odice
from odice.data.dataset import Dataset
from odice.envs.make import make
from odice.evaluation.ope.estimate import estimate
from odice.policy.policy import Policy
from tests.worlds import hospital, record

STEPS, DISCOUNT = 50_000, 0.99
CHECKPOINTS = (500, 1000, 2000)
NOISE = (0.15, 0.3, 0.6, 1.0)
ENVS = 25
SMALL: dict[str, Any] = {"policy_hidden": (64, 64), "policy_lr": 1e-3}
CRITIC: dict[str, Any] = {"critic_hidden": (64, 64), "critic_lr": 1e-3}
VALUE: dict[str, Any] = {"value_hidden": (64, 64), "value_lr": 1e-3}


class World(NamedTuple):
    data: str
    env: str
    kind: str
    """`steps`, `discrete`, `maze` or `ward`: which settings the algorithms get, and where the truth comes from."""


WORLDS = {
    "cartpole": World("cartpole.hdf5", "CartPole-v1", "discrete"),
    "hospital": World("", "", "ward"),
    "bundled": World("bundled/hopper-replay", "Hopper-v5", "steps"),
    "hopper-replay": World("hopper-replay.hdf5", "Hopper-v5", "steps"),
    "hopper-medium-expert": World("hopper-medium-expert.hdf5", "Hopper-v5", "steps"),
    "halfcheetah-medium": World("halfcheetah-medium.hdf5", "HalfCheetah-v5", "steps"),
    "pointmaze-umaze-diverse": World("pointmaze-umaze-diverse.hdf5", "pointmaze-umaze-diverse", "maze"),
    "pointmaze-medium-diverse": World("pointmaze-medium-diverse.hdf5", "pointmaze-medium-diverse", "maze"),
}
MAZE = {"reward": "minus-1", "expectile": 0.9, "beta": 10.0}


def algorithms(kind: str) -> dict[str, dict[str, Any]]:
    """Three, by name."""
    return {
        "bc": SMALL,
        "iql": {**SMALL, **CRITIC, **VALUE, **(MAZE if kind == "maze" else {})},
        "auto": {**SMALL, **VALUE},
    }


# --- logs, policies, truth -------------------------------------------------------------------------------------------


def open_log(name: str, folders: list[Path]) -> Dataset:
    """At most `STEPS` steps of the log, whole episodes drawn at random."""
    given = WORLDS[name].data
    if WORLDS[name].kind == "ward":
        return hospital.dataset(0, 4700)
    paths = [folder / given for folder in folders if (folder / given).exists()]
    data = odice.load(paths[0] if paths else given)
    order = np.random.default_rng(0).permutation(data.n_episodes)
    chosen = order[np.cumsum(data.lengths[order]) <= STEPS]
    return data.select(np.sort(chosen))


def make_policies(name: str, data: Dataset, folder: Path) -> dict[str, Policy]:
    """The policies of a log, by name; trained if they are not there."""
    policies: dict[str, Policy] = {}
    for algo, settings in algorithms(WORLDS[name].kind).items():
        run = folder / "runs" / algo
        if not (run / "result.json").exists():
            every = {"steps": CHECKPOINTS[-1], "eval_every": 500, "checkpoint_every": 500, "keep": 10}
            odice.train(
                data, algo=algo, env="none", out=str(run), quiet=True, allow=("all",), holdout=0.5, **every, **settings
            )
        for step in CHECKPOINTS:
            policies[f"{algo}-{step}"] = Policy.load(run / "policy" / f"step-{step}")
        for level in NOISE:
            policies[f"{algo}-noise-{level:g}"] = perturbed(policies[f"{algo}-{CHECKPOINTS[-1]}"], level, len(policies))
    return policies


def perturbed(policy: Policy, noise: float, seed: int) -> Policy:
    """Noise on every weight, in units of its layer's spread: another policy, as deterministic as before."""
    import dataclasses

    rng = np.random.default_rng(seed)
    shaken = {
        k: (t + noise * t.std() * rng.standard_normal(t.shape)).astype(np.float32) for k, t in policy.tensors.items()
    }
    return dataclasses.replace(policy, tensors=shaken)


def true_returns(policy: Policy, world: World, data: Dataset, episodes: int) -> np.ndarray:
    """(episodes, 2) discounted and undiscounted returns within the log's longest episode, many environments at once.

    A maze's log starts in every cell and its task in one: there the ball is put where an episode of the log started.
    """
    if world.kind == "ward":
        steps = record(hospital.WORLD, 777, 20 * episodes, policy)
        sums = [np.bincount(steps.episode, steps.rewards * g**steps.step) for g in (DISCOUNT, 1.0)]
        return np.stack(sums, axis=1)
    horizon, rng = int(data.lengths.max()), np.random.default_rng(5)
    envs = [make(world.env, max_steps=horizon) for _ in range(min(ENVS, episodes))]
    out: list[tuple[float, float]] = []
    while len(out) < episodes:
        observations = [env.reset(seed=777_000 + len(out) + i)[0] for i, env in enumerate(envs)]
        if world.kind == "maze":
            observations = [_put(env, data[int(rng.integers(data.n_episodes))].observations[0]) for env in envs]
        earned, alive = np.zeros((len(envs), 2)), list(range(len(envs)))
        for t in range(horizon):
            actions = policy(np.stack([observations[i] for i in alive]))
            still = []
            for i, action in zip(alive, actions, strict=True):
                observations[i], reward, terminated, truncated, _ = envs[i].step(action)
                earned[i] += float(reward) * np.array([DISCOUNT**t, 1.0])
                if not (terminated or truncated):
                    still.append(i)
            alive = still
            if not alive:
                break
        out += [tuple(row) for row in earned]
    for env in envs:
        env.close()
    return np.array(out[:episodes])


def _put(env: Any, obs: np.ndarray) -> np.ndarray:
    ball = env.unwrapped.point_env
    ball.set_state(obs[:2].astype(np.float64), obs[2:].astype(np.float64))
    return obs


# --- judging ----------------------------------------------------------------------------------------------------------


def save(file: Path, content: Any) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    temporary = file.with_suffix(".tmp")
    temporary.write_text(json.dumps(content))
    temporary.replace(file)


def run(args) -> None:
    for name in args.logs:
        data = open_log(name, args.data)
        folder = args.out / name
        for label, policy in make_policies(name, data, folder).items():
            file = folder / "verdicts" / f"{label}.json"
            if file.exists():
                continue
            episodes = args.episodes * (10 if WORLDS[name].kind in ("discrete", "ward") else 1)
            truth = true_returns(policy, WORLDS[name], data, episodes)
            estimates = estimate(policy, data, discount=DISCOUNT)
            row = {"mean": truth.mean(0)[0], "error": truth.std(0)[0] / len(truth) ** 0.5}
            health = policy.about.get("health", {}).get("verdict") if "noise" not in label else None
            save(file, {**estimates.to_dict(), "truth": row, "health": health})
            print(
                f"{name} {label}: true {row['mean']:.3g} of {estimates.behavior.mean:.3g}, {estimates.verdict}",
                flush=True,
            )


def table(out: Path) -> None:
    from scipy.stats import spearmanr

    head = ("log", "policies", "rank", "coverage", "truly better", "better", "not better", "wrong sign", "cannot tell")
    print("| " + " | ".join((*head, "health")) + " |\n" + "|---" * (len(head) + 1) + "|")
    for folder in sorted(path.parent for path in out.glob("*/verdicts")):
        rows = [json.loads(file.read_text()) for file in sorted((folder / "verdicts").glob("*.json"))]
        truth, error = (np.array([row["truth"][key] for row in rows]) for key in ("mean", "error"))
        fqe = [row["estimates"]["fqe"]["value"] for row in rows]
        mean, low, high = (np.array([one[key] for one in fqe]) for key in ("mean", "low", "high"))
        better = truth > np.array([row["behavior"]["mean"] for row in rows])
        said = [row["verdict"]["answer"] for row in rows]
        wrong = sum(answer == ("not better" if true else "better") for answer, true in zip(said, better, strict=True))
        held = np.mean((low - 2 * error <= truth) & (truth <= high + 2 * error))
        cells = [len(rows), f"{spearmanr(truth, mean).statistic:.2f}", f"{held:.0%}", int(better.sum())]
        cells += [said.count("better"), said.count("not better"), wrong, said.count("cannot tell")]
        health = [row["health"] for row in rows if row["health"]]
        words = ", ".join(f"{health.count(word)} {word}" for word in dict.fromkeys(health))
        print(f"| {folder.name} | " + " | ".join(map(str, cells)) + f" | {words} |")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=("run", "table"))
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--logs", nargs="+", default=["hospital", "bundled"], choices=list(WORLDS))
    parser.add_argument("--data", type=Path, nargs="*", default=[], help="folders that hold the logs")
    parser.add_argument("--episodes", type=int, default=25, help="of the truth; ten times as many for discrete worlds")
    args = parser.parse_args()
    table(args.out) if args.what == "table" else run(args)
    return 0


if __name__ == "__main__":
    sys.exit(main())
