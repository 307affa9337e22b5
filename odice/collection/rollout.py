"""Episodes of a behaviour as data: so many steps, whole episodes, in the order in which they started."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from odice.collection.learner import explore
from odice.collection.replay import Part, parts
from odice.collection.vector_env import Lanes
from odice.core.policies import SquashedPolicy
from odice.data.dataset import Episode
from odice.errors import OdiceError
from odice.run.progress import Display

LOOK_EVERY = 100
"""Steps of the lanes between two looks at whether enough episodes are over."""
Behave = Callable[[np.ndarray, int], np.ndarray]
"""From the lanes' observations and the step to actions in [-1, 1]."""


def roll_out(lanes: Lanes, behave: Behave, steps: int, display: Display) -> list[Episode]:
    """Episodes with at least `steps` steps together. None that started early is left out because it lasts long."""
    rows: list[np.ndarray] = []
    whole: list[Part] = []
    while sum(len(part.episode.rewards) for part in whole) < steps:
        rows += [lanes.step(behave(lanes.obs, len(rows) + i)) for i in range(LOOK_EVERY)]
        found = parts(np.concatenate(rows), lanes.spec, lanes.count, lanes.scale)
        running = next((i for i, part in enumerate(found) if not part.over), len(found))
        whole = found[:running]
        display.tick(min(len(rows) * lanes.count, steps))
    return [part.episode for part in whole]


def at_random(lanes: Lanes) -> Behave:
    """Uniform in the box of actions."""

    def behave(obs: np.ndarray, step: int) -> np.ndarray:
        rng = np.random.default_rng([*lanes.seed, step])
        return rng.uniform(-1.0, 1.0, (lanes.count, lanes.spec.action_dim)).astype(np.float32)

    return behave


def sampled(policy: SquashedPolicy, lanes: Lanes) -> Behave:
    """Draws of a trained policy, as D4RL's data are: with its noise."""
    seed = int(np.random.SeedSequence(lanes.seed).generate_state(1)[0]) & 0x7FFFFFFF
    return lambda obs, step: np.asarray(explore(policy, obs, seed, step))


def given(act: Callable[[np.ndarray], Any], lanes: Lanes, name: str) -> Behave:
    """A policy from outside: a batch of observations to a batch of the environment's actions."""
    shape = (lanes.count, lanes.spec.action_dim)

    def behave(obs: np.ndarray, step: int) -> np.ndarray:
        action = np.asarray(act(obs), np.float32)
        if action.shape != shape or not np.isfinite(action).all():
            what = f"of shape {action.shape}" if action.shape != shape else "that are not finite"
            raise OdiceError(
                f"{name} gave actions {what}; {lanes.task.name} needs {shape}, one row per observation of a batch."
            )
        return lanes.unscale(action)

    return behave
