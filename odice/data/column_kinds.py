"""What the values of a column look like: flags, numbers that rise, copies of another column."""

from __future__ import annotations

import re

import numpy as np
import polars as pl

DATE = r"^\s*(\d{4}[-/.]\d{1,2}[-/.]\d{1,2}|\d{1,2}[-/.]\d{1,2}[-/.]\d{2,4})([ T]\d{1,2}:\d{2}.*)?\s*$"
"""2024-05-31, 31.05.2024, 5/31/24, each perhaps with a time of day."""


def quoted(name: str) -> str:
    """Return a column's name as arithmetic of columns takes it."""
    return name if re.fullmatch(r"[^\W\d]\w*", name) else f"`{name}`"


def is_number(column: pl.Series) -> bool:
    return column.dtype.is_numeric()


def is_dated(column: pl.Series) -> bool:
    """Whether all words of a column are dates, with or without a time of day."""
    values = column.drop_nulls()
    return column.dtype == pl.String and len(values) > 0 and bool(values.str.contains(DATE).all())


def has_digits(column: pl.Series) -> bool:
    """Whether all words of a column are numbers with signs of their own, such as $12.50 or 7 %."""
    return bool(column.drop_nulls().str.contains(r"^\s*[^\w\s]{0,2}\s*\d[\d.,' ]*\s*\D{0,4}$").all())


def counts_rows(column: pl.Series, blocks: np.ndarray) -> bool:
    """Whether a column of whole numbers counts the rows of every block, from the same number on."""
    if len(column) < 5:  # 0, 1 is a choice as well as a count
        return False
    if not column.dtype.is_integer() or column.null_count() or not len(blocks) or blocks[-1] + 1 == len(blocks):
        return False
    first = np.append(True, blocks[1:] != blocks[:-1])
    within = np.arange(len(blocks)) - np.flatnonzero(first)[blocks]
    return bool((column.to_numpy() - within == column[0]).all())


def brief(value: object) -> str:
    """A value as a few words of one line."""
    return " ".join(str(value).split())[:30]


def is_binary(column: pl.Series) -> bool:
    return column.dtype == pl.Boolean or (is_number(column) and set(column.drop_nulls().unique()) <= {0, 1})


def flags_of(column: pl.Series) -> np.ndarray | None:
    """Return a column of truth values as such, or None."""
    return column.fill_null(False).cast(pl.Float64).to_numpy() > 0 if is_binary(column) else None


def only_last(flags: np.ndarray, blocks: np.ndarray) -> bool:
    last = np.append(blocks[1:] != blocks[:-1], True)
    return not bool((flags & ~last).any())


def rises(values: np.ndarray, blocks: np.ndarray | None) -> bool:
    """Whether numbers rise from row to row, within blocks."""
    if len(values) < 2 or not np.isfinite(values).all():
        return False
    steps = np.diff(values)
    if blocks is not None:
        steps = steps[blocks[1:] == blocks[:-1]]
    return len(steps) > 0 and bool((steps > 0).all())


def same_values(one: pl.Series, other: pl.Series) -> bool:
    if one.dtype == pl.String or other.dtype == pl.String:
        return one.dtype == other.dtype and bool((one == other).fill_null(False).all())
    if one.dtype.is_temporal() or other.dtype.is_temporal():
        return False
    return bool((one.cast(pl.Float64) == other.cast(pl.Float64)).fill_null(False).all())
