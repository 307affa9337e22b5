"""Intervals by resampling whole episodes.

Steps of one episode hang together, episodes do not: so whole episodes are drawn again, with replacement, and the
estimate made again. Two ways, for two kinds of estimator:

- Sums over episodes (importance sampling, doubly robust, the behavior's return) are made again a thousand times, and
  the interval is the percentiles of what comes out (`percentile`).
- What is learned (FQE, DICE) is too slow for that. There every head of an ensemble learns on a resample of its own, so
  the heads are replicates of the whole estimator, and their spread is its standard error (`from_heads`, Student's t).

An interval covers the luck of which episodes were logged (and, for heads, of the networks' start). It does not cover
what an estimator cannot represent or has not learned, nor states and actions that no episode shows. Measured against
true returns, the heads' intervals were too narrow, so they are widened (`widened`) by what made them hold 90 % on each
of six logs; docs/estimates.md has the numbers.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

LEVEL = 0.95
FACTOR, FLOOR = 2.5, 0.25
"""An interval of heads is this many times as wide, and never narrower than this share of the returns' spread."""
REPLICATES = 1000


class Interval(NamedTuple):
    """An estimate, its two-sided 95 % interval, and a bound that lies below the truth with 95 % confidence."""

    mean: float
    low: float
    high: float
    lower_bound: float

    def to_dict(self) -> dict[str, float]:
        return self._asdict()


def resample(episodes: int, replicates: int, rng: np.random.Generator) -> np.ndarray:
    """(replicates, episodes) how often each episode is drawn."""
    return rng.multinomial(episodes, np.full(episodes, 1 / episodes), size=replicates)


def percentile(mean: float, replicates: np.ndarray, level: float = LEVEL) -> Interval:
    """The interval between the percentiles of the replicates."""
    tail = (1 - level) / 2
    low, high, bound = np.quantile(replicates, [tail, 1 - tail, 1 - level])
    return Interval(float(mean), float(low), float(high), float(bound))


def from_heads(replicates: np.ndarray, level: float = LEVEL) -> Interval:
    """The interval from a few replicates: their mean and Student's t times their standard deviation."""
    from scipy import stats  # comes with jax

    mean, spread = float(np.mean(replicates)), float(np.std(replicates, ddof=1))
    two_sided, one_sided = stats.t.ppf([(1 + level) / 2, level], len(replicates) - 1)
    return Interval(mean, mean - two_sided * spread, mean + two_sided * spread, mean - one_sided * spread)


def widened(found: Interval, spread: float) -> Interval:
    """The interval with its half width h replaced by sqrt((FACTOR h)^2 + (FLOOR spread)^2), and its bound alike.

    `spread` is the standard deviation of the log's returns.
    """
    away = lambda end: float(np.hypot(FACTOR * (end - found.mean), FLOOR * spread))
    share = 2.132 / 2.776  # one-sided to two-sided, Student's t with 4 degrees of freedom
    bound = float(np.hypot(FACTOR * (found.mean - found.lower_bound), share * FLOOR * spread))
    return Interval(found.mean, found.mean - away(found.low), found.mean + away(found.high), found.mean - bound)
