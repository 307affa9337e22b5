"""A store from many Parquet files, local or in a bucket, with bounded memory: for logs larger than a machine.

The rows are read in order, `ROWS` at a time. What is whole is appended to the store; the episodes that may go on are
kept until their end is seen, so episodes may span files. After every step it is written down how far it came: a copy
that was killed goes on from there when the same command is run again.

Words are collected in a first walk through the columns that hold words. Missing values are refused or split there
(`missing` impute and forward-fill would need the whole column at once).
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import polars as pl
from polars.selectors import by_name

from odice.data.binding import bind
from odice.data.build import in_memory
from odice.data.dataset import Dataset, UnfinishedEpisodeWarning
from odice.data.meta import Meta
from odice.data.readers import table as reader
from odice.data.readers.columns import check_types, is_category, numbers
from odice.data.readers.encode import MAX_CATEGORIES, as_text, categories
from odice.data.readers.files import LogFile, list_files, local_copies
from odice.data.readers.scan import scan
from odice.data.schema import Schema
from odice.data.store.folder import SMALL, close_store, read
from odice.data.store.growing import Partial
from odice.data.store.records import record_blocks
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
    source: str | Path, folder: str | Path, *, schema: Any = None, made_from: Any = None, **entries: Any
) -> Dataset:
    """Copy the files to a store and open it; a copy that was interrupted goes on.

    Args:
        source: A folder, a pattern or an address of Parquet files.
        folder: The store.
        schema: What the columns mean, as for `odice.load`.
        made_from: What the store says it was made from.
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
    with Partial(folder, names, identity) as out:
        copy = _Copy(str(source), files, declared, out)
        copy.run()
        close_store(out.finish(), copy.meta, made_from)
        out.rename()
    if unfinished := copy.meta.evidence.get("unfinished"):
        count = unfinished["count"]
        what = "1 episode ends" if count == 1 else f"{count:,} episodes end"
        message = f"{source}: {what} with neither a terminal nor a timeout flag and is kept as truncated."
        warnings.warn(UnfinishedEpisodeWarning(message), stacklevel=2)
    return read(folder)


class _Copy:
    """One walk through the files."""

    def __init__(self, source: str, files: Sequence[LogFile], declared: Schema, out: Partial):
        self._source, self._files, self._declared, self._out = source, files, declared, out
        known = out.position
        self.meta = Meta.from_dict(known["meta"]) if known else Meta(source=source)
        self._saved_meta: Meta | None = None
        self._bound = declared
        """With its columns known, after `_open`."""
        self._encoding: Encoding | None = None
        self._known_words: Mapping[str, Sequence[str]] | None = None
        self._written: tuple[int, set[Any]] = (-1, set())
        """Of the file that is being read: its number, and the episodes of it that are in the store."""

    def run(self) -> None:
        self._open()
        known = self._out.position
        begin = (known["file"], known["row"]) if known else (0, 0)
        kept: Window | None = None
        for window in self._windows(*begin):
            kept = window if kept is None else _join(kept, window)
            at = self._whole(kept)
            if at:
                head, kept = kept.split(at)
                self._append(head)
                self._save(int(kept.file[0]), int(kept.row[0]))
        if kept is not None and len(kept.table):
            self._append(kept)
            self._save(len(self._files), 0)

    def _open(self) -> None:
        """Bind the schema to the columns of the first file, and learn the words."""
        with local_copies(self._files[:1]) as copies:
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
        if found:
            with local_copies(self._files) as copies:
                for file, path in copies:
                    some = scan(path).frame.select(by_name(list(found)))
                    for name, words in found.items():
                        column = some.select(pl.col(name)).unique().collect(engine="streaming")[name]
                        words |= set(as_text(column).drop_nulls().to_list())
                        if len(words) > MAX_CATEGORIES:
                            raise OdiceError(
                                f"{file.name}: column {name!r} holds more than {MAX_CATEGORIES} different texts; leave "
                                "it out, or group them."
                            )
        return {name: sorted(found[name]) if name in found else list(declared[name]) for name in names}

    def _windows(self, begin: int, row: int) -> Iterator[Window]:
        bound = self._bound
        with local_copies(self._files[begin:]) as copies:
            for number, (file, path) in enumerate(copies, begin):
                opened = scan(path)
                frame = reader.with_expressions(opened.frame, self._declared, file.name)
                kinds = frame.collect_schema()
                if lacking := [name for name in bound.columns() if name not in kinds]:
                    raise OdiceError(f"{file.name}: lacks column {lacking[0]!r}; all files must have the same columns.")
                check_types(kinds, bound.columns(), file.name)
                for start in range(row if number == begin else 0, opened.rows, ROWS):
                    part = frame.slice(start, ROWS).select(by_name(bound.columns())).collect()
                    table = numbers(part, bound, file.name, self._encoding)
                    yield Window(table, np.full(len(table), number), np.arange(start, start + len(table)))

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
        order, episodes = reader.group(window.table, window.file - window.file[0], bound, self._source)
        if episodes is None:
            return reader.between_flags(window.table, bound, self._source)
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
