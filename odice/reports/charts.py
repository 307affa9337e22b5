"""Line charts with bands and histograms, as inline SVG.

Colors are the page's, so that a chart is right in light, in dark and on paper. A script (`chart.js`) shows the values
under the pointer; without it the chart is a picture.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

from markupsafe import Markup, escape

from odice.reports.html import number, render
from odice.reports.palette import COLORS

WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 480, 290, 54, 470, 10, 248
"""The size of a chart, and the edges of its plot."""


class Series(NamedTuple):
    """One line. `low` and `high` are its band; where there is none they are the line itself."""

    name: str
    color: int
    x: Sequence[float]
    y: Sequence[float]
    low: Sequence[float]
    high: Sequence[float]


def line_chart(series: Sequence[Series], *, title: str, x_label: str, y_label: str, percent: bool = False) -> str:
    """Render a figure with its legend; nothing if there are no points."""
    values = [value for line in series for value in (*line.low, *line.high)]
    if not values:
        return ""
    steps = [value for line in series for value in line.x]
    start, end = min(steps), max(steps)
    x_ticks, y_ticks = ticks(start, end), ticks(min(values), max(values))
    x_scale, y_scale = _Scale((start, end), (LEFT, RIGHT)), _Scale((y_ticks[0], y_ticks[-1]), (BOTTOM, TOP))
    tooltips = json.dumps([_tooltips(line, x_scale, x_label, percent) for line in series], separators=(",", ":"))
    return render(
        "chart.html",
        title=title,
        x_label=x_label,
        y_label=y_label,
        rows=[(y_scale(value), _percent(value) if percent else _tick(value)) for value in y_ticks],
        columns=[
            (x_scale(value), _tick(value), "end" if value == end else "middle")
            for value in x_ticks
            if start <= value <= end
        ],
        lines=[_line(line, x_scale, y_scale) for line in series],
        values=Markup(str(escape(tooltips)).replace("&#34;", '"')),  # its attribute is in single quotes, for its size
        width=WIDTH,
        height=HEIGHT,
        left=LEFT,
        right=RIGHT,
        top=TOP,
        bottom=BOTTOM,
    )


def histogram(edges: Sequence[float], counts: Sequence[int], caption: str) -> str:
    """Render a histogram with the ends and the middle of its range, and its highest count."""
    width, height, left, right, top, bottom = 420, 170, 40, 416, 12, 148
    most = max([*counts, 1])
    step, tall = (right - left) / max(len(counts), 1), bottom - top
    bars = [
        {
            "x": f"{left + i * step + 0.5:.1f}",
            "y": f"{bottom - tall * count / most:.1f}",
            "width": f"{max(step - 1, 0.5):.1f}",
            "height": f"{tall * count / most:.1f}",
            "name": f"{edges[i]:.4g} to {edges[i + 1]:.4g}: {count}",
        }
        for i, count in enumerate(counts)
    ]
    marks = []
    if len(edges):
        middle = ((left + right) // 2, number((edges[0] + edges[-1]) / 2), "middle")
        marks = [(left, number(edges[0]), "start"), middle, (right, number(edges[-1]), "end")]
    box = {"width": width, "height": height, "left": left, "right": right, "top": top, "bottom": bottom}
    return render("histogram.html", caption=caption, bars=bars, marks=marks, most=most, **box)


def ticks(low: float, high: float, about: int = 5) -> list[float]:
    """Round numbers from at or below `low` to at or above `high`."""
    if not high > low:
        low, high = low - 0.5, high + 0.5
    rough = (high - low) / about
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(power * factor for factor in (1, 2, 5, 10) if power * factor >= rough * (1 - 1e-9))
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [i * step for i in range(first, last + 1)]


class _Scale(NamedTuple):
    """A linear map from a range of values to pixels; a single value maps to the middle."""

    values: tuple[float, float]
    pixels: tuple[float, float]

    def __call__(self, value: float) -> float:
        (low, high), (start, end) = self.values, self.pixels
        return round(start + (end - start) * ((value - low) / (high - low) if high > low else 0.5), 1)


def _line(line: Series, x_scale: _Scale, y_scale: _Scale) -> dict[str, Any]:
    """The shapes of a series: a polyline, or a dot for a single point, and its band."""

    def points(values: Sequence[float]) -> list[str]:
        return [f"{x_scale(x)},{y_scale(y)}" for x, y in zip(line.x, values, strict=True)]

    has_band = list(line.low) != list(line.high)
    return {
        "name": line.name,
        "color": f"c{line.color % COLORS}",
        "dashed": line.color >= COLORS,
        "points": " ".join(points(line.y)),
        "dot": (x_scale(line.x[0]), y_scale(line.y[0])) if len(line.x) == 1 else None,
        "band": " ".join([*points(line.high), *points(line.low)[::-1]]) if has_band else "",
    }


def _tooltips(line: Series, x_scale: _Scale, x_label: str, percent: bool) -> dict[str, Any]:
    """What the script shows of each point: its pixel, its position and its value with the band."""
    show = _percent if percent else number
    points = []
    for x, y, low, high in zip(line.x, line.y, line.low, line.high, strict=True):
        band = "" if low == high else f" ({show(low)} to {show(high)})"
        points.append([x_scale(x), f"{x_label} {number(x)}", f"{show(y)}{band}"])
    return {"name": line.name, "color": line.color % COLORS, "points": points}


def _percent(value: float) -> str:
    return f"{100 * value:.0f} %"


def _tick(value: float) -> str:
    """A short label: thousands as k, millions as M."""
    for size, letter in ((1e6, "M"), (1e3, "k")):
        if abs(value) >= 10 * size or (abs(value) >= size and (value / size * 10).is_integer()):
            return f"{value / size:g}{letter}"
    return f"{round(value, 10):g}"
