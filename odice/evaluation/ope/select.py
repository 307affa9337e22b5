"""Choosing among policies without a simulator: by a bound on what each is better by, not by its estimate.

An estimate is highest where an estimator errs most, so the best of many estimates is too good to be true. FQE's lower
bound is punished for spread, and a policy that leaves the data has none and comes last. The other estimators take part
in the verdict, not in the order: one that lags behind at the behavior tells policies apart badly. Where no policy is
better by the verdict, the honest answer is to clone the behavior: what the log does is known to work as well as the
log says.

With k policies one asks k times, so a bound at 95 % fails for some policy more often than once in twenty. Each one's
bound is kept as it is; the note says so.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from odice.data.dataset import Dataset
from odice.evaluation.ope.estimate import Estimates, estimate
from odice.policy.policy import Policy


class Ranked(NamedTuple):
    name: str
    estimates: Estimates

    @property
    def bound(self) -> float | None:
        return self.estimates.verdict.lower_bound

    @property
    def key(self) -> tuple[bool, float]:
        return key(self.bound, self.estimates.estimates["fqe"].improvement.lower_bound)


def key(bound: float | None, fqe: float) -> tuple[bool, float]:
    """What is ranked by: those that the log can bound first, and FQE's own bound."""
    return (bound is not None, fqe)


class Selection(NamedTuple):
    ranked: tuple[Ranked, ...]
    """Best first."""
    choice: str | None
    """The policy to take, or None: clone the behavior."""
    advice: str


def select(policies: Mapping[str, Policy], data: Dataset, **settings: Any) -> Selection:
    """Rank policies by FQE's lower bound on their improvement over the behavior; `settings` are those of `estimate`."""
    found = [Ranked(name, estimate(policy, data, **settings)) for name, policy in policies.items()]
    ranked = tuple(sorted(found, key=lambda one: one.key, reverse=True))
    best = next((one for one in ranked if one.estimates.verdict.answer == "better"), None)
    if best is not None:
        return Selection(ranked, best.name, f"take {best.name}: {best.estimates.verdict.reason}")
    answers = {one.estimates.verdict.answer for one in ranked}
    why = "every policy is not better" if answers == {"not better"} else "for none the log shows that it is better"
    return Selection(ranked, None, f"clone the behavior (odice train --algo bc): {why} than what made the log")
