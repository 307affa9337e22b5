"""Figures of the visitation study."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import jax
import numpy as np

from odice.experiments import visitation_study as study
from odice.experiments.visitation import SEMI, TRUE, expected_rows, lam_problem, orthogonal
from odice.experiments.visitation_study import Row
from odice.reports.figures import FAINT, INK, VALUE_MAP, figure_style

if TYPE_CHECKING:
    from matplotlib.figure import Figure

COLORS = {"pearson": "#2f6db5", "soft-chi2": "#d1702a", "kl": "#3d8c40"}
METHODS = {
    ("true", 1.0): ("true gradient", "#2f6db5"),
    ("semi", 0.0): ("semi-gradient", "#c23b3b"),
    ("orthogonal", 0.2): ("orthogonal, eta 0.2", "#c9a227"),
    ("orthogonal", 1.0): ("orthogonal, eta 1", "#d1702a"),
    ("orthogonal", 5.0): ("orthogonal, eta 5", "#7d4fa0"),
    ("two stages", 0.0): ("two stages (IDRL)", "#3d8c40"),
}


def _mean(rows: Iterable[Row], measure: str) -> float:
    return float(np.mean([row[measure] for row in rows if row["rest"]]))


def maps_figure(divergence: str = "kl", lam: float = 0.9) -> Figure:
    """The state marginal of each rule's weights in the deterministic grid."""
    from matplotlib.figure import Figure as Canvas

    with jax.enable_x64(True):
        case = study.make_case("grid, deterministic", 0)
        rows = expected_rows(case.world, case.data, case.table)
        rest = lambda rule: study.at_rest(lam_problem(rows, lam, divergence, rule), case)[0]
        matched = study.matched_eta(rows, lam, divergence, case.world.discount)
        panels = {
            "data": case.data,
            "true gradient: d*": rest(TRUE),
            "semi-gradient": rest(SEMI),
            "orthogonal, eta 1": rest(orthogonal(1.0)),
            f"orthogonal, eta {matched:.0f}": rest(orthogonal(matched)),
            "two stages (IDRL)": study.two_stages(case, rows, lam, divergence, case.table),
        }
    side = round(len(case.data) ** 0.5)
    with figure_style():
        figure = Canvas(figsize=(11, 2.3), layout="constrained")
        for axis, (title, d) in zip(figure.subplots(1, len(panels)), panels.items(), strict=True):
            states = (d.sum(1) / d.sum()).reshape(side, side)
            axis.imshow(states, cmap=VALUE_MAP, vmin=0, vmax=0.12)
            axis.set_title(title, fontsize=9)
            axis.set_xticks([])
            axis.set_yticks([])
            if title != "data":
                axis.set_xlabel(f"discount {abs(study.implied_discount(case.world, d, case.states)):.2f}", fontsize=9)
    return figure


def eta_figure(rows: list[Row], discount: float = 0.95) -> Figure:
    """The implied discount and the distance to the own policy's visitation over eta."""
    from matplotlib.figure import Figure as Canvas

    with figure_style():
        figure = Canvas(figsize=(9.5, 3.6), layout="constrained")
        left, right = figure.subplots(1, 2)
        grid = np.geomspace(0.1, 40, 200)
        left.plot(grid, grid * discount / (1 + grid * discount), color=INK, label="eta gamma / (1 + eta gamma)")
        left.axhline(discount, color=FAINT, linestyle=":", label="gamma (true gradient)")
        for divergence, color in COLORS.items():
            chosen = [row for row in rows if row["method"] == "orthogonal" and row["divergence"] == divergence]
            left.scatter(
                [row["eta"] for row in chosen], [row["discount"] for row in chosen], s=9, color=color, alpha=0.35
            )
            mean = [_mean((row for row in chosen if row["eta"] == eta), "own") for eta in study.ETAS]
            semi = [row for row in rows if row["method"] == "semi" and row["divergence"] == divergence]
            right.plot(
                [0.1, *study.ETAS], [_mean(semi, "own"), *mean], "o-", color=color, label=divergence, markersize=4
            )
        left.set_title("Implied discount of w d_D")
        right.set_title("Distance of w d_D to its own policy's visitation")
        for axis in (left, right):
            axis.set_xscale("log")
            axis.set_xlabel("eta")
            axis.legend(fontsize=8)
        right.set_xticks([0.1, 0.2, 1, 5, 20], ["semi", "0.2", "1", "5", "20"])
        right.minorticks_off()
        right.set_ylim(bottom=0)
    return figure


def features_figure(rows: list[Row]) -> Figure:
    """The distance to the own policy's visitation over the number of features."""
    from matplotlib.figure import Figure as Canvas

    with figure_style():
        figure = Canvas(figsize=(9.5, 3.6), layout="constrained")
        titles = {"random": "Random features", "groups": "Groups of states"}
        axes = figure.subplots(1, 2, sharey=True)
        for axis, (kind, title) in zip(axes, titles.items(), strict=True):
            for (method, eta), (label, color) in METHODS.items():
                chosen = [r for r in rows if r["kind"] == kind and r["method"] == method and r["eta"] == eta]
                line = [_mean((row for row in chosen if row["share"] == share), "own") for share in study.SHARES]
                axis.plot(study.SHARES, line, "o-", color=color, label=label, markersize=4)
            axis.set_title(title)
            axis.set_xlabel("features per state (1 is a table)")
            axis.invert_xaxis()
            axis.set_ylim(bottom=0)
        axes[0].set_ylabel("distance to own visitation")
        axes[1].legend(fontsize=8)
    return figure
