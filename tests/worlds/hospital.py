"""An intensive ward: eight vital signs, five treatments, and an outcome at the end of each stay.

Four hidden troubles (circulation, breathing, infection, kidneys) drift away from zero; a treatment pulls one of them
back and pushes another a little. A patient dies when their sum of squares is large, recovers when it is small, and may
leave for another ward at any hour, which is neither. So the log holds one reward per stay: -1, 0 or +1. The physicians
treat the worst trouble more often than not; the best policy also minds the side effects.
"""

from __future__ import annotations

import numpy as np

from odice.data.build import from_steps
from odice.data.dataset import Dataset
from odice.data.meta import Meta
from tests.worlds import Act, Table, World, observation_columns, record
from tests.worlds import simulate as _simulate

VITALS = ("heart_rate", "mean_pressure", "spo2", "breaths", "temperature", "lactate", "creatinine", "urine_ml")
# vitals = usual values + spread * (the four troubles, mixed); so that the troubles can be read off the vitals
USUAL = np.array([85.0, 78.0, 95.0, 19.0, 37.4, 1.8, 1.2, 60.0])
MIX = np.array(
    [
        [9.0, -11.0, 0.0, 0.0, 0.0, 0.8, 0.0, 0.0],
        [0.0, 0.0, -2.5, 5.0, 0.0, 0.0, 0.0, 0.0],
        [6.0, 0.0, 0.0, 0.0, 0.8, 0.5, 0.0, 0.0],
        [0.0, 3.0, 0.0, 0.0, 0.0, 0.0, 0.5, -20.0],
    ]
)
#                   circulation breathing infection kidneys: how far one hour of each treatment moves each trouble
TREATMENTS = ("wait", "vasopressor", "oxygen", "antibiotic", "fluids")
PULL = np.array([[0, 0, 0, 0], [0.6, 0, 0, -0.2], [0, 0.6, 0, 0], [0, 0, 0.5, -0.15], [0.1, -0.2, 0, 0.55]])
DEATH, RECOVERY, LEAVES = 9.0, 0.35, 0.055  # sum of squares above, below; share of stays that leave each hour
GROWTH, DRIFT = 1.06, 0.035  # of each trouble in an hour without treatment
COLUMNS = {
    "observation": VITALS,
    "action": ("treatment",),
    "reward": "outcome",
    "episode": "patient",
    "step": "hour",
    "terminated": "stay_over",
    "n_actions": 5,
}


def _start(rng: np.random.Generator, n: int) -> np.ndarray:
    return np.abs(rng.normal(0.75, 0.45, (n, 4)))


def _observe(state: np.ndarray) -> np.ndarray:
    return USUAL + state @ MIX


def _behave(rng: np.random.Generator, state: np.ndarray) -> np.ndarray:
    """Treat what looks worst, with some noise in the looking; otherwise anything."""
    worst = 1 + np.argmax(state + rng.normal(0, 0.35, state.shape), axis=1)
    return np.where(rng.random(len(state)) < 0.72, worst, rng.integers(0, 5, len(state)))


def _step(rng: np.random.Generator, state: np.ndarray, actions: np.ndarray):
    grown = state * GROWTH + DRIFT + rng.normal(0, 0.12, state.shape)
    after = np.maximum(grown - PULL[actions], -0.3)
    load = (np.maximum(after, 0) ** 2).sum(axis=1)
    dead, well = load > DEATH, load < RECOVERY
    leaves = rng.random(len(state)) < LEAVES
    return after, np.where(dead, -1.0, np.where(well, 1.0, 0.0)), dead | well | leaves


WORLD = World(VITALS, _start, _observe, _behave, _step, horizon=60)


def good(vitals: np.ndarray) -> np.ndarray:
    """Treat the worst trouble, without a doubt."""
    return 1 + np.argmax((vitals - USUAL) @ np.linalg.pinv(MIX), axis=1)


def make_log(seed: int = 0, patients: int = 300) -> Table:
    """The ward's table: one row per patient and hour."""
    steps = record(WORLD, seed, patients)
    return {
        "patient": steps.episode + 1000,
        "hour": steps.step,
        **observation_columns(WORLD, steps, digits=3),
        "treatment": steps.actions,
        "outcome": steps.rewards,
        "stay_over": steps.terminated | steps.truncated,
    }


def simulate(policy: Act, episodes: int = 500, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """(returns, deaths) of each stay under `policy`: observations (n, 8) -> treatments (n,)."""
    returns = _simulate(WORLD, policy, episodes, seed).returns
    return returns, returns < 0


def dataset(seed: int = 0, patients: int = 300) -> Dataset:
    """The same log as a Dataset."""
    steps = record(WORLD, seed, patients)
    return from_steps(
        steps.observations,
        steps.actions,
        steps.rewards,
        terminated=steps.terminated,
        truncated=steps.truncated,
        episode=steps.episode,
        meta=Meta(source="hospital", n_actions=5, obs_layout=tuple((name, 1) for name in VITALS)),
    )
