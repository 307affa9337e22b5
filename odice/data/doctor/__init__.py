"""The data doctor: checks a data set and says in words what is wrong with it, and what to do.

    report = odice.data.doctor.inspect(dataset)
    for finding in report.findings: ...

Errors stop training (`check`), unless a person has read them and allows them by name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from odice.data.dataset import Dataset
from odice.data.doctor import alignment, dynamics, episodes, leaks, order, values
from odice.data.doctor.finding import Finding
from odice.data.doctor.scan import Scan, scan
from odice.data.summary import summarize
from odice.errors import OdiceError, unknown_name

Check = Callable[[Scan], Iterator[Finding]]

DOUBTS = (order.trend, order.groups, order.contradicted_propensities)
"""What forbids a verdict about a policy: the bounds would be false."""


def _doubts(seen: Scan) -> Iterator[Finding]:
    yield from doubts(seen.dataset)


CHECKS: tuple[Check, ...] = (
    values.not_finite,
    values.reward_signal,
    values.action_bounds,
    values.action_kind,
    values.constant_columns,
    values.duplicate_columns,
    values.extreme_values,
    values.far_from_zero,
    values.in_maze_walls,
    episodes.reader_evidence,
    episodes.timeouts_as_terminals,
    episodes.terminal_runs,
    episodes.shifted_rewards,
    episodes.duplicate_episodes,
    episodes.few_episodes,
    dynamics.teleports,
    alignment.misaligned_rewards,
    leaks.leaked_steps,
    leaks.leaked_returns,
    leaks.time_backwards,
    _doubts,
)

# every code a finding can have -> what it means, in half a sentence
CODES = {
    "not-finite": "NaN or infinity in the data",
    "zero-rewards": "all rewards are zero",
    "constant-rewards": "all rewards are equal and nothing terminates",
    "action-out-of-bounds": "actions outside the declared bounds",
    "unknown-bounds": "actions beyond -1 to 1 and no bounds declared",
    "unused-actions": "discrete actions that never occur",
    "whole-number-actions": "discrete actions read as continuous",
    "constant-column": "columns that never change",
    "duplicate-column": "observation columns that repeat another",
    "extreme-value": "values far beyond all others",
    "rounded-column": "offsets too large for float32",
    "in-walls": "positions inside a maze's walls",
    "next-mismatch": "next observations that are not the following row",
    "unfinished": "episodes that end without a flag",
    "step-gap": "rows missing inside episodes",
    "flags-inside-episode": "end flags inside an episode number",
    "timeouts-as-terminals": "time limits written as terminals",
    "terminal-runs": "runs of terminal rows",
    "shifted-rewards": "rewards one row off the goal",
    "duplicate-episodes": "episodes that occur twice",
    "few-episodes": "too few episodes to split",
    "teleport": "jumps inside episodes",
    "leaked-action": "observation columns that give away the action",
    "leaked-reward": "observation columns that give away the reward",
    "leaked-end": "observation columns that give away the end of an episode",
    "leaked-future": "observation columns that give away the next step",
    "leaked-return": "observation columns that give away the return",
    "id-column": "observation columns that number the episodes",
    "time-backwards": "a clock that runs backwards inside episodes",
    "trend": "rewards and actions that change together along the log",
    "grouped-rows": "rows that belong together without an episode column",
    "wrong-propensities": "stated probabilities that contradict the log",
}
_RANK = {"error": 0, "warning": 1, "note": 2}


@dataclass(frozen=True)
class Report:
    """Numbers about a data set, and the findings, the worst first."""

    summary: dict[str, Any]
    findings: tuple[Finding, ...]

    @property
    def errors(self) -> tuple[Finding, ...]:
        return tuple(f for f in self.findings if f.severity == "error")

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values."""
        return {"summary": self.summary, "findings": [f.to_dict() for f in self.findings]}


def inspect(dataset: Dataset) -> Report:
    """Run all checks on a data set: one pass for the numbers, one for the jumps; data on disk are read in blocks."""
    # Numbers near the ends of float32 overflow in squares; the findings name them. The products are small: on a busy
    # machine BLAS's threads wait for each other longer than one of them works.
    with np.errstate(all="ignore"), threadpool_limits(1, "blas"):
        seen = scan(dataset)
        findings = [finding for one in CHECKS for finding in one(seen)]
        summary = summarize(seen)
    findings.sort(key=lambda f: _RANK[f.severity])
    return Report(summary, tuple(findings))


def doubts(dataset: Dataset) -> tuple[Finding, ...]:
    """The findings that forbid a verdict about any policy."""
    with np.errstate(all="ignore"), threadpool_limits(1, "blas"):
        return tuple(finding for one in DOUBTS for finding in one(dataset))


def check(dataset: Dataset, allow: Iterable[str] = ()) -> Report:
    """Inspect a data set, and raise an `OdiceError` if it has errors whose codes are not in `allow` (`"all"`: any)."""
    allowed = set(allow)
    for code in allowed - {"all"}:
        if code not in CODES:
            raise unknown_name("finding to allow", code, [*CODES, "all"])
    report = inspect(dataset)
    serious = [f for f in report.errors if f.code not in allowed and "all" not in allowed]
    if serious:
        more = f" (and {len(serious) - 1} more)" if len(serious) > 1 else ""
        codes = " ".join(dict.fromkeys(f.code for f in serious))
        first = serious[0]
        raise OdiceError(
            f"{dataset.meta.source}: {first.message}{more} {first.advice} To go on anyway: --allow {codes}."
        )
    return report
