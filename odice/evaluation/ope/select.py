"""Choose among policies without a simulator, with bounds that hold for all of them at once.

Every candidate is evaluated on episodes that it was not trained on. Of k candidates each bound is stated at an error
rate of 5 % / k (Bonferroni), so the chance that any of them is false, that of the best included, is at most 5 %. Only a
policy whose verdict is "better", and which the health check of its run does not refuse, is advised; among several the
one with the highest bound. Where there is none, the advice is to clone the behavior, which earns what the log shows.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from odice.data.dataset import Dataset
from odice.errors import OdiceError
from odice.evaluation.ope.candidate import Candidate
from odice.evaluation.ope.estimate import Estimates, estimate
from odice.evaluation.ope.verdict import Verdict
from odice.policy.policy import Policy

REFUSED = "do not deploy"


@dataclass(frozen=True)
class Ranked:
    """One candidate, and what the log says about it."""

    name: str
    estimates: Estimates
    health: str | None
    """What its run's health check says, where it comes from a run."""

    @property
    def verdict(self) -> Verdict:
        return self.estimates.verdict

    @property
    def refused(self) -> bool:
        """Whether the health check of its run refuses it."""
        return self.health == REFUSED

    @property
    def key(self) -> tuple[bool, bool, float, float]:
        """What candidates are ranked by, larger is better: advisable, within what the log can confirm, bound, FQE."""
        better = self.verdict.answer == "better" and not self.refused
        bound = self.verdict.lower_bound
        return (better, self.verdict.smallest is not None, (bound or 0.0) if better else 0.0, self.fqe)

    @property
    def fqe(self) -> float:
        """How much more than the behavior it earns, by FQE."""
        return self.estimates.estimates["fqe"].improvement.mean

    def to_dict(self) -> dict[str, Any]:
        return {"name": self.name, "health": self.health, **self.estimates.to_dict()}


@dataclass(frozen=True)
class Selection:
    """All candidates, best first, and which to take."""

    ranked: tuple[Ranked, ...]
    choice: str | None
    """The policy to take, or None: clone the behavior."""
    advice: str

    def to_dict(self) -> dict[str, Any]:
        return {"choice": self.choice, "advice": self.advice, "ranked": [one.to_dict() for one in self.ranked]}


def select(
    candidates: Mapping[str, Candidate], data: Dataset, *, bounds: int | None = None, **settings: Any
) -> Selection:
    """Evaluate candidates on a log, rank them, and say which to take, if any.

    Args:
        candidates: Policies by name.
        data: The log. Of a policy that was trained on it, only the held-out episodes are used.
        bounds: How many bounds hold at once; by default one for each candidate.
        **settings: Those of `estimate`.

    Returns:
        The candidates with their verdicts; all bounds hold at once with 95 % confidence.
    """
    if not candidates:
        raise OdiceError("Name at least one run or policy.")
    bounds = len(candidates) if bounds is None else bounds
    evaluated = [
        Ranked(name, estimate(policy, data, candidates=bounds, **settings), health_of(policy))
        for name, policy in candidates.items()
    ]
    ranked = tuple(sorted(evaluated, key=lambda one: one.key, reverse=True))
    best = ranked[0]
    if best.verdict.answer == "better" and not best.refused:
        return Selection(ranked, best.name, f"take {best.name}: {best.verdict.reason}")
    return Selection(ranked, None, f"clone the behavior (odice train --algo bc): {_why_none(ranked)}")


def health_of(candidate: Candidate) -> str | None:
    """The health verdict in a policy's description, if it has one."""
    health = candidate.about.get("health") if isinstance(candidate, Policy) else None
    verdict = health.get("verdict") if isinstance(health, Mapping) else None
    return verdict if isinstance(verdict, str) else None


def _why_none(ranked: tuple[Ranked, ...]) -> str:
    refused = [one.name for one in ranked if one.refused and one.verdict.answer == "better"]
    if refused:
        return f"health refuses {', '.join(refused)}, and the log shows no other policy to be better"
    if all(one.verdict.answer == "not better" for one in ranked):
        return "no policy is better than what made the log"
    return "the log shows no policy to be better than what made it"
