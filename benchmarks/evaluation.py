"""Environment steps per second of `evaluate`, against a plain loop over one environment, in the same run.

    python benchmarks/evaluation.py                    # Hopper-v4, 256-256 and 1024-1024 policies
    python benchmarks/evaluation.py --env HalfCheetah-v4 --seconds 10

The ways take turns, so that a busy machine is equally busy for all: the plain loop (one environment, one observation at
a time), `evaluate`, the same on one thread, and Gymnasium's two vector environments stepped with the same policy. BLAS
has one thread in all of them, or a busy machine would slow down the other ways a hundredfold. The policy hardly moves:
Hopper stands for about a hundred steps and falls, so resets are part of it, as they are of evaluation. The best of all
turns counts, for other programs can only slow a machine down; ratios are to the plain loop.
"""

from __future__ import annotations

import argparse
import json
import platform
import time
import warnings
from collections.abc import Callable
from pathlib import Path

import gymnasium
import numpy as np
from threadpoolctl import threadpool_limits

from odice.envs.make import make
from odice.evaluation.simulator.evaluate import BATCH_ENVS, Evaluator
from odice.policy.file import Layout
from odice.policy.policy import Policy


def still_policy(env: gymnasium.Env, hidden: int) -> Policy:
    rng = np.random.default_rng(0)
    layout = Layout((env.observation_space.shape[0], hidden, hidden, env.action_space.shape[0]), False, "relu", "clip")
    tensors = {name: _uniform(rng, shape) for name, shape in layout.shapes.items()}
    tensors["layers.2.weight"] *= 0.01
    return Policy(layout, tensors)


def _uniform(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    bound = 1 / np.sqrt(shape[0])
    return rng.uniform(-bound, bound, shape).astype(np.float32)


def plain(policy: Policy, env: gymnasium.Env, steps: int) -> int:
    """What a first script does."""
    obs, _ = env.reset(seed=0)
    for _ in range(steps):
        obs, _, terminated, truncated, _ = env.step(policy(obs))
        if terminated or truncated:
            obs, _ = env.reset()
    return steps


def vector(policy: Policy, envs: gymnasium.vector.VectorEnv, steps: int) -> int:
    obs, _ = envs.reset(seed=0)
    for _ in range(steps // BATCH_ENVS):
        obs, *_ = envs.step(policy(obs))
    return steps // BATCH_ENVS * BATCH_ENVS


def measure(ways: dict[str, Callable[[], int]], seconds: float) -> dict[str, float]:
    """Steps per second of each way: the best of the turns taken until the time is up."""
    rates: dict[str, list[float]] = {name: [] for name in ways}
    end = time.perf_counter() + seconds * len(ways)
    while time.perf_counter() < end or len(next(iter(rates.values()))) < 3:
        for name, way in ways.items():
            began = time.perf_counter()
            steps = way()
            rates[name].append(steps / (time.perf_counter() - began))
    return {name: max(each) for name, each in rates.items()}


def compare(env_id: str, hidden: int, seconds: float) -> dict[str, float]:
    env = make(env_id)
    policy = still_policy(env, hidden)
    makers = [lambda: make(env_id)] * BATCH_ENVS
    threaded, single = Evaluator(env_id), Evaluator(env_id)
    single._pool.close()
    single._pool._threads = None
    sync, processes = gymnasium.vector.SyncVectorEnv(makers), gymnasium.vector.AsyncVectorEnv(makers)
    steps = 200 * BATCH_ENVS  # enough that every way meets a few resets
    ways = {
        "plain loop": lambda: plain(policy, env, steps),
        "evaluate": lambda: threaded(policy, episodes=2 * BATCH_ENVS).steps,
        "evaluate, one thread": lambda: single(policy, episodes=2 * BATCH_ENVS).steps,
        "gymnasium sync": lambda: vector(policy, sync, steps),
        "gymnasium async": lambda: vector(policy, processes, steps),
    }
    try:
        with threadpool_limits(1, "blas"):
            return measure(ways, seconds)
    finally:
        threaded.close()
        single.close()
        sync.close()
        processes.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--env", default="Hopper-v4")
    parser.add_argument("--hidden", type=int, nargs="+", default=[256, 1024])
    parser.add_argument("--seconds", type=float, default=5.0, help="per way")
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    warnings.filterwarnings("ignore", message=".*is out of date.*")
    results = {}
    for hidden in args.hidden:
        rates = results[hidden] = compare(args.env, hidden, args.seconds)
        print(f"{args.env}, policy {hidden}-{hidden}")
        for name, rate in rates.items():
            print(f"  {name:<22}{rate:>9.0f} steps/s   {rate / rates['plain loop']:.2f} x")
    if args.json:
        record = {"env": args.env, "machine": platform.processor() or platform.machine(), "steps_per_second": results}
        args.json.write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
