"""Statistics of few runs on several tasks, after Agarwal et al., "Deep Reinforcement Learning at the Edge of the
Statistical Precipice" (2021), with the definitions of their library, rliable.

`tasks` is a list of arrays: the scores of the runs (seeds) on each task. The bootstrap is stratified: it draws runs
within each task and never moves one between tasks. Tasks need not have the same number of runs; every run counts once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Scores = NDArray[np.float64]
Statistic = Callable[[Scores], Scores]
"""From an array (replications, runs) to one value per replication."""

REPLICATIONS = 10_000
LEVEL = 0.95


class BootstrapInterval(NamedTuple):
    """An estimate and its percentile-bootstrap interval."""

    value: float
    low: float
    high: float

    @property
    def known(self) -> bool:
        """Whether there is an interval: with a single run of each task both ends are NaN."""
        return self.low == self.low


def mean(scores: Scores) -> Scores:
    return scores.mean(-1)


def iqm(scores: Scores) -> Scores:
    """Interquartile mean: a quarter of the runs (rounded down) is left out at each end."""
    n = scores.shape[-1]
    cut = n // 4
    return np.sort(scores, axis=-1)[..., cut : n - cut].mean(-1)


def optimality_gap(scores: Scores, gamma: float = 100.0) -> Scores:
    """The mean shortfall below `gamma`; scores above it count as `gamma`."""
    return gamma - np.minimum(scores, gamma).mean(-1)


def interval(
    tasks: Sequence[Scores], statistic: Statistic, *, replications: int = REPLICATIONS, level: float = LEVEL
) -> BootstrapInterval:
    """A statistic of all runs, with its stratified bootstrap interval. The same runs give the same interval."""
    value = float(statistic(np.concatenate(tasks)[None])[0])
    if _single_runs(tasks):
        return BootstrapInterval(value, np.nan, np.nan)
    drawn = statistic(resample(tasks, np.random.default_rng(0), replications))
    return BootstrapInterval(value, *_ends(drawn, level))


def resample(tasks: Sequence[Scores], rng: np.random.Generator, replications: int) -> Scores:
    """Runs drawn with replacement within each task, as an array (replications, runs of all tasks)."""
    return np.concatenate([_draw(task, rng, replications) for task in tasks], axis=1)


def probability_of_improvement(
    x: Sequence[Scores], y: Sequence[Scores], *, replications: int = 2000, level: float = LEVEL
) -> BootstrapInterval:
    """The chance that a run of x beats a run of y on the same task (a tie counts half), averaged over the tasks."""
    rng = np.random.default_rng(0)
    value = float(np.mean([_win_rate(a[None], b[None])[0] for a, b in zip(x, y, strict=True)]))
    if _single_runs([*x, *y]):
        return BootstrapInterval(value, np.nan, np.nan)
    drawn = [_win_rate(_draw(a, rng, replications), _draw(b, rng, replications)) for a, b in zip(x, y, strict=True)]
    return BootstrapInterval(value, *_ends(np.mean(drawn, axis=0), level))


class Profile(NamedTuple):
    """The share of runs whose score is above each threshold, with its band."""

    thresholds: Scores
    share: Scores
    low: Scores
    high: Scores


def performance_profile(
    tasks: Sequence[Scores], thresholds: Scores, *, replications: int = 2000, level: float = LEVEL
) -> Profile:
    """The run-score distribution: at each threshold, the share of all runs that score more."""
    runs = np.concatenate(tasks)
    drawn = resample(tasks, np.random.default_rng(0), replications)
    ends = [_ends((drawn > at).mean(-1), level) for at in thresholds]
    low, high = np.array(ends).reshape(-1, 2).T
    return Profile(thresholds, (runs > thresholds[:, None]).mean(-1), low, high)


def _single_runs(tasks: Sequence[Scores]) -> bool:
    return all(len(task) == 1 for task in tasks)


def _draw(task: Scores, rng: np.random.Generator, replications: int) -> Scores:
    return task[rng.integers(0, len(task), (replications, len(task)))]


def _win_rate(x: Scores, y: Scores) -> Scores:
    difference = x[:, :, None] - y[:, None, :]
    return ((difference > 0) + 0.5 * (difference == 0)).mean((1, 2))


def _ends(drawn: Scores, level: float) -> tuple[float, float]:
    low, high = np.quantile(drawn, [(1 - level) / 2, (1 + level) / 2])
    return float(low), float(high)
