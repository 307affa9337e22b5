"""A store from many Parquet files, local or in a bucket, with bounded memory: for logs larger than a machine.

The rows are read in order, `ROWS` at a time. What is whole is appended to the store; the episodes that may go on are
kept until their end is seen, so episodes may span files. After every step it is written down how far it came: a copy
that was killed goes on from there when the same command is run again.

Words are collected in a first walk through the columns that hold words. Missing values are refused or split there
(`missing` impute and forward-fill would need the whole column at once).
"""

from __future__ import annotations

import tempfile
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import polars as pl
from polars.selectors import by_name

from odice.cluster import connect, import_ray
from odice.data.binding import bind
from odice.data.build import in_memory
from odice.data.dataset import Dataset, UnfinishedEpisodeWarning
from odice.data.meta import Meta
from odice.data.readers import table as reader
from odice.data.readers.columns import is_category
from odice.data.readers.encode import MAX_CATEGORIES, categories
from odice.data.readers.episodes import between_flags, group
from odice.data.readers.files import LogFile, list_files, local_copies
from odice.data.readers.scan import scan
from odice.data.schema import Schema
from odice.data.store.folder import SMALL, close_store, read
from odice.data.store.growing import Partial
from odice.data.store.records import record_blocks
from odice.data.store.windows import FilesReader, LocalReader, Reading
from odice.encoding import Encoding
from odice.errors import OdiceError

ROWS = 500_000
"""Rows that are read at a time."""


class Window(NamedTuple):
    """Rows of the log that are in memory, in order."""

    table: pl.DataFrame
    file: np.ndarray
    """(rows,) the number of the file that each is from."""
    row: np.ndarray
    """(rows,) which row of that file it is."""

    def split(self, at: int) -> tuple[Window, Window]:
        return Window(self.table[:at], self.file[:at], self.row[:at]), Window(
            self.table[at:], self.file[at:], self.row[at:]
        )


def make_store_from_files(
    source: str | Path,
    folder: str | Path,
    *,
    schema: Any = None,
    made_from: Any = None,
    ray: str | None = None,
    **entries: Any,
) -> Dataset:
    """Copy the files to a store and open it; a copy that was interrupted goes on.

    Args:
        source: A folder, a pattern or an address of Parquet files.
        folder: The store.
        schema: What the columns mean, as for `odice.load`.
        made_from: What the store says it was made from.
        ray: The address of a Ray cluster whose nodes read the files.
        **entries: Fields of `Schema`.
    """
    folder, files = Path(folder), list_files(source)
    if folder.exists():
        raise OdiceError(f"{folder}: exists already; delete it or choose another folder for the store.")
    declared = Schema.parse(entries, str(source)).over(reader.schema_of(schema))
    if declared.missing in ("impute", "forward-fill"):
        raise OdiceError(
            f"{source}: `missing` {declared.missing} needs the whole log in memory; use split, or fill in."
        )
    identity = {"files": [list(file) for file in files], "schema": repr(declared), "rows": ROWS}
    names = ("actions", "rewards", "records", *SMALL)
    with ExitStack() as stack:
        reads = _reads(ray, stack)
        out = stack.enter_context(Partial(folder, names, identity))
        copy = _Copy(str(source), files, declared, out, reads)
        copy.run()
        close_store(out.finish(), copy.meta, made_from)
        out.rename()
    if unfinished := copy.meta.evidence.get("unfinished"):
        count = unfinished["count"]
        what = "1 episode ends" if count == 1 else f"{count:,} episodes end"
        kept = "is kept" if count == 1 else "are kept"
        message = f"{source}: {what} with neither a terminal nor a timeout flag and {kept} as truncated."
        warnings.warn(UnfinishedEpisodeWarning(message), stacklevel=2)
    return read(folder)


class StoreForecast(NamedTuple):
    """What a store of many files would cost."""

    files: int
    rows: int
    """Of all files; in a bucket by the size of the first."""
    disk: int
    seconds: float


def forecast_store(source: str | Path, *, schema: Any = None, **entries: Any) -> StoreForecast:
    """Copy the first rows to a temporary folder, and multiply."""
    files, declared = list_files(source), Schema.parse(entries, str(source)).over(reader.schema_of(schema))
    with tempfile.TemporaryDirectory(prefix="odice-forecast-") as folder, local_copies(files[:1]) as copies:
        _, path = next(copies)
        began, here = time.perf_counter(), [file for file in files if "://" not in file.name]
        with Partial(Path(folder) / "some", ("actions", "rewards", "records", *SMALL), None) as out:
            some = _Copy(str(source), [files[0]._replace(name=str(path))], declared, out, LocalReader()).run(1)
            seconds = time.perf_counter() - began
            written = sum(file.stat().st_size for file in out.folder.glob("*.npy"))
        rows = sum(scan(Path(file.name)).rows for file in here) if here else None
        if rows is None:
            rows = round(scan(path).rows * sum(file.size for file in files) / files[0].size)
    return StoreForecast(len(files), rows, round(written * rows / some), seconds * rows / some)


def _reads(ray: str | None, stack: ExitStack) -> FilesReader:
    """Who reads the files."""
    if ray is None:
        return LocalReader()
    from odice.data.store.on_ray import RayReader

    module = import_ray()
    connect(module, ray, stack)
    return RayReader(module)


class _Copy:
    """One walk through the files."""

    def __init__(self, source: str, files: Sequence[LogFile], declared: Schema, out: Partial, reads: FilesReader):
        self._source, self._files, self._declared, self._out, self._reads = source, files, declared, out, reads
        known = out.position
        self.meta = Meta.from_dict(known["meta"]) if known else Meta(source=source)
        self._saved_meta: Meta | None = None
        self._bound = declared
        """With its columns known, after `_open`."""
        self._encoding: Encoding | None = None
        self._known_words: Mapping[str, Sequence[str]] | None = None
        self._written: tuple[int, set[Any]] = (-1, set())
        """Of the file that is being read: its number, and the episodes of it that are in the store."""

    def run(self, steps: int | None = None) -> int:
        """Copy everything, or stop after so many steps; gives the rows that were appended."""
        self._open()
        known = self._out.position
        begin = (known["file"], known["row"]) if known else (0, 0)
        kept: Window | None = None
        done = 0
        for number, window in enumerate(self._windows(*begin), 1):
            kept = window if kept is None else _join(kept, window)
            at = self._whole(kept)
            if at:
                head, kept = kept.split(at)
                self._append(head)
                self._save(int(kept.file[0]), int(kept.row[0]))
                done += at
            if number == steps and done:
                return done
        if kept is not None and len(kept.table):
            self._append(kept)
            self._save(len(self._files), 0)
            done += len(kept.table)
        return done

    def _open(self) -> None:
        """Bind the schema to the columns of the first file, and learn the words."""
        with local_copies(self._files[:1]) as copies, reader.one_sentence(Path(self._files[0].name)):
            file, path = next(copies)
            self._saved_meta = reader.saved_meta(path)
            frame = reader.with_expressions(scan(path).frame, self._declared, file.name)
            kinds = frame.collect_schema()
            self._bound = bind(self._declared, kinds.names(), file.name)
            some = frame.select(by_name(self._bound.columns())).head(1000).collect()
        if self._saved_meta is not None:
            return
        seen = (*self._bound.observation, *self._bound.action)
        declared = dict(categories(self._bound, self._source))
        worded = [name for name in seen if is_category(some[name], name in declared)]
        if not worded:
            return
        known = self._out.position.get("words") or self._words(worded, declared)
        self._known_words = known
        columns = tuple(
            {"name": name, "values": list(known[name])} for name in worded if name in self._bound.observation
        )
        choices = tuple(known[self._bound.action[0]]) if self._bound.action[0] in known else ()
        self._encoding = Encoding(columns, choices)

    def _words(self, names: Sequence[str], declared: Mapping[str, Sequence[str]]) -> dict[str, list[str]]:
        found: dict[str, set[str]] = {name: set() for name in names if not declared.get(name)}
        each = self._reads.words(self._files, list(found)) if found else ()
        for words, file in zip(each, self._files, strict=bool(found)):
            for name, texts in words.items():
                found[name].update(texts)
                if len(found[name]) > MAX_CATEGORIES:
                    raise OdiceError(
                        f"{file.name}: column {name!r} holds more than {MAX_CATEGORIES} different texts; leave it out, "
                        "or group them."
                    )
        return {name: sorted(found[name]) if name in found else list(declared[name]) for name in names}

    def _windows(self, begin: int, row: int) -> Iterator[Window]:
        how = Reading(self._declared, self._bound, self._encoding, ROWS)
        for piece in self._reads.pieces(self._files[begin:], row, how):
            length = len(piece.table)
            yield Window(piece.table, np.full(length, begin + piece.file), np.arange(piece.row, piece.row + length))

    def _whole(self, window: Window) -> int:
        """How many of the first rows are whole episodes that cannot go on."""
        episodes = self._episodes(window)
        _, first = np.unique(episodes, return_index=True)
        last = len(episodes) - 1 - np.unique(episodes[::-1], return_index=True)[1]
        at = int(first[episodes[-1]])
        while (cut := (first < at) & (last >= at)).any():
            at = int(first[cut].min())
        return at

    def _episodes(self, window: Window) -> np.ndarray:
        """(rows,) the number of each row's episode, in the order of the rows."""
        bound = self._bound
        if bound.one_step:
            return np.arange(len(window.table))
        order, episodes = group(window.table, window.file - window.file[0], bound, self._source)
        if episodes is None:
            return between_flags(window.table, bound)
        if order is None:
            return episodes
        inverse = np.empty(len(order), np.int64)
        inverse[order] = episodes
        return inverse

    def _append(self, window: Window) -> None:
        self._refuse_scattered(window)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UnfinishedEpisodeWarning)  # said once, at the end
            part = reader.to_dataset(
                window.table,
                window.file - window.file[0],
                self._bound,
                self._source,
                saved=self._saved_meta,
                encoding=self._encoding,
                allocate=in_memory,
            )
        arrays = self._out.arrays
        arrays["records"].extend(record_blocks(part))
        for name in ("actions", "rewards", *SMALL):
            arrays[name].append(getattr(part, name))
        self.meta = _merge(self.meta, part.meta, self._source)

    def _refuse_scattered(self, window: Window) -> None:
        """An episode of which a part is in the store already cannot go on."""
        if not self._bound.episode:
            return
        for number in np.unique(window.file):
            if number != self._written[0]:
                self._written = (int(number), set())
            own = set(window.table[self._bound.episode].filter(pl.Series(window.file == number)).unique().to_list())
            if twice := own & self._written[1]:
                raise OdiceError(
                    f"{self._files[int(number)].name}: episode {next(iter(twice))!r} stands in several places of the "
                    "file, far from each other; sort the rows by episode."
                )
            self._written[1].update(own)

    def _save(self, file: int, row: int) -> None:
        position = {"file": file, "row": row, "meta": self.meta.to_dict(), "words": self._known_words}
        self._out.save(position)


def _join(one: Window, other: Window) -> Window:
    table = pl.concat([one.table, other.table], how="vertical_relaxed", rechunk=True)
    return Window(table, np.concatenate([one.file, other.file]), np.concatenate([one.row, other.row]))


def _merge(known: Meta, part: Meta, source: str) -> Meta:
    """The metadata of the parts so far and of one more: counts of evidence and of actions add up."""
    evidence: dict[str, Any] = dict(known.evidence)
    for key, facts in part.evidence.items():
        before = evidence.get(key, {"count": 0})
        evidence[key] = {**facts, **before, "count": before["count"] + facts["count"]}
    counts = [meta.n_actions for meta in (known, part) if meta.n_actions is not None]
    history = tuple(dict.fromkeys((*known.history, *part.history)))
    n_actions = max(counts) if counts else None
    return replace(part, source=source, evidence=evidence, history=history, n_actions=n_actions)
