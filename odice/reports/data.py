"""The doctor's report as one HTML page."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from odice.reports import html

if TYPE_CHECKING:
    from odice.data.doctor import Report

# A page with more rows than this is not read; the JSON has them all.
MAX_ROWS = 200


def data_page(report: Report) -> str:
    """Summary, findings, distributions and columns of a data set, self-contained."""
    summary = report.summary
    return html.page(
        summary["source"],
        _body(report),
        lead=verdict(report),
        foot=f"SHA-256 {summary['fingerprint']}",
    )


def verdict(report: Report) -> str:
    """The findings counted, in a sentence."""
    kinds = [f.severity for f in report.findings]
    counts = [f"{n} {word}{'s' if n > 1 else ''}" for word in ("error", "warning", "note") if (n := kinds.count(word))]
    if not counts:
        return "The doctor found nothing wrong."
    return f"The doctor found {', '.join(counts[:-1])}{' and ' if len(counts) > 1 else ''}{counts[-1]}."


def _body(report: Report) -> Iterator[str]:
    s = report.summary
    yield html.cards(_cards(s))
    if report.findings:
        yield html.section(
            "Findings", *(html.message(f.severity, f.code, f.message, f.advice) for f in report.findings)
        )
    yield html.section(
        "Episodes", html.pair(_figure(s["returns"], "Return per episode"), _figure(s["lengths"], "Steps per episode"))
    )
    yield html.section("Actions", _actions(s))
    yield html.section("Rewards and observations", _columns([{**s["reward"], "name": "reward"}, *s["observations"]]))
    if s["history"]:
        yield html.section("How it was made", *(html.paragraph(step) for step in s["history"]))


def _cards(s: dict[str, Any]) -> Iterator[tuple[str, str]]:
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
    mean, std = html.number(spread["mean"]), html.number(spread["std"], 3)
    bins = spread["histogram"]
    return html.histogram(
        bins["edges"], bins["counts"], f"{name}: {mean} ± {std}, median {html.number(spread['quartiles'][2])}"
    )


def _actions(s: dict[str, Any]) -> str:
    rows = s["actions"][:MAX_ROWS]
    if s["discrete"]:
        return html.table(["action", "share"], ((one["name"], html.meter(one["share"])) for one in rows))
    cells = (
        (
            one["name"],
            *(html.number(one[key]) for key in ("min", "mean", "max", "std")),
            f"{html.number(one['bounds'][0])} to {html.number(one['bounds'][1])}" if one["bounds"] else "unknown",
            html.meter(one["saturation"]),
        )
        for one in rows
    )
    return html.table(["action", "least", "mean", "most", "std", "bounds", "at the bound"], cells)


def _columns(rows: list[dict[str, Any]]) -> str:
    shown = rows[: MAX_ROWS + 1]
    cells = ((one["name"], *(html.number(one[key]) for key in ("min", "mean", "max", "std"))) for one in shown)
    more = html.paragraph(f"… and {len(rows) - len(shown):,} more.") if len(rows) > len(shown) else ""
    return html.table(["column", "least", "mean", "most", "std"], cells) + more
