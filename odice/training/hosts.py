"""One run in several processes, on one machine or on several: `jax.distributed` connects them.

Every process runs the same program on the same log, and the compiler divides each batch over the devices of all of
them (`training.devices`). What they must decide together, they exchange here: where to continue, and whether to stop.
The first process writes the run. The others write to a temporary folder, which is deleted.

JAX ends a process hard when it loses the first one. So the work is done in a child process, and this one says in a
sentence what happened.
"""

from __future__ import annotations

import os
import re
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, TypeVar

import jax
import numpy as np

from odice.errors import Diverged, Interrupted, OdiceError
from odice.training.interrupt import Stop
from odice.training.pool import POLL_SECONDS, start
from odice.training.processes import on_disk, worker_command
from odice.training.settings import Settings

T = TypeVar("T")
CHILD = "ODICE_PROCESS"
"""Set in the process that does the work."""
LOST = 70
"""The exit code of a child that has lost another process of its run."""
WAIT_SECONDS = 300
"""How long a process waits for the others at the start."""


def any_process(flag: bool) -> bool:
    """Whether the flag is set in any process of the run. Waits until all have called it."""
    if jax.process_count() == 1:
        return flag
    from jax.experimental.multihost_utils import process_allgather

    return bool(np.any(process_allgather(np.int32(flag))))


def from_first(value: Any, like: Any = None) -> Any:
    """The value of the first process, as host arrays.

    Args:
        value: In the other processes any value of the same shapes.
        like: The shapes and types, where the other processes have no value.
    """
    if jax.process_count() == 1:
        return value
    from jax.experimental.multihost_utils import broadcast_one_to_all

    if like is not None and jax.process_index():
        value = jax.tree.map(lambda leaf: np.zeros(leaf.shape, leaf.dtype), like)
    return jax.tree.map(np.asarray, broadcast_one_to_all(value))


def first_then_others(work: Callable[[], T]) -> T:
    """Do the work in the first process and then in the others, which find what it has made."""
    if jax.process_index() == 0:
        done = work()
        any_process(False)
        return done
    any_process(False)
    return work()


def check_same(checksum: str) -> None:
    """Refuse to begin unless all processes have the same checksum of what they are about to do."""
    if jax.process_count() == 1:
        return
    from jax.experimental.multihost_utils import process_allgather

    own = np.frombuffer(bytes.fromhex(checksum)[:8], np.int32)
    if len({tuple(each) for each in process_allgather(own).tolist()}) > 1:
        raise OdiceError(
            "The processes of this run differ in their data or settings; "
            "start them with the same command but for --process."
        )


def parse_process(text: str) -> tuple[int, int]:
    """`I/N` as a number from 0 on, and N."""
    match = re.fullmatch(r"(\d{1,6})/(\d{1,6})", text)
    number, count = (int(each) for each in match.groups()) if match else (0, 0)
    if not 1 <= number <= count:
        raise OdiceError(f"--process is {text!r}; it is I/N, the I-th of N processes, from 1/N to N/N.")
    return number - 1, count


# --- the child --------------------------------------------------------------------------------------------------------


def is_child() -> bool:
    """Whether this process does the work of a run in several processes."""
    return CHILD in os.environ


@contextmanager
def joined(settings: Settings) -> Iterator[Settings]:
    """Connect to the other processes of the run; gives the settings of this one.

    A process that has lost another one can only leave: its collective operations would wait for ever.
    """
    options = settings.options
    known: dict[str, Any] = {}
    if options.coordinator != "auto":
        number, count = parse_process(options.process or "")
        known = {"coordinator_address": options.coordinator, "num_processes": count, "process_id": number}
    try:
        jax.distributed.initialize(**known, initialization_timeout=WAIT_SECONDS)
    except (RuntimeError, ValueError) as error:
        if not known:
            raise OdiceError(
                "--coordinator auto: this is no job of Slurm, Open MPI or a TPU pod; name the first process with "
                "--coordinator HOST:PORT, and this one with --process I/N."
            ) from error
        raise OdiceError(
            f"--coordinator {options.coordinator}: the processes of this run did not meet there "
            f"({str(error).splitlines()[0][:160]}); start all of them within {WAIT_SECONDS} s of each other."
        ) from error
    try:
        if jax.process_index() == 0:
            yield settings
        else:
            with tempfile.TemporaryDirectory(prefix="odice-process-") as folder:
                yield settings._replace(options=replace(options, out=f"{folder}/run", quiet=True, log=()))
    except Exception as error:
        if not isinstance(error, OdiceError) and LOST_SIGNS.search(str(error)):
            leave(LOST)
        raise
    jax.distributed.shutdown()


LOST_SIGNS = re.compile(r"gloo|nccl|unavailable|coordination service|deadline_exceeded|peer", re.IGNORECASE)
"""What the errors of collective operations say when a process is gone."""


def leave(code: int) -> None:
    """End at once, without waiting for the others as JAX does at the end of a process."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


# --- its parent -------------------------------------------------------------------------------------------------------

NATIVE_LOG = re.compile(r"[IWEF]\d{4} \d\d:\d\d:\d\d\.|\[Gloo\]")
"""How a line begins that JAX's libraries log."""


class ChildOutput:
    """Prints what a child writes, but for the sentence it ends with, which is kept, and for what libraries log."""

    def __init__(self):
        self.sentence = ""
        self._native = False

    def __call__(self, line: str) -> None:
        if line.startswith("odice: ") and not line.startswith("odice: warning"):
            self.sentence = line.removeprefix("odice: ").strip()
        elif NATIVE_LOG.match(line):
            self._native = line.startswith("F")  # a stack trace follows
        elif not self._native:
            print(line, end="", flush=True)


def run_child(settings: Settings) -> None:
    """Do the work of this process of the run in a child, pass signals on, and say how it ended."""
    options, output = settings.options, ChildOutput()
    if options.process:
        parse_process(options.process)
    with on_disk(options.data) as data, on_disk(options.suboptimal) as suboptimal, Stop() as stop:
        environment = {CHILD: "1", "TF_CPP_MIN_LOG_LEVEL": "2"}
        worker = start("", worker_command(settings, data, suboptimal), environment, say=output)
        passed = False
        while worker.process.poll() is None:
            if stop.requested and not passed:
                worker.process.send_signal(stop.signal)
                passed = True
            time.sleep(POLL_SECONDS)
        if worker.relay:
            worker.relay.join(5.0)
    code, here = worker.process.returncode, f"process {options.process}" if options.process else "this process"
    again = "run the same commands again to continue from the last checkpoint."
    if code == 0:
        return
    if output.sentence and code > 128:
        raise Interrupted(output.sentence, code - 128)
    if output.sentence:
        raise (Diverged if code == Diverged.exit_code else OdiceError)(output.sentence)
    if code in (LOST, -6):
        raise OdiceError(f"Another process of this run has ended, so {here} ends too; {again}")
    how = f"was killed (signal {-code})" if code < 0 else f"failed (exit code {code}); its message is above"
    raise OdiceError(f"The work of {here} {how}; {again}")
