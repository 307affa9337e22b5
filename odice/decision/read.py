"""From a raw log to data: the proposed schema, the questions about it, the checks."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl

from odice.data.dataset import Dataset
from odice.data.doctor import check, inspect
from odice.data.proposal import Proposal, Question
from odice.data.propose import propose
from odice.data.readers.draft import ROWS, amounts, schema_text
from odice.data.readers.table import PARQUET, TEXT, scan_first
from odice.data.schema import Schema
from odice.errors import OdiceError
from odice.files import complete_file

Say = Callable[[str], None]
Ask = Callable[[Question, Proposal], str]
"""Answers a question about a proposal; an empty answer takes the default."""
QUIET = ("unfinished",)
"""Codes of findings that are not reported, because a decision accounts for them."""


def is_table(log: Any) -> bool:
    """Whether a log is a CSV or Parquet file that exists."""
    return isinstance(log, str | Path) and str(log).lower().endswith(PARQUET + TEXT) and Path(log).exists()


def proposed_schema(
    log: Path, place: Path, ask: Ask | None, say: Say, cost_limit: float | None = None, where: str = ""
) -> Path:
    """Write the proposed schema with the answers to its questions, unless an earlier call has.

    A person may have corrected the file since, so it is not written again. `where` says where the file will be, if
    it is not at `place`.
    """
    if place.exists():
        say(f"columns as {place} says")
        return place
    frame = scan_first(log)
    table = frame.head(ROWS).collect()
    if table.height < 2:
        what = "one row" if table.height else "a header but no rows"
        raise OdiceError(f"{log}: the table has {what}; a decision needs many rows of what was done and what followed.")
    proposal = propose(table)
    width = max(len(item.column) for item in proposal.roles)
    for item in proposal.roles:
        say(f"  {item.column:<{min(width, 30)}}  {item.role + ('' if item.sure else '?'):<12}  {item.reason}")
    for question in proposal.questions:
        proposal = _answered(proposal, question, ask, say)
    text = schema_text(table, proposal, str(log), str(place), amounts(frame, proposal), cost_limit)
    with complete_file(place) as temporary:
        temporary.write_text(text, "utf-8")
    say(f"what was decided about the columns is in {place}; correct it and run the same again if it is wrong")
    for role in ("action", "reward"):
        if not (proposal.reward if role == "reward" else proposal.columns(role)):
            raise OdiceError(
                f"{log}: no column looks like the {role}; name it in {where or place}, then run the same again."
            )
    return place


def _answered(proposal: Proposal, question: Question, ask: Ask | None, say: Say) -> Proposal:
    """The proposal after one question; an answer that does not fit is asked for again."""
    if ask is None:
        say(f"{'taken for granted' if question.default else 'open'}: {question.text}")
        return proposal
    while True:
        answer = ask(question, proposal)
        if not answer.strip():
            return proposal
        try:
            return proposal.answered(question, answer)
        except OdiceError as error:
            say(str(error))


def checked(data: Dataset, allow: tuple[str, ...], say: Say) -> None:
    """Report what the doctor finds, and stop at an error that is not allowed."""
    for finding in inspect(data).findings:
        if finding.code not in QUIET:
            say(f"{finding.severity}: {finding.message} {finding.advice}")
    check(data, allow)


def time_span(log: Any, schema: Schema) -> str:
    """Say from when to when a table is, if its step column is a date or a time."""
    if not is_table(log) or not schema.step:
        return ""
    column = scan_first(Path(log)).select(pl.col(schema.step)).collect().to_series()
    if not (column.dtype.is_temporal() or (column.dtype == pl.String and str(column[0])[:4].isdigit())):
        return ""
    return f"{str(column.min())[:10]} to {str(column.max())[:10]}"
