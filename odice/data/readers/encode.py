"""From the cells of a table to the numbers of an observation: missing values, categories, gaps in time.

Works on rows that are grouped by episode and in order. What it decides (which categories there are, what stands for a
missing number) is returned as columns of `odice.encoding` and kept with the data set and the policy.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Any, NamedTuple

import numpy as np
import polars as pl

from odice.data.schema import Schema
from odice.encoding import Column, Encoding
from odice.errors import OdiceError

MAX_CATEGORIES = 64
"""A column of more different texts is a name or a remark, not a category."""
REGULAR = 0.95
"""A clock in which so many steps are alike is regular; what differs then is a gap."""


class Encoded(NamedTuple):
    """The observations as float32 columns, and how they came to be."""

    observation: pl.DataFrame
    next_observation: pl.DataFrame | None
    columns: tuple[Column, ...]


def encode(
    table: pl.DataFrame, schema: Schema, episodes: np.ndarray, where: str, encoding: Encoding | None = None
) -> Encoded:
    """Fill what is missing, as the schema asks, and spread categories over columns of zeros and ones.

    `encoding` is that of another log; then a column that it has is encoded as there.
    """
    pinned = categories(schema, where)
    given = {column["name"]: column for column in encoding.columns} if encoding else {}
    nexts = dict(zip(schema.observation, schema.next_observation, strict=bool(schema.next_observation)))
    columns, now, then = [], [], []
    for name in schema.observation:
        value, after = table[name], table[nexts[name]] if nexts else None
        if name in given:
            column = _as_given(value, after, given[name], where)
        else:
            column = _describe(value, after, pinned.get(name), schema, where)
        columns.append(column)
        filled = _fill(value, column, schema, episodes)
        now += _spread(filled, value, column)
        if after is not None:
            known = after.is_not_null()
            if schema.missing == "forward-fill":
                after = pl.select(pl.when(known).then(after).otherwise(filled).alias(after.name)).to_series()
            then += _spread(_fill(after, column, schema, None), table[nexts[name]], column, f"next {name}")
    return Encoded(pl.DataFrame(now), pl.DataFrame(then) if nexts else None, tuple(columns))


def categories(schema: Schema, where: str) -> dict[str, tuple[str, ...]]:
    """Column -> its categories in order, as the schema declares them (none: as they are in the log)."""
    for name, values in schema.categories:
        if name not in (*schema.observation, *schema.action):
            raise OdiceError(f"{where}: {name!r} (for `categories`) is no observation or action column.")
        if len(set(values)) < len(values):
            raise OdiceError(f"{where}: the categories of {name!r} repeat a value; name each once.")
    return dict(schema.categories)


def choices(
    column: pl.Series, schema: Schema, where: str, given: tuple[str, ...] = ()
) -> tuple[np.ndarray, tuple[str, ...]]:
    """A column of words as discrete actions, and the word of each number; `given` are those of another log."""
    known = given or categories(schema, where).get(column.name) or _found(column, None, where)
    codes = column.replace_strict({word: i for i, word in enumerate(known)}, default=None, return_dtype=pl.Int64)
    _all_known(column, codes.is_null() & column.is_not_null(), known, where)
    return codes.to_numpy(), known


def _describe(
    value: pl.Series, after: pl.Series | None, pinned: tuple[str, ...] | None, schema: Schema, where: str
) -> Column:
    """What must be known of a column to do the same to another row of it."""
    column: dict[str, Any] = {"name": value.name}
    gaps = bool(value.null_count())
    if value.dtype == pl.String:
        column["values"] = pinned or _found(value, after, where)
        for part in (value, after):
            if part is not None:
                _all_known(part, ~part.is_in(column["values"]) & part.is_not_null(), column["values"], where)
    elif isinstance(value.dtype, pl.Array):
        column["width"] = value.dtype.size
    elif gaps and schema.missing in ("impute", "forward-fill"):
        middle = value.median()
        if middle is None:
            raise OdiceError(f"{where}: column {value.name!r} has no value at all; leave it out.")
        column["fill"] = float(np.float32(middle))  # type: ignore[arg-type]
    if gaps and (schema.missing_indicator or "values" in column):  # a missing word is no word: it needs a sign
        column["indicator"] = True
    return column


def _as_given(value: pl.Series, after: pl.Series | None, given: Column, where: str) -> Column:
    """The column as another log has it, if the values of this one can be encoded so."""
    kinds = {pl.String: "words", pl.Float32: "numbers"}
    kind = kinds.get(type(value.dtype), f"lists of {getattr(value.dtype, 'size', 0)}")
    wanted = (
        "words" if given.get("values") else "numbers" if given.get("width", 1) == 1 else f"lists of {given['width']}"
    )
    if kind != wanted and not (kind == "lists of 1" and wanted == "numbers"):
        raise OdiceError(
            f"{where}: the column {value.name!r} holds {kind}, where the policy or the other log has {wanted}; is it "
            "the same column?"
        )
    if given.get("values"):
        known = tuple(given["values"])
        for part in (value, after):
            if part is not None:
                _all_known(part, ~part.is_in(known) & part.is_not_null(), known, where)
    may_lack = "fill" in given or (given.get("values") and given.get("indicator"))
    if value.null_count() and not may_lack:
        raise OdiceError(
            f"{where}: column {value.name!r} has {value.null_count()} empty cells, and in the log of the policy, or "
            "the other log, none was; fill them in, or leave those rows out with `missing` split."
        )
    return given


def _found(value: pl.Series, after: pl.Series | None, where: str) -> tuple[str, ...]:
    known = value.drop_nulls().unique().to_list() + ([] if after is None else after.drop_nulls().unique().to_list())
    words = tuple(sorted(set(known)))
    if len(words) > MAX_CATEGORIES:
        raise OdiceError(
            f"{where}: column {value.name!r} holds {len(words)} different texts; up to {MAX_CATEGORIES} are read as "
            "categories, so leave it out or group them."
        )
    if not words:
        raise OdiceError(f"{where}: column {value.name!r} has no value at all; leave it out.")
    return words


def _all_known(column: pl.Series, strange: pl.Series, known: tuple[str, ...], where: str) -> None:
    if strange.any():
        word = str(column[int(strange.arg_max() or 0)])[:40]
        raise OdiceError(
            f"{where}: column {column.name!r} holds {word!r}, which is not among its categories "
            f"{', '.join(known[:8])}; add it to `categories`."
        )


def _fill(value: pl.Series, column: Column, schema: Schema, episodes: np.ndarray | None) -> pl.Series:
    if not value.null_count():
        return value
    if schema.missing == "forward-fill" and episodes is not None:
        frame = pl.DataFrame({"value": value, "episode": episodes})
        value = frame.select(pl.col("value").forward_fill().over("episode")).to_series().alias(value.name)
    return value.fill_null(column["fill"]) if "fill" in column else value


def _spread(filled: pl.Series, raw: pl.Series, column: Column, prefix: str | None = None) -> list[pl.Series]:
    """The column as numbers; a category as one column per value, all zero where it is missing."""
    name = prefix or column["name"]
    if values := column.get("values"):
        parts = [(filled == each).cast(pl.Float32).alias(f"{name}={each}") for each in values]
        parts = [part if prefix else part.fill_null(0.0) for part in parts]  # a null says that nothing was recorded
    else:
        parts = [filled.alias(name)]
    if column.get("indicator"):
        parts.append(raw.is_null().cast(pl.Float32).alias(f"{name} is missing"))
    return parts


# --- where episodes are cut -------------------------------------------------------------------------------------------


def cut(table: pl.DataFrame, schema: Schema, episodes: np.ndarray, where: str) -> tuple[pl.DataFrame, np.ndarray, Any]:
    """Episodes split at gaps of the clock and, with `missing = "split"`, at rows that lack a value.

    Returns the rows that stay, the episode of each, and a pair: history in words, and gaps as evidence.
    """
    history, evidence = [], {}
    if schema.skip_incomplete:
        table, episodes, history = _complete(table, schema, episodes, where)
    new = np.zeros(len(table), bool)
    if schema.step:
        gaps, about = _gaps(table, schema, episodes, where)
        if schema.max_gap is not None:
            new |= gaps
            history += (
                [f"split at {int(gaps.sum())} gaps of {schema.step!r} above {schema.max_gap:g}"] if gaps.any() else []
            )
        elif about:
            evidence["step_gaps"] = about
    keep = np.ones(len(table), bool)
    if schema.missing == "split":
        needed = [name for name in (*schema.observation, *schema.action, schema.reward, schema.cost) if name]
        keep = ~np.any([table[name].is_null().to_numpy() for name in needed], axis=0)
        new[1:] |= ~keep[:-1]
        lost = int((~keep).sum())
        history += [f"{lost} rows that lack a value left out, the episodes split there"] if lost else []
        if not keep.any():
            raise OdiceError(f"{where}: every row lacks a value; fill them in with `missing` impute or forward-fill.")
    episodes = np.cumsum(np.append([False], np.diff(episodes) != 0) | new)
    return (table if keep.all() else table.filter(pl.Series(keep))), episodes[keep], (tuple(history), evidence)


def _complete(
    table: pl.DataFrame, schema: Schema, episodes: np.ndarray, where: str
) -> tuple[pl.DataFrame, np.ndarray, list[str]]:
    """Leave out the episodes that lack an action, a reward or a cost somewhere."""
    needed = [name for name in (*schema.action, schema.reward, schema.cost) if name]
    lacks = np.any([table[name].is_null().to_numpy() for name in needed], axis=0)
    keep = ~np.isin(episodes, episodes[lacks])
    if keep.all():
        return table, episodes, []
    if not keep.any():
        raise OdiceError(f"{where}: every episode lacks an action, a reward or a cost; fill them in.")
    lost = f"{len(np.unique(episodes[~keep]))} of {len(np.unique(episodes))} episodes"
    return (
        table.filter(pl.Series(keep)),
        episodes[keep],
        [f"{lost} lack an action, a reward or a cost and are left out"],
    )


def _gaps(
    table: pl.DataFrame, schema: Schema, episodes: np.ndarray, where: str
) -> tuple[np.ndarray, Mapping[str, Any]]:
    """Rows before which the clock jumps: by more than `max_gap`, or beyond its usual step if it has one."""
    ticks = clock(table[schema.step or ""])
    if ticks is None:
        if schema.max_gap is None:
            return np.zeros(len(table), bool), {}
        raise OdiceError(
            f"{where}: column {schema.step!r} is no number and no time, so `max_gap` has nothing to measure."
        )
    moves = np.append([0.0], np.diff(ticks))
    inside = np.append([False], np.diff(episodes) == 0)
    if schema.max_gap is not None:
        slack = 1e-9 * abs(schema.max_gap)
        return inside & ((moves > schema.max_gap + slack) | (moves < 0)), {}
    usual = float(np.median(moves[inside])) if inside.any() else 0.0
    far = inside & (moves > 1.5 * usual)
    if (
        not usual > 0
        or not far.any()
        or (inside & (np.abs(moves - usual) <= 0.1 * usual)).sum() < REGULAR * inside.sum()
    ):
        return far, {}
    about = {
        "count": int(far.sum()),
        "first_row": int(np.argmax(far)) - 1,
        "usual": usual,
        "largest": float(moves[far].max()),
    }
    return far, about


def clock(column: pl.Series) -> np.ndarray | None:
    """The step column as numbers: as they are, or seconds for times; None for other text."""
    if column.dtype == pl.String:
        with suppress(pl.exceptions.ComputeError):  # no pattern of a date fits
            parsed = column.str.to_datetime(strict=False) if column.len() else column
            column = column if parsed.null_count() > column.null_count() else parsed
    if column.dtype == pl.Date:
        column = column.cast(pl.Datetime("us"))
    if column.dtype.is_temporal():
        return column.to_physical().to_numpy() / {"ms": 1e3, "us": 1e6, "ns": 1e9}.get(_unit(column.dtype), 1e9)
    return column.cast(pl.Float64).to_numpy() if column.dtype.is_numeric() else None


def _unit(kind: pl.DataType) -> str:
    return kind.time_unit if isinstance(kind, pl.Datetime | pl.Duration) else "ns"  # pl.Time counts nanoseconds


def as_text(column: pl.Series) -> pl.Series:
    """A column that is declared a category, whatever its cells are."""
    if column.dtype == pl.String:
        return column.str.strip_chars()
    return column.cast(pl.String).str.strip_suffix(".0")  # as `encoding.text` writes them
