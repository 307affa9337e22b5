"""Which rows of a table are one episode, in which order, and how each episode ends."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import polars as pl

from odice.data.readers.encode import clock
from odice.data.schema import Schema
from odice.errors import OdiceError

ENDS = "end of the episode, by the schema"


def group(
    table: pl.DataFrame, shard: np.ndarray | None, schema: Schema, where: str
) -> tuple[np.ndarray | None, np.ndarray | None]:
    """The order that groups the rows by episode (None: as they are), and each ordered row's episode."""
    if schema.episode:
        ids = table[schema.episode].rank("dense").cast(pl.Int64).to_numpy()
        if shard is not None and not _ids_continue(ids, shard, table, schema):
            ids = ids + shard * (int(ids.max()) + 1)
        _, seen, codes = np.unique(ids, return_index=True, return_inverse=True)
        episodes = np.argsort(np.argsort(seen))[codes]  # numbered as they first appear
    elif schema.first or schema.last:
        starts = table[schema.first].to_numpy().copy() if schema.first else np.zeros(len(table), bool)
        if schema.last:
            starts[1:] |= table[schema.last].to_numpy()[:-1]
        episodes = np.cumsum(starts)
    else:
        return None, None
    order = np.argsort(episodes, kind="stable")
    if schema.step and schema.episode:
        order = _by_step(order, episodes, table, schema, where)
    in_order = bool((order[1:] > order[:-1]).all())
    return (None, episodes) if in_order else (order, episodes[order])


def _by_step(order: np.ndarray, episodes: np.ndarray, table: pl.DataFrame, schema: Schema, where: str) -> np.ndarray:
    """The rows of each episode in the order of their step, if they are not yet; then no step may occur twice."""
    ticks = clock(table[schema.step or ""])
    ranked = table[schema.step or ""] if ticks is None else pl.Series(ticks)
    when = ranked.rank("dense").to_numpy().astype(np.int64)
    within = np.diff(episodes[order]) == 0
    if (np.diff(when[order])[within] >= 0).all():
        return order
    order = np.lexsort((when, episodes))
    twice = within & (np.diff(when[order]) == 0)
    if twice.any():
        row = int(order[int(np.argmax(twice))])
        raise OdiceError(
            f"{where}: two rows have episode {table[schema.episode or ''][row]!r} and step "
            f"{table[schema.step or ''][row]!r}; a step may occur once per episode, "
            "so give each episode its own number."
        )
    return order


def _ids_continue(ids: np.ndarray, shard: np.ndarray, table: pl.DataFrame, schema: Schema) -> bool:
    """Whether an id in two shards is one episode cut by the end of a file, rather than numbering that starts anew."""
    pairs = np.unique(np.stack([ids, shard]), axis=1)
    if len(np.unique(pairs[0])) == pairs.shape[1]:
        return True
    borders = np.flatnonzero(np.diff(shard)) + 1
    joined = ids[borders] == ids[borders - 1]
    for role in (schema.terminated, schema.truncated, schema.last):
        if role:
            joined &= ~table[role].to_numpy()[borders - 1]
    if schema.step:
        when = table[schema.step].rank("dense").to_numpy()
        joined &= when[borders] > when[borders - 1]
    return pairs.shape[1] - len(np.unique(pairs[0])) == int(joined.sum())


def with_ends(table: pl.DataFrame, schema: Schema, episodes: np.ndarray | None) -> tuple[pl.DataFrame, Schema]:
    """Mark the ends that the schema declares: every row, or the last row of every episode."""
    if not schema.one_step and schema.complete is None:
        return table, schema
    if schema.one_step:
        end, role = np.ones(len(table), bool), "terminated"
    else:
        groups = between_flags(table, schema) if episodes is None else episodes
        end, role = np.append(np.diff(groups) != 0, True), "terminated" if schema.complete else "truncated"
    if name := getattr(schema, role):
        end |= table[name].to_numpy()
    if role == "truncated" and schema.terminated:
        end &= ~table[schema.terminated].to_numpy()
    return table.with_columns(pl.Series(ENDS, end)), replace(schema, **{role: ENDS})


def ends(table: pl.DataFrame, schema: Schema) -> dict[str, np.ndarray | None]:
    """terminated and truncated per row. `last` and one of them give the other: it ended, but not for that reason."""
    flags: dict[str, np.ndarray | None] = {
        role: table[name].to_numpy() if (name := getattr(schema, role)) else None
        for role in ("terminated", "truncated")
    }
    if schema.last and schema.last not in (schema.terminated, schema.truncated):
        last = table[schema.last].to_numpy()
        for one, other in (("terminated", "truncated"), ("truncated", "terminated")):
            if flags[one] is None and (known := flags[other]) is not None:
                flags[one] = last & ~known
                break
    return flags


def between_flags(table: pl.DataFrame, schema: Schema) -> np.ndarray:
    """Episodes where only flags mark their ends."""
    last = np.zeros(len(table), bool)
    for flag in ends(table, schema).values():
        last |= False if flag is None else flag
    return np.append([0], np.cumsum(last)[:-1])
