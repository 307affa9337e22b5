"""Spaces as a Minari data set declares them, and the arrays of its observations as columns.

A space stays JSON: only its type, names and sizes are needed, and nothing is built from it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from odice.data.meta import MAX_ACTIONS
from odice.data.readers import hdf5
from odice.data.readers.description import inner_json, is_count, shown, wrong
from odice.errors import OdiceError

MAX_PARTS, MAX_DEPTH = 1000, 20
"""Groups and arrays inside one observation. HDF5 groups may contain themselves, so there must be an end."""


class Leaf(NamedTuple):
    """One array inside a nested observation: where it is, how wide it becomes, and how many classes if it is a
    choice."""

    path: tuple[str, ...]
    width: int
    classes: int | None = None
    start: int = 0


class Part(NamedTuple):
    """One array of the first observation, as it is declared and stored."""

    path: tuple[str, ...]
    space: Mapping[str, Any]
    value: Any

    @property
    def name(self) -> str:
        return f"observation {'/'.join(self.path)!r}" if self.path else "observation"


class FlatObservations:
    """Observations of one episode, flattened when they are sliced, so that a large file is never read at once."""

    dtype = np.dtype(np.float32)

    def __init__(self, nested: Any, leaves: Sequence[Leaf], where: str):
        self._parts = [(_at(nested, leaf, where), leaf) for leaf in leaves]
        rows = {len(part) for part, _ in self._parts}
        if len(rows) > 1:
            raise OdiceError(
                f"{where}: the parts of its observations have {min(rows)} to {max(rows)} rows; they must agree, so "
                "write or download the data set again."
            )
        self.shape = (rows.pop(), sum(leaf.width for leaf in leaves))
        self.ndim = 2

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, rows: slice) -> np.ndarray:
        columns = []
        for part, leaf in self._parts:
            values = np.asarray(part[rows])
            if leaf.classes is not None:
                values = values.reshape(-1, 1).astype(np.float64 if values.dtype.kind == "f" else np.int64)
                values = values - leaf.start == np.arange(leaf.classes)
            with np.errstate(over="ignore"):  # becomes inf, which the data doctor reports with its place
                columns.append(values.reshape(len(values), leaf.width).astype(np.float32))
        return np.concatenate(columns, axis=1)


def space_of(metadata: Mapping[str, Any], key: str, path: Path) -> dict[str, Any] | None:
    """A space as the data set declares it. It stays JSON: only its type, names and sizes are needed."""
    space = inner_json(metadata, key, path)
    if space is not None and not isinstance(space.get("type"), str):
        raise wrong(path, f"type of the {key}", space.get("type"), "the name of a space")
    return space


def parts_of(space: Any, value: Any, file: Path) -> list[Part]:
    """The arrays inside an observation, in the order in which the space declares them."""
    visits = count(1)

    def walk(space: Any, value: Any, path: tuple[str, ...]) -> Iterator[Part]:
        if next(visits) > MAX_PARTS or len(path) > MAX_DEPTH:
            raise OdiceError(
                f"{file}: the observation has more than {MAX_PARTS} parts or {MAX_DEPTH} levels; write the "
                "data set again."
            )
        here = Part(path, {} if space is None else space, value)
        if not isinstance(here.space, Mapping):
            raise wrong(file, here.name, space, "a space")
        kind, inner = here.space.get("type"), here.space.get("subspaces")
        if isinstance(value, Mapping):
            if space is not None and not (kind == "Dict" and isinstance(inner, Mapping)):
                raise wrong(file, here.name, space, "a Dict with 'subspaces', as the data have it")
            for key in inner or value:
                yield from walk(inner[key] if inner else None, _child(value, key), (*path, key))
        elif isinstance(value, tuple | hdf5.Items):
            if space is not None and not (kind == "Tuple" and isinstance(inner, list) and len(inner) == len(value)):
                raise wrong(file, here.name, space, f"a Tuple of {len(value)} 'subspaces', as the data have it")
            for i, item in enumerate(value):
                yield from walk(inner[i] if inner else None, item, (*path, str(i)))
        else:
            yield here

    parts = list(walk(space, value, ()))
    if not parts:
        raise OdiceError(f"{file}: the observation has no parts; write or download the data set again.")
    return parts


def leaf_of(part: Part, file: Path) -> Leaf:
    """How one array becomes columns, if it is what the space says."""
    path, space, value = part
    kind, dtype, shape = space.get("type"), getattr(value, "dtype", None), getattr(value, "shape", None)
    if reason := _not_numbers(space, dtype, shape):
        raise OdiceError(f"{file}: the {part.name} {reason}; choose other parts of the observation with --obs-keys.")
    assert shape is not None
    width = int(np.prod(shape[1:], dtype=np.int64))
    if kind == "Discrete":
        n, start = choices_of(space, file, part.name)
        if width != 1:
            raise OdiceError(
                f"{file}: the {part.name} is declared Discrete but stored with shape {shape}; correct the space."
            )
        return Leaf(path, n, n, start)
    if kind == "Box" and (declared := space.get("shape")) is not None:
        if not isinstance(declared, list) or not all(map(is_count, declared)):
            raise wrong(file, f"shape of the {part.name}", declared, "a list of whole numbers")
        if int(np.prod(declared, dtype=object)) != width:  # pictures are stored as JPEG: not numbers to learn from
            raise OdiceError(
                f"{file}: the {part.name} is declared with shape {shown(declared)} but stored with {list(shape[1:])}; "
                "correct the space, or choose other observations with obs_keys."
            )
    return Leaf(path, width)


def _not_numbers(space: Mapping[str, Any], dtype: Any, shape: tuple[int, ...] | None) -> str | None:
    """Why a part of an observation is no vector of numbers; None if it is one."""
    kind, declared = space.get("type"), space.get("shape")
    deep = len(declared) if isinstance(declared, list) else len(shape or ()) - 1
    if kind == "Text" or (dtype is not None and dtype.kind in "OSU"):
        return "is text, and odice learns from vectors of numbers"
    if kind in (None, "Box") and deep >= 2 and (space.get("dtype") == "uint8" or dtype == np.uint8):
        return (
            f"is an image of shape {shown(declared or list((shape or ())[1:]))}, and odice has no networks for images"
        )
    if kind == "MultiDiscrete":
        return "is several choices at once (MultiDiscrete), which odice does not encode"
    if kind not in (None, "Box", "Discrete", "MultiBinary"):
        return f"is of type {shown(kind)}, which is no vector of numbers"
    if dtype is None or dtype.kind not in "fiub" or not shape:
        return f"is stored as {dtype}, which are no numbers"
    return None


def choices_of(space: Mapping[str, Any], file: Path, name: str) -> tuple[int, int]:
    """How many choices a Discrete space has, and the number of the first."""
    n, start = space.get("n"), space.get("start", 0)
    if not (type(n) is int and 0 < n <= MAX_ACTIONS):
        raise wrong(file, f"n of the {name}", n, f"a whole number from 1 to {MAX_ACTIONS:,}")
    if type(start) is not int:
        raise wrong(file, f"start of the {name}", start, "a whole number")
    return n, start


def chosen_parts(parts: list[Part], keys: Sequence[str] | None, where: str) -> list[Part]:
    """The parts under these keys of a dict observation, in the order of the keys; all parts if `keys` is None."""
    if keys is None:
        return parts
    have = list(dict.fromkeys(part.path[0] for part in parts if part.path))
    for key in keys:
        if key not in have:
            raise OdiceError(f"{where}: no observation key {key!r}; there are: {', '.join(have) or 'none'}.")
    return [part for key in keys for part in parts if part.path and part.path[0] == key]


def _child(group: Any, key: str) -> Any:
    """What a group holds under a name. One step at a time: HDF5 follows links inside a path, also into other files."""
    if isinstance(group, hdf5.Tree):
        for part in key.split("/"):
            group = group[part]
        return group
    return group[key]


def _at(nested: Any, leaf: Leaf, where: str) -> Any:
    """The array of one leaf in an episode, which must be built like the first one."""
    for key in leaf.path:
        if isinstance(nested, tuple | hdf5.Items):
            nested = nested[int(key)] if key.isdecimal() and int(key) < len(nested) else None
        else:
            nested = _child(nested, key) if isinstance(nested, Mapping) else None
    shape, width = getattr(nested, "shape", ()), 1 if leaf.classes else leaf.width
    if not shape or nested.dtype.kind not in "fiub" or int(np.prod(shape[1:], dtype=np.int64)) != width:
        raise OdiceError(
            f"{where}: its observation {'/'.join(leaf.path)!r} has another shape or type than in the first episode; "
            "write or download the data set again."
        )
    return nested


def bounds_of(space: Mapping[str, Any], key: str, path: Path) -> tuple[float, ...]:
    """The `low` or `high` of a Box: numbers, nested as the space is shaped."""
    try:
        values = np.asarray(space.get(key))
    except (ValueError, RecursionError):  # lists of different lengths, or very deep ones
        values = np.empty(0, object)
    if values.dtype.kind not in "fiu" or np.isnan(values).any():
        raise wrong(path, f"{key} of the action_space", space.get(key), "numbers")
    return tuple(values.ravel().astype(float).tolist())
