"""The behavior that made the log: how likely it was to do what it did, and where the policy does something else.

If the log says with which probability each action was chosen (`propensity`), that is used. Otherwise the behavior is
cloned from the log by a regression on random features (`features`; logistic for discrete actions), cross-fitted: the
episodes are cut into five parts, and the probabilities in each part come from a regression on the four others. The
penalty is the one that predicts the first part best. If the regressions predict the left-out parts no better than the
actions' overall frequencies (or their mean), those are used.

| actions    | weight pi(a|s) / b(a|s)                       | the policy is outside the data where              |
|------------|-----------------------------------------------|---------------------------------------------------|
| discrete   | pi(a|s) / b(a|s)                              | b(pi(s)|s) is below 5 % and half of uniform       |
| continuous | N(a; pi(s), sigma_b) / N(a; mu_b(s), sigma_b) | nobody did so in similar states (`support`)       |

A deterministic policy has no density: for continuous actions the weights are those of the policy with the behavior's
own noise.
"""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from odice.evaluation.ope.episodes import Episodes
from odice.evaluation.ope.features import Features
from odice.evaluation.ope.support import share_outside

LEVELS = (0.5, 0.8, 0.95)
"""Of the central intervals of a Gaussian whose coverage is compared."""
Z = (0.6744898, 1.2815516, 1.9599640)
RARE, MOST_RARE = 0.5, 0.05
"""An action is rare if its probability is below this share of uniform, and below one in twenty."""
LEAST_PROBABILITY = 0.01
"""Estimated probabilities count as at least this: the tails of a regression are not to be trusted further."""
BINS = 10
LEAST_SPREAD = 1e-3
"""Of actions in [-1, 1]: a behavior without noise has no importance weights."""


@dataclass(frozen=True)
class CloneConfig:
    """Settings of the regression that clones the behavior."""

    size: int = 80
    """Number of random features, about."""
    folds: int = 5
    most: int = 6000
    """Steps that a regression is fitted to."""
    penalties: tuple[float, ...] = (1.0, 10.0, 100.0)
    """About how many observations the prior, that nothing depends on the state, is worth."""


class Behavior(NamedTuple):
    """The behavior at every step of the log, and the policy in comparison."""

    log_ratio: np.ndarray
    """(steps,) log pi(a|s) / b(a|s); minus infinity where a discrete policy never does that."""
    known: bool
    """Whether the log itself gives the probabilities."""
    calibration: float
    """Mean absolute difference between predicted and observed frequency, on episodes that were left out."""
    outside: float
    """Share of the log's states in which the policy does what the behavior hardly ever did."""
    agreement: float
    """Discrete: mean probability of the logged action under the policy. Continuous: root mean square distance to it,
    actions in [-1, 1]."""
    spread: np.ndarray | None = None
    """(act,) of continuous actions, the standard deviation of the behavior around its mean."""


def clone(log: Episodes, config: CloneConfig | None = None, seed: int = 0) -> Behavior:
    """Estimate the behavior, or take its known probabilities, and compare the policy with it."""
    config = config or CloneConfig()
    fold = np.random.default_rng(seed).permutation(log.n_episodes) % min(config.folds, log.n_episodes)
    predicted = _fitted(log, fold[log.episode], config, seed)
    return _discrete(predicted, log) if log.spec.discrete else _continuous(predicted, log)


# --- fitting ----------------------------------------------------------------------------------------------------------


_LAST: dict[str, np.ndarray] = {}
"""The newest fit by its inputs: the policies and outcomes that are compared share their log, and so its behavior."""


def _fitted(log: Episodes, fold: np.ndarray, config: CloneConfig, seed: int) -> np.ndarray:
    """`_cross_fit`, unless the last call had the same inputs."""
    digest = hashlib.sha256(repr((config, seed, log.spec, log.action.shape)).encode())
    for array in (log.states[log.index], log.action, fold):
        digest.update(np.ascontiguousarray(array).data)
    key = digest.hexdigest()
    if key not in _LAST:
        fit = _cross_fit(log, fold, config, seed)
        fit.setflags(write=False)
        _LAST.clear()
        _LAST[key] = fit
    return _LAST[key]


def _cross_fit(log: Episodes, fold: np.ndarray, config: CloneConfig, seed: int) -> np.ndarray:
    """(steps, actions) probabilities or mean actions, of regressions that were not fitted to the step's episode."""
    rng = np.random.default_rng(seed)
    x = Features(log.spec.obs_dim, config.size, seed)(log.states[log.index])
    train = [rng.permutation(np.flatnonzero(fold != k))[: config.most] for k in range(int(fold.max()) + 1)]
    constant = np.stack([_constant(log.action[rows], log.spec) for rows in train])[fold]
    fit = _softmax if log.spec.discrete else _linear

    def predicted(penalty: float, folds: int) -> np.ndarray:
        out = constant.copy()
        for k, rows in enumerate(train[:folds]):
            out[fold == k] = fit(x[rows], log.action[rows], x[fold == k], penalty, log.spec.action_dim)
        return out

    # Choosing the penalty on one part only costs a fifth of the fits.
    first = fold == 0
    losses = {penalty: _loss(predicted(penalty, 1)[first], log.action[first]) for penalty in config.penalties}
    best = min(losses, key=lambda penalty: losses[penalty])
    chosen = predicted(best, len(train))
    return chosen if _loss(chosen, log.action) < _loss(constant, log.action) else constant


def _softmax(x: np.ndarray, action: np.ndarray, new: np.ndarray, penalty: float, actions: int) -> np.ndarray:
    """Probabilities in `new` of a logistic regression; the penalty spares the actions' overall frequencies."""
    from scipy.optimize import minimize
    from scipy.special import softmax

    k, targets = x.shape[1], np.eye(actions, dtype=np.float32)[action]
    offset = np.log(_frequencies(action, actions)).astype(np.float32)

    def loss(flat: np.ndarray) -> tuple[float, np.ndarray]:
        weights = flat.reshape(k, actions)
        logits = x @ weights.astype(np.float32) + offset
        logits -= logits.max(axis=1, keepdims=True)
        log_p = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
        value = -float(np.sum(log_p[np.arange(len(x)), action], dtype=np.float64)) + 0.5 * penalty * float(flat @ flat)
        gradient = x.T @ (np.exp(log_p) - targets)
        return value / len(x), (gradient.astype(np.float64) + penalty * weights).ravel() / len(x)

    fit = minimize(loss, np.zeros(k * actions), jac=True, method="L-BFGS-B", options={"maxiter": 60})
    return softmax((new @ fit.x.reshape(k, actions).astype(np.float32) + offset).astype(np.float64), axis=1)


def _linear(x: np.ndarray, action: np.ndarray, new: np.ndarray, penalty: float, _: int) -> np.ndarray:
    """Mean actions in `new` of a ridge regression."""
    center = action.mean(axis=0, dtype=np.float64)
    scale = np.maximum(action.std(axis=0, dtype=np.float64), 1e-9)
    gram = x.T.astype(np.float64) @ x + penalty * np.eye(x.shape[1])
    weights = np.linalg.solve(gram, x.T @ ((action - center) / scale))
    return center + (new @ weights) * scale


def _frequencies(action: np.ndarray, actions: int) -> np.ndarray:
    count = np.bincount(action, minlength=actions) + 0.5
    return count / count.sum()


def _constant(action: np.ndarray, spec: Any) -> np.ndarray:
    """Return the frequency of each action, above 0 also for one that does not occur, or the mean action."""
    return _frequencies(action, spec.action_dim) if spec.discrete else action.mean(axis=0, dtype=np.float64)


def _loss(predicted: np.ndarray, action: np.ndarray) -> float:
    """The mean loss of predictions: negative log probability, or squared distance."""
    if action.ndim == 1:
        return float(-np.mean(np.log(np.maximum(predicted[np.arange(len(action)), action], 1e-6))))
    return float(np.mean(np.square(predicted - action)))


# --- comparing --------------------------------------------------------------------------------------------------------


def _discrete(p: np.ndarray, log: Episodes) -> Behavior:
    assert log.decisions.prob is not None
    policy = log.decisions.prob[log.index].astype(np.float64)
    steps = np.arange(log.steps)
    own = policy[steps, log.action]
    known = log.propensity is not None
    taken = log.propensity if log.propensity is not None else np.maximum(p[steps, log.action], LEAST_PROBABILITY)
    with np.errstate(divide="ignore"):
        log_ratio = np.log(own) - np.log(taken)
    happened = (np.arange(p.shape[1])[None] == log.action[:, None]).ravel()
    rare = p < min(RARE / log.spec.action_dim, MOST_RARE)
    outside = float(np.mean(np.sum(policy * rare, axis=1)))
    return Behavior(log_ratio, known, _calibration_error(p.ravel(), happened), outside, float(own.mean()))


def _calibration_error(predicted: np.ndarray, happened: np.ndarray) -> float:
    """Mean over ten bins of equal size of |mean prediction - frequency|."""
    order = np.argsort(predicted)
    parts = [part for part in np.array_split(order, BINS) if part.size]
    return float(np.mean([abs(predicted[part].mean() - happened[part].mean()) for part in parts]))


def _continuous(center: np.ndarray, log: Episodes) -> Behavior:
    spread = np.maximum(np.sqrt(np.mean(np.square(log.action - center), axis=0)), LEAST_SPREAD)
    own = log.decisions.continuous[log.index]
    z, z_own = (log.action - center) / spread, (log.action - own) / spread
    log_ratio = 0.5 * np.sum(z**2 - z_own**2, axis=-1)  # the spreads are the same, so the constants cancel
    covered = [np.mean(np.abs(z) < limit) for limit in Z]
    error = float(np.mean([abs(c - level) for c, level in zip(covered, LEVELS, strict=True)]))
    distance = math.sqrt(float(np.mean((log.action - own) ** 2)))
    return Behavior(log_ratio, False, error, share_outside(log), distance, spread)
