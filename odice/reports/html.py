"""One self-contained HTML page: nothing fetched, readable in light and dark, on paper and on a phone.

A page runs no script but the one its maker gives, which is named by its hash.

`page` makes the frame; the other functions make the elements to put in it. Every element is a string of finished HTML;
text that comes from data goes through `text`, which escapes it.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable, Sequence
from html import escape
from pathlib import Path
from typing import Any

from odice import __version__
from odice.errors import OdiceError
from odice.files import complete_file

STYLE = """
:root { --ink:#1d2530; --soft:#5c6878; --line:#dfe4ea; --paper:#ffffff; --tint:#f5f7fa; --bar:#3b6fb6;
  --bar-soft:#9bb8de; --error:#b3261e; --warning:#9a6200; --note:#2f6f4f; }
@media (prefers-color-scheme: dark) { :root { --ink:#e6eaf0; --soft:#9aa6b5; --line:#323b47; --paper:#151a21;
  --tint:#1d242d; --bar:#7ba7e6; --bar-soft:#46658f; --error:#ff8a80; --warning:#ffc266; --note:#7fd1a5; } }
* { box-sizing:border-box; }
body { margin:0; background:var(--paper); color:var(--ink);
  font:16px/1.5 system-ui,-apple-system,"Segoe UI",Roboto,sans-serif; }
main { max-width:62rem; margin:0 auto; padding:2rem 1.25rem 3rem; }
h1 { font-size:1.6rem; line-height:1.25; margin:0; overflow-wrap:anywhere; }
h2 { font-size:1.1rem; margin:2.2rem 0 .7rem; }
p { margin:.3rem 0; }
.lead { color:var(--soft); margin:.4rem 0 0; overflow-wrap:anywhere; }
.cards { display:grid; grid-template-columns:repeat(auto-fill,minmax(9.5rem,1fr)); gap:.7rem; margin:1.4rem 0; }
.card { background:var(--tint); border:1px solid var(--line); border-radius:.5rem; padding:.6rem .8rem; }
.card b { display:block; font-size:1.25rem; font-variant-numeric:tabular-nums; line-height:1.3;
  overflow-wrap:anywhere; }
.card span { color:var(--soft); font-size:.82rem; }
.pair { display:grid; grid-template-columns:repeat(auto-fit,minmax(18rem,1fr)); gap:1.2rem; }
figure { margin:0; background:var(--tint); border:1px solid var(--line); border-radius:.5rem; padding:.8rem; }
figcaption { font-size:.85rem; color:var(--soft); margin-bottom:.4rem; }
svg { display:block; width:100%; height:auto; }
svg text { fill:var(--soft); font-size:11px; font-family:inherit; }
.fill { fill:var(--bar); } .axis { stroke:var(--line); }
.item { border-left:.3rem solid var(--soft); background:var(--tint); border-radius:.3rem; padding:.6rem .9rem;
  margin:.6rem 0; }
.item.error { border-color:var(--error); } .item.warning { border-color:var(--warning); }
.item.note { border-color:var(--note); }
.badge { font-size:.75rem; font-weight:600; letter-spacing:.03em; text-transform:uppercase; margin-right:.5rem; }
.error .badge { color:var(--error); } .warning .badge { color:var(--warning); } .note .badge { color:var(--note); }
code { font:.85em ui-monospace,SFMono-Regular,Menlo,Consolas,monospace; color:var(--soft); }
.advice { color:var(--soft); }
.scroll { overflow-x:auto; }
table { border-collapse:collapse; width:100%; font-size:.88rem; font-variant-numeric:tabular-nums; }
th, td { padding:.3rem .7rem; text-align:right; border-bottom:1px solid var(--line); white-space:nowrap; }
th { color:var(--soft); font-weight:600; } th:first-child, td:first-child { text-align:left; }
.meter { display:inline-block; width:5rem; height:.6rem; background:var(--line); border-radius:.3rem;
  overflow:hidden; vertical-align:middle; }
.meter i { display:block; height:100%; background:var(--bar); }
footer { margin-top:2.5rem; padding-top:.8rem; border-top:1px solid var(--line); color:var(--soft); font-size:.82rem;
  overflow-wrap:anywhere; }
@media print { body { font-size:12px; } figure, .item, .card { break-inside:avoid; } }
"""


def text(value: Any) -> str:
    """Anything as text that HTML cannot take for markup."""
    return escape(str(value))


def page(title: str, body: Iterable[str], *, lead: str = "", foot: str = "", style: str = "", script: str = "") -> str:
    """The whole document. `lead` stands under the title, `foot` at the end; both are plain text.

    `style` and `script` are the maker's own, never from data.
    """
    policy = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
    if script:
        digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
        policy += f"; script-src 'sha256-{digest}'"
    return "\n".join(
        [
            "<!doctype html>",
            '<html lang="en"><head><meta charset="utf-8">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f'<meta http-equiv="Content-Security-Policy" content="{policy}">',
            f"<title>{text(title)}</title><style>{STYLE}{style}</style></head><body><main>",
            f'<h1>{text(title)}</h1><p class="lead">{text(lead)}</p>',
            *body,
            f"<footer>odice {text(__version__)}{' · ' + text(foot) if foot else ''}</footer>",
            f"</main>{f'<script>{script}</script>' if script else ''}</body></html>\n",
        ]
    )


def picture(png: bytes, words: str) -> str:
    """A PNG inside the page; `words` are for those who do not see it."""
    data = base64.b64encode(png).decode()
    return f'<figure><img src="data:image/png;base64,{data}" alt="{text(words)}" style="width:100%"></figure>'


def section(title: str, *content: str) -> str:
    return f"<section><h2>{text(title)}</h2>{''.join(content)}</section>"


def paragraph(content: str) -> str:
    return f"<p>{text(content)}</p>"


def cards(items: Iterable[tuple[str, str]]) -> str:
    """Large numbers with small labels: (value, label)."""
    return (
        '<div class="cards">'
        + "".join(f'<div class="card"><b>{text(v)}</b><span>{text(k)}</span></div>' for v, k in items)
        + "</div>"
    )


def pair(*figures: str) -> str:
    """Figures side by side where there is room."""
    return f'<div class="pair">{"".join(figures)}</div>'


def message(severity: str, code: str, what: str, advice: str) -> str:
    return (
        f'<div class="item {text(severity)}"><p><span class="badge">{text(severity)}</span>'
        f"<code>{text(code)}</code></p>"
        f'<p>{text(what)}</p><p class="advice">{text(advice)}</p></div>'
    )


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table whose first column is text and the others numbers. A cell made by `meter` is taken as it is."""
    top = "".join(f"<th>{text(h)}</th>" for h in head)
    lines = (
        "<tr>" + "".join(f"<td>{c if isinstance(c, _Html) else text(c)}</td>" for c in row) + "</tr>" for row in rows
    )
    return f'<div class="scroll"><table><thead><tr>{top}</tr></thead><tbody>{"".join(lines)}</tbody></table></div>'


class _Html(str):
    """A string that is HTML already."""


def meter(share: float) -> str:
    """A small bar for a share from 0 to 1, with the number beside it."""
    share = min(max(share, 0.0), 1.0)
    return _Html(f'<span class="meter"><i style="width:{100 * share:.1f}%"></i></span> {100 * share:.1f} %')


def histogram(edges: Sequence[float], counts: Sequence[int], caption: str) -> str:
    """A histogram as inline SVG, with the ends and the middle of the range below and the highest count beside it."""
    width, height, left, bottom, top = 420, 170, 40, 22, 12
    most = max([*counts, 1])
    room, tall = width - left - 4, height - bottom - top
    step = room / max(len(counts), 1)
    shapes = []
    for i, count in enumerate(counts):
        h = tall * count / most
        name = f"{edges[i]:.4g} to {edges[i + 1]:.4g}: {count}"
        shapes.append(
            f'<rect class="fill" x="{left + i * step + 0.5:.1f}" y="{top + tall - h:.1f}" '
            f'width="{max(step - 1, 0.5):.1f}" height="{h:.1f}"><title>{text(name)}</title></rect>'
        )
    base = top + tall
    if len(edges):
        marks = [
            (left, edges[0], "start"),
            (left + room / 2, (edges[0] + edges[-1]) / 2, "middle"),
            (width - 4, edges[-1], "end"),
        ]
        shapes += [
            f'<text x="{x:.0f}" y="{height - 6}" text-anchor="{a}">{text(number(v))}</text>' for x, v, a in marks
        ]
    shapes.append(f'<text x="{left - 6}" y="{top + 8}" text-anchor="end">{most}</text>')
    shapes.append(f'<line class="axis" x1="{left}" y1="{base}" x2="{width - 4}" y2="{base}"/>')
    svg = f'<svg viewBox="0 0 {width} {height}" role="img" aria-label="{text(caption)}">{"".join(shapes)}</svg>'
    return f"<figure><figcaption>{text(caption)}</figcaption>{svg}</figure>"


def number(value: float | None, digits: int = 4) -> str:
    """A number for people: whole and large ones with separators, others with four significant digits."""
    if value is None:
        return "–"
    if abs(value) < 1e9 and (float(value).is_integer() or abs(value) >= 10 ** (digits - 1)):
        return f"{value:,.0f}"
    return f"{value:.{digits}g}"


def write(path: str | Path, content: str) -> Path:
    """Write a page completely or not at all."""
    try:
        with complete_file(path) as temporary:
            temporary.write_text(content, "utf-8")
    except OSError as error:
        raise OdiceError(f"{path}: cannot be written ({error.strerror}); choose another place.") from error
    return Path(path)
