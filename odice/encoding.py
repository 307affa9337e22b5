"""How a row of a table becomes numbers: the number of a word, and what stands for a missing value.

The table reader decides this from a log; the data set's metadata and the policy's file keep it, a deployed policy does
the same to a row (`encode`), and another log is read or translated into it (`data.join.recode`). A column is a mapping
of plain values, so that it can be kept in JSON.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from odice.errors import OdiceError

Column = Mapping[str, Any]
"""`name`; `values` (the categories, one number each); `fill` (stands for a missing number); `indicator` (a further
number that is 1 where the value is missing); `width` (of a column of lists). All but the name may be absent."""
KEYS = {"name", "values", "fill", "indicator", "width"}


class Encoding(NamedTuple):
    """How the rows of one log became numbers; empty where that is not known."""

    columns: tuple[Column, ...] = ()
    """The columns of the observation, in order."""
    choices: tuple[str, ...] = ()
    """The word of each number of a discrete action, where the log has words."""


def is_column(value: Any) -> bool:
    """Whether a stored value is a column; files carry them, so nothing is taken on trust."""
    if not isinstance(value, Mapping) or not set(value) <= KEYS or not isinstance(value.get("name"), str):
        return False
    values, fill = value.get("values", ()), value.get("fill", 0.0)
    return (
        isinstance(values, list | tuple)
        and all(isinstance(each, str) for each in values)
        and len(set(values)) == len(values)
        and type(fill) in (int, float)
        and abs(fill) < 1e38
        and type(value.get("indicator", False)) is bool
        and type(value.get("width", 1)) is int
        and 0 < value.get("width", 1) <= 1 << 20
    )


def layout(columns: Iterable[Column]) -> tuple[tuple[str, int], ...]:
    """(name, size) of each part of the observation; a category is one part per value."""
    parts: list[tuple[str, int]] = []
    for column in columns:
        name = column["name"]
        values = column.get("values")
        parts += [(f"{name}={value}", 1) for value in values] if values else [(name, column.get("width", 1))]
        parts += [(f"{name} is missing", 1)] if column.get("indicator") else []
    return tuple(parts)


def size(column: Column) -> int:
    """The number of parts of the observation that a column becomes."""
    return len(column.get("values") or range(column.get("width", 1))) + bool(column.get("indicator"))


def text(value: Any) -> str:
    """A category as text: 1, 1.0 and "1" are one category, true and "true" too."""
    if isinstance(value, bool | np.bool_):
        return "true" if value else "false"
    if isinstance(value, float | np.floating) and float(value).is_integer():
        return str(int(value))
    return str(value).strip()


def encode(columns: Sequence[Column], row: Mapping[str, Any]) -> np.ndarray:
    """Turn one row of a table into an observation.

    Args:
        columns: How the rows of the log became numbers.
        row: The value of each column. None, NaN or an absent key is a missing value; other keys do not matter.

    Returns:
        A vector of float32, in which a number that is too large is infinite.
    """
    if not columns:
        raise OdiceError("The columns behind this policy's observations are not known; give it an array of numbers.")
    out: list[float] = []
    for column in columns:
        value = row.get(column["name"])
        missing = value is None or (isinstance(value, float | np.floating) and math.isnan(value))
        if missing and not ("fill" in column or (column.get("values") and column.get("indicator"))):
            raise OdiceError(
                f"The policy needs a value for {column['name']!r:.60}: in its log none was missing; give it one."
            )
        if values := column.get("values"):
            out += _category(value, values, column["name"]) if not missing else [0.0] * len(values)
        elif missing:
            out += [float(column["fill"])] * column.get("width", 1)
        else:
            out += _numbers(value, column.get("width", 1), column["name"])
        if column.get("indicator"):
            out.append(float(missing))
    with np.errstate(over="ignore"):
        return np.asarray(out, np.float32)


def _category(value: Any, values: Sequence[str], name: str) -> list[float]:
    word = text(value) if isinstance(value, str | int | float | np.generic) else None
    if word not in values:
        raise OdiceError(f"{name!r:.60} is {brief(value)}; the policy knows {', '.join(values[:8])}.")
    return [float(word == each) for each in values]


def _numbers(value: Any, width: int, name: str) -> list[float]:
    """One number, or exactly as many as the column's lists have."""
    one = width == 1 and (np.ndim(value) == 0 if isinstance(value, np.ndarray) else not isinstance(value, list | tuple))
    items = [value] if one else list(value) if isinstance(value, list | tuple | np.ndarray) else []
    if isinstance(value, np.ndarray) and value.ndim == 0:
        items = [value[()]]
    numbers = [each for each in items if isinstance(each, int | float | np.integer | np.floating | np.bool_)]
    if len(items) != width or len(numbers) != width:
        what = "a number" if width == 1 else f"a list of {width} numbers"
        raise OdiceError(f"{name!r:.60} is {brief(value)}; the policy needs {what} there.")
    try:
        return [float(each) for each in numbers]
    except OverflowError:
        raise OdiceError(f"{name!r:.60} is a number too large to compute with; a policy acts on finite ones.") from None


def brief(value: Any) -> str:
    """A value of anybody's in a message: short, and without the digits of a number that has thousands."""
    if isinstance(value, int) and abs(value) >= 10**40:
        return "a number too large to compute with"
    shown = repr(value[:40]) if isinstance(value, str) else repr(value)
    return shown if len(shown) <= 60 else f"{shown[:57]}..."
