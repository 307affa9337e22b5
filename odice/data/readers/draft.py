"""A first schema for a table that nobody has described yet: roles by their usual names, and what is left over in
words."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import polars as pl

from odice.data.readers.encode import MAX_CATEGORIES
from odice.data.readers.table import scan_first
from odice.data.schema import SINGLE, usual_columns

ROWS = 100_000
"""Rows that are looked at to describe a column."""
ASK = {
    "reward": "the reward of the step",
    "cost": "what the step costs beside its reward, for algorithms that keep a limit",
    "terminated": "true where the world ended: nothing that comes after has value",
    "truncated": "true where only the log ended",
    "episode": "which episode a row belongs to",
    "first": "true at the first step of an episode",
    "last": "true at the last step of an episode, whatever the reason",
    "step": "orders the rows of an episode: a number, a date or a time",
}


def draft(log: Path, out: Path) -> tuple[str, list[str]]:
    """The text of a schema file, and the roles that a person still has to name."""
    frame = scan_first(log)
    table = frame.head(ROWS).collect()
    found = usual_columns(table.columns)
    left = [name for name in table.columns if name not in found.columns()]
    lines = [
        f"# What the columns of {log.name} mean. Correct it, then: odice data inspect {log} --schema {out}",
        "#",
        *(f"#   {line}" for line in _described(table)),
        "",
    ]
    questions = [role for role in ("action", "reward") if not getattr(found, role)]
    if found.observation:
        lines.append(f"observation = {_list(found.observation)}")
    else:
        useful = [name for name in left if _useful(table[name])]
        lines += ["# All that has no other role; take out the action, and what a policy does not know when it acts."]
        lines.append(f"observation = {_list(useful)}")
    lines.append(f"action = {_list(found.action)}" if found.action else "# action = []")
    if found.next_observation:
        lines.append(f"next_observation = {_list(found.next_observation)}")
    for role in SINGLE:
        name = getattr(found, role)
        lines.append(f"{role} = {json.dumps(name)}" if name else f'# {role} = ""  # {ASK[role]}')
    if not any(getattr(found, role) for role in ("terminated", "truncated", "episode", "first", "last")):
        questions.append("episode")
    lines += ["", *_about_values(table, [*found.observation, *found.action, *left])]
    return "\n".join(lines) + "\n", questions


def _about_values(table: pl.DataFrame, names: Sequence[str]) -> list[str]:
    words = [name for name in names if table[name].dtype == pl.String and table[name].n_unique() <= MAX_CATEGORIES]
    pins = [f"{name}={'|'.join(sorted(map(str, table[name].drop_nulls().unique())))}" for name in words]
    gaps = any(table[name].null_count() for name in names)
    return [
        f"{'' if pins else '# '}categories = {_list(pins)}  # columns of words; also those whose numbers are "
        "categories",
        '# units = ["column=unit"]  # they travel with the policy, for its guard',
        f'{"" if gaps else "# "}missing = "forward-fill"  # or impute, split, refuse',
        "# missing_indicator = true  # a column beside each that lacks values says where",
        "# max_gap = 1.0  # split episodes where the step column moves by more (seconds for times)",
        "# action_low = 0.0  # bounds of continuous actions: one number, or a list",
        "# action_high = 1.0",
    ]


def _described(table: pl.DataFrame) -> list[str]:
    width = min(30, max(map(len, table.columns)))
    return [f"{name[:30]:<{width}}  {_kind(table[name])}" for name in table.columns]


def _kind(column: pl.Series) -> str:
    lacks = f", {100 * column.null_count() / max(len(column), 1):.2g} % missing" if column.null_count() else ""
    if column.dtype.is_numeric():
        return f"{'whole numbers' if column.dtype.is_integer() else 'numbers'} {column.min()} to {column.max()}{lacks}"
    if column.dtype == pl.String:
        words = sorted(map(str, column.drop_nulls().unique()))
        some = ", ".join(word[:20] for word in words[:5]) + (", ..." if len(words) > 5 else "")
        return f"{len(words)} words: {' '.join(some.split())}{lacks}"
    return f"{column.dtype}{lacks}"


def _useful(column: pl.Series) -> bool:
    words = column.dtype == pl.String and column.n_unique() <= MAX_CATEGORIES
    return words or column.dtype.is_numeric() or column.dtype == pl.Boolean


def _list(names: Sequence[str]) -> str:
    return json.dumps(list(names), ensure_ascii=False)
