"""Environments that step in parallel, each starting its next episode by itself.

The seed of an episode is a function of (seeds, index of the environment, number of the episode). So the state of an
environment can be written down as its episode's number and the actions since its start: `resume` plays them again and
is back in the same state, bit for bit.
"""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

import numpy as np

from odice.collection.replay import pack
from odice.envs.make import Task
from odice.errors import OdiceError
from odice.evaluation.simulator.evaluate import Environment, maker
from odice.evaluation.simulator.rollout import MAX_STEPS
from odice.types import Spec

if TYPE_CHECKING:
    import gymnasium


class ReplayWarning(UserWarning):
    """An environment does not repeat itself for the same seed and actions."""


class VectorEnv:
    """`num_envs` environments of one task with a box of actions."""

    def __init__(
        self,
        env: Environment,
        num_envs: int,
        seed: tuple[int, ...],
        *,
        max_steps: int | None = None,
        allow_import: bool = False,
    ):
        self.task, self._envs = _open(env, num_envs, max_steps, allow_import)
        self.seed, self.num_envs = seed, num_envs
        space: Any = self._envs[0].action_space
        self.spec = Spec(self._envs[0].observation_space.shape[0], space.shape[0])  # pyright: ignore
        self.low, self.high = (np.asarray(bound, np.float32) for bound in (space.low, space.high))
        self._dtype = space.dtype
        self._number = np.zeros(num_envs, np.int64)
        self._length = np.zeros(num_envs, np.int64)
        self.obs = np.stack([self._reset(i) for i in range(num_envs)])

    @property
    def state(self) -> dict[str, list[int]]:
        """The episode number and the step within the episode, of each environment."""
        return {"number": self._number.tolist(), "length": self._length.tolist()}

    def scale(self, action: np.ndarray) -> np.ndarray:
        """Map an action in [-1, 1] to the environment's units.

        `odice.action_map` computes in another order, which rounds differently; collected data must stay the same.
        """
        return np.clip((self.high + self.low) / 2 + (self.high - self.low) / 2 * action, self.low, self.high)

    def unscale(self, action: np.ndarray) -> np.ndarray:
        """Map an action in the environment's units to [-1, 1], clipped to the bounds."""
        return np.clip((action - (self.high + self.low) / 2) / ((self.high - self.low) / 2), -1.0, 1.0)

    def step(self, action: np.ndarray) -> np.ndarray:
        """Step every environment with an action in [-1, 1]; return the rows of the replay."""
        before, after = self.obs, np.empty_like(self.obs)
        rewards, flags = np.zeros(self.num_envs, np.float32), np.zeros((2, self.num_envs), bool)
        for i in range(self.num_envs):
            after[i], rewards[i], *flags[:, i] = self._step(i, action[i])
        rows = pack(self.spec, before, action, rewards, after, *flags)
        if not np.isfinite(rows).all():
            raise OdiceError(f"{self.task.name} gave an observation or a reward that is not finite.")
        self._length += 1
        self.obs = after.copy()
        for i in np.flatnonzero(flags.any(axis=0)).tolist():
            self._number[i] += 1
            self._length[i] = 0
            self.obs[i] = self._reset(i)
        if self._length.max() >= MAX_STEPS:
            raise OdiceError(
                f"{self.task.name} did not end within {MAX_STEPS} steps; cut its episodes with --max-steps."
            )
        return rows

    def resume(self, state: dict[str, list[int]], rows: np.ndarray) -> bool:
        """Restore the environments to their state after `rows`, by replaying their actions.

        Returns:
            False if an environment did not repeat itself; its episode is then cut and a new one starts.
        """
        o, a = self.spec.obs_dim, self.spec.action_dim
        self._number[:], self._length[:] = state["number"], state["length"]
        same = True
        for i, length in enumerate(state["length"]):
            self.obs[i] = obs = self._reset(i)
            past = rows[i :: self.num_envs][len(rows[i :: self.num_envs]) - length :]
            for row in past:
                obs = self._step(i, row[o : o + a])[0].astype(np.float32)
                if not np.array_equal(obs, row[o + a + 1 : 2 * o + a + 1]):
                    break
            else:
                self.obs[i] = obs
                continue
            same = False
            rows[i - self.num_envs, -1] = 1.0  # where the replay stops, that episode was truncated
            self._number[i] += 1
            self._length[i] = 0
            self.obs[i] = self._reset(i)
        if not same:
            warnings.warn(
                f"{self.task.name} does not repeat itself for the same seed and actions, so the continued training is "
                "not the uninterrupted one; it goes on with new episodes.",
                ReplayWarning,
                stacklevel=2,
            )
        return same

    def close(self) -> None:
        for env in self._envs:
            env.close()

    def _reset(self, i: int) -> np.ndarray:
        seed = np.random.SeedSequence([*self.seed, i, int(self._number[i])]).generate_state(1)[0]
        try:
            obs = np.asarray(self._envs[i].reset(seed=int(seed))[0], np.float32)
        except Exception as error:
            raise OdiceError(f"{self.task.name} failed in reset: {type(error).__name__}: {error}") from error
        return self._checked(obs)

    def _step(self, i: int, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool]:
        try:
            obs, reward, terminated, truncated, _ = self._envs[i].step(self.scale(action).astype(self._dtype))
        except Exception as error:
            raise OdiceError(f"{self.task.name} failed in a step: {type(error).__name__}: {error}") from error
        return self._checked(np.asarray(obs)), float(reward), bool(terminated), bool(truncated)

    def _checked(self, obs: np.ndarray) -> np.ndarray:
        """Return an observation of the declared shape; numpy would broadcast a shorter one."""
        if obs.shape != (self.spec.obs_dim,):
            raise OdiceError(
                f"{self.task.name} gave an observation of shape {obs.shape}, but declares ({self.spec.obs_dim},); "
                "correct the environment."
            )
        return obs


def _open(env: Environment, count: int, max_steps: int | None, allow_import: bool) -> tuple[Task, list[gymnasium.Env]]:
    """Make `count` environments; refuse those whose actions are not a finite box."""
    from gymnasium import spaces

    task, make_env = maker(env, max_steps, allow_import)
    envs = [make_env() for _ in range(count)]
    space = envs[0].action_space
    if not isinstance(space, spaces.Box):
        raise OdiceError(f"{task.name} has actions {space}; collecting needs a box of numbers (Box).")
    if not np.isfinite([space.low, space.high]).all():
        raise OdiceError(f"{task.name} has actions without bounds ({space}); collecting needs a finite box.")
    return task, envs
