"""Rewards that belong to the step before or after: does a row's reward fit its own transition best?"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from odice.data.dataset import pick
from odice.data.doctor.dynamics import take
from odice.data.doctor.episodes import usual_reward
from odice.data.doctor.finding import Finding
from odice.data.doctor.scan import Scan

ROWS = 20_000
MAX_WIDTH = 100  # the regression has about eight columns for each of these
WAYS = {1: "one row late", -1: "one row early"}


def misaligned_rewards(scan: Scan) -> Iterator[Finding]:
    """Dense rewards, shifted by one row: explained far better by the transition of a neighboring row.

    A reward is a function of (s, a, s'), so of the three transitions around it its own explains it best. A regression
    on these, their changes and their squares need not be exact: on simulated robots the right transition leaves a
    quarter of the error, or less, of a wrong one. Half of it, and nine tenths of the variance explained, is required.

    s and s' enter alike, because a reward of the next state alone (a cost of the stock that is left, a distance) is a
    function of s' in its own row and the same function of s in the row after: neither may look better than the other.
    """
    data = scan.dataset
    wide = data.observations.shape[1] > MAX_WIDTH
    if wide or scan.reward.bad[0] or scan.observation.bad.any() or usual_reward(data.rewards) is not None:
        return
    rng = np.random.default_rng(0)
    rows = np.sort(rng.choice(data.n_steps, min(data.n_steps, ROWS), replace=False))
    owner = np.searchsorted(data.ends, rows)
    rows = rows[(rows > data.starts[owner]) & (rows + 1 < data.ends[owner])]
    if len(rows) < 1000:
        return
    order = rng.permutation(len(rows))
    inputs = _features(*take(data, rows))
    lags = (-1, 0, 1)
    targets = np.stack([pick(data.rewards, rows + lag).astype(np.float64) for lag in lags], axis=1)
    left = dict(zip(lags, _unexplained(inputs, targets, order), strict=True))
    best = min(left, key=lambda lag: left[lag])
    # Near rounding errors (1e-14 in float32, more in text) a ratio means little, so it must be large there.
    enough = 0.5 if left[0] > 1e-6 else 0.01
    if best == 0 or left[best] > 0.1 or left[best] > enough * left[0] or left[0] < 1e-10:
        return
    yield Finding(
        "shifted-rewards",
        "warning",
        f"The transition of a row leaves {100 * left[0]:.2g} % of the reward in that row unexplained, but only "
        f"{100 * left[best]:.2g} % of the reward in the row {'after' if best == 1 else 'before'} it: "
        f"rewards look {WAYS[best]}.",
        "Store in row t the reward that the action of row t brought.",
        {"unexplained": {str(lag): value for lag, value in left.items()}, "where": WAYS[best]},
    )


def _features(obs: np.ndarray, actions: np.ndarray, after: np.ndarray) -> np.ndarray:
    obs, after, actions = (part.astype(np.float64) for part in (obs, after, actions))
    std = obs.std(axis=0)
    middle, scale = obs.mean(axis=0), np.where(std > 0, std, 1.0)
    obs, after = (obs - middle) / scale, (after - middle) / scale
    actions, change = _standard(actions), _standard(after - obs)
    # Hinges at zero, besides the squares: costs are often one-sided, or distances.
    bends = [part for x in (obs, after) for part in (x**2, np.maximum(x, 0))]
    squares = [change**2, actions**2]
    return np.concatenate([np.ones((len(obs), 1)), obs, change, actions, *bends, *squares], axis=1)


def _standard(values: np.ndarray) -> np.ndarray:
    std = values.std(axis=0)
    return (values - values.mean(axis=0)) / np.where(std > 0, std, 1.0)


def _unexplained(inputs: np.ndarray, targets: np.ndarray, order: np.ndarray) -> list[float]:
    """The fraction of each target's variance that a ridge regression, fitted on one half, leaves in the other half."""
    fit, test = np.array_split(order, 2)
    known = inputs[fit]
    gram = known.T @ known
    gram += 1e-9 * np.trace(gram) / len(gram) * np.eye(len(gram))
    weights = np.linalg.solve(gram, known.T @ targets[fit])
    guess = np.clip(inputs[test] @ weights, targets.min(axis=0), targets.max(axis=0))
    error = np.mean((targets[test] - guess) ** 2, axis=0)
    return (error / np.maximum(targets[test].var(axis=0), 1e-300)).tolist()
