"""Weighted doubly robust: FQE's values, corrected by the weighted errors that they make along the log.

    J = sum_t gamma^t [ sum_i w_{i,t-1} V(s_{i,t}) / sum_i w_{i,t-1}
                        + sum_i w_{i,t} (r_{i,t} - Q(s_{i,t}, a_{i,t})) / sum_i w_{i,t} ]
    V(s) = Q(s, pi(s)),   w_{i,-1} = 1

If Q is right the correction has mean 0 and the weights do not matter; if the weights are right, Q only lowers the
variance. One of the two has to be right. Where no episode follows the policy any longer all terms are 0, and the last
one before, V, stands for everything that comes after: from there on it is FQE's word.
"""

from __future__ import annotations

import numpy as np

from odice.evaluation.ope.fqe import FQE
from odice.evaluation.ope.importance import Weighted, effective_episodes, episode_weights, weighted_mean
from odice.evaluation.ope.log import Log


def doubly_robust(log: Log, learned: FQE, log_ratio: np.ndarray, discount: float, counts: np.ndarray) -> Weighted:
    """On the log and on its resamples `counts`; Q is not learned again for them."""
    observed = log.observed.astype(np.float64)
    weights = episode_weights(log, log_ratio)
    before, after = weights[:, :-1] * observed, weights[:, 1:] * observed
    everyone = np.ones((1, log.episodes))
    value, replicates = [], []
    for row, gamma in enumerate((discount, 1.0)):
        discounting = gamma ** np.arange(log.horizon)
        v = log.table(learned.v[row][log.index])
        errors = log.table(log.reward - learned.q[row])
        for counted, out in ((everyone, value), (counts, replicates)):
            means = weighted_mean(before, v, counted) + weighted_mean(after, errors, counted)
            out.append(means @ discounting)
    return Weighted(np.array(value)[:, 0], np.array(replicates), effective_episodes(after))
