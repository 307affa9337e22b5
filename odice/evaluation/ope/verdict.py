"""Better than the behavior, not better, or cannot tell: with the reason.

A practitioner decides by a bound, not by an estimate: by how much is the policy better *at least*? The bound given is
the least, over FQE and the importance weights that can be used, of the value that the improvement J(pi) - J(behavior)
exceeds with 95 % confidence. A density ratio lags behind at the behavior, so it is asked for the sign alone.

    better       the bound is above 0
    not better   the interval of FQE's improvement lies below 0, or at most a hundredth of the returns' spread above it
    cannot tell  neither; or the log cannot answer (below), whatever the numbers say

The log cannot answer when there are few episodes, when the policy leaves the data, when fewer than two estimators can
be used, when these disagree on the sign, or when discounted and undiscounted return do. An estimator cannot be used
where too little of the log carries it. The limits are below; docs/estimates.md says how often they were right and
wrong.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, NamedTuple

import numpy as np

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
JUDGES = ("fqe", "importance", "doubly-robust", "gradient-dice")
"""Who is asked, if there: one of each kind. The other members of the DICE family are shown and not asked."""

BOUNDING = ("fqe", "importance", "doubly-robust")
"""Whose bounds count; the density ratio has a say on the sign."""
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
    bound = min((one.lower_bound for name, one in judges.items() if name in BOUNDING), default=None)
    if why := _no_answer(judges, undiscounted, episodes=episodes, outside=outside):
        return Verdict("cannot tell", why, None if outside > MAX_OUTSIDE or episodes < FEW_EPISODES else bound)
    assert bound is not None
    names = ", ".join(judges)
    if bound > 0:
        return Verdict("better", f"{names} agree that it earns at least {bound:.4g} more (95 % confidence)", bound)
    first = improvement["fqe"]
    if first.high <= SLACK * spread:
        return Verdict("not better", f"by FQE it earns between {-first.high:.4g} and {-first.low:.4g} less", bound)
    return Verdict(
        "cannot tell",
        f"the log does not hold enough: the difference may be as low as {bound:.4g} or as high as {first.high:.4g}",
        bound,
    )


def _no_answer(judges: Mapping[str, Interval], undiscounted: Interval, *, episodes: int, outside: float) -> str:
    """Why the log cannot answer, or nothing."""
    if episodes < FEW_EPISODES:
        return f"the log has {episodes} episodes; fewer than {FEW_EPISODES} say little about any policy"
    if outside > MAX_OUTSIDE:
        return (
            f"in {outside:.0%} of the log's states the policy does what the behavior hardly ever did, and the log does "
            "not "
            "say what happens then"
        )
    if len(judges) < 2 or "fqe" not in judges:
        found = f"only {next(iter(judges))} can" if judges else "none can"
        return f"of the estimators {found} be used on this log, so there is nothing to compare it with"
    signs = {name: np.sign(interval.mean) for name, interval in judges.items()}
    if len(set(signs.values())) > 1:
        up = [name for name, sign in signs.items() if sign > 0]
        down = [name for name, sign in signs.items() if sign <= 0]
        return f"the estimators disagree: {', '.join(up)} say better, {', '.join(down)} say not better"
    if np.sign(undiscounted.mean) != signs["fqe"]:
        return "it is better by the discounted return and not by the undiscounted one, or the other way round"
    return ""
