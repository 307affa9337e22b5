"""The run directory: the configuration of a run, its lock, its logs and its result.

    config.json         the resolved configuration, versions, data fingerprint, git revision
    metrics.jsonl       one row per chunk of updates
    evaluations.jsonl   one row per evaluation: every episode's return and length, and the seeds
    timing.jsonl        wall-clock times; apart, so that the two above are the same in every run of a configuration
    checkpoints/        states to continue from
    policy/last, best   what to deploy; policy/step-N, of the checkpoints that are kept
    result.json         written last: the run is finished

One process at a time: the lock belongs to the open file, so the kernel releases it even when a process is killed.

The folder may have come out of an archive. Whoever works on it (`__enter__`) first makes sure that it holds no symbolic
link, so nothing outside of it is written or deleted; the folder itself may be a link, made by the user.
"""

from __future__ import annotations

import fcntl
import json
import os
import time
import warnings
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from odice.errors import OdiceError
from odice.files import (
    complete_file,
    delete,
    make_folder,
    open_owned,
    read_json,
    recover,
    refuse_links_in,
    sealed,
    unsealed,
)
from odice.jsonable import jsonable
from odice.training.loggers import LogWarning, rows

RECORD_BYTES = 64 << 20
"""No JSON file of a run is larger."""
LOGS = ("metrics.jsonl", "evaluations.jsonl")
"""The logs whose checksums a finished run records."""
UNCHECKED = ("wandb",)
"""Weights & Biases keeps links of its own in its folder."""


class RunDirectory:
    """One run's folder, locked from `__enter__` to `__exit__`.

    Args:
        path: The folder; it is made if it is not there.
        wait: Seconds to wait for another process that holds the lock.
    """

    def __init__(self, path: str | Path, *, wait: float = 0.0):
        self.path, self._wait = Path(path), wait
        self._lock: int | None = None
        self._made: list[Path] = []

    @property
    def checkpoints(self) -> Path:
        """The folder of the checkpoints."""
        return self.path / "checkpoints"

    @property
    def policy(self) -> Path:
        """The folder of the policies."""
        return self.path / "policy"

    def __enter__(self) -> RunDirectory:
        self._made = [folder for folder in (self.path, *self.path.parents) if not folder.exists()]
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            new = not (self.path / ".lock").exists()
            lock = open_owned(self.path / ".lock", os.O_RDWR | os.O_CREAT)
        except OSError as error:
            raise OdiceError(
                f"{self.path}: cannot write there ({error.strerror}); choose another folder with --out."
            ) from None
        until = time.monotonic() + self._wait
        while not (locked := _try_lock(lock)) and time.monotonic() < until:
            time.sleep(0.2)
        if not locked:
            owner = os.read(lock, 32).decode(errors="replace").strip()
            os.close(lock)
            raise OdiceError(
                f"{self.path}: another process{f' (id {owner})' if owner else ''} is working on this run; "
                "wait for it, or choose another folder with --out."
            )
        try:
            refuse_links_in(self.path, UNCHECKED)
        except OdiceError:
            if new:
                delete(self.path / ".lock", follow_parent=True)
            os.close(lock)
            raise
        os.ftruncate(lock, 0)
        os.pwrite(lock, f"{os.getpid()}\n".encode(), 0)
        self._lock = lock
        return self

    def __exit__(self, *_: object) -> None:
        if self._lock is None:
            return
        if self._made and os.listdir(self.path) == [".lock"]:  # refused before it began: leave no trace
            (self.path / ".lock").unlink()
            with suppress(OSError):
                for folder in self._made:
                    folder.rmdir()
        os.close(self._lock)
        self._lock = None

    # --- what the run is ----------------------------------------------------------------------------------------------

    def claim(self, identity: Mapping[str, Any], record: Mapping[str, Any]) -> bool:
        """Write `config.json`, or check that the one there has the same configuration.

        The same configuration with more steps is the same run, made longer.

        Args:
            identity: The configuration: all that changes a number in the run's files.
            record: What else to write down.

        Returns:
            Whether the run was there already.
        """
        for name in ("config.json", *LOGS, "result.json", "policy/last", "policy/best"):
            recover(self.path / name)  # what a killed process left half-written
        identity = json.loads(json.dumps(identity))
        if (self.path / "config.json").exists():
            before = self.read("config.json")
            if not isinstance(before.get("config"), dict):
                raise OdiceError(f"{self.path / 'config.json'} holds no configuration; start a new run with --out.")
            known = before["config"]
            if _longer(known, identity):
                (self.path / "result.json").unlink(missing_ok=True)  # first: with it, the longer run would be finished
                self.write("config.json", {**before, "config": identity})
            elif changes := differences(known, identity):
                if name := _schedule(known, identity):
                    raise OdiceError(
                        f"{self.path} holds a run whose learning rates fall to 0 over its {known['steps']:,} updates, "
                        f"so it cannot go on to {identity['steps']:,}; choose another folder with --out, and for a run "
                        f"that can be made longer --{name.replace('_', '-')} 0."
                    )
                raise OdiceError(
                    f"{self.path} holds a run of another configuration ({'; '.join(changes[:6])}); use the same "
                    "settings to continue it, or choose another folder with --out."
                )
            return True
        strangers = [item.name for item in self.path.iterdir() if item.name != ".lock"]
        if strangers:
            raise OdiceError(
                f"{self.path} is not empty and not a run (it holds {strangers[0]!r}); choose another folder with --out."
            )
        self.write("config.json", {"config": identity, **record})
        return False

    @property
    def result(self) -> dict[str, Any] | None:
        """What a finished run ended with; None while it is not finished.

        Where the result or a log was damaged since, the run counts as not finished: its last checkpoint makes both
        again.
        """
        if not (self.path / "result.json").exists():
            return None
        try:
            result = self.read("result.json")
            for name in LOGS:
                rows(self.path / name, log_checksum(result, name))
            return result
        except OdiceError as error:
            os.replace(self.path / "result.json", make_folder(self.path / "damaged") / "result.json")
            warnings.warn(f"{error} The run is finished again from its last checkpoint.", LogWarning, stacklevel=2)
            return None

    def read(self, name: str) -> dict[str, Any]:
        """Read one of the run's JSON files."""
        return read_record(self.path / name)

    def write(self, name: str, content: Mapping[str, Any]) -> None:
        """Write a JSON file that is either complete or not there."""
        write_record(self.path / name, content)


def _try_lock(file: int) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def write_record(path: Path, content: Mapping[str, Any]) -> None:
    """Write one of a run's JSON files, completely or not at all."""
    with complete_file(path) as temporary:
        temporary.write_text(
            json.dumps(sealed(jsonable(content, words=True)), indent=1, allow_nan=False) + "\n", "utf-8"
        )


def read_record(path: Path) -> dict[str, Any]:
    """One of a run's JSON files, if it is what was written."""
    record = read_json(path, RECORD_BYTES, links=False)
    if not isinstance(record, dict):
        raise OdiceError(f"{path}: not an object of named values; restore the file, or start a new run with --out.")
    return unsealed(record, path)


def log_checksum(result: Mapping[str, Any], name: str) -> str | None:
    """The SHA-256 that a finished run recorded of one of its logs; None if it recorded none."""
    known = result.get("logs_sha256", {})
    sha256 = known.get(name) if isinstance(known, Mapping) else ""
    if (sha256 is not None and not isinstance(sha256, str)) or sha256 == "":
        raise OdiceError("result.json: `logs_sha256` holds no checksums; run the training's command again.")
    return sha256


def _schedule(known: Mapping[str, Any], identity: Mapping[str, Any]) -> str | None:
    """The setting that is the run's own length, if a change of length is all that differs."""
    if not all("steps" in each and "settings" in each for each in (known, identity)):
        return None  # a learner's folder has other entries
    old, new = known["settings"], identity["settings"]
    names = [name for name in new if old.get(name) == known["steps"] and new[name] == identity["steps"]]
    for name in names:
        if not differences({**known, "steps": identity["steps"], "settings": {**old, name: new[name]}}, identity):
            return name
    return None


def _longer(old: Mapping[str, Any], new: Mapping[str, Any]) -> bool:
    """Whether two configurations differ in nothing but that the new one has more steps."""
    steps = old.get("steps")
    return isinstance(steps, int) and new.get("steps", 0) > steps and not differences(old, {**new, "steps": steps})


def differences(old: Mapping[str, Any], new: Mapping[str, Any], prefix: str = "") -> list[str]:
    """`name: old value there, new value now` for every entry in which two configurations differ."""
    changes: list[str] = []
    for key in sorted(set(old) | set(new)):
        a, b = old.get(key), new.get(key)
        if isinstance(a, Mapping) and isinstance(b, Mapping):
            changes += differences(a, b, f"{prefix}{key}.")
        elif a != b:
            changes.append(f"{prefix}{key}: {_brief(a)} there, {_brief(b)} now")
    return changes


def _brief(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 40 else f"{text[:37]}..."
