"""Several seeds on a CPU: one process per core, each a run like any other in its own folder.

A worker is told everything in one JSON argument. It stops in an orderly way when its parent does, however that happens.
"""

from __future__ import annotations

import dataclasses
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO

from odice.errors import OdiceError
from odice.run.settings import Plan
from odice.run.stop import PARENT, Interrupted, Stop

ONE_THREAD = {
    "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1",
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
}
"""Processes that fill the cores by themselves must not fight over them."""


def train_processes(plans: list[Plan]) -> None:
    """Train every plan, as many at a time as there are cores; the first failure is raised when all have ended."""
    workers, waiting = {}, list(plans)
    failures: list[str] = []
    cores = len(os.sched_getaffinity(0))
    with Stop() as stop, _on_disk(plans) as source:
        while waiting or workers:
            while waiting and len(workers) < cores and not stop.asked:
                plan = waiting.pop(0)
                workers[plan.options.seed] = _start(plan, source, quiet=plan.options.quiet, alone=len(plans) == 1)
            if stop.asked:
                for worker in workers.values():
                    worker.send_signal(stop.signal)
                for worker in workers.values():
                    worker.wait()
                out = plans[0].options.out
                raise Interrupted(
                    f"stopped; the checkpoints are beside {out}. Run the same command again to continue.", stop.signal
                )
            for seed, worker in list(workers.items()):
                if worker.poll() is not None:
                    del workers[seed]
                    if worker.returncode:
                        failures.append(f"seed {seed} (exit code {worker.returncode})")
            time.sleep(0.1)
    if failures:
        raise OdiceError(
            f"{len(failures)} of {len(plans)} seeds failed: {', '.join(failures)}; their messages are above."
        )


def _start(plan: Plan, source: str, *, quiet: bool, alone: bool) -> subprocess.Popen[str]:
    told = {
        "data": source,
        "options": {k: v for k, v in dataclasses.asdict(plan.options).items() if k not in ("data", "config", "preset")},
        "settings": dataclasses.asdict(plan.settings),
    }
    worker = subprocess.Popen(
        [sys.executable, "-m", "odice.run.seeds", json.dumps(told)],
        env={**os.environ, **({} if alone else ONE_THREAD), PARENT: str(os.getpid())},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,  # a terminal's Ctrl-C reaches it once, through us
    )
    assert worker.stdout is not None
    threading.Thread(target=_relay, args=(worker.stdout, f"seed-{plan.options.seed}  "), daemon=True).start()
    return worker


def _relay(lines: IO[str], prefix: str) -> None:
    for line in lines:
        print(f"{prefix}{line}", end="", flush=True)


@contextmanager
def _on_disk(plans: list[Plan]) -> Iterator[str]:
    """The data as something another process can open: a path or a name as it is, objects through a temporary store."""
    data = plans[0].options.data
    if isinstance(data, str | os.PathLike):
        yield os.fspath(data)
        return
    from odice.data.load import load
    from odice.data.stream import write_store

    with tempfile.TemporaryDirectory(prefix="odice-") as folder:
        write_store(load(data), f"{folder}/data")
        yield f"{folder}/data"


def main(argument: str) -> int:
    from odice.cli.train import run
    from odice.run.settings import resolve

    told = json.loads(argument)
    return run(resolve(told["data"], **told["options"], **told["settings"]))


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    sys.exit(main(sys.argv[1]))
