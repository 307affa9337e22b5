"""Which episodes of a log may be used to evaluate a policy: those it was not trained on.

A policy that was trained on some episodes has fitted their luck, and every estimate from the same episodes is then too
high. A run writes into its policy which log it read (a fingerprint) and what share of it was held out; the split is a
function of the two, so the held-out episodes are the same again in the same log.
"""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

import numpy as np

from odice.data.dataset import Dataset
from odice.evaluation.ope.candidate import Candidate
from odice.policy.policy import Policy

Origin = Literal["held out", "trained on", "another log"]


class EvaluationEpisodes(NamedTuple):
    """The episodes that a policy is evaluated on."""

    data: Dataset
    origin: Origin
    chosen: np.ndarray | None = None
    """Their numbers in the log; None if these are all."""
    copies: int = 0
    """Episodes that were left out because they repeat another one."""

    def of(self, other: Dataset) -> Dataset:
        """The same episodes of a log that differs from the first in its rewards only."""
        return other if self.chosen is None else other.select(self.chosen)

    @property
    def sentence(self) -> str:
        """What a reader must know about them."""
        n = self.data.n_episodes
        again = f"; {self.copies:,} copies of them are not counted" if self.copies else ""
        if self.origin == "held out":
            return f"judged by the {n:,} episodes that were held out of its training{again}"
        if self.origin == "trained on":
            return "these episodes trained the policy, so they cannot say how good it is"
        return f"judged by {n:,} episodes of a log that the policy does not name as its training data{again}"


def evaluation_episodes(candidate: Candidate, data: Dataset) -> EvaluationEpisodes:
    """Return the episodes of a log that may be used to evaluate a candidate; one that occurs several times counts once.

    Of the log that a policy was trained on these are the episodes that its run held out, or all if it held out none. Of
    any other log, and for a candidate that is no `Policy`, all.
    """
    trained: Any = candidate.about.get("data") if isinstance(candidate, Policy) else None
    if not isinstance(trained, dict) or trained.get("fingerprint") != data.fingerprint:
        return _once(data, "another log", np.ones(data.n_episodes, bool))
    share = trained.get("holdout")
    if isinstance(share, float) and 0 < round(share * len(data.originals)) < len(data.originals):
        return _once(data, "held out", data.drawn(share))
    return EvaluationEpisodes(data, "trained on")


def _once(data: Dataset, origin: Origin, which: np.ndarray) -> EvaluationEpisodes:
    """Return these episodes without the copies among them."""
    chosen = np.intersect1d(np.flatnonzero(which), data.originals)
    if len(chosen) == data.n_episodes:
        return EvaluationEpisodes(data, origin)
    return EvaluationEpisodes(data.select(chosen), origin, chosen, int(which.sum()) - len(chosen))
