"""HDF5 files of arrays: D4RL's layout, and any other with one row per step.

D4RL: `observations`, `actions`, `rewards`, `terminals`, usually `timeouts`, sometimes `next_observations` and `infos/*`
(not read). The row after an episode's last one is the start of the next, so without `next_observations` the
observation after a timeout is not known.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from odice.d4rl import REFERENCES, ROBOTS, episode_steps, name_of_file, robot_of
from odice.data.build import Allocate, flag_column, from_steps, in_memory
from odice.data.dataset import Dataset, DataWarning, blocks
from odice.data.meta import Meta
from odice.data.readers import hdf5
from odice.data.readers.arrays import choose
from odice.errors import OdiceError


class MissingTimeoutsWarning(DataWarning):
    """Nothing in the file says where episodes were cut by time."""


def read(
    source: Path | str,
    *,
    name: str | None = None,
    keys: Mapping[str, str] | None = None,
    max_episode_steps: int | None = None,
    discrete: bool | None = None,
    n_actions: int | None = None,
    allocate: Allocate = in_memory,
) -> Dataset:
    """A Dataset from an HDF5 file.

    `name` is the D4RL name of the file; it brings the environment and the reference scores. A file that
    has one of D4RL's file names, and the shapes of that data set, is taken for it. `max_episode_steps` says after how
    many steps an episode was cut, for old files without `timeouts`; a file attribute of that name does the same.
    """
    path = Path(source)
    where = str(path)
    with hdf5.opened(path) as file:
        if "episode_0" in file:
            raise OdiceError(f"{where}: this file belongs to a Minari data set; give the folder that holds its 'data'.")
        names = [str(key) for key in file]
        columns: dict[str, Any] = {r: hdf5.array(file, key, where) for r, key in choose(names, keys, where).items()}
        if flat := next((role for role, column in columns.items() if not column.shape), None):
            raise OdiceError(f"{where}: {flat!r} is a single number; expected one row per step.")
        saved = hdf5.json_text(file, "odice", where)
        if name is None and saved is None:
            name = _recognized(path, columns)
        meta = _meta(file, where, name, n_actions, saved)
        _check_shape(name, columns, where)
        if "truncated" not in columns and "episode" not in columns:
            limit = max_episode_steps or _whole(hdf5.attribute(file, "max_episode_steps")) or episode_steps(name)
            columns["truncated"] = _timeouts(columns, limit, where)
        return from_steps(**columns, discrete=discrete, meta=meta, allocate=allocate)


def environment(source: Path | str, *, name: str | None = None) -> str | None:
    """The environment that a file names, without reading its arrays."""
    path = Path(source)
    with hdf5.opened(path) as file:
        saved = hdf5.json_text(file, "odice", str(path))
        if saved is not None:
            return Meta.from_dict(saved).env_id
        named = choose([str(key) for key in file], None, str(path))
        columns = {role: hdf5.array(file, key, str(path)) for role, key in named.items()}
        return hdf5.text(file, "env") or name or _recognized(path, columns)


def _meta(file: h5py.File, where: str, name: str | None, n_actions: int | None, saved: dict | None) -> Meta:
    if saved is not None:
        return Meta.from_dict({**saved, "source": where})
    low, high = REFERENCES.get(name or "", (None, None))
    env = hdf5.text(file, "env") or name
    return Meta(source=where, env_id=env, n_actions=n_actions, ref_min=low, ref_max=high)


def _recognized(path: Path, columns: Mapping[str, Any]) -> str | None:
    """The D4RL data set whose file this is, by its name and its shapes."""
    name = name_of_file(path)
    robot = ROBOTS.get(robot_of(name))
    shapes = tuple(columns[role].shape[-1] if columns[role].ndim > 1 else 0 for role in ("observations", "actions"))
    return name if robot and shapes == robot[:2] else None


def _check_shape(name: str | None, columns: Mapping[str, Any], where: str) -> None:
    robot = ROBOTS.get(robot_of(name))
    sizes = tuple(columns[role].shape[-1] for role in ("observations", "actions"))
    if robot and sizes != robot[:2]:
        raise OdiceError(
            f"{where}: has (obs, action) dimensions {sizes} but {name} has {robot[:2]}; this file is other data, so "
            "load it by its path instead of by D4RL's name."
        )


def _timeouts(columns: Mapping[str, Any], limit: int | None, where: str) -> np.ndarray:
    """Where episodes were cut, if the file does not say: by counting steps, else where the next observation jumps."""
    n = len(columns["rewards"])
    cut = np.zeros(n, bool)
    if limit is not None:
        ends = np.append(np.flatnonzero(flag_column("terminals", columns["terminated"], n, where)), n - 1)
        starts = np.insert(ends[:-1] + 1, 0, 0)
        age = np.arange(n) - np.repeat(starts, np.diff(ends, prepend=-1))
        return age % limit == limit - 1
    if "next_observations" in columns:
        obs, nexts = columns["observations"], columns["next_observations"]
        for block in blocks(n - 1, obs[:1].nbytes):
            follows = obs[block.start + 1 : block.stop + 1]
            cut[block] = (np.abs(follows - nexts[block]) > 1e-6).any(axis=1)
        return cut
    warnings.warn(
        MissingTimeoutsWarning(
            f"{where}: no 'timeouts', so episodes end only at terminals; "
            "pass max_episode_steps if they were cut by time."
        ),
        stacklevel=3,
    )
    return cut


def _whole(value: Any) -> int | None:
    return int(value) if isinstance(value, int | np.integer) and value > 0 else None
