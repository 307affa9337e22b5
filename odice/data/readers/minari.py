"""Minari data sets: by id (local, else downloaded), by folder, or as a `minari.MinariDataset`.

Minari stores T + 1 observations per episode, as this library does. Only files are read here, and by this module:
where a description lacks a space, Minari's own reader builds the environment that the description names, and with it
runs whatever code the file's author chose. So no environment, no `EnvSpec` and no Minari storage is made from a file.
Dict observations (mazes) are flattened as the data set declares them, in the order of their keys; `obs_keys` picks
some. `Meta.obs_layout` keeps the names and sizes, and `Meta.env_id` says how the environment's observations are
flattened alike (`envs.options`).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from odice.data.build import Allocate, from_episodes, in_memory
from odice.data.dataset import Dataset
from odice.data.meta import MAX_ACTIONS, Meta
from odice.data.readers import hdf5
from odice.envs.options import join, plain
from odice.errors import OdiceError
from odice.files import read_text

ARRAYS = ("observations", "actions", "rewards", "terminations", "truncations")
MAIN_FILE = "main_data.hdf5"
DESCRIPTION = "metadata.json"
DESCRIPTION_BYTES = 16 << 20
"""Real descriptions have some kilobytes; one of a million episodes with unknown ends has 8 MB."""
MAX_PARTS, MAX_DEPTH = 1000, 20
"""Groups and arrays inside one observation. HDF5 groups may contain themselves, so there must be an end."""

Stored = Callable[[int], Mapping[str, Any]]


def read(
    source: Any,
    *,
    obs_keys: Sequence[str] | None = None,
    download: bool = True,
    allocate: Allocate = in_memory,
) -> Dataset:
    """A Dataset from a Minari id, a folder that holds Minari's `data`, or a `minari.MinariDataset`.

    `obs_keys` names the parts of a dict observation to keep, in this order (default: all, as declared). With
    `download=False` an id that is not on this machine is an error instead of a download.
    """
    indices = storage = None
    if isinstance(source, Path):
        folder = source / "data" if (source / "data").is_dir() else source
    elif isinstance(source, str):
        folder = _local(source, download)
    else:
        storage, indices = source.storage, [int(i) for i in source.episode_indices]
        folder = Path(storage.data_path)
    path = folder / DESCRIPTION
    metadata = _metadata(path)
    where = _text(metadata, "dataset_id", path) or str(folder)
    with _stored(folder, metadata, storage) as (stored, n_stored):
        indices = list(range(_episodes(metadata, n_stored, path))) if indices is None else indices
        if not indices:
            raise OdiceError(f"{where}: 0 episodes; a data set needs at least one.")
        first = stored(indices[0])["observations"]
        parts = _chosen(_parts(_space(metadata, "observation_space", path), first, path), obs_keys, where)
        leaves = [_leaf(part, path) for part in parts]
        meta = _meta(metadata, leaves, where, path)
        unknown = _unknown(metadata, path)
        dataset = from_episodes(_Episodes(stored, indices, leaves, unknown, where), meta=meta, allocate=allocate)
    for bound in (meta.action_low, meta.action_high):
        if bound is not None and not dataset.discrete and len(bound) != dataset.spec.action_dim:
            raise OdiceError(
                f"{path}: {len(bound)} bounds for {dataset.spec.action_dim} actions; correct the 'action_space', or "
                "download the data set again."
            )
    return dataset


class _Leaf(NamedTuple):
    """One array inside a nested observation: where it is, how wide it becomes, and how many classes if it is a
    choice."""

    path: tuple[str, ...]
    width: int
    classes: int | None = None
    start: int = 0


class _Part(NamedTuple):
    """One array of the first observation, as it is declared and stored."""

    path: tuple[str, ...]
    space: Mapping[str, Any]
    value: Any

    @property
    def name(self) -> str:
        return f"observation {'/'.join(self.path)!r}" if self.path else "observation"


class _Flat:
    """Observations of one episode, flattened when they are sliced, so that a large file is never read at once."""

    dtype = np.dtype(np.float32)

    def __init__(self, nested: Any, leaves: Sequence[_Leaf], where: str):
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


class _Episodes(Sequence):
    """The chosen episodes; each array is opened on access."""

    def __init__(self, stored: Stored, indices: Sequence[int], leaves: Sequence[_Leaf], unknown: set[int], where: str):
        self._stored, self._indices, self._leaves, self._unknown = stored, indices, leaves, unknown
        self._where = where

    def __len__(self) -> int:
        return len(self._indices)

    def __getitem__(self, e: int) -> Mapping[str, Any]:  # pyright: ignore[reportIncompatibleMethodOverride]
        index = self._indices[e]
        where = f"{self._where}, episode {index}"
        return _OneEpisode(self._stored(index), self._leaves, index not in self._unknown, where)


class _OneEpisode(Mapping):
    def __init__(self, stored: Mapping[str, Any], leaves: Sequence[_Leaf], final_known: bool, where: str):
        self._stored, self._leaves, self._final_known, self._where = stored, leaves, final_known, where

    def __getitem__(self, key: str) -> Any:
        if key == "final_known":
            return self._final_known
        value = self._stored[key]
        return _Flat(value, self._leaves, self._where) if key == "observations" else value

    def __iter__(self) -> Iterator[str]:
        return iter((*ARRAYS, "final_known"))

    def __len__(self) -> int:
        return len(ARRAYS) + 1

    def __contains__(self, key: object) -> bool:
        return key in ARRAYS or key == "final_known"


# --- files -----------------------------------------------------------------------------------------------------------


def _local(name: str, download: bool) -> Path:
    """The `data` folder of an id, downloaded if need be."""
    from minari.storage import get_dataset_path

    root = Path(get_dataset_path())
    folder = root / name / "data"
    if folder.is_dir():
        return folder
    have = (
        ", ".join(sorted(str(p.parent.parent.relative_to(root)) for p in root.glob(f"**/data/{DESCRIPTION}"))) or "none"
    )
    if not download:
        raise OdiceError(f"{name}: not on this machine, and downloading is switched off; local Minari ids: {have}.")
    try:
        _download(name, root)
        reason = None if folder.is_dir() else "the host has no such data set"
    except Exception as error:  # whatever the network or the host's library raises
        reason = (str(error).splitlines() or [type(error).__name__])[0]
    if reason is not None:
        raise OdiceError(
            f"{name}: not on this machine and cannot be downloaded ({reason}); local Minari ids: {have}. Downloads "
            "need a network and `pip install 'odice[minari-hf]'`."
        )
    return folder


def _download(name: str, root: Path) -> None:
    """The bytes and nothing else. `minari.download_dataset` goes on to open them, and downloads what they name."""
    from minari.storage.remotes import get_cloud_storage

    get_cloud_storage().download_dataset(name, root)


def _metadata(path: Path) -> dict[str, Any]:
    return _json(read_text(path, DESCRIPTION_BYTES), str(path))


def _json(text: str, where: str) -> dict[str, Any]:
    """A JSON object from a text that anybody may have written."""
    try:
        value = json.loads(text, parse_int=_whole)
    except RecursionError:
        raise OdiceError(
            f"{where}: nested too deeply to be a Minari description; download the data set again."
        ) from None
    except ValueError as error:
        raise OdiceError(f"{where}: not a JSON text ({error}); download the data set again.") from error
    if not isinstance(value, dict):
        raise OdiceError(f"{where}: expected a JSON object; download the data set again.")
    return value


def _whole(digits: str) -> int:
    if len(digits) > 18:  # what fits into 64 bits everywhere; numpy and h5py raise errors of their own on more
        raise ValueError(f"a whole number of {len(digits)} digits")
    return int(digits)


@contextmanager
def _stored(folder: Path, metadata: Mapping[str, Any], storage: Any) -> Iterator[tuple[Stored, int | None]]:
    """A function from an episode's number to its arrays, as they are stored, and how many episodes are really there.

    `storage` is Minari's own, if a program opened it and handed it over; it reads what this module cannot.
    """
    kind = metadata.get("data_format", "hdf5")
    if kind != "hdf5" and storage is not None:
        yield lambda index: next(iter(storage.get_episodes([index]))), None
        return
    if kind != "hdf5":
        raise OdiceError(
            f"{folder / DESCRIPTION}: the 'data_format' is {_shown(kind)}; odice reads 'hdf5'. If you trust the "
            "author (Minari may run code that the file names), convert it: "
            f"odice.load(minari.MinariDataset({str(folder)!r})).save('copy-v0', 'minari')."
        )
    path = folder / MAIN_FILE
    with hdf5.opened(path) as file:
        n_stored = sum(1 for name in file if str(name).startswith("episode_"))
        yield (
            lambda index: hdf5.Tree(hdf5.group(file, f"episode_{index}", str(path)), f"{path}, episode {index}"),
            n_stored,
        )


def _episodes(metadata: Mapping[str, Any], n_stored: int | None, path: Path) -> int:
    """How many episodes to read: as many as declared, if they are there. Nothing is reserved for a number in a file."""
    declared = metadata.get("total_episodes", n_stored)
    if not _is_count(declared):
        raise _wrong(path, "total_episodes", declared, "a whole number")
    if n_stored is not None and declared > n_stored:
        raise OdiceError(
            f"{path}: the 'total_episodes' are {declared}, but {MAIN_FILE} holds {n_stored}; the data set is "
            "incomplete, so download it again."
        )
    return declared


def _unknown(metadata: Mapping[str, Any], path: Path) -> set[int]:
    """The episodes whose final observation was not recorded, which odice notes in what it saves."""
    value = metadata.get("odice_final_unknown", [])
    if not isinstance(value, list) or not all(map(_is_count, value)):
        raise _wrong(path, "odice_final_unknown", value, "a list of episode numbers")
    return set(value)


# --- values in the description ----------------------------------------------------------------------------------------


def _shown(value: Any) -> str:
    try:
        text = repr(value)
    except RecursionError:
        text = "nested deeply"
    return text if len(text) <= 60 else f"{text[:60]}..."


def _wrong(path: Path, what: str, value: Any, expected: str) -> OdiceError:
    return OdiceError(
        f"{path}: {what!r} is {_shown(value)}; expected {expected}, so correct it or download the data again."
    )


def _is_count(value: Any) -> bool:
    return type(value) is int and value >= 0


def _text(metadata: Mapping[str, Any], key: str, path: Path) -> str | None:
    """A name, or None. It is shown to people, so it must be one line."""
    value = metadata.get(key)
    if value is not None and not (isinstance(value, str) and value.isprintable() and len(value) <= 200):
        raise _wrong(path, key, value, "a name")
    return value or None


def _inner(metadata: Mapping[str, Any], key: str, path: Path) -> dict[str, Any] | None:
    """What Minari writes as JSON in a text, or None. Old data sets may not have it."""
    raw = metadata.get(key)
    if raw is None:
        return None
    if not isinstance(raw, str):
        raise _wrong(path, key, raw, "JSON in a text")
    return _json(raw, f"{path}, {key!r}")


def _number(metadata: Mapping[str, Any], key: str, path: Path) -> float | None:
    value = metadata.get(key)
    if value is not None and type(value) not in (int, float):
        raise _wrong(path, key, value, "a number")
    return float(value) if value is not None and np.isfinite(value) else None


# --- spaces ----------------------------------------------------------------------------------------------------------


def _space(metadata: Mapping[str, Any], key: str, path: Path) -> dict[str, Any] | None:
    """A space as the data set declares it. It stays JSON: only its type, names and sizes are needed."""
    space = _inner(metadata, key, path)
    if space is not None and not isinstance(space.get("type"), str):
        raise _wrong(path, f"type of the {key}", space.get("type"), "the name of a space")
    return space


def _parts(space: Any, value: Any, file: Path) -> list[_Part]:
    """The arrays inside an observation, in the order in which the space declares them."""
    visits = count(1)

    def walk(space: Any, value: Any, path: tuple[str, ...]) -> Iterator[_Part]:
        if next(visits) > MAX_PARTS or len(path) > MAX_DEPTH:
            raise OdiceError(
                f"{file}: the observation has more than {MAX_PARTS} parts or {MAX_DEPTH} levels; write the "
                "data set again."
            )
        here = _Part(path, {} if space is None else space, value)
        if not isinstance(here.space, Mapping):
            raise _wrong(file, here.name, space, "a space")
        kind, inner = here.space.get("type"), here.space.get("subspaces")
        if isinstance(value, Mapping):
            if space is not None and not (kind == "Dict" and isinstance(inner, Mapping)):
                raise _wrong(file, here.name, space, "a Dict with 'subspaces', as the data have it")
            for key in inner or value:
                yield from walk(inner[key] if inner else None, _child(value, key), (*path, key))
        elif isinstance(value, tuple | hdf5.Items):
            if space is not None and not (kind == "Tuple" and isinstance(inner, list) and len(inner) == len(value)):
                raise _wrong(file, here.name, space, f"a Tuple of {len(value)} 'subspaces', as the data have it")
            for i, item in enumerate(value):
                yield from walk(inner[i] if inner else None, item, (*path, str(i)))
        else:
            yield here

    parts = list(walk(space, value, ()))
    if not parts:
        raise OdiceError(f"{file}: the observation has no parts; write or download the data set again.")
    return parts


def _leaf(part: _Part, file: Path) -> _Leaf:
    """How one array becomes columns, if it is what the space says."""
    path, space, value = part
    kind, dtype, shape = space.get("type"), getattr(value, "dtype", None), getattr(value, "shape", None)
    if reason := _not_numbers(space, dtype, shape):
        raise OdiceError(f"{file}: the {part.name} {reason}; choose other parts of the observation with --obs-keys.")
    assert shape is not None
    width = int(np.prod(shape[1:], dtype=np.int64))
    if kind == "Discrete":
        n, start = _choices(space, file, part.name)
        if width != 1:
            raise OdiceError(
                f"{file}: the {part.name} is declared Discrete but stored with shape {shape}; correct the space."
            )
        return _Leaf(path, n, n, start)
    if kind == "Box" and (declared := space.get("shape")) is not None:
        if not isinstance(declared, list) or not all(map(_is_count, declared)):
            raise _wrong(file, f"shape of the {part.name}", declared, "a list of whole numbers")
        if int(np.prod(declared, dtype=object)) != width:  # pictures are stored as JPEG: not numbers to learn from
            raise OdiceError(
                f"{file}: the {part.name} is declared with shape {_shown(declared)} but stored with {list(shape[1:])}; "
                "correct the space, or choose other observations with obs_keys."
            )
    return _Leaf(path, width)


def _not_numbers(space: Mapping[str, Any], dtype: Any, shape: tuple[int, ...] | None) -> str | None:
    """Why a part of an observation is no vector of numbers; None if it is one."""
    kind, declared = space.get("type"), space.get("shape")
    deep = len(declared) if isinstance(declared, list) else len(shape or ()) - 1
    if kind == "Text" or (dtype is not None and dtype.kind in "OSU"):
        return "is text, and odice learns from vectors of numbers"
    if kind in (None, "Box") and deep >= 2 and (space.get("dtype") == "uint8" or dtype == np.uint8):
        return (
            f"is an image of shape {_shown(declared or list((shape or ())[1:]))}, and odice has no networks for images"
        )
    if kind == "MultiDiscrete":
        return "is several choices at once (MultiDiscrete), which odice does not encode"
    if kind not in (None, "Box", "Discrete", "MultiBinary"):
        return f"is of type {_shown(kind)}, which is no vector of numbers"
    if dtype is None or dtype.kind not in "fiub" or not shape:
        return f"is stored as {dtype}, which are no numbers"
    return None


def _choices(space: Mapping[str, Any], file: Path, name: str) -> tuple[int, int]:
    """How many choices a Discrete space has, and the number of the first."""
    n, start = space.get("n"), space.get("start", 0)
    if not (type(n) is int and 0 < n <= MAX_ACTIONS):
        raise _wrong(file, f"n of the {name}", n, f"a whole number from 1 to {MAX_ACTIONS:,}")
    if type(start) is not int:
        raise _wrong(file, f"start of the {name}", start, "a whole number")
    return n, start


def _chosen(parts: list[_Part], keys: Sequence[str] | None, where: str) -> list[_Part]:
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


def _at(nested: Any, leaf: _Leaf, where: str) -> Any:
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


def _meta(metadata: Mapping[str, Any], leaves: Sequence[_Leaf], where: str, path: Path) -> Meta:
    if (saved := metadata.get("odice")) is not None:
        try:
            return Meta.from_dict({**saved, "source": where} if isinstance(saved, Mapping) else saved)
        except OdiceError as error:
            raise OdiceError(f"{path}: {error}") from error
    space = _space(metadata, "action_space", path) or {}
    low = high = n_actions = None
    if space.get("type") == "Discrete":
        n_actions, start = _choices(space, path, "action_space")
        if start != 0:
            raise OdiceError(f"{where}: its discrete actions start at {start}; only 0, 1, ... can be used.")
    elif space.get("type") == "Box":
        low, high = (_bounds(space, key, path) for key in ("low", "high"))
    elif space:
        why = "several choices at once" if space["type"] in ("MultiDiscrete", "MultiBinary") else "neither of the two"
        raise OdiceError(
            f"{where}: its actions are of type {_shown(space['type'])}, {why}; odice learns to choose a vector (Box) "
            "or one of several (Discrete)."
        )
    layout = tuple(("/".join(leaf.path), leaf.width) for leaf in leaves) if leaves[0].path else None
    return Meta(
        source=where,
        env_id=_environment(metadata, layout, path),
        action_low=low,
        action_high=high,
        n_actions=n_actions,
        ref_min=_number(metadata, "ref_min_score", path),
        ref_max=_number(metadata, "ref_max_score", path),
        obs_layout=layout,
    )


def _environment(metadata: Mapping[str, Any], layout: Sequence[tuple[str, int]] | None, path: Path) -> str | None:
    """The name of the environment to evaluate in, with the options of the data's; `envs.make` decides on it.

    A plain name where observations are one vector: what its options are is then part of what the name stands for.
    """
    spec = _inner(metadata, "eval_env_spec", path) or _inner(metadata, "env_spec", path) or {}
    env_id = _text(spec, "id", path)
    if env_id is None or layout is None:
        return env_id
    given = spec.get("kwargs")
    return join(env_id, plain(given) if isinstance(given, dict) else {}, [name for name, _ in layout])


def _bounds(space: Mapping[str, Any], key: str, path: Path) -> tuple[float, ...]:
    """The `low` or `high` of a Box: numbers, nested as the space is shaped."""
    try:
        values = np.asarray(space.get(key))
    except (ValueError, RecursionError):  # lists of different lengths, or very deep ones
        values = np.empty(0, object)
    if values.dtype.kind not in "fiu" or np.isnan(values).any():
        raise _wrong(path, f"{key} of the action_space", space.get(key), "numbers")
    return tuple(values.ravel().astype(float).tolist())
