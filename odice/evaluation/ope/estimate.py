"""`odice.estimate`: every estimator on the episodes that a policy may be evaluated on, and the verdict."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from odice.data.dataset import Dataset
from odice.data.doctor import doubts
from odice.errors import OdiceError, unknown_name
from odice.evaluation.log import log_for
from odice.evaluation.ope.behavior import Behavior, clone
from odice.evaluation.ope.candidate import Candidate
from odice.evaluation.ope.dice import FORMS, DICEConfig, dice
from odice.evaluation.ope.doubly_robust import doubly_robust
from odice.evaluation.ope.episodes import Episodes, make_episodes
from odice.evaluation.ope.fqe import FQEConfig, fqe
from odice.evaluation.ope.held_out import evaluation_episodes
from odice.evaluation.ope.importance import Weighted, behavior_return, importance
from odice.evaluation.ope.intervals import ALPHA, REPLICATES, Interval, betting_interval, resample, student
from odice.evaluation.ope.one_step import one_step
from odice.evaluation.ope.verdict import MIN_EPISODES, Verdict, conclude
from odice.jsonable import jsonable
from odice.notebook import table
from odice.policy.policy import Policy

BASIC = ("fqe", "importance", "doubly-robust", "one-step")
"""What the verdict rests on: always run. A one-step log with known propensities has `propensity` too."""
ESTIMATORS = (*BASIC, *FORMS)
DISCOUNT = 0.99
FACTOR = 1.5
"""The heads of FQE share data and networks, so their spread understates the error; chosen by benchmarks/calibration.py
on one half of its worlds."""
MAX_STEPS = 200_000
"""Of a longer log episodes are drawn at random, unless its decisions are given as a column: more would take minutes and
hardly narrow an interval."""
MIN_SHARE, MASS = 0.02, (0.7, 1.4)
"""Of density ratios: the effective share of the log that they must leave, and the total mass that counts as 1."""


@dataclass(frozen=True)
class Estimate:
    """The result of one estimator."""

    name: str
    value: Interval | None
    """The policy's return; None for `one-step`, which only estimates differences."""
    improvement: Interval
    """Over the behavior, on the same resamples of the episodes."""
    error: float
    """Standard error of the improvement."""
    effective: float | None
    """Effective sample size: episodes for weights, a share of the log for density ratios."""
    unusable: str
    """Why the verdict does not use it, or nothing."""
    details: dict[str, Any]

    def to_dict(self) -> dict[str, Any]:
        return _plain(vars(self))


@dataclass(frozen=True)
class Estimates:
    """Everything that a log says about a policy."""

    source: str
    judged_by: str
    """A sentence: which episodes these are."""
    episodes: int
    steps: int
    cut: int
    """Episodes that end before the horizon without having terminated."""
    horizon: int
    discount: float
    behavior: Interval
    """Return of the log's own episodes."""
    possible: tuple[float, float]
    """The least and the most that an episode earned; estimates are clipped to it."""
    calibration: float
    """How far the cloned behavior's probabilities are from the frequencies of the log (`behavior.Behavior`)."""
    known: bool
    """Whether the log gives the behavior's probabilities."""
    outside: float
    """Share of the log's states in which the policy does what the behavior hardly ever did."""
    agreement: float
    """Discrete: mean probability of the logged action under the policy. Continuous: root mean square distance to it."""
    discrete: bool
    estimates: dict[str, Estimate]
    spread: float
    """Standard deviation of the log's returns."""
    verdict: Verdict
    doubt: str = ""
    """What the data doctor found that makes every bound false, or nothing."""

    def __repr__(self) -> str:
        return f"Estimates({self.verdict})"

    def _repr_html_(self) -> str:
        text = lambda one: "" if one is None else f"{one.mean:,.4g} ({one.low:,.4g} to {one.high:,.4g})"
        rows = [
            (name, text(one.value), text(one.improvement), one.unusable or "yes")
            for name, one in self.estimates.items()
        ]
        head = ("estimator", "return", "more than the behavior", "used for the verdict")
        return table(str(self.verdict), head, [("behavior", text(self.behavior), "", ""), *rows], self.judged_by)

    def summary(self) -> dict[str, Any]:
        """The answer in a few values: for a policy's card, and for a report."""
        gain = self.estimates["fqe"].improvement
        return {
            "answer": self.verdict.answer,
            "more than the log, estimated": gain.mean,
            "more than the log, at least": self.verdict.lower_bound,
            "the log": self.behavior.mean,
            "why": self.verdict.reason,
            "judged by": f"{self.episodes} episodes of {self.source}",
            "discount": self.discount,
        }

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values."""
        fields = {key: value for key, value in vars(self).items() if key not in ("estimates", "verdict")}
        estimates = {name: one.to_dict() for name, one in self.estimates.items()}
        return jsonable({**_plain(fields), "estimates": estimates, "verdict": self.verdict.to_dict()})


def estimate(
    policy: Candidate,
    data: Any,
    *,
    schema: Any = None,
    estimators: Sequence[str] = (),
    discount: float | None = None,
    horizon: int | None = None,
    updates: int | None = None,
    heads: int | None = None,
    candidates: int = 1,
    seed: int = 0,
) -> Estimates:
    """Estimate what a policy would earn from a log alone, with intervals and a verdict.

    `odice.evaluate` runs it in an environment instead.

    On the log that a policy was trained on, only the episodes that its run held out are used.

    Args:
        policy: An odice policy, a function of observations, or a column of decisions (`candidate`).
        data: Anything `odice.load` takes.
        schema: What the columns of a table mean, as for `odice.load`; by default that of the policy's training.
        estimators: Names of the DICE family, to show next to those that the verdict rests on.
        discount: By default that of the policy's own training, else 0.99; 1 for the undiscounted return.
        horizon: Steps that count; by default the longest episode of the log.
        updates: Updates of each density ratio.
        heads: Heads of FQE.
        candidates: How many policies are compared: the bounds of all hold at once with 95 % confidence.
        seed: Seed of the estimators.
    """
    if seed < 0:
        raise OdiceError(f"seed must be at least 0, got {seed}.")
    dataset = log_for(policy, data, schema=schema)
    discount = _check(policy, estimators, discount, updates, heads)
    by = evaluation_episodes(policy, dataset)
    if horizon is None:  # that of the whole log: a part of it may happen to be shorter
        horizon = None if by.data is dataset else int(dataset.lengths.max())
    if by.data.n_steps > MAX_STEPS and not isinstance(policy, np.ndarray):
        horizon = int(dataset.lengths.max()) if horizon is None else horizon
        by = by._replace(data=_some_episodes(by.data, seed))
    if isinstance(policy, np.ndarray) and by.chosen is not None and len(policy) == dataset.n_steps:
        policy = policy[np.isin(np.repeat(np.arange(dataset.n_episodes), dataset.lengths), by.chosen)]
    log = make_episodes(policy, by.data, horizon)
    run = EstimatorRun(log, discount, updates, heads, seed, ALPHA / candidates)
    doubt = " ".join(
        f"{finding.message} {finding.advice}"
        for finding in doubts(dataset if by.copies == 0 else dataset.select(dataset.originals))
    )
    return run.estimates(estimators, dataset.meta.source, by.sentence, by.origin == "trained on", doubt)


def _some_episodes(data: Dataset, seed: int) -> Dataset:
    """About `MAX_STEPS` steps of whole episodes, drawn at random."""
    order = np.random.default_rng(seed).permutation(data.n_episodes)
    enough = int(np.searchsorted(np.cumsum(data.lengths[order]), MAX_STEPS)) + 1
    return data.select(np.sort(order[:enough]))


def _check(
    policy: Candidate, estimators: Sequence[str], discount: float | None, updates: int | None, heads: int | None
) -> float:
    for name in estimators:
        if name not in ESTIMATORS:
            raise unknown_name("estimator", name, ESTIMATORS)
    for what, value, least in (("--updates", updates, 10), ("heads", heads, 2)):
        if value is not None and value < least:
            raise OdiceError(f"{what} must be at least {least}, got {value}.")
    if discount is None:
        about = policy.about if isinstance(policy, Policy) else {}
        given = dict(about.get("config") or {}).get("discount")
        discount = float(given) if isinstance(given, float) and 0 < given <= 1 else DISCOUNT
    if not 0 < discount <= 1:
        raise OdiceError(f"--discount must lie above 0 and be at most 1 (the undiscounted return), got {discount:g}.")
    if discount == 1 and any(name in FORMS for name in estimators):
        raise OdiceError("Density ratios need a discount below 1; leave out --estimators or give --discount 0.99.")
    return discount


class EstimatorRun:
    """All estimators on one log, with the resamples and fits that they share.

    Args:
        log: The episodes, with what the policy does in them.
        discount: gamma.
        updates: Of density ratios; None for the usual number.
        heads: Of FQE; None for the usual number.
        seed: Of resamples and estimators.
        alpha: Error rate of every interval.
    """

    def __init__(
        self,
        log: Episodes,
        discount: float,
        updates: int | None = None,
        heads: int | None = None,
        seed: int = 0,
        alpha: float = ALPHA,
    ):
        self.log, self.discount, self.seed, self.alpha = log, discount, seed, alpha
        heads = FQEConfig().heads if heads is None else heads
        self.updates = updates
        rng = np.random.default_rng(seed)
        self.heads, self.counts = (resample(log.n_episodes, n, rng) for n in (heads, REPLICATES))
        returns = log.to_go(discount)[log.first][log.complete]
        self.possible, self.spread = (float(returns.min()), float(returns.max())), float(returns.std())
        self.logged = behavior_return(log, discount, self.counts)
        self.logged_heads = behavior_return(log, discount, self.heads).replicates

    def behavior(self) -> Behavior:
        """The behavior, cloned, and the policy in comparison."""
        return clone(self.log, seed=self.seed)

    def estimates(
        self,
        estimators: Sequence[str],
        source: str,
        judged_by: str = "",
        trained_on: bool = False,
        doubt: str = "",
    ) -> Estimates:
        """Run the estimators and draw the conclusion.

        Args:
            estimators: Of the DICE family, in addition to those that always run.
            source: The log's name.
            judged_by: A sentence: which episodes these are.
            trained_on: Whether the policy was trained on them.
            doubt: What the data doctor found that makes every bound false, or nothing.
        """
        log, behavior = self.log, self.behavior()
        estimates = self._basic(behavior)
        estimates |= {name: self.dice(name, behavior) for name in estimators if name in FORMS}
        verdict = conclude(
            {name: one.improvement for name, one in estimates.items()},
            {name: one.unusable for name, one in estimates.items()},
            episodes=log.n_episodes,
            outside=behavior.outside,
            known=behavior.known,
            trained_on=trained_on,
            doubt=doubt,
            confidence=1 - self.alpha,
        )
        own = student(self.logged.value, float(self.logged.replicates.std()), log.n_episodes - 1, self.alpha)
        return Estimates(
            source=source,
            judged_by=judged_by,
            episodes=log.n_episodes,
            steps=log.steps,
            cut=int((~log.complete).sum()),
            horizon=log.horizon,
            discount=self.discount,
            behavior=own,
            possible=self.possible,
            calibration=behavior.calibration,
            known=behavior.known,
            outside=behavior.outside,
            agreement=behavior.agreement,
            discrete=log.spec.discrete,
            estimates=estimates,
            spread=self.spread,
            verdict=verdict,
            doubt=doubt,
        )

    def _basic(self, behavior: Behavior) -> dict[str, Estimate]:
        log, ratio = self.log, behavior.log_ratio
        learned = fqe(log, self.discount, self.heads, seed=self.seed)
        estimates = {
            "fqe": self._learned(
                "fqe", learned.replicates, None, "", {"rounds": learned.rounds, "strength": learned.strength}
            )
        }
        estimates["importance"] = self._weighted("importance", importance(log, ratio, self.discount, self.counts))
        robust = doubly_robust(log, learned, self.heads, ratio, self.discount, self.counts)
        estimates["doubly-robust"] = self._weighted("doubly-robust", robust)
        single = one_step(log, ratio, self.discount, self.seed)
        interval = student(single.value, single.error, single.effective - 1, self.alpha)
        why = _few(single.effective, log)
        estimates["one-step"] = Estimate("one-step", None, interval, single.error, single.effective, why, {})
        if log.horizon == 1 and behavior.known:
            estimates["propensity"] = self._randomized(ratio)
        return estimates

    def _randomized(self, log_ratio: np.ndarray) -> Estimate:
        """A one-step log whose propensities are known: exact.

        (w - 1) (r - c) has the mean J(pi) - J(b), whatever the constant c is; the mean reward of the other half of the
        log makes its variance small.
        """
        reward, weight = self.log.reward.astype(np.float64), np.exp(log_ratio)
        half = np.random.default_rng(self.seed).permutation(len(reward)) % 2
        center = np.where(half == 0, reward[half == 1].mean(), reward[half == 0].mean())
        ends = [
            (w - 1) * (r - c) for w in (0.0, weight.max()) for r in (reward.min(), reward.max()) for c in set(center)
        ]
        gain = betting_interval((weight - 1) * (reward - center), min(ends), max(ends), self.alpha)
        gain = gain.clipped(self.possible[0] - self.logged.value, self.possible[1] - self.logged.value)
        value = Interval(*(self.logged.value + end for end in gain))
        error = float(np.std((weight - 1) * (reward - center)) / len(reward) ** 0.5)
        effective = float(weight.sum() ** 2 / max(np.sum(weight**2), 1e-12))
        return Estimate("propensity", value, gain, error, effective, _few(effective, self.log), {})

    def dice(self, name: str, behavior: Behavior) -> Estimate:
        """One member of the DICE family."""
        if not self.log.decisions.deterministic:
            raise OdiceError(f"{name} needs a deterministic policy; leave it out.")
        config = DICEConfig() if self.updates is None else DICEConfig(updates=self.updates)
        ratio = dice(self.log, self.discount, self.heads, FORMS[name], config, self.seed, behavior.spread)
        why = ""
        if ratio.effective < MIN_SHARE:
            why = f"its weights leave {ratio.effective:.1%} of the log"
        elif not MASS[0] <= ratio.mass <= MASS[1]:
            why = f"its weights sum to {ratio.mass:.2f} and should to 1: it has not converged"
        details: dict[str, Any] = {"mass": ratio.mass}
        if FORMS[name].reward:
            details |= {"primal": float(ratio.primal.mean()), "lagrangian": float(ratio.lagrangian.mean())}
        return self._learned(name, ratio.dual, ratio.effective, why, details)

    def _learned(
        self, name: str, replicates: np.ndarray, effective: float | None, why: str, details: dict[str, Any]
    ) -> Estimate:
        gain = replicates - self.logged_heads
        errors = [FACTOR * float(np.std(values, ddof=1)) for values in (replicates, gain)]
        freedom = len(replicates) - 1
        return self._estimate(
            name, float(replicates.mean()), float(gain.mean()), errors, freedom, effective, why, details
        )

    def _weighted(self, name: str, result: Weighted) -> Estimate:
        gain = result.value - self.logged.value
        errors = [float(np.std(r)) for r in (result.replicates, result.replicates - self.logged.replicates)]
        why = _few(result.effective, self.log)
        return self._estimate(name, result.value, gain, errors, result.effective - 1, result.effective, why, {})

    def _estimate(
        self,
        name: str,
        value: float,
        gain: float,
        errors: list[float],
        freedom: float,
        effective: float | None,
        why: str,
        details: dict[str, Any],
    ) -> Estimate:
        """Intervals of a return and of a gain, within what is possible."""
        (least, most), base = self.possible, self.logged.value
        return Estimate(
            name,
            student(value, errors[0], freedom, self.alpha).clipped(least, most),
            student(gain, errors[1], freedom, self.alpha).clipped(least - base, most - base),
            errors[1],
            effective,
            why,
            details,
        )


def _few(effective: float, log: Episodes) -> str:
    few = effective < MIN_EPISODES
    return f"its weights leave {effective:.1f} of {log.n_episodes} episodes" if few else ""


def _plain(fields: dict[str, Any]) -> dict[str, Any]:
    return {key: value.to_dict() if isinstance(value, Interval) else value for key, value in fields.items()}
