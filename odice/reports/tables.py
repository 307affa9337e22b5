"""The tables of a report, and their text for a terminal, in Markdown, LaTeX and CSV."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, NamedTuple

from odice.reports.runs import FINAL, RunRecord, clean
from odice.reports.statistics import BootstrapInterval

if TYPE_CHECKING:
    from rich.table import Table as RichTable

    from odice.reports.compare import Comparison, Group


MAX_COLUMNS = 6
"""Methods that fit in a row where a line cannot be scrolled."""


class Cell(NamedTuple):
    """A cell: its text, how it sorts, and whether it is the best of its row or column."""

    text: str
    sort: float | None = None
    """The value that a number is sorted by; None for text."""
    best: bool = False


class ReportTable(NamedTuple):
    """A table of a report, in no format yet."""

    title: str
    head: list[str]
    rows: list[list[Cell]]
    note: str = ""
    words: int = 1
    """The number of text columns at the left."""


# --- their content ----------------------------------------------------------------------------------------------------


def tables(comparison: Comparison, max_columns: int = MAX_COLUMNS) -> list[ReportTable]:
    """All tables, without those that would be empty or too wide."""
    wide = len(comparison.methods) > max_columns
    candidates = [
        None if wide else overview(comparison),
        results(comparison),
        aggregates(comparison),
        None if wide else improvement(comparison),
    ]
    return [table for table in candidates if table and table.rows]


def results(comparison: Comparison) -> ReportTable:
    """Each method on each data set."""
    best = {
        data: max((g.interval.value for g in comparison.of(data) if g.interval), default=None)
        for data in comparison.data
    }
    units = {group.unit for group in comparison.groups}
    healthy = any(group.health for group in comparison.groups)
    unit = "mean" if len(units) > 1 else units.pop()
    head = ["data", "method", f"{unit} ± std", *(["unit"] if unit == "mean" else []), "95 %", "seeds", "last", "best"]
    head += ["worst episode", "updates/s", *(["health"] if healthy else [])]
    rows = []
    for group in comparison.groups:
        mean = group.interval
        wins = mean is not None and mean.value == best[group.data] and len(comparison.of(group.data)) > 1
        rows.append(
            [
                Cell(group.data),
                Cell(group.method),
                spread(group, wins),
                *([Cell(group.unit)] if unit == "mean" else []),
                Cell(_ends(mean, group.scored), mean.low if mean and mean.known else None),
                _seeds(group),
                *(_number(value, group.scored) for value in (group.last, group.best, group.worst)),
                _rate(group.updates_per_second),
                *([Cell(group.health or "–")] if healthy else []),
            ]
        )
    return ReportTable("Results", head, rows, _protocol(comparison), words=2)


def overview(comparison: Comparison) -> ReportTable | None:
    """Data sets in rows, methods in columns; None unless there are several of both."""
    if len(comparison.data) < 2 or len(comparison.methods) < 2:
        return None
    rows = []
    for data in comparison.data:
        groups = {group.method: group for group in comparison.of(data)}
        best = _best(groups.values())
        unit = "" if next(iter(groups.values())).scored else " (return)"
        cells = [
            spread(groups[method], best is not None and _value(groups[method]) == best)
            if method in groups
            else Cell("–")
            for method in comparison.methods
        ]
        rows.append([Cell(data + unit), *cells])
    note = "Mean ± standard deviation over seeds; normalized scores unless a row says return; the best is bold."
    return ReportTable("Overview", ["data", *comparison.methods], rows, note)


def aggregates(comparison: Comparison) -> ReportTable | None:
    """Each method over all the data sets that are compared."""
    data, methods = comparison.shared
    if len(methods) < 2 and len(data) < 2:
        return None
    scored = bool(methods) and next(iter(methods.values()))[0].scored
    head = ["method", "runs", "mean", "95 %", "IQM", "95 %", *(["optimality gap", "95 %"] if scored else [])]
    rows = []
    for one in comparison.aggregates:
        parts = [one.mean, one.iqm, *([one.gap] if one.gap else [])]
        cells = [
            cell
            for part in parts
            for cell in (_number(part.value, scored), Cell(_ends(part, scored), part.low if part.known else None))
        ]
        rows.append([Cell(one.method), Cell(str(one.runs), one.runs), *cells])
    missing = [method for method in comparison.methods if method not in methods]
    left = f" Left out, because not all of these data sets have a finished run of it: {', '.join(missing)}."
    note = (
        f"Over {count(len(data), 'data set')}: {', '.join(data)}. IQM is the mean of the middle half of the runs"
        f"{'; the optimality gap is how far runs stay below a score of 100' if scored else ''}. "
        f"Intervals: stratified bootstrap over seeds.{left if missing else ''}"
    )
    return ReportTable("Over all data", head, rows, note)


def improvement(comparison: Comparison) -> ReportTable | None:
    """The probability that the method of a row beats that of a column."""
    data, methods = comparison.ranked
    if len(methods) < 2:
        return None
    rows = []
    for x in methods:
        cells = [Cell("")] * len(methods)
        for i, y in enumerate(methods):
            if x != y:
                one = comparison.improvement[x, y]
                ends = f" [{one.low:.2f}, {one.high:.2f}]" if one.known else ""
                cells[i] = Cell(f"{one.value:.2f}{ends}", one.value)
        rows.append([Cell(x), *cells])
    note = (
        "The chance that a run of the row's method beats one of the column's on the same data, over "
        f"{count(len(data), 'data set')}; a tie counts half; 95 % stratified bootstrap intervals."
    )
    return ReportTable("Probability of improvement", ["method", *methods], rows, note)


def single_runs(comparison: Comparison) -> ReportTable:
    """Every run, finished or not."""
    head = [
        "data",
        "method",
        "seed",
        "state",
        "final",
        "last",
        "best",
        "worst episode",
        "updates/s",
        "health",
        "folder",
    ]
    rows = []
    for group in comparison.groups:
        for run in group.runs:
            scores: list[float | None] = [None] * 4
            if run.evaluations:
                values = [group.value(point) for point in run.evaluations]
                scores = [group.final(run), values[-1], max(values), group.worst_of(run)]
            rows.append(
                [
                    Cell(group.data),
                    Cell(group.method),
                    Cell(str(run.seed), run.seed),
                    Cell(state(run)),
                    *(_number(value, group.scored) for value in scores),
                    _rate(run.updates_per_second),
                    Cell(run.health or "–"),
                    Cell(clean(run.path, 300)),
                ]
            )
    return ReportTable("Runs", head, rows, "Runs that are not finished are in no average.", words=2)


def state(run: RunRecord) -> str:
    return "finished" if run.finished else f"unfinished: {run.step:,} of {run.steps:,} updates"


def _protocol(comparison: Comparison) -> str:
    scored = [group.scored for group in comparison.groups if group.interval]
    if not scored:
        return "No finished run was evaluated in a simulator, so there are no returns to compare."
    what = "normalized scores" if all(scored) else "returns, not normalized" if not any(scored) else "as the unit says"
    return (
        f"A run's number is the mean of its {last_evaluations(comparison)}; mean ± standard deviation and 95 % "
        f"bootstrap interval over seeds. Last and best: means over seeds. Worst episode: of those evaluations, of any "
        f"seed. Numbers are {what}. Only finished runs count."
    )


def last_evaluations(comparison: Comparison) -> str:
    """Of what the number of a run is the mean."""
    counted = max((group.counted for group in comparison.groups), default=FINAL)
    fewest = min((group.final_evaluations for group in comparison.groups if len(group.finals)), default=counted)
    fewer = "" if fewest >= counted else f" (of all where there are fewer; here at least {count(fewest, 'evaluation')})"
    words = "last evaluation" if counted == 1 else f"last {'ten' if counted == 10 else counted} evaluations"
    return f"{words}{fewer}"


def _seeds(group: Group) -> Cell:
    done, more = len(group.finished), len(group.runs) - len(group.finished)
    return Cell(f"{done} + {more} unfinished" if more else str(done), done)


def _best(groups: Iterable[Group]) -> float | None:
    return max((group.interval.value for group in groups if group.interval), default=None)


def _value(group: Group) -> float | None:
    return group.interval.value if group.interval else None


def spread(group: Group, best: bool) -> Cell:
    if group.interval is None:
        return Cell("unfinished" if len(group.finished) < len(group.runs) else _by_log(group))
    mean = group.interval.value
    around = "" if group.std is None else f" ± {_text(group.std, _places(mean, group.scored))}"
    return Cell(f"{_text(mean, _places(mean, group.scored))}{around}", mean, best)


def _by_log(group: Group) -> str:
    """What a log says about runs without an environment, as `odice evaluate --data` left it."""
    answers = sorted({run.estimate for run in group.finished if run.estimate})
    return f"by the log: {' or '.join(answers)}" if answers else "not judged yet (odice evaluate RUN --data LOG)"


def _ends(interval: BootstrapInterval | None, scored: bool) -> str:
    if interval is None or not interval.known:
        return "–"
    places = _places(interval.value, scored)
    return f"[{_text(interval.low, places)}, {_text(interval.high, places)}]"


def _number(value: float | None, scored: bool) -> Cell:
    return Cell("–") if value is None else Cell(_text(value, _places(value, scored)), value)


def _rate(value: float | None) -> Cell:
    return Cell("–") if value is None else Cell(f"{value:,.0f}" if value >= 10 else f"{value:.2g}", value)


def _places(value: float, scored: bool) -> int:
    """Decimals: returns may be small."""
    return 1 if scored or abs(value) >= 10 else 3


def _text(value: float, places: int) -> str:
    return f"{round(value, places) + 0.0:.{places}f}"  # + 0.0: there is no -0.0


def count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


# --- as text ----------------------------------------------------------------------------------------------------------


def for_terminal(table: ReportTable) -> RichTable:
    """A table as rich prints it; the best cells are bold."""
    from rich.markup import escape
    from rich.table import Table as RichTable

    made = RichTable(title=escape(table.title), title_justify="left", caption=escape(table.note))
    made.caption_justify = "left"
    for i, name in enumerate(table.head):
        made.add_column(escape(name), justify="left" if i < table.words else "right", overflow="fold")
    for row in table.rows:
        made.add_row(*(f"[bold]{escape(cell.text)}[/]" if cell.best else escape(cell.text) for cell in row))
    return made


def markdown(comparison: Comparison) -> str:
    return "\n".join(table_markdown(table) for table in tables(comparison)) + _markdown_notes(comparison)


def latex(comparison: Comparison) -> str:
    r"""Tables for a document that uses the package booktabs."""
    return LATEX_HEAD + "\n".join(table_latex(table) for table in tables(comparison))


def comma_separated(comparison: Comparison) -> str:
    """One line for each method on each data set, with every digit."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    names = ["mean", "std", "low", "high", "last", "best", "worst_episode", "updates_per_second"]
    writer.writerow(["data", "method", "unit", "seeds", "unfinished", "final_evaluations", *names, "health"])
    for group in comparison.groups:
        interval = group.interval or BootstrapInterval(*[float("nan")] * 3)
        numbers = [interval.value, group.std, interval.low, interval.high, group.last, group.best, group.worst]
        writer.writerow(
            [
                *(_no_formula(text) for text in (group.data, group.method)),
                group.unit,
                len(group.finished),
                len(group.runs) - len(group.finished),
                group.final_evaluations,
                *("" if value is None or value != value else value for value in (*numbers, group.updates_per_second)),
                _no_formula(group.health),
            ]
        )
    return out.getvalue()


def table_csv(table: ReportTable) -> str:
    """The cells as they are shown, with a line of heads."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow([_no_formula(name) for name in table.head])
    writer.writerows(
        [cell.text if cell.sort is not None else _no_formula(cell.text) for cell in row] for row in table.rows
    )
    return out.getvalue()


FORMULA = "=+\\-@\uff1d\uff0b\uff0d\uff20"
"""Signs that begin a formula, also in their full width."""


def _no_formula(text: str) -> str:
    """Text that a spreadsheet does not read as a formula, whichever sign it takes for the end of a cell."""
    return re.sub(rf"(^|[;,\t\r\n])(\s*)(?=[{FORMULA}])", r"\1\2'", text)


def table_markdown(table: ReportTable) -> str:
    """A table in Markdown, with its title as a heading and its note below."""
    lines = [f"## {table.title}", "", _markdown_row(table.head)]
    lines.append("|" + "".join("---|" if i < table.words else "--:|" for i in range(len(table.head))))
    marked = (
        [f"**{_escape_markdown(c.text)}**" if c.best else _escape_markdown(c.text) for c in row] for row in table.rows
    )
    lines += [_markdown_row(row, escaped=True) for row in marked]
    return "\n".join([*lines, "", _escape_markdown(table.note), ""])


def _markdown_row(cells: list[str], escaped: bool = False) -> str:
    return "| " + " | ".join(cells if escaped else map(_escape_markdown, cells)) + " |"


def _markdown_notes(comparison: Comparison) -> str:
    return "".join(f"\n- {_escape_markdown(note)}" for note in comparison.notes) + ("\n" if comparison.notes else "")


def _escape_markdown(text: str) -> str:
    """Text escaped for Markdown and HTML."""
    text = re.sub(r"([\\`*_\[\]|~#])", r"\\\1", text)
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


LATEX_HEAD = "% needs \\usepackage{booktabs}\n"
LATEX = {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "±": r"$\pm$", "–": "--"}
LATEX |= {"…": r"\dots{}", "<": r"\textless{}", ">": r"\textgreater{}", "|": r"\textbar{}", '"': r"\textquotedbl{}"}
LATEX |= {letter: f"\\{letter}" for letter in "&%$#_{}"}


def _tex(text: str) -> str:
    return "".join(LATEX.get(letter, letter) for letter in text)


def table_latex(table: ReportTable) -> str:
    """A table in LaTeX, in the style of booktabs."""
    columns = "l" * table.words + "r" * (len(table.head) - table.words)
    return "\n".join(
        [
            r"\begin{table}",
            r"\centering",
            f"\\caption{{{_tex(f'{table.title}. {table.note}')}}}",
            f"\\begin{{tabular}}{{{columns}}}",
            r"\toprule",
            " & ".join(map(_tex, table.head)) + r" \\",
            r"\midrule",
            *_latex_rows(table),
            r"\bottomrule",
            r"\end{tabular}",
            r"\end{table}",
            "",
        ]
    )


def _latex_rows(table: ReportTable) -> Iterator[str]:
    """A row that begins with a bracket would be taken for an option of the line break before it."""
    for row in table.rows:
        cells = (f"\\textbf{{{_tex(cell.text)}}}" if cell.best else _tex(cell.text) for cell in row)
        yield "{}" + " & ".join(cells) + r" \\"
