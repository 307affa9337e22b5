"""What the values of a column look like: flags, numbers that rise, copies of another column."""

from __future__ import annotations

import re

import numpy as np
import polars as pl


def quoted(name: str) -> str:
    """Return a column's name as arithmetic of columns takes it."""
    return name if re.fullmatch(r"[^\W\d]\w*", name) else f"`{name}`"


def is_number(column: pl.Series) -> bool:
    return column.dtype.is_numeric()


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
