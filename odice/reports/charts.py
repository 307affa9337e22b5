"""Lines with bands as inline SVG, which a few lines of script let a finger or a pointer read.

Colors are the page's (`STYLE`), so that a chart is right in light, in dark and on paper. Without the script it is a
picture.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from typing import NamedTuple

from odice.reports.html import number, text

COLORS = 8
LIGHT = ("#0b62b8", "#c2500a", "#1a7f4b", "#a8327d", "#6b4fc9", "#8a6d00", "#0f7f8c", "#1d2530")
DARK = ("#6db1ff", "#ff9c5b", "#5fd39a", "#f28cc8", "#b3a1ff", "#e6c84f", "#58cfdd", "#f2f5f9")
WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 480, 290, 54, 10, 10, 42

STYLE = (
    f":root {{ {''.join(f'--c{i}:{color};' for i, color in enumerate(LIGHT))} }}\n"
    f"@media (prefers-color-scheme: dark) "
    f"{{ :root {{ {''.join(f'--c{i}:{color};' for i, color in enumerate(DARK))} }} }}\n"
    # Paper is white whatever the screen is.
    "@media print { :root { --ink:#1d2530; --soft:#5c6878; --line:#dfe4ea; --paper:#ffffff; --tint:#ffffff;"
    f" {''.join(f'--c{i}:{color};' for i, color in enumerate(LIGHT))} }} }}\n"
    + "".join(f".c{i} {{ --own:var(--c{i}); }}\n" for i in range(COLORS))
    + """.line { fill:none; stroke:var(--own); stroke-width:2; stroke-linejoin:round; }
.dash { stroke-dasharray:6 4; } .band { fill:var(--own); opacity:.16; } .dot { fill:var(--own); }
.cursor { stroke:var(--soft); stroke-width:1; stroke-dasharray:2 3; visibility:hidden; }
.chart { position:relative; } .chart svg { touch-action:pan-y; }
.keys { display:flex; flex-wrap:wrap; gap:.15rem 1rem; font-size:.82rem; margin-top:.3rem; }
.keys span { display:inline-flex; align-items:center; gap:.4rem; overflow-wrap:anywhere; }
.keys i { flex:none; width:1.3rem; border-top:3px solid var(--own); }
.keys i.dash { border-top-style:dashed; }
.tip { position:absolute; top:2.2rem; pointer-events:none; background:var(--paper); border:1px solid var(--line);
  border-radius:.4rem; padding:.35rem .6rem; font-size:.8rem; font-variant-numeric:tabular-nums; max-width:75%;
  box-shadow:0 2px 8px #0003; }
.tip div { display:flex; gap:.4rem; align-items:center; overflow-wrap:anywhere; }
.tip i { flex:none; width:.7rem; height:.7rem; border-radius:50%; background:var(--own); }
@media print { .tip, .cursor { display:none; } }
"""
)

SCRIPT = """
for (const figure of document.querySelectorAll('figure.chart')) {
  const svg = figure.querySelector('svg'), cursor = svg.querySelector('.cursor');
  const series = JSON.parse(svg.dataset.series), tip = document.createElement('div');
  tip.className = 'tip'; tip.hidden = true; figure.append(tip);
  const hide = () => { tip.hidden = true; cursor.style.visibility = 'hidden'; };
  const show = event => {
    const box = svg.getBoundingClientRect(), x = (event.clientX - box.left) * svg.viewBox.baseVal.width / box.width;
    const nearest = points => points.reduce((a, b) => Math.abs(b[0] - x) < Math.abs(a[0] - x) ? b : a);
    const at = nearest(series.flatMap(one => one.points)), lines = [];
    const title = document.createElement('b'); title.textContent = at[1]; lines.push(title);
    for (const one of series) {
      const point = one.points.find(each => each[0] === at[0]);
      if (!point) continue;
      const line = document.createElement('div'), dot = document.createElement('i');
      const words = document.createElement('span');
      line.className = 'c' + one.color; words.textContent = one.name + ': ' + point[2];
      line.append(dot, words); lines.push(line);
    }
    tip.replaceChildren(...lines); tip.hidden = false;
    cursor.setAttribute('x1', at[0]); cursor.setAttribute('x2', at[0]); cursor.style.visibility = 'visible';
    const inset = box.left - figure.getBoundingClientRect().left, wide = figure.clientWidth;
    const here = at[0] * box.width / svg.viewBox.baseVal.width + inset;
    tip.style.left = here < wide / 2 ? here + 12 + 'px' : 'auto';
    tip.style.right = here < wide / 2 ? 'auto' : wide - here + 12 + 'px';
  };
  svg.addEventListener('pointermove', show); svg.addEventListener('pointerdown', show);
  svg.addEventListener('pointerleave', hide);
}
"""


class Series(NamedTuple):
    """One line. `low` and `high` are its band; where there is none they are the line itself."""

    name: str
    color: int
    x: Sequence[float]
    y: Sequence[float]
    low: Sequence[float]
    high: Sequence[float]


def line_chart(series: Sequence[Series], *, title: str, x_label: str, y_label: str, percent: bool = False) -> str:
    """A figure with its legend. A value is told with both ends of its band."""
    values = [value for one in series for value in (*one.low, *one.high)]
    steps = [value for one in series for value in one.x]
    if not values:
        return ""
    x_ticks, y_ticks = ticks(min(steps), max(steps)), ticks(min(values), max(values))
    across = _Scale((min(steps), max(steps)), (LEFT, WIDTH - RIGHT))
    up = _Scale((y_ticks[0], y_ticks[-1]), (HEIGHT - BOTTOM, TOP))
    shapes = [_axes(x_ticks, y_ticks, across, up, percent), *_labels(x_label, y_label)]
    shapes += [_band(one, across, up) for one in series] + [_line(one, across, up) for one in series]
    shapes.append(f'<line class="cursor" y1="{TOP}" y2="{HEIGHT - BOTTOM}" x1="0" x2="0"/>')
    told = json.dumps([_told(one, across, x_label, percent) for one in series], separators=(",", ":"))
    told = text(told).replace("&quot;", '"')  # single quotes around it: the page is a seventh smaller
    keys = "".join(
        f'<span class="{_class(one.color)}"><i{_dashed(one.color)}></i>{text(one.name)}</span>' for one in series
    )
    return (
        f'<figure class="chart"><figcaption>{text(title)}</figcaption>'
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{text(title)}" data-series=\'{told}\'>'
        f'{"".join(shapes)}</svg><div class="keys">{keys}</div></figure>'
    )


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
    """A map from numbers to places; of a single number to the middle."""

    numbers: tuple[float, float]
    places: tuple[float, float]

    def __call__(self, value: float) -> float:
        (low, high), (start, end) = self.numbers, self.places
        return round(start + (end - start) * ((value - low) / (high - low) if high > low else 0.5), 1)


def _axes(x_ticks: list[float], y_ticks: list[float], across: _Scale, up: _Scale, percent: bool) -> str:
    shapes = []
    for value in y_ticks:
        y, name = up(value), f"{100 * value:.0f} %" if percent else _tick(value)
        shapes.append(f'<line class="axis" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y}" y2="{y}"/>')
        shapes.append(f'<text x="{LEFT - 6}" y="{y + 4}" text-anchor="end">{text(name)}</text>')
    low, high = across.numbers
    for value in x_ticks:
        if low <= value <= high:
            x, side = across(value), "end" if value == high else "middle"
            shapes.append(f'<text x="{x}" y="{HEIGHT - BOTTOM + 16}" text-anchor="{side}">{text(_tick(value))}</text>')
    return "".join(shapes)


def _labels(x_label: str, y_label: str) -> list[str]:
    middle = (TOP + HEIGHT - BOTTOM) / 2
    return [
        f'<text x="{(LEFT + WIDTH - RIGHT) / 2}" y="{HEIGHT - 6}" text-anchor="middle">{text(x_label)}</text>',
        f'<text transform="translate(12 {middle}) rotate(-90)" text-anchor="middle">{text(y_label)}</text>',
    ]


def _band(one: Series, across: _Scale, up: _Scale) -> str:
    if list(one.low) == list(one.high):
        return ""
    there = [f"{across(x)},{up(y)}" for x, y in zip(one.x, one.high, strict=True)]
    back = [f"{across(x)},{up(y)}" for x, y in zip(one.x, one.low, strict=True)][::-1]
    return f'<polygon class="band {_class(one.color)}" points="{" ".join(there + back)}"/>'


def _line(one: Series, across: _Scale, up: _Scale) -> str:
    places = [f"{across(x)},{up(y)}" for x, y in zip(one.x, one.y, strict=True)]
    if len(places) == 1:
        return f'<circle class="dot {_class(one.color)}" cx="{across(one.x[0])}" cy="{up(one.y[0])}" r="3.5"/>'
    dash = " dash" if one.color >= COLORS else ""
    return f'<polyline class="line {_class(one.color)}{dash}" points="{" ".join(places)}"/>'


def _told(one: Series, across: _Scale, x_label: str, percent: bool) -> dict[str, object]:
    """What the script shows: for each point its place, where it is, and its value."""
    show = (lambda value: f"{100 * value:.0f} %") if percent else (lambda value: number(value))
    points = []
    for x, y, low, high in zip(one.x, one.y, one.low, one.high, strict=True):
        band = "" if low == high else f" ({show(low)} to {show(high)})"
        points.append([across(x), f"{x_label} {number(x)}", f"{show(y)}{band}"])
    return {"name": one.name, "color": one.color % COLORS, "points": points}


def _tick(value: float) -> str:
    """Short: thousands as k, millions as M."""
    for size, letter in ((1e6, "M"), (1e3, "k")):
        if abs(value) >= 10 * size or (abs(value) >= size and (value / size * 10).is_integer()):
            return f"{value / size:g}{letter}"
    return f"{round(value, 10):g}"


def _class(color: int) -> str:
    return f"c{color % COLORS}"


def _dashed(color: int) -> str:
    return ' class="dash"' if color >= COLORS else ""
