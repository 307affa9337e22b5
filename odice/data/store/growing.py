"""Arrays on disk that are written from the front, and a folder of them that survives a kill."""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from odice.data.dataset import blocks
from odice.errors import OdiceError
from odice.files import complete_file, read_json

PROGRESS = "progress.json"
PROGRESS_BYTES = 64 << 20


class Growing:
    """A `.npy` file that is written from the front; its header is corrected when the length is known.

    Args:
        path: The file.
        rows: Of a file that is there, how many rows to keep; what follows them is cut off.
    """

    def __init__(self, path: Path, rows: int = 0):
        self.rows, self._like = rows, None
        if not rows:
            self._file = open(path, "wb")  # noqa: SIM115
            return
        self._file = open(path, "r+b")  # noqa: SIM115
        np.lib.format.read_magic(self._file)
        shape, _, dtype = np.lib.format.read_array_header_1_0(self._file)
        self._like = np.empty((0, *shape[1:]), dtype)
        row = dtype.itemsize * int(np.prod(shape[1:], dtype=np.int64))
        self._file.seek(self._file.tell() + rows * row)
        self._file.truncate()

    def append(self, array: np.ndarray) -> None:
        """Write rows behind those that are there; all must have one type and shape."""
        if self._like is None:
            self._like = array[:0]
            self._header()
        if (array.dtype, array.shape[1:]) != (self._like.dtype, self._like.shape[1:]):
            raise OdiceError(
                f"Shards differ: rows of {array.shape[1:]} after {self._like.shape[1:]}; all must be alike."
            )
        for block in blocks(len(array), array[:1].nbytes):
            self._file.write(np.ascontiguousarray(array[block]).view(np.uint8).data)
        self.rows += len(array)

    def extend(self, arrays: Iterable[np.ndarray]) -> None:
        for array in arrays:
            self.append(array)

    def sync(self) -> None:
        """Make sure that what was written is on the disk."""
        self._file.flush()
        os.fsync(self._file.fileno())

    def finish(self) -> None:
        self._file.seek(0)
        self._header()
        self._file.flush()

    def __enter__(self) -> Growing:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def _header(self) -> None:
        if self._like is None:
            raise OdiceError("0 shards; a store needs at least one data set.")
        shape = (self.rows, *self._like.shape[1:])
        described = {
            "descr": np.lib.format.dtype_to_descr(self._like.dtype),
            "fortran_order": False,
            "shape": shape,
        }
        np.lib.format.write_array_header_1_0(self._file, described)  # leaves room for any number of rows


class Partial:
    """A folder of arrays that grow together, and how far they are: killed anywhere, it goes on from the last `save`.

    Args:
        folder: Where; `FOLDER.partial` until it is complete.
        names: The arrays.
        identity: What is being copied; a folder that was begun with another is refused.
    """

    def __init__(self, folder: Path, names: Iterable[str], identity: Any):
        self.folder = folder.with_name(f"{folder.name}.partial")
        self._final, self._identity = folder, json.loads(json.dumps(identity))
        self._names = tuple(names)
        self.position: dict[str, Any] = {}
        """What the last `save` was given."""

    def __enter__(self) -> Partial:
        self.folder.mkdir(parents=True, exist_ok=True)
        self._lock = os.open(self.folder / ".lock", os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(self._lock)
            raise OdiceError(f"{self.folder}: another process is making this store; wait for it.") from None
        rows = dict.fromkeys(self._names, 0)
        if (self.folder / PROGRESS).exists():
            known = read_json(self.folder / PROGRESS, PROGRESS_BYTES, links=False)
            if known.get("identity") != self._identity:
                os.close(self._lock)
                raise OdiceError(f"{self.folder}: was begun from other files or options; delete it to start again.")
            rows, self.position = known["rows"], known["position"]
        self.arrays = {name: Growing(self.folder / f"{name}.npy", rows[name]) for name in self._names}
        return self

    def save(self, position: dict[str, Any]) -> None:
        """Commit what was appended; `position` says from where to go on."""
        for array in self.arrays.values():
            array.sync()
        self.position = position
        rows = {name: array.rows for name, array in self.arrays.items()}
        with complete_file(self.folder / PROGRESS) as temporary:
            temporary.write_text(json.dumps({"identity": self._identity, "rows": rows, "position": position}))

    def finish(self) -> Path:
        """The folder with its arrays complete; rename it when the rest is there too."""
        for array in self.arrays.values():
            array.finish()
        return self.folder

    def rename(self) -> None:
        """Give it its final name."""
        (self.folder / PROGRESS).unlink()
        (self.folder / ".lock").unlink()
        os.replace(self.folder, self._final)

    def __exit__(self, *_: object) -> None:
        for array in self.arrays.values():
            array.__exit__()
        os.close(self._lock)
