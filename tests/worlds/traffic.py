"""A crossing with four arms: which pair of lights is green for the next ten seconds. Counts of cars, nothing
terminates.

The reward is minus the cars that wait afterwards, so it is a sum over the next row.
"""

from __future__ import annotations

import numpy as np

from tests.worlds import Table, World, observation_columns, record

NAMES = ("queue_n", "queue_e", "queue_s", "queue_w", "green_ns", "green_for_s")
COLUMNS = {"observation": NAMES, "action": ("phase",), "reward": "reward", "episode": "run", "step": "t_s"}
ARRIVE = np.array([0.9, 1.7, 0.8, 1.5])


def _start(rng: np.random.Generator, n: int) -> np.ndarray:
    return np.concatenate([rng.integers(0, 8, (n, 4)), rng.integers(0, 2, (n, 1)), np.zeros((n, 1))], axis=1).astype(
        float
    )


def _behave(rng: np.random.Generator, state: np.ndarray) -> np.ndarray:
    """A fixed cycle of thirty seconds each, with a policeman who sometimes steps in."""
    cycle = np.where(state[:, 5] >= 30, 1 - state[:, 4], state[:, 4])
    return np.where(rng.random(len(state)) < 0.15, rng.integers(0, 2, len(state)), cycle).astype(int)


def _step(rng: np.random.Generator, state: np.ndarray, actions: np.ndarray):
    queues, green, since = state[:, :4], state[:, 4], state[:, 5]
    switched = actions != green
    flow = np.where(switched, 2, 4)[:, None] * np.stack([actions, 1 - actions] * 2, axis=1)
    left = np.minimum(np.maximum(queues - flow, 0) + rng.poisson(ARRIVE, queues.shape), 40)
    after = np.concatenate([left, actions[:, None], np.where(switched, 0, since + 10)[:, None]], axis=1)
    return after, -left.sum(axis=1), np.zeros(len(state), bool)


WORLD = World(NAMES, _start, lambda state: state, _behave, _step, horizon=180)


def good(seen: np.ndarray) -> np.ndarray:
    ns, ew = seen[:, 0] + seen[:, 2], seen[:, 1] + seen[:, 3]
    return np.where(np.abs(ns - ew) > 4, ns > ew, seen[:, 4]).astype(int)


def make_log(seed: int = 0, episodes: int = 60) -> Table:
    steps = record(WORLD, seed, episodes)
    return {
        "run": steps.episode,
        "t_s": steps.step * 10,
        **observation_columns(WORLD, steps, 0),
        "phase": steps.actions,
        "reward": steps.rewards,
    }
