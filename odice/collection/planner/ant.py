"""An ant that has only learned to run towards +x is made to run anywhere, by symmetry.

To run in a direction, the gait is shown the world turned so that this direction is +x. That alone fails: the ant's
body does not turn with it, so after a corner the gait sees itself standing sideways, which it never was in training.
But the ant has four equal legs, so a quarter turn of its torso is only another naming of them. The gait is shown the
naming in which the torso's yaw is nearest to the one it runs with on open ground, and its actions are named back. Both
changes are exact symmetries of the simulated ant.

The state is MuJoCo's: position (3), quaternion (w, x, y, z), then for legs 1 to 4 hip and ankle; velocities alike.
Linear velocities are in the world's frame, angular ones in the torso's.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from jaxtyping import Float
from numpy import ndarray as Arr

from odice.errors import OdiceError

GAIT_INPUTS = 27  # the state without x and y
JOINTS, RATES = slice(7, 15), slice(21, 29)
# The legs point to 45, 135, 225 and 315 degrees. Ankles 2 and 3 turn about axes opposite to those of 1 and 4.
SIGNS = np.array([[1.0, 1.0], [1.0, -1.0], [1.0, -1.0], [1.0, 1.0]])  # hip and ankle of each leg
MOTORS = 2  # motors before those of leg 1: they are in the order of legs 4, 1, 2, 3

Gait = Callable[[Float[Arr, "1 obs"]], Float[Arr, "1 8"]]
"""From a batch of the state without x and y to a batch of actions: a `Policy` is one."""


def turn_world(state: Float[Arr, " 29"], angle: float) -> Float[Arr, " 29"]:
    """The state after the world was turned about the vertical axis through the origin."""
    out = state.copy()
    rotation = _rotation(angle)
    out[:2], out[15:17] = rotation @ state[:2], rotation @ state[15:17]
    out[3:7] = _product(_about_vertical(angle), state[3:7])
    return out


def rename_legs(state: Float[Arr, " 29"], turns: int) -> Float[Arr, " 29"]:
    """The same state with the torso's frame turned by quarter turns: leg `1 + turns` is now called leg 1."""
    out = state.copy()
    out[3:7] = _product(state[3:7], _about_vertical(turns * np.pi / 2))
    out[18:20] = _rotation(-turns * np.pi / 2) @ state[18:20]
    out[JOINTS], out[RATES] = _rename(state[JOINTS], turns), _rename(state[RATES], turns)
    return out


def rename_motors(action: Float[Arr, " 8"], turns: int) -> Float[Arr, " 8"]:
    """An action for the renamed ant; `-turns` names it back."""
    return np.roll(_rename(np.roll(action, -MOTORS), turns), MOTORS)


def yaw(state: Float[Arr, " 29"]) -> float:
    """How far the torso is twisted about the vertical.

    A turn of the world or of the legs' names adds to it exactly, also for a tilted torso.
    """
    w, _, _, z = state[3:7]
    return float((2 * np.arctan2(z, w) + np.pi) % (2 * np.pi) - np.pi)


def uprightness(state: Float[Arr, " 29"]) -> float:
    """Cosine of the torso's tilt: 1 upright, -1 on its back."""
    _, x, y, _ = state[3:7]
    return float(1 - 2 * (x * x + y * y))


class Steered:
    """A gait along +x that runs in any direction."""

    def __init__(self, gait: Gait, gait_yaw: float):
        self.gait, self.gait_yaw = gait, gait_yaw
        self._usual = _about_vertical(gait_yaw)

    def __call__(self, state: Float[Arr, " 29"], direction: Float[Arr, " 2"]) -> Float[Arr, " 8"]:
        """The action that runs towards `direction`, a vector in the plane."""
        seen = turn_world(state, -float(np.arctan2(direction[1], direction[0])))
        turns = round((self.gait_yaw - yaw(seen)) / (np.pi / 2)) % 4
        seen = rename_legs(seen, turns)
        if seen[3:7] @ self._usual < 0:  # a quaternion and its negative are one orientation, but not one input
            seen[3:7] *= -1
        return rename_motors(self.gait(seen[None, 2:].astype(np.float32))[0], -turns)


def measure_yaw(gait: Gait, *, steps: int = 300, seed: int = 0) -> float:
    """The yaw with which a gait runs on open ground: its mean over the last two thirds of an episode.

    A gait that does not run is refused.
    """
    from odice.envs.make import make
    from odice.envs.mazes import GAIT

    env = make(GAIT, max_steps=steps)
    obs, _ = env.reset(seed=seed)
    headings, traveled, terminated, truncated = [], 0.0, False, False
    while not (terminated or truncated):
        action = np.asarray(gait(obs[None].astype(np.float32)))
        if action.shape != (1, 8) or not np.isfinite(action).all():
            raise OdiceError(f"The gait gave an action of shape {action.shape}; an ant takes 8 finite numbers.")
        obs, _, terminated, truncated, info = env.step(np.clip(action[0], -1, 1))
        headings.append(yaw(np.concatenate([np.zeros(2), obs])))
        traveled = float(info["x_position"])
    seconds = len(headings) * env.unwrapped.dt  # pyright: ignore[reportAttributeAccessIssue]
    env.close()
    if terminated or traveled < 0.3 * seconds:
        what = "fell" if terminated else f"moved {traveled:.1f} m"
        raise OdiceError(f"The gait {what} in {seconds:.1f} s on open ground; give one that runs along +x ({GAIT}).")
    late = np.array(headings[steps // 3 :])
    return float(np.arctan2(np.sin(late).mean(), np.cos(late).mean()))


def _rename(joints: Float[Arr, " 8"], turns: int) -> Float[Arr, " 8"]:
    """Hips and ankles of legs 1 to 4, with the names moved on by quarter turns."""
    return (np.roll(joints.reshape(4, 2) * SIGNS, -turns, axis=0) * SIGNS).reshape(-1)


def _rotation(angle: float) -> Float[Arr, "2 2"]:
    c, s = np.cos(angle), np.sin(angle)
    return np.array([[c, -s], [s, c]])


def _about_vertical(angle: float) -> Float[Arr, " 4"]:
    return np.array([np.cos(angle / 2), 0.0, 0.0, np.sin(angle / 2)])


def _product(p: Float[Arr, " 4"], q: Float[Arr, " 4"]) -> Float[Arr, " 4"]:
    """Hamilton's product: first turn by q, then by p."""
    w = p[0] * q[0] - p[1:] @ q[1:]
    return np.append(w, p[0] * q[1:] + q[0] * p[1:] + np.cross(p[1:], q[1:]))
