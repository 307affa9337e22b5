"""A JSON description that anybody may have written: its values, each checked before it is used."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from odice.errors import OdiceError


def parse_json(text: str, where: str) -> dict[str, Any]:
    """A JSON object from a text that anybody may have written."""
    try:
        value = json.loads(text, parse_int=_whole_number)
    except RecursionError:
        raise OdiceError(
            f"{where}: nested too deeply to be a Minari description; download the data set again."
        ) from None
    except ValueError as error:
        raise OdiceError(f"{where}: not a JSON text ({error}); download the data set again.") from error
    if not isinstance(value, dict):
        raise OdiceError(f"{where}: expected a JSON object; download the data set again.")
    return value


def _whole_number(digits: str) -> int:
    if len(digits) > 18:  # what fits into 64 bits everywhere; numpy and h5py raise errors of their own on more
        raise ValueError(f"a whole number of {len(digits)} digits")
    return int(digits)


def shown(value: Any) -> str:
    try:
        text = repr(value)
    except RecursionError:
        text = "nested deeply"
    return text if len(text) <= 60 else f"{text[:60]}..."


def wrong(path: Path, what: str, value: Any, expected: str) -> OdiceError:
    return OdiceError(
        f"{path}: {what!r} is {shown(value)}; expected {expected}, so correct it or download the data again."
    )


def is_count(value: Any) -> bool:
    return type(value) is int and value >= 0


def text_of(metadata: Mapping[str, Any], key: str, path: Path) -> str | None:
    """A name, or None. It is shown to people, so it must be one line."""
    value = metadata.get(key)
    if value is not None and not (isinstance(value, str) and value.isprintable() and len(value) <= 200):
        raise wrong(path, key, value, "a name")
    return value or None


def inner_json(metadata: Mapping[str, Any], key: str, path: Path) -> dict[str, Any] | None:
    """What Minari writes as JSON in a text, or None. Old data sets may not have it."""
    raw = metadata.get(key)
    if raw is None:
        return None
    if not isinstance(raw, str):
        raise wrong(path, key, raw, "JSON in a text")
    return parse_json(raw, f"{path}, {key!r}")


def number_of(metadata: Mapping[str, Any], key: str, path: Path) -> float | None:
    value = metadata.get(key)
    if value is not None and type(value) not in (int, float):
        raise wrong(path, key, value, "a number")
    return float(value) if value is not None and np.isfinite(value) else None
