"""Which episodes of a log show skill: their returns less luck, and the rows that a policy learns from.

The return of an episode is what its start promised, what its agent decided and luck: with the values V, advantages
A = E[delta | s, a] and luck delta - A of `training.credit`,

    G = V(s_0) + sum of A + sum of luck                                (exact where nothing is discounted)

so G without the last sum tells a good agent from a bad one and not a lucky one from an unlucky one (in games of chance
this is an advantage-sum estimate). The luck is only as good as the model that it comes from. True luck has mean 0 given
all that went before, so its sum over an episode has the variance of its steps together; the errors of a model repeat
themselves along an episode, and their sum has more. With

    ratio = Var(sum of luck) / mean over episodes of the sum of luck^2

at most 1 / ratio of the sum's variance is true luck, and that share of the sum is its best linear guess:

    skill = G - (sum of luck) / max(ratio, 1) - slope V(s_0)           slope >= 0 by least squares
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from odice.data.transitions import Rows

NEGLIGIBLE = 1e-3
"""Skills that differ by less than this share of the returns' standard deviation are all the same."""
BALANCE = 0.1
"""The smallest kappa: n(s) is learned, and 1 / n(s) has to stay finite."""
LEAST = 3000
"""Rows that the chosen episodes hold at least: fewer are too few to learn from."""
HALVINGS = 60
TINY = 1e-12


class Skill(NamedTuple):
    """What the agent of each episode did for its return."""

    score: np.ndarray
    """One number for each episode, with mean 0, in the unit of the returns."""
    ratio: float
    """Variance of the sum of luck over that of independent steps: 1 where luck is luck, more where a model errs."""


def episode_skill(returns: np.ndarray, begun: np.ndarray, luck: np.ndarray, starts: np.ndarray) -> Skill:
    """The skill of every episode.

    Args:
        returns: Of the episodes, not discounted.
        begun: V at their first states.
        luck: Of every step, in the unit of the returns.
        starts: The first step of each episode.
    """
    total = np.add.reduceat(luck, starts)
    ratio = float(np.var(total) / max(np.square(luck).sum() / len(starts), TINY))
    score = returns - total / max(ratio, 1.0)
    score, begun = score - score.mean(), begun - begun.mean()
    score = score - max(0.0, float(begun @ score) / max(float(begun @ begun), TINY)) * begun
    if score.std() < NEGLIGIBLE * returns.std():
        score = np.zeros_like(score)
    return Skill(score, ratio)


def balance(ratio: float) -> float:
    """kappa of `auto`: the variance that the sum of luck has from errors of the model, in units of that from luck.

    A step's credit comes from the same model. So (w + kappa) / (n + kappa) leads from a choice between actions, where
    the model is right, to imitating all of them alike, where most of what it says is error.
    """
    return max(ratio - 1.0, BALANCE)


def enough(share: float, rows: int) -> float:
    """The share of so many rows, or a larger one that holds at least `LEAST` of them."""
    return min(1.0, max(share, LEAST / rows))


def episode_weights(score: np.ndarray, sizes: np.ndarray, share: float) -> np.ndarray:
    """max(0, score - level), divided by its mean over the rows, whose effective sample is `share` of the rows.

    Args:
        score: Of each episode.
        sizes: Rows of each episode.
        share: Share of all rows that the weights rest on. Weights of one episode may rest on more.
    """
    spread = score.std()
    if spread < TINY:
        return np.ones(len(score))
    total = sizes.sum()
    low, high = score.min() - 100.0 * spread, score.max()
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        weight = np.maximum(score - middle, 0.0)
        too_wide = (weight @ sizes) ** 2 > share * total * (np.square(weight) @ sizes)
        low, high = (middle, high) if too_wide else (low, middle)
    weight = np.maximum(score - low, 0.0)
    return weight * (total / (weight @ sizes))


def drawn_rows(score: np.ndarray, rows: Rows, share: float) -> np.ndarray | None:
    """As many rows as there are, each as often as its episode's weight says; None where all episodes count alike.

    A policy draws its batches from these: a batch of all rows would mostly hold rows of weight 0.
    """
    if share >= 1.0 or not rows.kept.any() or score.std() < TINY:
        return None
    mass = np.cumsum(episode_weights(score, rows.kept, share) * rows.kept)
    at = (np.arange(rows.size) + 0.5) * (mass[-1] / rows.size)
    owner = np.minimum(np.searchsorted(mass, at, side="right"), len(mass) - 1)
    within = (at - np.concatenate([[0.0], mass])[owner]) / np.diff(mass, prepend=0.0)[owner]
    return (rows.first[owner] + np.minimum((within * rows.kept[owner]).astype(int), rows.kept[owner] - 1)).astype(
        np.int32
    )
