"""How a row of a table becomes numbers: what stands for a category, and for a value that is missing.

The table reader decides it from a log, the data set's metadata and the policy's file keep it, and a deployed policy
does the same to what it is shown (`encode`). A column is plain values, so that it can be kept in JSON.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from odice.errors import OdiceError

Column = Mapping[str, Any]
"""`name`; `values` (the categories, one number each); `fill` (stands for a missing number); `indicator` (a further
number that is 1 where the value is missing); `width` (of a column of lists). All but the name may be absent."""
KEYS = {"name", "values", "fill", "indicator", "width"}


def is_column(value: Any) -> bool:
    """Whether a stored value is a column; files carry them, so nothing is taken on trust."""
    if not isinstance(value, Mapping) or not set(value) <= KEYS or not isinstance(value.get("name"), str):
        return False
    values, fill = value.get("values", ()), value.get("fill", 0.0)
    return (
        isinstance(values, list | tuple)
        and all(isinstance(each, str) for each in values)
        and type(fill) in (int, float)
        and math.isfinite(fill)
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


def text(value: Any) -> str:
    """A category as text: 1, 1.0 and "1" are one category, true and "true" too."""
    if isinstance(value, bool | np.bool_):
        return "true" if value else "false"
    if isinstance(value, float | np.floating) and float(value).is_integer():
        return str(int(value))
    return str(value)


def encode(columns: Sequence[Column], row: Mapping[str, Any]) -> np.ndarray:
    """One row, as a log would hold it, as an observation. None, NaN or an absent key is a missing value."""
    if not columns:
        raise OdiceError("Nothing is known of the columns behind this policy's numbers; give it an array.")
    out: list[float] = []
    for column in columns:
        name, value = column["name"], row.get(column["name"])
        missing = value is None or (isinstance(value, float | np.floating) and math.isnan(value))
        if missing and not ("fill" in column or (column.get("values") and column.get("indicator"))):
            raise OdiceError(f"The policy needs {name!r}, and its log had no row without it; give it a value.")
        if values := column.get("values"):
            if not missing and text(value) not in values:
                raise OdiceError(f"{name!r} is {str(value)[:40]!r}; the policy knows {', '.join(values[:8])}.")
            out += [float(not missing and text(value) == each) for each in values]
        else:
            out += np.asarray(column.get("fill") if missing else value, np.float32).reshape(-1).tolist()
        if column.get("indicator"):
            out.append(float(missing))
    return np.asarray(out, np.float32)
