"""Importance sampling: the log's own rewards, weighted by how likely the policy would have been to get there.

    w_{i,t} = prod_{k <= t} pi(a_k|s_k) / b(a_k|s_k)                 of episode i
    J = sum_t gamma^t  sum_i w_{i,t} r_{i,t} / sum_i w_{i,t}         per decision, weighted

Weights are normalized at every time, so the estimate stays within what episodes earned (a little bias for far less
variance). An episode that terminated stays in the sums with reward 0, for it earns nothing more; one that was cut
leaves them. The behavior's own return is the same sum with every weight 1.

    effective episodes at t = (sum_i w)^2 / sum_i w^2,               the least over t is reported

A product of ratios dies out with the length of the episodes: with more than some tens of steps expect an effective size
of 1, which is to say that the estimate is one lucky episode's return. The verdict does not use such an estimate.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from odice.evaluation.ope.episodes import Episodes


class Weighted(NamedTuple):
    """An estimate, and the same on every resample of the episodes."""

    value: float
    replicates: np.ndarray
    effective: float
    """Effective number of episodes."""


def episode_weights(log: Episodes, log_ratio: np.ndarray) -> np.ndarray:
    """(episodes, horizon + 1) w_{i,t-1} at column t, so column 0 is 1; of each column only the proportions count."""
    table = np.concatenate([np.zeros((log.n_episodes, 1)), np.cumsum(log.table(log_ratio), axis=1)], axis=1)
    top = table.max(axis=0, keepdims=True)
    with np.errstate(invalid="ignore"):
        weights = np.exp(table - top)
    return np.where(np.isfinite(top), weights, 0.0)  # no episode followed the policy so far: nothing is known


def weighted_mean(weights: np.ndarray, values: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """(replicates, horizon) sum_i c_i w_it x_it / sum_i c_i w_it; 0 where no weight is left."""
    below = counts @ weights
    return counts @ (weights * values) / np.where(below > 0, below, 1.0)


def effective_episodes(weights: np.ndarray) -> float:
    """The least (sum w)^2 / sum w^2 over the times: a chain is as strong as its weakest link."""
    below = np.sum(weights**2, axis=0)
    return float(np.min(np.sum(weights, axis=0) ** 2 / np.where(below > 0, below, 1.0)))


def importance(log: Episodes, log_ratio: np.ndarray, discount: float, counts: np.ndarray) -> Weighted:
    """Per-decision weighted importance sampling on the log and on its resamples.

    Args:
        log: The episodes.
        log_ratio: (steps,) log pi(a|s) / b(a|s).
        discount: gamma.
        counts: (replicates, episodes) how often each resample has each episode.
    """
    weights = episode_weights(log, log_ratio)[:, 1:] * log.observed.astype(np.float64)
    rewards, discounting = log.table(log.reward), discount ** np.arange(log.horizon)
    everyone = np.ones((1, log.n_episodes))
    value, replicates = (weighted_mean(weights, rewards, c) @ discounting for c in (everyone, counts))
    return Weighted(float(value[0]), replicates, effective_episodes(weights))


def behavior_return(log: Episodes, discount: float, counts: np.ndarray) -> Weighted:
    """What the log itself earned: the same sum with every weight 1."""
    return importance(log, np.zeros(log.steps), discount, counts)
