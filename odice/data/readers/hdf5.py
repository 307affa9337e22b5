"""Opening HDF5 without trusting it.

A hostile or damaged file can declare arrays far larger than itself, or point to other files. Both are refused here,
and whatever the HDF5 library raises becomes one sentence.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import h5py

from odice.errors import OdiceError

# Deflate cannot do better than about 1030 : 1; an array that claims more was never written.
MAX_RATIO = 2000


@contextmanager
def opened(path: Path) -> Iterator[h5py.File]:
    """The file, open for reading. Errors of the library, also while reading inside the block, name the file."""
    try:
        with h5py.File(path, "r") as file:
            yield file
    except (OSError, RuntimeError, KeyError, ValueError, OverflowError, MemoryError) as error:
        raise OdiceError(
            f"{path}: not a readable HDF5 file ({_first_line(error)}); it may be truncated, so copy or download it again."
        ) from error


def group(file: h5py.Group, key: str, where: str) -> h5py.Group:
    """The group under `key`."""
    item = file.get(key) if isinstance(file.get(key, getlink=True), h5py.HardLink) else None
    if not isinstance(item, h5py.Group):
        raise OdiceError(f"{where}: no group {key!r}; the file is incomplete, so download it again.")
    return item


def array(group: h5py.Group, key: str, where: str) -> h5py.Dataset:
    """The array under `key`, if it lies in this file and really holds what it declares."""
    if isinstance(group.get(key, getlink=True), h5py.ExternalLink):
        raise OdiceError(f"{where}: {key!r} points to another file; copy the data into this one.")
    item = group[key]
    if not isinstance(item, h5py.Dataset) or item.shape is None:
        raise OdiceError(f"{where}: {key!r} is not an array.")
    if item.external or (item.is_virtual and any(s.file_name != "." for s in item.virtual_sources())):
        raise OdiceError(f"{where}: {key!r} points to another file; copy the data into this one.")
    stored = item.id.get_storage_size()
    if not item.is_virtual and item.nbytes > MAX_RATIO * stored + (1 << 20):
        raise OdiceError(
            f"{where}: {key!r} declares shape {item.shape} ({item.nbytes / 1e9:,.1f} GB) but holds only {stored} bytes; "
            "the file is damaged or was never filled, so write or download it again."
        )
    return item


def tree(group: h5py.Group, key: str, where: str) -> Any:
    """The array under `key`, or the nested dict (or tuple, in Minari's spelling) of arrays below it."""
    item = group.get(key, getclass=True, getlink=True)
    if item is h5py.HardLink and isinstance(below := group[key], h5py.Group):
        names = list(below)
        if names and all(name.startswith("_index_") for name in names):
            return tuple(tree(below, f"_index_{i}", f"{where}, {key!r}") for i in range(len(names)))
        return {name: tree(below, name, f"{where}, {key!r}") for name in names}
    return array(group, key, where)


def text(attributes: h5py.AttributeManager, key: str) -> str | None:
    """A text attribute, or None."""
    value = attributes.get(key)
    value = value.decode("utf-8", "replace") if isinstance(value, bytes) else value
    return value if isinstance(value, str) else None


def json_text(attributes: h5py.AttributeManager, key: str, where: str) -> dict[str, Any] | None:
    """A JSON object kept in a text attribute, or None if there is none."""
    raw = text(attributes, key)
    if raw is None:
        return None
    try:
        value = json.loads(raw)
    except ValueError:
        value = None
    if not isinstance(value, dict):
        raise OdiceError(f"{where}: the attribute {key!r} is not a JSON object; remove it or save the file again.")
    return value


def _first_line(error: BaseException) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0][:160]
