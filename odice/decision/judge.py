"""What a log says about one policy: what it would earn and cost, and what else would change, in the log's units."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np

from odice.data.dataset import Dataset
from odice.data.load import find, load
from odice.data.schema import Schema
from odice.errors import OdiceError
from odice.evaluation.ope.estimate import Estimates, estimate
from odice.evaluation.ope.held_out import evaluation_episodes
from odice.evaluation.ope.intervals import Interval
from odice.policy.policy import Policy

COMPLETE = 0.9
"""Share of the episodes that must be complete within the steps that count."""

Limit = Literal["kept", "broken", "not known"]


class Effect(NamedTuple):
    """What a quantity is per episode today, and how the policy would change it."""

    name: str
    today: Interval
    change: Interval
    by: tuple[str, ...]
    """The estimators behind it."""
    supported: bool = True
    """Whether the log has the two kinds of evidence that a range needs; else a model's guess is all there is."""

    @property
    def policy(self) -> Interval:
        """The quantity under the policy."""
        return Interval(*(self.today.mean + end for end in self.change))


@dataclass(frozen=True)
class Judgment:
    """Everything that a log says about one policy."""

    estimates: Estimates
    cost: Effect | None = None
    limit: float | None = None
    """The most that an episode may cost on average."""
    outcomes: tuple[Effect, ...] = ()

    @property
    def keeps_limit(self) -> Limit | None:
        """Whether the policy's cost stays within the limit; None where there is no limit or no cost."""
        if self.limit is None or self.cost is None:
            return None
        cost = self.cost.policy
        if not self.cost.supported:
            return "not known"
        return "kept" if cost.high <= self.limit else "broken" if cost.low > self.limit else "not known"

    @property
    def today_breaks_limit(self) -> bool:
        """Whether what is done today costs more than the limit, for sure."""
        return self.limit is not None and self.cost is not None and self.cost.today.low > self.limit

    @property
    def gain(self) -> Effect:
        """What the policy would earn."""
        return effect("earned", self.estimates)

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values, without the estimates."""
        plain = lambda one: {
            "name": one.name,
            "today": one.today._asdict(),
            "change": one.change._asdict(),
            "supported": one.supported,
        }
        return {
            "cost": None if self.cost is None else plain(self.cost),
            "cost_limit": self.limit,
            "keeps_limit": self.keeps_limit,
            "outcomes": [plain(one) for one in self.outcomes],
        }


def effect(name: str, estimates: Estimates) -> Effect:
    """Summarize estimates as one change: the mean of their means, with the range that covers all their intervals.

    Counted are the estimators that the verdict rests on; without any, those that are usable.
    """
    found = estimates.estimates
    usable = [key for key, one in found.items() if not one.unusable]
    by = tuple(key for key in estimates.verdict.witnesses if key in found) or tuple(usable) or ("fqe",)
    every = [found[key].improvement for key in by]
    center = float(np.mean([e.mean for e in every]))
    change = Interval(center, min(e.low for e in every), max(e.high for e in every), min(e.lower_bound for e in every))
    return Effect(name, estimates.behavior, change, by, bool(estimates.verdict.witnesses))


def steps_that_count(data: Dataset) -> int | None:
    """Return the most steps within which nine of ten episodes are complete; None if that is the longest episode.

    An episode is complete within n steps if it terminates by then or has at least n steps. Where a log only stops, as a
    weekly panel does, longer episodes would be compared with shorter ones.
    """
    lengths, longest = data.lengths, int(data.lengths.max())
    for steps in np.unique(lengths)[::-1]:
        if np.mean((lengths >= steps) | data.terminated) >= COMPLETE:
            return None if steps == longest else int(steps)
    return 1


def judge(
    policy: Any,
    data: Dataset,
    estimates: Estimates,
    *,
    log: Any = None,
    schema: Schema | None = None,
    limit: float | None = None,
    seed: int = 0,
    candidates: int = 1,
) -> Judgment:
    """Estimate the costs and the further outcomes of a policy.

    Args:
        policy: The policy.
        data: The log.
        estimates: What the log says about its reward.
        log: Where the log was read from, for the outcomes that a schema names.
        schema: The schema it was read with.
        limit: The most that an episode may cost on average; by default the schema's.
        seed: Of the estimators.
        candidates: How many bounds hold at once.
    """
    options = {"discount": estimates.discount, "horizon": estimates.horizon, "seed": seed, "candidates": candidates}
    limit = limit if limit is not None or schema is None else schema.cost_limit
    episodes = evaluation_episodes(policy, data)
    judged = episodes.data
    cost = None if data.costs is None else _effect_of("cost", policy, judged, judged.costs, options)
    if limit is not None and data.costs is None:
        raise OdiceError(f"{data.meta.source}: there is a limit on the cost and no cost; name its column as `cost`.")
    outcomes = []
    if schema is not None and isinstance(log, str | Path) and find(log).format == "table":
        for name in schema.outcomes:
            other = _with_reward(policy, log, schema, name)
            if other.n_episodes == data.n_episodes and other.n_steps == data.n_steps:
                outcomes.append(_effect_of(name, policy, judged, episodes.of(other).rewards, options))
    return Judgment(estimates, cost, limit, tuple(one for one in outcomes if one is not None))


def _with_reward(policy: Any, log: str | Path, schema: Schema, name: str) -> Dataset:
    other = dataclasses.replace(schema, reward=name, outcomes=(), cost=None)
    return load(log, schema=other, encoding=policy.encoding if isinstance(policy, Policy) else None)


def _effect_of(
    name: str, policy: Any, data: Dataset, values: np.ndarray | None, options: Mapping[str, Any]
) -> Effect | None:
    """Estimate a quantity in the place of the reward; nothing if it is always 0."""
    if values is None or not np.any(values):
        return None
    quantity = dataclasses.replace(data, rewards=np.asarray(values, np.float32))
    return effect(name, estimate(policy, quantity, **options))
