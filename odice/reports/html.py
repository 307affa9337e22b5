"""Self-contained HTML pages from the templates in `templates/`.

A page fetches nothing, is readable in light and dark, on paper and on a phone, and runs no script but its own, which
its content security policy names by hash. Values are escaped by the template engine, and control characters are shown.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from odice import __version__
from odice.errors import OdiceError, printable
from odice.files import complete_file
from odice.reports.palette import DARK, LIGHT


def page(template: str, *, styles: Sequence[str] = (), scripts: Sequence[str] = (), **context: Any) -> str:
    """Render a page.

    Args:
        template: a template that extends `page.html`.
        styles: style sheets to add to that of every page.
        scripts: its scripts.
        context: the template's values; `title`, `lead` (the line under the title) and `foot` are those of every page.
    """
    script = "".join(map(render, scripts))
    policy = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
    if script:
        digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
        policy += f"; script-src 'sha256-{digest}'"
    style = Markup("").join(map(render, ("page.css", *styles)))
    frame = {"style": style, "script": Markup(script), "policy": policy, "version": __version__, "foot": ""}
    return printable(render(template, **{**frame, **context}))  # a word of a log may turn the numbers after it around


def render(template: str, **context: Any) -> Markup:
    """Render a template to HTML that other templates take as it is."""
    return Markup(_environment().get_template(template).render(**context))


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("odice.reports"), autoescape=True, undefined=StrictUndefined, keep_trailing_newline=True
    )
    environment.filters |= {"number": number, "base64": lambda data: base64.b64encode(data).decode()}
    environment.globals |= {"light": LIGHT, "dark": DARK}
    return environment


def number(value: float | None, digits: int = 4) -> str:
    """Format a number: integers and large ones with separators, others with four significant digits."""
    if value is None:
        return "–"
    if abs(value) < 1e9 and (float(value).is_integer() or abs(value) >= 10 ** (digits - 1)):
        return f"{value:,.0f}"
    return f"{value:.{digits}g}"


def write(path: str | Path, content: str) -> Path:
    """Write a text file completely or not at all."""
    try:
        with complete_file(path) as temporary:
            temporary.write_text(content, "utf-8", errors="replace")
    except OSError as error:
        raise OdiceError(f"{path}: cannot be written ({error.strerror}); choose another place.") from error
    return Path(path)
