"""The files of a log: a folder, a pattern (`logs/*.parquet`), or the same in a bucket (`s3://`, `gs://`), by fsspec.

A file in a bucket is copied to a temporary folder while it is read; the next one is fetched meanwhile.
"""

from __future__ import annotations

import glob
import os
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from odice.data.names import natural
from odice.errors import OdiceError, brief

PATTERN = "*?["
KINDS = (".parquet", ".pq")


class LogFile(NamedTuple):
    """One file: where it is, and by what a change of it would be noticed."""

    name: str
    size: int
    version: str
    """Its time or, in a bucket, what the store says of its content."""


def is_many(source: Any) -> bool:
    """Whether a source names files by a pattern, or is in a bucket."""
    if not isinstance(source, str):
        return False
    return "://" in source or (any(sign in source for sign in PATTERN) and not Path(source).exists())


def short_name(source: str | Path) -> str:
    """What to call a source: the last part of its path that is no pattern, without the end of a file's name."""
    parts = [part for part in Path(source).parts if not any(sign in part for sign in PATTERN)]
    return Path(parts[-1]).stem if parts else "data"


def list_files(source: str | Path) -> list[LogFile]:
    """The Parquet files behind a folder, a pattern or an address, in natural order."""
    text = os.fspath(source)
    if "://" in text:
        found = _in_bucket(text)
    else:
        folder = Path(text)
        names = folder.iterdir() if folder.is_dir() else (Path(name) for name in glob.glob(text, recursive=True))
        paths = [path for path in names if path.is_file() and path.suffix.lower() in KINDS]
        found = [LogFile(str(path), path.stat().st_size, str(path.stat().st_mtime_ns)) for path in paths]
    found = sorted((file for file in found if file.size), key=lambda file: natural(file.name))
    if not found:
        raise OdiceError(
            f"{text}: no Parquet files are there; name a folder of them, or a pattern such as '*.parquet'."
        )
    return found


def _in_bucket(address: str) -> list[LogFile]:
    system, path = _system(address)
    scheme = address.partition("://")[0]
    try:
        pattern = path if any(sign in path for sign in PATTERN) else path.rstrip("/")
        if pattern == path.rstrip("/") and not path.lower().endswith(KINDS):
            pattern += "/*"
        known = system.glob(pattern, detail=True)
    except Exception as error:  # every store has errors of its own
        raise OdiceError(
            f"{address}: cannot be listed ({brief(error)}); check the address and the credentials."
        ) from error
    found = []
    for name, facts in known.items():
        if facts["type"] == "file" and name.lower().endswith(KINDS):
            version = facts.get("ETag") or facts.get("etag") or facts.get("mtime")
            found.append(LogFile(f"{scheme}://{name}", int(facts["size"] or 0), str(version)))
    return found


def _system(address: str) -> tuple[Any, str]:
    """The file system behind an address, and the path in it."""
    try:
        from fsspec.core import url_to_fs

        return url_to_fs(address)
    except ImportError as error:
        raise OdiceError(
            f"{address}: reading from there needs the package {error.name or 'fsspec'}; install it with: "
            "pip install 'odice[cloud]'"
        ) from None
    except (ValueError, OSError) as error:
        raise OdiceError(f"{address}: cannot be opened ({brief(error)}).") from error


@contextmanager
def local_copies(files: Sequence[LogFile]) -> Iterator[Iterator[tuple[LogFile, Path]]]:
    """Each file with a path on this machine, one after the other; a copy is deleted when the next one is asked for."""
    with tempfile.TemporaryDirectory(prefix="odice-files-") as folder, ThreadPoolExecutor(1) as pool:

        def fetch(number: int) -> Path:
            return _fetch(files[number], Path(folder) / f"{number}.parquet")

        def walk() -> Iterator[tuple[LogFile, Path]]:
            ahead: Future[Path] | None = pool.submit(fetch, 0) if files else None
            for number, file in enumerate(files):
                assert ahead is not None
                path = ahead.result()
                ahead = pool.submit(fetch, number + 1) if number + 1 < len(files) else None
                yield file, path
                if "://" in file.name:
                    path.unlink(missing_ok=True)

        yield walk()


@contextmanager
def all_local(files: Sequence[LogFile]) -> Iterator[list[Path]]:
    """Paths of all files on this machine at once, until the block ends."""
    with tempfile.TemporaryDirectory(prefix="odice-files-") as folder:
        yield [_fetch(file, Path(folder) / f"{number}.parquet") for number, file in enumerate(files)]


def _fetch(file: LogFile, place: Path) -> Path:
    """A path on this machine: the file itself, or a copy at `place`."""
    if "://" not in file.name:
        return Path(file.name)
    system, path = _system(file.name)
    try:
        system.get_file(path, str(place))
    except Exception as error:
        reason = "it is gone" if isinstance(error, FileNotFoundError) else brief(error)
        raise OdiceError(f"{file.name}: cannot be read ({reason}); run the command again.") from error
    if (size := place.stat().st_size) != file.size:
        raise OdiceError(f"{file.name}: has changed, from {file.size:,} to {size:,} bytes; run the command again.")
    return place
