"""Cells to numbers: what a column of a table may hold, and what is said where it holds something else."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np
import polars as pl

from odice.data.readers.encode import as_text
from odice.data.schema import Schema
from odice.encoding import Encoding
from odice.errors import OdiceError

FLAGS = {"true": True, "false": False, "1": True, "0": False, "t": True, "f": False, "yes": True, "no": False}
FLAGS |= {"y": True, "n": False}


def check_types(kinds: Mapping[str, pl.DataType], columns: Iterable[str], where: str) -> None:
    """Refuse columns that cannot be numbers by their declared type, before they are decoded."""
    for name in columns:
        kind = kinds[name]
        inner = kind.inner if isinstance(kind, pl.List | pl.Array) else pl.Float32()
        if isinstance(kind, pl.Struct) or inner.is_nested():
            raise OdiceError(
                f"{where}: column {name!r} has type {kind!s:.80}; only numbers and lists of numbers can be used, so "
                "write each part as a column of its own."
            )


def numbers(table: pl.DataFrame, schema: Schema, where: str, encoding: Encoding | None = None) -> pl.DataFrame:
    """The table with float32 observations and rewards, numeric actions and boolean flags; categories stay text.

    Nulls are left in next_*, and where `missing` says what to do about them. What is a category in the `encoding` of
    another log is one in this.
    """
    series = []
    declared = {name for name, _ in schema.categories}
    if encoding is not None:
        declared |= {column["name"] for column in encoding.columns if column.get("values")}
        declared |= set(schema.action) if encoding.choices else set()
    seen = (*schema.observation, *schema.next_observation)
    same = dict(zip(schema.next_observation, schema.observation, strict=False))
    may_lack = () if schema.missing in (None, "refuse") else seen
    if schema.skip_incomplete or schema.missing == "split":
        may_lack = (*may_lack, *schema.action, schema.reward, schema.cost)
    for name in table.columns:
        column = table[name]
        if name in may_lack and column.dtype.is_float():
            column = column.fill_nan(None)
        if name not in schema.next_observation and name not in may_lack:
            _no_nulls(column, schema, where)
        if name in (schema.terminated, schema.truncated, schema.first, schema.last):
            column = _flag(column, where)
        elif name in (schema.episode, schema.step):
            if column.dtype.is_nested() or column.dtype == pl.Object:
                raise OdiceError(f"{where}: column {name!r} has type {column.dtype}; expected one value per row.")
        elif (name in seen or name in schema.action) and is_category(column, same.get(name, name) in declared):
            column = as_text(column)
        else:
            column = _numeric(column, where)
            integers = name in schema.action and (column.dtype.is_integer() or column.dtype == pl.Boolean)
            if integers and column.dtype != pl.Boolean:
                column = _int64(column, where)
            elif not integers and not column.dtype.is_nested():
                column = column.cast(pl.Float32)
        series.append(column)
    return pl.DataFrame({column.name: column for column in series})  # of a list, polars would rename an empty name


def is_category(column: pl.Series, declared: bool = False) -> bool:
    """Declared, or words only: one cell that is a number among them makes it a column of numbers with a fault."""
    if declared or isinstance(column.dtype, pl.Categorical | pl.Enum):
        return True
    if column.dtype != pl.String:
        return False
    return bool(column.str.strip_chars().cast(pl.Float64, strict=False).is_null().all())


def _no_nulls(column: pl.Series, schema: Schema, where: str) -> None:
    if column.null_count():
        row = int(column.is_null().arg_max() or 0)
        way = "fill them in"
        if column.name in schema.observation:
            way = "say `missing`: forward-fill, impute, or split"
        elif column.name in (*schema.action, schema.reward, schema.cost):
            way = "fill them in, leave out their episodes with `skip_incomplete`, or say `missing`: split"
        raise OdiceError(
            f"{where}: column {column.name!r} has {column.null_count()} empty cells, the first in data row {row + 1} "
            f"(a missing value or a short row); {way}."
        )


def _numeric(column: pl.Series, where: str) -> pl.Series:
    """Numbers, booleans, or lists of numbers that are equally long; text is parsed if every cell is a number, or if all
    are words such as yes and no."""
    name, kind = column.name, column.dtype
    if kind == pl.String and (flags := as_flags(column)) is not None:
        return flags
    if kind == pl.String:
        parsed = column.str.strip_chars().cast(pl.Float64, strict=False)
        bad = parsed.is_null() & column.is_not_null()
        if bad.any():
            row = int(bad.arg_max() or 0)
            raise OdiceError(
                f"{where}: column {name!r} holds {str(column[row])[:40]!r} in data row {row + 1}, which is not a "
                f"number; correct it, leave the column out by naming the others, or name it in `categories` "
                f"({int(bad.sum())} such cells)."
            )
        return parsed
    if isinstance(kind, pl.List | pl.Array) and not kind.inner.is_nested():
        return _fixed_width(column, where)
    if not (kind.is_numeric() or kind == pl.Boolean):
        raise OdiceError(
            f"{where}: column {name!r} has type {kind}; only numbers can be used, so leave it out or convert it."
        )
    return column


def _fixed_width(column: pl.Series, where: str) -> pl.Series:
    lists = column.arr.to_list() if isinstance(column.dtype, pl.Array) else column
    inner = lists.dtype.inner  # type: ignore[attr-defined]
    if not (inner.is_numeric() or inner == pl.Boolean):
        raise OdiceError(f"{where}: column {column.name!r} holds lists of {inner}; only lists of numbers can be used.")
    if not len(lists):
        raise OdiceError(f"{where}: column {column.name!r} has no rows; a data set needs at least one step.")
    lengths = lists.list.len()
    width = int(lengths.drop_nulls().max() or 0)  # type: ignore[arg-type]
    ragged = (lengths != width).fill_null(False)
    if width == 0 or ragged.any():
        row = int(ragged.arg_max() or 0)
        raise OdiceError(
            f"{where}: column {column.name!r} is ragged: {lengths[row]} values in data row {row + 1} where others have "
            f"{width}; every row must have the same number, at least one."
        )
    if lists.list.eval(pl.element().is_null()).list.any().any():
        raise OdiceError(f"{where}: column {column.name!r} has missing values inside its lists; fill them in.")
    return lists.cast(pl.List(pl.Float32)).list.to_array(width)


def _int64(column: pl.Series, where: str) -> pl.Series:
    try:
        return column.cast(pl.Int64)
    except pl.exceptions.InvalidOperationError as error:
        raise OdiceError(
            f"{where}: column {column.name!r} holds whole numbers beyond 64 bits; is it really the action?"
        ) from error


def as_flags(column: pl.Series) -> pl.Series | None:
    """A column of words such as yes and no as truth values, or None."""
    flags = _flags(column)
    return flags if flags.null_count() == column.null_count() < len(column) else None


def _flags(column: pl.Series) -> pl.Series:
    return column.str.strip_chars().str.to_lowercase().replace_strict(FLAGS, default=None, return_dtype=pl.Boolean)


def _flag(column: pl.Series, where: str) -> pl.Series:
    if column.dtype == pl.Boolean:
        return column
    if column.dtype == pl.String:
        flags = _flags(column)
    elif column.dtype.is_numeric():
        flags = column.cast(pl.Float64).replace_strict({0.0: False, 1.0: True}, default=None, return_dtype=pl.Boolean)
    else:
        raise OdiceError(f"{where}: column {column.name!r} has type {column.dtype}; flags are true/false or 0/1.")
    if flags.null_count():
        row = int(flags.is_null().arg_max() or 0)
        raise OdiceError(
            f"{where}: column {column.name!r} holds {str(column[row])[:40]!r} in data row {row + 1}; flags are "
            "true/false or 0/1."
        )
    return flags


class TableArray:
    """The columns of a table as one array that is sliced by rows, so that no second copy of the table is made."""

    def __init__(self, table: pl.DataFrame):
        self.table = table
        widths = [t.size if isinstance(t, pl.Array) else 1 for t in table.dtypes]
        self.places = np.concatenate([[0], np.cumsum(widths)])
        kinds = {t if t.is_integer() else pl.Float32 for t in table.dtypes}
        self.dtype = np.dtype(np.int64 if kinds == {pl.Int64} else np.float32)
        if set(table.dtypes) == {pl.Boolean}:
            self.dtype = np.dtype(bool)
        self.shape = (len(table), int(self.places[-1]))

    @property
    def ndim(self) -> int:
        return 2

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, rows: slice) -> np.ndarray:
        block = self.table[rows]
        out = np.empty((len(block), self.shape[1]), self.dtype)
        for column, a, b in zip(block, self.places, self.places[1:], strict=False):
            if column.null_count():  # only next observations may have gaps, and `next_known` says where
                fill = 0.0 if b - a == 1 else [0.0] * int(b - a)
                column = column.fill_null(pl.lit(fill, dtype=column.dtype))
            out[:, a:b] = column.to_numpy().reshape(len(block), -1)
        return out
