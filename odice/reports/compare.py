"""Compare runs: the seeds of a method on a data set, then methods over data sets.

A method is an algorithm with its settings. Settings are named only where they differ between runs of that algorithm on
the same data. The number of a run is the mean of its last evaluations, ten of them as in the paper. Only finished runs
count.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from odice.d4rl import normalized_score
from odice.errors import OdiceError
from odice.reports import statistics
from odice.reports.runs import FINAL, RunEvaluation, RunRecord, clean, read_runs
from odice.reports.statistics import BootstrapInterval, Profile
from odice.training.run import Run

if TYPE_CHECKING:
    from matplotlib.figure import Figure

TAUS = 101


class Curve(NamedTuple):
    """Mean over seeds at each step, and a band of one standard deviation, no further than the seeds themselves."""

    steps: list[int]
    mean: list[float]
    low: list[float]
    high: list[float]


def curve(at: Mapping[int, Sequence[float]]) -> Curve:
    """Step -> a value for each seed. Three seeds at 0, 0 and 100 percent have no band below 0."""
    steps = sorted(at)
    means = [float(np.mean(at[step])) for step in steps]
    spread = [float(np.std(at[step], ddof=1)) if len(at[step]) > 1 else 0.0 for step in steps]
    low = [max(m - s, min(at[step])) for step, m, s in zip(steps, means, spread, strict=True)]
    high = [min(m + s, max(at[step])) for step, m, s in zip(steps, means, spread, strict=True)]
    return Curve(steps, means, low, high)


@dataclass(frozen=True)
class Group:
    """The seeds of one method on one data set."""

    data: str
    method: str
    scored: bool
    """Whether numbers are normalized scores. Otherwise they are returns."""
    runs: tuple[RunRecord, ...]
    counted: int = FINAL
    """How many of a run's last evaluations its number is the mean of."""

    @property
    def unit(self) -> str:
        return "score" if self.scored else "return"

    @cached_property
    def finished(self) -> tuple[RunRecord, ...]:
        return tuple(run for run in self.runs if run.finished)

    @cached_property
    def finals(self) -> np.ndarray:
        """One number for each finished seed."""
        return np.array([self.final(run) for run in self.finished if run.evaluations], float)

    @property
    def std(self) -> float | None:
        """Over seeds, with n - 1."""
        return float(self.finals.std(ddof=1)) if len(self.finals) > 1 else None

    @cached_property
    def interval(self) -> BootstrapInterval | None:
        """The mean over seeds; its bootstrap interval needs at least two."""
        return statistics.interval([self.finals], statistics.mean) if len(self.finals) else None

    @property
    def last(self) -> float | None:
        return _mean(self.value(run.evaluations[-1]) for run in self._evaluated)

    @property
    def best(self) -> float | None:
        """The mean over seeds of each one's best evaluation. Choosing it uses the simulator."""
        return _mean(max(map(self.value, run.evaluations)) for run in self._evaluated)

    @property
    def worst(self) -> float | None:
        """The worst of all episodes of the final evaluations, of any seed."""
        return min(map(self.worst_of, self._evaluated), default=None)

    @property
    def final_evaluations(self) -> int:
        """How many evaluations the number of a run is the mean of, at least."""
        return min((len(run.evaluations[-self.counted :]) for run in self._evaluated), default=0)

    @property
    def updates_per_second(self) -> float | None:
        return _mean(run.updates_per_second for run in self.runs if run.updates_per_second)

    @property
    def health(self) -> str:
        """The verdicts of the runs' health checks, counted."""
        verdicts = Counter(run.health for run in self.finished if run.health)
        return ", ".join(f"{count} {verdict}" if len(self.runs) > 1 else verdict for verdict, count in verdicts.items())

    @property
    def curve(self) -> Curve:
        """Of the finished runs; of the others while there is none: a seed that ends early would bend the mean."""
        at: dict[int, list[float]] = defaultdict(list)
        for run in self.finished or self.runs:
            for point in run.evaluations:
                at[point.step].append(self.value(point))
        return curve(at)

    def final(self, run: RunRecord) -> float:
        return float(np.mean([self.value(point) for point in run.evaluations[-self.counted :]]))

    def worst_of(self, run: RunRecord) -> float:
        return min(self.number(point.worst, point) for point in run.evaluations[-self.counted :])

    def value(self, point: RunEvaluation) -> float:
        return self.number(point.mean, point)

    def number(self, returns: float, point: RunEvaluation) -> float:
        return float(normalized_score(returns, point.reference)) if self.scored else returns

    @property
    def _evaluated(self) -> list[RunRecord]:
        return [run for run in self.finished if run.evaluations]


@dataclass(frozen=True)
class Aggregate:
    """One method over the data sets that all compared methods have."""

    method: str
    runs: int
    mean: BootstrapInterval
    iqm: BootstrapInterval
    gap: BootstrapInterval | None
    """Optimality gap to a score of 100; returns have no such mark."""


@dataclass(frozen=True)
class Comparison:
    """The groups of runs that a report shows, and notes on runs that were left out."""

    groups: tuple[Group, ...]
    notes: tuple[str, ...]

    def __repr__(self) -> str:
        return f"Comparison({', '.join(self.methods)} on {', '.join(self.data)})"

    def plot(self) -> Figure:
        """The learning curves of every data set with bands, and the performance profiles where there are any."""
        from odice.notebook import picture
        from odice.reports.curves import comparison_figure

        return picture(comparison_figure(self))

    def _repr_html_(self) -> str:
        from odice.notebook import table
        from odice.reports.tables import tables

        each = [
            table(one.title, one.head, [[cell.text for cell in row] for row in one.rows], one.note)
            for one in tables(self)
        ]
        return "".join(each) + "".join(table(note, (), ()) for note in self.notes)

    @cached_property
    def data(self) -> list[str]:
        return list(dict.fromkeys(group.data for group in self.groups))

    @cached_property
    def methods(self) -> list[str]:
        return list(dict.fromkeys(group.method for group in self.groups))

    def of(self, data: str) -> list[Group]:
        return [group for group in self.groups if group.data == data]

    @cached_property
    def shared(self) -> tuple[list[str], dict[str, list[Group]]]:
        """The data sets to aggregate over, and the methods that have finished runs on all of them.

        Numbers of different data sets can be averaged only where they are normalized scores; a single data set may have
        returns.
        """
        scored = [group for group in self.groups if group.scored and len(group.finals)]
        return _shared(scored) if scored or len(self.data) > 1 else self.ranked

    @cached_property
    def ranked(self) -> tuple[list[str], dict[str, list[Group]]]:
        """The data sets and methods of statistics that compare runs within a data set only, where returns will do."""
        return _shared([group for group in self.groups if len(group.finals)])

    @cached_property
    def aggregates(self) -> list[Aggregate]:
        """Mean, IQM and optimality gap of every method over the shared data sets."""
        _, methods = self.shared
        aggregates = []
        for method, groups in methods.items():
            tasks = [group.finals for group in groups]
            gap = statistics.interval(tasks, statistics.optimality_gap) if groups[0].scored else None
            mean, iqm = (statistics.interval(tasks, each) for each in (statistics.mean, statistics.iqm))
            aggregates.append(Aggregate(method, sum(map(len, tasks)), mean, iqm, gap))
        return aggregates

    @cached_property
    def improvement(self) -> dict[tuple[str, str], BootstrapInterval]:
        """The probability that a run of the first method beats one of the second."""
        probabilities = {}
        for (x, xs), (y, ys) in combinations(self.ranked[1].items(), 2):
            one = statistics.probability_of_improvement([g.finals for g in xs], [g.finals for g in ys])
            probabilities[x, y] = one
            probabilities[y, x] = BootstrapInterval(1 - one.value, 1 - one.high, 1 - one.low)
        return probabilities

    @cached_property
    def profiles(self) -> dict[str, Profile]:
        """The performance profile of every method over the shared data sets; empty if they share none."""
        _, methods = self.shared
        if not methods:
            return {}
        finals = np.concatenate([group.finals for groups in methods.values() for group in groups])
        scored = next(iter(methods.values()))[0].scored
        ends = (min(finals.min(), 0.0), max(finals.max(), 100.0)) if scored else (finals.min(), finals.max())
        taus = np.linspace(*ends, TAUS)
        return {
            method: statistics.performance_profile([g.finals for g in groups], taus)
            for method, groups in methods.items()
        }


def compare(runs: Iterable[str | Path | Run], last: int = FINAL) -> Comparison:
    """Read run folders, or folders of them, and group the runs; a run counts by the mean of its `last` evaluations."""
    if last < 1:
        raise OdiceError(f"The number of a run is the mean of at least 1 evaluation, got {last} (--last).")
    records, skipped = read_runs(runs)
    if not records:
        why = f" ({skipped[0]})" if skipped else ""
        raise OdiceError(f"There is no run to report on{why}: name at least one run directory, or a folder of them.")
    records, same_name = _number_data(records)
    records, copies = _without_copies(records)
    groups: dict[tuple[str, str], list[RunRecord]] = defaultdict(list)
    labels = _labels(records)
    for run in records:
        groups[run.data, labels[id(run)]].append(run)
    scored = {
        data: all(point.reference for run in records if run.data == data for point in run.evaluations)
        for data in {run.data for run in records}
    }
    made = [
        Group(data, method, scored[data], tuple(sorted(members, key=lambda run: run.seed)), last)
        for (data, method), members in groups.items()
    ]
    return Comparison(
        tuple(sorted(made, key=lambda group: (group.data, _order(group.method)))), (*skipped, *same_name, *copies)
    )


def _number_data(runs: list[RunRecord]) -> tuple[list[RunRecord], list[str]]:
    """Give the same data one name, and number different data of the same name."""
    names: dict[str, str] = {}
    runs = [replace(run, data=names.setdefault(run.fingerprint, run.data)) for run in runs]
    seen: dict[str, dict[str, int]] = defaultdict(dict)
    for run in runs:
        seen[run.data].setdefault(run.fingerprint, len(seen[run.data]) + 1)
    several = {name for name, fingerprints in seen.items() if len(fingerprints) > 1}
    notes = [
        f"{name} is the name of {len(seen[name])} data sets or environments that differ; they are kept apart."
        for name in sorted(several)
    ]
    numbered = [
        replace(run, data=f"{run.data} ({seen[run.data][run.fingerprint]})") if run.data in several else run
        for run in runs
    ]
    return numbered, notes


def _without_copies(runs: list[RunRecord]) -> tuple[list[RunRecord], list[str]]:
    """Keep one run of each configuration and seed, a finished one if there is: a copy is not a second seed."""
    kept: dict[tuple[object, ...], RunRecord] = {}
    notes = []
    for run in sorted(runs, key=lambda run: not run.finished):
        key = (run.data, run.algo, run.seed, tuple(sorted(run.settings.items())))
        if key in kept:
            notes.append(
                f"left out: {clean(run.path, 300)} is the same run as {clean(kept[key].path, 300)} (same settings, "
                "data and seed)."
            )
        else:
            kept[key] = run
    counted = {id(run) for run in kept.values()}
    return [run for run in runs if id(run) in counted], notes


def _labels(runs: list[RunRecord]) -> dict[int, str]:
    """The method of each run: its algorithm, and the settings that differ on the same data."""
    by_algo: dict[tuple[str, str], list[dict[str, str]]] = defaultdict(list)
    for run in runs:
        by_algo[run.algo, run.data].append(run.settings)
    differing: dict[str, set[str]] = defaultdict(set)
    for (algo, _), settings in by_algo.items():
        names = {name for each in settings for name in each}
        differing[algo] |= {name for name in names if len({each.get(name) for each in settings}) > 1}
    return {
        id(run): " ".join([run.algo, *(f"{n}={run.settings.get(n, '–')}" for n in sorted(differing[run.algo]))])
        for run in runs
    }


def _shared(groups: list[Group]) -> tuple[list[str], dict[str, list[Group]]]:
    """The most data sets that any method has, and the methods that have them all."""
    by_method: dict[str, dict[str, Group]] = defaultdict(dict)
    for group in groups:
        by_method[group.method][group.data] = group
    if not by_method:
        return [], {}
    sets = [frozenset(by_data) for by_data in by_method.values()]
    covering = {each: sum(each <= other for other in sets) for each in sets}
    chosen = max(covering, key=lambda each: (len(each), covering[each], sorted(each)))
    data = sorted(chosen)
    covering_methods = {method: by_data for method, by_data in by_method.items() if chosen <= set(by_data)}
    return data, {method: [by_data[name] for name in data] for method, by_data in covering_methods.items()}


def _order(method: str) -> tuple[str, str]:
    algo, _, settings = method.partition(" ")
    return algo, settings


def _mean(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return float(np.mean(known)) if known else None
