"""Parquet and CSV tables: one row per step, columns known by their usual names or by a schema.

Only the columns that the schema names are read. Rows are grouped by episode (a log of several robots may
interleave them) and put in the order of the step column if there is one; otherwise the file's order counts.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from polars.selectors import by_name  # names as they are: in a plain `select`, '*' and '^x$' are patterns

from odice.data.binding import bind
from odice.data.build import Allocate, from_steps, in_memory
from odice.data.dataset import Dataset
from odice.data.expression import is_expression, parse
from odice.data.meta import Meta
from odice.data.names import natural
from odice.data.readers.columns import TableArray, check_types, numbers
from odice.data.readers.encode import choices, cut, encode
from odice.data.readers.episodes import between_flags, ends, group, with_ends
from odice.data.readers.files import all_local, is_many, list_files
from odice.data.readers.pages import column_bytes
from odice.data.readers.scan import PARQUET, TEXT, check_memory, scan
from odice.data.schema import Schema
from odice.encoding import Encoding, layout
from odice.errors import OdiceError, brief


def read(
    source: str | Path,
    *,
    schema: str | Path | Mapping[str, Any] | Schema | None = None,
    encoding: Encoding | None = None,
    allocate: Allocate = in_memory,
    **entries: Any,
) -> Dataset:
    """Read a Parquet or CSV file, or a folder of shards, as a Dataset.

    Args:
        source: The file or the folder.
        schema: What the columns mean: a TOML or JSON file, a mapping, or a `Schema`.
        encoding: That of a policy or of another log: words and missing values become the numbers that they are there.
        allocate: Where the arrays are kept.
        **entries: Fields of `Schema`; they win over `schema`, and both win over the usual names.
    """
    path, where = Path(source), os.fspath(source)
    declared = Schema.parse(entries, where).over(schema_of(schema))
    with one_sentence(path), all_local(list_files(where)) if is_many(where) else nullcontext(_files(path)) as files:
        with _hushed():
            saved = saved_meta(files[0])
            encoding = encoding if saved is None else None  # its words are numbers already
            bound, table, shard = _load(files, declared, path, encoding)
        return to_dataset(table, shard, bound, where, saved=saved, encoding=encoding, allocate=allocate)


def to_dataset(
    table: pl.DataFrame,
    shard: np.ndarray | None,
    bound: Schema,
    where: str,
    *,
    saved: Meta | None = None,
    encoding: Encoding | None = None,
    allocate: Allocate = in_memory,
) -> Dataset:
    """Rows of numbers as a Dataset.

    Args:
        table: The rows, as `columns.numbers` makes them.
        shard: The number of the file that each row is from, where there are several.
        bound: The schema, bound to the columns.
        where: The log's name, for messages.
        saved: The metadata that a file of odice's own carries.
        encoding: That of a policy or of another log.
        allocate: Where the arrays are kept.
    """
    order, episodes = group(table, shard, bound, where)
    _check_last(shard, order, episodes, bound, where)
    if order is not None:
        table = table[order]
    meta = replace(saved or Meta(), schema=None if saved else bound.to_dict())
    table, bound = with_ends(table, bound, episodes)
    if episodes is not None or bound.missing or bound.skip_incomplete or bound.max_gap is not None:
        before = between_flags(table, bound) if episodes is None else episodes
        table, after, (history, evidence) = cut(table, bound, before, where)
        episodes = None if episodes is None and not history else after
        meta = replace(meta, history=(*meta.history, *history), evidence={**meta.evidence, **evidence})
    return _build(table, bound, episodes, meta, where, allocate, encoding, named=saved is None)


def _check_last(
    shard: np.ndarray | None, order: np.ndarray | None, episodes: np.ndarray | None, bound: Schema, where: str
) -> None:
    """Refuse `last(column)` where an episode spans files: each file knows its own rows only."""
    used = [text for text in (bound.reward, bound.cost) if text and is_expression(text) and "last(" in text]
    if not used or shard is None or episodes is None:
        return
    own = shard if order is None else shard[order]
    if ((episodes[1:] == episodes[:-1]) & (own[1:] != own[:-1])).any():
        raise OdiceError(
            f"{where}: {used[0]!r} counts the last row of an episode, and an episode goes on in the next file; compute "
            "that column before you write the files, or end the files where episodes end."
        )


def scan_first(path: Path) -> pl.LazyFrame:
    """The table, or the first of a folder's, without reading it."""
    with one_sentence(path), _hushed():
        file = _files(path)[0]
        opened = scan(file)
        check_memory(opened.need(opened.bytes_of), file)
        return opened.frame


def schema_of(schema: str | Path | Mapping[str, Any] | Schema | None) -> Schema:
    if isinstance(schema, Schema):
        return schema
    if isinstance(schema, Mapping):
        return Schema.parse(schema, "the schema")
    return Schema.read(schema) if schema is not None else Schema()


def _files(path: Path) -> list[Path]:
    """The file, or the shards of a folder in natural order."""
    if not path.is_dir():
        return [path]
    names = sorted(
        (p for p in path.iterdir() if p.is_file() and not p.name.startswith(".")), key=lambda p: natural(p.name)
    )
    files = [p for p in names if p.name.lower().endswith(PARQUET + TEXT) and p.stat().st_size]
    if not files:
        raise OdiceError(f"{path}: the folder holds no Parquet or CSV files with data; point to the folder of shards.")
    return files


@contextmanager
def one_sentence(path: Path, name: str | None = None) -> Iterator[None]:
    """Whatever polars says about a broken file, said as one sentence. Its panics are not even `Exception`s.

    Args:
        path: The file.
        name: What to call it, where the path is that of a copy.
    """
    try:
        yield
    except OdiceError:
        raise
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException, OSError, ValueError, MemoryError) as error:
        kind = "Parquet" if path.name.lower().endswith(PARQUET) else "table"
        raise OdiceError(
            f"{name or path}: cannot be read as a {kind} ({brief(error)}); is it complete and of that kind?"
        ) from error


@contextmanager
def _hushed() -> Iterator[None]:
    """Keep polars from printing a Rust backtrace before its panic becomes our sentence; other output comes later."""
    try:
        kept = os.dup(2)
    except OSError:  # a service without standard error
        yield
        return
    failed = True
    with tempfile.TemporaryFile() as said:
        os.dup2(said.fileno(), 2)
        try:
            yield
            failed = False
        finally:
            os.dup2(kept, 2)
            os.close(kept)
            if not failed:
                said.seek(0)
                os.write(2, said.read())


# --- from files to one table ------------------------------------------------------------------------------------------


def _load(
    files: Sequence[Path], declared: Schema, path: Path, encoding: Encoding | None
) -> tuple[Schema, pl.DataFrame, np.ndarray | None]:
    """The schema bound to columns, one table of those columns with numbers in them, and which file each row is from."""
    bound, parts, need = None, [], 0
    for file in files:
        opened = scan(file)
        frame = with_expressions(opened.frame, declared, str(file))
        kinds = frame.collect_schema()
        names = kinds.names()
        bound = bound or bind(declared, names, str(file))
        if lacking := [c for c in bound.columns() if c not in names]:
            raise OdiceError(f"{file}: lacks column {lacking[0]!r}, which {files[0].name} has; shards must be alike.")
        if odd := [c for c in bound.columns() if c.startswith("^") and c.endswith("$")]:
            raise OdiceError(f"{file}: the column {odd[0]!r} is called what polars takes for a pattern; rename it.")
        check_types(kinds, bound.columns(), str(file))
        need += opened.need(bound.columns())
        check_memory(need, path)
        parts.append(numbers(frame.select(by_name(bound.columns())).collect(), bound, str(file), encoding))
    assert bound is not None
    if len(parts) == 1:
        table, shard = parts[0], None
    else:
        table = pl.concat(parts, how="vertical_relaxed", rechunk=True)
        shard = np.repeat(np.arange(len(parts)), [len(p) for p in parts])
    if len(table) == 0:
        raise OdiceError(f"{path}: the table has a header but no rows; a data set needs at least one step.")
    return bound, table, shard


def with_expressions(frame: pl.LazyFrame, declared: Schema, where: str) -> pl.LazyFrame:
    """Add a column for every role that is arithmetic of columns; it is called what the schema says."""
    columns = frame.collect_schema().names()
    for role in ("reward", "cost"):
        text = getattr(declared, role)
        if text and text not in columns and is_expression(text):
            frame = frame.with_columns(parse(text, columns, f"{where}: `{role}`", _last_row(declared)).alias(text))
    return frame


def _last_row(schema: Schema) -> pl.Expr | None:
    """Whether a row is the last of its episode, in the order of the step column or of the file."""
    if not schema.episode:
        return None
    order = pl.col(schema.step) if schema.step else pl.int_range(pl.len())
    return order.rank("ordinal").over(schema.episode) == pl.len().over(schema.episode)


# --- from rows to a data set ------------------------------------------------------------------------------------------


def _build(
    table: pl.DataFrame,
    schema: Schema,
    episodes: np.ndarray | None,
    meta: Meta,
    where: str,
    allocate: Allocate,
    encoding: Encoding | None,
    *,
    named: bool,
) -> Dataset:
    """The Dataset. `named`: the columns' own names tell people more than observation[3] does."""
    meta = replace(meta, source=where)
    flags = ends(table, schema)
    known = _next_known(table, schema, where) if schema.next_observation else None
    groups = episodes if episodes is not None else between_flags(table, schema)
    encoded = encode(table, schema, groups, where, encoding)
    observations = TableArray(encoded.observation)
    nexts = None if encoded.next_observation is None else TableArray(encoded.next_observation)
    actions: Any = TableArray(table.select(by_name(schema.action)))
    if table[schema.action[0]].dtype == pl.String and len(schema.action) == 1:
        actions, words = choices(table[schema.action[0]], schema, where, encoding.choices if encoding else ())
        actions = actions[:, None]
        if schema.n_actions not in (None, len(words)):
            raise OdiceError(
                f"{where}: `n_actions` is {schema.n_actions}, but the actions are {len(words)} words; name all of them "
                f"in `categories`, as {schema.action[0]}={'|'.join(words[:3])}."
            )
        meta = replace(meta, n_actions=len(words), choices=words)
    if named:
        parts = layout(encoded.columns)
        meta = replace(meta, obs_layout=parts, obs_columns=encoded.columns, action_names=schema.action)
    if schema.units:
        meta = replace(meta, obs_units=_units(schema, where))
    return from_steps(
        observations,
        actions,
        table[schema.reward or ""].to_numpy(),
        terminated=flags["terminated"],
        truncated=flags["truncated"],
        episode=episodes,
        next_observations=nexts,
        next_known=known,
        costs=table[schema.cost].to_numpy() if schema.cost else None,
        propensities=table[schema.propensity].to_numpy() if schema.propensity else None,
        discrete=schema.discrete,
        meta=_declared(meta, schema, actions.shape[1]),
        allocate=allocate,
    )


def _next_known(table: pl.DataFrame, schema: Schema, where: str) -> np.ndarray:
    """(rows,) whether the observation after the step was recorded. A part of it will do where `missing` fills the
    rest."""
    empty = np.stack([table[c].is_null().to_numpy() for c in schema.next_observation])
    partly = empty.any(axis=0) & ~empty.all(axis=0)
    if schema.missing in (None, "refuse") and partly.any():
        raise OdiceError(
            f"{where}: step {int(np.argmax(partly)) + 1} has some but not all of its next observation; fill "
            "it in, or leave all its next-observation cells empty."
        )
    lacks = empty.any(axis=0) if schema.missing == "split" else empty.all(axis=0)
    return np.logical_not(lacks)


# --- metadata ---------------------------------------------------------------------------------------------------------


def saved_meta(file: Path) -> Meta | None:
    """What `Dataset.save` left in a Parquet file."""
    if not file.name.lower().endswith(PARQUET):
        return None
    column_bytes(file)  # what is damaged inside is refused before polars opens it
    text = pl.read_parquet_metadata(file).get("odice")
    if text is None:
        return None
    try:
        return Meta.from_dict(json.loads(text))
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise OdiceError(f"{file}: its metadata 'odice' is damaged ({brief(error)}); write the file again.") from error


def _units(schema: Schema, where: str) -> tuple[tuple[str, str], ...]:
    """(column, its unit), from entries `column=unit`."""
    entries = [entry.partition("=") for entry in schema.units]
    for name, _, unit in entries:
        if name not in schema.observation or not unit:
            what = "is no observation column" if unit else "has no unit; write `column=unit`"
            raise OdiceError(f"{where}: {name!r} (for `units`) {what}.")
    return tuple((name, unit) for name, _, unit in entries)


def _declared(meta: Meta, schema: Schema, width: int) -> Meta:
    """The metadata with what the schema declares on top. One bound stands for every action dimension."""
    given = {f.name: value for f in fields(Meta) if (value := getattr(schema, f.name, None)) is not None}
    for bound in ("action_low", "action_high"):
        if bound in given:
            given[bound] = given[bound] * width if len(given[bound]) == 1 else given[bound]
            if len(given[bound]) != width:
                raise OdiceError(
                    f"{meta.source}: `{bound}` has {len(given[bound])} numbers for {width} action columns; give one "
                    "for all, or one for each."
                )
    return replace(meta, **given)
