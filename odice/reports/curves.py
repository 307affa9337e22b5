"""Learning curves: what a policy earned while it learned, beside what its data earned."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from odice.reports.figures import FAINT, INK, house_style

if TYPE_CHECKING:
    from matplotlib.figure import Figure

LINE = "#2f6fb0"


def learning_curve(
    evaluations: Sequence[Mapping[str, Any]], *, title: str, levels: Mapping[str, float], what: str = "updates"
) -> Figure:
    """Mean return against the step, with every episode as a dot, and levels to compare it with as dashed lines.

    `evaluations` are the rows of a run's `evaluations.jsonl`.
    """
    from matplotlib.figure import Figure
    from matplotlib.ticker import FuncFormatter

    steps = np.array([row["step"] for row in evaluations])
    with house_style():
        figure = Figure(figsize=(7.2, 4.2), layout="constrained")
        axes = figure.subplots()
        for row in evaluations:
            label = "one episode" if row is evaluations[-1] else None
            at = np.full(len(row["returns"]), row["step"])
            axes.scatter(at, row["returns"], s=9, color=LINE, alpha=0.25, linewidths=0, label=label)
        axes.plot(steps, [row["mean"] for row in evaluations], color=LINE, linewidth=2, label="mean of the policy")
        for name, level in levels.items():
            axes.axhline(level, color=FAINT, linewidth=1, linestyle=(0, (4, 2)), zorder=0)
            axes.annotate(
                f"{name}: {level:,.0f}", (0, level), (4, -11), textcoords="offset points", color=INK, fontsize=8.5,
                xycoords=axes.get_yaxis_transform(),
            )  # fmt: skip
        axes.set(xlabel=what, ylabel="return of an episode", title=title, xlim=(0, steps[-1] * 1.02))
        axes.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:,.0f}"))
        axes.set_ylim(bottom=min(0.0, axes.get_ylim()[0]))
        axes.spines[["top", "right"]].set_visible(False)
        figure.legend(loc="outside lower center", ncols=2, fontsize=9)
    return figure
