"""Perturbed start states, to test whether a policy recovers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from odice.errors import OdiceError

if TYPE_CHECKING:
    import gymnasium


def perturb_start(env: gymnasium.Env, scale: float, rng: np.random.Generator) -> np.ndarray:
    """Add Gaussian noise to the state of an environment that was just reset, and return what is observed then.

    In MuJoCo every position (meters, radians) and velocity is moved; in classic control every number of `state`.
    """
    world: Any = env.unwrapped
    body = getattr(world, "ant_env", None) or getattr(world, "point_env", None) or world  # a maze holds its robot
    if hasattr(body, "set_state") and hasattr(body, "data"):
        obs = _move_mujoco(body, scale, rng)
        obs = obs if body is world else world._get_obs(obs)
    elif isinstance(state := getattr(world, "state", None), np.ndarray | tuple | list):
        state = np.asarray(state, np.float64)
        world.state = state + scale * rng.standard_normal(state.shape)
        observe = getattr(world, "_get_obs", None) or getattr(world, "_get_ob", None)
        obs = world.state if observe is None else observe()
    else:
        raise OdiceError(
            f"{type(world).__name__} does not let its start state be set, so start noise is not possible; leave it out."
        )
    return _through_wrappers(env, obs)


def _move_mujoco(body: Any, scale: float, rng: np.random.Generator) -> Any:
    import mujoco

    qpos = body.data.qpos + scale * rng.standard_normal(body.model.nq)
    qvel = body.data.qvel + scale * rng.standard_normal(body.model.nv)
    mujoco.mj_normalizeQuat(body.model, qpos)  # pyright: ignore[reportAttributeAccessIssue]
    body.set_state(qpos, qvel)
    obs = body._get_obs()
    return obs[0] if isinstance(obs, tuple) else obs  # the ball of PointMaze adds an info


def _through_wrappers(env: Any, obs: Any) -> np.ndarray:
    """What the wrappers make of an observation, innermost first."""
    layers = []
    while env is not env.unwrapped:
        layers.append(env)
        env = env.env
    for layer in reversed(layers):
        if hasattr(type(layer), "observation"):
            obs = layer.observation(obs)
    return np.asarray(obs)
