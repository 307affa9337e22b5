"""Discounted returns to go: what a log says of the scale of values, before any are learned."""

from __future__ import annotations

import numpy as np

from odice.data.dataset import Dataset

HIGH = 0.99
"""The quantile of the returns to go that counts as high: one lucky step in a hundred does not set it."""


def returns_to_go(dataset: Dataset, discount: float) -> np.ndarray:
    """The discounted sum of the logged rewards from each step to the end of its episode, in double precision.

    From the last steps of all episodes backwards, so that the loop is as long as the longest episode.
    """
    out = np.asarray(dataset.rewards, np.float64).copy()
    longest_first = np.argsort(-dataset.lengths, kind="stable")
    ends, lengths = dataset.ends[longest_first], dataset.lengths[longest_first]
    for back in range(1, int(lengths[0])):
        at = ends[: np.searchsorted(-lengths, -back)] - back  # the episodes that are longer than `back`
        out[at] += discount * out[at + 1]
    return out


def spread(dataset: Dataset, discount: float) -> float:
    """The standard deviation of the returns to go; 1 where they do not differ, so that dividing by it is safe."""
    found = returns_to_go(dataset, discount)
    deviation = float(found.std())
    return deviation if deviation > 1e-9 * float(np.abs(found).max()) else 1.0


def high(dataset: Dataset, discount: float) -> float:
    """A high return to go: where values may start so that whatever is not in the data does not look good."""
    return float(np.quantile(returns_to_go(dataset, discount), HIGH))
