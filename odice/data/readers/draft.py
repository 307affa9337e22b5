"""A first schema for a table that nobody has described yet: every column with a proposed role and the reason for it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import polars as pl
import tomlkit
from polars.selectors import by_name

from odice.data.proposal import Proposal
from odice.data.propose import propose
from odice.data.readers.columns import is_category
from odice.data.readers.encode import MAX_CATEGORIES, as_text
from odice.data.readers.table import scan_first
from odice.data.schema import HELP, SINGLE

ROWS = 100_000
"""Rows that are read to describe a column."""


def draft(log: Path, out: Path) -> tuple[str, tuple[str, ...]]:
    """Return the text of a schema file, and the questions that a person still has to answer."""
    frame = scan_first(log)
    table = frame.head(ROWS).collect()
    proposal = propose(table)
    return schema_text(table, proposal, f"{log}", f"{out}", amounts(frame, proposal)), proposal.doubts


def amounts(frame: pl.LazyFrame, proposal: Proposal) -> dict[str, tuple[float, float]]:
    """Return the least and the largest of every proposed action that is an amount, over the whole table."""
    kinds = frame.collect_schema()
    names = [
        name
        for name in proposal.columns("action")
        if kinds[name].is_float() or (kinds[name].is_numeric() and len(proposal.columns("action")) > 1)
    ]
    if not names:
        return {}
    chosen = frame.select(by_name(names))
    low, high = chosen.min().collect().row(0), chosen.max().collect().row(0)
    return {name: (float(a), float(b)) for name, a, b in zip(names, low, high, strict=True) if a is not None and a < b}


def schema_text(
    table: pl.DataFrame,
    proposal: Proposal,
    log: str,
    out: str,
    bounds: Mapping[str, tuple[float, float]] | None = None,
    cost_limit: float | None = None,
) -> str:
    """Return a schema file with every proposed role, and the reasons as comments."""
    file = tomlkit.document()
    note = lambda text="": file.add(tomlkit.comment(_plain(text)))
    note(f"What the columns of {log} mean. Correct it, then: odice data inspect {log} --schema {out}")
    note()
    width = min(30, max(len(_plain(name)) for name in table.columns))
    for item in proposal.roles:
        role = item.role + ("" if item.sure else "?")
        note(f"  {_plain(item.column)[:30]:<{width}}  {role:<12}  {item.reason}; {_kind(table[item.column])}")
    for doubt in proposal.doubts:
        note()
        note(doubt)
    file.add(tomlkit.nl())
    for role in ("observation", "action"):
        names = list(proposal.columns(role))
        file.add(role, names) if names else note(f"{role} = []")
    for role in SINGLE:
        names = (proposal.reward,) if role == "reward" and proposal.reward else proposal.columns(role)
        file.add(role, names[0]) if names else note(_unset(role, '""'))
    if proposal.one_step:
        file.add("one_step", tomlkit.item(True))
    elif proposal.columns("episode"):
        note(f"complete: {HELP['complete']}")
        file.add("complete", tomlkit.item(proposal.complete))
    if proposal.skip_incomplete:
        file.add("skip_incomplete", tomlkit.item(True))
    if outcomes := proposal.columns("outcome"):
        file.add("outcomes", list(outcomes))
    if bounds:
        file.add("action_low", [low for low, _ in bounds.values()])
        file["action_low"].comment("as seen in the log")  # pyright: ignore[reportAttributeAccessIssue]
        file.add("action_high", [high for _, high in bounds.values()])
    if cost_limit is not None:
        file.add("cost_limit", cost_limit)
    elif proposal.columns("cost"):
        note(_unset("cost_limit", "1.0"))
    _about_values(file, table, [*proposal.columns("observation"), *proposal.columns("action")])
    return tomlkit.dumps(file)


def _about_values(file: tomlkit.TOMLDocument, table: pl.DataFrame, names: Sequence[str]) -> None:
    file.add(tomlkit.nl())
    pins = tomlkit.inline_table()
    for name in names:
        column = table[name]
        if column.dtype != pl.String or column.n_unique() > MAX_CATEGORIES:
            continue
        if is_category(column):
            pins.append(tomlkit.key([name]), as_text(column).drop_nulls().unique().sort().to_list())
        else:  # a few faults among numbers are no categories
            faults = column.filter(column.str.strip_chars().cast(pl.Float64, strict=False).is_null())
            words = ", ".join(_plain(word)[:20] for word in faults.drop_nulls().unique().sort().head(3).to_list())
            text = f"{_plain(name)[:30]}: {len(faults)} cells are not numbers ({words}); correct them, or declare the"
            file.add(tomlkit.comment(f"{text} column in `categories`"))
    if pins:
        file.add("categories", pins)
    if any(table[name].null_count() for name in names):
        file.add("missing", tomlkit.string("forward-fill"))
        file["missing"].comment("or impute, split, refuse")  # pyright: ignore[reportAttributeAccessIssue]
    for entry, example in {"units": '["column=unit"]', "missing_indicator": "true", "max_gap": "1.0"}.items():
        file.add(tomlkit.comment(_unset(entry, example)))


def _unset(entry: str, example: str) -> str:
    """Return the comment for an entry that the draft leaves open."""
    return f"{entry} = {example}  ({HELP[entry][0].lower()}{HELP[entry][1:].rstrip('.')})"


def _kind(column: pl.Series) -> str:
    lacks = f", {100 * column.null_count() / max(len(column), 1):.2g} % missing" if column.null_count() else ""
    if column.dtype.is_numeric():
        kind = "whole numbers" if column.dtype.is_integer() else "numbers"
        return f"{kind} {column.min()} to {column.max()}{lacks}"
    if column.dtype == pl.String:
        words = sorted(map(str, column.drop_nulls().unique()))
        some = ", ".join(word[:20] for word in words[:5]) + (", ..." if len(words) > 5 else "")
        return f"{len(words)} words: {some}{lacks}"
    return f"{column.dtype}{lacks}"


def _plain(text: str) -> str:
    """Return text that stays within one comment: no line breaks or control characters."""
    return "".join(c if c.isprintable() else " " for c in text)
