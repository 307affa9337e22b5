"""Any value as JSON can hold it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np


def jsonable(value: Any, *, words: bool = False) -> Any:
    """The same value made of dicts with text keys, lists, text, numbers, true, false and null.

    - Arrays and numbers of numpy or jax become lists and Python numbers.
    - A number that is not finite, which JSON does not have, becomes null: it is missing. With `words` it becomes its
      name ("nan", "inf", "-inf"), for settings, where null would mean something else.
    - Anything else becomes its text.
    """
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        value = float(value)  # numpy's double is one, and prints its type
        return value if math.isfinite(value) else str(value) if words else None
    if isinstance(value, Mapping):
        return {str(key): jsonable(item, words=words) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [jsonable(item, words=words) for item in value]
    if hasattr(type(value), "__array__"):  # numpy's protocol, which jax's arrays speak too
        return jsonable(np.asarray(value).tolist(), words=words)
    return str(value)
