"""Weighted doubly robust: FQE's values, corrected by the weighted errors that they make along the log.

    J = sum_t gamma^t [ sum_i w_{i,t-1} V(s_{i,t}) / sum_i w_{i,t-1}
                        + sum_i w_{i,t} (r_{i,t} - Q(s_{i,t}, a_{i,t})) / sum_i w_{i,t} ]
    V(s) = E_pi[Q(s, a)],   w_{i,-1} = 1

If Q is right the correction has mean 0 and the weights do not matter; if the weights are right, Q only lowers the
variance. One of the two has to be right. Q and V of an episode come from the heads that did not learn from it, so an
error that Q has memorized is not hidden. Once no episode follows the policy, all terms are 0, and the last V before
stands for everything that comes after: from there on the estimate is FQE's.
"""

from __future__ import annotations

import numpy as np

from odice.evaluation.ope.episodes import Episodes
from odice.evaluation.ope.fqe import FQE, out_of_sample
from odice.evaluation.ope.importance import Weighted, effective_episodes, episode_weights, weighted_mean


def doubly_robust(
    log: Episodes, learned: FQE, heads: np.ndarray, log_ratio: np.ndarray, discount: float, counts: np.ndarray
) -> Weighted:
    """The estimate on the log and on its resamples; Q is not learned again for these.

    Args:
        log: The episodes, with what the policy does in them.
        learned: Q and V of every head of FQE.
        heads: (heads, episodes) the resamples that FQE learned from.
        log_ratio: (steps,) log pi(a|s) / b(a|s).
        discount: gamma.
        counts: (replicates, episodes) how often each resample has each episode.
    """
    observed = log.observed.astype(np.float64)
    weights = episode_weights(log, log_ratio)
    before, after = weights[:, :-1] * observed, weights[:, 1:] * observed
    everyone = np.ones((1, log.n_episodes))
    discounting = discount ** np.arange(log.horizon)
    v = log.table(out_of_sample(learned.v[:, log.index], heads, log.episode))
    errors = log.table(log.reward - out_of_sample(learned.q, heads, log.episode))
    value, replicates = (
        (weighted_mean(before, v, c) + weighted_mean(after, errors, c)) @ discounting for c in (everyone, counts)
    )
    return Weighted(float(value[0]), replicates, effective_episodes(after))
