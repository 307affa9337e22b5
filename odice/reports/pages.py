"""The report on runs as one HTML page: tables that sort, curves that tell their values."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from odice.reports import charts, html
from odice.reports.charts import Series, line_chart
from odice.reports.compare import Comparison
from odice.reports.tables import Table, aggregates, improvement, overview, results, single_runs

BAND = "Mean over seeds; the band is one standard deviation, no further than the seeds themselves."

STYLE = """
main { max-width:80rem; }
th button { all:unset; cursor:pointer; } th button:focus-visible { outline:2px solid var(--bar); }
th[aria-sort=ascending] button::after { content:" ▲"; } th[aria-sort=descending] button::after { content:" ▼"; }
.words { text-align:left; white-space:normal; overflow-wrap:anywhere; min-width:10rem; }
.words + .words { min-width:5.4rem; }
.chart { max-width:44rem; }
th:not(.words) button { white-space:normal; overflow-wrap:break-word; display:inline-block; max-width:11rem; }
.best { font-weight:700; } tbody tr:hover { background:var(--tint); }
.under { color:var(--soft); font-size:.82rem; margin-top:.5rem; overflow-wrap:anywhere; }
.pair { grid-template-columns:repeat(auto-fit,minmax(min(100%,24rem),1fr)); }
@media (max-width:30rem) { svg text { font-size:14px; } .words:first-child { min-width:7rem; }
  main { padding:1.2rem .8rem 2rem; } th, td { padding:.3rem .45rem; } }
@page { margin:14mm; }
@media print { main { max-width:none; padding:0; } .scroll { overflow:visible; } table { font-size:8px; }
  tr, .under { break-inside:avoid; } h2, figcaption { break-after:avoid; } .under { break-before:avoid; }
  th, td { padding:.2rem .3rem; white-space:normal; } .words { min-width:0; }
  .pair { grid-template-columns:1fr 1fr; gap:.6rem; } figure.chart { max-width:none; padding:.4rem; }
  svg text { font-size:13px; } .keys { font-size:.7rem; }
  section > figure.chart { max-width:60%; } th[aria-sort] button::after { content:""; } }
"""

SCRIPT = """
for (const head of document.querySelectorAll('th')) head.querySelector('button').addEventListener('click', () => {
  const body = head.closest('table').tBodies[0], column = head.cellIndex;
  const down = head.getAttribute('aria-sort') !== 'descending', sign = down ? -1 : 1;
  const key = row => row.cells[column].dataset.sort, words = row => row.cells[column].textContent;
  for (const other of head.parentNode.cells) other.setAttribute('aria-sort', 'none');
  head.setAttribute('aria-sort', down ? 'descending' : 'ascending');
  body.append(...[...body.rows].sort((a, b) => {
    const x = key(a), y = key(b);
    if (x !== undefined && y !== undefined) return sign * (x - y);
    if (x === undefined && y === undefined) return -sign * words(a).localeCompare(words(b));
    return x === undefined ? 1 : -1;
  }));
});
"""


def run_page(
    found: Comparison, title: str = "Report on runs", words: str = "", first: Sequence[Table] = (), pictures: str = ""
) -> str:
    """Everything a comparison knows, self-contained.

    `first` are tables above the rest, instead of the overview, and `pictures` elements below them.
    """
    runs = [run for group in found.groups for run in group.runs]
    done = sum(run.finished for run in runs)
    state = f"all {done} finished" if done == len(runs) else f"{done} of {len(runs)} runs finished"
    lead = (
        f"{len(found.methods)} method{'s' * (len(found.methods) != 1)} on {len(found.data)} "
        f"data set{'s' * (len(found.data) != 1)}, {len(runs)} run{'s' * (len(runs) != 1)}: {state}."
    )
    above = [*map(_section, first), *([html.section("Figure", pictures)] if pictures else [])]
    lead = f"{words} {lead}" if words else lead
    return html.page(
        title,
        [*above, *_body(found, overall=not first)],
        lead=lead,
        style=charts.STYLE + STYLE,
        script=charts.SCRIPT + SCRIPT,
    )


def _body(found: Comparison, overall: bool) -> Iterator[str]:
    for made in (overview(found) if overall else None, results(found)):
        if made:
            yield _section(made)
    if curves := list(_curves(found)):
        yield html.section("Learning curves", html.pair(*curves), _under(BAND))
    for made in (aggregates(found), improvement(found)):
        if made:
            yield _section(made)
    if len(found.profiles) > 1 or len(found.shared[0]) > 1:
        yield html.section("Performance profiles", _profiles(found))
    yield _section(single_runs(found))
    if found.notes:
        yield html.section("Notes", *map(html.paragraph, found.notes))


def _section(made: Table) -> str:
    return html.section(made.title, sortable(made), _under(made.note))


def _under(words: str) -> str:
    return f'<p class="under">{html.text(words)}</p>' if words else ""


def sortable(made: Table) -> str:
    """A table whose heads sort it."""
    head = "".join(
        f'<th scope="col" aria-sort="none"{_words(i < made.words)}><button '
        f'type="button">{html.text(name)}</button></th>'
        for i, name in enumerate(made.head)
    )
    rows = []
    for row in made.rows:
        cells = []
        for i, cell in enumerate(row):
            names = ["words"] * (i < made.words) + ["best"] * cell.best
            sort = "" if cell.sort is None else f' data-sort="{cell.sort!r}"'
            cells.append(f"<td{_words(*names) if names else ''}{sort}>{html.text(cell.text)}</td>")
        rows.append(f"<tr>{''.join(cells)}</tr>")
    return f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>{"".join(rows)}</tbody></table></div>'


def _words(*names: str | bool) -> str:
    found = ["words" if name is True else name for name in names if name]
    return f' class="{" ".join(found)}"' if found else ""


def _curves(found: Comparison) -> Iterator[str]:
    for data in found.data:
        series = [
            Series(group.method, found.methods.index(group.method), *group.curve)
            for group in found.of(data)
            if group.curve.steps
        ]
        unit = "normalized score" if found.of(data)[0].scored else "return"
        if series:
            yield line_chart(series, title=data, x_label="updates", y_label=unit)


def _profiles(found: Comparison) -> str:
    series = [
        Series(method, found.methods.index(method), *(part.tolist() for part in profile))
        for method, profile in found.profiles.items()
    ]
    data, methods = found.shared
    unit = "normalized score" if next(iter(methods.values()))[0].scored else "return"
    title = f"Share of runs above a {unit}, over {', '.join(data)}; bands: 95 % stratified bootstrap"
    return line_chart(series, title=title, x_label=unit, y_label="share of runs", percent=True)
