"""The doctor's report on a data set as one HTML page."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from odice.reports import html
from odice.reports.charts import histogram

if TYPE_CHECKING:
    from odice.data.doctor import Report

MAX_ROWS = 200
"""Rows of a table on the page; the JSON has them all."""


def data_page(report: Report) -> str:
    """Render the summary, findings, distributions and columns of a data set."""
    summary = report.summary
    return html.page(
        "data.html",
        title=summary["source"],
        lead=verdict(report),
        foot=f"SHA-256 {summary['fingerprint']}",
        s=summary,
        cards=list(_cards(summary)),
        findings=report.findings,
        returns=_figure(summary["returns"], "Return per episode"),
        lengths=_figure(summary["lengths"], "Steps per episode"),
        numbers=[{**summary["reward"], "name": "reward"}, *summary["observations"]],
        max_rows=MAX_ROWS,
    )


def verdict(report: Report) -> str:
    """The number of findings of each severity, as a sentence."""
    kinds = [f.severity for f in report.findings]
    counts = [f"{n} {word}{'s' if n > 1 else ''}" for word in ("error", "warning", "note") if (n := kinds.count(word))]
    if not counts:
        return "The doctor found nothing wrong."
    return f"The doctor found {', '.join(counts[:-1])}{' and ' if len(counts) > 1 else ''}{counts[-1]}."


def _cards(s: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Large numbers and their labels."""
    yield html.number(s["episodes"]), "episodes"
    yield html.number(s["steps"]), "steps"
    yield html.number(s["returns"]["mean"]), "mean return"
    if s["score"] is not None:
        yield f"{s['score']:.1f}", "normalized score"
    yield html.number(s["lengths"]["mean"]), "mean length"
    yield f"{s['terminated']:,} / {s['truncated']:,}", "terminated / truncated"
    yield html.number(s["obs_dim"]), "observation numbers"
    yield html.number(s["action_dim"]), "discrete actions" if s["discrete"] else "action numbers"
    if s["env"]:
        yield s["env"], "environment"


def _figure(spread: dict[str, Any], name: str) -> str:
    mean, std, median = spread["mean"], spread["std"], spread["quartiles"][2]
    caption = f"{name}: {html.number(mean)} ± {html.number(std, 3)}, median {html.number(median)}"
    return histogram(spread["histogram"]["edges"], spread["histogram"]["counts"], caption)
