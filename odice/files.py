"""Files and folders that are either complete or not there: written under a temporary name, then renamed.

And the other direction: text from a file that somebody else wrote, without hanging on it or filling the memory with it.
"""

from __future__ import annotations

import hashlib
import json
import os
import secrets
import shutil
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

from odice.errors import OdiceError


@contextmanager
def complete_file(path: str | Path) -> Iterator[Path]:
    """A temporary name in the same folder that becomes `path` if all goes well, and disappears otherwise."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = _unfinished(path)
    try:
        yield temporary
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


@contextmanager
def complete_folder(path: str | Path) -> Iterator[Path]:
    """The same for a folder. One that is already there is replaced as a whole.

    No system renames a folder onto a full one, so the old folder steps aside first; `recover` undoes that if the
    process was killed in between.
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    _step_back(path)
    temporary = _unfinished(path)
    temporary.mkdir()
    try:
        yield temporary
        if path.exists():
            os.replace(path, _aside(path))
        os.replace(temporary, path)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        _step_back(path)
        raise
    shutil.rmtree(_aside(path), ignore_errors=True)


def recover(path: str | Path) -> None:
    """Clean up after a killed writer of `path`: its last complete version is back, what was not finished is gone.

    Only for the one owner of `path`: a writer at work in another process would lose its temporary.
    """
    path = Path(path)
    _step_back(path)
    for other in path.parent.iterdir() if path.parent.is_dir() else ():
        if other.name.startswith(f".{path.name}.") and other.name.endswith(".tmp"):
            shutil.rmtree(other) if other.is_dir() else other.unlink()


@contextmanager
def regular_file(path: str | Path) -> Iterator[BinaryIO]:
    """The file, open for reading, if it is a regular one: a pipe would wait for ever, a device may never end.

    It is opened without waiting and looked at afterwards, so what is looked at is what is read.
    """
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    except (OSError, ValueError) as error:  # ValueError: a NUL in the name
        reason = getattr(error, "strerror", None) or error
        raise OdiceError(f"{path}: cannot be opened ({reason}); check the path, or write the file again.") from error
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise OdiceError(f"{path}: not a regular file (a folder, a pipe or a device); put the file itself there.")
    with open(handle, "rb") as file:
        yield file


def read_text(path: str | Path, limit: int) -> str:
    """The text of a regular file of at most `limit` bytes; everything else is refused, and never read whole."""
    with regular_file(path) as file:
        data = file.read(limit + 1)  # not the size it says: a file may grow, and those in /proc say 0
    if len(data) > limit:
        raise OdiceError(f"{path}: larger than {limit:,} bytes, which is not what such a file is; write it again.")
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise OdiceError(f"{path}: not text in UTF-8 (byte {error.start}); write the file again.") from error


def read_json(path: str | Path, limit: int) -> Any:
    """The JSON in a regular file of at most `limit` bytes, whoever wrote it."""
    try:
        return json.loads(read_text(path, limit))
    except RecursionError:
        raise OdiceError(f"{path}: nested too deeply; restore the file or write it again.") from None
    except ValueError as error:
        raise OdiceError(f"{path}: not a JSON text ({error}); restore the file or write it again.") from None


SEAL, SEALED = "sha256", "sealed"
"""The entry of a sealed object that holds the checksum of all the others; and the one that says there must be such an
entry."""


def checksum(content: Mapping[str, Any]) -> str:
    """SHA-256 of an object of JSON values, however it is spelled."""
    try:
        text = json.dumps(content, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    except RecursionError:
        raise OdiceError("An object nested too deeply for a checksum; restore the file from a copy.") from None
    return hashlib.sha256(text.encode()).hexdigest()


def sealed(content: Mapping[str, Any]) -> dict[str, Any]:
    """The object with a checksum of itself: it says whether the file is the one that was written, not who wrote it."""
    plain = json.loads(json.dumps({key: value for key, value in content.items() if key != SEAL} | {SEALED: True}))
    return {**plain, SEAL: checksum(plain)}


def unsealed(content: Mapping[str, Any], where: str | Path) -> dict[str, Any]:
    """The object without its checksum, if that is right. One without a checksum is of an older version, and taken."""
    rest = {key: value for key, value in content.items() if key != SEAL}
    if (SEAL in content or SEALED in content) and content.get(SEAL) != checksum(rest):
        raise OdiceError(
            f"{where} is damaged (its content is not what its SHA-256 was made of); restore it from a copy."
        )
    rest.pop(SEALED, None)
    return rest


def _unfinished(path: Path) -> Path:
    return path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")


def _aside(path: Path) -> Path:
    return path.with_name(f".{path.name}.old")


def _step_back(path: Path) -> None:
    if _aside(path).is_dir():
        if path.exists():
            shutil.rmtree(_aside(path))
        else:
            os.replace(_aside(path), path)
