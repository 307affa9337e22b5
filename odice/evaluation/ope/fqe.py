"""Fitted Q evaluation: the Q function of the policy, regressed on the log's transitions.

    repeat   Q <- the regression of y on (s, a, t),     y = r + gamma m V(s', t + 1),   m = 0 at terminal and horizon
    with     V(s, t) = E_pi[Q(s, a, t)] from the round before,      estimate = E[V(s0, 0)] over the first states

A step at which the log was merely cut goes on (m = 1). The regression is a ridge regression on random features
(`features`); of discrete actions each has coefficients of its own and all share some,

    Q(s, a) = f(s) . (theta_0 + theta_a),      penalty strength * (|theta_0|^2 + sum_a |theta_a|^2)

so that an action that was hardly ever taken is taken to be like the others. Beyond the textbook:

- The first Q is the regression of the returns that followed in the log, which is the Q function of the behavior.
- V is clipped to what was ever earned from any step of the log, so extrapolation cannot leave the possible range.
- Every head learns on its own resample of the episodes: the heads are bootstrap replicates (`intervals`), and for each
  episode some heads have never seen it (`out_of_sample`).
- The strength is the one whose regression of the returns predicts episodes best that it has not seen.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np

from odice.evaluation.ope.episodes import Episodes
from odice.evaluation.ope.features import Features


@dataclass(frozen=True)
class FQEConfig:
    """How Q is learned."""

    heads: int = 8
    """Resamples of the episodes, each with a Q of its own."""
    size: int = 400
    """Coefficients, about; of continuous actions half as many, because each is a feature of its own."""
    rounds: int = 150
    """At most; as many as the horizon are needed."""
    strengths: tuple[float, ...] = (0.3, 3.0, 30.0)
    """Of the ridge penalty, for returns of variance 1: about how many observations the prior is worth."""
    tolerance: float = 1e-3
    """Rounds end when no head's estimate moves by more than this, in standard deviations of returns."""


class FQE(NamedTuple):
    """What was learned."""

    replicates: np.ndarray
    """(heads,) the estimate of each head, over its own resample of the first states."""
    q: np.ndarray
    """(heads, steps) Q(s, a, t) at the logged actions."""
    v: np.ndarray
    """(heads, states) V(s, t) in every state of the log."""
    rounds: int
    strength: float


class Design(Protocol):
    """The features of the log: `weights` and `targets` have one row per step and one column per head."""

    def gram(self, weight: np.ndarray) -> np.ndarray:
        """(d, d) the sum over the steps of weight * features features'."""
        ...

    def moments(self, targets: np.ndarray) -> np.ndarray:
        """(d, heads) the sum over the steps of features * targets."""
        ...

    def logged(self, theta: np.ndarray) -> np.ndarray:
        """(steps, heads) Q at the logged actions, for coefficients (d, heads)."""
        ...

    def policy(self, theta: np.ndarray) -> np.ndarray:
        """(states, heads) V in all states."""
        ...


class DiscreteDesign:
    """A `Design` for discrete actions: shared coefficients first, then those of each action."""

    def __init__(self, log: Episodes, size: int, seed: int):
        assert log.decisions.prob is not None
        actions = log.spec.action_dim
        self.prob = log.decisions.prob
        self.states = Features(log.spec.obs_dim, size // (actions + 1), seed)(log.states)
        self.k, self.actions, self.action = self.states.shape[1], actions, log.action
        self.steps = self.states[log.index]
        self.rows = [np.flatnonzero(log.action == a) for a in range(actions)]

    def gram(self, weight: np.ndarray) -> np.ndarray:
        k, out = self.k, np.zeros((self.k * (self.actions + 1),) * 2)
        for a, rows in enumerate(self.rows):
            x = self.steps[rows]
            block = (x * weight[rows, None].astype(np.float32)).T @ x
            own = slice(k * (a + 1), k * (a + 2))
            out[:k, :k] += block
            out[:k, own] = out[own, :k] = out[own, own] = block
        return out

    def moments(self, targets: np.ndarray) -> np.ndarray:
        parts = [self.steps[rows].T @ targets[rows].astype(np.float32) for rows in self.rows]
        return np.concatenate([np.sum(parts, axis=0), *parts]).astype(np.float64)

    def _each(self, theta: np.ndarray) -> np.ndarray:
        """(k, actions, heads) the coefficients of each action."""
        parts = theta.reshape(self.actions + 1, self.k, -1).astype(np.float32)
        return (parts[1:] + parts[:1]).transpose(1, 0, 2)

    def logged(self, theta: np.ndarray) -> np.ndarray:
        each, out = self._each(theta), np.empty((len(self.action), theta.shape[1]), np.float32)
        for a, rows in enumerate(self.rows):
            out[rows] = self.steps[rows] @ each[:, a]
        return out

    def policy(self, theta: np.ndarray) -> np.ndarray:
        each = self._each(theta)
        values = (self.states @ each.reshape(self.k, -1)).reshape(len(self.states), self.actions, -1)
        return np.einsum("na,nah->nh", self.prob, values)


class ContinuousDesign:
    """A `Design` for continuous actions: joint features of state and action."""

    def __init__(self, log: Episodes, size: int, seed: int):
        own = log.decisions.continuous
        scale = np.maximum(log.action.std(axis=0), 1e-3)
        center = log.action.mean(axis=0)
        both = lambda states, actions: np.concatenate([states, (actions - center) / scale], axis=1)
        features = Features(log.spec.obs_dim + log.spec.action_dim, size // 2, seed)
        self.steps = features(both(log.states[log.index], log.action))
        self.states = features(both(log.states, own))

    def gram(self, weight: np.ndarray) -> np.ndarray:
        return ((self.steps * weight[:, None].astype(np.float32)).T @ self.steps).astype(np.float64)

    def moments(self, targets: np.ndarray) -> np.ndarray:
        return (self.steps.T @ targets.astype(np.float32)).astype(np.float64)

    def logged(self, theta: np.ndarray) -> np.ndarray:
        return self.steps @ theta.astype(np.float32)

    def policy(self, theta: np.ndarray) -> np.ndarray:
        return self.states @ theta.astype(np.float32)


def fqe(log: Episodes, discount: float, counts: np.ndarray, config: FQEConfig | None = None, seed: int = 0) -> FQE:
    """Learn Q, and read the estimates from it.

    Args:
        log: The episodes, with what the policy does in them.
        discount: gamma; 1 for the undiscounted return.
        counts: (heads, episodes) how often the resample of each head has each episode.
        config: How it is learned.
        seed: Of the random features.
    """
    config = config or FQEConfig()
    design: Design = (DiscreteDesign if log.spec.discrete else ContinuousDesign)(log, config.size, seed)
    to_go = log.to_go(discount)
    complete = log.complete[log.episode]
    known = to_go[complete]
    shift, scale = known.mean(), max(float(known.std()), 1e-6 + 1e-3 * float(np.abs(known).max()))
    low, high = (known.min() - shift) / scale, (known.max() - shift) / scale
    start = (np.clip(to_go, known.min(), known.max()) - shift) / scale
    weight = (counts[:, log.episode] * log.known_next).T.astype(np.float64)  # (steps, heads)
    first = log.first + np.arange(log.n_episodes)
    estimates = lambda v: np.sum(v[first] * counts.T, axis=0) / counts.sum(axis=1)

    grams = [design.gram(column) for column in weight.T]
    strength = _strength(design, grams, weight, start, complete, config)
    solve = _solver(grams, strength)
    theta = solve(design.moments(weight * start[:, None]))
    v = np.clip(design.policy(theta), low, high)
    reward = log.reward / scale - shift * (1 - discount * log.goes_on) / scale  # so that the shift cancels
    ahead = discount * log.goes_on[:, None]
    before, number = np.asarray(start[log.first] @ counts.T / counts.sum(axis=1)), 0
    for number in range(1, min(config.rounds, log.horizon) + 1):
        theta = solve(design.moments(weight * (reward[:, None] + ahead * v[log.index + 1])))
        v = np.clip(design.policy(theta), low, high)
        now = estimates(v)
        if number > 1 and np.abs(now - before).max() < config.tolerance:
            break
        before = now
    v = v.astype(np.float64) * scale + shift
    q = np.clip(design.logged(theta), low, high).astype(np.float64) * scale + shift
    return FQE(estimates(v), q.T, v.T, number, strength)


def _solver(grams: list[np.ndarray], strength: float):
    """From moments (d, heads) to coefficients (d, heads), each head by its own system."""
    from scipy.linalg import cho_factor, cho_solve

    factors = [cho_factor(gram + strength * np.eye(len(gram))) for gram in grams]
    return lambda moments: np.stack([cho_solve(f, m) for f, m in zip(factors, moments.T, strict=True)], axis=1)


def _strength(
    design: Design,
    grams: list[np.ndarray],
    weight: np.ndarray,
    start: np.ndarray,
    complete: np.ndarray,
    config: FQEConfig,
) -> float:
    """The penalty whose regression of the returns errs least in episodes that the first two heads did not draw."""
    some = weight[:, :2]
    unseen = (some == 0) & complete[:, None]
    if not unseen.any():
        return max(config.strengths)
    moments = design.moments(some * start[:, None])
    error = lambda theta: float(np.mean(np.square(design.logged(theta) - start[:, None])[unseen]))
    return min(config.strengths, key=lambda strength: error(_solver(grams[:2], strength)(moments)))


def out_of_sample(values: np.ndarray, heads: np.ndarray, episode: np.ndarray) -> np.ndarray:
    """(steps,) the mean of the values (heads, steps) over the heads that did not learn from the step's episode.

    Where every head has seen the episode (with eight heads, one episode in forty) it is the mean over all.
    """
    unseen = (heads[:, episode] == 0).astype(np.float64)
    weight = np.where(unseen.any(axis=0), unseen, 1.0)
    return np.sum(values * weight, axis=0) / weight.sum(axis=0)
