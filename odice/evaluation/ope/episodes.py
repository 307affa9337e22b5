"""Logged episodes as an estimator needs them: every step with its time, and what the policy would have done there.

Every estimator estimates the return within `horizon` steps,

    J(pi) = E[ sum_{t < H} gamma^t r_t ],        gamma = 1: the undiscounted return

so an episode that was cut at the horizon is complete, as one that terminated is. One that was cut before it is not:
nothing says what would have followed. The time is part of the state (one more column), because what can still be earned
depends on it.

What the policy does is computed once for all states, so that estimators need arrays only.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from odice.core.numerics import returns_to_go
from odice.data.dataset import Dataset
from odice.data.join import recode
from odice.errors import OdiceError
from odice.evaluation.ope.candidate import Candidate, Decisions, decide
from odice.policy.policy import Policy
from odice.types import Spec

FAR = 10.0
"""A column whose mean is this many scales away from what the policy was trained on is another column, or another
unit."""
MAX_CELLS = 1 << 27
"""Episodes times horizon: a table of them has 1 GB."""


class Episodes(NamedTuple):
    """Steps in the order of the log. Step i happens in `states[index[i]]` and leads to `states[index[i] + 1]`."""

    states: np.ndarray
    """(steps + episodes, obs + 1): observations in standard units, and the time, from -1 at the start to 1 at the
    horizon."""
    decisions: Decisions
    """What the policy does in each of `states`."""
    index: np.ndarray  # pyright: ignore[reportIncompatibleMethodOverride]
    action: np.ndarray
    """What was done; continuous actions in [-1, 1]."""
    reward: np.ndarray
    time: np.ndarray
    episode: np.ndarray
    goes_on: np.ndarray
    """1 where something can be earned after the step: neither terminated nor at the horizon."""
    known_next: np.ndarray
    """False where the log does not hold the state that the step led to, though something can be earned there."""
    lengths: np.ndarray
    complete: np.ndarray
    """(episodes,) terminated, or as long as the horizon."""
    terminated: np.ndarray
    horizon: int
    spec: Spec
    """Of the states here, with the time."""
    propensity: np.ndarray | None = None
    """(steps,) the probability with which the logged action was chosen, where the log says so."""

    @property
    def steps(self) -> int:
        return len(self.reward)

    @property
    def n_episodes(self) -> int:
        return len(self.lengths)

    @property
    def first(self) -> np.ndarray:
        """(episodes,) the number of each episode's first step."""
        return np.cumsum(self.lengths) - self.lengths

    def to_go(self, discount: float) -> np.ndarray:
        """(steps,) the discounted sum of the episode's rewards from this step on, as far as the log goes."""
        return returns_to_go(self.reward, self.lengths, discount)

    def table(self, values: np.ndarray) -> np.ndarray:
        """Numbers per step as (episodes, horizon), 0 where there is no step."""
        out = np.zeros((self.n_episodes, self.horizon))
        out[self.episode, self.time] = values
        return out

    @property
    def observed(self) -> np.ndarray:
        """(episodes, horizon): whether it is known what was earned at that time; after a terminal step, nothing."""
        return self.complete[:, None] | (np.arange(self.horizon)[None] < self.lengths[:, None])


def total_weight(discount: float, horizon: int) -> float:
    """sum_{t < H} gamma^t: from a mean reward per step to a return."""
    return float(np.sum(discount ** np.arange(horizon)))


def make_episodes(policy: Candidate, data: Dataset, horizon: int | None = None) -> Episodes:
    """Combine a log with what the policy would do in it; refuse a log that does not fit the policy or that does not
    allow an estimate."""
    if isinstance(policy, Policy):
        data = recode(data, policy.encoding)
        _check_fits(policy, data)
    horizon = check_log(data, horizon)
    lengths = np.minimum(data.lengths, horizon)
    time = np.concatenate([np.arange(n) for n in lengths])
    episode = np.repeat(np.arange(data.n_episodes), lengths)
    step = data.starts[episode] + time
    keep = np.concatenate(
        [start + e + np.arange(n + 1) for e, (start, n) in enumerate(zip(data.starts, lengths, strict=True))]
    )
    raw = np.asarray(data.observations[keep])
    mean, scale = raw.mean(0, dtype=np.float64), raw.std(0, dtype=np.float64)
    clock = np.concatenate([np.arange(n + 1) for n in lengths]) * (2 / horizon) - 1
    standard = (raw - mean) / np.where(scale > 1e-6 * (1 + np.abs(mean)), scale, 1.0)
    ended = data.terminated & (data.lengths <= horizon)
    last = np.zeros(len(time), bool)
    last[np.cumsum(lengths) - 1] = True
    goes_on = (time + 1 < horizon) & ~(last & ended[episode])
    index = np.arange(len(time)) + episode
    decisions, action = decide(policy, data, raw, step, index)
    final_known = data.final_known & decisions.after_last
    actions = decisions.prob.shape[1] if decisions.prob is not None else action.shape[1]
    return Episodes(
        states=np.column_stack([standard, clock]).astype(np.float32),
        decisions=decisions,
        index=index,
        action=action,
        reward=np.asarray(data.rewards[step], np.float32),
        time=time,
        episode=episode,
        goes_on=goes_on.astype(np.float32),
        known_next=~(last & ~final_known[episode] & goes_on),
        lengths=lengths,
        complete=ended | (lengths == horizon),
        terminated=ended,
        horizon=horizon,
        spec=Spec(raw.shape[1] + 1, actions, data.discrete),
        propensity=None if data.propensities is None else np.asarray(data.propensities[step], np.float64),
    )


# --- what is refused -------------------------------------------------------------------------------------------------


def _check_fits(policy: Policy, data: Dataset) -> None:
    source, spec = data.meta.source, data.spec
    if spec.obs_dim != policy.obs_dim:
        raise OdiceError(
            f"{source}: the log has observations of {spec.obs_dim} numbers, the policy takes {policy.obs_dim}; give "
            "the log of the policy's own task."
        )
    kinds = {True: "a choice among", False: "vectors of"}
    dim = int(data.actions.max()) + 1 if data.discrete else spec.action_dim
    if data.discrete != policy.discrete or (dim > policy.action_dim if data.discrete else dim != policy.action_dim):
        raise OdiceError(
            f"{source}: the log's actions are {kinds[data.discrete]} {dim}, the policy's are {kinds[policy.discrete]} "
            f"{policy.action_dim}; give the log of the policy's own task."
        )
    if not data.discrete:
        _check_bounds(policy, data)
    _check_names(policy, data)
    if policy.obs_mean is not None and policy.obs_scale is not None:
        away = np.abs(data.observations.mean(0, dtype=np.float64) - policy.obs_mean) / policy.obs_scale
        if away.max() > FAR:
            raise OdiceError(
                f"{source}: the mean of observation {int(away.argmax())} lies {away.max():.0f} scales from the one the "
                "policy was trained on; the columns are others, in another order, or in other units."
            )


def _check_names(policy: Policy, data: Dataset) -> None:
    """Columns of a table have names, and the policy knows those it was trained on."""
    known = () if policy.guard is None else policy.guard.names
    names = data.meta.obs_names
    if not known or len(names) != len(known) or known == names:
        return
    i = next(i for i, (ours, theirs) in enumerate(zip(known, names, strict=True)) if ours != theirs)
    order = "the same columns in another order" if set(known) == set(names) else "another column"
    raise OdiceError(
        f"{data.meta.source}: {order}: observation {i} is {names[i]!r} in the log and {known[i]!r} in the policy's "
        "training; name the columns in the policy's order with --schema or --observation-columns."
    )


def _check_bounds(policy: Policy, data: Dataset) -> None:
    low = np.full(policy.action_dim, -1.0) if policy.action_low is None else policy.action_low
    high = np.full(policy.action_dim, 1.0) if policy.action_high is None else policy.action_high
    room = 1e-3 * (high - low)
    given = data.meta.action_low, data.meta.action_high
    declared = all(bound is not None for bound in given) and not (
        np.allclose(np.asarray(given[0]), low, atol=room.max())
        and np.allclose(np.asarray(given[1]), high, atol=room.max())
    )
    outside = (data.actions < low - room) | (data.actions > high + room)
    if declared or outside.any():
        bounds = given if declared else (data.actions.min(0).tolist(), data.actions.max(0).tolist())
        raise OdiceError(
            f"{data.meta.source}: the log's actions go from {_brief(bounds[0])} to {_brief(bounds[1])}, the policy's "
            f"from {_brief(low)} to {_brief(high)}; give the log of the policy's own task, in the same units."
        )


def check_log(data: Dataset, horizon: int | None) -> int:
    """Return the horizon; refuse a log that does not allow an estimate."""
    source = data.meta.source
    if data.n_episodes < 2:
        raise OdiceError(f"{source}: the log is one episode; an interval needs at least two, and a verdict more.")
    if name := data.not_finite():
        raise OdiceError(
            f"{source}: a number of the log's {name} is not finite, so nothing can be estimated; `odice data inspect` "
            "shows where."
        )
    if not np.any(data.rewards):
        raise OdiceError(
            f"{source}: every reward in the log is 0, so all policies look the same; name the reward column."
        )
    if horizon is not None and not 1 <= horizon <= MAX_CELLS // data.n_episodes:
        raise OdiceError(
            f"--horizon must be from 1 to {MAX_CELLS // data.n_episodes:,} for {data.n_episodes:,} episodes, got "
            f"{horizon if abs(horizon) < 10**15 else 'more'}; the longest episode has {data.lengths.max():,} steps."
        )
    longest = int(data.lengths.max())
    if horizon is None and not data.terminated.any() and data.lengths.min() < longest:
        raise OdiceError(
            f"{source}: no episode terminates, and they are cut after {data.lengths.min()} to {longest} steps, so the "
            "log does not say what an episode earns; mark the terminal steps, or give --horizon N to count N steps."
        )
    horizon = longest if horizon is None else horizon
    complete = data.terminated | (data.lengths >= horizon)
    if complete.sum() < 2:
        raise OdiceError(
            f"{source}: {complete.sum()} of {data.n_episodes} episodes terminate or last {horizon} steps, so the log "
            f"does not say what {horizon} steps earn; give a smaller --horizon."
        )
    return horizon


def _brief(values: Any) -> str:
    numbers = [f"{float(v):g}" for v in np.atleast_1d(np.asarray(values))]
    return numbers[0] if len(set(numbers)) == 1 else f"[{', '.join(numbers[:4])}{', ...' if len(numbers) > 4 else ''}]"
