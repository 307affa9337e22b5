"""The policies that a decision compares: how each is made, and their training, each on a core of its own.

    OUT/candidates/NAME        the run
    OUT/candidates/NAME.json   what it is made of: the log and every option
    OUT/candidates/NAME.log    what its process printed

The log is read and checked once. What a candidate learns does not depend on which others are trained at the same time.
A finished candidate is used again and an interrupted one continues, as long as it is made of the same; otherwise the
next free name is taken, so nothing is overwritten.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import re
import sys
import time
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax

from odice import __version__
from odice.algos.auto import SHARES
from odice.data.dataset import Dataset
from odice.decision.read import Say
from odice.errors import Diverged, Interrupted, OdiceError
from odice.files import refuse_links_below
from odice.machine import cores
from odice.sweeps.driver import Attempt, Driver, Outcome, Watcher
from odice.sweeps.runs import SweepRun
from odice.training.directory import read_record, write_record
from odice.training.interrupt import Stop
from odice.training.processes import on_disk
from odice.training.progress import Display, duration, in_notebook, last_row
from odice.training.run import Run
from odice.training.settings import resolve
from odice.training.skill import enough
from odice.training.train import train

CANDIDATES: dict[str, dict[str, Any]] = {
    "auto near the log": {"algo": "auto", "distance": "near"},
    "auto far from it": {"algo": "auto", "distance": "far"},
    "iql": {"algo": "iql", "reward": "return-spread"},
    "clone of the best part": {"algo": "bc-10"},
    "clone": {"algo": "bc"},
}
"""Name of a candidate -> how it is trained; the slowest first, so that the cores are done at about the same time."""


def usual_candidates(rows: int) -> dict[str, dict[str, Any]]:
    """Return the candidates for a log with so many rows of training.

    On a short log `auto` selects the same episodes at both distances; then one of the two is left out.
    """
    near, far = (enough(SHARES[distance], rows) for distance in ("near", "far"))
    return {name: each for name, each in CANDIDATES.items() if near > far or each.get("distance") != "far"}


class Candidate(NamedTuple):
    """One policy that is to be compared."""

    name: str
    options: Mapping[str, Any]
    """Of `odice.train`."""
    place: Path

    @property
    def finished(self) -> bool:
        return (self.place / "result.json").exists()

    @property
    def steps(self) -> int:
        return int(self.options.get("steps") or 0)

    @property
    def updates(self) -> int:
        """How many updates are made so far."""
        return int(last_row(self.place / "metrics.jsonl").get("step") or 0)


def train_candidates(
    data: Dataset,
    wanted: Mapping[str, Mapping[str, Any]],
    shared: Mapping[str, Any],
    folder: Path,
    *,
    workers: int | None = None,
    say: Say = print,
    quiet: bool = False,
) -> dict[str, Run]:
    """Train all candidates, and return their runs by name, without those that diverged.

    Args:
        data: The log.
        wanted: Name -> options of `odice.train`.
        shared: Options of all of them.
        folder: The folder of the decision.
        workers: How many at a time; by default one on each core. 1 trains them in this process.
        say: Called with a line of text when a candidate is trained.
        quiet: Show no progress between two of those lines.
    """
    for options in wanted.values():
        resolve(data, **{**shared, **options})  # refused before anything is written
    each = [_candidate(data, name, {**shared, **options}, folder) for name, options in wanted.items()]
    left = [one for one in each if not one.finished]
    if renamed := [one for one in left if one.place.name != _plain(one.name)]:
        there, now = ", ".join(_plain(one.name) for one in renamed), ", ".join(one.place.name for one in renamed)
        say(
            f"what is in {folder / 'candidates'} as {there} was not made from this log, schema and options, and stays "
            f"as it is; trained now as {now}"
        )
    if done := [one.name for one in each if one.finished]:
        say(f"trained already: {', '.join(done)}")
    if workers is None:
        workers = cores() if jax.default_backend() == "cpu" else 1  # processes would fight over an accelerator
    if left:
        progress = Progress(left, say, quiet)
        with progress:
            work = _one_by_one if workers == 1 else _in_processes
            work(data, left, min(workers, len(left)), progress)
    runs = {one.name: Run.open(one.place) for one in each if one.finished}
    if not runs:
        raise Diverged(f"All candidates diverged; what they printed is in {folder / 'candidates'}.")
    return runs


def _candidate(data: Dataset, name: str, options: Mapping[str, Any], folder: Path) -> Candidate:
    """A candidate with its folder: the one where it was begun, or a new one."""
    text = json.dumps([data.fingerprint, __version__, dict(options)], sort_keys=True, default=str)
    made_of = hashlib.sha256(text.encode()).hexdigest()
    plain = _plain(name)
    for number in itertools.count(1):
        place = folder / "candidates" / (plain if number == 1 else f"{plain}-{number}")
        note = place.with_name(f"{place.name}.json")
        refuse_links_below(folder, place)
        refuse_links_below(folder, note)
        if not note.exists() and not place.exists():
            note.parent.mkdir(parents=True, exist_ok=True)
            write_record(note, {"name": name, "made_of": made_of})
            return Candidate(name, options, place)
        if note.exists() and read_record(note).get("made_of") == made_of:
            return Candidate(name, options, place)
    raise AssertionError


def _plain(name: str) -> str:
    """A candidate's name as the name of a folder."""
    return re.sub(r"[^\w.-]+", "-", name).strip("-.") or "candidate"


def _in_processes(data: Dataset, left: Sequence[Candidate], workers: int, progress: Progress) -> None:
    """Train so many at a time, each in a process on a core of its own."""
    with on_disk(data) as store:
        runs = [SweepRun(one.place.name, resolve(store, **{**one.options, "out": str(one.place)})) for one in left]
        for run in runs:
            refuse_links_below(run.path.parent, run.log)
        outcomes = Driver(runs, workers, watcher=progress).run()
    for one in left:
        outcome = outcomes[one.place.name]
        if outcome.ending == "failed":
            said = outcome.tail.splitlines()[-1:] or [f"its process ended with exit code {outcome.code}"]
            raise OdiceError(f"{one.name} was not trained: {said[0].removeprefix('odice: ')} (see {one.place}.log)")


def _one_by_one(data: Dataset, left: Sequence[Candidate], workers: int, progress: Progress) -> None:
    """Train them in this process."""
    del workers
    with Stop() as stop:
        for one in left:
            began, ending = time.monotonic(), "finished"
            try:
                train(data, **{**one.options, "out": str(one.place)})
            except Diverged:
                ending = "diverged"
            progress.over(one.place.name, ending, time.monotonic() - began)
            if stop.requested:
                raise Interrupted(f"stopped after {one.name}. Run the same command again to continue.", stop.signal)


class Progress(Display, Watcher):
    """How far all candidates are: one line in a terminal or a notebook, and a line for each that is done."""

    def __init__(self, left: Sequence[Candidate], say: Say, quiet: bool):
        super().__init__(0, quiet=quiet or not (sys.stdout.isatty() or in_notebook()))
        self._left, self._say = left, say
        self._start, self._first = time.monotonic(), self._updates()
        self._ended: list[str] = []
        self._shown: list[int] = []

    def tell(self, text: str) -> None:
        """Print a line above the one that changes."""
        self._clear()
        self._say(text)

    def over(self, place: str, ending: str, seconds: float) -> None:
        """Say how a candidate ended."""
        self._ended.append(place)
        name = next(one.name for one in self._left if one.place.name == place)
        how = {"finished": f"took {duration(seconds)}", "diverged": "it diverged and is left out"}
        rest = f", {left} left" if len(self._ended) < len(self._left) and (left := self._remaining()) else ""
        self.tell(f"trained {len(self._ended)} of {len(self._left)}: {name} ({how.get(ending, ending)}){rest}")

    def begin(self, runs: Sequence[SweepRun], workers: int, outcomes: Mapping[str, Outcome]) -> None:
        several = f", {workers} at a time" if workers > 1 else ""
        self.tell(f"training {len(runs)} candidate{'s' if len(runs) > 1 else ''}{several}")

    def ended(self, attempt: Attempt, outcome: Outcome, again: bool) -> None:
        if not again:
            self.over(attempt.run.name, outcome.ending, time.monotonic() - attempt.began)

    def progress(self, running: Collection[Attempt]) -> None:
        if (now := [one.updates for one in self._open]) != self._shown:  # a notebook keeps every state of the line
            self._shown = now
            self.tick(0)

    def _line(self) -> str:
        parts = [f"{one.name} {at:,}/{one.steps:,}" for one in self._open if (at := one.updates)]
        left = self._remaining()
        done = f"{len(self._ended)} of {len(self._left)} trained"
        return "; ".join(part for part in (done, ", ".join(parts), f"{left} left" if left else "starting") if part)

    @property
    def _open(self) -> list[Candidate]:
        return [one for one in self._left if one.place.name not in self._ended]

    def _updates(self) -> int:
        return sum(one.updates for one in self._left)

    def _remaining(self) -> str:
        """The time that the rest will take, at the speed of all so far; empty as long as nothing is known."""
        made, wanted = self._updates() - self._first, sum(one.steps - one.updates for one in self._open)
        return f"about {duration((time.monotonic() - self._start) / made * wanted)}" if made > 0 else ""
