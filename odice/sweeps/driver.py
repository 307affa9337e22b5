"""The driver of a sweep: it brings every run to its end, each in a process on a core of its own."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Literal, NamedTuple

from odice.errors import Diverged, Interrupted
from odice.files import refuse_links_below
from odice.sweeps.runs import SweepRun, busy, result, step
from odice.training.interrupt import Stop
from odice.training.pool import POLL_SECONDS, Pool, Worker
from odice.training.processes import worker_command

TAIL_LINES = 5
"""Lines of a failed run's log that are shown."""


class Outcome(NamedTuple):
    """How a run ended."""

    ending: Literal["finished", "diverged", "failed"]
    code: int = 0
    tail: str = ""
    """The last lines of the log of one that did not end well."""


class Attempt(NamedTuple):
    """A worker at work on a run."""

    run: SweepRun
    worker: Worker
    began: float
    first_step: int


class Watcher:
    """Gets to know what the driver does. This one does nothing with it."""

    def begin(self, runs: Sequence[SweepRun], workers: int, outcomes: Mapping[str, Outcome]) -> None:
        """`outcomes` has the runs that are finished already, and from now on every one that ends."""

    def started(self, attempt: Attempt) -> None: ...

    def ended(self, attempt: Attempt, outcome: Outcome, again: bool) -> None: ...

    def progress(self, running: Collection[Attempt]) -> None: ...


class Driver:
    """Brings every run to its end, each in a process on a core of its own.

    A run that fails is tried again at most `retries` times; one that diverged is not, because it would diverge again.
    """

    def __init__(self, runs: Sequence[SweepRun], workers: int, retries: int = 1, watcher: Watcher | None = None):
        self._runs, self._workers, self._retries = runs, workers, retries
        self._watcher = watcher or Watcher()
        self._outcomes: dict[str, Outcome] = {}
        self._waiting = list(runs)
        self._failures = dict.fromkeys((run.name for run in runs), 0)
        self._pool = Pool(workers, pinned=True)
        self._running: dict[str, Attempt] = {}

    def run(self) -> dict[str, Outcome]:
        """The outcomes, by the runs' names."""
        with Stop() as stop:
            self._take_finished()
            self._watcher.begin(self._runs, self._workers, self._outcomes)
            while self._waiting or self._running:
                if stop.requested:
                    raise self._stopped(stop.signal)
                self._fill()
                self._reap()
                self._watcher.progress(self._running.values())
                time.sleep(POLL_SECONDS)
        return self._outcomes

    def _take_finished(self) -> None:
        for run in [run for run in self._waiting if not busy(run) and result(run)]:
            self._waiting.remove(run)
            self._outcomes[run.name] = Outcome("finished")

    def _fill(self) -> None:
        """Start a run on every core that has none."""
        for _ in range(self._pool.free):
            run = next((run for run in self._waiting if not busy(run)), None)
            if run is None:
                return
            self._waiting.remove(run)
            if result(run):  # a worker of a killed driver has finished it since
                self._outcomes[run.name] = Outcome("finished")
                continue
            self._running[run.name] = begin(run, self._pool.start)
            self._watcher.started(self._running[run.name])

    def _reap(self) -> None:
        for worker in self._pool.ended():
            attempt = self._running.pop(worker.name)
            run, outcome = attempt.run, outcome_of(attempt.run, worker.process.returncode)
            taken = outcome.ending == "failed" and busy(run)  # by a worker of a killed driver: that is no failure
            self._failures[run.name] += outcome.ending == "failed" and not taken
            again = taken or (outcome.ending == "failed" and self._failures[run.name] <= self._retries)
            if again:
                self._waiting.append(run)
            else:
                self._outcomes[run.name] = outcome
            self._watcher.ended(attempt, outcome, again)

    def _stopped(self, number: int) -> Interrupted:
        self._pool.stop(number)
        done = sum(result(run) is not None for run in self._runs)
        return Interrupted(
            f"stopped; {done} of {len(self._runs)} runs are finished, the others have their checkpoints. Run the "
            "same command again to continue.",
            number,
        )


def begin(run: SweepRun, start: Callable[..., Worker]) -> Attempt:
    """Start a worker for a run; what it says goes to the run's log."""
    refuse_links_below(run.path.parents[len(Path(run.name).parts) - 1], run.path)
    run.log.parent.mkdir(parents=True, exist_ok=True)
    first_step = step(run)
    options = run.settings.options
    worker = start(run.name, worker_command(run.settings, str(options.data), options.suboptimal), log=run.log)
    return Attempt(run, worker, time.monotonic(), first_step)


def outcome_of(run: SweepRun, code: int) -> Outcome:
    """How a worker ended, by its exit code and by what it left."""
    if result(run):  # however its process ended after that
        return Outcome("finished")
    lines = run.log.read_text("utf-8", errors="replace").splitlines() if run.log.exists() else []
    return Outcome("diverged" if code == Diverged.exit_code else "failed", code, "\n".join(lines[-TAIL_LINES:]))
