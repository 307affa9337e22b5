"""Episodes of a behavior as data: whole episodes, in the order in which they started."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from odice.collection.learner import explore
from odice.collection.replay import Segment, segments
from odice.collection.vector_env import VectorEnv
from odice.core.policies import SquashedPolicy
from odice.data.dataset import Episode
from odice.errors import OdiceError
from odice.training.progress import Display

LOOK_EVERY = 100
"""Steps of the environments between two looks at whether enough episodes are over."""
Behave = Callable[[np.ndarray, int], np.ndarray]
"""From the observations of the environments and the step to actions in [-1, 1]."""


def roll_out(envs: VectorEnv, behave: Behave, steps: int, display: Display) -> list[Episode]:
    """Episodes with at least `steps` steps together. An episode that started early is kept however long it lasts."""
    rows: list[np.ndarray] = []
    whole: list[Segment] = []
    while sum(len(segment.episode.rewards) for segment in whole) < steps:
        rows += [envs.step(behave(envs.obs, len(rows) + i)) for i in range(LOOK_EVERY)]
        found = segments(np.concatenate(rows), envs.spec, envs.num_envs, envs.scale)
        running = next((i for i, segment in enumerate(found) if not segment.over), len(found))
        whole = found[:running]
        display.tick(min(len(rows) * envs.num_envs, steps))
    return [segment.episode for segment in whole]


def at_random(envs: VectorEnv) -> Behave:
    """Uniform in the box of actions."""

    def behave(obs: np.ndarray, step: int) -> np.ndarray:
        rng = np.random.default_rng([*envs.seed, step])
        return rng.uniform(-1.0, 1.0, (envs.num_envs, envs.spec.action_dim)).astype(np.float32)

    return behave


def sampled(policy: SquashedPolicy, envs: VectorEnv) -> Behave:
    """Draws of a trained policy, as D4RL's data are: with its noise."""
    seed = int(np.random.SeedSequence(envs.seed).generate_state(1)[0]) & 0x7FFFFFFF
    return lambda obs, step: np.asarray(explore(policy, obs, seed, step))


def given(act: Callable[[np.ndarray], Any], envs: VectorEnv, name: str) -> Behave:
    """A policy from outside: a batch of observations to a batch of the environment's actions."""
    shape = (envs.num_envs, envs.spec.action_dim)

    def behave(obs: np.ndarray, step: int) -> np.ndarray:
        action = np.asarray(act(obs), np.float32)
        if action.shape != shape or not np.isfinite(action).all():
            what = f"of shape {action.shape}" if action.shape != shape else "that are not finite"
            raise OdiceError(
                f"{name} gave actions {what}; {envs.task.name} needs {shape}, one row per observation of a batch."
            )
        return envs.unscale(action)

    return behave
