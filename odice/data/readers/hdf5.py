"""Opening HDF5 without trusting it.

A hostile or damaged file can declare arrays far larger than itself, or point to other files. Both are refused here,
before anything is read, and whatever the HDF5 library raises becomes one sentence. A virtual data set is refused
wherever its sources lie: one in this file may itself point elsewhere, and the library follows it without asking.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import h5py
from h5py import h5d, h5g, h5l, h5o  # pyright: ignore[reportAttributeAccessIssue]

from odice.data.readers.heap import check_heaps
from odice.errors import OdiceError
from odice.files import regular_file

# Deflate cannot do better than about 1030 : 1; an array that claims more was never written.
MAX_RATIO = 2000


@contextmanager
def opened(path: Path) -> Iterator[h5py.File]:
    """The file, open for reading. Errors of the library, also while reading inside the block, name the file."""
    with regular_file(path):
        pass  # the HDF5 library would wait at a pipe
    try:
        with h5py.File(path, "r") as file:
            yield file
    except (OSError, RuntimeError, KeyError, ValueError, OverflowError, MemoryError) as error:
        raise OdiceError(
            f"{path}: not a readable HDF5 file ({_first_line(error)}); it may be truncated, "
            "so copy or download it again."
        ) from error


def entry(group: h5py.Group, key: str, where: str) -> h5py.Group | h5py.Dataset:
    """What lies under `key` in this file; a link to elsewhere is refused. Low-level calls: files have many episodes."""
    name = key.encode()
    if name not in group.id:
        raise OdiceError(f"{where}: no {key!r} in it; the file is incomplete, so write or download it again.")
    if group.id.links.get_info(name).type != h5l.TYPE_HARD:
        raise OdiceError(f"{where}: {key!r} points elsewhere; put the data themselves there.")
    item = h5o.open(group.id, name)
    if isinstance(item, h5d.DatasetID):
        return h5py.Dataset(item, readonly=True)
    if isinstance(item, h5g.GroupID):
        return h5py.Group(item)
    raise OdiceError(f"{where}: {key!r} is neither an array nor a group.")


def group(file: h5py.Group, key: str, where: str) -> h5py.Group:
    """The group under `key`."""
    item = entry(file, key, where)
    if not isinstance(item, h5py.Group):
        raise OdiceError(f"{where}: {key!r} is not a group.")
    return item


def array(group: h5py.Group, key: str, where: str) -> h5py.Dataset:
    """The array under `key`, if it lies in this file and really holds what it declares."""
    return checked(entry(group, key, where), key, where)


def checked(item: h5py.Group | h5py.Dataset, key: str, where: str) -> h5py.Dataset:
    """The item as an array; refused if it is none, lies elsewhere, or declares far more than the file holds."""
    if not isinstance(item, h5py.Dataset) or item.shape is None:
        raise OdiceError(f"{where}: {key!r} is not an array.")
    layout = item.id.get_create_plist()
    if layout.get_external_count() or layout.get_layout() == h5d.VIRTUAL:
        raise OdiceError(f"{where}: {key!r} points elsewhere; put the data themselves there.")
    stored = item.id.get_storage_size()
    if item.nbytes > MAX_RATIO * stored + (1 << 20):
        raise OdiceError(
            f"{where}: {key!r} declares shape {item.shape} ({item.nbytes / 1e9:,.1f} GB) but holds only {stored} "
            "bytes; the file is damaged or was never filled, so write or download it again."
        )
    return item


class Tree(Mapping):
    """A group as a mapping whose arrays are opened, and checked, on access."""

    def __init__(self, group: h5py.Group, where: str):
        self._group, self._where = group, where

    def __getitem__(self, key: str) -> Any:
        item = entry(self._group, key, self._where)
        if isinstance(item, h5py.Dataset):
            return checked(item, key, self._where)
        below = Tree(item, f"{self._where}, {key!r}")
        items = sum(name.startswith("_index_") for name in below)  # Minari's spelling of a tuple
        return Items(below, items) if items else below

    def __iter__(self) -> Iterator[str]:
        return (str(name) for name in self._group)

    def __len__(self) -> int:
        return len(self._group)


class Items(Sequence):
    """A tuple as Minari stores it. Opened one by one: hard links can make a small file a tree without end."""

    def __init__(self, tree: Tree, count: int):
        self._tree, self._count = tree, count

    def __getitem__(self, i: int) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        if not 0 <= i < self._count:
            raise IndexError(i)
        return self._tree[f"_index_{i}"]

    def __len__(self) -> int:
        return self._count


def attribute(file: h5py.File, key: str) -> Any:
    """An attribute of the file, or None. Texts of variable length are read only if their heap can be walked."""
    if key not in file.attrs:
        return None
    if file.attrs.get_id(key).dtype.hasobject:
        check_heaps(Path(file.filename))
    return file.attrs[key]


def text(file: h5py.File, key: str) -> str | None:
    """A text attribute, or None."""
    value = attribute(file, key)
    value = value.decode("utf-8", "replace") if isinstance(value, bytes) else value
    return value if isinstance(value, str) else None


def json_text(file: h5py.File, key: str, where: str) -> dict[str, Any] | None:
    """A JSON object kept in a text attribute, or None if there is none."""
    raw = text(file, key)
    if raw is None:
        return None
    try:
        value = json.loads(raw)
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, dict):
        raise OdiceError(f"{where}: the attribute {key!r} is not a JSON object; remove it or save the file again.")
    return value


def _first_line(error: BaseException) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0][:160]
