"""The report on runs as one HTML page: sortable tables, and curves that show their values under the pointer."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from odice.reports import html
from odice.reports.charts import Series, line_chart
from odice.reports.compare import Comparison
from odice.reports.tables import ReportTable, aggregates, count, improvement, overview, results, single_runs

BAND = "Mean over seeds; the band is one standard deviation, within the range of the seeds."


def run_page(
    comparison: Comparison,
    title: str = "Report on runs",
    lead: str = "",
    first: Sequence[ReportTable] = (),
    images: Sequence[bytes] = (),
) -> str:
    """Render a comparison.

    Args:
        lead: text under the title, which says how many runs there are and how many are finished.
        first: tables to show above the others, instead of the overview.
        images: PNG files to show below them.
    """
    runs = [run for group in comparison.groups for run in group.runs]
    done = sum(run.finished for run in runs)
    state = f"all {done} finished" if done == len(runs) else f"{done} of {len(runs)} runs finished"
    counted = "" if lead else f", {count(len(runs), 'run')}: {state}"
    methods, data = count(len(comparison.methods), "method"), count(len(comparison.data), "data set")
    profiles = len(comparison.profiles) > 1 or len(comparison.shared[0]) > 1
    return html.page(
        "runs.html",
        styles=["chart.css", "runs.css"],
        scripts=["chart.js", "sort.js"],
        title=title,
        lead=f"{lead} {methods} on {data}{counted}.".strip(),
        first=first,
        images=images,
        results=[table for table in (None if first else overview(comparison), results(comparison)) if table],
        curves=list(_curves(comparison)),
        band=BAND,
        aggregates=[table for table in (aggregates(comparison), improvement(comparison)) if table],
        profiles=_profiles(comparison) if profiles else "",
        runs=single_runs(comparison),
        notes=comparison.notes,
    )


def _curves(comparison: Comparison) -> Iterator[str]:
    for data in comparison.data:
        groups = comparison.of(data)
        series = [
            Series(group.method, comparison.methods.index(group.method), *group.curve)
            for group in groups
            if group.curve.steps
        ]
        unit = "normalized score" if groups[0].scored else "return"
        if series:
            yield line_chart(series, title=data, x_label="updates", y_label=unit)


def _profiles(comparison: Comparison) -> str:
    series = [
        Series(method, comparison.methods.index(method), *(part.tolist() for part in profile))
        for method, profile in comparison.profiles.items()
    ]
    data, methods = comparison.shared
    unit = "normalized score" if next(iter(methods.values()))[0].scored else "return"
    title = f"Share of runs above a {unit}, over {', '.join(data)}; bands: 95 % stratified bootstrap"
    return line_chart(series, title=title, x_label=unit, y_label="share of runs", percent=True)
