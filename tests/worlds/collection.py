"""Debt collection: each fortnight a case is called, written to, messaged or visited, until it pays or is given up.

Whether a debtor pays is mostly luck, and the channels differ little: a log of a few hundred cases holds far more chance
than signal, so a policy that picks the channel which happened to work has learned nothing.
"""

from __future__ import annotations

import numpy as np

from tests.worlds import Table, World, observation_columns, record

NAMES = ("debt_eur", "days_overdue", "contacts", "has_paid_before", "age_years")
CHANNELS = ("call", "letter", "message", "visit")
COST = np.array([4.0, 2.0, 0.5, 25.0])
COLUMNS = {
    "observation": NAMES,
    "action": ("channel",),
    "reward": "net_eur",
    "episode": "case",
    "step": "fortnight",
    "terminated": "closed",
}


def _start(rng: np.random.Generator, n: int) -> np.ndarray:
    debt = np.round(np.exp(rng.normal(6.0, 0.8, n)), 2)
    zeros = np.zeros(n)
    return np.stack([debt, rng.integers(30, 200, n), zeros, rng.random(n) < 0.4, rng.integers(20, 75, n)], axis=1)


def _behave(rng: np.random.Generator, state: np.ndarray) -> np.ndarray:
    """Letters first, then calls and messages; whoever is free visits."""
    early = rng.choice(4, len(state), p=[0.25, 0.4, 0.25, 0.1])
    late = rng.choice(4, len(state), p=[0.35, 0.2, 0.3, 0.15])
    return np.where(state[:, 2] < 2, early, late)


def _step(rng: np.random.Generator, state: np.ndarray, actions: np.ndarray):
    debt, overdue, contacts, paid, age = state.T
    young, old = age < 35, age > 60
    more = np.where(actions == 2, 0.05 * young, np.where(actions == 1, 0.03 * old, np.where(actions == 3, 0.04, 0.0)))
    chance = 0.10 + 0.06 * paid - 0.03 * (overdue > 150) + more
    pays = rng.random(len(state)) < chance
    part = rng.uniform(0.3, 1.0, len(state))
    net = np.where(pays, debt * part, 0.0) - COST[actions]
    gives_up = rng.random(len(state)) < 0.08
    after = np.stack([debt, overdue + 14, contacts + 1, paid, age], axis=1)
    return after, net, pays | gives_up


WORLD = World(NAMES, _start, lambda state: state, _behave, _step, horizon=10)


def good(seen: np.ndarray) -> np.ndarray:
    """Visit where the debt is worth the way; else message the young and write to the others."""
    age, debt = seen[:, 4], seen[:, 0]
    cheap = np.where(age < 35, 2, np.where(age > 60, 1, 2))
    return np.where((debt > 900) & (age >= 35), 3, cheap)


def make_log(seed: int = 0, episodes: int = 900) -> Table:
    steps = record(WORLD, seed, episodes)
    return {
        "case": [f"C{number:05d}" for number in steps.episode],
        "fortnight": steps.step,
        **observation_columns(WORLD, steps, 2),
        "channel": [CHANNELS[i] for i in steps.actions],
        "net_eur": np.round(steps.rewards, 2),
        "closed": steps.terminated,
    }
