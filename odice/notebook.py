"""HTML for notebooks: small tables that follow the notebook's own style, light or dark."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from html import escape
from typing import Any


def facts(title: str, rows: Mapping[str, Any]) -> str:
    """A title over name-value pairs; values that are None or empty are left out."""
    shown = [(name, value) for name, value in rows.items() if value is not None and value != ""]
    return table(title, (), shown)


def table(title: str, head: Iterable[str], rows: Iterable[Iterable[Any]], note: str = "") -> str:
    """A table whose every cell is escaped."""
    names = "".join(f"<th style='text-align:left'>{escape(str(name))}</th>" for name in head)
    body = "".join(
        "<tr>" + "".join(f"<td style='text-align:left'>{escape(str(cell))}</td>" for cell in row) + "</tr>"
        for row in rows
    )
    heading = f"<thead><tr>{names}</tr></thead>" if names else ""
    below = f"<p>{escape(note)}</p>" if note else ""
    return f"<div><p><b>{escape(title)}</b></p><table>{heading}<tbody>{body}</tbody></table>{below}</div>"
