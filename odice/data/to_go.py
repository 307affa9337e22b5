"""Discounted returns to go: what a log says of the scale of values, before any are learned."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from odice.core import numerics
from odice.data.dataset import Dataset

HIGH = 0.99
"""The quantile of the returns to go that counts as high: one lucky step in a hundred does not set it."""


def returns_to_go(dataset: Dataset, discount: float) -> np.ndarray:
    """The discounted sum of the logged rewards from each step to the end of its episode, in double precision."""
    return numerics.returns_to_go(dataset.rewards, dataset.lengths, discount)


def continued_returns(dataset: Dataset, discount: float) -> np.ndarray:
    """The discounted return from each step on, where a cut episode goes on with the mean of its own rewards.

    It goes on for as long as the longest episode: without that, the last steps before a time limit would look worse
    than the others.
    """
    rewards = np.asarray(dataset.rewards, np.float64).copy()
    mean = np.add.reduceat(rewards, dataset.starts) / dataset.lengths
    ahead = np.sum(discount ** np.arange(1, dataset.lengths.max() + 1))
    rewards[dataset.ends] += ahead * np.where(dataset.terminated, 0.0, mean)
    return returns_to_go(replace(dataset, rewards=rewards), discount)


def standardized_returns(dataset: Dataset, discount: float) -> np.ndarray:
    """The continued return of each step, less the mean of all, in standard deviations; all 0 where none differs."""
    returns = continued_returns(dataset, discount)
    returns -= returns.mean()
    deviation = returns.std()
    scale = deviation if deviation > 1e-9 * np.abs(dataset.rewards).max() else np.inf
    return (returns / scale).astype(np.float32)


def spread(dataset: Dataset, discount: float) -> float:
    """The standard deviation of the returns to go; 1 where they do not differ, so that dividing by it is safe."""
    returns = returns_to_go(dataset, discount)
    deviation = float(returns.std())
    return deviation if deviation > 1e-9 * float(np.abs(returns).max()) else 1.0


def high(dataset: Dataset, discount: float) -> float:
    """A high return to go: where values may start so that whatever is not in the data does not look good."""
    return float(np.quantile(returns_to_go(dataset, discount), HIGH))
