"""The rows of many Parquet files, in order, some at a time: what has to be done for each file, wherever it is done.

`LocalReader` does it on this machine; `on_ray.RayReader` gives a file to a node of a cluster. Both yield the same
tables.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple, Protocol

import polars as pl
from polars.selectors import by_name

from odice.data.readers import table as reader
from odice.data.readers.columns import check_types, numbers
from odice.data.readers.encode import as_text
from odice.data.readers.files import LogFile, local_copies
from odice.data.readers.scan import scan
from odice.data.schema import Schema
from odice.encoding import Encoding
from odice.errors import OdiceError

Words = dict[str, list[str]]


class Reading(NamedTuple):
    """How the files are read: the same for all."""

    declared: Schema
    bound: Schema
    encoding: Encoding | None
    rows: int
    """At a time."""


class Piece(NamedTuple):
    """Some rows of a file, as numbers."""

    file: int
    """Which of the files."""
    row: int
    """The first of them."""
    table: pl.DataFrame


def tables(file: LogFile, path: Path, begin: int, how: Reading) -> Iterator[tuple[int, pl.DataFrame]]:
    """The rows of one file from `begin` on, some at a time: the number of the first, and their columns as numbers."""
    bound = how.bound
    with reader.one_sentence(path, file.name):
        opened = scan(path)
        frame = reader.with_expressions(opened.frame, how.declared, file.name)
        kinds = frame.collect_schema()
        if lacking := [name for name in bound.columns() if name not in kinds]:
            raise OdiceError(f"{file.name}: lacks column {lacking[0]!r}; all files must have the same columns.")
        check_types(kinds, bound.columns(), file.name)
    for start in range(begin, opened.rows, how.rows):
        with reader.one_sentence(path, file.name):
            part = frame.slice(start, how.rows).select(by_name(bound.columns())).collect()
        yield start, numbers(part, bound, file.name, how.encoding)


def words_of(path: Path, names: Sequence[str]) -> Words:
    """The different texts in these columns of one file."""
    some = scan(path).frame.select(by_name(list(names)))
    each = {name: some.select(pl.col(name)).unique().collect(engine="streaming")[name] for name in names}
    return {name: as_text(column).drop_nulls().to_list() for name, column in each.items()}


class FilesReader(Protocol):
    """Reads files, in order."""

    def words(self, files: Sequence[LogFile], names: Sequence[str]) -> Iterator[Words]:
        """For each file the words in these columns."""
        ...

    def pieces(self, files: Sequence[LogFile], begin: int, how: Reading) -> Iterator[Piece]:
        """The rows of all files; of the first one from row `begin` on."""
        ...


class LocalReader:
    """Reads files on this machine, one after the other; of a bucket the next one is fetched meanwhile."""

    def words(self, files: Sequence[LogFile], names: Sequence[str]) -> Iterator[Words]:
        with local_copies(files) as copies:
            for file, path in copies:
                with reader.one_sentence(path, file.name):
                    yield words_of(path, names)

    def pieces(self, files: Sequence[LogFile], begin: int, how: Reading) -> Iterator[Piece]:
        with local_copies(files) as copies:
            for number, (file, path) in enumerate(copies):
                for row, table in tables(file, path, begin if number == 0 else 0, how):
                    yield Piece(number, row, table)
