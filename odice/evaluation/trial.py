"""Test whether a policy is better than what is done today, at any time during a trial.

A fixed-size test may be read once, at the end. People read a trial every day, and stop when it looks good; a fixed-size
test read that way is wrong far more often than it says. The test here holds at every moment, however often it is read
and whenever the trial is stopped.

It is a bet against the hypothesis that the policy is not better. Returns are scaled to [0, 1]. For a mean m and stakes
b, c > 0, a gambler bets that the policy's returns x_i are above m and that the control's returns y_i are below m:

    wealth(m) = prod_i (1 + b (x_i - m))  prod_i (1 + c (m - y_i))         b m < 1,  c (1 - m) < 1

If E[x] <= m <= E[y], no factor has a mean above 1, so the wealth is a nonnegative supermartingale; so is its average
over several stakes. If the policy is not better there is such an m, so the smallest wealth over all m exceeds 1 / alpha
at any time with probability at most alpha (Ville's inequality). The same with m + d in the place of m for the policy
gives a lower confidence bound on the gain, the largest d that is rejected; with the groups exchanged, an upper bound.
No distribution is assumed, only the range of the returns. The order of the episodes makes no difference.

The method is the two-sample form of betting for bounded means (Waudby-Smith and Ramdas, 2024).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal, NamedTuple

import numpy as np

from odice.data.dataset import Dataset
from odice.data.join import recode
from odice.errors import OdiceError
from odice.evaluation.ope.intervals import percent
from odice.policy.policy import Policy

ALPHA = 0.05
SIZES = 3.0 ** np.arange(-4, 4)
"""Stakes that share the gambler's money: small ones for long trials of small gains, large ones for the opposite."""
RATIOS = ((1.0, 0.0), (1.0, 1 / 9), (1.0, 1.0), (1 / 9, 1.0), (0.0, 1.0))
"""Shares of a stake on the policy's group and on the control's: equal for groups of one size, less on the control where
it is a long log; on one group alone against means that are far from either."""
LARGEST = 0.95
"""Of the stake with which a single episode could cost everything."""
COARSE, FINE = 33, 129
"""Points of the grid of means: over the range, and near the observed means."""

Answer = Literal["better", "worse", "go on"]


class Range(NamedTuple):
    """The least and the most that an episode can earn."""

    low: float
    high: float


@dataclass(frozen=True)
class TrialResult:
    """What a trial has shown so far. Both bounds hold at every moment of the trial, each with confidence 1 - alpha."""

    answer: Answer
    gain: float
    """Difference of the mean returns, policy minus control."""
    lower_bound: float
    """The gain is at least this."""
    upper_bound: float
    """The gain is at most this."""
    evidence: float
    """Wealth of the bet that the policy is better; 1 / alpha decides."""
    evidence_against: float
    """Wealth of the bet that it is worse."""
    episodes: int
    control_episodes: int
    mean: float
    control_mean: float
    low: float
    high: float
    alpha: float
    followed: float | None = None
    """Share of the trial's steps in which the policy's action was taken; None if no policy was given."""

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values."""
        return asdict(self)

    def __str__(self) -> str:
        bounds = f"the gain lies between {self.lower_bound:.4g} and {self.upper_bound:.4g}"
        sure = f"each bound with {percent(1 - self.alpha)} confidence at any time"
        what = {
            "better": "The policy is better than the control",
            "worse": "The policy is worse than the control: stop the trial",
            "go on": "Not decided yet: go on",
        }[self.answer]
        return f"{what}. It earned {self.gain:+.4g} per episode; {bounds} ({sure})."


def compare(
    trial: Sequence[float] | np.ndarray,
    control: Sequence[float] | np.ndarray,
    limits: Range | tuple[float, float] | None = None,
    alpha: float = ALPHA,
    expected_gain: float | None = None,
) -> TrialResult:
    """Compare the returns of a trial's episodes with those of the control, at any time.

    Args:
        trial: Return of each episode in which the policy acted.
        control: Return of each episode in which it did not, from a parallel group or from the log before.
        limits: The least and the most that an episode can earn. By default the range of all returns given here, which
            is right where they contain the extremes (0 and 1 of a success, say) and too narrow otherwise.
        alpha: Probability of a wrong "better", and of a wrong "worse", over the trial as a whole.
        expected_gain: The gain that the trial was planned for; a trial of about that gain then needs fewer episodes. It
            must have been chosen before the trial.

    Returns:
        The answer with its bounds.
    """
    x, y = _returns("trial", trial), _returns("control", control)
    if not 0 < alpha < 0.5:
        raise OdiceError(f"alpha must lie between 0 and 0.5, got {alpha:g}.")
    if expected_gain is not None and not 0 < expected_gain < np.inf:
        raise OdiceError(f"The gain that a trial is planned for is a number above 0, got {expected_gain:g}.")
    low, high = _limits(x, y, limits)
    width = high - low
    if width <= 0:
        raise OdiceError(f"Every episode earned {low:g}: there is nothing to compare. Give the range with --range.")
    x_unit, y_unit = (x - low) / width, (y - low) / width
    stakes = _stakes(None if expected_gain is None else expected_gain / width)
    up, down = Bet(x_unit, y_unit, stakes), Bet(y_unit, x_unit, stakes.swapped())
    better, worse = up.evidence(), down.evidence()
    lower, upper = up.lower_bound(alpha), down.lower_bound(alpha)
    answer: Answer = "better" if better >= 1 / alpha else "worse" if worse >= 1 / alpha else "go on"
    return TrialResult(
        answer=answer,
        gain=float(x.mean() - y.mean()),
        lower_bound=lower * width,
        upper_bound=-upper * width,
        evidence=better,
        evidence_against=worse,
        episodes=len(x),
        control_episodes=len(y),
        mean=float(x.mean()),
        control_mean=float(y.mean()),
        low=low,
        high=high,
        alpha=alpha,
    )


def trial(
    data: Dataset,
    control: Dataset,
    *,
    policy: Any = None,
    limits: tuple[float, float] | None = None,
    alpha: float = ALPHA,
    expected_gain: float | None = None,
    horizon: int | None = None,
) -> TrialResult:
    """Judge the log of a trial against the log of a control group, or the log from before the trial.

    Args:
        data: Episodes in which the policy acted.
        control: Episodes in which it did not.
        policy: The policy that was tried, to report in how many of the trial's steps it was followed.
        limits: The least and the most that an episode can earn; see `compare`.
        alpha: Probability of a wrong "better", and of a wrong "worse", over the trial as a whole.
        expected_gain: The gain that the trial was planned for; see `compare`.
        horizon: Steps of an episode that count; by default all.
    """
    result = compare(data.returns_within(horizon), control.returns_within(horizon), limits, alpha, expected_gain)
    if policy is None:
        return result
    if isinstance(policy, Policy):
        data = recode(data, policy.encoding)
        _check_fits(policy, data)
    actions = policy(data.step_observations())
    if data.discrete:
        same = actions == data.actions
    else:
        same = np.all(np.abs(actions - data.actions) <= 0.05 * np.ptp(data.actions, axis=0) + 1e-6, axis=-1)
    return TrialResult(**{**asdict(result), "followed": float(np.mean(same))})


def episodes_needed(
    control: Sequence[float] | np.ndarray,
    gain: float,
    *,
    limits: Range | tuple[float, float] | None = None,
    power: float = 0.8,
    alpha: float = ALPHA,
    parallel: bool = False,
    simulations: int = 200,
    at_most: int = 20_000,
    seed: int = 0,
) -> int | None:
    """Count the trial's episodes after which a gain is confirmed, by simulating trials.

    A simulated policy draws from the control's own returns, tilted exponentially until their mean has grown by `gain`.

    Args:
        control: Returns of today's episodes.
        gain: The gain per episode that the trial should confirm.
        limits: The least and the most that an episode can earn; see `compare`.
        power: Share of the simulated trials that have to confirm the gain.
        alpha: As in `compare`.
        parallel: Whether the control is a group of the same size that runs during the trial, rather than the log.
        simulations: How many trials to simulate.
        at_most: The largest number of episodes that is tried.
        seed: Seed of the simulation.

    Returns:
        The number of episodes with the policy, or None if `at_most` are not enough.
    """
    y = _returns("control", control)
    low, high = _limits(y, y, limits)
    if not 0 < power < 1:
        raise OdiceError(f"The power must lie between 0 and 1, got {power:g}.")
    if not (gain > 0 and y.mean() + gain < y.max()):
        room = y.max() - y.mean()
        raise OdiceError(f"The gain must lie between 0 and {room:.4g}, what the best episodes have above the mean.")
    unit, step = (y - low) / (high - low), gain / (high - low)
    chance = _tilted(unit, float(unit.mean()) + step)
    rng = np.random.default_rng(seed)
    stakes = _stakes(step)
    enough = lambda n: _share_decided(unit, chance, n, stakes, parallel, simulations, alpha, rng) >= power
    few, n = 8, min(16, at_most)
    while not enough(n):
        if n == at_most:
            return None
        few, n = n, min(2 * n, at_most)
    while n - few > max(1, n // 20):
        middle = (n + few) // 2
        n, few = (middle, few) if enough(middle) else (n, middle)
    return n


# --- the bet ----------------------------------------------------------------------------------------------------------


class Stakes(NamedTuple):
    """Stakes on the policy's group and on the control's, and how the money is divided among them."""

    policy: np.ndarray
    control: np.ndarray
    log_share: np.ndarray

    def swapped(self) -> Stakes:
        return Stakes(self.control, self.policy, self.log_share)


def _stakes(expected_gain: float | None) -> Stakes:
    """Return every size with every ratio; three quarters of the money near the best stakes for an expected gain.

    The best stake is the gain over the variance of a return, which lies below 1/4 of the squared range and is rarely
    below a hundredth of that.
    """
    pairs = np.array([(size * one, size * other) for size in SIZES for one, other in RATIOS])
    share = np.full(len(pairs), 1 / len(pairs))
    if expected_gain is not None and expected_gain > 0:
        low, high = np.log2(expected_gain / 0.25), np.log2(expected_gain / 0.01)
        size = np.log2(pairs.max(axis=1))
        near = (size > low - 1) & (size < high + 1)
        if near.any():
            share = 0.25 * share + 0.75 * near / near.sum()
    return Stakes(pairs[:, 0], pairs[:, 1], np.log(share))


class Bet:
    """The bet that E[x] > E[y]; returns are in [0, 1]."""

    def __init__(self, x: np.ndarray, y: np.ndarray, stakes: Stakes):
        self._grid = grid = _grid(x, y)
        self._above = _log_bets(x, grid, stakes.policy)
        self._below = (_log_bets(1 - y, 1 - grid, stakes.control) + stakes.log_share)[:-1]

    def evidence(self, d: float = 0.0) -> float:
        """Return the wealth of the bet that E[x] > E[y] + d."""
        # At the right end m of each interval, or at the next point of the grid; no mean is above 1.
        right = np.searchsorted(self._grid, self._grid[1:] + d - 1e-12)
        inside = right < len(self._grid)
        above = np.where(inside[:, None], self._above[np.minimum(right, len(self._grid) - 1)], 0.0)
        return float(np.exp(min(_least_wealth(above + self._below), 700.0)))

    def lower_bound(self, alpha: float) -> float:
        """Return the largest d for which E[x] <= E[y] + d is rejected."""
        low, high = -1.0, 1.0
        for _ in range(20):
            d = (low + high) / 2
            low, high = (d, high) if self.evidence(d) >= 1 / alpha else (low, d)
        return low


def _least_wealth(bets: np.ndarray) -> float:
    """Return the least logarithm of the wealth over the intervals of the grid, given that of every stake.

    Bets on the policy fall with m and those on the control rise, so the right end of an interval in the one and its
    left end in the other bound the wealth of every mean between them.
    """
    return float(np.min(_log_sum_exp(bets)))


def _log_bets(x: np.ndarray, means: np.ndarray, stakes: np.ndarray) -> np.ndarray:
    """Return the logarithm of prod_i (1 + b (x_i - m)) for each mean m and stake b."""
    total = np.zeros((len(means), len(stakes)))
    for part in np.array_split(x, max(1, len(x) // 1024)):
        values, counts = np.unique(part, return_counts=True)
        total += np.log1p(_bets(values, means, stakes)) @ counts
    return total


def _bets(values: np.ndarray, means: np.ndarray, stakes: np.ndarray) -> np.ndarray:
    """Return (means, stakes, values) what a stake wins, at most what keeps the gambler's money positive."""
    stakes = np.minimum(stakes, LARGEST / np.maximum(means, 1e-9)[:, None])
    return stakes[:, :, None] * (values - means[:, None])[:, None, :]


def _grid(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Return means from 0 to 1, denser around those that the data leave in doubt."""
    error = 4 * np.sqrt(x.var() / len(x) + y.var() / len(y)) + 2 / min(len(x), len(y))
    low, high = min(x.mean(), y.mean()) - error, max(x.mean(), y.mean()) + error
    fine = np.linspace(max(0.0, low), min(1.0, high), FINE)
    return np.union1d(np.linspace(0.0, 1.0, COARSE), fine)


# --- input and simulation ---------------------------------------------------------------------------------------------


def _check_fits(policy: Policy, data: Dataset) -> None:
    """Refuse a policy with observations or actions of another kind than the log's."""
    numbers = 0 if data.discrete else data.spec.action_dim
    if (policy.obs_dim, 0 if policy.discrete else policy.action_dim) != (data.spec.obs_dim, numbers):
        log = f"observations of {data.spec.obs_dim} numbers and {_kind(data.discrete, numbers)}"
        own = f"observations of {policy.obs_dim} and {_kind(policy.discrete, policy.action_dim)}"
        raise OdiceError(f"{data.meta.source} has {log}, the policy {own}; give the policy that was tried.")


def _kind(discrete: bool, numbers: int) -> str:
    return "discrete actions" if discrete else f"actions of {numbers}"


def _returns(name: str, values: Sequence[float] | np.ndarray) -> np.ndarray:
    array = np.asarray(values, np.float64).ravel()
    if len(array) == 0:
        raise OdiceError(f"The {name} has no episodes yet; a comparison needs at least one in each group.")
    if not np.isfinite(array).all():
        raise OdiceError(f"The {name} has a return that is not finite; repair the log first.")
    return array


def _limits(x: np.ndarray, y: np.ndarray, limits: Range | tuple[float, float] | None) -> Range:
    seen = Range(float(min(x.min(), y.min())), float(max(x.max(), y.max())))
    if limits is None:
        return seen
    low, high = map(float, limits)
    if not low < high or not np.isfinite([low, high]).all():
        raise OdiceError(f"The range must be two finite numbers, the lower one first; got {low:g} and {high:g}.")
    if seen.low < low or seen.high > high:
        raise OdiceError(
            f"Episodes earned between {seen.low:g} and {seen.high:g}, outside the range {low:g} to {high:g} that was "
            "given; widen it."
        )
    return Range(low, high)


def _tilted(values: np.ndarray, mean: float) -> np.ndarray:
    """Return probabilities proportional to exp(t value), with t such that they have this mean."""
    low, high, weight = 0.0, 1e4, np.full(len(values), 1 / len(values))
    for _ in range(200):
        t = (low + high) / 2
        weight = np.exp(t * (values - values.max()))
        weight /= weight.sum()
        low, high = (t, high) if weight @ values < mean else (low, t)
    return weight


def _share_decided(
    unit: np.ndarray,
    chance: np.ndarray,
    n: int,
    stakes: Stakes,
    parallel: bool,
    simulations: int,
    alpha: float,
    rng: Any,
) -> float:
    """Return the share of simulated trials of n episodes that end with "better"."""
    values, index = np.unique(unit, return_inverse=True)
    tilted, plain = np.bincount(index, chance), np.bincount(index) / len(unit)
    if len(values) > 256:  # the shape of the returns is enough for a plan
        edges = np.linspace(0, 1, 257)
        bins = np.digitize(values, edges[1:-1])
        mass = np.bincount(bins, plain, 256)
        values = np.bincount(bins, plain * values, 256) / np.maximum(mass, 1e-300)
        tilted, plain = np.bincount(bins, tilted, 256), mass
        keep = mass > 0
        values, tilted, plain = values[keep], tilted[keep], plain[keep]
    margin = 4 * np.sqrt(plain @ (values - plain @ values) ** 2 / n)
    grid = np.linspace(max(0.0, plain @ values - margin), min(1.0, tilted @ values + margin), 129)
    above = np.log1p(_bets(values, grid, stakes.policy))
    below = np.log1p(_bets(1 - values, 1 - grid, stakes.control))
    policy = rng.multinomial(n, tilted / tilted.sum(), simulations).astype(float)
    control = rng.multinomial(n, plain, simulations).astype(float) if parallel else (plain * len(unit))[None]
    total = np.einsum("gsv,nv->ngs", above[1:], policy, optimize=True) + stakes.log_share
    total = total + np.einsum("gsv,nv->ngs", below[:-1], control, optimize=True)
    return float(np.mean(np.min(_log_sum_exp(total), axis=1) >= np.log(1 / alpha)))


def _log_sum_exp(table: np.ndarray) -> np.ndarray:
    peak = table.max(axis=-1)
    return peak + np.log(np.sum(np.exp(table - peak[..., None]), axis=-1))
