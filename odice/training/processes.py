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
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from odice.algos.validation import settings_dict
from odice.errors import Diverged, Interrupted, OdiceError, exit_code
from odice.machine import cores, pin
from odice.training.interrupt import PARENT, Stop
from odice.training.plan import Plan

ONE_THREAD = {
    "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1",
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
}
"""Processes that fill the cores by themselves must not fight over them."""


def train_processes(plans: list[Plan]) -> None:
    """Train every plan, as many at a time as there are cores; failures are raised when all have ended."""
    options = plans[0].options
    threads = {} if len(plans) == 1 else ONE_THREAD
    with _on_disk(options.data) as data, _on_disk(options.suboptimal) as suboptimal:
        sources = {"data": data, "suboptimal": suboptimal}
        commands = {f"seed-{plan.options.seed}": worker_command(plan, sources) for plan in plans}
        where = f"the checkpoints are in {Path(options.out or '').parent}"
        codes = run_workers(commands, cores(), threads, where)
    if failed := {name: code for name, code in codes.items() if code}:
        kind = Diverged if set(failed.values()) == {Diverged.exit_code} else OdiceError
        told = ", ".join(f"{name.replace('-', ' ')} (exit code {code})" for name, code in failed.items())
        raise kind(f"{len(failed)} of {len(plans)} seeds failed: {told}; their messages are above.")


def run_workers(
    commands: Mapping[str, list[str]],
    at_a_time: int,
    threads: Mapping[str, str] = ONE_THREAD,
    where: str = "",
    *,
    pinned: bool = False,
) -> dict[str, int]:
    """Run Python with these arguments, so many at a time; gives the exit codes, by the commands' names.

    What a worker says is printed behind its name. A signal is passed on: workers save first, then this raises. A worker
    that is pinned has a core of its own, on which arithmetic does not depend on how many cores there are.
    """
    workers: dict[str, tuple[int, subprocess.Popen[str], threading.Thread]] = {}
    waiting, codes = list(commands), dict.fromkeys(commands, 0)
    with Stop() as stop:
        while waiting or workers:
            if stop.asked:
                _stop([worker for _, worker, _ in workers.values()], stop.signal)
                raise Interrupted(f"stopped; {where}. Run the same command again to continue.", stop.signal)
            taken = {core for core, _, _ in workers.values()}
            for core in sorted(set(range(at_a_time)) - taken)[: len(waiting)]:
                name = waiting.pop(0)
                workers[name] = (core, *_start(name, commands[name], threads))
                if pinned:
                    pin(workers[name][1].pid, core)
            for name in [name for name, (_, worker, _) in workers.items() if worker.poll() is not None]:
                _, worker, relay = workers.pop(name)
                codes[name] = worker.returncode
                relay.join(5.0)  # its last words come before ours
            time.sleep(0.1)
    return codes


def _stop(workers: list[subprocess.Popen[str]], number: int) -> None:
    for worker in workers:
        worker.send_signal(number)
    for worker in workers:
        worker.wait()


def worker_command(plan: Plan, sources: dict[str, str | None]) -> list[str]:
    """The arguments of a Python that trains this plan: all that a worker must know."""
    own = [item.name for item in dataclasses.fields(plan.options) if item.name not in (*sources, "config")]
    told = {
        "data": sources["data"],
        "options": {name: getattr(plan.options, name) for name in own} | {"suboptimal": sources["suboptimal"]},
        "settings": settings_dict(plan.settings),
        "typed_env": plan.typed_env,
    }
    return ["-m", "odice.training.processes", json.dumps(told)]


def _start(name: str, command: list[str], threads: Mapping[str, str]) -> tuple[subprocess.Popen[str], threading.Thread]:
    worker = subprocess.Popen(
        [sys.executable, *command],
        env={**os.environ, **threads, PARENT: str(os.getpid())},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,  # a terminal's Ctrl-C reaches it once, through us
    )
    assert worker.stdout is not None
    relay = threading.Thread(target=_relay, args=(worker.stdout, f"{name}  "), daemon=True)
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
    """The plan that `worker_command` described; an environment that a file named is still one that a file named."""
    from odice.training.plan import make_plan

    plan = make_plan(told["data"], **told["options"], **told["settings"])
    return plan._replace(typed_env=told["typed_env"])


def main(argument: str) -> int:
    from odice.training.train import train_plan

    told = json.loads(argument)

    def work() -> None:
        train_plan(worker_plan(told))

    return exit_code(work)


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # until the run listens itself, there is nothing to save
    sys.exit(main(sys.argv[1]))
