"""Several seeds on a CPU: one process per core, each a run like any other in its own folder.

A worker gets everything that it must know in one JSON argument.
"""

from __future__ import annotations

import dataclasses
import json
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from odice.algos.validation import settings_dict
from odice.errors import Diverged, OdiceError
from odice.machine import cores
from odice.training.pool import ONE_THREAD, run_workers
from odice.training.settings import Settings, resolve


def train_processes(seeds: list[Settings]) -> None:
    """Train every seed, as many at a time as there are cores; failures are raised when all have ended."""
    options = seeds[0].options
    with on_disk(options.data) as data, on_disk(options.suboptimal) as suboptimal:
        commands = {f"seed-{each.options.seed}": worker_command(each, data, suboptimal) for each in seeds}
        where = f"the checkpoints are in {Path(options.out or '').parent}"
        codes = run_workers(commands, cores(), {} if len(seeds) == 1 else ONE_THREAD, where)
    if failed := {name: code for name, code in codes.items() if code}:
        kind = Diverged if set(failed.values()) == {Diverged.exit_code} else OdiceError
        which = ", ".join(f"{name.replace('-', ' ')} (exit code {code})" for name, code in failed.items())
        raise kind(f"{len(failed)} of {len(seeds)} seeds failed: {which}; their messages are above.")


def worker_command(
    settings: Settings, data: str | None, suboptimal: str | None = None, log: Path | None = None
) -> list[str]:
    """The arguments of a Python process that trains with these settings.

    The last argument of such a command may be appended to another command: that process then trains both, one after
    the other, and prints to the `log` of each.

    Args:
        settings: Of the run.
        data: The path or name of its data.
        suboptimal: The same of its suboptimal data.
        log: The file to print to; by default what the process has.
    """
    options = {item.name: getattr(settings.options, item.name) for item in dataclasses.fields(settings.options)}
    del options["config"]
    known = {
        "options": {**options, "data": data, "suboptimal": suboptimal},
        "config": settings_dict(settings.config),
        "sources": dict(settings.sources),
        "log": log and str(log),
    }
    return ["-m", "odice.training.worker", json.dumps(known)]


def worker_settings(known: dict[str, Any]) -> Settings:
    """The settings that `worker_command` described; what a file chose there is still what a file chose."""
    return resolve(**known["options"], **known["config"])._replace(sources=known["sources"])


@contextmanager
def on_disk(data: Any) -> Iterator[str | None]:
    """The data as something another process can open: a path or a name as it is, objects through a temporary store."""
    if data is None or isinstance(data, str | os.PathLike):
        yield None if data is None else os.fspath(data)
        return
    from odice.data.load import load
    from odice.data.store import write_store

    with tempfile.TemporaryDirectory(prefix="odice-") as folder:
        write_store(load(data), f"{folder}/data")
        yield f"{folder}/data"
