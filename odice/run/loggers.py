"""Where a run's numbers go: JSON lines always; TensorBoard and Weights & Biases for those who ask.

A JSON-lines file belongs to a checkpoint: rows up to the checkpoint's step are on the disk before it is committed, and on
resume everything after it is cut. So an interrupted run and an uninterrupted one leave the same bytes.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

from odice.errors import OdiceError, unknown_name
from odice.files import complete_file
from odice.jsonable import jsonable


class JsonLines:
    """An append-only log with a `step` in every row."""

    def __init__(self, path: Path, last_step: int | None = None):
        """Open for appending; first cut whatever comes after `last_step`, and a row that was torn by a kill."""
        self._path = path
        keep = rows(path, last_step) if path.exists() else []
        text = "".join(line(row) for row in keep)
        if path.exists() and path.read_text("utf-8") != text:
            with complete_file(path) as temporary:
                temporary.write_text(text, "utf-8")
        self._file = open(path, "a", encoding="utf-8")  # noqa: SIM115

    def write(self, row: Mapping[str, Any]) -> None:
        self._file.write(line(row))
        self._file.flush()

    def sync(self) -> None:
        """Return when the rows would survive a power cut."""
        self._file.flush()
        os.fsync(self._file.fileno())

    def close(self) -> None:
        self._file.close()


def line(row: Mapping[str, Any]) -> str:
    """One row. JSON has no NaN: a number that is not finite is written as null."""
    return json.dumps(jsonable(row), allow_nan=False) + "\n"


def rows(path: Path, last_step: int | None = None) -> list[dict[str, Any]]:
    """The complete rows of a log, up to `last_step` if given."""
    found: list[dict[str, Any]] = []
    for text in path.read_text("utf-8", errors="replace").splitlines(keepends=True):
        try:
            row = json.loads(text) if text.endswith("\n") else None
        except ValueError:
            row = None
        if not isinstance(row, dict) or not isinstance(row.get("step"), int):
            break
        if last_step is None or row["step"] <= last_step:
            found.append(row)
    return found


# --- by choice -------------------------------------------------------------------------------------------------------


class Sink(Protocol):
    """A tracker that shows numbers elsewhere. Losing what it shows loses no work."""

    def write(self, group: str, step: int, values: Mapping[str, float]) -> None: ...

    def close(self) -> None: ...


class TensorBoard:
    """Event files in the run's `tensorboard/`, written with the tensorboard package alone (no torch, no tensorflow)."""

    def __init__(self, folder: Path, config: Mapping[str, Any], first_step: int):
        from tensorboard.compat.proto.event_pb2 import Event, SessionLog  # pyright: ignore[reportMissingImports]
        from tensorboard.compat.proto.summary_pb2 import Summary  # pyright: ignore[reportMissingImports]
        from tensorboard.summary.writer.event_file_writer import EventFileWriter  # pyright: ignore[reportMissingImports]

        del config
        self._event, self._summary = Event, Summary
        self._writer = EventFileWriter(str(folder / "tensorboard"))
        # A new session makes TensorBoard forget what an interrupted one logged after the checkpoint.
        self._writer.add_event(Event(step=first_step + 1, session_log=SessionLog(status=SessionLog.START)))

    def write(self, group: str, step: int, values: Mapping[str, float]) -> None:
        found = [self._summary.Value(tag=f"{group}/{name}", simple_value=value) for name, value in values.items()]
        self._writer.add_event(self._event(wall_time=time.time(), step=step, summary=self._summary(value=found)))

    def close(self) -> None:
        self._writer.close()


class Wandb:
    """A Weights & Biases run; the same run is continued after a resume. Its own settings come from WANDB_* variables."""

    def __init__(self, folder: Path, config: Mapping[str, Any], first_step: int):
        import wandb  # pyright: ignore[reportMissingImports]

        del first_step
        name = folder.resolve()
        self._run = wandb.init(
            project=os.environ.get("WANDB_PROJECT", "odice"),
            name=f"{name.parent.name}/{name.name}",
            id=hashlib.sha256(f"{name} {json.dumps(config, sort_keys=True)}".encode()).hexdigest()[:16],
            dir=str(folder),
            config=dict(config),
            resume="allow",
        )

    def write(self, group: str, step: int, values: Mapping[str, float]) -> None:
        self._run.log({"step": step, **{f"{group}/{name}": value for name, value in values.items()}})

    def close(self) -> None:
        self._run.finish()


SINKS = {"tensorboard": TensorBoard, "wandb": Wandb}


def open_sink(name: str, folder: Path, config: Mapping[str, Any], first_step: int) -> Sink:
    """A tracker by name; its package is imported here and nowhere else."""
    if name not in SINKS:
        raise unknown_name("log", name, SINKS)
    try:
        return SINKS[name](folder, config, first_step)
    except ImportError:
        raise OdiceError(f"--log {name} needs a package that is not installed: pip install 'odice[{name}]'.") from None
