"""OGBench's single-task environments (the extra `ogbench`): `antmaze-large-singletask-task1-v0` and others.

Evaluated by success: an episode's return is 1 if the task was done, else 0. OGBench's own reward is -1 for every goal
that is not reached, at every step, so its sum would mostly measure the length of an episode.
"""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from odice.errors import OdiceError

if TYPE_CHECKING:
    import gymnasium

BALL = 15
"""Where the ball's position begins in qpos, in antsoccer."""


class Place(NamedTuple):
    """A point that the robot or the ball must come near to."""

    start: int
    """The column of qpos at which x stands, and y after it."""
    xy: np.ndarray
    radius: float


class Goals(NamedTuple):
    """What a task asks for."""

    place: Place | None = None
    cubes: tuple[np.ndarray, ...] = ()
    buttons: np.ndarray | None = None
    slides: tuple[tuple[int, float], ...] = ()
    """(column of qpos, target) of the drawer and the window."""


def register(name: str) -> None:
    """Register OGBench's environments with Gymnasium, or say what to install."""
    try:
        import ogbench  # noqa: F401  # pyright: ignore[reportMissingImports]
    except ImportError as error:
        raise OdiceError(f"{name} needs ogbench; install it with: pip install 'odice[ogbench]' ({error})") from None


def make_task(name: str, *, max_steps: int | None = None, render_mode: str | None = None) -> gymnasium.Env:
    """The environment of a name, rewarded by success."""
    import gymnasium

    class Success(gymnasium.Wrapper):
        def __init__(self, env: gymnasium.Env):
            super().__init__(env)
            with warnings.catch_warnings():
                warnings.filterwarnings("ignore", message=".*precision lowered.*")
                self.action_space, self.observation_space = env.action_space, env.observation_space  # made once

        def step(self, action):
            obs, _, terminated, truncated, info = self.env.step(action)
            return obs, float(bool(info.get("success"))), terminated, truncated, info

    register(name)
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message=".*precision lowered.*")
            env = gymnasium.make(name, max_episode_steps=max_steps, render_mode=render_mode, disable_env_checker=True)
    except gymnasium.error.Error as error:
        raise OdiceError(f"Gymnasium cannot make {name!r}: {error}") from None
    return Success(env)


def task_goals(name: str) -> Goals:
    """The goals of an environment's task, as the environment itself sets them."""
    env = make_task(name)
    try:
        env.reset(seed=0)
        return _goals(env.unwrapped, name)
    finally:
        env.close()


def _goals(world: Any, name: str) -> Goals:
    if "maze" in name or "soccer" in name:
        return Goals(place=Place(BALL if "soccer" in name else 0, np.array(world.cur_goal_xy), float(world._goal_tol)))
    cubes = tuple(np.array(at) for at in world._data.mocap_pos[: getattr(world, "_num_cubes", 0)])
    buttons = getattr(world, "_target_button_states", None)
    slides = ()
    if "scene" in name:
        drawer = 14 + 7 * world._num_cubes + world._num_buttons
        slides = ((drawer, float(world._target_drawer_pos)), (drawer + 1, float(world._target_window_pos)))
    return Goals(cubes=cubes, buttons=None if buttons is None else np.array(buttons), slides=slides)
