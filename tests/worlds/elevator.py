"""One elevator, six floors: calls wait, the cabin goes up, down, or opens its doors. A day's log is cut, nothing ends.

The reward is minus the number of people who wait after the step.
"""

from __future__ import annotations

import numpy as np

from tests.worlds import Table, World, observation_columns, record

FLOORS = 6
NAMES = ("floor", *(f"waiting_{i}" for i in range(FLOORS)), "riders")
COLUMNS = {"observation": NAMES, "action": ("command",), "reward": "reward", "episode": "log_file"}
RATE = np.array([0.10, 0.03, 0.02, 0.05, 0.02, 0.04])


def _start(rng: np.random.Generator, n: int) -> np.ndarray:
    return np.concatenate(
        [rng.integers(0, FLOORS, (n, 1)), rng.poisson(0.5, (n, FLOORS)), np.zeros((n, 1))], axis=1
    ).astype(float)


def _nearest(state: np.ndarray) -> np.ndarray:
    """0 down, 1 open, 2 up: toward the floor with the most people for its distance."""
    at = state[:, :1]
    worth = state[:, 1 : 1 + FLOORS] / (1 + np.abs(np.arange(FLOORS) - at))
    goal = np.where(worth.max(axis=1) > 0, worth.argmax(axis=1), at[:, 0])
    return (1 + np.sign(goal - at[:, 0])).astype(int)


def _behave(rng: np.random.Generator, state: np.ndarray) -> np.ndarray:
    return np.where(rng.random(len(state)) < 0.55, _nearest(state), rng.integers(0, 3, len(state)))


def _step(rng: np.random.Generator, state: np.ndarray, actions: np.ndarray):
    floor = np.clip(state[:, 0] + actions - 1, 0, FLOORS - 1)
    waiting = state[:, 1 : 1 + FLOORS].copy()
    rows, at = np.arange(len(state)), state[:, 0].astype(int)
    board = np.where(actions == 1, np.minimum(waiting[rows, at], 8), 0)
    waiting[rows, at] -= board
    riders = np.where(actions == 1, board, state[:, -1])
    waiting = np.minimum(waiting + rng.poisson(RATE, waiting.shape), 12)
    after = np.concatenate([floor[:, None], waiting, riders[:, None]], axis=1)
    return after, -waiting.sum(axis=1), np.zeros(len(state), bool)


WORLD = World(NAMES, _start, lambda state: state, _behave, _step, horizon=400)
good = _nearest


def make_log(seed: int = 0, episodes: int = 25) -> Table:
    steps = record(WORLD, seed, episodes)
    return {
        "log_file": [f"2025-03-{number + 1:02d}.log" for number in steps.episode],
        **observation_columns(WORLD, steps, 0),
        "command": steps.actions,
        "reward": steps.rewards,
    }
