"""The replay of environments that step in parallel: one packed row per step.

A row is `obs, action in [-1, 1], reward, next_obs, terminated, truncated`, all float32. Row `t * num_envs + i` is step
t of environment i. So the steps of one environment lie `num_envs` rows apart, and its episodes can be read back.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from odice.data.dataset import Episode
from odice.types import Spec


def width(spec: Spec) -> int:
    return 2 * spec.obs_dim + spec.action_dim + 3


def pack(spec: Spec, obs, action, reward, next_obs, terminated, truncated) -> np.ndarray:
    """One step of every environment as rows."""
    columns = (obs, action, np.reshape(reward, (-1, 1)), next_obs, np.stack([terminated, truncated], axis=-1))
    return np.concatenate([np.asarray(column, np.float32) for column in columns], axis=1).reshape(-1, width(spec))


class Segment(NamedTuple):
    """One episode of a replay, and its place in it."""

    start: int
    """The step of its environment at which it starts."""
    env: int
    """The index of its environment."""
    over: bool
    """Whether it came to its end; the replay may stop before."""
    episode: Episode


def segments(rows: np.ndarray, spec: Spec, num_envs: int, scale: Callable[[np.ndarray], np.ndarray]) -> list[Segment]:
    """Return the episodes of a replay, in the order in which they started.

    An episode that the replay cuts counts as truncated: its final observation is known.

    Args:
        rows: The replay.
        spec: The shapes of observation and action.
        num_envs: Environments that stepped in parallel.
        scale: From actions in [-1, 1] to the environment's units.
    """
    unordered = [segment for i in range(num_envs) for segment in _of_env(rows[i::num_envs], i, spec, scale)]
    return sorted(unordered, key=lambda segment: (segment.start, segment.env))


def _of_env(rows: np.ndarray, env: int, spec: Spec, scale: Callable[[np.ndarray], np.ndarray]) -> Iterator[Segment]:
    o, a = spec.obs_dim, spec.action_dim
    ends = np.flatnonzero(rows[:, -2:].any(axis=1))
    if len(rows) and (not len(ends) or ends[-1] != len(rows) - 1):
        ends = np.append(ends, len(rows) - 1)
    start = 0
    for end in ends.tolist():
        part = rows[start : end + 1]
        observations = np.concatenate([part[:, :o], part[-1:, o + a + 1 : 2 * o + a + 1]])
        terminated, truncated = (part[-1, -2:] > 0).tolist()
        actions = scale(part[:, o : o + a])
        over = terminated or truncated
        episode = Episode(observations, actions, part[:, o + a], terminated, truncated or not over)
        yield Segment(start, env, over, episode)
        start = end + 1


class Replay:
    """All steps so far, on the host (to be saved) and on the device (to learn from)."""

    def __init__(self, spec: Spec, capacity: int):
        self.filled = 0
        self.host = np.zeros((capacity, width(spec)), np.float32)
        self.device = jnp.zeros((capacity, width(spec)))

    @property
    def rows(self) -> np.ndarray:
        return self.host[: self.filled]

    def add(self, rows: np.ndarray) -> None:
        self.host[self.filled : self.filled + len(rows)] = rows
        self.device = _insert(self.device, rows, self.filled)
        self.filled += len(rows)

    def restore(self, rows: np.ndarray) -> None:
        self.host[: len(rows)] = rows
        self.device = jnp.asarray(self.host)
        self.filled = len(rows)


@partial(jax.jit, donate_argnums=0)
def _insert(device, rows, at):
    """Write rows in place: the buffer is donated."""
    return jax.lax.dynamic_update_slice(device, rows, (at, 0))
