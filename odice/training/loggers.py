"""Where a run's numbers go: JSON lines always; TensorBoard and Weights & Biases for those who ask.

A JSON-lines file belongs to a checkpoint: rows up to the checkpoint's step are on the disk before it is committed, the
checkpoint keeps a copy of them, and on resume everything after it is cut. So an interrupted run and an uninterrupted
one leave the same bytes, and a log that was damaged meanwhile is noticed and put right.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import time
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

from odice.errors import OdiceError, unknown_name
from odice.files import complete_file, make_folder, open_owned, regular_file
from odice.jsonable import jsonable

LOG_BYTES = 1 << 30
"""No log of a run is larger: a row is less than a kilobyte, and there is at most one for a thousand updates."""


MAX_STEP = 1 << 53
"""No run has so many updates; beyond it a float cannot tell two apart."""


class LogWarning(UserWarning):
    """A log was damaged and put right."""


class JsonLines:
    """An append-only log with a `step` in every row."""

    def __init__(self, path: Path, last_step: int | None = None, known: str | None = None):
        """Open for appending; first cut whatever comes after `last_step`, and a row that was torn by a kill.

        `known` is what the log held at the checkpoint: then everything after it is cut, and a log that does not begin
        with it is damaged. A damaged log is kept aside, and what is known or can be read goes on.
        """
        there = _content(path)
        if known is None:
            kept, damaged = _parse(there)
            known = "".join(line(row) for row in kept if last_step is None or row["step"] <= last_step)
        else:
            damaged = not there.startswith(known.encode())
        if damaged:
            _keep_aside(path)
        if there != known.encode():
            with complete_file(path) as temporary:
                temporary.write_text(known, "utf-8")
        self._lines = [known]
        self._file = os.fdopen(open_owned(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT), "a", encoding="utf-8")

    @property
    def text(self) -> str:
        """All that the log holds, from memory: a copy of it is worth something only if it does not come from the
        disk."""
        self._lines = ["".join(self._lines)]
        return self._lines[0]

    @property
    def sha256(self) -> str:
        return hashlib.sha256(self.text.encode()).hexdigest()

    def write(self, row: Mapping[str, Any]) -> None:
        self._lines.append(line(row))
        self._file.write(self._lines[-1])
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


def rows(path: Path, sha256: str | None = None) -> list[dict[str, Any]]:
    """The complete rows of a log. Of one that is being written the last row may be torn; any other damage is an error.

    `sha256` is what a finished run says its log has.
    """
    there = _content(path)
    parsed, damaged = _parse(there)
    if damaged or (sha256 is not None and hashlib.sha256(there).hexdigest() != sha256):
        raise OdiceError(
            f"{path} is damaged: rows in it are not those that were written; run the training's command again, which "
            "puts it right from the last checkpoint."
        )
    return parsed


def _content(path: Path) -> bytes:
    if not os.path.lexists(path):
        return b""
    with regular_file(path, links=False) as file:
        data = file.read(LOG_BYTES + 1)
    if len(data) > LOG_BYTES:
        raise OdiceError(f"{path}: larger than {LOG_BYTES:,} bytes, which is not what such a log is; move it away.")
    return data


def _parse(content: bytes) -> tuple[list[dict[str, Any]], bool]:
    """The rows that can be read, and whether one that cannot stands before the end: a kill only tears the last."""
    parsed: list[dict[str, Any]] = []
    torn = damaged = False
    for text in content.split(b"\n")[:-1]:
        damaged |= torn
        try:
            row = json.loads(text)
        except (ValueError, RecursionError):
            row = None
        if isinstance(row, dict) and type(row.get("step")) is int and 0 <= row["step"] < MAX_STEP:
            parsed.append(row)
        else:
            torn = True
    return parsed, damaged


def _keep_aside(path: Path) -> None:
    """A copy of a damaged log in the run's `damaged/`, and a word about it."""
    folder = make_folder(path.parent / "damaged")
    number = sum(each.name.startswith(path.name) for each in folder.iterdir())
    copy = folder / f"{path.name}.{number}"
    with complete_file(copy) as temporary:
        shutil.copyfile(path, temporary)
    warnings.warn(
        f"{path} was damaged: it does not hold the rows that were written. They are put right from the checkpoint as "
        f"far as it knows them; the damaged file is kept as {copy}.",
        LogWarning,
        stacklevel=4,
    )


# --- by choice -------------------------------------------------------------------------------------------------------


class Sink(Protocol):
    """A tracker that shows numbers elsewhere. Losing what it shows loses no work."""

    def write(self, group: str, step: int, values: Mapping[str, float]) -> None:
        """Show numbers under `group/NAME` at a step."""
        ...

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
        scalars = [self._summary.Value(tag=f"{group}/{name}", simple_value=value) for name, value in values.items()]
        self._writer.add_event(self._event(wall_time=time.time(), step=step, summary=self._summary(value=scalars)))

    def close(self) -> None:
        self._writer.close()


class Wandb:
    """A Weights & Biases run; the same run is continued after a resume. Its own settings come from WANDB_*
    variables."""

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
    """A tracker; its package is imported here and nowhere else.

    Args:
        name: One of `SINKS`.
        folder: The run's folder.
        config: The settings of the run, to be shown with it.
        first_step: Where the run starts, or goes on.
    """
    if name not in SINKS:
        raise unknown_name("log", name, SINKS)
    try:
        return SINKS[name](folder, config, first_step)
    except ImportError:
        raise OdiceError(f"--log {name} needs a package that is not installed: pip install 'odice[{name}]'.") from None
