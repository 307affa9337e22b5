"""Processes of our own, one per core: they serve the seeds of a run, the runs of a sweep and the suite.

A worker stops in an orderly way when its parent does, however that happens.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import IO, NamedTuple

from odice.errors import Interrupted
from odice.files import open_owned
from odice.machine import free_core, pin
from odice.training.interrupt import PARENT, Stop

ONE_THREAD = {
    "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1",
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
}
"""Processes that fill the cores by themselves must not fight over them."""
POLL_SECONDS = 0.1
"""Time between two checks of the workers."""


class Worker(NamedTuple):
    """A process at work."""

    name: str
    process: subprocess.Popen[str]
    relay: threading.Thread | None
    """Prints what the worker says, where that does not go to a file."""


class Pool:
    """As many processes at a time as there are slots.

    Args:
        slots: How many.
        environment: Variables of the workers.
        pinned: Give each a core of its own, on which arithmetic does not depend on how many cores there are.
    """

    def __init__(self, slots: int, environment: Mapping[str, str] = ONE_THREAD, *, pinned: bool = False):
        self._environment, self._pinned = environment, pinned
        self._slots: dict[int, Worker | None] = dict.fromkeys(range(slots))
        self._cores: dict[int, int] = {}
        """Of the slots whose workers are kept on one."""

    @property
    def workers(self) -> list[Worker]:
        return [worker for worker in self._slots.values() if worker is not None]

    @property
    def free(self) -> int:
        """How many slots have no worker."""
        return list(self._slots.values()).count(None)

    def start(self, name: str, command: Sequence[str], log: Path | None = None) -> Worker:
        """Run Python with these arguments in a free slot. What it says goes to `log`, or is printed after its name."""
        slot = next(slot for slot, worker in self._slots.items() if worker is None)
        worker = start(name, command, self._environment, log)
        if self._pinned:
            self._cores[slot] = free_core([self._cores[s] for s, w in self._slots.items() if w and s in self._cores])
            pin(worker.process.pid, self._cores[slot])
        self._slots[slot] = worker
        return worker

    def ended(self) -> list[Worker]:
        """The workers that have ended since the last call; their slots are free."""
        done = [(slot, worker) for slot, worker in self._slots.items() if worker and worker.process.poll() is not None]
        for slot, worker in done:
            self._slots[slot] = None
            if worker.relay:
                worker.relay.join(5.0)  # its last words come before ours
        return [worker for _, worker in done]

    def stop(self, number: int) -> None:
        """Pass a signal on, and wait until every worker has saved and left."""
        for worker in self.workers:
            worker.process.send_signal(number)
        for worker in self.workers:
            worker.process.wait()


def start(
    name: str,
    command: Sequence[str],
    environment: Mapping[str, str],
    log: Path | None = None,
    say: Callable[[str], None] | None = None,
) -> Worker:
    """Run Python with these arguments in a process that ends with this one.

    Args:
        name: What it is called.
        command: The arguments.
        environment: Variables to set.
        log: A file for what it says.
        say: Without a file: what to do with each line; by default it is printed after the name.
    """
    with _append(log) if log else nullcontext(subprocess.PIPE) as output:
        process = subprocess.Popen(
            [sys.executable, *command],
            env={**os.environ, **environment, PARENT: str(os.getpid())},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,  # a terminal's Ctrl-C reaches it once, through us
        )
    relay = None
    if process.stdout is not None:
        say = say or (lambda line: print(f"{name}  {line}", end="", flush=True))
        relay = threading.Thread(target=_relay, args=(process.stdout, say), daemon=True)
        relay.start()
    return Worker(name, process, relay)


def _append(log: Path) -> IO[bytes]:
    return os.fdopen(open_owned(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT), "ab")


def _relay(lines: IO[str], say: Callable[[str], None]) -> None:
    with lines:
        for line in lines:
            say(line)


def run_workers(
    commands: Mapping[str, list[str]],
    slots: int,
    environment: Mapping[str, str] = ONE_THREAD,
    where: str = "",
    *,
    pinned: bool = False,
) -> dict[str, int]:
    """Run Python with each of these arguments. A signal is passed on: workers save first, then `Interrupted` is raised.

    Args:
        commands: The arguments by name.
        slots: How many at a time.
        environment: Variables of the workers.
        where: Where the work is that was done so far, for the message of `Interrupted`.
        pinned: Give each worker a core of its own.

    Returns:
        The exit codes, by the names of the commands.
    """
    pool, waiting, codes = Pool(slots, environment, pinned=pinned), list(commands), dict.fromkeys(commands, 0)
    with Stop() as stop:
        while waiting or pool.workers:
            if stop.requested:
                pool.stop(stop.signal)
                raise Interrupted(f"stopped; {where}. Run the same command again to continue.", stop.signal)
            for name in [waiting.pop(0) for _ in range(min(pool.free, len(waiting)))]:
                pool.start(name, commands[name])
            codes |= {worker.name: worker.process.returncode for worker in pool.ended()}
            time.sleep(POLL_SECONDS)
    return codes
