"""Choosing among policies without a simulator: in the order of FQE's estimates, but only what is better by a bound.

An estimate is highest where an estimator errs most, so the best of many estimates is too good to be true. So only a
policy whose verdict is "better" is chosen: its bound is above 0 and the estimators agree. A policy that leaves the data
has no bound and comes last. Among the others FQE's estimate tells more apart than its bound, which punishes a spread
that all share (docs/estimates.md). Where no policy is better by the verdict, the honest answer is to clone the
behavior: what the log does is known to work as well as the log says.

With k policies one asks k times, so a bound at 95 % fails for some policy more often than once in twenty. Each one's
bound is kept as it is; the note says so.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from odice.data.dataset import Dataset
from odice.evaluation.ope.estimate import Estimates, estimate
from odice.evaluation.ope.verdict import JUDGES
from odice.policy.policy import Policy


class Ranked(NamedTuple):
    name: str
    estimates: Estimates

    @property
    def bound(self) -> float | None:
        return self.estimates.verdict.lower_bound

    @property
    def key(self) -> tuple[bool, float]:
        return key(self.bound, self.estimates.estimates["fqe"].improvement.mean)


def key(bound: float | None, fqe: float) -> tuple[bool, float]:
    """What is ranked by: those that the log can bound first, and FQE's estimate."""
    return (bound is not None, fqe)


class Selection(NamedTuple):
    ranked: tuple[Ranked, ...]
    """Best first."""
    choice: str | None
    """The policy to take, or None: clone the behavior."""
    advice: str


def select(policies: Mapping[str, Policy], data: Dataset, **settings: Any) -> Selection:
    """Rank policies by FQE's estimate of their improvement over the behavior; `settings` are those of `estimate`.

    Unless told otherwise only those are asked who have a say: a density ratio doubles the time.
    """
    settings = {"estimators": JUDGES, **settings}
    found = [Ranked(name, estimate(policy, data, **settings)) for name, policy in policies.items()]
    ranked = tuple(sorted(found, key=lambda one: one.key, reverse=True))
    best = next((one for one in ranked if one.estimates.verdict.answer == "better"), None)
    if best is not None:
        return Selection(ranked, best.name, f"take {best.name}: {best.estimates.verdict.reason}")
    answers = {one.estimates.verdict.answer for one in ranked}
    why = "every policy is not better" if answers == {"not better"} else "for none the log shows that it is better"
    return Selection(ranked, None, f"clone the behavior (odice train --algo bc): {why} than what made the log")
