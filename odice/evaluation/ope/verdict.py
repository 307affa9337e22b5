"""Better than the behavior, not better, or cannot tell: with the reason.

A practitioner decides by a bound, not by an estimate: by how much is the policy better *at least*? The bound given is
the least, over FQE and the importance weights that can be used, of the value that the improvement J(pi) - J(behavior)
exceeds with 95 % confidence.

    better       the bound is above 0, and so is FQE's bound on the undiscounted improvement
    not better   the interval of FQE's improvement lies below 0, or at most a hundredth of the returns' spread above it;
                 its undiscounted estimate is below 0 too, and nobody who can be used is sure of the opposite
    cannot tell  neither; or the log cannot answer, whatever the numbers say

The log cannot answer when there are few episodes or when the policy leaves the data. An estimator cannot be used where
too little of the log carries it. Density ratios have no say: they were sure in few cases, and in most of these wrong.
The limits are below; docs/estimates.md says how often they were right and wrong.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, NamedTuple

from odice.evaluation.ope.bootstrap import Interval

FEW_EPISODES = 30
MAX_OUTSIDE = 0.25
"""The policy leaves the data if it does so in more than this share of the log's states."""
MIN_EPISODES = 20.0
"""Effective number of episodes that importance weights must leave."""
MIN_SHARE = 0.02
"""Effective share of the log that density ratios must leave."""
MASS = (0.7, 1.4)
"""Total mass of density ratios that counts as 1."""
SLACK = 0.01
JUDGES = ("fqe", "importance", "doubly-robust")
"""Who is asked, if there and usable. The DICE family is shown, and is part of `together`."""
LEARNED = ("fqe", "doubly-robust", "gradient-dice")
"""Whose intervals make the one of all together, usable or not. Importance weights that have died out say nothing."""

Answer = Literal["better", "not better", "cannot tell"]


class Verdict(NamedTuple):
    answer: Answer
    reason: str
    lower_bound: float | None
    """At least this much better, discounted, with 95 % confidence; None where no bound can be given."""

    def __str__(self) -> str:
        return (
            f"{self.answer} than the behavior: {self.reason}"
            if "tell" not in self.answer
            else f"{self.answer}: {self.reason}"
        )


def together(found: Mapping[str, Interval]) -> Interval:
    """FQE's estimate with the interval from the least to the largest end of those that were learned.

    An interval from resampled episodes knows nothing of what an estimator gets wrong in the same way every time. That
    estimators of different kinds disagree does show some of it, so their disagreement is part of this one.
    """
    asked = [found[name] for name in LEARNED if name in found]
    low, high = min(one.low for one in asked), max(one.high for one in asked)
    return Interval(found["fqe"].mean, low, high, min(one.lower_bound for one in asked))


def judge(
    improvement: Mapping[str, Interval],
    undiscounted: Interval,
    usable: Mapping[str, str],
    *,
    episodes: int,
    outside: float,
    spread: float,
) -> Verdict:
    """`improvement` over the behavior by estimator (discounted), FQE's undiscounted one, and why an estimator cannot be
    used ("").

    `outside` is the share of states where the policy leaves the data, `spread` the standard deviation of the log's
    returns.
    """
    judges = {name: improvement[name] for name in JUDGES if name in improvement and not usable[name]}
    if why := _no_answer(episodes, outside):
        return Verdict("cannot tell", why, None)
    bound, first = min(one.lower_bound for one in judges.values()), judges["fqe"]
    if bound > 0:
        if undiscounted.lower_bound > 0:
            more = f"by {', '.join(judges)} it earns at least {bound:.4g} more (95 % confidence)"
            return Verdict("better", more, bound)
        return Verdict("cannot tell", f"without discount it may earn {-undiscounted.lower_bound:.4g} less", bound)
    if first.high <= SLACK * spread:
        against = [name for name, one in judges.items() if one.low > 0] + ["FQE undiscounted"] * (undiscounted.mean > 0)
        if against:
            return Verdict("cannot tell", f"by FQE it is not better, by {', '.join(against)} it is", bound)
        return Verdict("not better", f"by FQE it earns between {-first.high:.4g} and {-first.low:.4g} less", bound)
    why = f"the difference may be as low as {bound:.4g} or as high as {first.high:.4g}"
    return Verdict("cannot tell", f"the log does not hold enough: {why}", bound)


def _no_answer(episodes: int, outside: float) -> str:
    """Why the log cannot answer, or nothing."""
    if episodes < FEW_EPISODES:
        return f"the log has {episodes} episodes; fewer than {FEW_EPISODES} say little about any policy"
    if outside > MAX_OUTSIDE:
        return (
            f"in {outside:.0%} of the log's states the policy does what the behavior hardly ever did, and the log does "
            "not say what happens then"
        )
    return ""
