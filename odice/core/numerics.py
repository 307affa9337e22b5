"""Small numerical routines that several packages need, in numpy: returns to go, and nearest neighbors."""

from __future__ import annotations

import numpy as np

ROWS = 1024
"""Points whose distances to all known ones are in memory at a time."""


def returns_to_go(rewards: np.ndarray, lengths: np.ndarray, discount: float) -> np.ndarray:
    """Sum the discounted rewards from each step to the end of its episode, in double precision.

    From the last steps of all episodes backwards, so that the loop is as long as the longest episode.

    Args:
        rewards: (steps,) of all episodes, one after the other.
        lengths: (episodes,) how many steps each has.
        discount: Weight of the next step's return.
    """
    out = np.array(rewards, np.float64)
    longest_first = np.argsort(-lengths, kind="stable")
    ends, lengths = (np.cumsum(lengths) - 1)[longest_first], lengths[longest_first]
    for back in range(1, int(lengths[0])):
        at = ends[: np.searchsorted(-lengths, -back)] - back  # the episodes that are longer than `back`
        out[at] += discount * out[at + 1]
    return out


def nearest(points: np.ndarray, known: np.ndarray, count: int) -> np.ndarray:
    """Find the `count` rows of `known` that are nearest to each point, in no order: (points, count) numbers of rows."""
    squares = np.square(known).sum(axis=1)
    parts = [points[at : at + ROWS] for at in range(0, len(points), ROWS)]
    distances = (np.square(part).sum(axis=1)[:, None] - 2.0 * part @ known.T + squares for part in parts)
    return np.concatenate([np.argpartition(each, count - 1, axis=1)[:, :count] for each in distances])
