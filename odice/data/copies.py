"""Episodes that occur more than once, bit for bit: a log that was exported twice.

Where states recur anyway (whole numbers, or few different states), short paths repeat by chance. There only long ones
count, unless every episode of the log occurs twice, or three times, and so on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from odice.data.rows import blocks, pick, release

if TYPE_CHECKING:
    from odice.data.dataset import Dataset

SAMPLE = 100_001
LONG = 100
ENOUGH = 20
"""Different episodes that must all occur k times for that to be no chance."""


def copies_of(data: Dataset) -> np.ndarray:
    """(copies, 2): the first episode of its kind, and the episode that repeats it."""
    with np.errstate(all="ignore"):  # numbers near the ends of float32 overflow
        pairs = _identical(data)
    if not pairs.size or _exported_again(data, pairs) or not _states_recur(_sample_without(data, pairs[:, 1])):
        return pairs
    return pairs[data.lengths[pairs[:, 1]] >= LONG]


def _exported_again(data: Dataset, pairs: np.ndarray) -> bool:
    """Whether every episode occurs the same number of times, or a multiple of it."""
    times = np.bincount(pairs[:, 0], minlength=data.n_episodes) + 1
    times = np.delete(times, pairs[:, 1])
    return bool(len(times) >= ENOUGH and np.gcd.reduce(times) >= 2)


def _sample_without(data: Dataset, episodes: np.ndarray) -> np.ndarray:
    """Observations of a sample of the steps, none of these episodes."""
    rows = np.sort(np.random.default_rng(0).choice(data.n_steps, min(data.n_steps, SAMPLE), replace=False))
    owner = np.searchsorted(data.ends, rows)
    kept = ~np.isin(owner, episodes)
    return pick(data.observations, rows[kept] + owner[kept])


def _states_recur(observations: np.ndarray) -> bool:
    """Whether states are whole numbers, or half of those in a sample occur more than once."""
    if (observations == np.floor(observations)).all():
        return True
    return len(np.unique(observations, axis=0)) < 0.5 * len(observations)


def _identical(data: Dataset) -> np.ndarray:
    """(copies, 2): pairs (first, copy) of identical episodes. A random projection finds candidates; bits decide."""
    rng = np.random.default_rng(0)
    weights = rng.normal(size=data.observations.shape[1]).astype(np.float32)
    marks = np.zeros(data.n_episodes)
    for block in blocks(data.n_steps, data.observations[:1].nbytes):
        steps = np.arange(block.start, block.stop)
        owner = np.searchsorted(data.ends, steps)
        part = data.observations[steps + owner]
        trace = (part if np.isfinite(part).all() else np.nan_to_num(part)) @ weights
        trace = trace * (1 + 0.1 * np.sin(steps - data.starts[owner]))  # the order of the steps counts
        sums = np.bincount(owner - owner[0], trace)
        marks[owner[0] : owner[0] + len(sums)] += sums
        release(data.observations)
    order = np.lexsort((marks, data.lengths))
    a, b = order[:-1], order[1:]
    scale = np.abs(marks).max() + 1e-12
    alike = (data.lengths[a] == data.lengths[b]) & (np.abs(marks[a] - marks[b]) <= 1e-5 * scale)
    pairs, first = [], {}
    for number, (i, j) in enumerate(zip(a[alike], b[alike], strict=True)):
        if number % 64 == 0:
            for array in (data.observations, data.actions, data.rewards):
                release(array)
        one, two = data[int(i)], data[int(j)]
        if all(np.array_equal(x, y) for x, y in zip(one[:3], two[:3], strict=True)):
            root = first.setdefault(int(i), int(i))
            first[int(j)] = root
            pairs.append((min(root, int(j)), max(root, int(j))))
    return np.array(sorted(pairs, key=lambda pair: pair[1]), np.int64).reshape(-1, 2)
