"""A shop's stock of one article: weekly orders that arrive a week later, seasonal demand, a holding cost.

The week's profit is sales at the price of the day minus the cost of what is left on the shelf: it depends on the next
row. Years are cut at 52 weeks.
"""

from __future__ import annotations

import numpy as np

from tests.worlds import Table, World, observation_columns, record

NAMES = ("stock", "on_order", "season", "demand_last_week", "margin_eur")
COLUMNS = {
    "observation": NAMES,
    "action": ("order_qty",),
    "reward": "profit_eur",
    "episode": "store_year",
    "step": "week",
    "discrete": False,
    "action_low": (0.0,),
    "action_high": (120.0,),
}


def _demand(week: np.ndarray) -> np.ndarray:
    return 30 + 14 * np.sin(2 * np.pi * week / 52)


def _start(rng: np.random.Generator, n: int) -> np.ndarray:
    week = rng.integers(0, 52, n).astype(float)
    last = rng.poisson(_demand(week))
    return np.stack(
        [rng.integers(10, 80, n), rng.integers(0, 40, n), week, last, rng.choice([4.0, 5.0, 6.5], n)], axis=1
    )


def _observe(state: np.ndarray) -> np.ndarray:
    stock, on_order, week, last, margin = state.T
    return np.stack([stock, on_order, np.sin(2 * np.pi * week / 52), last, margin], axis=1)


def _behave(rng: np.random.Generator, state: np.ndarray) -> np.ndarray:
    """Order up to a level that changes with the person on duty."""
    level = rng.choice([60, 90, 130], len(state))
    return np.clip(level - state[:, 0] - state[:, 1] + rng.integers(-8, 9, len(state)), 0, 120)[:, None]


def _step(rng: np.random.Generator, state: np.ndarray, actions: np.ndarray):
    stock, on_order, week, _, margin = state.T
    demand = rng.poisson(_demand(week))
    sold = np.minimum(stock, demand)
    left = stock - sold + on_order
    profit = margin * sold - 0.8 * left - 2.0 * (demand - sold)
    after = np.stack([left, np.clip(np.round(actions[:, 0]), 0, 120), week + 1, demand, margin], axis=1)
    return after, profit, np.zeros(len(state), bool)


WORLD = World(NAMES, _start, _observe, _behave, _step, horizon=52)


def good(seen: np.ndarray) -> np.ndarray:
    return np.clip(2.3 * (30 + 14 * seen[:, 2]) - seen[:, 0] - seen[:, 1], 0, 120)[:, None]


def make_log(seed: int = 0, episodes: int = 100) -> Table:
    steps = record(WORLD, seed, episodes)
    return {
        "store_year": [f"store{number // 4}-{2020 + number % 4}" for number in steps.episode],
        "week": steps.step + 1,
        **observation_columns(WORLD, steps, 4),
        "order_qty": steps.actions[:, 0].astype(int),
        "profit_eur": np.round(steps.rewards, 2),
    }
