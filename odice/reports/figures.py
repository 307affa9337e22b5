"""Figures in one style. Every function takes arrays and returns a matplotlib figure; `save` writes it."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from odice.files import complete_file

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure, SubFigure

INK, PAPER, FAINT = "#1f2430", "#ffffff", "#8a90a0"
GROUND, GOAL = "#3b3f54", "#f2c14e"
VALUE_MAP = "viridis"
PATH_COLOR = "#ff5a36"  # stands out on every color of VALUE_MAP

STYLE = {
    "font.family": "sans-serif",
    "font.size": 10,
    "axes.titlesize": 11,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.titlepad": 11,
    "axes.edgecolor": FAINT,
    "axes.labelcolor": INK,
    "axes.linewidth": 0.8,
    "text.color": INK,
    "xtick.color": INK,
    "ytick.color": INK,
    "xtick.labelsize": 9,
    "ytick.labelsize": 9,
    "figure.facecolor": PAPER,
    "legend.frameon": False,
    "savefig.dpi": 160,
}


@contextmanager
def figure_style():
    """The style of every figure. Figures are files; no window is opened."""
    import matplotlib

    with matplotlib.rc_context(STYLE):  # pyright: ignore[reportArgumentType]
        yield


def save(figure: Figure, path: Path) -> Path:
    """Write a figure completely or not at all, in the format of the suffix."""
    with complete_file(path) as temporary:
        metadata = {"Software": None} if path.suffix == ".png" else None
        figure.savefig(temporary, format=path.suffix[1:], metadata=metadata)
    return path


def rescale(value: np.ndarray) -> np.ndarray:
    """Rescale to 0..100, as the paper shows V; a constant map becomes 0."""
    low, high = value.min(), value.max()
    return 100 * (value - low) / (high - low) if high > low else np.zeros_like(value)


def _border(axes: Axes, mask: np.ndarray, color: str) -> None:
    """Dashed line around the cells of a mask `[x, y]`, along the cells' edges."""
    fine = 10  # a contour cuts corners by one fine pixel
    padded = np.kron(np.pad(mask, 1).T.astype(float), np.ones((fine, fine)))
    at = lambda n: (np.arange(n * fine) + 0.5) / fine - 1.5
    x, y = at(mask.shape[0] + 2), at(mask.shape[1] + 2)
    axes.contour(x, y, padded, levels=[0.5], colors=color, linewidths=1.1, linestyles=[(0, (3, 1.6))], zorder=3)


def _walk(axes: Axes, path: np.ndarray) -> None:
    from matplotlib import patheffects

    outline = [patheffects.Stroke(linewidth=3.6, foreground=INK, alpha=0.85), patheffects.Normal()]
    axes.plot(*path.T, color=PATH_COLOR, linewidth=2, solid_joinstyle="round", path_effects=outline, zorder=4)
    axes.plot(*path[-1], marker="X", markersize=7, color=PATH_COLOR, markeredgecolor=INK, zorder=5)


def _goals(axes: Axes, goals: np.ndarray) -> None:
    """Mark the goal cells of the top and the right border by a bar outside the map."""
    edge = goals.shape[0] - 0.5
    for cell in np.flatnonzero(goals[:, -1]):
        axes.plot((cell - 0.5, cell + 0.5), (edge + 0.35,) * 2, color=GOAL, linewidth=4, clip_on=False, zorder=2)
    for cell in np.flatnonzero(goals[-1]):
        axes.plot((edge + 0.35,) * 2, (cell - 0.5, cell + 0.5), color=GOAL, linewidth=4, clip_on=False, zorder=2)


def _start(axes: Axes) -> None:
    axes.plot(0, 0, marker="o", markersize=6.5, color=PAPER, markeredgecolor=INK, clip_on=False, zorder=6)


def columns_for(panels: int, most: int = 4) -> int:
    """How many panels stand in a row: as many as possible with the fewest empty places; ten or more are no strip."""
    if panels <= most:
        return max(panels, 1)
    least = 2 if panels < 10 else 3
    return min(range(most, least - 1, -1), key=lambda columns: -panels % columns)


def fill_empty(figure: Figure | SubFigure, empty: Sequence[Axes], known: Mapping[str, Any]) -> None:
    """Put the legend into the empty places of a grid of panels; below it where there are none."""
    for axes in empty:
        axes.axis("off")
    if empty:
        empty[0].legend(known.values(), known.keys(), loc="center left", fontsize=9)
    else:
        columns = legend_columns(known, figure.bbox.width / figure.get_figure(root=True).dpi)
        figure.legend(known.values(), known.keys(), loc="outside lower center", ncols=columns, fontsize=9)


def legend_columns(labels: Collection[str], inches: float) -> int:
    """How many of these labels stand next to each other in a width, at most four."""
    widest = 0.08 * max(map(len, labels), default=0) + 0.6  # inches: letters, the line and the space between columns
    return max(1, min(len(labels), 4, int(inches / widest)))


def _legend(figure: Figure, columns: int) -> None:
    from matplotlib.lines import Line2D

    marker = partial(Line2D, [], [], linestyle="none", markeredgecolor=INK, markersize=7.5)
    figure.legend(
        handles=[
            Line2D([], [], color=FAINT, linewidth=1.4, linestyle=(0, (3, 1.6)), label="border of the data (white)"),
            Line2D([], [], color=PATH_COLOR, linewidth=2.2, label="greedy walk on V"),
            Line2D([], [], color=GOAL, linewidth=4, label="goal"),
            marker(marker="o", color=PAPER, label="start"),
            marker(marker="X", color=PATH_COLOR, label="where the walk ends"),
        ],
        loc="outside lower center",
        ncols=columns,
        columnspacing=2.4,
    )


def toy_figure(
    rewards: np.ndarray, seen: np.ndarray, panels: list[tuple[str, np.ndarray, np.ndarray, str]], goal_reward: float
) -> Figure:
    """The paper's figure: the world's rewards, then V rescaled to 0..100 for each rule.

    A panel is (title, V `[x, y]`, greedy walk as (x, y) rows, a line of results below). `seen` marks the data's cells.
    """
    from matplotlib.colors import ListedColormap
    from matplotlib.figure import Figure
    from matplotlib.patches import Patch

    side = rewards.shape[0] - 1
    with figure_style():
        figure = Figure(figsize=(3.25 * (1 + len(panels)) + 0.7, 4.2), layout="constrained")
        figure.get_layout_engine().set(w_pad=0.08, h_pad=0.08)  # pyright: ignore
        axes = figure.subplots(1, 1 + len(panels), sharey=True)
        limits = {"origin": "lower", "interpolation": "nearest"}

        pair = ListedColormap([GROUND, GOAL])
        axes[0].imshow((rewards > 0).T, cmap=pair, vmin=0, vmax=1, **limits)
        axes[0].set_title("Rewards and data")
        axes[0].legend(
            handles=[
                Patch(facecolor=GOAL, edgecolor=PAPER, label=f"goal, +{goal_reward:g}"),
                Patch(facecolor=GROUND, edgecolor=PAPER, label="move, −1"),
            ],
            loc="upper right",
            labelcolor=PAPER,
            fontsize=9,
            borderaxespad=1.4,
            handlelength=1,
        )
        axes[0].set_ylabel("y")
        images = []
        for panel, (title, value, path, results) in zip(axes[1:], panels, strict=True):
            images.append(panel.imshow(rescale(value).T, cmap=VALUE_MAP, vmin=0, vmax=100, **limits))
            panel.set_title(title)
            _goals(panel, rewards > 0)
            _walk(panel, path)
            panel.set_xlabel(f"x\n{results}")
        for panel in axes:
            _border(panel, seen, PAPER)
            _start(panel)
            panel.set(xticks=range(0, side + 1, 10), yticks=range(0, side + 1, 10))
            panel.set(xlim=(-0.5, side + 0.5), ylim=(-0.5, side + 0.5), aspect="equal")
        axes[0].set_xlabel(f"x\n{seen.sum()} of {seen.size} cells seen")
        bar = figure.colorbar(images[-1], ax=axes[1:], shrink=0.72, pad=0.01, aspect=24)
        bar.set_label("V, rescaled to 0 … 100")
        bar.outline.set_visible(False)  # pyright: ignore
        _legend(figure, columns=5 if len(panels) > 1 else 3)
    return figure
