"""One step at a time: what is gained by doing as the policy does for one step, and as the behavior does afterwards.

    rho_t = pi(a_t|s_t) / b(a_t|s_t)
    D = sum_t gamma^t (rho_t - 1) (G_t - V_b(s_t)),      G_t: the return that followed in the log

E[D] is the sum over the steps of the log of Q_b(s, pi(s)) - V_b(s), the advantages of the policy over the behavior in
the states that the behavior visits. It is exactly the slope, at c = 0, of the return of a policy that acts as pi in a
share c of the steps and as the behavior otherwise. So it says whether a small change in the policy's direction helps,
and by how much: mixing a share c of pi into the behavior earns about c E[D] more.

It is not the policy's own gain: that is the same sum over the states that *pi* visits. But it uses only returns that
were really earned and one ratio at a time, so it neither extrapolates as FQE may nor dies out with the length of the
episodes as products of ratios do. So it is the second kind of evidence where episodes are long.

V_b is a ridge regression on the returns, fitted without the episode's own part of the log. It has no influence on the
mean where b is right, and lowers the variance.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from odice.evaluation.ope.episodes import Episodes

FOLDS = 5
MAX_WEIGHT = 50.0
"""Ratios of continuous actions have no limit of their own."""


class OneStep(NamedTuple):
    """The estimate of E[D]."""

    value: float
    error: float
    """Standard error."""
    effective: float
    """Effective number of episodes."""


def one_step(log: Episodes, log_ratio: np.ndarray, discount: float, seed: int = 0) -> OneStep:
    """The mean of D over the complete episodes, and its standard error.

    Args:
        log: The episodes.
        log_ratio: (steps,) log pi(a|s) / b(a|s).
        discount: gamma.
        seed: Of the folds in which V_b is fitted.
    """
    discounting = discount**log.time
    with np.errstate(over="ignore"):
        ratio = np.minimum(np.exp(log_ratio), MAX_WEIGHT)
    used = log.complete[log.episode]
    ratio = ratio / max(np.average(ratio[used], weights=discounting[used]), 1e-9)
    to_go = log.to_go(discount)
    advantage = to_go - behavior_values(log, to_go, seed)
    gain = np.bincount(log.episode, discounting * (ratio - 1) * advantage, minlength=log.n_episodes)[log.complete]
    weight = np.bincount(log.episode, discounting * ratio, minlength=log.n_episodes)[log.complete]
    effective = float(weight.sum() ** 2 / max(np.sum(weight**2), 1e-12))
    return OneStep(float(gain.mean()), float(gain.std(ddof=1) / len(gain) ** 0.5), effective)


def behavior_values(log: Episodes, to_go: np.ndarray, seed: int = 0) -> np.ndarray:
    """(steps,) V_b at each step, from a regression on the other episodes' returns."""
    s = log.states[log.index].astype(np.float64)
    clock = s[:, -1:]
    inputs = np.concatenate([np.ones((len(s), 1)), s, s**2, s * clock], axis=1)
    fold = np.random.default_rng(seed).permutation(log.n_episodes) % min(FOLDS, log.n_episodes)
    fold, out = fold[log.episode], np.zeros(log.steps)
    for k in range(int(fold.max()) + 1):
        fit = (fold != k) & log.complete[log.episode]
        x, y = inputs[fit], to_go[fit]
        center = y.mean() if len(y) else 0.0
        gram = x.T @ x + (1e-3 * len(x) + 1e-6) * np.eye(x.shape[1])
        predicted = center + inputs[fold == k] @ np.linalg.solve(gram, x.T @ (y - center))
        out[fold == k] = np.clip(predicted, y.min(), y.max()) if len(y) else 0.0
    return out
