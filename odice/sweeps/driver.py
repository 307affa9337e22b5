"""The driver of a sweep: it brings every run to its end, in processes that each have a core of their own."""

from __future__ import annotations

import re
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
OWN = re.compile("odice: (?!warning: )")
"""The beginning of the sentence with which a command of odice fails."""
SMALL_STEPS = 5_000
"""Runs of at most so many updates, of one log, share a process: its start would cost more than they do."""
SHARING = 8
"""Runs that share a process, at most."""


class Outcome(NamedTuple):
    """How a run ended."""

    ending: Literal["finished", "diverged", "failed"]
    code: int = 0
    tail: str = ""
    """The last lines of the log of one that did not end well."""


class Attempt(NamedTuple):
    """A run that a worker trains."""

    run: SweepRun
    worker: Worker
    began: float
    first_step: int
    more: tuple[SweepRun, ...] = ()
    """The runs that the worker trains afterwards."""


class Watcher:
    """Is called when something happens in a sweep; the methods of this one do nothing."""

    def begin(self, runs: Sequence[SweepRun], workers: int, outcomes: Mapping[str, Outcome]) -> None:
        """`outcomes` has the runs that are finished already, and from now on every one that ends."""

    def started(self, attempt: Attempt) -> None:
        """A worker began with a run."""

    def ended(self, attempt: Attempt, outcome: Outcome, again: bool) -> None:
        """A run ended; `again` says that it will be tried once more."""

    def progress(self, running: Collection[Attempt]) -> None:
        """Called several times a second."""


class Driver:
    """Brings every run to its end, in processes that each have a core of their own; small runs share one.

    A run that diverged is not tried again, because it would diverge again.

    Args:
        runs: All runs; finished ones are not begun again.
        workers: How many processes at a time.
        retries: How often a run that fails is tried again.
        watcher: What shows the progress.
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
        """Train everything, and return the outcomes by the runs' names."""
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
            more = self._alike(run)
            self._waiting = [each for each in self._waiting if each not in more]
            self._running[run.name] = begin(run, self._pool.start, more)
            self._watcher.started(self._running[run.name])

    def _alike(self, run: SweepRun) -> list[SweepRun]:
        """Return the small runs that the same process can train after this one; a run that has failed goes alone."""
        what = lambda one: (str(one.settings.options.data), one.steps <= SMALL_STEPS)
        ready = lambda one: not self._failures[one.name] and not busy(one) and not result(one)
        if run.steps > SMALL_STEPS or self._failures[run.name]:
            return []
        alike = [one for one in self._waiting if what(one) == what(run) and ready(one)]
        share = -(-(len(alike) + 1) // self._workers)  # fewer towards the end, so that no core waits long
        return alike[: min(share, SHARING) - 1]

    def _follow(self) -> None:
        """Record the runs that workers of several runs have finished, and follow their next ones."""
        for name, attempt in self._running.items():
            while attempt.more and result(attempt.run):
                self._outcomes[attempt.run.name] = Outcome("finished")
                self._watcher.ended(attempt, self._outcomes[attempt.run.name], again=False)
                run, *more = attempt.more
                attempt = Attempt(run, attempt.worker, time.monotonic(), step(run), tuple(more))
                self._running[name] = attempt
                self._watcher.started(attempt)

    def _reap(self) -> None:
        ended = self._pool.ended()
        self._follow()
        for worker in ended:
            attempt = self._running.pop(worker.name)
            self._waiting[:0] = attempt.more  # not begun: the process ended before them
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


def begin(run: SweepRun, start: Callable[..., Worker], more: Sequence[SweepRun] = ()) -> Attempt:
    """Start a worker for a run, and for more after it.

    Args:
        run: The run.
        start: Starts a process (`training.pool`).
        more: Runs that the same worker trains afterwards.
    """
    for one in (run, *more):
        refuse_links_below(one.path.parents[len(Path(one.name).parts) - 1], one.path)
    run.log.parent.mkdir(parents=True, exist_ok=True)
    first_step = step(run)
    worker = start(run.name, [*_command(run), *(_command(one)[-1] for one in more)], log=run.log)
    return Attempt(run, worker, time.monotonic(), first_step, tuple(more))


def _command(run: SweepRun) -> list[str]:
    options = run.settings.options
    return worker_command(run.settings, str(options.data), options.suboptimal, run.log)


def outcome_of(run: SweepRun, code: int) -> Outcome:
    """How a worker ended, by its exit code and by what it left."""
    if result(run):  # however its process ended after that
        return Outcome("finished")
    lines = run.log.read_text("utf-8", errors="replace").splitlines() if run.log.exists() else []
    tail = lines[-TAIL_LINES:]
    if own := [line for line in lines if OWN.match(line)]:  # other libraries may go on after it, while they are ended
        tail = [line for line in tail if line != own[-1]][-TAIL_LINES + 1 :] + own[-1:]
    return Outcome("diverged" if code == Diverged.exit_code else "failed", code, "\n".join(tail))
