"""Intervals of estimates: resampled episodes, Student's t, and the exact interval of a bounded mean.

Steps of one episode depend on each other, episodes do not, so whole episodes are drawn again, with replacement:

- What is a sum over episodes (importance sampling, doubly robust) is summed again for each resample; the standard
  deviation of the results is its standard error.
- What is learned (FQE, DICE) is learned once per head of an ensemble, each on its own resample: the standard deviation
  of the heads is the standard error.

Both get Student's t with as many degrees of freedom as there are effective episodes or heads, less one. Nothing keeps
an interval from shrinking as episodes are added. What resampling does not cover (what an estimator cannot represent,
states and actions that no episode shows) is why a verdict needs two kinds of estimate (`verdict`).

`betting_interval` holds for every sample size, whatever the distribution, if the numbers lie in a known range. It is
used where that range is known: one-step logs with known propensities.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

ALPHA = 0.05
"""A stated bound is to be false at most this often."""
REPLICATES = 400
"""Resamples of the episodes for what is a sum over them."""
PRIOR = 5
"""How many numbers the first guess of their variance is worth."""


class Interval(NamedTuple):
    """An estimate, its two-sided interval, and a one-sided lower bound, all at the same error rate."""

    mean: float
    low: float
    high: float
    lower_bound: float

    def to_dict(self) -> dict[str, float]:
        return self._asdict()

    def clipped(self, least: float, most: float) -> Interval:
        """The interval within what is possible."""
        return Interval(*(float(np.clip(value, least, most)) for value in self))


def percent(confidence: float) -> str:
    """Return a confidence as text, such as 95% or 99.5%, rounded down: never 100%."""
    return f"{math.floor(1000 * confidence + 1e-6) / 10:g}%"


def resample(episodes: int, replicates: int, rng: np.random.Generator) -> np.ndarray:
    """(replicates, episodes) how often each episode is drawn."""
    return rng.multinomial(episodes, np.full(episodes, 1 / episodes), size=replicates)


def student(mean: float, error: float, freedom: float, alpha: float = ALPHA) -> Interval:
    """The interval of an estimate, by Student's t.

    Args:
        mean: The estimate.
        error: Its standard error.
        freedom: Degrees of freedom; at least 1 is taken.
        alpha: Error rate of the interval, and of the lower bound.
    """
    from scipy import stats  # comes with jax

    two_sided, one_sided = stats.t.ppf([1 - alpha / 2, 1 - alpha], max(freedom, 1.0))
    return Interval(
        float(mean), float(mean - two_sided * error), float(mean + two_sided * error), float(mean - one_sided * error)
    )


def betting_interval(values: np.ndarray, least: float, most: float, alpha: float = ALPHA) -> Interval:
    """The interval of the mean of independent numbers in [least, most], exact for every sample size.

    For each candidate mean m someone bets against it, number after number, a share of the capital that only depends on
    the numbers before. If m is the mean, the capital is a fair game's: it exceeds 1 / alpha at most with probability
    alpha (Ville). The candidates under which it never did are the interval. Two bettors, one for a larger and one for a
    smaller mean, give the two ends.

    Args:
        values: The numbers.
        least: None of them can be smaller.
        most: None of them can be larger.
        alpha: Error rate of the interval, and of the lower bound.
    """
    x = (np.asarray(values, np.float64) - least) / max(most - least, 1e-12)
    count = np.arange(1, len(x) + 1)
    mean = (0.5 + np.cumsum(x)) / (count + 1)
    # Numbers in [0, 1] with this mean vary at most by mean * (1 - mean), which the estimate starts from.
    variance = (PRIOR * mean * (1 - mean) + np.cumsum((x - mean) ** 2)) / (count + PRIOR)
    before = np.concatenate([[0.25], variance[:-1]])

    def end(values: np.ndarray, alpha: float) -> float:
        """The lower end: the least m that is not refuted by bets on a larger mean."""
        bet = np.sqrt(2 * np.log(1 / alpha) / (len(values) * before))
        low, high = 0.0, 1.0
        for _ in range(30):  # the capital falls as m grows, so the end is found by bisection
            m = (low + high) / 2
            stake = np.minimum(bet, 0.75 / max(m, 1e-9))
            refuted = np.max(np.cumsum(np.log1p(stake * (values - m)))) > np.log(1 / alpha)
            low, high = (m, high) if refuted else (low, m)
        return low

    scale = lambda share: float(least + share * (most - least))
    return Interval(
        scale(float(x.mean())), scale(end(x, alpha / 2)), scale(1 - end(1 - x, alpha / 2)), scale(end(x, alpha))
    )
