"""Better than the behavior, not better, or cannot tell: with the reason.

A bound is stated only where two kinds of evidence support it, because each kind has errors that its own interval does
not show: learned values (FQE) extrapolate, products of importance weights die out, one-step weights stay in the states
of the behavior.

| the log has | the bound is the least of | "not better" if below 0 is the upper end of |
|---|---|---|
| one step per episode, known propensities | the weighted rewards (exact) | the same |
| known propensities, enough weight left | doubly robust, importance sampling | both |
| enough weight left | FQE, doubly robust | doubly robust, unless FQE is sure of the opposite |
| enough one-step weight left | FQE, one-step | both |
| none of these | none: FQE alone gives an estimate | - |

"Better" is a bound above 0, and only such a bound is stated. No answer is given where the policy was trained on the
episodes, with fewer than 30 episodes, or where the data doctor found that the world changed along the log, that rows
belong together, or that the stated probabilities are wrong (`doctor.DOUBTS`); and no bound where the policy is outside
the data in more than a third of the states. docs/research/estimates.md says how often stated bounds were false on
worlds with known truth.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

from odice.evaluation.ope.intervals import Interval, percent

FEW_EPISODES = 30
MAX_OUTSIDE = 1 / 3
"""The policy may be outside the data in at most this share of the log's states."""
MIN_EPISODES = 30.0
"""Effective number of episodes that weights must leave."""

Answer = Literal["better", "not better", "cannot tell"]


@dataclass(frozen=True)
class Verdict:
    """The answer, and what it rests on."""

    answer: Answer
    reason: str
    lower_bound: float | None
    """The policy earns at least this much more, at the stated confidence; None unless the answer is "better"."""
    smallest: float | None
    """The smallest gain that this log could confirm for this policy; None where it could confirm none."""
    witnesses: tuple[str, ...] = ()
    """The estimators that the answer rests on."""
    confidence: float = 0.95

    def __str__(self) -> str:
        than = "" if self.answer == "cannot tell" else " than the behavior"
        return f"{self.answer}{than}: {self.reason}"

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def conclude(
    improvement: Mapping[str, Interval],
    unusable: Mapping[str, str],
    *,
    episodes: int,
    outside: float,
    known: bool,
    trained_on: bool = False,
    doubt: str = "",
    confidence: float = 0.95,
) -> Verdict:
    """The verdict from the improvements over the behavior that the estimators gave.

    Args:
        improvement: By estimator.
        unusable: By estimator, why it cannot be used; empty if it can.
        episodes: How many the log has.
        outside: The share of states in which the policy is outside the data.
        known: Whether the behavior's probabilities are known.
        trained_on: Whether the policy was trained on these episodes.
        doubt: What the data doctor found that makes every bound false, or nothing.
        confidence: Of the intervals.
    """
    if why := _refusal(episodes, trained_on) or doubt:
        return Verdict("cannot tell", why, None, None, (), confidence)
    usable = [name for name in improvement if not unusable[name]]
    upper, lower = _witnesses(usable, known)
    if not lower:
        return Verdict("cannot tell", _one_kind(unusable), None, None, (), confidence)
    most = max(improvement[name].high for name in upper)
    sure = [name for name in usable if improvement[name].low > 0]
    if most < 0 and not sure:
        reason = f"by {' and '.join(upper)} it earns at least {-most:.4g} less ({percent(confidence)} confidence)"
        return Verdict("not better", reason, None, None, upper, confidence)
    if outside > MAX_OUTSIDE:
        reason = (
            f"in {outside:.0%} of the log's states the policy does what the behavior hardly ever did, and the log does "
            "not say what happens then"
        )
        return Verdict("cannot tell", reason, None, None, (), confidence)
    gains = [improvement[name] for name in lower]
    bound = min(one.lower_bound for one in gains)
    smallest = max(one.mean - one.lower_bound for one in gains)
    by = " and ".join(lower)
    if bound > 0:
        reason = f"by {by} it earns at least {bound:.4g} more ({percent(confidence)} confidence)"
        return Verdict("better", reason, bound, smallest, lower, confidence)
    if most < 0:
        reason = f"{' and '.join(upper)} find it worse, {' and '.join(sure)} better"
    else:
        means = ", ".join(f"{name} {improvement[name].mean:.4g}" for name in lower)
        reason = f"the log could confirm a gain of {smallest:.4g} or more, and finds less ({means})"
    return Verdict("cannot tell", reason, None, smallest, lower, confidence)


def _witnesses(usable: list[str], known: bool) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The estimators that "not better" and "better" rest on; empty where there are too few."""
    if "propensity" in usable:
        return ("propensity",), ("propensity",)
    weighted = "doubly-robust" in usable and "importance" in usable
    if weighted and known:
        return ("doubly-robust", "importance"), ("doubly-robust", "importance")
    if weighted:
        return ("doubly-robust",), ("fqe", "doubly-robust")
    if "one-step" in usable:
        return ("fqe", "one-step"), ("fqe", "one-step")
    return (), ()


def _one_kind(unusable: Mapping[str, str]) -> str:
    """Why FQE is the only evidence."""
    reasons = "; ".join(f"{name}: {why}" for name, why in unusable.items() if why)
    return f"FQE alone gives an estimate, and a bound needs a second kind of evidence ({reasons})"


def _refusal(episodes: int, trained_on: bool) -> str:
    """Why the log cannot answer, or nothing."""
    if trained_on:
        return (
            "these episodes trained the policy, and it has fitted their luck; evaluate on other episodes, or train "
            "with --holdout"
        )
    if episodes < FEW_EPISODES:
        return f"there are {episodes} episodes to judge by; fewer than {FEW_EPISODES} say little about any policy"
    return ""
