"""The curves of a run, for a notebook."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from odice.errors import OdiceError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from odice.training.run import Run

SHOWN = ("value_loss", "policy_loss", "value_mean", "weight_mean")
"""Metrics that are drawn where an algorithm has them; otherwise its first four."""
COLUMNS = 3
"""Panels beside each other: as many as a notebook's page shows in a readable size."""


def run_figure(run: Run, metrics: Sequence[str] = ()) -> Figure:
    """Returns of the evaluations with the range of episodes, and metrics, each against the updates."""
    from matplotlib.figure import Figure as Canvas

    runs = run.seeds or (run,)
    evaluations = [one.evaluations for one in runs]
    frames = [one.metrics for one in runs]
    there = [name for name in dict.fromkeys(name for frame in frames for name in frame.columns) if name != "step"]
    for name in metrics:
        if name not in there:
            raise OdiceError(f"{run.path} has no metric {name!r}; it has {', '.join(there) or 'none'}.")
    drawn = list(metrics) or [name for name in SHOWN if name in there] or there[:4]
    evaluated = any(frame.height for frame in evaluations)
    panels = (["return"] if evaluated else []) + drawn
    if not panels:
        raise OdiceError(f"{run.path} has no numbers yet: nothing was logged.")
    columns = min(len(panels), COLUMNS)
    lines = -(-len(panels) // columns)
    figure = Canvas(figsize=(3.4 * columns, 2.7 * lines), layout="constrained")
    places = [figure.add_subplot(lines, columns, number) for number in range(1, len(panels) + 1)]
    for axes, name in zip(places, panels, strict=True):
        for one, frame, evaluation in zip(runs, frames, evaluations, strict=True):
            label = one.path.name if run.seeds else None
            if name == "return" and evaluation.height:
                steps, returns = evaluation["step"].to_list(), evaluation["returns"].to_list()
                (line,) = axes.plot(steps, evaluation["mean"].to_list(), marker=marker(steps), label=label)
                lows, highs = [min(each) for each in returns], [max(each) for each in returns]
                axes.fill_between(steps, lows, highs, color=line.get_color(), alpha=0.15)
            elif name in frame.columns:
                steps = frame["step"].to_list()
                axes.plot(steps, frame[name].to_list(), marker=marker(steps), label=label)
        axes.set(title=name, xlabel="updates")
    if run.seeds:
        figure.legend(*places[0].get_legend_handles_labels(), loc="outside lower center", ncols=len(runs))
    return figure


def marker(steps: Sequence[int]) -> str | None:
    """A line of one point is not seen without."""
    return "o" if len(steps) == 1 else None
