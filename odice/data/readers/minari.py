"""Minari data sets: by id (local, else downloaded), by folder, or as a `minari.MinariDataset`.

Minari stores T + 1 observations per episode, as this library does. Only files are read here, and by this module:
where a description lacks a space, Minari's own reader builds the environment that the description names, and with it
runs whatever code the file's author chose. So no environment, no `EnvSpec` and no Minari storage is made from a file.
Dict observations (mazes) are flattened as the data set declares them, in the order of their keys; `obs_keys` picks
some. `Meta.obs_layout` keeps the names and sizes, and `Meta.env_id` says how the environment's observations are
flattened alike (`envs.options`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from odice.data.build import Allocate, from_episodes, in_memory
from odice.data.dataset import Dataset
from odice.data.meta import Meta
from odice.data.readers import hdf5
from odice.data.readers.description import inner_json, is_count, number_of, parse_json, shown, text_of, wrong
from odice.data.readers.spaces import (
    FlatObservations,
    Leaf,
    bounds_of,
    choices_of,
    chosen_parts,
    leaf_of,
    parts_of,
    space_of,
)
from odice.envs.options import join, plain
from odice.errors import OdiceError
from odice.files import read_text

ARRAYS = ("observations", "actions", "rewards", "terminations", "truncations")
MAIN_FILE = "main_data.hdf5"
DESCRIPTION = "metadata.json"
DESCRIPTION_BYTES = 16 << 20
"""Real descriptions have some kilobytes; one of a million episodes with unknown ends has 8 MB."""

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
    where = text_of(metadata, "dataset_id", path) or str(folder)
    with _stored(folder, metadata, storage) as (stored, n_stored):
        indices = list(range(_episodes(metadata, n_stored, path))) if indices is None else indices
        if not indices:
            raise OdiceError(f"{where}: 0 episodes; a data set needs at least one.")
        first = stored(indices[0])["observations"]
        parts = chosen_parts(parts_of(space_of(metadata, "observation_space", path), first, path), obs_keys, where)
        leaves = [leaf_of(part, path) for part in parts]
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


class _Episodes(Sequence):
    """The chosen episodes; each array is opened on access."""

    def __init__(self, stored: Stored, indices: Sequence[int], leaves: Sequence[Leaf], unknown: set[int], where: str):
        self._stored, self._indices, self._leaves, self._unknown = stored, indices, leaves, unknown
        self._where = where

    def __len__(self) -> int:
        return len(self._indices)

    def __getitem__(self, e: int) -> Mapping[str, Any]:  # pyright: ignore[reportIncompatibleMethodOverride]
        index = self._indices[e]
        where = f"{self._where}, episode {index}"
        return _OneEpisode(self._stored(index), self._leaves, index not in self._unknown, where)


class _OneEpisode(Mapping):
    def __init__(self, stored: Mapping[str, Any], leaves: Sequence[Leaf], final_known: bool, where: str):
        self._stored, self._leaves, self._final_known, self._where = stored, leaves, final_known, where

    def __getitem__(self, key: str) -> Any:
        if key == "final_known":
            return self._final_known
        value = self._stored[key]
        return FlatObservations(value, self._leaves, self._where) if key == "observations" else value

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
    return parse_json(read_text(path, DESCRIPTION_BYTES), str(path))


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
            f"{folder / DESCRIPTION}: the 'data_format' is {shown(kind)}; odice reads 'hdf5'. If you trust the "
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
    if not is_count(declared):
        raise wrong(path, "total_episodes", declared, "a whole number")
    if n_stored is not None and declared > n_stored:
        raise OdiceError(
            f"{path}: the 'total_episodes' are {declared}, but {MAIN_FILE} holds {n_stored}; the data set is "
            "incomplete, so download it again."
        )
    return declared


def _unknown(metadata: Mapping[str, Any], path: Path) -> set[int]:
    """The episodes whose final observation was not recorded, which odice notes in what it saves."""
    value = metadata.get("odice_final_unknown", [])
    if not isinstance(value, list) or not all(map(is_count, value)):
        raise wrong(path, "odice_final_unknown", value, "a list of episode numbers")
    return set(value)


def _meta(metadata: Mapping[str, Any], leaves: Sequence[Leaf], where: str, path: Path) -> Meta:
    if (saved := metadata.get("odice")) is not None:
        try:
            return Meta.from_dict({**saved, "source": where} if isinstance(saved, Mapping) else saved)
        except OdiceError as error:
            raise OdiceError(f"{path}: {error}") from error
    space = space_of(metadata, "action_space", path) or {}
    low = high = n_actions = None
    if space.get("type") == "Discrete":
        n_actions, start = choices_of(space, path, "action_space")
        if start != 0:
            raise OdiceError(f"{where}: its discrete actions start at {start}; only 0, 1, ... can be used.")
    elif space.get("type") == "Box":
        low, high = (bounds_of(space, key, path) for key in ("low", "high"))
    elif space:
        why = "several choices at once" if space["type"] in ("MultiDiscrete", "MultiBinary") else "neither of the two"
        raise OdiceError(
            f"{where}: its actions are of type {shown(space['type'])}, {why}; odice learns to choose a vector (Box) "
            "or one of several (Discrete)."
        )
    layout = tuple(("/".join(leaf.path), leaf.width) for leaf in leaves) if leaves[0].path else None
    return Meta(
        source=where,
        env_id=_environment(metadata, layout, path),
        action_low=low,
        action_high=high,
        n_actions=n_actions,
        ref_min=number_of(metadata, "ref_min_score", path),
        ref_max=number_of(metadata, "ref_max_score", path),
        obs_layout=layout,
    )


def _environment(metadata: Mapping[str, Any], layout: Sequence[tuple[str, int]] | None, path: Path) -> str | None:
    """The name of the environment to evaluate in, with the options of the data's; `envs.make` decides on it.

    A plain name where observations are one vector: what its options are is then part of what the name stands for.
    """
    spec = inner_json(metadata, "eval_env_spec", path) or inner_json(metadata, "env_spec", path) or {}
    env_id = text_of(spec, "id", path)
    if env_id is None or layout is None:
        return env_id
    given = spec.get("kwargs")
    return join(env_id, plain(given) if isinstance(given, dict) else {}, [name for name, _ in layout])
