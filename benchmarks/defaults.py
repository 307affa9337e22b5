"""Does O-DICE's default work on a log that nobody tuned for? Every cell (log, who, seed) is a run directory: run again,
it continues.

    python benchmarks/defaults.py make                         # the logs, into runs/defaults/data
    python benchmarks/defaults.py run --logs hospital --who bc iql default --seeds 0 1
    python benchmarks/defaults.py table

Two of the logs are small worlds of this file. The others come from elsewhere: docs/defaults.md says how.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np

ROOT = Path("runs/defaults")
NETS = {"value_hidden": (64, 64), "policy_hidden": (64, 64)}
DRIFT = 1.06
FAST = {"value_lr": 1e-3, "policy_lr": 1e-3}


class Hospital(gymnasium.Env):
    """A patient with three signs; each of five treatments moves them by its own matrix. Home (+1), death (-1), or 20
    steps (0)."""

    observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (5,), np.float32)
    action_space = gymnasium.spaces.Discrete(5)
    _moves = np.random.default_rng(7).normal(size=(5, 3, 3)) * 0.35
    _pushes = np.random.default_rng(8).normal(size=(5, 3)) * 0.3

    def reset(self, *, seed: int | None = None, options: Any = None):
        super().reset(seed=seed)
        self._signs = self.np_random.normal(size=3) * 0.8
        self._signs *= max(1.0, 1.2 / np.linalg.norm(self._signs))
        self._age, self._t = self.np_random.uniform(-1, 1), 0
        return self._seen(), {}

    def _seen(self):
        return np.array([*self._signs, self._age, self._t / 20], np.float32)

    def step(self, action):
        drift = DRIFT + 0.05 * self._age
        signs = self._signs
        signs = drift * signs + 0.35 * (np.tanh(self._moves[action] @ signs) + self._pushes[action] * 0.5)
        self._signs = signs + 0.2 * self.np_random.normal(size=3)
        self._t += 1
        size = float(np.linalg.norm(self._signs))
        reward = 1.0 if size < 0.5 else -1.0 if size > 2.8 else 0.0
        return self._seen(), reward, reward != 0.0, self._t >= 20, {}

    def best(self, signs: np.ndarray, age: float) -> int:
        drift = DRIFT + 0.05 * age
        after = [drift * signs + 0.35 * (np.tanh(self._moves[a] @ signs) + self._pushes[a] * 0.5) for a in range(5)]
        return int(np.argmin([np.linalg.norm(x) for x in after]))


if "Hospital-v0" not in gymnasium.registry:  # a script is imported a second time, by its name
    gymnasium.register("Hospital-v0", entry_point=Hospital)


def _roll(env, act, episodes: int, seed: int) -> dict[str, np.ndarray]:
    """A log with one row per step; `act(obs, rng, episode)` is the behavior."""
    rng = np.random.default_rng(seed)
    rows: dict[str, list] = {
        k: [] for k in ("observations", "actions", "rewards", "next_observations", "terminals", "timeouts")
    }
    for i in range(episodes):
        obs, _ = env.reset(seed=seed * 100_000 + i)
        done = False
        while not done:
            action = act(obs, rng, i)
            after, reward, terminated, truncated, _ = env.step(action)
            for name, value in zip(
                rows, (obs, action, reward, after, terminated, truncated and not terminated), strict=True
            ):
                rows[name].append(value)
            obs, done = after, terminated or truncated
    return {name: np.asarray(value) for name, value in rows.items()}


def _save(name: str, rows: dict[str, np.ndarray]) -> None:
    import h5py

    path = ROOT / "data" / f"{name}.hdf5"
    path.parent.mkdir(parents=True, exist_ok=True)
    kinds = {"actions": np.int32, "terminals": bool, "timeouts": bool}
    with h5py.File(path, "w") as out:
        for key, value in rows.items():
            out.create_dataset(key, data=np.asarray(value, kinds.get(key, np.float32)))
    ends = np.flatnonzero(rows["terminals"] | rows["timeouts"])
    returns = np.add.reduceat(rows["rewards"], np.r_[0, ends[:-1] + 1])
    print(
        f"{path}: {len(rows['rewards'])} steps, {len(ends)} episodes, return {returns.mean():.3f} (max "
        f"{returns.max():.0f})"
    )


def make_hospital() -> None:
    env = Hospital()

    def act(obs, rng, episode):
        if rng.uniform() < 0.55:
            return int(rng.integers(5))
        return env.best(obs[:3].astype(float), float(obs[3]))

    _save("hospital", _roll(env, act, 300, 0))


def make_cartpole() -> None:
    """A fair controller in two episodes of ten; the others push to the wrong side more often than to the right one."""
    env = gymnasium.make("CartPole-v1")
    good = np.array([0.1, 0.3, 1.0, 0.5])

    def act(obs, rng, episode):
        right = (0.8, 0.75, 0.45, 0.4, 0.35, 0.3, 0.4, 0.45, 0.3, 0.35)[episode % 10]
        return int(good @ obs > 0) if rng.uniform() < right else int(good @ obs <= 0)

    _save("cartpole", _roll(env, act, 600, 0))


LOGS: dict[str, dict[str, Any]] = {
    "hospital": {
        "data": "hospital.hdf5",
        "env": "benchmarks.defaults:Hospital-v0",
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
    "default": {"algo": "odice", **NETS},
    "old": {"algo": "odice", "preset": "paper", "reward": "none", "normalize_obs": True, **NETS, **FAST},
}
"""`old` was the default before: the settings of the paper's text, on rewards as they are."""


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
        make_hospital()
        make_cartpole()
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
