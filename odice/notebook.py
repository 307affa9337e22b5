"""What a notebook shows: small tables that follow its own style, light or dark, and figures."""

from __future__ import annotations

import io
from collections.abc import Iterable, Mapping
from html import escape
from typing import Any


def picture(figure: Any) -> Any:
    """Return a matplotlib figure that a notebook shows; without this it does so only once pyplot is imported."""

    def png() -> bytes:
        file = io.BytesIO()
        figure.savefig(file, format="png", dpi=96)
        return file.getvalue()

    figure._repr_png_ = png
    return figure


def facts(title: str, rows: Mapping[str, Any]) -> str:
    """A title over name-value pairs; values that are None or empty are left out."""
    shown = [(name, value) for name, value in rows.items() if value is not None and value != ""]
    return table(title, (), shown)


CELL = "text-align:left; padding:0.1em 1em 0.1em 0"


def table(title: str, head: Iterable[str], rows: Iterable[Iterable[Any]], note: str = "") -> str:
    """A table whose every cell is escaped."""
    names = "".join(f"<th style='{CELL}'>{escape(str(name))}</th>" for name in head)
    body = "".join(
        "<tr>" + "".join(f"<td style='{CELL}'>{escape(str(cell))}</td>" for cell in row) + "</tr>" for row in rows
    )
    heading = f"<thead><tr>{names}</tr></thead>" if names else ""
    below = f"<p>{escape(note)}</p>" if note else ""
    return f"<div><p><b>{escape(title)}</b></p><table>{heading}<tbody>{body}</tbody></table>{below}</div>"


def numbers(count: int) -> str:
    """So many numbers, in words."""
    return "1 number" if count == 1 else f"{count} numbers"
