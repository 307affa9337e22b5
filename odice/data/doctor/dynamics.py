"""Jumps: steps that the world cannot have taken, because an episode ended there and nobody wrote it down.

A linear model predicts each step from observation and action; it need not be good, only good enough that a reset
stands out in many columns at once. What looks like a jump and is none: an impact changes velocities but not positions,
an angle wraps from pi to -pi, a faulty reading goes away and comes back, a setpoint changes alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from odice.data.dataset import Dataset, blocks, pick, release
from odice.data.doctor.finding import Finding
from odice.data.doctor.scan import Scan

FIT = 30_000  # rows to fit on: the model has at most a few hundred columns
MAX_WIDTH = 400  # beyond this (images, one-hot codes) a linear model per column says little and costs much


@dataclass(frozen=True)
class _LinearSteps:
    """One-step changes as a linear model sees them, in units of a quarter of each column's usual range."""

    middle: np.ndarray
    scale: np.ndarray
    weights: np.ndarray
    low: np.ndarray
    high: np.ndarray
    limit: np.ndarray  # a jump is larger than this
    telling: np.ndarray  # columns in which a jump to another state would be visible

    def jumps(self, obs: np.ndarray, features: np.ndarray, after: np.ndarray, factor: float = 1.0) -> np.ndarray:
        """(rows,) the number of telling columns that jump."""
        c, limit = self.telling, factor * self.limit[self.telling]
        change = (after - obs)[:, c] / self.scale[c]
        error = np.abs(change - _product(_inputs(obs, features, self), self.weights[:, c]))
        over = (error > limit) & (np.abs(change) > limit)  # what stays where it is (at a wall, at a stop) does not jump
        some = np.flatnonzero(over.any(axis=1))
        tenth = 0.1 * (self.high - self.low)[c]
        top, bottom = self.high[c] - tenth, self.low[c] + tenth
        x, y = obs[some][:, c], after[some][:, c]
        over[some] &= ~(((x > top) & (y < bottom)) | ((x < bottom) & (y > top)))  # an angle that wraps does not jump
        return over.sum(axis=1)


def teleports(scan: Scan) -> Iterator[Finding]:
    """Observations that jump inside an episode, as they do from the end of one to the start of the next."""
    data = scan.dataset
    if not 2 <= data.observations.shape[1] <= MAX_WIDTH or scan.observation.bad.any():
        return
    rng = np.random.default_rng(0)
    rows = _inner(data, np.sort(rng.choice(data.n_steps, min(data.n_steps, FIT), replace=False)))
    if len(rows) < 200:  # nothing to learn the usual step from
        return
    model = _fit(scan, rows, rng)
    count = int(model.telling.sum())
    if count == 0:
        return
    rows = _suspects(data, model, count)
    rows = rows[~_comes_back(data, rows, model)]
    if not rows.size:
        return
    places = [scan.step_place(int(r)) for r in rows[:20]]
    gaps = np.unique(np.diff(rows))
    regular = f", every {gaps[0]} steps" if gaps.size == 1 and rows.size > 2 else ""
    yield Finding(
        "teleport",
        "warning",
        f"Observations jump {rows.size} time{'s' if rows.size > 1 else ''} inside episodes{regular}, as at a reset "
        f"(first after episode {places[0]['episode']}, step {places[0]['step']}): ends of episodes seem to be missing.",
        "Mark the step before each jump as truncated (or terminated if the world ended); otherwise values leak from "
        "one episode into another.",
        {"jumps": int(rows.size), "places": places, "columns": count},
    )


def _suspects(data: Dataset, model: _LinearSteps, count: int) -> np.ndarray:
    """Rows after which the state jumps.

    With the starts of five episodes or more known, a jump in half of the telling columns must land among them: resets
    do, impacts do not. Without, three quarters of at least three columns must jump twice as far.
    """
    starts = pick(data.observations, data.starts + np.arange(data.n_episodes))
    low, high = starts.min(axis=0), starts.max(axis=0)
    margin = 0.05 * (high - low) + 0.02 * model.scale
    hits = []
    for rows, obs, features, after in _walk(data):
        votes = model.jumps(obs, features, after)
        some = np.flatnonzero(votes >= max(1, count / 2))
        land = after[some]
        hit = ((land >= low - margin) & (land <= high + margin)).all(axis=1) & (data.n_episodes >= 5)
        if count >= 3:
            hit |= model.jumps(obs[some], features[some], land, factor=2.0) >= max(3, 0.75 * count)
        hits.append(rows[some[hit]])
    return np.concatenate(hits)


def _comes_back(data: Dataset, rows: np.ndarray, model: _LinearSteps) -> np.ndarray:
    """Whether the state after next is near the one before: a faulty reading, not a reset. Either side of it counts."""
    owner = np.searchsorted(data.ends, rows)
    at = rows + owner
    first, final = data.starts[owner] + owner, data.starts[owner] + owner + data.lengths[owner]
    back = np.zeros(len(rows), bool)
    for a, b in ((at, at + 2), (at - 1, at + 1)):
        inside = (a >= first) & (b <= final)
        if inside.any():
            x, y, z = data.observations[a[inside]], data.observations[b[inside]], data.observations[at[inside] + 1]
            x0 = data.observations[at[inside]]
            moved, stayed = np.abs(z - x0) / model.scale, np.abs(y - x) / model.scale
            back[inside] |= (stayed < 0.3 * moved)[:, model.telling].mean(axis=1) > 0.5
    return back


def _fit(scan: Scan, rows: np.ndarray, rng: np.random.Generator) -> _LinearSteps:
    """Fit the one-step model on a sample, three times, each time without the rows that fit worst."""
    obs, features, after = take(scan.dataset, rows)
    columns = scan.observation
    low, _, middle, _, high = columns.quantiles
    scale = np.where(high > low, (high - low) / 4, np.where(columns.std > 0, columns.std, 1.0))
    none = np.empty(0, np.float32)
    model = _LinearSteps(_f32(middle), _f32(scale), none, _f32(columns.low), _f32(columns.high), none, none)
    x, change = _inputs(obs, features, model).astype(np.float64), (after - obs) / scale
    keep = np.isfinite(x).all(axis=1) & np.isfinite(change).all(axis=1)  # float32 may overflow in between
    weights, typical = np.zeros((x.shape[1], obs.shape[1])), np.zeros(obs.shape[1])
    for _ in range(3):
        gram = x[keep].T @ x[keep]
        gram += (1e-9 * np.trace(gram) / len(gram) + 1e-12) * np.eye(len(gram))
        weights = np.linalg.solve(gram, x[keep].T @ change[keep])
        error = np.abs(change - x @ weights)
        typical = np.quantile(error, 0.95, axis=0)  # one row in twenty may be a reset and not disturb
        keep &= (error <= typical).mean(axis=1) > 0.5
    # What a jump to a random other state would look like.
    elsewhere = np.abs((obs[rng.permutation(len(obs))] - obs) / scale - x @ weights)
    half, most = np.quantile(elsewhere, [0.5, 0.75], axis=0)
    # Three times the 95 % error is 6 standard deviations of normal noise. Measured on simulated robots, mazes and
    # pendulums, no clean step exceeds it in half of the telling columns and lands among the starts.
    limit = np.maximum(3 * typical, 0.25 * half)
    still = (np.abs(change) < 1e-9).mean(axis=0) > 0.9  # setpoints and switches jump by design
    return replace(model, weights=_f32(weights), limit=_f32(limit), telling=(most > limit) & ~still)


def _inputs(obs: np.ndarray, features: np.ndarray, model: _LinearSteps) -> np.ndarray:
    usual = np.clip((obs - model.middle) / model.scale, -8, 8)  # a broken reading must not shake every prediction
    return np.concatenate([np.ones((len(obs), 1), np.float32), usual, features], axis=1)


def _product(x: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """x @ weights, in chunks too small for BLAS to split up: on a busy machine its threads wait for each other."""
    out = np.empty((len(x), weights.shape[1]), x.dtype)
    for a in range(0, len(x), 512):
        np.matmul(x[a : a + 512], weights, out=out[a : a + 512])
    return out


def _f32(value) -> np.ndarray:
    return np.asarray(value, np.float32)


def _walk(data: Dataset) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]]:
    for block in blocks(data.n_steps, 8 * data.observations.shape[1]):
        rows = _inner(data, np.arange(block.start, block.stop))
        yield rows, *take(data, rows)
        release(data.observations)
        release(data.actions)


def _inner(data: Dataset, rows: np.ndarray) -> np.ndarray:
    """The rows whose next observation is known: all but ends without a final observation."""
    owner = np.searchsorted(data.ends, rows)
    return rows[(rows != data.ends[owner]) | data.final_known[owner]]


def take(data: Dataset, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Observation, action (one-hot if discrete) and next observation of these steps."""
    at = rows + np.searchsorted(data.ends, rows)
    actions = pick(data.actions, rows)
    if data.discrete:
        n = min(data.spec.action_dim, 64)
        features = (actions[:, None] == np.arange(1, n)).astype(np.float32)
    else:
        features = np.where(np.isfinite(actions), actions, np.float32(0))
    return pick(data.observations, at), features, pick(data.observations, at + 1)
