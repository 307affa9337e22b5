"""One pass over the data, shared by all checks: ranges, means, what is not finite, and a sample of rows.

Arrays may be memory-mapped and larger than memory, so they are walked in blocks; quantiles come from the sample.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from odice.data.dataset import Dataset, pick, walk

# Enough for the 0.5 % quantiles that the checks use (250 rows beyond each), and for a regression on 100 columns.
SAMPLE = 50_000


@dataclass(frozen=True)
class Columns:
    """What one array holds, column by column; low, high, mean and std are over its finite values."""

    names: tuple[str, ...]
    values: np.ndarray  # (rows, columns), a view of the data set
    bad: np.ndarray  # (columns,) how many values are not finite
    first_bad: np.ndarray  # (columns,) the first such row, or -1
    low: np.ndarray
    high: np.ndarray
    mean: np.ndarray
    std: np.ndarray
    sample: np.ndarray  # (rows, columns) float64; only rows that are finite

    @cached_property
    def quantiles(self) -> np.ndarray:
        """(5, columns) the 0.5, 25, 50, 75 and 99.5 % quantiles of the sample."""
        if not len(self.sample):
            return np.zeros((5, self.values.shape[1]))
        return np.quantile(self.sample, [0.005, 0.25, 0.5, 0.75, 0.995], axis=0)


@dataclass(frozen=True)
class Scan:
    """The results of one pass over a data set."""

    dataset: Dataset
    observation: Columns
    action: Columns
    reward: Columns

    @cached_property
    def bounds(self) -> tuple[np.ndarray, np.ndarray] | None:
        """The declared bounds of continuous actions, one per column; None if they are unknown or do not fit."""
        meta, width = self.dataset.meta, len(self.action.names)
        pair = [np.asarray(b, np.float64) for b in (meta.action_low, meta.action_high) if b is not None]
        if len(pair) < 2 or any(b.shape not in ((), (1,), (width,)) for b in pair):
            return None
        low, high = (np.broadcast_to(b, (width,)) for b in pair)
        return low, high

    @cached_property
    def action_counts(self) -> np.ndarray:
        """How often each discrete action occurs."""
        n = self.dataset.spec.action_dim
        return sum((np.bincount(part, minlength=n) for _, part in walk(self.dataset.actions)), np.zeros(n, np.int64))

    def step_place(self, row: int) -> dict[str, int]:
        """Where step `row` is, for people: episode and step inside it."""
        e = int(np.searchsorted(self.dataset.ends, row))
        return {"episode": e, "step": int(row - self.dataset.starts[e]), "row": int(row)}

    def observation_place(self, row: int) -> dict[str, int]:
        """The same for a row of `observations`, of which every episode has one more than steps."""
        data = self.dataset
        e = int(np.searchsorted(data.ends + np.arange(data.n_episodes) + 1, row))
        return {"episode": e, "step": int(row - data.starts[e] - e), "row": int(row - e)}


def scan(dataset: Dataset, sample: int = SAMPLE) -> Scan:
    """Walk through a data set once; `sample` rows are kept for quantiles and regressions."""
    names = layout(dataset)
    actions = dataset.actions if not dataset.discrete else dataset.actions[:, None]
    act_names = tuple(f"action[{i}]" for i in range(actions.shape[1])) if not dataset.discrete else ("action",)
    return Scan(
        dataset,
        _measured(names, dataset.observations, sample),
        _measured(act_names, actions, sample),
        _measured(("reward",), dataset.rewards[:, None], sample),
    )


def layout(dataset: Dataset) -> tuple[str, ...]:
    """A name for every number of an observation."""
    parts, width = dataset.meta.obs_layout, dataset.observations.shape[1]
    if parts and sum(size for _, size in parts) == width:
        return tuple(f"{name}[{i}]" if size > 1 else name for name, size in parts for i in range(size))
    return tuple(f"observation[{i}]" for i in range(width))


def _measured(names: tuple[str, ...], values: np.ndarray, sample: int) -> Columns:
    n, width = values.shape
    bad, first = np.zeros(width, np.int64), np.full(width, -1, np.int64)
    low, high = np.full(width, np.inf), np.full(width, -np.inf)
    total, squares = np.zeros(width), np.zeros(width)
    shift = np.nan_to_num(
        np.asarray(values[0], np.float64), posinf=0, neginf=0
    )  # keeps the variance of far-off columns
    for block, part in walk(values):
        fine = np.isfinite(part)
        if fine.all():
            np.minimum(low, part.min(axis=0), out=low)
            np.maximum(high, part.max(axis=0), out=high)
            part = part - shift
        else:
            miss = (~fine).sum(0)
            new = (first < 0) & (miss > 0)
            first[new] = block.start + np.argmin(fine, axis=0)[new]
            bad += miss
            np.minimum(low, np.min(part, axis=0, where=fine, initial=np.inf), out=low)
            np.maximum(high, np.max(part, axis=0, where=fine, initial=-np.inf), out=high)
            part = np.where(fine, part, shift) - shift
        total += part.sum(axis=0)
        squares += (part * part).sum(axis=0)
    count = np.maximum(n - bad, 1)
    mean = total / count
    std = np.sqrt(np.maximum(squares / count - mean**2, 0))
    empty = bad == n
    low[empty] = high[empty] = 0.0
    rows = np.sort(np.random.default_rng(0).choice(n, min(n, sample), replace=False))
    some = pick(values, rows).astype(np.float64)
    some = some[np.isfinite(some).all(axis=1)]
    return Columns(names, values, bad, first, low, high, mean + shift, std, some)
