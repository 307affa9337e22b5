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
from pathlib import Path
from typing import IO, Any

from odice.algos.validation import settings_dict
from odice.errors import Diverged, Interrupted, OdiceError, exit_code
from odice.machine import cores
from odice.run.interrupt import PARENT, Stop
from odice.run.plan import Plan

ONE_THREAD = {
    "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1",
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
}
"""Processes that fill the cores by themselves must not fight over them."""


def train_processes(plans: list[Plan]) -> None:
    """Train every plan, as many at a time as there are cores; failures are raised when all have ended."""
    workers: dict[int, subprocess.Popen[str]] = {}
    relays: dict[int, threading.Thread] = {}
    waiting, codes = list(plans), {}
    options = plans[0].options
    with Stop() as stop, _on_disk(options.data) as data, _on_disk(options.suboptimal) as suboptimal:
        sources = {"data": data, "suboptimal": suboptimal}
        while waiting or workers:
            if stop.asked:
                _stop(workers, stop.signal)
                folder = Path(plans[0].options.out or "").parent
                raise Interrupted(
                    f"stopped; the checkpoints are in {folder}. Run the same command again to continue.", stop.signal
                )
            while waiting and len(workers) < cores():
                plan = waiting.pop(0)
                workers[plan.options.seed], relays[plan.options.seed] = _start(plan, sources, alone=len(plans) == 1)
            for seed in [seed for seed, worker in workers.items() if worker.poll() is not None]:
                codes[seed] = workers.pop(seed).returncode
                relays.pop(seed).join(5.0)  # its last words come before ours
            time.sleep(0.1)
    if failed := {seed: code for seed, code in sorted(codes.items()) if code}:
        kind = Diverged if set(failed.values()) == {Diverged.exit_code} else OdiceError
        told = ", ".join(f"seed {seed} (exit code {code})" for seed, code in failed.items())
        raise kind(f"{len(failed)} of {len(plans)} seeds failed: {told}; their messages are above.")


def _stop(workers: dict[int, subprocess.Popen[str]], number: int) -> None:
    for worker in workers.values():
        worker.send_signal(number)
    for worker in workers.values():
        worker.wait()


def _told(plan: Plan, sources: dict[str, str | None]) -> dict[str, Any]:
    """All that a worker must know."""
    own = [item.name for item in dataclasses.fields(plan.options) if item.name not in (*sources, "config")]
    return {
        "data": sources["data"],
        "options": {name: getattr(plan.options, name) for name in own} | {"suboptimal": sources["suboptimal"]},
        "settings": settings_dict(plan.settings),
        "typed_env": plan.typed_env,
    }


def _start(
    plan: Plan, sources: dict[str, str | None], *, alone: bool
) -> tuple[subprocess.Popen[str], threading.Thread]:
    worker = subprocess.Popen(
        [sys.executable, "-m", "odice.run.processes", json.dumps(_told(plan, sources))],
        env={**os.environ, **({} if alone else ONE_THREAD), PARENT: str(os.getpid())},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,  # a terminal's Ctrl-C reaches it once, through us
    )
    assert worker.stdout is not None
    relay = threading.Thread(target=_relay, args=(worker.stdout, f"seed-{plan.options.seed}  "), daemon=True)
    relay.start()
    return worker, relay


def _relay(lines: IO[str], prefix: str) -> None:
    with lines:
        for line in lines:
            print(f"{prefix}{line}", end="", flush=True)


@contextmanager
def _on_disk(data: Any) -> Iterator[str | None]:
    """The data as something another process can open: a path or a name as it is, objects through a temporary store."""
    if data is None or isinstance(data, str | os.PathLike):
        yield None if data is None else os.fspath(data)
        return
    from odice.data.load import load
    from odice.data.store import write_store

    with tempfile.TemporaryDirectory(prefix="odice-") as folder:
        write_store(load(data), f"{folder}/data")
        yield f"{folder}/data"


def worker_plan(told: dict[str, Any]) -> Plan:
    """The plan that `_start` described; an environment that a file named is still one that a file named."""
    from odice.run.plan import make_plan

    plan = make_plan(told["data"], **told["options"], **told["settings"])
    return plan._replace(typed_env=told["typed_env"])


def main(argument: str) -> int:
    from odice.run.train import train_plan

    told = json.loads(argument)

    def work() -> None:
        train_plan(worker_plan(told))

    return exit_code(work)


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # until the run listens itself, there is nothing to save
    sys.exit(main(sys.argv[1]))
