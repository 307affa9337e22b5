"""Complete episodes of a behavior policy, in the order in which they started."""

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

CHECK_EVERY = 100
"""Steps between two checks whether enough episodes are complete."""
Behave = Callable[[np.ndarray, int], np.ndarray]
"""From the observations of the environments and the step to actions in [-1, 1]."""


def roll_out(envs: VectorEnv, behave: Behave, steps: int, display: Display) -> list[Episode]:
    """Collect episodes with at least `steps` steps in total, without gaps in the order in which they started."""
    rows: list[np.ndarray] = []
    complete: list[Segment] = []
    while sum(len(segment.episode.rewards) for segment in complete) < steps:
        rows += [envs.step(behave(envs.obs, len(rows) + i)) for i in range(CHECK_EVERY)]
        started = segments(np.concatenate(rows), envs.spec, envs.num_envs, envs.scale)
        running = next((i for i, segment in enumerate(started) if not segment.over), len(started))
        complete = started[:running]
        display.tick(min(len(rows) * envs.num_envs, steps))
    return [segment.episode for segment in complete]


def at_random(envs: VectorEnv) -> Behave:
    """Uniform in the box of actions."""

    def behave(obs: np.ndarray, step: int) -> np.ndarray:
        rng = np.random.default_rng([*envs.seed, step])
        return rng.uniform(-1.0, 1.0, (envs.num_envs, envs.spec.action_dim)).astype(np.float32)

    return behave


def sampled(policy: SquashedPolicy, envs: VectorEnv) -> Behave:
    """Actions sampled from a trained policy, as in D4RL's data."""
    seed = int(np.random.SeedSequence(envs.seed).generate_state(1)[0]) & 0x7FFFFFFF
    return lambda obs, step: np.asarray(explore(policy, obs, seed, step))


def given(act: Callable[[np.ndarray], Any], envs: VectorEnv, name: str) -> Behave:
    """Actions of a user's policy, a function from a batch of observations to a batch of the environment's actions."""
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
