"""Whether a policy with continuous actions does what nobody did: its actions against those of similar logged states.

    d(s, a)   distance from a to the nearest action in the 20 states nearest to s, of other episodes
    limit     what 5 % of the log's own actions exceed
    outside   the share of states with d(s, pi(s)) > limit

The states of half of the episodes are compared with the other half, so the behavior itself is outside in 5 % of the
states. A cloned behavior with one spread for all states cannot see it: where several behaviors are mixed, that spread
is as wide as the actions, and nothing lies far out of it.

For discrete actions the cloned probabilities do it (`behavior`).
"""

from __future__ import annotations

import numpy as np

from odice.core.numerics import nearest
from odice.evaluation.ope.episodes import Episodes

NEIGHBORS = 20
USUAL = 0.95
QUERIES, KNOWN = 1000, 10_000
"""At most so many steps are compared with so many: a matrix of their distances takes a fraction of a second."""


def share_outside(log: Episodes, seed: int = 0) -> float:
    """The share of the log's states in which the policy does what nobody did in states like these."""
    rng = np.random.default_rng(seed)
    even = log.episode % 2 == 0
    known, queries = (rng.permutation(np.flatnonzero(half))[:most] for half, most in ((even, KNOWN), (~even, QUERIES)))
    states = log.states[log.index, :-1]  # the last column is the time
    scale = np.maximum(log.action.std(axis=0), 1e-6)
    near = log.action[known][nearest(states[queries], states[known], min(NEIGHBORS, len(known)))]

    def distance(actions: np.ndarray) -> np.ndarray:
        return np.sqrt(np.mean(((near - actions[:, None]) / scale) ** 2, axis=-1)).min(axis=1)

    limit = np.quantile(distance(log.action[queries]), USUAL)
    return float(np.mean(distance(log.decisions.continuous[log.index[queries]]) > limit))
