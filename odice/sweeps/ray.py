"""A sweep on a Ray cluster: every run is a Ray task, and Ray decides where and when it runs.

Without a store, OUT is a path that all nodes share, and a task works there as a worker on one machine does. With one
(`sweeps.store`), a task works in a folder of its node and saves to the store; OUT then holds what a report reads.

A node that dies takes its tasks with it; Ray starts them again elsewhere, and they continue from their checkpoints.
Every node has odice in the same version, and sees the data by the same name.
"""

from __future__ import annotations

import dataclasses
import json
import socket
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from odice import __version__
from odice.cluster import connect, import_ray
from odice.errors import Interrupted, OdiceError
from odice.sweeps.board import Board
from odice.sweeps.driver import Outcome, begin, outcome_of
from odice.sweeps.runs import SweepRun, busy, record, result
from odice.sweeps.store import Store
from odice.training.directory import RunDirectory
from odice.training.interrupt import Stop
from odice.training.pool import ONE_THREAD, start
from odice.training.processes import worker_command, worker_settings
from odice.training.settings import Settings

SAVE_SECONDS = 60.0
"""Time between two saves to the store: at most this much is lost with a node."""
LOST_NODES = 20
"""How often Ray may start a run again because its node or process died."""
FREE_SECONDS = 600.0
"""How long a run waits for a process that still works on it: one whose task was killed saves first."""
POLL_SECONDS = 0.5


class Resources(NamedTuple):
    """What Ray keeps free for each run."""

    cpus: float = 1.0
    gpus: float = 0.0
    memory_gb: float | None = None

    def options(self) -> dict[str, Any]:
        """As options of a Ray task."""
        memory = {} if self.memory_gb is None else {"memory": int(self.memory_gb * 1e9)}
        return {"num_cpus": self.cpus, "num_gpus": self.gpus, **memory}


def run_on_ray(
    out: str | Path,
    runs: Sequence[SweepRun],
    address: str,
    retries: int = 1,
    quiet: bool = False,
    store: str | None = None,
    resources: Resources | None = None,
) -> dict[str, Outcome]:
    """Bring every run to its end on a cluster.

    Args:
        out: The folder of the sweep.
        runs: All its runs.
        address: Of the cluster, or `auto`.
        retries: How often a run that fails is tried again.
        quiet: Print nothing.
        store: Where nodes keep what they do, if they share no disk with this machine.
        resources: What Ray keeps free for each run.

    Returns:
        How the runs ended, by their names.
    """
    ray = import_ray()
    place = None if store is None else Store(store)
    with RunDirectory(out) as folder, Board(quiet) as board, ExitStack() as stack:
        if note := record(folder, runs):
            board.note(note)
        outcomes: dict[str, Outcome] = {}
        for run in runs:
            if place is not None:
                place.fetch_small(run.name, run.path)
            if result(run) and not busy(run):
                outcomes[run.name] = Outcome("finished")
        todo = [run for run in runs if run.name not in outcomes]
        board.note(f"{len(runs)} runs, {len(outcomes)} of them finished already; the others go to Ray at {address}")
        if todo:
            connect(ray, address, stack)
            _Tasks(ray, board, place, store, resources or Resources(), retries, outcomes, len(runs)).run(todo)
    return outcomes


class _Tasks:
    """The runs that are on the cluster, from their submission to their outcomes."""

    def __init__(self, ray, board, place, store, resources, retries, outcomes, total):
        self._ray, self._board, self._place, self._store = ray, board, place, store
        self._retries, self._outcomes, self._total = retries, outcomes, total
        self._task = ray.remote(max_retries=LOST_NODES, **resources.options())(run_one)
        self._one_thread = resources.cpus <= 1 and not resources.gpus
        self._runs: dict[Any, tuple[SweepRun, int]] = {}

    def run(self, runs: Sequence[SweepRun]) -> None:
        for run in runs:
            self._submit(run, 0)
        with Stop() as stop:
            while self._runs:
                done, _ = self._ray.wait(list(self._runs), timeout=POLL_SECONDS)
                for ref in done:
                    self._take(ref)
                if stop.requested:
                    raise self._stopped(stop.signal)

    def _submit(self, run: SweepRun, failures: int) -> None:
        options = run.settings.options
        argument = worker_command(run.settings, _absolute(str(options.data)), _absolute(options.suboptimal))[-1]
        ref = self._task.remote(run.name, argument, self._store, self._one_thread, __version__)
        self._runs[ref] = (run, failures)

    def _take(self, ref: Any) -> None:
        run, failures = self._runs.pop(ref)
        try:
            ending, code, tail, node = self._ray.get(ref)
        except self._ray.exceptions.RayError as error:
            ending, code, tail, node = "failed", 1, str(error).strip()[:500], "the cluster"
        if ending == "finished" and self._place is not None:
            self._place.fetch_small(run.name, run.path)
        again = ending == "failed" and failures < self._retries
        if again:
            self._submit(run, failures + 1)
        else:
            self._outcomes[run.name] = Outcome(ending, code, tail)
        lines = "".join(f"\n    {line}" for line in tail.splitlines()) if ending != "finished" else ""
        count = f" ({len(self._outcomes)} of {self._total})" if ending == "finished" else ", again" * again
        self._board.note(f"{ending:<9} {run.name} on {node}{count}{lines}")

    def _stopped(self, number: int) -> Interrupted:
        """Ask every task to save and leave."""
        for ref in self._runs:
            self._ray.cancel(ref, force=False)
        self._ray.wait(list(self._runs), num_returns=len(self._runs), timeout=60.0)
        done = sum(outcome.ending == "finished" for outcome in self._outcomes.values())
        return Interrupted(
            f"stopped; {done} of {self._total} runs are finished, the others have their checkpoints. Run the same "
            "command again to continue.",
            number,
        )


def _absolute(source: str | None) -> str | None:
    """A file's absolute path, because the nodes work elsewhere; any other name as it is."""
    return str(Path(source).resolve()) if source is not None and Path(source).exists() else source


# --- on a node --------------------------------------------------------------------------------------------------------


def run_one(name: str, argument: str, store: str | None, one_thread: bool, version: str) -> tuple[str, int, str, str]:
    """Bring one run to its end, as a task.

    Args:
        name: Of the run.
        argument: Its settings, as `worker_command` writes them.
        store: Where it keeps what it does.
        one_thread: Whether it has one core to itself.
        version: Of the odice that gave the command.

    Returns:
        How it ended, its exit code, the end of its log, and the node.
    """
    node = socket.gethostname()
    if version != __version__:
        return "failed", 1, f"{node} has odice {__version__}, the command has {version}; install one of them.", node
    try:
        return *_run_here(name, worker_settings(json.loads(argument)), store, one_thread), node
    except OdiceError as error:  # the store does not answer
        return "failed", error.exit_code, str(error), node


def _run_here(name: str, settings: Settings, store: str | None, one_thread: bool) -> tuple[str, int, str]:
    """Bring one run to its end on this node."""
    with ExitStack() as stack:
        place = None
        if store is not None:
            place = Store(store)
            scratch = stack.enter_context(tempfile.TemporaryDirectory(prefix="odice-ray-"))
            settings = settings._replace(options=dataclasses.replace(settings.options, out=f"{scratch}/{name}"))
        run = SweepRun(name, settings)
        if place is not None:
            place.fetch(name, run.path)
        _wait_until_free(run)
        if not result(run):
            code = _train(run, place, one_thread)
            outcome = outcome_of(run, code)
            if place is not None:
                _keep(run, place, outcome)
            return outcome.ending, outcome.code, outcome.tail
    return "finished", 0, ""


def _wait_until_free(run: SweepRun) -> None:
    until = time.monotonic() + FREE_SECONDS
    while busy(run) and time.monotonic() < until:
        time.sleep(POLL_SECONDS)


def _train(run: SweepRun, place: Store | None, one_thread: bool) -> int:
    """Run the worker of a run, and save to the store now and then."""
    process = begin(run, partial(start, environment=ONE_THREAD if one_thread else {})).worker.process
    saved = time.monotonic()
    try:
        while process.poll() is None:
            time.sleep(POLL_SECONDS)
            if place is not None and time.monotonic() - saved >= SAVE_SECONDS:
                with suppress(OdiceError):  # a store that does not answer now may do so at the next save
                    place.save(run.name, run.path)
                saved = time.monotonic()
    finally:  # the task was cancelled: the worker saves and leaves
        if process.poll() is None:
            process.terminate()
            process.wait()
            if place is not None:
                place.save(run.name, run.path)
    return process.returncode


def _keep(run: SweepRun, place: Store, outcome: Outcome) -> None:
    place.add_log(run.name, run.log)
    if outcome.ending == "finished":
        place.deliver(run.name, run.path)
    else:
        place.save(run.name, run.path)
