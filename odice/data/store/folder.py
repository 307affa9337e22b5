"""The folder of a store: opened, written, and made from any other data.

A store is a folder of `.npy` files and a small `store.json`. Opened, it is a `Dataset` like any other, except that its
large arrays stay on disk and are mapped. Actions and rewards are there twice: alone, for whoever walks through all of
them (returns, statistics, the data doctor), and with their observations in the file of records, for training.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from odice.data.dataset import OPTIONAL, Dataset
from odice.data.join import merge_meta, recode
from odice.data.meta import Meta
from odice.data.schema import Schema
from odice.data.store.growing import Growing
from odice.data.store.records import RECORDS, layout_of, record_blocks
from odice.errors import OdiceError
from odice.files import complete_folder, read_json, regular_file

HEADER, FORMAT = "store.json", "odice-store-2"
HEADER_BYTES = 64 << 20  # a store of very many shards names each of them
SMALL = ("lengths", "terminated", "truncated", "final_known")


def read(source: str | Path) -> Dataset:
    """Open a store: a Dataset whose large arrays are memory-mapped, read-only."""
    folder = Path(source)
    header = read_header(folder)
    meta = Meta.from_dict(header["meta"])
    if header.get("schema") is not None:
        meta = replace(meta, schema=Schema.parse(header["schema"], str(folder)).to_dict())
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
        return Dataset(records["observation"], actions, rewards, **small, **_optional(folder), meta=meta)
    except (OdiceError, OSError, ValueError, TypeError, IndexError) as error:
        raise OdiceError(f"{folder}: not a complete store ({error}); delete it and make it again.") from error


def _optional(folder: Path) -> dict[str, np.ndarray]:
    """The arrays of a store that not every log has."""
    there = [name for name in OPTIONAL if (folder / f"{name}.npy").exists()]
    for name in there:
        with regular_file(folder / f"{name}.npy", links=False):
            pass
    return {name: np.load(folder / f"{name}.npy", allow_pickle=False) for name in there}


def read_header(folder: Path) -> dict[str, Any]:
    """The header of a store; without one of this format the folder is no complete store."""
    try:
        header = read_json(folder / HEADER, HEADER_BYTES, links=False)
        if header["format"] != FORMAT or not isinstance(header["meta"], dict):
            raise ValueError(f"format {header['format']!r}")
    except (OdiceError, ValueError, KeyError, TypeError) as error:
        raise OdiceError(f"{folder}: not a complete store ({error}); delete it and make it again.") from error
    return header


def write_store(parts: Dataset | Iterable[Dataset], folder: str | Path, *, made_from: Any = None) -> Dataset:
    """Write one data set, or several one after the other (shards), of which only one is in memory at a time."""
    with complete_folder(new_folder(folder)) as temporary, ExitStack() as stack:
        names = ("actions.npy", "rewards.npy", RECORDS)
        actions, rewards, records = files = [stack.enter_context(Growing(temporary / name)) for name in names]
        small: dict[str, list[np.ndarray]] = {name: [] for name in (*SMALL, *OPTIONAL)}
        samples = []
        for part in [parts] if isinstance(parts, Dataset) else parts:
            part = recode(part, samples[0].encoding) if samples else part
            samples.append(replace(part.first(1), meta=part.meta))
            records.extend(record_blocks(part))
            actions.append(part.actions)
            rewards.append(part.rewards)
            for name, values in small.items():
                values.append(getattr(part, name))
        small = {name: values for name, values in small.items() if all(each is not None for each in values)}
        for file in files:
            file.finish()
        meta = samples[0].meta if len(samples) == 1 else merge_meta(samples)
        finish_store(temporary, {name: np.concatenate(values) for name, values in small.items()}, meta, made_from)
    return read(folder)


def new_folder(folder: str | Path) -> Path:
    if (folder := Path(folder)).exists():
        raise OdiceError(f"{folder}: exists already; delete it or choose another folder for the store.")
    return folder


def finish_store(folder: Path, small: dict[str, np.ndarray], meta: Meta, made_from: Any) -> None:
    """What makes the folder a store: the small arrays and, last, the header."""
    for name, value in small.items():
        np.save(folder / f"{name}.npy", value, allow_pickle=False)
    close_store(folder, meta, made_from)


def close_store(folder: Path, meta: Meta, made_from: Any) -> None:
    """Write the header: with it a folder of arrays is a store."""
    schema = None if meta.schema is None else Schema.parse(meta.schema, meta.source).to_dict()
    header = {"format": FORMAT, "meta": meta.to_dict(), "schema": schema, "made_from": made_from}
    (folder / HEADER).write_text(json.dumps(header, indent=1), encoding="utf-8")
