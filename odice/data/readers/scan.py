"""Opening a Parquet or CSV file: how large it would be in memory, before anything is decoded.

A few kilobytes can declare a billion rows (a repeated value is written once), or a line of names without end. So rows
times width are compared with the machine's memory before a parser sees the values.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import polars as pl

from odice.data.readers.pages import column_bytes
from odice.errors import OdiceError
from odice.files import regular_file
from odice.machine import memory

PARQUET = (".parquet", ".pq")
TEXT = (".csv", ".tsv", ".csv.gz", ".tsv.gz")
MAX_COLUMNS = 20_000
"""More than any log has."""
MAX_HEADER = 4 << 20
"""Bytes of the line of column names."""
ROW_BYTES = 64
"""Bytes for each row in addition to its values, while rows are grouped into episodes."""
CELL_BYTES = 16
"""A value of a text file: as it is parsed, and as it is kept."""
UNKNOWN_MEMORY = 8 << 30
"""What a machine that does not say it is taken to have."""
BLOCK = 1 << 20
MISSING = ("", "NA", "N/A", "NULL", "NONE", "-", "?", ".")
"""Words for a missing value, in a column whose other words are all numbers."""
NOT_UTF8 = "not UTF-8 text; save it as CSV in UTF-8 (or: iconv -f latin1 -t utf-8 FILE > NEW)."


class TableFile(NamedTuple):
    """A table that is not read yet (Parquet), or is of a size that was checked (text)."""

    frame: pl.LazyFrame
    rows: int
    bytes_of: Mapping[str, int]
    """Bytes that each column takes in memory."""

    def need(self, columns: Iterable[str]) -> int:
        """The bytes that these columns take while they are read; one that is computed from others counts as one."""
        return ROW_BYTES * self.rows + sum(self.bytes_of.get(name, CELL_BYTES * self.rows) for name in columns)


def scan(file: Path) -> TableFile:
    """Open a table and take its measure."""
    with regular_file(file):
        pass  # a parser would wait at a pipe for ever
    if file.name.lower().endswith(PARQUET):
        rows, sizes = column_bytes(file)
        if len(sizes) > MAX_COLUMNS:
            raise _too_many_columns(file, len(sizes))
        return TableFile(pl.scan_parquet(file, glob=False, hive_partitioning=False), rows, sizes)
    return _scan_text(file)


def _scan_text(file: Path) -> TableFile:
    data: Any = _unzip(file) if file.suffix.lower() == ".gz" else file
    line = _first_line(data, file)
    if line.startswith((b"\xff\xfe", b"\xfe\xff")) or b"\0" in line:
        raise OdiceError(f"{file}: not UTF-8 text (UTF-16, or no text at all); save it as CSV in UTF-8.")
    try:
        line.decode("utf-8")
    except UnicodeDecodeError:  # polars would put question marks into the names
        raise OdiceError(f"{file}: {NOT_UTF8}") from None
    if not line.strip():
        raise OdiceError(f"{file}: the first line is empty; a table starts with a line of column names.")
    separator = max(",\t;|", key=lambda s: line.count(s.encode()))
    columns, rows = line.count(separator.encode()) + 1, sum(block.count(b"\n") for block in _blocks(data))
    if columns > MAX_COLUMNS:
        raise _too_many_columns(file, columns)
    check_memory(rows * (ROW_BYTES + CELL_BYTES * columns), file)
    options: dict[str, Any] = {"separator": separator, "raise_if_empty": True}
    if not isinstance(data, bytes):
        options["glob"] = False
    try:  # types from the first rows; a later row that does not fit costs a second, complete reading
        frame = pl.read_csv(data, infer_schema_length=10_000, **options)
    except pl.exceptions.ComputeError as error:
        if "found more fields" in str(error):
            message = f"{file}: a row has more values than the header has names; every row must have the same number."
            raise OdiceError(message) from error
        if "utf-8" in str(error).lower():
            raise OdiceError(f"{file}: {NOT_UTF8}") from error
        frame = pl.read_csv(data, infer_schema_length=None, **options)
    frame.columns = _without_spaces(frame.columns)
    if twice := next((c for c in frame.columns if "_duplicated_" in c), None):
        raise OdiceError(f"{file}: two columns are called {twice.split('_duplicated_')[0]!r}; names must differ.")
    frame = frame.with_columns(_as_numbers(frame[name], separator) for name in frame.columns)
    return TableFile(frame.lazy(), len(frame), dict.fromkeys(frame.columns, CELL_BYTES * len(frame)))


def _without_spaces(names: list[str]) -> list[str]:
    """The names of a line that has spaces after its separators."""
    plain = [name.strip() or name for name in names]
    return plain if len(set(plain)) == len(names) else names


def _as_numbers(column: pl.Series, separator: str) -> pl.Series:
    """Words as numbers where all of them are: $12.50, 7 %, 12,500, with a decimal comma, or NA where one is missing."""
    if column.dtype != pl.String:
        return column
    missing = column.str.strip_chars().str.to_uppercase().is_in(MISSING)
    words = pl.select(pl.when(missing).then(None).otherwise(column)).to_series()
    words = words.str.strip_chars().str.replace(r"^([+-]?)\s*[$€£¥]\s*", "$1").str.replace(r"\s*[%$€£¥]\s*$", "")
    if separator == "," or words.str.contains(r"^[+-]?\d{1,3}(,\d{3})+\.\d+$").any():
        large = words.str.contains(r"^[+-]?\d{1,3}(,\d{3})+(\.\d+)?$")
        words = pl.select(pl.when(large).then(words.str.replace_all(",", "")).otherwise(words)).to_series()
    else:
        large = words.str.contains(r"^[+-]?\d{1,3}(\.\d{3})+,\d+$")
        words = pl.select(pl.when(large).then(words.str.replace_all(r"\.", "")).otherwise(words)).to_series()
        words = words.str.replace(r"^([+-]?\d+),(\d+)$", "$1.$2")
    numbers = words.cast(pl.Float64, strict=False)
    changed = words.null_count() > column.null_count() or bool((words != column).any())
    return numbers.alias(column.name) if changed and numbers.null_count() == words.null_count() < len(words) else column


def check_memory(need: int, path: Path) -> None:
    """Raise if a table needs more than half of the machine's memory."""
    have = memory() or UNKNOWN_MEMORY
    if need > have // 2:
        raise OdiceError(
            f"{path}: its rows would take {need / 1e9:,.1f} GB, more than half of this machine's memory "
            f"({have / 1e9:,.1f} GB); read fewer columns, split the file, or check that it is not damaged."
        )


def _too_many_columns(file: Path, count: int) -> OdiceError:
    return OdiceError(
        f"{file}: {count:,} columns, and at most {MAX_COLUMNS:,} are read; is the header damaged? A long vector can be "
        "one column of lists (Parquet), or an array (NPZ, HDF5)."
    )


def _first_line(data: bytes | Path, file: Path) -> bytes:
    head = b""
    for block in _blocks(data):
        head += block
        if b"\n" in block or len(head) > MAX_HEADER:
            break
    line = head.split(b"\n", 1)[0]
    if len(line) > MAX_HEADER:
        raise OdiceError(f"{file}: its first line has more than {MAX_HEADER >> 20} MB; is it a table of text?")
    return line


def _blocks(data: bytes | Path) -> Iterator[bytes]:
    if isinstance(data, bytes):
        yield from (data[at : at + BLOCK] for at in range(0, len(data), BLOCK))
        return
    with regular_file(data) as file:
        while block := file.read(BLOCK):
            yield block


def _unzip(file: Path) -> bytes:
    """The text inside a .gz, refused as soon as it grows beyond a quarter of the machine's memory."""
    most = (memory() or UNKNOWN_MEMORY) // 4
    engine, parts, size = zlib.decompressobj(wbits=31), [], 0
    try:
        for block in _blocks(file):
            while block:
                parts.append(engine.decompress(block, 1 << 24))
                size += len(parts[-1])
                if size > most:
                    raise OdiceError(f"{file}: unpacks to more than {most / 1e9:.1f} GB; unpack or split it first.")
                block = engine.unconsumed_tail
                if engine.eof and engine.unused_data:  # files joined by `cat` hold several members
                    block, engine = engine.unused_data, zlib.decompressobj(wbits=31)
    except zlib.error as error:
        raise OdiceError(f"{file}: not a valid gzip file ({error}); write or download it again.") from error
    if not engine.eof:
        raise OdiceError(f"{file}: the gzip file ends too early; write or download it again.")
    return b"".join(parts)
