"""Rows of arrays that may be memory-mapped and larger than memory: in blocks, picked, given back."""

from __future__ import annotations

import mmap
from collections.abc import Iterator

import numpy as np


def blocks(rows: int, row_bytes: int, block_bytes: int = 1 << 21) -> Iterator[slice]:
    """Slices that cover `rows`, about 2 MB each: how everything here walks through arrays larger than memory."""
    size = max(1, block_bytes // max(1, row_bytes))
    return (slice(a, min(a + size, rows)) for a in range(0, rows, size))


def walk(array: np.ndarray) -> Iterator[tuple[slice, np.ndarray]]:
    """The blocks of an array one after the other; of a memory-mapped one only the last is in memory."""
    for block in blocks(len(array), array[:1].nbytes):
        yield block, array[block]
        release(array)


def pick(array: np.ndarray, rows: np.ndarray, chunk: int = 2048) -> np.ndarray:
    """`array[rows]` for ascending rows, in chunks: of a mapped file the system maps 16 pages around each row."""
    if len(rows) <= chunk or rows[-1] - rows[0] < 4 * len(rows):
        return array[rows]
    out = np.empty((len(rows), *array.shape[1:]), array.dtype)
    for a in range(0, len(rows), chunk):
        out[a : a + chunk] = array[rows[a : a + chunk]]
        release(array)
    return out


def release(array: np.ndarray) -> None:
    """Give back the pages of a memory-mapped array that were touched; they stay in the operating system's cache."""
    mapped = getattr(array, "_mmap", None)
    if mapped is not None and hasattr(mmap, "MADV_DONTNEED"):  # not on every system
        mapped.madvise(mmap.MADV_DONTNEED)
