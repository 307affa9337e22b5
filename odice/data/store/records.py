"""The file of a store that training reads: observation, action and reward of a step side by side.

A transition is a record and the observation at the head of the record that follows, so one read of a few hundred bytes
fetches it, where an array per field would take four. The file is read, not mapped: mapping scattered pages costs more
than copying a few bytes from each, and every mapped page would count as memory of the process.
"""

from __future__ import annotations

import errno
import os
import weakref
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import numpy as np

from odice.data.dataset import Dataset, blocks, release

RECORDS = "records.npy"
FIELDS = ("observation", "action", "reward")
# How many transitions lie in the buffer that the file is read into.
CHUNK = 2048
# "What is not in the operating system's cache: begin to fetch it, but do not wait." Only Linux knows this.
NOWAIT = getattr(os, "RWF_NOWAIT", 0)


def layout_of(observations: np.ndarray, actions: np.ndarray) -> np.dtype:
    """The fields of a record for these arrays of a data set."""
    observation, action = ((array.dtype, array.shape[1:]) for array in (observations, actions))
    return np.dtype([("observation", *observation), ("action", *action), ("reward", np.float32)])


def record_blocks(dataset: Dataset) -> Iterator[np.ndarray]:
    """A record for each observation of a data set, in blocks of 2 MB; action and reward of a final one are 0."""
    layout = layout_of(dataset.observations, dataset.actions)
    first = dataset.starts + np.arange(dataset.n_episodes)
    for block in blocks(len(dataset.observations), layout.itemsize):
        numbers = np.arange(block.start, block.stop)
        owner = np.searchsorted(first, numbers, side="right") - 1
        acted = numbers != (first + dataset.lengths)[owner]
        steps = (numbers - owner)[acted]
        records = np.zeros(len(numbers), layout)
        records["observation"] = dataset.observations[block]
        records["action"][acted] = dataset.actions[steps]
        records["reward"][acted] = dataset.rewards[steps]
        yield records
        for array in (dataset.observations, dataset.actions, dataset.rewards):
            release(array)


class Records:
    """Transitions by the number of their observation, read from the records of a store."""

    def __init__(self, records: np.memmap):
        self._path = Path(str(records.filename))
        self._file = os.open(self._path, os.O_RDONLY)
        weakref.finalize(self, os.close, self._file)
        with suppress(AttributeError, OSError):  # reading ahead would fetch rows that nobody needs
            os.posix_fadvise(self._file, 0, 0, os.POSIX_FADV_RANDOM)
        self._begin, self._stride, self._nowait = records.offset, records.dtype.itemsize, NOWAIT
        fields = [(name, records.dtype[name]) for name in FIELDS]
        self._row = np.dtype([*fields, ("next_observation", records.dtype["observation"])])

    @classmethod
    def of(cls, dataset: Dataset) -> Records | None:
        """Those of a data set that is an opened store, or the beginning of one; else None."""
        arrays = (dataset.observations, dataset.actions, dataset.rewards)
        if not all(isinstance(array, np.memmap) and _from_the_start(array) for array in arrays):
            return None
        folders = {Path(array.filename).parent for array in arrays}  # pyright: ignore[reportAttributeAccessIssue]
        records = dataset.observations.base
        if len(folders) > 1 or not isinstance(records, np.memmap) or records.dtype.names != FIELDS:
            return None
        return cls(records)

    def chunks(self, numbers: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """(places, rows): `rows` holds the transitions of `numbers[places]`, until the next chunk.

        They are visited in the order of the file, which a disk likes.
        """
        order = np.argsort(numbers, kind="stable")
        rows = np.empty(min(CHUNK, len(numbers)), self._row)
        raw, size = rows.view(np.uint8).data, self._row.itemsize
        slots = [(raw[i : i + size],) for i in range(0, rows.nbytes, size)]
        for start in range(0, len(numbers), CHUNK):
            places = order[start : start + CHUNK]
            self._read(slots, (numbers[places].astype(np.int64) * self._stride + self._begin).tolist())
            yield places, rows[: len(places)]

    def _read(self, slots: list[tuple[memoryview]], offsets: list[int]) -> None:
        """First all that is cached, while the disk begins to fetch the rest; then the rest."""
        file, size, late = self._file, self._row.itemsize, []
        read = os.preadv if hasattr(os, "preadv") else _preadv
        for slot, offset in zip(slots, offsets, strict=False):
            try:
                if read(file, slot, offset, self._nowait) != size:
                    late.append((slot, offset))
            except OSError as error:
                if error.errno == errno.EOPNOTSUPP and self._nowait:
                    self._nowait = 0  # this file system can only wait
                elif not isinstance(error, BlockingIOError):
                    raise
                late.append((slot, offset))
        for slot, offset in late:
            if read(file, slot, offset) != size:
                raise OSError(f"{self._path}: the file is shorter than it was; make the store again")


def _preadv(file: int, buffers: tuple[memoryview], offset: int, flags: int = 0) -> int:
    """`os.preadv` into one buffer, for systems that lack it."""
    block = os.pread(file, len(buffers[0]), offset)
    buffers[0][: len(block)] = block
    return len(block)


def _from_the_start(array: np.memmap) -> bool:
    """Whether the array's first row is the first of its file."""
    base = array.base if isinstance(array.base, np.memmap) else array
    return array.ctypes.data == base.ctypes.data
