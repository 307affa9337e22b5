"""Advertisements in a session: which creative to show a visitor, who clicks, buys, or leaves.

Most sessions are a single impression with an id of their own; the columns are words; most rewards are zero.
"""

from __future__ import annotations

import numpy as np

from tests.worlds import Table, World, record

DEVICES = ("desktop", "phone", "tablet")
COUNTRIES = ("DE", "FR", "IT", "PL")
CREATIVES = ("banner", "carousel", "story", "video")
NAMES = ("device", "country", "age_days", "impressions", "last_click")
COLUMNS = {
    "observation": NAMES,
    "action": ("creative",),
    "reward": "revenue_eur",
    "episode": "session_id",
    "step": "impression_no",
    "terminated": "session_closed",
}
# creative x device: how likely a click is
CLICK = np.array([[0.05, 0.02, 0.03], [0.09, 0.05, 0.12], [0.03, 0.14, 0.06], [0.12, 0.06, 0.05]])


def _start(rng: np.random.Generator, n: int) -> np.ndarray:
    device, country = rng.choice(3, n, p=[0.4, 0.5, 0.1]), rng.choice(4, n, p=[0.5, 0.2, 0.2, 0.1])
    return np.stack([device, country, np.round(rng.exponential(40, n)), np.zeros(n), np.zeros(n)], axis=1)


def _behave(rng: np.random.Generator, state: np.ndarray) -> np.ndarray:
    return rng.choice(4, len(state), p=[0.4, 0.2, 0.2, 0.2])


def _step(rng: np.random.Generator, state: np.ndarray, actions: np.ndarray):
    device, country, age, seen, _ = state.T
    tired = 0.8**seen
    click = rng.random(len(state)) < CLICK[actions, device.astype(int)] * (1 + 0.5 * (country == 3)) * tired
    revenue = np.where(click, np.round(rng.gamma(2.0, 0.4, len(state)), 2), 0.0)
    leaves = rng.random(len(state)) < np.where(click, 0.35, 0.7)
    after = np.stack([device, country, age, seen + 1, click.astype(float)], axis=1)
    return after, revenue, leaves


WORLD = World(NAMES, _start, lambda state: state, _behave, _step, horizon=30)


def good(seen: np.ndarray) -> np.ndarray:
    return np.argmax(CLICK[:, seen[:, 0].astype(int)], axis=0)


def make_log(seed: int = 0, episodes: int = 2500) -> Table:
    steps = record(WORLD, seed, episodes)
    device, country, age, seen, click = steps.observations.T
    return {
        "session_id": [f"s{number:06d}" for number in steps.episode],
        "impression_no": steps.step + 1,
        "device": [DEVICES[int(i)] for i in device],
        "country": [COUNTRIES[int(i)] for i in country],
        "age_days": age,
        "impressions": seen,
        "last_click": click,
        "creative": [CREATIVES[i] for i in steps.actions],
        "revenue_eur": steps.rewards,
        "session_closed": steps.terminated,
    }
