"""Arrays with one row per step: a dict, or an NPZ file. The HDF5 reader has the same naming rules.

Arrays are found by name. `observations`, `actions` and `rewards` are needed, and something that says where episodes
end: `terminated`, `truncated` or `episode`. A bare `dones` is refused, because it mixes the two reasons to end: say
which it is, with `keys={"terminated": "dones"}` or `keys={"truncated": "dones"}`.
"""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Collection, Mapping
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from tokenize import TokenError
from typing import Any

import numpy as np

from odice.data.build import Allocate, from_steps, in_memory
from odice.data.dataset import Dataset
from odice.data.meta import Meta
from odice.data.names import ALIASES, DONE
from odice.errors import OdiceError, unknown_name
from odice.files import regular_file

# what an array is, as `from_steps` calls it -> its role in the table of names
ROLES = {
    "observations": "observation",
    "actions": "action",
    "rewards": "reward",
    "costs": "cost",
    "propensities": "propensity",
    "terminated": "terminated",
    "truncated": "truncated",
    "episode": "episode",
    "next_observations": "next_observation",
    "next_known": "next_known",
}


def read(
    source: Mapping[str, Any] | Path | str,
    *,
    keys: Mapping[str, str] | None = None,
    discrete: bool | None = None,
    n_actions: int | None = None,
    allocate: Allocate = in_memory,
) -> Dataset:
    """A Dataset from a dict of arrays or an NPZ file. `keys` says which array is which where the name does not."""
    options: dict[str, Any] = {"discrete": discrete, "allocate": allocate}
    if isinstance(source, Mapping):
        named = choose(source, keys, "the dict")
        meta = Meta(source="a dict of arrays", n_actions=n_actions)
        return from_steps(**{role: source[key] for role, key in named.items()}, meta=meta, **options)
    path = Path(source)
    with NpzFile(path) as file:
        named = choose(file.names, keys, str(path))
        meta = replace(Meta(source=str(path)), n_actions=n_actions)
        return from_steps(**{role: file[key] for role, key in named.items()}, meta=meta, **options)


def choose(names: Collection[str], keys: Mapping[str, str] | None, where: str) -> dict[str, str]:
    """Role -> name of the array that plays it. An error if one is missing, or if only a bare `done` marks the ends."""
    named = {}
    for role, key in (keys or {}).items():
        if role not in ROLES:
            raise unknown_name("role of an array", role, ROLES)
        if key not in names:
            raise OdiceError(f"{where}: no array {key!r} for {role!r}; there are: {_listed(names)}.")
        named[role] = key
    in_lower_case = {str(key).lower(): key for key in names} | {key: key for key in names}
    for role, column in ROLES.items():
        matches = (in_lower_case[name] for name in ALIASES[column] if name in in_lower_case)
        match = next((key for key in matches if key not in named.values()), None)
        if match is not None and role not in named:
            named[role] = match
    if missing := [role for role in ("observations", "actions", "rewards") if role not in named]:
        raise OdiceError(
            f"{where}: no array for {', '.join(missing)}; found {_listed(names)}. Rename it or pass "
            "keys={role: name}."
        )
    if not {"terminated", "truncated", "episode"} & set(named):
        bare = next((in_lower_case[name] for name in DONE if name in in_lower_case), None)
        if bare is not None:
            raise OdiceError(
                f"{where}: {bare!r} does not say why an episode ended; pass keys={{'terminated': '{bare}'}} if the "
                f"task was over, or keys={{'truncated': '{bare}'}} if the recording stopped."
            )
        raise OdiceError(f"{where}: nothing says where episodes end; add 'terminated', 'truncated' or 'episode'.")
    return named


class NpzFile:
    """An NPZ whose arrays are checked before they are read: sizes against the headers, no pickled objects."""

    def __init__(self, path: Path):
        self.path = path

    def __enter__(self) -> NpzFile:
        self._stack = ExitStack()
        file = self._stack.enter_context(regular_file(self.path))
        try:
            self._zip = self._stack.enter_context(zipfile.ZipFile(file))
        except (OSError, ValueError, NotImplementedError, zipfile.BadZipFile) as error:
            self._stack.close()
            raise OdiceError(f"{self.path}: not a readable NPZ file ({error}); write or download it again.") from error
        self.names = [name[:-4] for name in self._zip.namelist() if name.endswith(".npy")]
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def __getitem__(self, key: str) -> np.ndarray:
        where = f"{self.path}: {key!r}"
        try:
            info = self._zip.getinfo(f"{key}.npy")
            with self._zip.open(info) as member:
                shape, dtype = _header(member)
                if dtype.hasobject:
                    raise OdiceError(
                        f"{where} holds pickled Python objects, which are never loaded; save plain numbers."
                    )
                size = int(np.prod(shape, dtype=object)) * dtype.itemsize
                if size > info.file_size:
                    raise OdiceError(
                        f"{where} declares shape {shape} ({size / 1e9:,.1f} GB) but holds {info.file_size} bytes; "
                        "the file is damaged, so write or download it again."
                    )
                in_memory(key, (size,), np.uint8)  # refuses what cannot fit
            with self._zip.open(info) as member:
                return np.lib.format.read_array(member, allow_pickle=False)
        except (OSError, ValueError, EOFError, NotImplementedError, zipfile.BadZipFile, zlib.error) as error:
            reason = " ".join(str(error).split())
            raise OdiceError(f"{where} cannot be read ({reason}); write or download the file again.") from error


def _header(member: Any) -> tuple[tuple[int, ...], np.dtype]:
    version = np.lib.format.read_magic(member)
    reader = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}.get(version)
    if reader is None:
        raise ValueError(f"unknown NPY version {version}")
    try:
        shape, _, dtype = reader(member)
    except (SyntaxError, TokenError, TypeError, RecursionError, MemoryError) as error:  # the header is a Python literal
        raise ValueError(f"its header is damaged: {error}") from error
    return shape, dtype


def _listed(names: Collection[str]) -> str:
    return ", ".join(sorted(map(str, names))[:20]) or "nothing"
