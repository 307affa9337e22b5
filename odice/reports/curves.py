"""Learning curves: the return of a policy during training, and that of its data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from odice.errors import OdiceError
from odice.reports.figures import FAINT, INK, columns_for, figure_style, fill_empty
from odice.reports.palette import COLORS, LIGHT

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from odice.reports.compare import Comparison

LINE = "#2f6fb0"


def learning_curve(
    evaluations: Sequence[Mapping[str, Any]], *, title: str, levels: Mapping[str, float], what: str = "updates"
) -> Figure:
    """Mean return against the step, with every episode as a dot.

    Args:
        evaluations: the rows of a run's `evaluations.jsonl`.
        levels: named returns to compare with, drawn as dashed lines.
        what: the label of the steps.
    """
    from matplotlib.figure import Figure
    from matplotlib.ticker import FuncFormatter

    steps = np.array([row["step"] for row in evaluations])
    with figure_style():
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


def comparison_figure(comparison: Comparison) -> Figure:
    """The learning curves of every data set with bands, and the performance profiles where there are any."""
    from matplotlib.figure import Figure

    plotted = [
        data for data in comparison.data if any(run.evaluations for group in comparison.of(data) for run in group.runs)
    ]
    if not plotted:
        raise OdiceError("There is no evaluation in these runs to draw; train with an environment (--env).")
    profiles = comparison.profiles if len(comparison.profiles) > 1 else {}
    panels = len(plotted) + bool(profiles)
    columns = columns_for(panels, 3 if panels < 10 else 4)
    lines = -(-panels // columns)
    with figure_style():
        figure = Figure(figsize=(4.2 * columns, 3.3 * lines + 0.6), layout="constrained")
        flat = list(figure.subplots(lines, columns, squeeze=False).flat)
        for axes, data in zip(flat, plotted, strict=False):
            _curves(axes, comparison, data)
        if profiles:
            _profiles(flat[len(plotted)], comparison)
        known = {str(line.get_label()): line for axes in flat for line in axes.get_lines()}
        fill_empty(figure, flat[panels:], known)
    return figure


def _curves(axes: Axes, comparison: Comparison, data: str) -> None:
    from matplotlib.ticker import MaxNLocator, StrMethodFormatter

    for group in comparison.of(data):
        _band(axes, comparison.methods.index(group.method), group.method, group.curve)
    axes.xaxis.set_major_locator(MaxNLocator(5, integer=True))
    axes.xaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
    unit = "normalized score" if comparison.of(data)[0].scored else "return"
    axes.set(title=_literal(data), xlabel="updates", ylabel=unit)


def _profiles(axes: Axes, comparison: Comparison) -> None:
    for method, (taus, share, low, high) in comparison.profiles.items():
        _band(axes, comparison.methods.index(method), method, (taus, share, low, high))
    axes.set(title="Performance profiles", xlabel="score", ylabel="share of runs above", ylim=(-0.02, 1.02))


def _band(axes: Axes, index: int, method: str, values: tuple[Any, Any, Any, Any]) -> None:
    x, y, low, high = values
    color, dash = LIGHT[index % COLORS], "-" if index < COLORS else "--"
    marker = "o" if len(x) == 1 else None
    axes.plot(x, y, color=color, linestyle=dash, linewidth=1.8, marker=marker, markersize=4, label=_literal(method))
    axes.fill_between(x, low, high, color=color, alpha=0.16, linewidth=0)
    axes.spines[["top", "right"]].set_visible(False)


def _literal(text: str) -> str:
    """Text for matplotlib, which reads dollars as formulas and hides labels that begin with an underscore."""
    text = text.replace("$", r"\$")
    return f" {text}" if text.startswith("_") else text
