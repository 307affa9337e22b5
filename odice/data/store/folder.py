"""The folder of a store: opened, written, and made from any other data.

A store is a folder of `.npy` files and a small `store.json`. Opened, it is a `Dataset` like any other, except that its
large arrays stay on disk and are mapped. Actions and rewards are there twice: alone, for whoever walks through all of
them (returns, statistics, the data doctor), and with their observations in the file of records, for training.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from odice.data.dataset import Dataset, blocks
from odice.data.join import merge_meta, recode
from odice.data.load import Source, find, reader_of
from odice.data.load import read as read_item
from odice.data.meta import Meta
from odice.data.store.records import RECORDS, layout_of, record_blocks
from odice.errors import OdiceError
from odice.files import complete_folder, read_json, regular_file

HEADER, FORMAT = "store.json", "odice-store-2"
HEADER_BYTES = 64 << 20  # a store of very many shards names each of them
SMALL = ("lengths", "terminated", "truncated", "final_known")


def read(source: str | Path) -> Dataset:
    """Open a store: a Dataset whose large arrays are memory-mapped, read-only."""
    folder = Path(source)
    meta = Meta.from_dict(_header(folder)["meta"])
    try:
        for name in ("actions", "rewards", "records", *SMALL):
            with regular_file(folder / f"{name}.npy", links=False):
                pass  # numpy would wait at a pipe
        actions, rewards, records = (
            np.load(folder / name, mmap_mode="r", allow_pickle=False)
            for name in ("actions.npy", "rewards.npy", RECORDS)
        )
        small = {name: np.load(folder / f"{name}.npy", allow_pickle=False) for name in SMALL}
        if records.dtype != layout_of(records["observation"], actions):
            raise ValueError(f"{RECORDS} holds {records.dtype}")
        return Dataset(records["observation"], actions, rewards, **small, meta=meta)
    except (OdiceError, OSError, ValueError, TypeError, IndexError) as error:
        raise OdiceError(f"{folder}: not a complete store ({error}); delete it and make it again.") from error


def _header(folder: Path) -> dict[str, Any]:
    try:
        header = read_json(folder / HEADER, HEADER_BYTES, links=False)
        if header["format"] != FORMAT or not isinstance(header["meta"], dict):
            raise ValueError(f"format {header['format']!r}")
    except (OdiceError, ValueError, KeyError, TypeError) as error:
        raise OdiceError(f"{folder}: not a complete store ({error}); delete it and make it again.") from error
    return header


def write_store(parts: Dataset | Iterable[Dataset], folder: str | Path, *, made_from: Any = None) -> Dataset:
    """Write one data set, or several one after the other (shards), of which only one is in memory at a time."""
    with complete_folder(_new(folder)) as temporary, ExitStack() as stack:
        names = ("actions.npy", "rewards.npy", RECORDS)
        actions, rewards, records = files = [stack.enter_context(_Growing(temporary / name)) for name in names]
        small: dict[str, list[np.ndarray]] = {name: [] for name in SMALL}
        samples = []
        for part in [parts] if isinstance(parts, Dataset) else parts:
            part = recode(part, samples[0].encoding) if samples else part
            samples.append(replace(part.first(1), meta=part.meta))
            records.extend(record_blocks(part))
            actions.append(part.actions)
            rewards.append(part.rewards)
            for name, values in small.items():
                values.append(getattr(part, name))
        for file in files:
            file.finish()
        meta = samples[0].meta if len(samples) == 1 else merge_meta(samples)
        _finish(temporary, {name: np.concatenate(values) for name, values in small.items()}, meta, made_from)
    return read(folder)


def make_store(source: Any, folder: str | Path, *, format=None, data_dir=None, **options: Any) -> Dataset:
    """Turn anything `odice.load` takes into a store and open it; block by block where its reader can."""
    if isinstance(source, Dataset):
        return write_store(source, folder)
    located = find(source, format=format, data_dir=data_dir)
    made_from = _identity(located.items, options)
    if len(located.items) > 1 or "allocate" not in inspect.signature(reader_of(located.format)).parameters:
        return write_store((read_item(located, item, **options) for item in located.items), folder, made_from=made_from)
    with complete_folder(_new(folder)) as temporary:

        def allocate(name: str, shape: tuple[int, ...], dtype: type) -> np.ndarray:
            return np.lib.format.open_memmap(temporary / f"{name}.npy", "w+", np.dtype(dtype), shape)

        dataset = read_item(located, located.items[0], allocate=allocate, **options)
        with _Growing(temporary / RECORDS) as records:
            records.extend(record_blocks(dataset))
            records.finish()
        (temporary / "observations.npy").unlink()
        _finish(temporary, {name: getattr(dataset, name) for name in SMALL}, dataset.meta, made_from)
    return read(folder)


def stored(source: Any, folder: str | Path | None = None, *, format=None, data_dir=None, **options: Any) -> Dataset:
    """The data set as a store: opened if there is one already, else made first. What `--stream` does.

    The store lies in `folder`, by default next to the source (`log.parquet` -> `log.parquet.store`). It is used again
    as long as it was made from that source, with the same size, time and options.
    """
    if isinstance(source, Dataset):
        return source
    if isinstance(source, str | Path) and (Path(source) / HEADER).exists():
        return read(source)
    located = find(source, format=format, data_dir=data_dir)
    folder = _next_to(located) if folder is None else folder
    if not Path(folder).exists():
        return make_store(source, folder, format=format, data_dir=data_dir, **options)
    made_from = _header(Path(folder)).get("made_from")
    if made_from is None or made_from != _identity(located.items, options):
        raise OdiceError(f"{folder}: holds the copy of another or an older source; delete it or name another folder.")
    return read(folder)


def _next_to(located: Source) -> Path:
    item = located.items[0]
    if isinstance(item, str):  # a Minari id
        from minari.storage import get_dataset_path

        item = Path(get_dataset_path(item))
    if not isinstance(item, Path):
        raise OdiceError("To train from disk on data that are not in a file, name a folder for their store.")
    path = item if len(located.items) == 1 else item.parent
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
            self._file.write(np.ascontiguousarray(array[block]).view(np.uint8).data)
        self._rows += len(array)

    def extend(self, arrays: Iterable[np.ndarray]) -> None:
        for array in arrays:
            self.append(array)

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
        described = {
            "descr": np.lib.format.dtype_to_descr(self._like.dtype),
            "fortran_order": False,
            "shape": shape,
        }
        np.lib.format.write_array_header_1_0(self._file, described)  # leaves room for any number of rows


def _new(folder: str | Path) -> Path:
    if (folder := Path(folder)).exists():
        raise OdiceError(f"{folder}: exists already; delete it or choose another folder for the store.")
    return folder


def _finish(folder: Path, small: dict[str, np.ndarray], meta: Meta, made_from: Any) -> None:
    """What makes the folder a store: the small arrays and, last, the header."""
    for name, value in small.items():
        np.save(folder / f"{name}.npy", value, allow_pickle=False)
    header = {"format": FORMAT, "meta": meta.to_dict(), "made_from": made_from}
    (folder / HEADER).write_text(json.dumps(header, indent=1), encoding="utf-8")
