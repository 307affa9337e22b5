"""Making a store from any other data: block by block where the reader can, file by file where there are many."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from odice.data.dataset import Dataset
from odice.data.load import Source, find, reader_of
from odice.data.load import read as read_item
from odice.data.readers.files import is_many, list_files
from odice.data.store.folder import HEADER, SMALL, finish_store, new_folder, read, read_header, write_store
from odice.data.store.growing import Growing
from odice.data.store.records import RECORDS, record_blocks
from odice.errors import OdiceError
from odice.files import complete_folder


def make_store(
    source: Any, folder: str | Path, *, format=None, data_dir=None, ray: str | None = None, **options: Any
) -> Dataset:
    """Turn anything `odice.load` takes into a store and open it; block by block where its reader can.

    `ray` is the address of a cluster whose nodes read the files, where there are many.
    """
    if isinstance(source, Dataset):
        return write_store(source, folder)
    located = find(source, format=format, data_dir=data_dir)
    made_from = _identity(located.items, options)
    if located.format == "table" and is_many(located.items[0]):
        from odice.data.store.many import make_store_from_files  # imports polars, which no other data need

        return make_store_from_files(located.items[0], folder, made_from=made_from, ray=ray, **options)
    if ray is not None:
        raise OdiceError(
            f"--ray reads many Parquet files, and {source} is no pattern of files such as 'logs/*.parquet' and no "
            "address such as s3://bucket/logs; leave --ray out."
        )
    if len(located.items) > 1 or "allocate" not in inspect.signature(reader_of(located.format)).parameters:
        return write_store((read_item(located, item, **options) for item in located.items), folder, made_from=made_from)
    with complete_folder(new_folder(folder)) as temporary:

        def allocate(name: str, shape: tuple[int, ...], dtype: type) -> np.ndarray:
            return np.lib.format.open_memmap(temporary / f"{name}.npy", "w+", np.dtype(dtype), shape)

        dataset = read_item(located, located.items[0], allocate=allocate, **options)
        with Growing(temporary / RECORDS) as records:
            records.extend(record_blocks(dataset))
            records.finish()
        (temporary / "observations.npy").unlink()
        finish_store(temporary, {name: getattr(dataset, name) for name in SMALL}, dataset.meta, made_from)
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
    made_from = read_header(Path(folder)).get("made_from")
    if made_from is None or made_from != _identity(located.items, options):
        raise OdiceError(f"{folder}: holds the copy of another or an older source; delete it or name another folder.")
    return read(folder)


def store_of(source: str | Path, *, format=None, data_dir=None) -> Path:
    """Where `stored` would look for the store of a source, or make it."""
    if (Path(source) / HEADER).exists():
        return Path(source)
    return _next_to(find(source, format=format, data_dir=data_dir))


def _next_to(located: Source) -> Path:
    item = located.items[0]
    if is_many(item):
        if "://" in item:
            raise OdiceError(
                f"{item}: to train from disk, copy it first: odice data convert '{item}' --out log.store; "
                "then name log.store."
            )
        folder = next(place for place in Path(item).parents if not is_many(str(place)))
        return folder.resolve().with_name(folder.resolve().name + ".store")
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
    shards = [list(file) for item in items if is_many(item) for file in list_files(item)]
    facts = [[str(file.resolve()), file.stat().st_size, file.stat().st_mtime_ns] for file in files] + shards
    return {"items": [str(item) for item in items], "files": facts, "options": {k: repr(v) for k, v in options.items()}}
