"""Minari data sets: by id (local, else downloaded), by folder, or as a `minari.MinariDataset`.

Minari stores T + 1 observations per episode, as this library does. Only files are read here: no environment is made.
Dict observations (mazes) are flattened as the data set declares them, in the order of their keys; `obs_keys` picks
some. `Meta.obs_layout` keeps the names and sizes, so that an environment's observations can be flattened alike.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from odice.data.build import Allocate, from_episodes, in_memory
from odice.data.dataset import Dataset
from odice.data.meta import Meta
from odice.data.readers import hdf5
from odice.errors import OdiceError

ARRAYS = ("observations", "actions", "rewards", "terminations", "truncations")
MAIN_FILE = "main_data.hdf5"


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
    indices = None
    if isinstance(source, Path):
        folder = source / "data" if (source / "data").is_dir() else source
    elif isinstance(source, str):
        folder = _local(source, download)
    else:
        folder, indices = Path(source.storage.data_path), [int(i) for i in source.episode_indices]
    metadata = _metadata(folder)
    indices = list(range(int(metadata.get("total_episodes", 0)))) if indices is None else indices
    where = str(metadata.get("dataset_id", folder))
    with _stored(folder, metadata) as stored:
        if not indices:
            raise OdiceError(f"{where}: 0 episodes; a data set needs at least one.")
        leaves = _chosen(
            _leaves(_space(metadata, "observation_space"), stored(indices[0])["observations"]), obs_keys, where
        )
        meta = _meta(metadata, leaves, where)
        unknown = set(metadata.get("odice_final_unknown", ()))
        return from_episodes(_Episodes(stored, indices, leaves, unknown), meta=meta, allocate=allocate)


class _Leaf(NamedTuple):
    """One array inside a nested observation: where it is, how wide it becomes, and how many classes if it is a choice."""

    path: tuple[str, ...]
    width: int
    classes: int | None = None
    start: int = 0


class _Flat:
    """Observations of one episode, flattened when they are sliced, so that a large file is never read at once."""

    dtype = np.dtype(np.float32)

    def __init__(self, nested: Any, leaves: Sequence[_Leaf]):
        self._parts = [(_at(nested, leaf.path), leaf) for leaf in leaves]
        self.shape = (len(self._parts[0][0]), sum(leaf.width for leaf in leaves))
        self.ndim = 2

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, rows: slice) -> np.ndarray:
        columns = []
        for part, leaf in self._parts:
            values = np.asarray(part[rows])
            if leaf.classes is not None:
                values = values[:, None] - leaf.start == np.arange(leaf.classes)
            columns.append(values.reshape(len(values), -1).astype(np.float32))
        return np.concatenate(columns, axis=1)


class _Episodes(Sequence):
    """The chosen episodes; each array is opened when it is asked for."""

    def __init__(self, stored: Any, indices: Sequence[int], leaves: Sequence[_Leaf], unknown: set[int]):
        self._stored, self._indices, self._leaves, self._unknown = stored, indices, leaves, unknown

    def __len__(self) -> int:
        return len(self._indices)

    def __getitem__(self, e: int) -> Mapping[str, Any]:  # pyright: ignore[reportIncompatibleMethodOverride]
        index = self._indices[e]
        return _OneEpisode(self._stored(index), self._leaves, index not in self._unknown)


class _OneEpisode(Mapping):
    def __init__(self, stored: Mapping[str, Any], leaves: Sequence[_Leaf], final_known: bool):
        self._stored, self._leaves, self._final_known = stored, leaves, final_known

    def __getitem__(self, key: str) -> Any:
        if key == "final_known":
            return self._final_known
        value = self._stored[key]
        return _Flat(value, self._leaves) if key == "observations" else value

    def __iter__(self) -> Iterator[str]:
        return iter((*ARRAYS, "final_known"))

    def __len__(self) -> int:
        return len(ARRAYS) + 1

    def __contains__(self, key: object) -> bool:
        return key in ARRAYS or key == "final_known"


# --- files -----------------------------------------------------------------------------------------------------------


def _local(name: str, download: bool) -> Path:
    """The `data` folder of an id, downloaded if need be."""
    import minari
    from minari.storage import get_dataset_path

    root = Path(get_dataset_path())
    folder = root / name / "data"
    if folder.is_dir():
        return folder
    have = (
        ", ".join(sorted(str(p.parent.parent.relative_to(root)) for p in root.glob("**/data/metadata.json"))) or "none"
    )
    if not download:
        raise OdiceError(f"{name}: not on this machine, and downloading is switched off; local Minari ids: {have}.")
    try:
        minari.download_dataset(name)
    except Exception as error:  # whatever the network or the host's library raises
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise OdiceError(
            f"{name}: not on this machine and cannot be downloaded ({reason}); local Minari ids: {have}. Downloads need a "
            "network and `pip install 'odice[minari-hf]'`."
        ) from error
    return folder


def _metadata(folder: Path) -> dict[str, Any]:
    path = folder / "metadata.json"
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise OdiceError(
            f"{path}: not a readable Minari description ({error}); download the data set again."
        ) from error
    if not isinstance(value, dict):
        raise OdiceError(f"{path}: expected a JSON object; download the data set again.")
    return value


@contextmanager
def _stored(folder: Path, metadata: Mapping[str, Any]) -> Iterator[Any]:
    """A function from an episode's number to its arrays, as they are stored."""
    if metadata.get("data_format", "hdf5") != "hdf5":
        from minari.dataset.minari_storage import MinariStorage

        storage = MinariStorage.read(folder)
        yield lambda index: next(iter(storage.get_episodes([index])))
        return
    path = folder / MAIN_FILE
    with hdf5.opened(path) as file:
        yield lambda index: hdf5.Tree(hdf5.group(file, f"episode_{index}", str(path)), f"{path}, episode {index}")


# --- spaces ----------------------------------------------------------------------------------------------------------


def _space(metadata: Mapping[str, Any], key: str) -> dict[str, Any] | None:
    """A space as Minari writes it: JSON in a text. Old data sets may not have it."""
    raw = metadata.get(key)
    try:
        return json.loads(raw) if isinstance(raw, str) else None
    except ValueError:
        return None


def _leaves(space: Any, value: Any, path: tuple[str, ...] = ()) -> list[_Leaf]:
    """The arrays inside an observation, in the order in which the space declares them."""
    kind = space.get("type") if isinstance(space, Mapping) else None
    if isinstance(value, Mapping):
        inner = space["subspaces"] if kind == "Dict" else {}
        order = [key for key in inner if key in value] or list(value)
        return [leaf for key in order for leaf in _leaves(inner.get(key), value[key], (*path, key))]
    if isinstance(value, tuple):
        inner = space["subspaces"] if kind == "Tuple" else [None] * len(value)
        pairs = enumerate(zip(inner, value, strict=True))
        return [leaf for i, (sub, item) in pairs for leaf in _leaves(sub, item, (*path, str(i)))]
    if kind == "Discrete":
        return [_Leaf(path, int(space["n"]), int(space["n"]), int(space.get("start", 0)))]
    if kind in (None, "Box", "MultiBinary") and value.dtype.kind in "fiub":
        return [_Leaf(path, int(np.prod(value.shape[1:], dtype=np.int64)))]
    name = "/".join(path) or "observation"
    raise OdiceError(
        f"the {name} is of type {kind} ({value.dtype}), which cannot be flattened; choose others with obs_keys."
    )


def _chosen(leaves: list[_Leaf], keys: Sequence[str] | None, where: str) -> list[_Leaf]:
    if keys is None:
        return leaves
    have = list(dict.fromkeys(leaf.path[0] for leaf in leaves if leaf.path))
    for key in keys:
        if key not in have:
            raise OdiceError(f"{where}: no observation key {key!r}; there are: {', '.join(have) or 'none'}.")
    return [leaf for key in keys for leaf in leaves if leaf.path and leaf.path[0] == key]


def _at(nested: Any, path: tuple[str, ...]) -> Any:
    for key in path:
        nested = nested[int(key)] if isinstance(nested, tuple) else nested[key]
    return nested


def _meta(metadata: Mapping[str, Any], leaves: Sequence[_Leaf], where: str) -> Meta:
    if isinstance(saved := metadata.get("odice"), dict):
        return Meta.from_dict({**saved, "source": where})
    space = _space(metadata, "action_space") or {}
    low = high = n_actions = None
    if space.get("type") == "Discrete":
        if space.get("start", 0) != 0:
            raise OdiceError(f"{where}: its discrete actions start at {space['start']}; only 0, 1, ... can be used.")
        n_actions = int(space["n"])
    elif space.get("type") == "Box":
        low, high = (tuple(np.ravel(space[key]).astype(float).tolist()) for key in ("low", "high"))
    elif space:
        raise OdiceError(f"{where}: actions of type {space.get('type')} cannot be used; only Box and Discrete can.")
    layout = tuple(("/".join(leaf.path), leaf.width) for leaf in leaves) if leaves[0].path else None
    env = json.loads(metadata["env_spec"]).get("id") if isinstance(metadata.get("env_spec"), str) else None
    scores = {key: _number(metadata.get(f"ref_{key}_score")) for key in ("min", "max")}
    return Meta(
        source=where,
        env_id=env,
        action_low=low,
        action_high=high,
        n_actions=n_actions,
        ref_min=scores["min"],
        ref_max=scores["max"],
        obs_layout=layout,
    )


def _number(value: Any) -> float | None:
    return float(value) if isinstance(value, int | float) and np.isfinite(value) else None
