"""What can be evaluated: an odice policy, a function, or a column of decisions.

| candidate | discrete actions | continuous actions |
|---|---|---|
| `odice.Policy` | its choice | its action |
| function of observations `(n, obs)` | choices `(n,)`, or probabilities `(n, actions)` | actions `(n, act)` |
| array, a row per step of the log | choices `(steps,)`, or probabilities `(steps, actions)` | actions `(steps, act)` |

A column of decisions says nothing about the state after the last step of an episode that was cut, so that step is left
out of what is learned from transitions.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from odice.action_map import from_bounds
from odice.data.dataset import Dataset
from odice.errors import OdiceError
from odice.policy.policy import Policy

Candidate = Policy | Callable[[np.ndarray], Any] | np.ndarray
CHUNK = 4096
"""States per call of a policy."""


class Decisions(NamedTuple):
    """What a policy does in every state: exactly one of the two arrays is given."""

    prob: np.ndarray | None
    """(states, actions) probabilities of discrete actions."""
    action: np.ndarray | None
    """(states, act) continuous actions, in [-1, 1]."""
    after_last: bool
    """Whether the states after the last steps are known to it."""

    @property
    def choice(self) -> np.ndarray:
        """The likeliest discrete action, or the continuous one."""
        return self.prob.argmax(axis=1).astype(np.int32) if self.prob is not None else self.continuous

    @property
    def continuous(self) -> np.ndarray:
        """`action`, where actions are continuous."""
        assert self.action is not None
        return self.action

    @property
    def deterministic(self) -> bool:
        """Whether it has one action for every state."""
        return self.prob is None or bool((self.prob.max(axis=1) > 1 - 1e-6).all())


def decide(
    candidate: Candidate, data: Dataset, states: np.ndarray, step: np.ndarray, index: np.ndarray
) -> tuple[Decisions, np.ndarray]:
    """The candidate's decisions in `states`, and the logged actions in the same units.

    Args:
        candidate: What is evaluated; the table above says which forms it may have.
        data: The log.
        states: (states, obs) raw observations, those after the last steps included.
        step: For each step that counts, its number in the log.
        index: For each step that counts, its row in `states`.
    """
    if isinstance(candidate, np.ndarray):
        if len(candidate) != data.n_steps:
            raise OdiceError(
                f"The column of decisions has {len(candidate)} rows and the log {data.n_steps} steps; give one per "
                "step, in the order of the log."
            )
        given = np.repeat(candidate[step][:1], len(states), axis=0)
        given[index] = candidate[step]
        given[index + 1] = np.where(_like(np.isin(index + 1, index), given), given[index + 1], given[index])
    else:
        given = np.concatenate([np.asarray(candidate(states[i : i + CHUNK])) for i in range(0, len(states), CHUNK)])
    logged = np.asarray(data.actions[step])
    after_last = not isinstance(candidate, np.ndarray)
    if data.discrete:
        actions = candidate.action_dim if isinstance(candidate, Policy) else data.spec.action_dim
        return Decisions(_probabilities(given, actions, len(states)), None, after_last), logged.astype(np.int32)
    if given.shape != (len(states), data.spec.action_dim) or not np.isfinite(given).all():
        raise OdiceError(
            f"The policy gave actions of shape {given.shape} for {len(states)} states of a log with "
            f"{data.spec.action_dim} numbers per action; give finite numbers, one row per state."
        )
    low, high = _bounds(candidate, data)
    unit = lambda action: from_bounds(action, low, high).astype(np.float32)
    return Decisions(None, unit(given), after_last), unit(logged)


def _like(mask: np.ndarray, values: np.ndarray) -> np.ndarray:
    return mask.reshape(-1, *[1] * (values.ndim - 1))


def _probabilities(given: np.ndarray, actions: int, states: int) -> np.ndarray:
    if given.shape == (states,) and given.dtype.kind in "iu" and given.min() >= 0 and given.max() < actions:
        return np.eye(actions, dtype=np.float32)[given]
    if given.shape == (states, actions) and given.min() >= 0 and np.allclose(given.sum(axis=1), 1, atol=1e-3):
        return given.astype(np.float32)
    raise OdiceError(
        f"The policy gave an array of shape {given.shape} for {states} states of a log with {actions} actions; give "
        f"one whole number from 0 to {actions - 1} per state, or {actions} probabilities that sum to 1."
    )


def _bounds(candidate: Candidate, data: Dataset) -> tuple[np.ndarray, np.ndarray]:
    """The policy's own bounds, else the log's, else the range of its actions."""
    if isinstance(candidate, Policy):
        if candidate.action_low is None or candidate.action_high is None:
            return np.full(candidate.action_dim, -1.0), np.full(candidate.action_dim, 1.0)
        return candidate.action_low, candidate.action_high
    if data.meta.action_low is not None and data.meta.action_high is not None:
        shape = (data.spec.action_dim,)
        low, high = np.asarray(data.meta.action_low), np.asarray(data.meta.action_high)
        return np.broadcast_to(low, shape), np.broadcast_to(high, shape)
    low, high = data.actions.min(0), data.actions.max(0)
    return low, np.where(high > low, high, low + 1.0)
