"""A batch reactor, A to B to C: an hour of cooling and feeding, and the yield of B weighed at the end.

Every batch ends after exactly sixty minutes, and that is the end: its only reward is there. The analyzer gives the
concentrations every minute; the operators' two actions have different units.
"""

from __future__ import annotations

import numpy as np

from tests.worlds import Table, World, observation_columns, record

NAMES = ("temp_c", "jacket_temp_c", "conc_a", "conc_b", "conc_c", "minute")
COLUMNS = {
    "observation": NAMES,
    "action": ("cooling_l_min", "feed_ml_min"),
    "reward": "yield_pct",
    "episode": "batch_id",
    "terminated": "batch_end",
    "action_low": (0.0, 0.0),
    "action_high": (20.0, 500.0),
}


def _start(rng: np.random.Generator, n: int) -> np.ndarray:
    zero = np.zeros(n)
    return np.stack([rng.normal(60, 2, n), rng.normal(40, 1, n), rng.normal(1.0, 0.05, n), zero, zero, zero], axis=1)


def _behave(rng: np.random.Generator, state: np.ndarray) -> np.ndarray:
    """Hold about 70 degrees, with a setpoint that each operator likes to be different."""
    cooling = 10 + 0.8 * (state[:, 0] - 72) + rng.normal(0, 2.5, len(state))
    feed = 200 + rng.normal(0, 60, len(state))
    return np.stack([np.clip(cooling, 0, 20), np.clip(feed, 0, 500)], axis=1)


def _step(rng: np.random.Generator, state: np.ndarray, actions: np.ndarray):
    temp, jacket, a, b, c, minute = state.T
    cooling, feed = np.clip(actions, 0, [20, 500]).T
    k1, k2 = 0.05 * np.exp((temp - 70) / 15), 0.012 * np.exp((temp - 70) / 8)
    made, lost = np.minimum(k1 * a, a), np.minimum(k2 * b, b)
    a, b, c = a - made + feed / 15000, b + made - lost, c + lost
    jacket = jacket + 0.3 * (55 - 1.6 * cooling - jacket) + rng.normal(0, 0.2, len(temp))
    temp = temp + 45 * made + 20 * lost - 0.07 * (temp - jacket) + rng.normal(0, 0.2, len(temp))
    after = np.stack([temp, jacket, a, b, c, minute + 1], axis=1)
    over = minute + 1 >= 60
    return after, np.where(over, 100 * b / (a + b + c), 0.0), over


WORLD = World(NAMES, _start, lambda state: state, _behave, _step, horizon=60)


def good(seen: np.ndarray) -> np.ndarray:
    """Warm at first, cooler as there is more of B to lose, and nothing fed near the end."""
    wanted = np.where(seen[:, 5] < 20, 74.0, 68.0)
    feed = np.where(seen[:, 5] < 30, 150.0, 0.0)
    return np.stack([np.clip(10 + 1.5 * (seen[:, 0] - wanted), 0, 20), feed], axis=1)


def make_log(seed: int = 0, episodes: int = 80) -> Table:
    steps = record(WORLD, seed, episodes)
    return {
        "batch_id": [f"B-{2400 + number}" for number in steps.episode],
        **observation_columns(WORLD, steps, 4),
        "cooling_l_min": np.round(steps.actions[:, 0], 2),
        "feed_ml_min": np.round(steps.actions[:, 1], 0),
        "yield_pct": np.round(steps.rewards, 3),
        "batch_end": steps.terminated,
    }
