"""Files and folders that are either complete or absent: written under a temporary name, then renamed.

Two more kinds of care for folders and files that somebody else may have written:

- Reading: no wait on a pipe, no file larger than its limit.
- Writing and deleting in a folder that odice owns (a run, a sweep): such a folder may come out of an archive, and
  archives carry symbolic links. Links inside it are refused, and deletion is relative to a folder descriptor that was
  opened without following one. Only the folder that the user names may be a link itself.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import secrets
import shutil
import stat
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
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
    refuse_link(path)
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
        delete(temporary, follow_parent=True)
        _step_back(path)
        raise
    delete(_aside(path), follow_parent=True)


def recover(path: str | Path) -> None:
    """Clean up after a killed writer of `path`: its last complete version is back, what was not finished is gone.

    Only for the one owner of `path`: a writer at work in another process would lose its temporary.
    """
    path = Path(path)
    _step_back(path)
    unfinished = re.compile(rf"\.{re.escape(path.name)}\.[0-9a-f]{{8}}\.tmp")
    for other in path.parent.iterdir() if path.parent.is_dir() else ():
        if unfinished.fullmatch(other.name):
            delete(other, follow_parent=True)


# --- folders that odice owns ------------------------------------------------------------------------------------------


def refuse_link(path: str | Path) -> None:
    """Raise if `path` is a symbolic link."""
    if os.path.islink(path):
        raise _linked(path)


def refuse_links_below(folder: str | Path, path: str | Path) -> None:
    """Raise if a symbolic link leads from `folder`, which may be one itself, to `path` inside it."""
    place = Path(folder)
    for part in Path(path).relative_to(folder).parts:
        place = place / part
        refuse_link(place)


def refuse_links_in(folder: str | Path, unchecked: Sequence[str] = ()) -> None:
    """Raise if there is a symbolic link anywhere in `folder`, except inside folders with a name in `unchecked`."""
    root = _open_folder(folder, follow=True)
    try:
        for place, folders, files, here in os.fwalk(".", dir_fd=root):  # does not walk through links
            for name in (*folders, *files):
                with suppress(FileNotFoundError):  # deleted meanwhile, by a worker of a sweep
                    if stat.S_ISLNK(os.stat(name, dir_fd=here, follow_symlinks=False).st_mode):
                        raise _linked(Path(folder, place, name))
            folders[:] = [name for name in folders if name not in unchecked]
    finally:
        os.close(root)


def make_folder(path: str | Path) -> Path:
    """Make a folder inside one that odice owns; raise if a symbolic link has its name."""
    refuse_link(path)
    os.makedirs(path, exist_ok=True)
    return Path(path)


def open_owned(path: str | Path, flags: int) -> int:
    """Open a file that odice changes in place; raise for links, hard links to another name, pipes and devices.

    Args:
        path: The file, in a folder that odice owns.
        flags: Those of `os.open`; a file that is made is readable by all.

    Returns:
        The descriptor, for the caller to close.
    """
    try:
        handle = os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC, 0o644)
    except OSError:
        refuse_link(path)
        raise
    status = os.fstat(handle)
    if not stat.S_ISREG(status.st_mode) or status.st_nlink > 1:
        os.close(handle)
        what = "has a second name (a hard link)" if stat.S_ISREG(status.st_mode) else "is not a regular file"
        raise OdiceError(f"{path} {what}, so odice does not write to it; put a copy of the file there, or remove it.")
    return handle


def delete(path: str | Path, *, follow_parent: bool = False) -> None:
    """Delete a file or a folder that odice wrote, if it is there; of a symbolic link, the link.

    Args:
        path: What to delete.
        follow_parent: Whether the folder that holds it may be a link, because the user named it.
    """
    path = Path(path)
    try:
        parent = _open_folder(path.parent, follow=follow_parent)
    except FileNotFoundError:
        return
    try:
        if stat.S_ISDIR(os.stat(path.name, dir_fd=parent, follow_symlinks=False).st_mode):
            shutil.rmtree(path.name, ignore_errors=True, dir_fd=parent)
        else:
            os.unlink(path.name, dir_fd=parent)
    except FileNotFoundError:
        pass
    finally:
        os.close(parent)


def _open_folder(path: str | Path, *, follow: bool) -> int:
    try:
        return os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC | (0 if follow else os.O_NOFOLLOW))
    except OSError:
        if not follow:
            refuse_link(path)
        raise


def _linked(path: str | Path) -> OdiceError:
    return OdiceError(
        f"{path} is a symbolic link, and odice writes to and deletes nothing behind one; put the file or folder itself "
        "there, or remove the link."
    )


# --- files of others --------------------------------------------------------------------------------------------------


@contextmanager
def regular_file(path: str | Path, *, links: bool = True) -> Iterator[BinaryIO]:
    """The file, open for reading, if it is a regular one: a pipe would wait for ever, a device may never end.

    It is opened without waiting and checked afterwards, so what is checked is what is read. Without `links`, a symbolic
    link is refused.
    """
    try:
        follow = 0 if links else os.O_NOFOLLOW
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC | follow)
    except (OSError, ValueError) as error:  # ValueError: a NUL in the name
        reason = getattr(error, "strerror", None) or error
        if not links and os.path.islink(path):
            reason = "it is a symbolic link"
        raise OdiceError(f"{path}: cannot be opened ({reason}); check the path, or write the file again.") from error
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise OdiceError(f"{path}: not a regular file (a folder, a pipe or a device); put the file itself there.")
    with open(handle, "rb") as file:
        yield file


def read_text(path: str | Path, limit: int, *, links: bool = True) -> str:
    """The text of a regular file of at most `limit` bytes; everything else is refused, and never read whole."""
    with regular_file(path, links=links) as file:
        data = file.read(limit + 1)  # not the size it says: a file may grow, and those in /proc say 0
    if len(data) > limit:
        raise OdiceError(f"{path}: larger than {limit:,} bytes, which is not what such a file is; write it again.")
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise OdiceError(f"{path}: not text in UTF-8 (byte {error.start}); write the file again.") from error


def read_json(path: str | Path, limit: int, *, links: bool = True) -> Any:
    """The JSON in a regular file of at most `limit` bytes, whoever wrote it."""
    try:
        return json.loads(read_text(path, limit, links=links))
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
    aside = _aside(path)
    if aside.is_dir() and not aside.is_symlink():
        if path.exists():
            delete(aside, follow_parent=True)
        else:
            os.replace(aside, path)
