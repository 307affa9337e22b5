"""`odice/Hospital-v0`: a patient, five treatments, and an outcome at the end of the stay.

Three signs drift away from zero, and each treatment moves them by a matrix of its own. Signs near zero send the patient
home (+1), signs far from it mean death (-1); after 20 steps the patient leaves for another ward (0, truncated). The
observation is the three signs, the age, and the time. It is typical of logs from places where nothing can be tried:
few episodes, choices instead of torques, one reward at the end.
"""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np

HOSPITAL = "odice/Hospital-v0"
HORIZON = 20
TREATMENTS = 5
DRIFT, AGE_DRIFT, PUSH, NOISE = 1.06, 0.05, 0.35, 0.2
HOME, DEATH = 0.5, 2.8
_MOVES = np.random.default_rng(7).normal(size=(TREATMENTS, 3, 3)) * 0.35
_PUSHES = np.random.default_rng(8).normal(size=(TREATMENTS, 3)) * 0.15


class HospitalEnv(gymnasium.Env):
    """A stay."""

    observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (5,), np.float32)
    action_space = gymnasium.spaces.Discrete(TREATMENTS)

    def reset(self, *, seed: int | None = None, options: Any = None):
        super().reset(seed=seed)
        self._signs = self.np_random.normal(size=3) * 0.8
        self._signs *= max(1.0, 1.2 / np.linalg.norm(self._signs))
        self._age, self._t = self.np_random.uniform(-1, 1), 0
        return self._observe(), {}

    def _observe(self) -> np.ndarray:
        return np.array([*self._signs, self._age, self._t / HORIZON], np.float32)

    def step(self, action):
        self._signs = _expected(self._signs, self._age, int(action)) + NOISE * self.np_random.normal(size=3)
        self._t += 1
        size = float(np.linalg.norm(self._signs))
        reward = 1.0 if size < HOME else -1.0 if size > DEATH else 0.0
        return self._observe(), reward, reward != 0.0, self._t >= HORIZON, {}


def greedy_treatment(obs: np.ndarray) -> int:
    """Return the treatment after which the signs are expected nearest to zero, which is not the best in the long
    run."""
    signs, age = obs[:3].astype(float), float(obs[3])
    return int(np.argmin([np.linalg.norm(_expected(signs, age, each)) for each in range(TREATMENTS)]))


def _expected(signs: np.ndarray, age: float, treatment: int) -> np.ndarray:
    moved = np.tanh(_MOVES[treatment] @ signs) + _PUSHES[treatment]
    return (DRIFT + AGE_DRIFT * age) * signs + PUSH * moved


def register() -> None:
    """Register the environment with Gymnasium; a second call changes nothing."""
    if HOSPITAL not in gymnasium.registry:
        gymnasium.register(HOSPITAL, f"{__name__}:{HospitalEnv.__name__}")
