"""Data larger than memory: a folder of memory-mapped arrays, and batches gathered from it.

A store is a folder with one `.npy` file per array of a `Dataset` and a small `store.json`. Opened, it is a `Dataset`
like any other, except that its large arrays stay on disk; the operating system reads the pages that are touched. As
the rows of a batch depend only on (seed, step), training from a store sees exactly the batches of training in memory.
"""

from __future__ import annotations

import inspect
import json
import mmap
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from odice.data.episodes import Dataset, Meta, blocks, merge_meta, release
from odice.data.load import Found, find, reader_of
from odice.data.load import read as read_item
from odice.data.preprocess import Fitted
from odice.data.transitions import Convention, rows_of
from odice.data.writers import complete_folder
from odice.errors import OdiceError
from odice.types import Batch

HEADER = "store.json"
LARGE = ("observations", "actions", "rewards")
# How many rows are gathered before their pages are given back: bounds what is resident at a time.
PIECE = 2048
SMALL = ("lengths", "terminated", "truncated", "final_known")


def read(source: str | Path) -> Dataset:
    """Open a store: a Dataset whose large arrays are memory-mapped, read-only."""
    folder = Path(source)
    meta = Meta.from_dict(_header(folder)["meta"])
    try:
        arrays = {name: np.load(folder / f"{name}.npy", mmap_mode="r", allow_pickle=False) for name in LARGE}
        arrays |= {name: np.load(folder / f"{name}.npy", allow_pickle=False) for name in SMALL}
        return Dataset(**arrays, meta=meta)
    except (OSError, ValueError, TypeError) as error:
        raise OdiceError(f"{folder}: not a complete store ({error}); delete it and make it again.") from error


def _header(folder: Path) -> dict[str, Any]:
    try:
        header = json.loads((folder / HEADER).read_text(encoding="utf-8"))
        if header["format"] != "odice-store-1" or not isinstance(header["meta"], dict):
            raise ValueError(f"format {header['format']!r}")
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise OdiceError(f"{folder}: not a complete store ({error}); delete it and make it again.") from error
    return header


def write_store(parts: Dataset | Iterable[Dataset], folder: str | Path, *, made_from: Any = None) -> Dataset:
    """Write one data set, or several one after the other (shards), of which only one is in memory at a time."""
    with complete_folder(_new(folder)) as temporary, ExitStack() as stack:
        files = {name: stack.enter_context(_Growing(temporary / f"{name}.npy")) for name in LARGE}
        small: dict[str, list[np.ndarray]] = {name: [] for name in SMALL}
        samples = []
        for part in [parts] if isinstance(parts, Dataset) else parts:
            samples.append(replace(part.first(1), meta=part.meta))
            for name, file in files.items():
                file.append(getattr(part, name))
            for name, values in small.items():
                values.append(getattr(part, name))
        for file in files.values():
            file.finish()
        meta = samples[0].meta if len(samples) == 1 else merge_meta(samples)
        _finish(temporary, {name: np.concatenate(values) for name, values in small.items()}, meta, made_from)
    return read(folder)


def make_store(source: Any, folder: str | Path, *, format=None, data_dir=None, **options: Any) -> Dataset:
    """Turn anything `odice.load` takes into a store and open it; block by block where its reader can."""
    if isinstance(source, Dataset):
        return write_store(source, folder)
    found = find(source, format=format, data_dir=data_dir)
    made_from = _identity(found.items, options)
    if len(found.items) > 1 or "allocate" not in inspect.signature(reader_of(found.format)).parameters:
        return write_store((read_item(found, item, **options) for item in found.items), folder, made_from=made_from)
    with complete_folder(_new(folder)) as temporary:

        def allocate(name: str, shape: tuple[int, ...], dtype: type) -> np.ndarray:
            return np.lib.format.open_memmap(temporary / f"{name}.npy", "w+", np.dtype(dtype), shape)

        dataset = read_item(found, found.items[0], allocate=allocate, **options)
        _finish(temporary, {name: getattr(dataset, name) for name in SMALL}, dataset.meta, made_from)
    return read(folder)


def stored(source: Any, folder: str | Path | None = None, *, format=None, data_dir=None, **options: Any) -> Dataset:
    """The data set as a store: opened if there is one already, else made first. What `--stream` does.

    The store lies in `folder`, by default beside the source (`log.parquet` -> `log.parquet.store`). It is used again as
    long as it was made from that source, with the same size, time and options.
    """
    if isinstance(source, Dataset):
        return source
    if isinstance(source, str | Path) and (Path(source) / HEADER).exists():
        return read(source)
    found = find(source, format=format, data_dir=data_dir)
    folder = _beside(found) if folder is None else folder
    if not Path(folder).exists():
        return make_store(source, folder, format=format, data_dir=data_dir, **options)
    made_from = _header(Path(folder)).get("made_from")
    if made_from is None or made_from != _identity(found.items, options):
        raise OdiceError(f"{folder}: holds the copy of another or an older source; delete it or name another folder.")
    return read(folder)


def _beside(found: Found) -> Path:
    item = found.items[0]
    if isinstance(item, str):  # a Minari id
        from minari.storage import get_dataset_path

        item = Path(get_dataset_path(item))
    if not isinstance(item, Path):
        raise OdiceError("To stream data that are not in a file, name a folder for their copy on disk.")
    path = item if len(found.items) == 1 else item.parent
    return path.with_name(path.name + ".store")


def _identity(items: Sequence[Any], options: Mapping[str, Any]) -> Any:
    """What a store was made from, if that can be compared: files with size and time, or a name; and the options."""
    if not all(isinstance(item, str | Path) for item in items):
        return None
    files = [
        file
        for item in items
        if isinstance(item, Path)
        for file in (sorted(item.rglob("*")) if item.is_dir() else [item])
    ]
    facts = [[str(file.resolve()), file.stat().st_size, file.stat().st_mtime_ns] for file in files]
    return {"items": [str(item) for item in items], "files": facts, "options": {k: repr(v) for k, v in options.items()}}


class Streamed:
    """The transitions of a data set, gathered on the host as a run asks for them.

    Stands where `Transitions` stands in memory: the same rows give the same numbers, bit for bit. With a memory-mapped
    data set the pages that were touched are given back as it goes, so that the process stays small (they remain in the
    operating system's cache as long as there is room).
    """

    def __init__(self, dataset: Dataset, convention: Convention = "qlearning", fitted: Fitted | None = None):
        self._dataset, self._rows, self._fitted = dataset, rows_of(dataset, convention), fitted or Fitted()
        self._ends = dataset.ends
        self._arrays = [getattr(dataset, name) for name in LARGE]
        for array in self._arrays:
            if isinstance(array, np.memmap):  # reading ahead would fetch rows that nobody asked for
                array._mmap.madvise(mmap.MADV_RANDOM)  # pyright: ignore[reportAttributeAccessIssue]

    @property
    def size(self) -> int:
        return self._rows.size

    @property
    def n_episodes(self) -> int:
        return self._dataset.n_episodes

    def gather(self, rows: np.ndarray, initial: np.ndarray | None = None) -> Batch:
        """The transitions of these rows (of any shape, which leads the shape of every field), as numpy arrays.

        `initial` names episodes whose first observations become `initial_obs`. The rows are visited in order, piece by
        piece: neighbours share a page, and a disk likes it.
        """
        flat = np.asarray(rows).reshape(-1)
        order = np.argsort(flat, kind="stable")
        data, shape = self._dataset, np.shape(rows)
        width = data.observations.shape[1:]
        obs, after = (np.empty((flat.size, *width), np.float32) for _ in range(2))
        action = np.empty((flat.size, *data.actions.shape[1:]), data.actions.dtype)
        reward, terminated = np.empty(flat.size, np.float32), np.empty(flat.size, bool)
        for piece in (order[a : a + PIECE] for a in range(0, flat.size, PIECE)):
            steps, owner = self._rows.locate(flat[piece])
            obs[piece] = data.observations[steps + owner]
            after[piece] = data.observations[steps + owner + 1]
            action[piece] = data.actions[steps]
            reward[piece] = data.rewards[steps]
            terminated[piece] = data.terminated[owner] & (steps == self._ends[owner])
            for array in self._arrays:
                release(array)
        fitted = self._fitted
        fields: dict[str, Any] = {
            "obs": fitted.observe(obs),
            "action": fitted.unact(action),
            "reward": fitted.reward(reward),
            "next_obs": fitted.observe(after),
            "terminated": terminated,
        }
        batch = Batch(**{name: value.reshape(*shape, *value.shape[1:]) for name, value in fields.items()})
        if initial is None:
            return batch
        first: Any = fitted.observe(data.observations[data.starts[initial] + initial])
        return batch._replace(initial_obs=first)


class _Growing:
    """A `.npy` file that is written from the front; its header is corrected when the length is known."""

    def __init__(self, path: Path):
        self._file, self._rows, self._like = open(path, "wb"), 0, None  # noqa: SIM115

    def append(self, array: np.ndarray) -> None:
        if self._like is None:
            self._like = array[:0]
            self._header()
        if (array.dtype, array.shape[1:]) != (self._like.dtype, self._like.shape[1:]):
            raise OdiceError(
                f"Shards differ: rows of {array.shape[1:]} after {self._like.shape[1:]}; all must be alike."
            )
        for block in blocks(len(array), array[:1].nbytes):
            self._file.write(np.ascontiguousarray(array[block]).data)
        self._rows += len(array)

    def finish(self) -> None:
        self._file.seek(0)
        self._header()
        self._file.flush()

    def __enter__(self) -> _Growing:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def _header(self) -> None:
        if self._like is None:
            raise OdiceError("0 shards; a store needs at least one data set.")
        shape = (self._rows, *self._like.shape[1:])
        described = {"descr": self._like.dtype.str, "fortran_order": False, "shape": shape}
        np.lib.format.write_array_header_1_0(self._file, described)  # leaves room for any number of rows


def _new(folder: str | Path) -> Path:
    if (folder := Path(folder)).exists():
        raise OdiceError(f"{folder}: exists already; delete it or choose another folder for the store.")
    return folder


def _finish(folder: Path, small: dict[str, np.ndarray], meta: Meta, made_from: Any) -> None:
    """What makes the folder a store: the small arrays and, last, the header."""
    for name, value in small.items():
        np.save(folder / f"{name}.npy", value, allow_pickle=False)
    header = {"format": "odice-store-1", "meta": meta.to_dict(), "made_from": made_from}
    (folder / HEADER).write_text(json.dumps(header, indent=1), encoding="utf-8")
