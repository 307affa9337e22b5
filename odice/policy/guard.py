"""The guard: how unlike the training data an observation is, in numpy alone.

A guard keeps up to 1,024 states of the log. Observations are whitened by the log's full covariance, so that
two columns which move together count as one, and a value that is usual by itself but not in combination with the
others is far away. The score is the distance to the nearest of those states, in units of the distance that one held-out
state in a hundred exceeds:

    score(s) = min_i ||W (s - s_i)|| / q99          act up to 1, warn above it, fall back above `fall_back`

`q99` comes from episodes that neither the covariance nor the states were taken from. So about 1 % of the states of new
episodes like the log's give a false alarm, by construction; docs/research/guard.md measures it, and why this score was
kept of those tried.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal, NamedTuple

import numpy as np

from odice.encoding import brief, text
from odice.errors import OdiceError

Decision = Literal["act", "warn", "fall back"]
STATES = 1024
"""States that a guard keeps, at most; fewer where the observation is wide."""
MAX_FLOATS = 75_000
"""Numbers in a guard (300 kB), unless 16 states of a wide observation need more."""
FALSE_ALARMS, FALLS = 0.01, 0.001
"""Shares of held-out states that are above 1, and above `fall_back`."""
SHRINKAGE = 1e-3
"""Added to the correlations' diagonal: a column that is a combination of others must not weigh without bound."""
LARGE = np.float32(1e6)
"""Standardized observations are cut here, so that squares stay finite in single precision."""
POOL = 10_000
"""The largest number of states for the covariance and the choice."""


TENSORS = ("center", "scale", "whiten", "states")


def tensor_shapes(obs_dim: int, states: int) -> dict[str, tuple[int, ...]]:
    """The tensors of a guard for observations of this width with so many states."""
    shapes = ((obs_dim,), (obs_dim,), (obs_dim, obs_dim), (states, obs_dim))
    return {f"guard.{name}": shape for name, shape in zip(TENSORS, shapes, strict=True)}


class Guarded(NamedTuple):
    """What `Policy.guarded` answers, for one observation or for each of a batch."""

    action: np.ndarray
    score: np.ndarray
    """0 on a state that the guard keeps, above 1 for one held-out state in a hundred, inf where the observation is not
    finite."""
    decision: Any
    """`act`, `warn` or `fall back`; an array of them for a batch."""


@dataclass(frozen=True, eq=False)
class Guard:
    """Distances of observations from the states of a log."""

    center: np.ndarray
    """(obs,) mean of the log's observations."""
    scale: np.ndarray
    """(obs,) their standard deviation; a column that never changed has a small one."""
    whiten: np.ndarray
    """(obs, obs) from standardized observations to uncorrelated ones."""
    states: np.ndarray
    """(states, obs) states of the log, whitened."""
    warn: float
    """The distance at which the score is 1."""
    fall_back: float
    """The score above which to fall back."""
    low: np.ndarray
    """(obs,) least values of the log."""
    high: np.ndarray
    """(obs,) largest values of the log."""
    names: tuple[str, ...] = ()
    units: tuple[str, ...] = ()
    quantiles: dict[str, list[float]] = field(default_factory=dict)
    """Of each column: `0.01`, `0.5`, `0.99`."""

    @property
    def tensors(self) -> dict[str, np.ndarray]:
        """The tensors that are stored with the policy's weights."""
        return {f"guard.{name}": getattr(self, name) for name in TENSORS}

    @property
    def columns(self) -> dict[str, Any]:
        """Return the entries of `policy.json` about the columns."""
        content = {"low": self.low.tolist(), "high": self.high.tolist(), "quantiles": self.quantiles}
        return {"names": list(self.names) or None, "units": list(self.units) or None, **content}

    def score(self, obs: np.ndarray) -> np.ndarray:
        """The novelty of observations `(..., obs)`."""
        x = np.asarray(obs, np.float32)
        finite = np.asarray(np.isfinite(x).all(axis=-1))
        x = np.where(finite[..., None], x, self.center)
        with np.errstate(over="ignore"):
            x = np.clip((x - self.center) / self.scale, -LARGE, LARGE) @ self.whiten
        squares = np.square(x).sum(axis=-1)[..., None] - np.float32(2) * (x @ self.states.T) + self.lengths
        distance = np.sqrt(np.maximum(squares.min(axis=-1), np.float32(0)))
        return np.where(finite, distance / np.float32(self.warn), np.float32(np.inf))

    @cached_property
    def lengths(self) -> np.ndarray:
        """(states,) their squared lengths."""
        return np.square(self.states).sum(axis=-1)

    def decide(self, score: np.ndarray) -> np.ndarray:
        """`act`, `warn` or `fall back` for each score."""
        return np.where(score > self.fall_back, "fall back", np.where(score > 1.0, "warn", "act"))

    def name(self, column: int) -> str:
        return self.names[column] if self.names else f"observation[{column}]"

    def explain(self, obs: np.ndarray | Mapping[str, Any]) -> list[str]:
        """Which columns of one observation, or of one row of a table, are outside the log's range, in words."""
        if isinstance(obs, Mapping):
            return self._explain_row(obs)
        values = np.asarray(obs, np.float64)
        if values.shape != self.low.shape:
            raise OdiceError(f"The guard explains one observation of {len(self.low)} numbers, got {values.shape}.")
        return [line for i, value in enumerate(values) for line in self._outside(i, float(value))]

    def _outside(self, column: int, value: float) -> list[str]:
        low, high = self.low[column], self.high[column]
        if low <= value <= high:
            return []
        unit = f" {self.units[column]}" if self.units and self.units[column] else ""
        return [f"{self.name(column)} is {value:g}{unit}; the log has {low:g} to {high:g}{unit}"]

    def _explain_row(self, row: Mapping[str, Any]) -> list[str]:
        """A category is known here as one column `name=value` for each value."""
        if not self.names:
            raise OdiceError("The columns behind this guard are not known; give it an array of numbers.")
        words: dict[str, list[str]] = {}
        for name in self.names:
            column, sign, word = name.rpartition("=")
            if sign and name not in row and column in row:
                words.setdefault(column, []).append(word)
        lines = []
        for i, name in enumerate(self.names):
            value = row.get(name)
            if isinstance(value, int | float | np.integer | np.floating) and np.isfinite(value):
                lines += self._outside(i, float(value))
        for column, known in words.items():
            if row[column] is not None and text(row[column]) not in known:
                lines.append(f"{column} is {brief(row[column])}; the log has {', '.join(known[:8])}")
        return lines


def fit_guard(
    known: np.ndarray, unseen: np.ndarray, names: tuple[str, ...] = (), units: tuple[str, ...] = (), *, seed: int = 0
) -> Guard:
    """Fit a guard to the states of some episodes, and calibrate it on the states of others.

    Args:
        known: (n, obs) states that novelty is measured against.
        unseen: (m, obs) states of other episodes, which set the limits; if there are none, `known` sets them.
        names: Of the columns.
        units: Of the columns.
        seed: Seed of the draw of `POOL` states from more.
    """
    rng = np.random.default_rng(seed)
    # Not finite only where the doctor was overruled.
    known, unseen = (states[np.isfinite(states).all(axis=1)] for states in (known, unseen))
    drawn = known if len(known) <= POOL else known[np.sort(rng.choice(len(known), POOL, replace=False))]
    pool = np.asarray(drawn, np.float64)
    center, spread = pool.mean(axis=0), pool.std(axis=0)
    magnitude = np.maximum(np.abs(pool).max(axis=0), 1e-6)
    scale = np.maximum(spread, 1e-3 * magnitude)  # a column that never changed may not change by more than a little
    standard = (pool - center) / scale
    covariance = np.cov(standard, rowvar=False) if len(standard) > 1 else np.zeros((len(center), len(center)))
    values, vectors = np.linalg.eigh(covariance.reshape(len(center), -1))
    whiten = vectors / np.sqrt(np.maximum(values, 0.0) + SHRINKAGE)
    white = (standard @ whiten).astype(np.float32)
    count = int(np.clip(MAX_FLOATS // len(center) - len(center) - 8, 16, STATES))
    states = white[_spread_out(white, min(count, len(white)))]
    both = np.concatenate([known, unseen]) if len(unseen) else known
    quantiles = {str(q): np.quantile(both, q, axis=0).astype(float).tolist() for q in (0.01, 0.5, 0.99)}
    center, scale, whiten = (np.asarray(array, np.float32) for array in (center, scale, whiten))
    low, high = (np.asarray(bound, np.float32) for bound in (both.min(axis=0), both.max(axis=0)))
    guard = Guard(center, scale, whiten, states, 1.0, 1.0, low, high, tuple(names), tuple(units), quantiles)
    scores = np.sort(guard.score(unseen if len(unseen) else known))
    warn = max(_exceeded(scores, FALSE_ALARMS), 1e-6)
    return replace(guard, warn=warn, fall_back=max(1.25, _exceeded(scores, FALLS) / warn))


def _exceeded(scores: np.ndarray, share: float) -> float:
    """The score that at most this share of exchangeable new ones exceeds: rank ceil((n + 1)(1 - share)) of n, or the
    largest."""
    rank = int(np.ceil((len(scores) + 1) * (1.0 - share)))
    return float(scores[min(rank, len(scores)) - 1])


def _spread_out(points: np.ndarray, count: int) -> np.ndarray:
    """Choose half of the points in order, half as the farthest from those chosen: dense where the log is, and out to
    its edges."""
    first = np.linspace(0, len(points) - 1, (count + 1) // 2).astype(np.int64)
    chosen = list(np.unique(first))
    distance = np.full(len(points), np.inf, np.float32)
    for index in chosen:
        distance = np.minimum(distance, np.square(points - points[index]).sum(axis=1))
    while len(chosen) < count and distance.max() > 0:
        index = int(distance.argmax())
        chosen.append(index)
        distance = np.minimum(distance, np.square(points - points[index]).sum(axis=1))
    return np.array(sorted(chosen))
