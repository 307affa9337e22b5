"""Early stopping without a simulator: by what `odice select` ranks by.

At every evaluation step the policy is estimated from the log alone. The run ends when so many estimates in a row were
no better than the best one before, and `policy/selected` is the policy of that best one. An estimate is a function of
the log, the policy and a fixed seed, so a run that was interrupted estimates again and gets the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from odice.data.dataset import Dataset
from odice.errors import OdiceError
from odice.evaluation.ope.episodes import check_log
from odice.evaluation.ope.estimate import estimate
from odice.evaluation.ope.select import Ranked
from odice.policy.policy import Policy
from odice.training.options import RunOptions


def log_to_judge_by(options: RunOptions, dataset: Dataset) -> Dataset:
    """The log that a run stops by; one that supports no estimate is refused before training."""
    if options.stream or options.imitation:
        why = "needs the log in memory; leave out --stream" if options.stream else "needs rewards; imitation has none"
        raise OdiceError(f"--patience {options.patience} {why}, or leave out --patience.")
    check_log(dataset, None)
    return dataset


class Patience:
    """Decides by estimates from the log when one seed has trained enough.

    Args:
        limit: How many estimates may pass without a better one.
        log: What the policy is estimated from.
    """

    def __init__(self, limit: int, log: Dataset):
        self._limit, self._log = limit, log
        self._rows: list[Mapping[str, Any]] = []

    def remember(self, rows: Iterable[Mapping[str, Any]]) -> None:
        """Take in the estimates before an interruption."""
        self._rows = list(rows)

    def estimate(self, step: int, policy: Policy) -> dict[str, Any]:
        """Estimate the policy; gives the row that is recorded."""
        ranked = Ranked(str(step), estimate(policy, self._log), None)
        verdict = ranked.verdict
        row = {"step": step, "answer": verdict.answer, "bound": verdict.lower_bound, "rank": list(ranked.key)}
        self._rows.append(row)
        return row

    @property
    def best(self) -> Mapping[str, Any] | None:
        """The best estimate; of equal ones the first."""
        return max(self._rows, key=lambda row: row["rank"]) if self._rows else None

    @property
    def enough(self) -> bool:
        """Whether the run should end."""
        return self.best is not None and len(self._rows) - self._rows.index(self.best) > self._limit
