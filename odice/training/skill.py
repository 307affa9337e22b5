"""Which steps of a log show skill, and the rows that a policy learns from.

With the values V, advantages A = E[delta | s, a] and luck delta - A of `training.credit`, the return of an episode is

    G = V(s_0) + sum of A + sum of luck                                (exact where nothing is discounted)

so G without the last sum tells a good agent from a bad one and not a lucky one from an unlucky one (in games of chance
this is an advantage-sum estimate).

The luck is only as good as the model that it comes from: what the model does not know looks like luck. True luck L has
two properties that errors of a model lack. It is unrelated to what was done, so that the regression of the sum of delta
on the sum of L has the slope 1. And its mean is 0 whatever came before, so that its sum over an episode has the
variance of its steps together, while errors repeat themselves along an episode:

    ratio = Var(sum of luck) / mean over episodes of the sum of luck^2
    share = min(slope, 1 / ratio), within [0, 1]

Both bound the part of the sum that is true luck, and `share` of it is taken away. A step's skill is that of its episode
and half of that of the steps around it, each in its own standard deviations over the log:

    of the episode   G - share (sum of luck) - slope_0 V(s_0)              slope_0 >= 0 by least squares
    around step t    sum over u of gamma^|u - t| (delta_u - share luck_u)

The first tells agents apart: a good agent's step is no better than V expects of it, because its state shows whose it
is. The second tells the parts of an episode apart, where an agent does well only now and then.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from odice.core.numerics import returns_to_go
from odice.data.transitions import Rows

AROUND = 0.5
"""Weight of the skill of the steps around a step, beside that of its episode."""
NEGLIGIBLE = 1e-3
"""Skills that differ by less than this share of what they are made of are all the same."""
BALANCE = 0.1
"""The smallest kappa: n(s) is learned, and 1 / n(s) has to stay finite."""
LEAST = 3000
"""The policy learns from at least so many rows: fewer are too few."""
HALVINGS = 60
TINY = 1e-12


class Skill(NamedTuple):
    """What the agents of a log did for their returns."""

    steps: np.ndarray
    """The skill of each step, with mean 0."""
    episodes: np.ndarray
    """The skill of each episode alone, with mean 0, in the unit of the returns."""
    ratio: float
    """Variance of the sum of luck over that of independent steps: 1 where luck is luck, more where a model errs."""
    share: float
    """The share of the luck that was taken away."""


def skill_of(
    returns: np.ndarray, begun: np.ndarray, change: np.ndarray, luck: np.ndarray, lengths: np.ndarray, discount: float
) -> Skill:
    """The skill of every step and of every episode.

    Args:
        returns: Of the episodes, not discounted.
        begun: V at their first states.
        change: delta of every step.
        luck: Of every step.
        lengths: Steps of each episode.
        discount: gamma: how fast the steps around a step lose their weight.
    """
    starts = np.cumsum(lengths) - lengths
    total = np.add.reduceat(luck, starts)
    ratio = float(np.var(total) / max(np.square(luck).sum() / len(starts), TINY))
    share = min(_slope(total, np.add.reduceat(change, starts)), 1.0 / max(ratio, 1.0))
    score = returns - share * total
    score = score - score.mean()
    score = score - _slope(begun, score) * (begun - begun.mean())
    score = _unless_negligible(score, returns)
    around = _unless_negligible(_around(change - share * luck, lengths, discount), change)
    return Skill(_standard(np.repeat(score, lengths)) + AROUND * _standard(around), score, ratio, share)


def _slope(x: np.ndarray, y: np.ndarray) -> float:
    """The slope of the regression of y on x, or 0 where it is negative."""
    x = x - x.mean()
    return max(0.0, float(x @ (y - y.mean())) / max(float(x @ x), TINY))


def _around(values: np.ndarray, lengths: np.ndarray, discount: float) -> np.ndarray:
    """The sum over each episode's steps u of discount^|u - t| values_u, for each step t."""
    ahead = returns_to_go(values, lengths, discount)
    behind = returns_to_go(values[::-1], lengths[::-1], discount)[::-1]
    return ahead + behind - values


def _unless_negligible(score: np.ndarray, made_of: np.ndarray) -> np.ndarray:
    return score if score.std() >= NEGLIGIBLE * made_of.std() else np.zeros_like(score)


def _standard(score: np.ndarray) -> np.ndarray:
    return (score - score.mean()) / max(float(score.std()), TINY)


def balance(ratio: float) -> float:
    """kappa of `auto`: the variance that the sum of luck has from errors of the model, in units of that from luck.

    A step's credit comes from the same model. So (w + kappa) / (n + kappa) leads from a choice between actions, where
    the model is right, to imitating all of them alike, where most of what it says is error.
    """
    return max(ratio - 1.0, BALANCE)


def enough(share: float, rows: int) -> float:
    """The share of so many rows, or a larger one that holds at least `LEAST` of them."""
    return min(1.0, max(share, LEAST / rows))


def row_weights(score: np.ndarray, share: float) -> np.ndarray:
    """max(0, score - level), divided by its mean, whose effective sample is `share` of the rows.

    Args:
        score: Of each row.
        share: Share of the rows that the weights rest on; more where as many have the highest score.
    """
    spread = score.std()
    if spread < TINY:
        return np.ones(len(score))
    low, high = score.min() - 100.0 * spread, score.max()
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        weight = np.maximum(score - middle, 0.0)
        too_wide = weight.sum() ** 2 > share * len(score) * (weight @ weight)
        low, high = (middle, high) if too_wide else (low, middle)
    weight = np.maximum(score - low, 0.0)
    return weight / weight.mean()


def drawn_rows(score: np.ndarray, rows: Rows, share: float) -> np.ndarray | None:
    """As many rows as there are, each as often as its step's weight says; None where all steps count alike.

    A policy draws its batches from these: a batch of all rows would mostly hold rows of weight 0.

    Args:
        score: Of each step.
        rows: Which steps are rows.
        share: Share of the rows that the weights rest on.
    """
    if share >= 1.0 or not rows.kept.any() or score.std() < TINY:
        return None
    mass = np.cumsum(row_weights(score[rows.locate(np.arange(rows.size))[0]], share))
    at = (np.arange(rows.size) + 0.5) * (mass[-1] / rows.size)
    return np.minimum(np.searchsorted(mass, at, side="right"), rows.size - 1).astype(np.int32)
