"""Run directories as a report reads them.

A folder may come from anyone: numbers that are not finite count as missing, and names are cut to one short line of
printable characters before anything else sees them.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

import numpy as np

from odice.d4rl import normalized_score
from odice.errors import OdiceError
from odice.training.directory import log_checksum, read_record
from odice.training.loggers import MAX_STEP, rows
from odice.training.run import ESTIMATE, Run

MAX_NAME = 80
FILES = (".parquet", ".csv", ".npz", ".hdf5", ".h5", ".json", ".jsonl", ".arrow", ".feather")
"""Suffixes that are dropped from a data set's name."""
LARGEST = 1e100
"""No return is larger, and the square of one is still a number."""
NOT_SETTINGS = ("seed", "data", "env", "algo", "suboptimal")
"""Entries of a configuration that have columns of their own."""

FINAL = 10
"""Evaluations whose mean is the number of a run: the paper's protocol."""


class RunEvaluation(NamedTuple):
    """One evaluation of a run."""

    step: int
    mean: float
    worst: float
    reference: tuple[float, float] | None
    """Returns of a random and of an expert policy; without them there is no normalized score."""


@dataclass(frozen=True)
class RunRecord:
    """One run of one seed."""

    path: Path
    data: str
    """A short name of the data set."""
    fingerprint: str
    """The fingerprints of the data set and of the suboptimal data, and the evaluation environment."""
    algo: str
    seed: int
    settings: dict[str, str]
    """All other settings, flat, as text."""
    steps: int
    """Updates of the plan."""
    step: int
    """Updates that are done."""
    finished: bool
    evaluations: tuple[RunEvaluation, ...]
    updates_per_second: float | None
    health: str | None
    """The verdict of the run's own health checks, where there is one."""
    estimate: str | None = None
    """Whether a log says that its policy is better, where it was judged by one."""


def read_runs(paths: Iterable[str | Path | Run]) -> tuple[list[RunRecord], list[str]]:
    """The runs in these folders and below them, and a sentence for each one that was left out."""
    records: dict[Path, RunRecord] = {}
    notes: list[str] = []
    for path in _folders(paths):
        if path.resolve() in records:
            continue
        try:
            records[path.resolve()] = read_run(path)
        except OdiceError as error:
            notes.append(f"left out: {clean(error, 300)}")
    return list(records.values()), notes


def read_run(path: Path) -> RunRecord:
    """One run, finished or not."""
    record = read_record(path / "config.json")
    config, facts = record.get("config"), record.get("data")
    if not isinstance(config, dict) or not isinstance(config.get("algo"), str):
        raise OdiceError(f"{path / 'config.json'}: not the configuration of a run (no algorithm in it); leave it out.")
    facts = facts if isinstance(facts, Mapping) else {}
    result = read_record(path / "result.json") if (path / "result.json").exists() else {}
    written = log_checksum(result, "evaluations.jsonl")
    evaluations = tuple(filter(None, map(_point, rows(path / "evaluations.jsonl", written))))
    timing = rows(path / "timing.jsonl")
    rates = [rate for row in timing if (rate := _finite(row.get("updates_per_second")))]
    done = [row["step"] for row in (*timing[-1:], *rows(path / "metrics.jsonl")[-1:])]
    done += [point.step for point in evaluations[-1:]]
    health = result.get("health")
    verdict = health.get("verdict") if isinstance(health, Mapping) else None
    judged = read_record(path / ESTIMATE) if (path / ESTIMATE).exists() else {}
    answer = judged.get("answer")
    return RunRecord(
        path=path,
        data=data_name(str(facts.get("source", "unknown data"))),
        fingerprint=clean([config.get(name) for name in ("data", "suboptimal", "env")], 300),
        algo=clean(config["algo"]),
        seed=_count(config.get("seed")),
        settings=dict(_flat({name: value for name, value in config.items() if name not in NOT_SETTINGS})),
        steps=_count(config.get("steps")),
        step=_count(result.get("step")) or max(done, default=0),
        finished=bool(result),
        evaluations=evaluations,
        updates_per_second=float(np.median(rates)) if rates else None,
        health=clean(verdict) if isinstance(verdict, str) else None,
        estimate=clean(answer) if isinstance(answer, str) else None,
    )


def data_name(source: str) -> str:
    """A file's name without its folder and suffix; any other name as it is."""
    file = PurePosixPath(source)
    is_file = file.suffix.lower() in FILES
    return clean(file.stem if is_file else file.name if source[:1] in "/.~" and file.name else source)


def clean(value: Any, length: int = MAX_NAME) -> str:
    """One short line without control characters."""
    line = "".join(letter if letter.isprintable() else "\ufffd" for letter in str(value)[: length + 1])
    return line if len(line) <= length else f"{line[: length - 1]}…"


def _folders(paths: Iterable[str | Path | Run]) -> Iterator[Path]:
    """Every run's folder."""
    for given in paths:
        if isinstance(given, Run):
            yield from (run.path for run in given.seeds or (given,))
            continue
        top, count = Path(given), 0
        if (top / "config.json").exists():
            yield top
            continue
        for folder, inner, files in os.walk(top):
            if "config.json" in files:
                count += 1
                yield Path(folder)
                inner.clear()  # a run holds no other runs
            inner.sort()
        if not count:
            raise OdiceError(f"{clean(top, 300)} holds no run: there is no config.json in it or below it.")


def _point(row: Mapping[str, Any]) -> RunEvaluation | None:
    mean, worst = _finite(row.get("mean")), _finite(row.get("worst"))
    if mean is None:
        return None
    pair = row.get("reference")
    ends = [_finite(end) for end in pair] if isinstance(pair, list) and len(pair) == 2 else [None, None]
    low, high = ends
    known = low is not None and high is not None and normalized_score(mean, (low, high)) is not None
    return RunEvaluation(row["step"], mean, mean if worst is None else worst, (low, high) if known else None)  # pyright: ignore


def _finite(value: Any) -> float | None:
    """A number that statistics can square and add; anything else counts as missing."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if -LARGEST < value < LARGEST else None  # NaN compares as false


def _count(value: Any) -> int:
    """A whole number of steps, or a seed; 0 where there is none."""
    return value if type(value) is int and 0 <= value < MAX_STEP else 0


def _flat(settings: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for name, value in settings.items():
        if isinstance(value, Mapping):
            yield from _flat(value)
        else:
            yield clean(name), clean(value if isinstance(value, str) else json.dumps(value))
