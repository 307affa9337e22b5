"""Which episodes of a log may be used to evaluate a policy: those it was not trained on.

A policy that was trained on some episodes has fitted their luck, and every estimate from the same episodes is then too
high. A run writes into its policy which log it read (a fingerprint) and what share of it was held out; the split is a
function of the two, so the held-out episodes are the same again in the same log.
"""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

from odice.data.dataset import Dataset
from odice.evaluation.ope.candidate import Candidate
from odice.policy.policy import Policy

Origin = Literal["held out", "trained on", "another log"]


class EvaluationEpisodes(NamedTuple):
    """The episodes that a policy is evaluated on."""

    data: Dataset
    origin: Origin
    share: float | None = None
    """The share of the log that was held out, where these are the held-out episodes."""

    def of(self, other: Dataset) -> Dataset:
        """The same episodes of a log that differs from the first in its rewards only."""
        return other if self.share is None else other.split(self.share)[0]

    @property
    def sentence(self) -> str:
        """What a reader must know about them."""
        n = self.data.n_episodes
        if self.origin == "held out":
            return f"judged by the {n:,} episodes that were held out of its training"
        if self.origin == "trained on":
            return "these episodes trained the policy, so they cannot say how good it is"
        return f"judged by {n:,} episodes of a log that the policy does not name as its training data"


def evaluation_episodes(candidate: Candidate, data: Dataset) -> EvaluationEpisodes:
    """The episodes of a log that may be used to evaluate a candidate.

    Of the log that a policy was trained on these are the episodes that its run held out, or all if it held out none. Of
    any other log, and for a candidate that is no `Policy`, all.
    """
    trained: Any = candidate.about.get("data") if isinstance(candidate, Policy) else None
    if not isinstance(trained, dict) or trained.get("fingerprint") != data.fingerprint:
        return EvaluationEpisodes(data, "another log")
    share = trained.get("holdout")
    if isinstance(share, float) and 0 < round(share * data.n_episodes) < data.n_episodes:
        return EvaluationEpisodes(data.split(share)[0], "held out", share)
    return EvaluationEpisodes(data, "trained on")
