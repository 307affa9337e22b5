"""Run directories in an object store, by any address that fsspec knows (s3://, gs://, abfs://, file:// ...).

A run works in a folder of its node. The store has

    STORE/DATA/ALGO/seed-N.tar     what an unfinished run needs to go on: its folder at some moment, replaced as a whole
    STORE/DATA/ALGO/seed-N/        the run directory of a finished one; its result.json is written last
    STORE/DATA/ALGO/seed-N.log     what its processes printed

A run may be killed at any moment and continues from what is on the disk then. An archive is such a moment, except that
its files are read one after the other: checkpoints first, so that the logs are never behind them.
"""

from __future__ import annotations

import io
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from odice.errors import OdiceError, brief
from odice.files import complete_file

SMALL = ("evaluations.jsonl", "metrics.jsonl", "timing.jsonl", "config.json", "result.json")
"""The files of a run that a report reads; `result.json` last, which says that it is finished."""


class Store:
    """A folder in an object store."""

    def __init__(self, address: str):
        try:
            import fsspec
        except ImportError:
            raise OdiceError("--store needs fsspec; install it with: pip install 'odice[ray]'") from None
        try:
            self._files, root = fsspec.core.url_to_fs(address)
        except (ImportError, ValueError) as error:  # an address of a kind that needs a package, or of none
            raise OdiceError(f"--store {address} cannot be opened: {error}") from None
        self._address, self._root = address, root.rstrip("/")

    def fetch(self, name: str, folder: Path) -> None:
        """Bring a run to `folder`: all of it if it is finished, else as it was last saved, if it was."""
        with self._reached():
            if self.finished(name):
                self._files.get(f"{self._at(name)}/", f"{folder}/", recursive=True)
                return
            if not self._files.exists(f"{self._at(name)}.tar"):
                return
            data = io.BytesIO(self._files.cat_file(f"{self._at(name)}.tar"))
        folder.mkdir(parents=True, exist_ok=True)
        with tarfile.open(fileobj=data) as archive:
            archive.extractall(folder, filter="data")

    def fetch_small(self, name: str, folder: Path) -> None:
        """Bring the files of a run that a report reads, if the run is finished and not here."""
        if (folder / "result.json").exists() or not self.finished(name):
            return
        folder.mkdir(parents=True, exist_ok=True)
        with self._reached():
            for file in SMALL:
                if self._files.exists(f"{self._at(name)}/{file}"):
                    with complete_file(folder / file) as temporary:
                        self._files.get_file(f"{self._at(name)}/{file}", str(temporary))

    def save(self, name: str, folder: Path) -> bool:
        """Put an unfinished run's folder; return False if a file of it was removed meanwhile."""
        data = io.BytesIO()
        try:
            with tarfile.open(fileobj=data, mode="w") as archive:
                for path in sorted(folder.rglob("*"), key=lambda path: ("checkpoints" not in path.parts, path)):
                    if path.is_file() and path.name != ".lock" and not path.name.endswith(".tmp"):
                        archive.add(path, str(path.relative_to(folder)))
        except FileNotFoundError:
            return False
        self._put(f"{self._at(name)}.tar", data.getvalue())
        return True

    def deliver(self, name: str, folder: Path) -> None:
        """Put a finished run, its result last, and remove the archive that it continued from."""
        files = [path for path in sorted(folder.rglob("*")) if path.is_file() and path.name != ".lock"]
        for path in sorted(files, key=lambda path: path.name == "result.json"):
            self._put(f"{self._at(name)}/{path.relative_to(folder).as_posix()}", path.read_bytes())
        with self._reached():
            if self._files.exists(f"{self._at(name)}.tar"):
                self._files.rm(f"{self._at(name)}.tar")

    def add_log(self, name: str, log: Path) -> None:
        """Put what a run's process has printed."""
        if log.exists():
            self._put(f"{self._at(name)}.log", log.read_bytes())

    def finished(self, name: str) -> bool:
        """Whether the store has the run's result."""
        with self._reached():
            return bool(self._files.exists(f"{self._at(name)}/result.json"))

    def _put(self, path: str, data: bytes) -> None:
        """Write one object, or nothing. An object store does that by itself; a file system needs a second name."""
        with self._reached():
            self._files.makedirs(path.rpartition("/")[0], exist_ok=True)
            if _is_local(self._files):
                self._files.pipe_file(f"{path}.tmp", data)
                self._files.mv(f"{path}.tmp", path)
            else:
                self._files.pipe_file(path, data)

    @contextmanager
    def _reached(self) -> Iterator[None]:
        """Turn an error of the store into one sentence."""
        try:
            yield
        except OdiceError:
            raise
        except Exception as error:  # every store has errors of its own
            raise OdiceError(
                f"--store {self._address} cannot be reached ({brief(error)}); run the same command again to go on."
            ) from error

    def _at(self, name: str) -> str:
        return f"{self._root}/{name}"


def _is_local(files: Any) -> bool:
    from fsspec.implementations.local import LocalFileSystem

    return isinstance(files, LocalFileSystem)
