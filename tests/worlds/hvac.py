"""A building's climate control: quarter hours of a day, heating power and fresh air, a bill and a comfort band.

The reward is the cost of the quarter hour: energy at the hour's price, and the discomfort of the temperature that it
led to; so it depends on the next row. Days are cut at midnight; the weather goes on.
"""

from __future__ import annotations

import numpy as np

from tests.worlds import Table, World, observation_columns, record

NAMES = ("zone_temp_c", "outdoor_temp_c", "co2_ppm", "price_eur_kwh", "occupied", "hour")
COLUMNS = {
    "observation": NAMES,
    "action": ("heating_kw", "fresh_air_m3h"),
    "reward": "cost_eur",
    "episode": "day",
    "action_low": (0.0, 0.0),
    "action_high": (8.0, 600.0),
}
HOURS = 0.25


def _start(rng: np.random.Generator, n: int) -> np.ndarray:
    """zone, outdoor, CO2, hour, the day's mean outdoor temperature"""
    mean = rng.normal(4.0, 5.0, n)
    return np.stack([rng.normal(18, 1, n), mean - 3, rng.normal(500, 30, n), np.zeros(n), mean], axis=1)


def _occupied(hour: np.ndarray) -> np.ndarray:
    return ((hour >= 8) & (hour < 18)).astype(float)


def _observe(state: np.ndarray) -> np.ndarray:
    zone, outdoor, co2, hour, _ = state.T
    price = 0.22 + 0.12 * ((hour >= 17) & (hour < 21))
    return np.stack([zone, outdoor, co2, price, _occupied(hour), hour], axis=1)


def _behave(rng: np.random.Generator, state: np.ndarray) -> np.ndarray:
    """A thermostat at 21 degrees, day and night, and a fan that follows the clock; both with a human hand in them."""
    heat = 2.2 * (21.0 - state[:, 0]) + rng.normal(0, 1.0, len(state))
    air = np.where(_occupied(state[:, 3]) > 0, 250.0, 60.0) + rng.normal(0, 60.0, len(state))
    return np.stack([np.clip(heat, 0, 8), np.clip(air, 0, 600)], axis=1)


def _step(rng: np.random.Generator, state: np.ndarray, actions: np.ndarray):
    zone, outdoor, co2, hour, mean = state.T
    heat, air = np.clip(actions, 0, [8, 600]).T
    people = 6 * _occupied(hour)
    leak = 0.04 + 0.0001 * air
    zone = zone + HOURS * (0.9 * heat + 0.1 * people - leak * 4 * (zone - outdoor)) / 2 + rng.normal(0, 0.05, len(zone))
    co2 = co2 + HOURS * (people * 90 - air * (co2 - 420) / 250) + rng.normal(0, 4, len(zone))
    price = _observe(state)[:, 3]
    hour = hour + HOURS
    outdoor = mean + 4 * np.sin((hour - 9) / 24 * 2 * np.pi) + rng.normal(0, 0.1, len(zone))
    after = np.stack([zone, outdoor, np.maximum(co2, 400), hour, mean], axis=1)
    off = np.maximum(np.abs(zone - 21.5) - 1, 0) * (0.1 + 0.9 * (people > 0))
    stale = np.maximum(after[:, 2] - 1000, 0) / 1000 * (people > 0)
    return after, -(price * heat * HOURS + 0.3 * off + 0.5 * stale), np.zeros(len(zone), bool)


WORLD = World(NAMES, _start, _observe, _behave, _step, horizon=96)


def good(seen: np.ndarray) -> np.ndarray:
    """Heat from an hour before people come until they leave, and air as the CO2 asks."""
    wanted = np.where((seen[:, 5] >= 5.5) & (seen[:, 5] < 18), 21.0, 17.0)
    return np.stack([np.clip(6 * (wanted - seen[:, 0]), 0, 8), np.clip(seen[:, 2] - 600, 0, 300)], axis=1)


def make_log(seed: int = 0, episodes: int = 120) -> Table:
    steps = record(WORLD, seed, episodes)
    minutes = np.datetime64("2025-01-01T00:00") + (steps.episode * 1440 + steps.step * 15).astype("timedelta64[m]")
    return {
        "timestamp": [str(time) for time in minutes],
        "day": steps.episode,
        **observation_columns(WORLD, steps, 2),
        "heating_kw": np.round(steps.actions[:, 0], 2),
        "fresh_air_m3h": np.round(steps.actions[:, 1], 0),
        "cost_eur": np.round(steps.rewards, 5),
    }
