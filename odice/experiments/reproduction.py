"""The paper's tables and figures from finished runs, with the published numbers for comparison.

A published number is shown only next to runs on the same D4RL data set. Runs on other data are labelled by their names,
and every title says what the data are.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from odice.d4rl import REFERENCES, normalized_score
from odice.envs.make import resolve
from odice.errors import OdiceError
from odice.experiments.published import CORL, LABELS, PAPER, Score, corl_score, paper_score
from odice.experiments.reproduce import StudyRun
from odice.experiments.studies import VARIANT
from odice.reports.compare import Comparison, Curve, Group, curve
from odice.reports.figures import FAINT, VALUE_MAP, columns_for, figure_style, fill_empty
from odice.reports.palette import COLORS, LIGHT
from odice.reports.runs import FINAL, RunEvaluation, RunRecord, read_run
from odice.reports.tables import Cell, ReportTable, last_evaluations, spread
from odice.training.loggers import rows

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def gather(runs: Iterable[StudyRun], last: int = FINAL) -> Comparison:
    """The runs of a study that have begun, in the study's order; a run counts by the mean of its `last` evaluations."""
    records: dict[tuple[str, str], list[RunRecord]] = defaultdict(list)
    for run in runs:
        if (run.path / "config.json").exists():
            records[run.data, run.method].append(read_run(run.path))
    points: dict[str, list[RunEvaluation]] = defaultdict(list)
    for (data, _), members in records.items():
        points[data] += [point for run in members for point in run.evaluations]
    scored = {data: all(point.reference for point in seen) for data, seen in points.items()}
    groups = [Group(data, method, scored[data], tuple(members), last) for (data, method), members in records.items()]
    return Comparison(tuple(groups), ())


def labelled(comparison: Comparison) -> Comparison:
    """The same with the papers' names of the methods, for a page or a figure."""
    return replace(comparison, groups=tuple(replace(group, method=label(group.method)) for group in comparison.groups))


def label(method: str) -> str:
    """What papers call a method: the algorithm, and its variant or settings behind it."""
    method, _, variant = method.partition(VARIANT)
    algo = max((each for each in LABELS if method == each or method.startswith(f"{each}-")), key=len, default=method)
    settings = method.removeprefix(algo).replace("-", " ")
    return f"{LABELS.get(algo, algo)}{settings}{f', {variant}'.replace('-', ' ') if variant else ''}"


# --- tables -----------------------------------------------------------------------------------------------------------


def score_table(comparison: Comparison, title: str, note: str) -> ReportTable:
    """Data sets down, methods across; after an algorithm's columns the published scores, where one belongs to the data.

    A published number is shown only where the runs of its algorithm were evaluated in the environment of the data set.
    """
    columns = _columns(comparison)
    head = ["data"] + [label(method) if where is None else f"{label(method)}: {where}" for method, where in columns]
    body, elsewhere = [], {}
    for data in comparison.data:
        groups = {group.method: group for group in comparison.of(data)}
        best = max((g.interval.value for g in groups.values() if g.interval), default=None)
        unit = "" if next(iter(groups.values())).scored else " (return)"
        row = [Cell(f"{data}{unit}")]
        if env := other_world(data, groups.values()):
            elsewhere[data] = env
        for method, where in columns:
            if where is None:
                group = groups.get(method)
                wins = group is not None and group.interval is not None and group.interval.value == best
                row.append(Cell("–") if group is None else spread(group, wins))
            else:
                row.append(_score(None if data in elsewhere else PUBLISHED[where](data, method)))
        body.append(row)
    sources = [f"{name}: {source}." for name, source in SOURCES.items() if any(where == name for _, where in columns)]
    unit = (
        "Normalized scores unless a row says return; "
        f"mean ± standard deviation over seeds of the mean of a run's {last_evaluations(comparison)}."
    )
    empty = [
        f"No published number belongs to {data}: its runs were evaluated in {env}." for data, env in elsewhere.items()
    ]
    return ReportTable(title, head, body, " ".join([note, unit, *sources, *empty]))


PUBLISHED = {"paper": paper_score, "CORL": corl_score}
SOURCES = {"paper": PAPER, "CORL": CORL}


def _columns(comparison: Comparison) -> list[tuple[str, str | None]]:
    """Our columns (method, None); after the last one of an algorithm those of the sources that have numbers for it."""
    columns: list[tuple[str, str | None]] = []
    algos = [method.partition(VARIANT)[0] for method in comparison.methods]
    for i, (method, algo) in enumerate(zip(comparison.methods, algos, strict=True)):
        columns.append((method, None))
        if algo not in algos[i + 1 :]:
            columns += [
                (algo, name) for name, score in PUBLISHED.items() if any(score(d, algo) for d in comparison.data)
            ]
    return columns


def other_world(data: str, groups: Iterable[Group]) -> str | None:
    """The environment in which a D4RL data set's runs were evaluated, where it is not the one of its name."""
    name = next((known for known in REFERENCES if data == known or data.startswith(f"{known}-traj-")), None)
    if name is None:
        return None
    right = resolve(name).env_id
    for group in groups:
        for run in group.runs:
            for env in {str(row.get("env_id")) for row in rows(run.path / "evaluations.jsonl")}:
                if _env_id(env) != right:
                    return env
    return None


def _env_id(name: str) -> str | None:
    try:
        return resolve(name).env_id
    except OdiceError:
        return None


def _score(score: Score | None) -> Cell:
    return Cell("") if score is None else Cell(score.text, score.mean)


def robustness_table(comparison: Comparison, note: str) -> ReportTable:
    """The percent difference of the worst episode at the last evaluation, mean over seeds."""
    body = []
    for data in comparison.data:
        groups = {group.method: worst_differences(group) for group in comparison.of(data)}
        cells = [Cell(data)]
        for method in comparison.methods:
            values = groups.get(method) or []
            cells.append(Cell(f"{np.mean(values):.1f}", float(np.mean(values))) if values else Cell("–"))
        body.append(cells)
    definition = (
        f"100 (worst - mean) / |mean| over the first {WORST_OF} episodes of a run's last evaluation, mean over seeds; "
        "0 is the most robust."
    )
    return ReportTable(
        "Percent difference of the worst episode",
        ["data", *map(label, comparison.methods)],
        body,
        f"{note} {definition}",
    )


def sensitivity_table(comparison: Comparison, note: str) -> ReportTable:
    """How far scores lie apart over lambda: of S-DICE, and of O-DICE for each eta."""
    body = []
    for data in comparison.data:
        lines: dict[tuple[str, str], list[tuple[str, float]]] = defaultdict(list)
        for group in comparison.of(data):
            algo, chosen = parse(group.method)
            if group.interval is not None and "lam" in chosen:
                eta = f"eta {chosen['eta']}" if "eta" in chosen else "–"
                lines[label(algo), eta].append((chosen["lam"], group.interval.value))
        for (name, eta), points in lines.items():
            values = [value for _, value in points]
            ends = [max(values), min(values), max(values) - min(values)]
            best = max(points, key=lambda point: point[1])[0]
            cells = [Cell(f"{value:.1f}", value) for value in ends]
            body.append([Cell(data), Cell(name), Cell(eta), Cell(best), *cells, Cell(str(len(values)), len(values))])
    head = ["data", "method", "eta", "best lambda", "best", "worst", "apart", "lambdas"]
    note = f"{note} Mean over seeds of the {last_evaluations(comparison)}."
    return ReportTable("Over lambda", head, body, note, words=3)


SETTING_METRICS = {"value_mean": "V", "weight_ess": "share with weight"}
"""Metrics that say how a setting of lambda works, and their names in a table."""


def settings_table(comparison: Comparison, note: str) -> ReportTable:
    """Each setting with its score, and at the end of training the mean V and the share of a batch that has weight."""
    body = []
    for group in (group for data in comparison.data for group in comparison.of(data)):
        algo, chosen = parse(group.method)
        if group.interval is None or "lam" not in chosen:
            continue
        score = group.interval.value
        cells = [Cell(group.data), Cell(label(algo)), Cell(chosen["lam"]), Cell(chosen.get("eta", "–"))]
        cells += [Cell(f"{score:.1f}", score)]
        for name in SETTING_METRICS:
            tail = metric_curve(group, name).mean
            value = float(np.mean(tail[-max(1, len(tail) // 10) :])) if tail else float("nan")
            cells.append(Cell(f"{value:.3g}", value) if tail else Cell("–"))
        body.append(cells)
    head = ["data", "method", "lambda", "eta", "score", *SETTING_METRICS.values()]
    about = (
        f"Score: mean over seeds of the {last_evaluations(comparison)}. V in units of the mapped rewards, and the "
        "effective sample of a batch as a share of it: means over the last tenth of training."
    )
    return ReportTable("Each setting", head, body, f"{note} {about}", words=4)


def parse(method: str) -> tuple[str, dict[str, str]]:
    """`odice-lam=0.5-eta=0.2` as the algorithm and its settings."""
    algo, *rest = method.split("-")
    while rest and "=" not in rest[0]:
        algo = f"{algo}-{rest.pop(0)}"
    return algo, dict(part.split("=", 1) for part in rest if "=" in part)


# --- numbers of figures -----------------------------------------------------------------------------------------------


WORST_OF = 10
"""Episodes of which the paper takes the worst."""


def worst_differences(group: Group) -> list[float]:
    """One percent difference for each finished seed whose last mean is not 0, as the paper takes it."""
    differences = []
    for run in group.finished:
        last = list(rows(run.path / "evaluations.jsonl"))[-1:]
        if not last or not run.evaluations:
            continue
        returns = np.asarray(last[0]["returns"][:WORST_OF], float)
        values = normalized_score(returns, run.evaluations[-1].reference) if group.scored else returns
        if mean := float(np.mean(values)):
            differences.append(100.0 * (float(np.min(values)) - mean) / abs(mean))
    return differences


def metric_curve(group: Group, name: str) -> Curve:
    """A metric over training, where all seeds have it."""
    at: dict[int, list[float]] = defaultdict(list)
    runs = group.finished or group.runs
    for run in runs:
        for row in rows(run.path / "metrics.jsonl"):
            value = row.get(name)
            if isinstance(value, int | float) and np.isfinite(value):
                at[row["step"]].append(float(value))
    return curve({step: values for step, values in at.items() if len(values) == len(runs)})


# --- figures ----------------------------------------------------------------------------------------------------------


def figure3(comparison: Comparison, title: str) -> Figure:
    """Above: the worst episode at the last evaluation. Below: the feature product over training, for each data set."""
    from matplotlib.figure import Figure
    from matplotlib.ticker import FuncFormatter

    products = {
        data: [
            (group, curve) for group in comparison.of(data) if (curve := metric_curve(group, "feature_product")).steps
        ]
        for data in comparison.data
    }
    shown = [data for data, curves in products.items() if curves]
    columns = columns_for(len(shown))
    lines = -(-len(shown) // columns)
    with figure_style():
        figure = Figure(figsize=(max(3.1 * columns, 7), 3.4 + 2.6 * lines), layout="constrained")
        figure.suptitle(title, x=0.01, ha="left", fontsize=10)
        top, *below = figure.subfigures(
            1 + bool(lines), 1, height_ratios=[3.4, *([2.6 * lines] * bool(lines))], squeeze=False
        )[:, 0]
        _differences(top.subplots(), comparison)
        if below:
            flat = list(below[0].subplots(lines, columns, squeeze=False).flat)
            for axes, data in zip(flat, shown, strict=False):
                for group, curve in products[data]:
                    _line(axes, comparison, group.method, curve)
                axes.set_title(data, fontsize=8.5)
                _logarithmic(axes, all(value > 0 for _, curve in products[data] for value in curve.mean))
                axes.xaxis.set_major_formatter(FuncFormatter(lambda x, _: _thousands(x)))
                axes.set_xlabel("updates", fontsize=8)
                axes.tick_params(labelsize=7.5)
            known = {str(line.get_label()): line for axes in flat for line in axes.get_lines()}
            fill_empty(below[0], flat[len(shown) :], known)
            flat[0].set_ylabel("∇V(s)·∇V(s′), mean", fontsize=8)
    return figure


def _logarithmic(axes: Axes, positive: bool) -> None:
    """Ticks at 1, 2 and 5 of every power of ten: a range of less than one still has some."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    axes.set_yscale("log" if positive else "symlog")
    if positive:
        axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axes.yaxis.set_major_formatter(FuncFormatter(lambda y, _: _thousands(y)))
        axes.yaxis.set_minor_formatter(NullFormatter())


def _thousands(value: float) -> str:
    return f"{value / 1000:g}k" if abs(value) >= 1000 else f"{value:g}"


def _differences(axes: Axes, comparison: Comparison) -> None:
    width = 0.8 / max(len(comparison.methods), 1)
    for i, method in enumerate(comparison.methods):
        for at, data in enumerate(comparison.data):
            values = [v for group in comparison.of(data) if group.method == method for v in worst_differences(group)]
            if not values:
                continue
            x = at - 0.4 + width * (i + 0.5)
            known = label(method) if not any(bar.get_label() == label(method) for bar in axes.containers) else "_"
            axes.bar([x], [np.mean(values)], width * 0.9, color=LIGHT[i % COLORS], alpha=0.85, label=known)
            axes.scatter([x] * len(values), values, s=10, color="#1f2430", zorder=3, linewidths=0)
    axes.axhline(0, color=FAINT, linewidth=0.8)
    axes.set_xticks(
        range(len(comparison.data)),
        comparison.data,
        rotation=20 if len(comparison.data) > 3 else 0,
        ha="right" if len(comparison.data) > 3 else "center",
        fontsize=8,
    )
    axes.set_ylabel("worst episode: % off the mean", fontsize=8.5)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(loc="upper center", bbox_to_anchor=(0.5, 1.16), ncols=len(comparison.methods), fontsize=9)


def _line(axes: Axes, comparison: Comparison, method: str, curve: Curve) -> None:
    color = LIGHT[comparison.methods.index(method) % COLORS]
    steps, mean, low, high = curve
    marker = "o" if len(steps) == 1 else None
    axes.plot(steps, mean, color=color, linewidth=1.6, marker=marker, markersize=4, label=label(method))
    axes.fill_between(steps, low, high, color=color, alpha=0.16, linewidth=0)
    axes.spines[["top", "right"]].set_visible(False)


def sensitivity_figure(comparison: Comparison, title: str) -> Figure:
    """For each data set a map of O-DICE's scores over lambda and eta, and S-DICE's over lambda."""
    from matplotlib.figure import Figure

    columns = columns_for(len(comparison.data), 3)
    with figure_style():
        figure = Figure(figsize=(4.6 * columns, 3.9 * -(-len(comparison.data) // columns) + 0.3), layout="constrained")
        figure.suptitle(title, x=0.01, ha="left", fontsize=10)
        flat = list(figure.subplots(-(-len(comparison.data) // columns), columns, squeeze=False).flat)
        for axes, data in zip(flat, comparison.data, strict=False):
            _map(figure, axes, data, comparison.of(data))
        for axes in flat[len(comparison.data) :]:
            axes.axis("off")
    return figure


def _map(figure: Figure, axes: Axes, data: str, groups: Sequence[Group]) -> None:
    values: dict[tuple[str, str], float] = {}
    scored = all(group.scored for group in groups)
    for group in groups:
        algo, chosen = parse(group.method)
        if group.interval is not None and "lam" in chosen:
            values[chosen["lam"], chosen.get("eta", label(algo))] = group.interval.value
    lams = sorted({lam for lam, _ in values}, key=float)
    etas = sorted({eta for _, eta in values}, key=lambda eta: (eta[0].isdigit(), eta))
    grid = np.array([[values.get((lam, eta), np.nan) for eta in etas] for lam in lams]).reshape(len(lams), len(etas))
    image = axes.imshow(grid, origin="lower", cmap=VALUE_MAP, aspect="auto")
    middle = (np.nanmin(grid) + np.nanmax(grid)) / 2 if np.isfinite(grid).any() else 0.0
    axes.set_facecolor("#e6e8ec")
    for (row, column), value in np.ndenumerate(grid):
        if not np.isfinite(value):
            axes.text(column, row, "no run", ha="center", va="center", color="#1f2430", fontsize=7)
        else:
            ink = "#ffffff" if value < middle else "#1f2430"
            axes.text(
                column,
                row,
                f"{value:.0f}" if scored else f"{value:.3g}",
                ha="center",
                va="center",
                color=ink,
                fontsize=8,
            )
    axes.set_xticks(range(len(etas)), [eta if not eta[0].isdigit() else f"η {eta}" for eta in etas], fontsize=8)
    axes.set_yticks(range(len(lams)), [f"λ {lam}" for lam in lams], fontsize=8)
    apart = sum(not eta[0].isdigit() for eta in etas) - 0.5
    axes.axvline(apart, color="#ffffff", linewidth=3)
    axes.set_xlabel("S-DICE, and O-DICE with η", fontsize=8.5)
    axes.set_title(f"{data}, {'score' if scored else 'return'}", fontsize=9)
    figure.colorbar(image, ax=axes, shrink=0.8)
