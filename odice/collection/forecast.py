"""Forecast the cost of collecting, from timing a few steps of the environment and a few updates of the learner."""

from __future__ import annotations

import time

import jax
import numpy as np

from odice.collection.behavior import Training
from odice.collection.learner import make_learn
from odice.collection.planner.mazes import collect_maze
from odice.collection.vector_env import VectorEnv
from odice.evaluation.simulator.evaluate import Environment
from odice.training.compilation import use_cache
from odice.training.forecast import PROBE_SECONDS, size
from odice.training.loop import initial_state
from odice.training.progress import duration

UPDATES = 20
"""Updates of one timed call."""
MAZE_STEPS = 2_000
"""Steps of a planner that are timed, at most."""


def planner_cost(env: str, steps: int) -> str:
    """Forecast collecting `steps` steps with a planner."""
    began = time.perf_counter()
    some = collect_maze(env, min(steps, MAZE_STEPS))
    return _sentence((time.perf_counter() - began) * steps / some.n_steps, some.nbytes / some.n_steps * steps, "")


def cost(env: Environment, training: Training, steps: int, budget: int, allow_import: bool = False) -> str:
    """Forecast collecting `steps` steps after a training of at most `budget` steps (0: no training)."""
    envs = VectorEnv(env, training.num_envs, (0,), max_steps=training.max_steps, allow_import=allow_import)
    rng, rows, began = np.random.default_rng(0), [], time.perf_counter()
    try:
        while time.perf_counter() - began < PROBE_SECONDS or len(rows) < 10:
            rows.append(envs.step(rng.uniform(-1, 1, (training.num_envs, envs.spec.action_dim)).astype(np.float32)))
        step_rate = training.num_envs * len(rows) / (time.perf_counter() - began)
    finally:
        envs.close()
    some = np.concatenate(rows)
    seconds, learned = (budget + steps) / step_rate, f"{step_rate:,.0f} steps/s"
    if budget > training.warmup:
        rate, start = _learning(training, envs.spec, some)
        seconds += start + (budget - training.warmup) / rate
        learned += f", {rate:,.0f} updates/s"
    return _sentence(seconds, some.itemsize * some.shape[1] * (2 * budget + steps), f" ({learned})")


def _learning(training: Training, spec, rows: np.ndarray) -> tuple[float, float]:
    """Return the learner's updates per second, and the seconds until its first updates are done."""
    use_cache()
    began, learn = time.perf_counter(), make_learn(training.sac, spec, UPDATES)
    state, step, times = initial_state(training.sac.build(spec), 0), 0, []
    while len(times) < 3 or sum(times[1:]) < PROBE_SECONDS:
        call = time.perf_counter()
        state, _ = jax.block_until_ready(learn(state, rows, len(rows), 0, step))
        times.append(time.perf_counter() - call)
        step += UPDATES
    return UPDATES * (len(times) - 1) / sum(times[1:]), time.perf_counter() - began - sum(times[1:])


def _sentence(seconds: float, disk: float, rates: str) -> str:
    return f"about {duration(seconds)} on this machine{rates}, {size(disk)} of disk, if it trains that long"
