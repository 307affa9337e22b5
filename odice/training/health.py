"""Whether a run learned: what its algorithm declares healthy, and what holds for every algorithm.

`Watch` checks each row of metrics while the run trains, `judge` all rows and the last policy when it ends. Neither
changes what is computed. Limits were calibrated on runs that are known to be good and to have failed
(docs/research/health.md).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np

from odice.algos import Entry
from odice.algos.health import Check
from odice.training.holdout import Probe
from odice.types import Acts

Verdict = Literal["good", "watch", "not checked", "do not deploy"]
State = Literal["good", "bad", "not checked"]
QUIET_SHARE = 0.2
"""In this share of the run nothing is said: networks start anywhere."""
KNOWABLE = 0.1
"""Where cloning gains less than this over chance, agreement with the log says nothing."""
COMMON = (
    Check("outside", 1 / 3, "at most", "in many states the policy does what the log hardly ever did there"),
    Check("memorized", 0.5, "at most", "the policy has learned its training episodes by heart"),
    Check("memorized", 0.25, "at most", "the policy fits its training episodes better than others", stop=False),
    Check("agreement", 0.25, "at least", "the policy agrees with the log hardly better than chance"),
    Check(
        "agreement",
        0.55,
        "at least",
        "the policy acts much less like the log than a clone does, for better or worse",
        stop=False,
    ),
    Check("drift", 0.2, "at most", "values or losses still move; train longer", stop=False),
)
"""For every algorithm. `agreement` is the policy's gain over chance as a share of cloning's, `memorized` the gain on
training episodes less that on held-out ones, `outside` a share of states."""
NEEDED = {
    "memorized": "no episodes were held out of training (--holdout), so learning by heart cannot be seen",
    "agreement": "the log's actions hardly depend on what was observed, so agreeing with them says nothing",
    "outside": "the log holds numbers that are not finite",
}
"""What must have been checked for a run to be called good -> why it was not."""


class Result(NamedTuple):
    """One check of a run: good, bad or not checked, and why."""

    metric: str
    state: State
    reason: str
    value: float | None


class FailedCheck(NamedTuple):
    """A check that failed, and the number that it failed for."""

    check: Check
    value: float

    def to_dict(self) -> dict[str, Any]:
        return {**self.check._asdict(), "value": self.value}


class Health(NamedTuple):
    """The health of a run, and what to do about it."""

    findings: tuple[FailedCheck, ...]
    measures: dict[str, float | None]
    """Every number that was compared with a limit; None is what the log cannot tell."""
    results: tuple[Result, ...] = ()
    """Every check, the bad ones first."""

    @property
    def verdict(self) -> Verdict:
        """The answer in a word or three."""
        if any(finding.check.stop for finding in self.findings):
            return "do not deploy"
        if self.findings:
            return "watch"
        return "not checked" if self._unknown else "good"

    @property
    def _unknown(self) -> list[Result]:
        return [result for result in self.results if result.state == "not checked" and result.metric in NEEDED]

    @property
    def sentence(self) -> str:
        """`do not deploy: ...`, `watch: ...`, `not checked: ...` or `good`."""
        worst = [each for each in self.findings if each.check.stop] or self.findings
        reasons = [each.check.describe(each.value) for each in worst] or [result.reason for result in self._unknown]
        return f"{self.verdict}: {'; '.join(reasons)}" if reasons else self.verdict

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values."""
        return {
            "verdict": self.verdict,
            "says": self.sentence,
            "findings": [finding.to_dict() for finding in self.findings],
            "checks": [result._asdict() for result in self.results],
            "measures": self.measures,
        }


class Watch:
    """Warns once per metric when a declared check fails in two consecutive rows of metrics.

    Args:
        algorithm: Declares the checks.
        steps: The length of the run.
        returns: The least and the largest discounted return of the log.
    """

    def __init__(self, algorithm: Entry, steps: int, returns: tuple[float, float]):
        self._algorithm, self._steps, self._returns = algorithm, steps, returns
        self._failed: set[Check] = set()
        self._reported: set[str] = set()

    def __call__(self, step: int, row: Mapping[str, float]) -> list[str]:
        """The warnings after this row."""
        if step < QUIET_SHARE * self._steps:
            return []
        numbers = {**row, **_excess(self._algorithm, row, self._returns)}
        failed = {
            check
            for check in self._algorithm.health
            if check.stop and check.metric in numbers and check.fails(numbers[check.metric])
        }
        bad = [check for check in self._algorithm.health if check in failed & self._failed]
        self._failed = failed
        said = []
        for check in bad:
            if check.metric not in self._reported:
                self._reported.add(check.metric)
                said.append(f"step {step:,}: {check.describe(numbers[check.metric])}")
        return said


def judge(algorithm: Entry, rows: Sequence[Mapping[str, Any]], policy: Acts, probe: Probe) -> Health:
    """The health of a finished run.

    Args:
        algorithm: Declares the checks, beside those for all algorithms.
        rows: The run's metrics.
        policy: Its last policy.
        probe: The transitions that the policy is compared with the log on.
    """
    measures: dict[str, float | None] = {}
    late = rows[-max(1, len(rows) // 4) :]
    declared = {check.metric for check in algorithm.health} | set(algorithm.value_metrics)
    for name in sorted(declared):
        numbers = [row[name] for row in late if row.get(name) is not None]
        if numbers:
            measures[name] = float(np.mean(numbers))
    known = {name: value for name, value in measures.items() if value is not None}
    if "value_excess" in declared:
        measures |= _excess(algorithm, known, probe.returns)
    measures |= _agreement(policy, probe)
    measures |= {"memorized": probe.memorized(policy), "outside": probe.outside(policy)}
    if drift := _drift(algorithm, rows):
        measures["drift"] = max(drift.values())
    return weigh(algorithm, measures)


def weigh(algorithm: Entry, measures: dict[str, float | None]) -> Health:
    """Compare numbers with the limits of an algorithm's checks, by the names of their metrics."""
    checks = (*algorithm.health, *COMMON)  # of two limits for one number the stricter sentence comes first
    failed: dict[str, FailedCheck] = {}
    for check in checks:
        value = measures.get(check.metric)
        if value is not None and check.fails(value):
            failed.setdefault(check.metric, FailedCheck(check, value))
    order: dict[State, int] = {"bad": 0, "not checked": 1, "good": 2}
    results = [_result(check, measures.get(check.metric), failed) for check in checks]
    unique = {result.metric: result for result in reversed(results)}.values()
    return Health(tuple(failed.values()), measures, tuple(sorted(unique, key=lambda result: order[result.state])))


def _result(check: Check, value: float | None, failed: Mapping[str, FailedCheck]) -> Result:
    if check.metric in failed:
        return Result(check.metric, "bad", failed[check.metric].check.describe(failed[check.metric].value), value)
    if value is None:
        return Result(check.metric, "not checked", NEEDED.get(check.metric, "the run did not measure it"), None)
    return Result(check.metric, "good", f"{value:.3g}, healthy {check.side} {check.limit:.3g}", value)


def _excess(algorithm: Entry, row: Mapping[str, float], returns: tuple[float, float]) -> dict[str, float]:
    """How far the mean values lie outside the log's discounted returns, in ranges of these returns."""
    low, high = returns
    values = [row[name] for name in algorithm.value_metrics if row.get(name) is not None]
    if not values or high <= low:
        return {}
    return {"value_excess": max(0.0, *(max(low - value, value - high) / (high - low) for value in values))}


def _agreement(policy: Acts, probe: Probe) -> dict[str, float | None]:
    gain, clone = probe.gain(policy), probe.yardsticks().clone_gain
    return {"policy_gain": gain, "clone_gain": clone, "agreement": gain / clone if clone >= KNOWABLE else None}


def _drift(algorithm: Entry, rows: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """How far a number moved between the last two quarters of the run, as a share of its range over the whole run."""
    quarter, moved = len(rows) // 4, {}
    names = [name for name in (*algorithm.value_metrics, "action_error") if rows and rows[-1].get(name) is not None]
    for name in names if quarter >= 2 else ():
        numbers = np.array([row[name] for row in rows if row.get(name) is not None])
        spread = np.ptp(numbers)
        if len(numbers) == len(rows) and spread > 0:
            moved[name] = float(abs(numbers[-quarter:].mean() - numbers[-2 * quarter : -quarter].mean()) / spread)
    return moved
