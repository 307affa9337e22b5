"""A dungeon of eight by eight fields: find the key, then the door; a guard walks about. Won, lost, or given up.

All columns are small whole numbers, so short games repeat by chance; rewards come at the end only.
"""

from __future__ import annotations

import numpy as np

from tests.worlds import Table, World, observation_columns, record

NAMES = ("x", "y", "has_key", "key_x", "key_y", "guard_x", "guard_y")
COLUMNS = {
    "observation": NAMES,
    "action": ("move",),
    "reward": "score",
    "episode": "game_id",
    "step": "turn",
    "terminated": "game_over",
    "n_actions": 4,
}
MOVES, DOOR = np.array([[0, 1], [1, 0], [0, -1], [-1, 0]]), np.array([7, 7])


def _start(rng: np.random.Generator, n: int) -> np.ndarray:
    key, guard = rng.integers(0, 8, (n, 2)), rng.integers(2, 8, (n, 2))
    zero = np.zeros((n, 1))
    return np.concatenate([np.zeros((n, 2)), zero, key, guard], axis=1)


def _toward(state: np.ndarray) -> np.ndarray:
    goal = np.where(state[:, 2:3] > 0, DOOR, state[:, 3:5])
    off = goal - state[:, :2]
    sideways = np.abs(off[:, 0]) > np.abs(off[:, 1])
    return np.where(sideways, np.where(off[:, 0] > 0, 1, 3), np.where(off[:, 1] > 0, 0, 2))


def _behave(rng: np.random.Generator, state: np.ndarray) -> np.ndarray:
    return np.where(rng.random(len(state)) < 0.45, _toward(state), rng.integers(0, 4, len(state)))


def _step(rng: np.random.Generator, state: np.ndarray, actions: np.ndarray):
    place = np.clip(state[:, :2] + MOVES[actions], 0, 7)
    key = np.maximum(state[:, 2], (place == state[:, 3:5]).all(axis=1))
    guard = np.clip(state[:, 5:7] + MOVES[rng.integers(0, 4, len(state))], 0, 7)
    won, lost = (key > 0) & (place == DOOR).all(axis=1), (guard == place).all(axis=1)
    after = np.concatenate([place, key[:, None], state[:, 3:5], guard], axis=1)
    return after, np.where(lost, -1.0, np.where(won, 1.0, 0.0)), won | lost


WORLD = World(NAMES, _start, lambda state: state, _behave, _step, horizon=60)
good = _toward


def make_log(seed: int = 0, episodes: int = 250) -> Table:
    steps = record(WORLD, seed, episodes)
    return {
        "game_id": steps.episode,
        "turn": steps.step,
        **observation_columns(WORLD, steps, 0),
        "move": steps.actions,
        "score": steps.rewards,
        "game_over": steps.terminated,
    }
