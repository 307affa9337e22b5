"""Declared changes to the data, fitted once, kept with the policy.

A `Preprocess` says what is wanted; `fit` takes a data set and returns a `Fitted`: plain numbers, in JSON. The same
object turns the training data into what the algorithm sees (`apply`), and at evaluation turns a raw observation into
the network's input (`observe`) and the network's action into the environment's (`act`). So nothing that was done to
the data can be forgotten when the policy is used.

Rewards change in this order: exact replacements; then standardized, or scaled by the returns; then
`scale * r + shift`. The usual changes have names (`REWARD_MAPS`), and so may yours (`register_reward_map`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, fields, replace
from typing import Any, Literal

import numpy as np

from odice.action_map import from_bounds, is_unit_box, to_bounds
from odice.d4rl import ANTMAZE_REWARDS
from odice.data.dataset import Dataset, blocks, release
from odice.data.to_go import spread
from odice.data.transitions import Convention, Rows, rows_of
from odice.encoding import Column
from odice.errors import OdiceError, unknown_name

ReturnRange = Literal["episodes", "thousand"]


@dataclass(frozen=True)
class Preprocess:
    """What to do to a data set before training. The defaults change nothing but the bounds of the actions."""

    return_range: ReturnRange | None = None
    """Multiply rewards by 1000 / (best - worst return). `episodes`: returns of all trajectories, as the JAX codes of
    IQL, IVR and f-DVL count them (variant A). `thousand`: a running sum that is cut at a terminal or after 1000 rows,
    without the tail, as the PyTorch codes of O-DICE and CORL do (variant B)."""
    return_spread: float | None = None
    """Multiply rewards so that discounted returns, counted from every step on, have this standard deviation: no unit is
    left."""
    discount: float = 0.99
    """The discount of those returns."""
    standardize_reward: bool = False
    """(r - mean) / std over the rewards of the transitions, as OptiDICE's code does; for dense rewards."""
    reward_scale: float = 1.0
    reward_shift: float = 0.0
    reward_values: tuple[tuple[float, float], ...] = ()
    """Exact replacements (from, to), for sparse rewards: O-DICE's AntMaze is ((0, -3), (1, 0))."""
    normalize_obs: bool = False
    """(s - mean) / (std + obs_eps), with mean and standard deviation over the observations of the transitions."""
    obs_eps: float = 1e-3
    clip_actions: float | None = None
    """Clip (mapped) actions to +- this; the JAX codes of IQL use 1 - 1e-5."""
    map_actions: bool = True
    """Map the action bounds of the environment, where they are known and finite, to [-1, 1]."""
    absorbing: bool = False
    """Let a terminal state be followed by an absorbing one, instead of ending the episode. The absorbing state is zeros
    with a 1 in an extra column."""


# name of a reward map -> the fields of `Preprocess` that it sets
REWARD_MAPS: dict[str, dict[str, Any]] = {
    "none": {},
    "return-range": {"return_range": "episodes"},
    "return-range-b": {"return_range": "thousand"},
    "return-spread": {"return_spread": 10.0},
    "minus-1": ANTMAZE_REWARDS["iql"],
    "minus-3": ANTMAZE_REWARDS["odice-paper"],
    "zero-to-minus-3": ANTMAZE_REWARDS["odice-code"],
    "times-4-minus-2": ANTMAZE_REWARDS["cql"],
    "times-10-minus-5": ANTMAZE_REWARDS["corl-cql"],
    "times-100": {"reward_scale": 100.0},
    "standard": {"standardize_reward": True},
    "standard-tenth": {"standardize_reward": True, "reward_scale": 0.1},
    "zero": {"reward_scale": 0.0},
}
REWARD_FIELDS = ("return_range", "return_spread", "standardize_reward", "reward_scale", "reward_shift", "reward_values")


def register_reward_map(name: str, **changes: Any) -> None:
    """Give a change of rewards a name: `register_reward_map("halved", reward_scale=0.5)`, then `--reward halved`.

    `changes` are the fields of `Preprocess` that concern rewards. A name can be given once.
    """
    if name in REWARD_MAPS:
        raise OdiceError(f"The reward map {name!r} exists already; choose another name.")
    for field in changes:
        if field not in REWARD_FIELDS:
            raise unknown_name(f"field of the reward map {name!r}:", field, REWARD_FIELDS)
    REWARD_MAPS[name] = changes


@dataclass(frozen=True)
class Fitted:
    """Numbers that do the work of a `Preprocess`. None means: leave it as it is."""

    reward_scale: float = 1.0
    reward_shift: float = 0.0
    reward_values: tuple[tuple[float, float], ...] = ()
    obs_mean: tuple[float, ...] | None = None
    obs_scale: tuple[float, ...] | None = None
    action_low: tuple[float, ...] | None = None
    action_high: tuple[float, ...] | None = None
    clip_actions: float | None = None
    absorbing: bool = False
    columns: tuple[Column, ...] = ()
    """How a row of the log's table becomes an observation (`odice.encoding`); empty if the log is no table."""
    choices: tuple[str, ...] = ()
    """What each number of a discrete action means, where the log had words for them."""

    # --- single steps; used at evaluation too ------------------------------------------------------------------------

    def observe(self, obs: np.ndarray) -> np.ndarray:
        """Raw observations (any leading axes) as the networks see them, in float32."""
        obs = np.asarray(obs, np.float32)
        if self.obs_mean is not None and self.obs_scale is not None:
            obs = (obs - _f32(self.obs_mean)) / _f32(self.obs_scale)
        if self.absorbing:  # a state that is observed is not the absorbing one
            obs = np.concatenate([obs, np.zeros((*obs.shape[:-1], 1), np.float32)], axis=-1)
        return obs

    def act(self, action: np.ndarray) -> np.ndarray:
        """A policy's actions as the environment wants them: from [-1, 1] to its bounds. Discrete actions pass."""
        if self.action_low is None or self.action_high is None:
            return np.asarray(action)
        return to_bounds(_f32(action), _f32(self.action_low), _f32(self.action_high))

    def unact(self, action: np.ndarray) -> np.ndarray:
        """Logged actions as the policy's: from the environment's bounds to [-1, 1], then clipped if so declared."""
        action = np.asarray(action)
        if action.dtype.kind in "iu":
            return action
        if self.action_low is not None and self.action_high is not None:
            action = from_bounds(action, _f32(self.action_low), _f32(self.action_high))
        if self.clip_actions is not None:
            action = np.clip(action, -np.float32(self.clip_actions), np.float32(self.clip_actions))
        return action

    def reward(self, reward: np.ndarray) -> np.ndarray:
        """Logged rewards as the algorithm sees them."""
        out = np.asarray(reward, np.float32)
        if self.reward_values:
            known = np.isin(out, _f32([old for old, _ in self.reward_values]))
            if not known.all():
                raise OdiceError(
                    f"The reward map replaces {[old for old, _ in self.reward_values]} but the data also hold "
                    f"{float(out[~known].flat[0]):g}; use reward_scale and reward_shift for dense rewards."
                )
            out = np.select(
                [out == np.float32(old) for old, _ in self.reward_values],
                [np.float32(new) for _, new in self.reward_values],
            )
        if (self.reward_scale, self.reward_shift) != (1.0, 0.0):
            out = out * np.float32(self.reward_scale) + np.float32(self.reward_shift)
        return out

    # --- whole data sets ---------------------------------------------------------------------------------------------

    def apply(self, dataset: Dataset) -> Dataset:
        """The data set as the algorithm sees it. Arrays that nothing is done to are shared, the others are copies."""
        if self == Fitted():
            return dataset
        changed: dict[str, Any] = {}
        if self.obs_mean is not None or self.absorbing:
            width = dataset.observations.shape[1] + self.absorbing
            changed["observations"] = _mapped(self.observe, dataset.observations, width)
        if not dataset.discrete and (self.action_low is not None or self.clip_actions is not None):
            changed["actions"] = _mapped(self.unact, dataset.actions)
        if self.reward_values or (self.reward_scale, self.reward_shift) != (1.0, 0.0):
            changed["rewards"] = _mapped(self.reward, dataset.rewards)
        seen = replace(dataset, **changed, meta=dataset.meta.after("preprocessed"))
        return absorb(seen) if self.absorbing else seen

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values; what does nothing is left out."""
        default = Fitted()
        return {key: value for key, value in asdict(self).items() if value != getattr(default, key)}

    @classmethod
    def from_dict(cls, state: Mapping[str, Any]) -> Fitted:
        """The inverse of `to_dict`, also after a trip through JSON."""
        known = {item.name for item in fields(cls)}
        if unknown := set(state) - known:
            raise OdiceError(
                f"Unknown preprocessing {sorted(unknown)}; the policy was made by another version of odice."
            )
        values: dict[str, Any] = {k: tuple(v) if isinstance(v, list | tuple) else v for k, v in state.items()}
        if "reward_values" in values:
            values["reward_values"] = tuple((float(a), float(b)) for a, b in values["reward_values"])
        return cls(**values)


def fit(wanted: Preprocess, dataset: Dataset, convention: Convention = "qlearning") -> Fitted:
    """The numbers for this data set. Statistics are over the transitions of `convention`, as in the published codes."""
    scale, shift = wanted.reward_scale, wanted.reward_shift
    if wanted.standardize_reward:
        center, deviation = reward_moments(dataset, convention)
        scale, shift = scale / deviation, shift - scale * center / deviation
    if wanted.return_range is not None:
        scale *= 1000.0 / return_range(dataset, wanted.return_range, convention)
    if wanted.return_spread is not None:
        scale *= wanted.return_spread / spread(dataset, wanted.discount)
    mean = deviation = low = high = None
    if wanted.normalize_obs:
        mu, sigma = moments(dataset, convention)
        mean, deviation = tuple(mu.tolist()), tuple((sigma + wanted.obs_eps).tolist())
    bounds = dataset.meta.action_low, dataset.meta.action_high
    if wanted.map_actions and bounds[0] is not None and bounds[1] is not None and not dataset.discrete:
        pair = np.asarray(bounds, np.float64)
        if np.isfinite(pair).all() and (pair[1] > pair[0]).all() and not is_unit_box(*pair):
            low, high = (tuple(bound.tolist()) for bound in pair)
    return Fitted(
        reward_scale=scale,
        reward_shift=shift,
        reward_values=wanted.reward_values,
        obs_mean=mean,
        obs_scale=deviation,
        action_low=low,
        action_high=high,
        clip_actions=None if dataset.discrete else wanted.clip_actions,
        absorbing=wanted.absorbing,
        columns=dataset.encoding.columns,
        choices=dataset.encoding.choices,
    )


def absorb(dataset: Dataset) -> Dataset:
    """Every terminated episode leads into the absorbing state and stays there for one step, with reward 0 and action 0.

    The last column of the observations marks that state. Afterwards no episode terminates: an episode that did is one
    step longer and cut in the absorbing state, whose value an algorithm then learns like any other.
    """
    ended = np.flatnonzero(dataset.terminated)
    if not ended.size:
        return dataset
    state = np.zeros(dataset.observations.shape[1], np.float32)
    state[-1] = 1.0
    observations, last = dataset.observations.copy(), dataset.ends[ended]
    observations[last + ended + 1] = state
    lengths = dataset.lengths.copy()
    lengths[ended] += 1
    return replace(
        dataset,
        observations=np.insert(observations, last + ended + 2, state, axis=0),
        actions=np.insert(dataset.actions, last + 1, 0.0, axis=0),
        rewards=np.insert(dataset.rewards, last + 1, 0.0),
        costs=None if dataset.costs is None else np.insert(dataset.costs, last + 1, 0.0),
        propensities=None if dataset.propensities is None else np.insert(dataset.propensities, last + 1, 1.0),
        lengths=lengths,
        terminated=np.zeros_like(dataset.terminated),
        truncated=np.ones_like(dataset.truncated),
        final_known=dataset.final_known | dataset.terminated,
    )


def return_range(dataset: Dataset, variant: ReturnRange, convention: Convention = "qlearning") -> float:
    """Best minus worst return, counted as the codes of variant A (`episodes`) or B (`thousand`) count it."""
    rows = rows_of(dataset, convention)
    if variant == "episodes":
        chunks = rows.kept[rows.kept > 0]
    else:
        chunks = _thousand(rows.kept, dataset.terminated & (rows.kept == dataset.lengths))
    returns = _sums(dataset.rewards, rows, chunks)
    span = float(returns.max() - returns.min()) if len(returns) else 0.0
    if not (np.isfinite(span) and span > 0):
        raise OdiceError(
            f"{dataset.meta.source}: the range of its {len(returns)} returns ({variant!r}) is {span}, so rewards "
            "cannot be scaled by it; leave return_range out."
        )
    return span


def _thousand(kept: np.ndarray, terminal: np.ndarray, limit: int = 1000) -> np.ndarray:
    """Lengths of the chunks that end at a terminal row, or after 1000 rows whatever episode they belong to."""
    ends = np.cumsum(kept)[terminal]
    full, rest = np.divmod(np.diff(ends, prepend=0), limit)
    chunks = np.repeat(np.stack([np.full_like(rest, limit), rest], 1).ravel(), np.stack([full, rest > 0], 1).ravel())
    tail = int(kept.sum() - (ends[-1] if len(ends) else 0))
    return np.concatenate([chunks, np.full(tail // limit, limit)]).astype(np.int64)


def _sums(rewards: np.ndarray, rows: Rows, chunks: np.ndarray) -> np.ndarray:
    """The sum of rewards of consecutive chunks of rows, in double precision and without a copy of the rewards."""
    if not len(chunks):
        return np.zeros(0)
    begins, total = np.cumsum(chunks) - chunks, chunks.sum()
    episodes = rows.first[rows.kept > 0]
    cuts = np.union1d(begins, episodes[episodes < total])  # between two cuts, rows are consecutive steps
    steps, _ = rows.locate(cuts)
    bounds = np.stack([steps, steps + np.diff(cuts, append=total)], axis=1).ravel()
    bounds = bounds[:-1] if bounds[-1] == len(rewards) else bounds
    parts = np.add.reduceat(rewards, bounds, dtype=np.float64)[::2]
    return np.add.reduceat(parts, np.searchsorted(cuts, begins))


def moments(dataset: Dataset, convention: Convention = "qlearning") -> tuple[np.ndarray, np.ndarray]:
    """Mean and (population) standard deviation of the observations of the transitions, in double precision.

    Walks in fixed blocks, so that data in memory and data on disk give the same bits.
    """
    return _moments(dataset.observations, rows_of(dataset, convention), lambda steps, owner: steps + owner)


def reward_moments(dataset: Dataset, convention: Convention = "qlearning") -> tuple[float, float]:
    """Mean and (population) standard deviation of the rewards of the transitions, in double precision."""
    mean, deviation = _moments(dataset.rewards, rows_of(dataset, convention), lambda steps, _: steps)
    if not deviation > 1e-12 * abs(mean):  # the mean of equal numbers may be off in its last bit
        raise OdiceError(
            f"{dataset.meta.source}: all rewards are {float(mean):g}, so they cannot be standardized; leave "
            "standardize_reward out."
        )
    return float(mean), float(deviation)


def _moments(array: np.ndarray, rows: Rows, place: Callable[[np.ndarray, np.ndarray], np.ndarray]):
    """Mean and deviation of the values that belong to the rows; `place(step, episode)` says where they are."""

    def total(function) -> np.ndarray:
        result = np.zeros(array.shape[1:])
        for block in blocks(rows.size, 2 * array[:1].nbytes):
            values = array[place(*rows.locate(np.arange(block.start, block.stop)))]
            result += function(values.astype(np.float64)).sum(axis=0)
            release(array)
        return result

    mean = total(lambda values: values) / rows.size
    return mean, np.sqrt(total(lambda values: np.square(values - mean)) / rows.size)


def _f32(values: Any) -> np.ndarray:
    return np.asarray(values, np.float32)


def _mapped(function, array: np.ndarray, width: int | None = None) -> np.ndarray:
    out = np.empty(array.shape if width is None else (len(array), width), np.float32)
    for block in blocks(len(array), array[:1].nbytes):
        out[block] = function(array[block])
    return out
