"""Dataset: a log as episodes on the host.

An episode of T steps has T + 1 observations, so every step has a successor and no observation is stored twice. All
episodes lie one after the other in a few contiguous arrays; episode e owns steps `starts[e] : starts[e] + lengths[e]`
and observations `starts[e] + e : starts[e] + e + lengths[e] + 1`. An episode ends for one of two reasons that are
never mixed: it *terminated* (the future is worth nothing) or was *truncated* (the log stops, the world goes on).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

import numpy as np

from odice.data.copies import copies_of
from odice.data.meta import Meta
from odice.data.rows import blocks as blocks
from odice.data.rows import pick as pick
from odice.data.rows import release as release
from odice.data.rows import walk
from odice.encoding import Encoding
from odice.errors import OdiceError
from odice.notebook import facts, numbers
from odice.types import Spec

OPTIONAL = ("costs", "propensities")
"""Arrays that not every source has."""


class DataWarning(UserWarning):
    """Something about the data that a person should know, but that does not stop the work."""


class UnfinishedEpisodeWarning(DataWarning):
    """Episodes that end with neither flag; they are kept and counted as truncated."""


class Episode(NamedTuple):
    """One episode, as views into the data set. `observations` has one row more than there are steps."""

    observations: np.ndarray
    actions: np.ndarray
    rewards: np.ndarray
    terminated: bool
    truncated: bool
    final_known: bool = True


@dataclass(frozen=True, eq=False)
class Dataset:
    """Episodes in flat, contiguous host arrays; see the module's docstring for the layout.

    Make one with `odice.load`, `odice.data.build.from_steps` or `odice.data.build.from_episodes`, which validate;
    the constructor itself checks only that the arrays fit together. Where `final_known[e]` is false the source did not
    record the observation after the last step, and the row in its place repeats the one before it.
    """

    observations: np.ndarray  # (steps + episodes, obs) float32
    actions: np.ndarray  # (steps, act) float32, or (steps,) int32 for discrete actions
    rewards: np.ndarray  # (steps,) float32
    lengths: np.ndarray  # (episodes,) int64
    terminated: np.ndarray  # (episodes,) bool: how each episode ended
    truncated: np.ndarray  # (episodes,) bool
    final_known: np.ndarray  # (episodes,) bool
    meta: Meta = field(default_factory=Meta)
    costs: np.ndarray | None = None
    """(steps,) float32: the cost of each step, apart from its reward, where the source has costs."""
    propensities: np.ndarray | None = None
    """(steps,) float32: the probability with which each action was chosen, where the source says so."""

    def __post_init__(self):
        n, e = len(self.rewards), len(self.lengths)
        if e == 0 or n == 0:
            raise OdiceError(f"{self.meta.source}: the data set has no episodes; a data set needs at least one step.")
        fits = (
            self.observations.ndim == 2
            and len(self.observations) == n + e
            and len(self.actions) == n == int(self.lengths.sum())
            and self.lengths.min() > 0
            and len(self.terminated) == len(self.truncated) == len(self.final_known) == e
            and (self.costs is None or len(self.costs) == n)
            and (self.propensities is None or len(self.propensities) == n)
        )
        if not fits:
            raise ValueError("the arrays of a Dataset do not fit together; use odice.data.build to make one")
        for array in vars(self).values():
            if isinstance(array, np.ndarray):  # a device may use them in place, so nobody may change them
                array.flags.writeable = False

    # --- sizes -------------------------------------------------------------------------------------------------------

    @property
    def n_steps(self) -> int:
        return len(self.rewards)

    @property
    def n_episodes(self) -> int:
        return len(self.lengths)

    @property
    def discrete(self) -> bool:
        return self.actions.ndim == 1

    @property
    def spec(self) -> Spec:
        """What networks need to know. Discrete: the declared number of actions, else the largest seen plus one."""
        obs_dim = self.observations.shape[1]
        if self.discrete:
            return Spec(obs_dim, self.meta.n_actions or int(self.actions.max()) + 1, discrete=True)
        return Spec(obs_dim, self.actions.shape[1])

    @cached_property
    def starts(self) -> np.ndarray:
        """(episodes,) the first step of each episode."""
        return np.concatenate([[0], np.cumsum(self.lengths)[:-1]]).astype(np.int64)

    @property
    def ends(self) -> np.ndarray:
        """(episodes,) the last step of each episode."""
        return self.starts + self.lengths - 1

    @cached_property
    def returns(self) -> np.ndarray:
        """(episodes,) the undiscounted sum of rewards of each episode, in double precision."""
        return np.add.reduceat(self.rewards, self.starts, dtype=np.float64)

    def returns_within(self, steps: int | None) -> np.ndarray:
        """(episodes,) the sum of the rewards of each episode's first steps; of all steps without a number."""
        if steps is None:
            return self.returns
        if steps < 1:
            raise OdiceError(f"horizon is how many steps of an episode count, at least 1; got {steps}.")
        total = np.concatenate([[0.0], np.cumsum(self.rewards, dtype=np.float64)])
        return total[self.starts + np.minimum(self.lengths, min(steps, self.n_steps))] - total[self.starts]

    @property
    def nbytes(self) -> int:
        """Bytes held by the arrays."""
        return sum(v.nbytes for item in fields(self) if isinstance(v := getattr(self, item.name), np.ndarray))

    def not_finite(self) -> str | None:
        """Name the first array that holds a number which is not finite; None if all are finite."""
        for name in ("observations", "actions", "rewards"):
            if not all(np.isfinite(part).all() for _, part in walk(getattr(self, name))):
                return name
        return None

    def step_flags(self, which: str) -> np.ndarray:
        """(steps,) bool: `terminated` or `truncated` written per step, true only at the last step of an episode."""
        flags = np.zeros(self.n_steps, bool)
        flags[self.ends] = {"terminated": self.terminated, "truncated": self.truncated}[which]
        return flags

    def step_observations(self) -> np.ndarray:
        """(steps, obs) the observation each action was chosen in: a copy without the final observations."""
        keep = np.ones(len(self.observations), bool)
        keep[self.ends + np.arange(self.n_episodes) + 1] = False
        return self.observations[keep]

    # --- episodes ----------------------------------------------------------------------------------------------------

    def __len__(self) -> int:
        return self.n_episodes

    def __getitem__(self, e: int) -> Episode:
        e = range(self.n_episodes)[e]
        start, length = int(self.starts[e]), int(self.lengths[e])
        return Episode(
            self.observations[start + e : start + e + length + 1],
            self.actions[start : start + length],
            self.rewards[start : start + length],
            bool(self.terminated[e]),
            bool(self.truncated[e]),
            bool(self.final_known[e]),
        )

    def __iter__(self) -> Iterator[Episode]:
        return (self[e] for e in range(self.n_episodes))

    def __repr__(self) -> str:
        spec = self.spec
        kind = f"{spec.action_dim} actions" if spec.discrete else f"action dim {spec.action_dim}"
        size = f"{self.n_episodes:,} episodes, {self.n_steps:,} steps"
        return f"Dataset({self.meta.source!r}: {size}, obs dim {spec.obs_dim}, {kind})"

    def _repr_html_(self) -> str:
        spec, returns = self.spec, self.returns
        rows = {
            "episodes": f"{self.n_episodes:,}",
            "steps": f"{self.n_steps:,}",
            "observation": numbers(spec.obs_dim),
            "action": f"one of {spec.action_dim}" if spec.discrete else numbers(spec.action_dim),
            "return": f"mean {returns.mean():,.4g}, from {returns.min():,.4g} to {returns.max():,.4g}",
            "environment": self.meta.env_id,
        }
        return facts(f"Dataset: {self.meta.source}", rows)

    # --- choosing ----------------------------------------------------------------------------------------------------

    def select(self, episodes: Sequence[int] | np.ndarray) -> Dataset:
        """These episodes, in this order. A boolean mask over the episodes works too."""
        which = np.asarray(episodes)
        which = np.flatnonzero(which) if which.dtype == bool else which.astype(np.int64)
        if which.size == 0 or which.min() < -self.n_episodes or which.max() >= self.n_episodes:
            raise OdiceError(
                f"{self.meta.source}: cannot select episodes {_brief(which)} of {self.n_episodes}; name at least one "
                f"from 0 to {self.n_episodes - 1}."
            )
        which = which % self.n_episodes
        steps = _ranges(self.starts[which], self.lengths[which])
        observations = _ranges(self.starts[which] + which, self.lengths[which] + 1)
        return replace(
            self,
            observations=self.observations[observations],
            actions=self.actions[steps],
            rewards=self.rewards[steps],
            costs=None if self.costs is None else self.costs[steps],
            propensities=None if self.propensities is None else self.propensities[steps],
            lengths=self.lengths[which],
            terminated=self.terminated[which],
            truncated=self.truncated[which],
            final_known=self.final_known[which],
            meta=self.meta.after(f"{which.size} of {self.n_episodes} episodes"),
        )

    def by_return(self, low: float = 0.0, high: float = 1.0) -> Dataset:
        """The episodes whose return lies between two quantiles, in their order: `by_return(0.9)` is the best tenth."""
        if not 0 <= low < high <= 1:
            raise OdiceError(f"Return quantiles {low} to {high}: give two numbers with 0 <= low < high <= 1.")
        least, most = np.quantile(self.returns, [low, high])
        return self.select((self.returns >= least) & (self.returns <= most))

    def first(self, steps: int) -> Dataset:
        """The first so many steps. An episode that is cut counts as truncated there, with a known final observation."""
        if not 1 <= steps <= self.n_steps:
            raise OdiceError(f"{self.meta.source}: cannot take {steps} steps of {self.n_steps}; give 1 to that number.")
        e = int(np.searchsorted(self.ends, steps - 1))
        lengths = self.lengths[: e + 1].copy()
        lengths[e] = steps - self.starts[e]
        uncut = lengths[e] == self.lengths[e]
        terminated, truncated, known = (
            flag[: e + 1].copy() for flag in (self.terminated, self.truncated, self.final_known)
        )
        if not uncut:
            terminated[e], truncated[e], known[e] = False, True, True
        return replace(
            self,
            observations=self.observations[: steps + e + 1],
            actions=self.actions[:steps],
            rewards=self.rewards[:steps],
            costs=None if self.costs is None else self.costs[:steps],
            propensities=None if self.propensities is None else self.propensities[:steps],
            lengths=lengths,
            terminated=terminated,
            truncated=truncated,
            final_known=known,
            meta=self.meta.after(f"first {steps} of {self.n_steps} steps"),
        )

    @cached_property
    def copies(self) -> np.ndarray:
        """(copies, 2): an episode, and a later one that repeats it bit for bit."""
        return copies_of(self)

    @property
    def originals(self) -> np.ndarray:
        """The episodes that repeat no earlier one."""
        return np.delete(np.arange(self.n_episodes), self.copies[:, 1])

    def split(self, fraction: float, *, seed: int = 0) -> tuple[Dataset, Dataset]:
        """Two data sets of whole episodes, drawn at random; the first has about `fraction` of the episodes.

        Copies of an episode are all in the same one.
        """
        first = self.drawn(fraction, seed=seed)
        return self.select(first), self.select(~first)

    def drawn(self, fraction: float, *, seed: int = 0) -> np.ndarray:
        """(episodes,) which episodes are in the first part of a `split`."""
        originals = self.originals
        count = round(fraction * len(originals))
        if not 0 < fraction < 1 or not 0 < count < len(originals):
            raise OdiceError(
                f"{self.meta.source}: cannot split {len(originals)} episodes at {fraction}; each part needs one."
            )
        first = np.zeros(self.n_episodes, bool)
        first[originals[np.random.default_rng(seed).permutation(len(originals))[:count]]] = True
        first[self.copies[:, 1]] = first[self.copies[:, 0]]
        return first

    # --- identity and files ------------------------------------------------------------------------------------------

    @property
    def encoding(self) -> Encoding:
        """How the rows of a table became the observations and actions; empty if the source is no table."""
        return Encoding(self.meta.obs_columns or (), self.meta.choices or ())

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 of the content: every array with its type and shape, the number of actions, the words behind numbers.

        Other metadata do not count.
        """
        digest = hashlib.sha256(f"odice-dataset-1 {self.meta.n_actions if self.discrete else None}".encode())
        columns, choices = self.encoding
        words = {column["name"]: column["values"] for column in columns if column.get("values")}
        if words or choices:
            digest.update(json.dumps([words, choices]).encode())
        for item in fields(self):
            value = getattr(self, item.name)
            if isinstance(value, np.ndarray):
                digest.update(f"{item.name} {value.dtype.str} {value.shape}".encode())
                for _, part in walk(value):
                    digest.update(np.ascontiguousarray(part).data)
        return digest.hexdigest()

    def save(self, path: str | Path, format: str | None = None) -> Path:
        """Write as `minari`, `d4rl` (HDF5) or `parquet`; by default what the name says. Loading gives the same data."""
        from odice.data.writers import save

        return save(self, path, format)


def _ranges(starts: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """The numbers start, start + 1, ... of each range, one range after the other."""
    offsets = np.repeat(starts - np.concatenate([[0], np.cumsum(lengths)[:-1]]), lengths)
    return np.arange(int(lengths.sum())) + offsets


def _brief(which: np.ndarray) -> str:
    return str(which.tolist() if which.size <= 6 else [*which[:3].tolist(), "...", int(which[-1])])
