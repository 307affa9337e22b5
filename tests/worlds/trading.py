"""A position in one security, changed once a day: the day's profit is the position times the return that came after.

Returns have heavy tails and some momentum; there are no rows for weekends, so the dates have gaps that are none.
"""

from __future__ import annotations

import numpy as np

from tests.worlds import Table, World, observation_columns, record

NAMES = ("ret_1d", "ret_5d", "vol_20d", "position")
COLUMNS = {
    "observation": NAMES,
    "action": ("target_position",),
    "reward": "pnl_bp",
    "episode": "ticker",
    "step": "date",
    "action_low": (-1.0,),
    "action_high": (1.0,),
}


def _start(rng: np.random.Generator, n: int) -> np.ndarray:
    return np.stack([rng.normal(0, 0.01, n), rng.normal(0, 0.02, n), np.full(n, 0.012), np.zeros(n)], axis=1)


def _behave(rng: np.random.Generator, state: np.ndarray) -> np.ndarray:
    """A trader who half believes in the trend and half in himself."""
    return np.clip(15 * state[:, 1] + rng.normal(0, 0.5, len(state)), -1, 1)[:, None]


def _step(rng: np.random.Generator, state: np.ndarray, actions: np.ndarray):
    _, week, vol, held = state.T
    wanted = np.clip(actions[:, 0], -1, 1)
    move = 0.06 * week + vol * rng.standard_t(5, len(state)) * 0.77
    vol = np.clip(0.94 * vol + 0.06 * np.abs(move) * 1.25, 0.004, 0.05)
    after = np.stack([move, 0.8 * week + move, vol, wanted], axis=1)
    return after, 1e4 * (wanted * move - 2e-4 * np.abs(wanted - held)), np.zeros(len(state), bool)


WORLD = World(NAMES, _start, lambda state: state, _behave, _step, horizon=250)


def good(seen: np.ndarray) -> np.ndarray:
    return np.clip(40 * seen[:, 1], -1, 1)[:, None]


def make_log(seed: int = 0, episodes: int = 40) -> Table:
    steps = record(WORLD, seed, episodes)
    days = np.busday_offset("2023-01-02", steps.step)
    return {
        "date": [str(day) for day in days],
        "ticker": [f"T{number:02d}" for number in steps.episode],
        **observation_columns(WORLD, steps, 6),
        "target_position": np.round(steps.actions[:, 0], 3),
        "pnl_bp": np.round(steps.rewards, 3),
    }
