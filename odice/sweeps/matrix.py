"""Many runs: every combination of data, algorithm, settings and seed is a cell, and a cell is a run directory.

A folder of cells needs no bookkeeping beside the runs themselves: a cell is finished when its `result.json` is there
and its `config.json` is what was asked for. So the driver and its workers may be killed anywhere; the same command
looks which cells are finished, and continues the others from their checkpoints.

    OUT/sweep.json                    which cells there are, and with what configuration
    OUT/DATA/ALGO[-settings]/seed-N   the run directory of a cell
    OUT/DATA/ALGO[-settings]/seed-N.log   what its processes said
"""

from __future__ import annotations

import dataclasses
import fcntl
import hashlib
import itertools
import json
import os
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_type_hints

from odice import __version__
from odice.algos import entry
from odice.errors import Diverged, Interrupted, OdiceError, unknown_name
from odice.files import refuse_links_below, regular_file
from odice.jsonable import jsonable
from odice.plugins import load_plugins
from odice.training.directory import RunDirectory, differences, read_record
from odice.training.interrupt import Stop
from odice.training.options import RunOptions
from odice.training.pool import Pool, Worker
from odice.training.processes import worker_command
from odice.training.settings import Settings, resolve

PAUSE = 0.1
"""Seconds between two looks at the workers."""
TAIL_LINES = 5
"""Lines of a failed cell's log that are shown."""
NAME_LENGTH = 120
"""Longer folder names than this end in a hash instead: systems stop at 255 bytes."""
NOT_VARIED = ("data", "algo", "seed", "seeds", "out", "config", "resume", "parallel", "quiet", "plugin")
"""Options that the matrix itself decides, or that do not belong to one cell."""


class Cell(NamedTuple):
    """One run of the matrix."""

    name: str
    """Its folder below OUT: DATA/ALGO[-settings]/seed-N."""
    settings: Settings

    @property
    def path(self) -> Path:
        return Path(self.settings.options.out or "")

    @property
    def log(self) -> Path:
        return self.path.with_name(f"{self.path.name}.log")

    @property
    def group(self) -> str:
        """What differs in the seed alone is one group."""
        return self.name.rpartition("/")[0]

    @property
    def steps(self) -> int:
        return self.settings.options.steps or 0

    @property
    def identity(self) -> dict[str, Any]:
        """What is decided about the cell before its data are read."""
        env = self.settings.options.env
        known = {**self.settings.identity(), **({} if env is None else {"env": None if env == "none" else env})}
        return json.loads(json.dumps(jsonable(known, words=True)))


# --- which cells ------------------------------------------------------------------------------------------------------


def make_cells(
    out: str | Path,
    data: Sequence[str],
    algos: Sequence[str],
    seeds: int = 1,
    first_seed: int = 0,
    axes: Mapping[str, Sequence[Any]] | None = None,
    **shared: Any,
) -> list[Cell]:
    """Every combination, with everything decided and checked.

    `data` are names or paths, or NAME=PATH to choose the folder's name. `axes` are values of run options and of
    settings of the algorithms; a setting varies those algorithms that have it. `shared` are run options of every cell.
    """
    axes = dict(axes or {})
    load_plugins(shared.get("plugin") or ())
    _check_axes(axes, algos)
    found: dict[str, Cell] = {}
    for (folder, source), algo in itertools.product(map(_named, data), algos):
        own = [name for name in axes if name in get_type_hints(RunOptions) or name in _settings(algo)]
        for values in itertools.product(*(axes[name] for name in own)):
            chosen = dict(zip(own, values, strict=True))
            settings = resolve(source, algo=algo, **{**shared, **chosen})
            for seed in range(first_seed, first_seed + seeds):
                name = f"{folder}/{_folder(algo, chosen)}/seed-{seed}"
                options = dataclasses.replace(settings.options, seed=seed, seeds=None, out=str(Path(out) / name))
                cell = Cell(name, settings._replace(options=options))
                other = found.setdefault(name, cell)
                if (other.settings.options.data, other.identity) != (source, cell.identity):
                    raise OdiceError(
                        f"{other.settings.options.data} and {source} would share the folder {Path(out) / folder}; call "
                        f"one of them otherwise: --data NAME={source}."
                    )
    return list(found.values())


def _check_axes(axes: Mapping[str, Sequence[Any]], algos: Sequence[str]) -> None:
    options = set(get_type_hints(RunOptions)) - set(NOT_VARIED)
    for name in axes:
        if name in NOT_VARIED:
            raise OdiceError(f"--set cannot vary {name!r}: the sweep itself decides it, or it has a flag of its own.")
        valid = options.union(*(_settings(algo) for algo in algos))
        if name not in valid:
            raise unknown_name(f"setting of {', '.join(algos)}", name, valid)


def _settings(algo: str) -> set[str]:
    return {field.name for field in dataclasses.fields(entry(algo).config)}


def _named(data: str) -> tuple[str, str]:
    """The folder's name and the source. An id with slashes (Minari) is no path, and keeps all of its parts."""
    name, given, source = data.partition("=")
    if given and name and "/" not in name and not Path(data).exists():
        return name, source
    path = Path(data)
    if path.suffix or path.exists():
        return path.stem, data
    return "-".join(part for part in path.parts if part.strip("./")), data


def _folder(algo: str, chosen: Mapping[str, Any]) -> str:
    told = [f"{name}={_short(value)}" for name, value in chosen.items()]
    name = "-".join([algo, *told])
    if len(name.encode()) <= NAME_LENGTH:
        return name
    return f"{algo}-{hashlib.sha256(name.encode()).hexdigest()[:12]}"


def _short(value: Any) -> str:
    if isinstance(value, list | tuple):
        return "x".join(map(_short, value))
    return str(value).replace("/", "_")


# --- what is there ----------------------------------------------------------------------------------------------------


def record(folder: RunDirectory, cells: Sequence[Cell]) -> str | None:
    """Write the matrix to `sweep.json`, or check it against the one there. A matrix may grow; gives a word about
    that."""
    file = folder.path / "sweep.json"
    if (folder.path / "config.json").exists():
        raise OdiceError(f"{folder.path} is a run itself; choose another folder with --out.")
    asked = {cell.name: {"data": str(cell.settings.options.data), **cell.identity} for cell in cells}
    if not file.exists():
        folder.write("sweep.json", {"odice": __version__, "cells": asked})
        return None
    before = read_record(file)
    there: dict[str, Any] = before.get("cells", {})
    for name in asked.keys() & there.keys():
        known = {**there[name], "steps": max(there[name]["steps"], asked[name]["steps"])}  # a run may become longer
        if changes := differences(known, asked[name]):
            raise OdiceError(
                f"{file} records {name} with another configuration ({'; '.join(changes[:6])}); use the same settings "
                "to continue, or choose another folder with --out."
            )
    new, rest = asked.keys() - there.keys(), there.keys() - asked.keys()
    if there | asked != there:
        folder.write("sweep.json", {**before, "cells": there | asked})
    said = [f"{len(new)} cells are new in {folder.path}"] if new else []
    said += [f"{len(rest)} cells there are not asked for now and stay as they are"] if rest else []
    return "; ".join(said) or None


def result(cell: Cell) -> dict[str, Any] | None:
    """What a cell ended with, if it is finished and what was asked for. Whatever is odd about it, its worker will
    say."""
    if not (cell.path / "result.json").exists():
        return None
    try:
        config = read_record(cell.path / "config.json")["config"]
    except (OdiceError, KeyError):
        return None
    return RunDirectory(cell.path).result if agrees(config, cell.identity) else None


def agrees(config: Any, wanted: Any) -> bool:
    """Whether a configuration has all that was wanted. None was left to the data, so anything is right."""
    if isinstance(wanted, dict):
        return isinstance(config, dict) and all(agrees(config.get(name), value) for name, value in wanted.items())
    return wanted is None or config == wanted


def busy(cell: Cell) -> bool:
    """Whether a process works on the cell: one that a killed driver left behind checkpoints first, then lets go."""
    try:
        lock = os.open(cell.path / ".lock", os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return False
    except OSError:
        return True
    finally:
        os.close(lock)


def step(cell: Cell) -> int:
    """How far the cell has come, by the last whole row of its metrics."""
    try:
        with regular_file(cell.path / "metrics.jsonl", links=False) as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - 65536))
            return int(json.loads(file.read().split(b"\n")[-2])["step"])
    except (OdiceError, OSError, ValueError, LookupError, TypeError):
        return 0


# --- the driver -------------------------------------------------------------------------------------------------------


class Outcome(NamedTuple):
    """How a cell ended."""

    ending: Literal["finished", "diverged", "failed"]
    code: int = 0
    told: str = ""
    """The last lines of the log of one that did not end well."""


class Attempt(NamedTuple):
    """A worker at work on a cell."""

    cell: Cell
    worker: Worker
    began: float
    first_step: int


class Watcher:
    """Hears what the driver does. This one keeps it to itself."""

    def begin(self, cells: Sequence[Cell], workers: int, outcomes: Mapping[str, Outcome]) -> None:
        """`outcomes` has the cells that are finished already, and from now on every one that ends."""

    def started(self, attempt: Attempt) -> None: ...

    def ended(self, attempt: Attempt, outcome: Outcome, again: bool) -> None: ...

    def look(self, running: Collection[Attempt]) -> None: ...


class Driver:
    """Brings every cell to its end, each in a process on a core of its own.

    A cell that fails is tried again at most `retries` times; one that diverged is not, because it would diverge again.
    """

    def __init__(self, cells: Sequence[Cell], workers: int, retries: int = 1, watcher: Watcher | None = None):
        self._cells, self._workers, self._retries = cells, workers, retries
        self._watcher = watcher or Watcher()
        self._outcomes: dict[str, Outcome] = {}
        self._waiting = list(cells)
        self._failures = dict.fromkeys((cell.name for cell in cells), 0)
        self._pool = Pool(workers, pinned=True)
        self._running: dict[str, Attempt] = {}

    def run(self) -> dict[str, Outcome]:
        """The outcomes, by the cells' names."""
        with Stop() as stop:
            self._take_finished()
            self._watcher.begin(self._cells, self._workers, self._outcomes)
            while self._waiting or self._running:
                if stop.requested:
                    raise self._stopped(stop.signal)
                self._fill()
                self._reap()
                self._watcher.look(self._running.values())
                time.sleep(PAUSE)
        return self._outcomes

    def _take_finished(self) -> None:
        for cell in [cell for cell in self._waiting if not busy(cell) and result(cell)]:
            self._waiting.remove(cell)
            self._outcomes[cell.name] = Outcome("finished")

    def _fill(self) -> None:
        """Start a cell on every core that has none."""
        for _ in range(self._pool.free):
            cell = next((cell for cell in self._waiting if not busy(cell)), None)
            if cell is None:
                return
            self._waiting.remove(cell)
            if result(cell):  # a worker of a killed driver has finished it since
                self._outcomes[cell.name] = Outcome("finished")
                continue
            self._running[cell.name] = begin(cell, self._pool.start)
            self._watcher.started(self._running[cell.name])

    def _reap(self) -> None:
        for worker in self._pool.ended():
            attempt = self._running.pop(worker.name)
            cell, outcome = attempt.cell, outcome_of(attempt.cell, worker.process.returncode)
            taken = outcome.ending == "failed" and busy(cell)  # by a worker of a killed driver: that is no failure
            self._failures[cell.name] += outcome.ending == "failed" and not taken
            again = taken or (outcome.ending == "failed" and self._failures[cell.name] <= self._retries)
            if again:
                self._waiting.append(cell)
            else:
                self._outcomes[cell.name] = outcome
            self._watcher.ended(attempt, outcome, again)

    def _stopped(self, number: int) -> Interrupted:
        self._pool.stop(number)
        done = sum(result(cell) is not None for cell in self._cells)
        return Interrupted(
            f"stopped; {done} of {len(self._cells)} cells are finished, the others have their checkpoints. Run the "
            "same command again to continue.",
            number,
        )


def begin(cell: Cell, start: Callable[..., Worker]) -> Attempt:
    """Start a worker for a cell; what it says goes to the cell's log."""
    refuse_links_below(cell.path.parents[len(Path(cell.name).parts) - 1], cell.path)
    cell.log.parent.mkdir(parents=True, exist_ok=True)
    first_step = step(cell)
    options = cell.settings.options
    worker = start(cell.name, worker_command(cell.settings, str(options.data), options.suboptimal), log=cell.log)
    return Attempt(cell, worker, time.monotonic(), first_step)


def outcome_of(cell: Cell, code: int) -> Outcome:
    """How a worker ended, by its exit code and by what it left."""
    if result(cell):  # however its process ended after that
        return Outcome("finished")
    lines = cell.log.read_text("utf-8", errors="replace").splitlines() if cell.log.exists() else []
    told = "\n".join(lines[-TAIL_LINES:])
    return Outcome("diverged" if code == Diverged.exit_code else "failed", code, told)
