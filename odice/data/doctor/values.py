"""Checks of single values: what is stored in the columns, whatever the order of the rows."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from odice.d4rl import in_walls, maze_size
from odice.data.dataset import walk
from odice.data.doctor.finding import Finding, Severity
from odice.data.doctor.scan import Columns, Scan


def not_finite(scan: Scan) -> Iterator[Finding]:
    """NaN or inf anywhere: one bad row makes the loss NaN within an epoch."""
    for kind, columns, place in (
        ("observations", scan.observation, scan.observation_place),
        ("actions", scan.action, scan.step_place),
        ("rewards", scan.reward, scan.step_place),
    ):
        if not columns.bad.any():
            continue
        worst = int(np.argmax(columns.bad))
        first = int(columns.first_bad[columns.bad > 0].min())
        where = place(first)
        yield Finding(
            "not-finite",
            "error",
            f"{int(columns.bad.sum()):,} of the numbers in the {kind} {'is' if columns.bad.sum() == 1 else 'are'} NaN "
            f"or infinite, in {int((columns.bad > 0).sum())} of {len(columns.names)} columns; the first in episode "
            f"{where['episode']}, step {where['step']}.",
            f"Most are in {columns.names[worst]}. Fill them in (tables: --missing forward-fill or impute), or split "
            "the episodes there (--missing split): a row dropped from the middle of "
            "an episode joins two distant states.",
            {
                "array": kind,
                "columns": {columns.names[i]: int(columns.bad[i]) for i in np.flatnonzero(columns.bad)},
                "first": where,
            },
        )


def constant_columns(scan: Scan) -> Iterator[Finding]:
    """Columns that never change carry nothing; an action that never changes was not under control."""
    if scan.dataset.n_steps < 2:
        return
    kinds: tuple[tuple[Columns, Severity, str], ...] = (
        (
            scan.observation,
            "note",
            "Leave them out, or check that the sensor was connected; normalization is safe for them.",
        ),
        (scan.action, "warning", "A policy cannot learn what this action does; check the column, or leave it out."),
    )
    for columns, severity, advice in kinds:
        still = np.flatnonzero((columns.low == columns.high) & (columns.bad < len(columns.values)))
        if still.size:
            names = [columns.names[i] for i in still]
            yield Finding(
                "constant-column",
                severity,
                f"{_names(names)} never {'changes' if len(names) == 1 else 'change'}.",
                advice,
                {"columns": {columns.names[i]: float(columns.low[i]) for i in still}},
            )


def duplicate_columns(scan: Scan) -> Iterator[Finding]:
    """Two observation columns with the same numbers in every row."""
    columns = scan.observation
    moving = [i for i in range(len(columns.names)) if columns.low[i] < columns.high[i]]
    groups: dict[bytes, list[int]] = {}
    for i in moving:  # the sample decides who is worth a full comparison
        groups.setdefault(np.ascontiguousarray(columns.sample[:1000, i]).tobytes(), []).append(i)
    pairs = [(g[0], j) for g in groups.values() for j in g[1:] if _same(columns.values, g[0], j)]
    if pairs:
        named = [(columns.names[i], columns.names[j]) for i, j in pairs]
        yield Finding(
            "duplicate-column",
            "note",
            f"{len(pairs)} observation column{'s repeat' if len(pairs) > 1 else ' repeats'} another: {named[0][1]} "
            f"equals {named[0][0]}{' and others' if len(pairs) > 1 else ''}.",
            "Harmless for training, but check that the right columns were chosen.",
            {"pairs": named},
        )


def extreme_values(scan: Scan) -> Iterator[Finding]:
    """Single values far beyond everything else: a broken sensor, a sentinel such as -999, a wrong unit.

    Beyond 20 times the half-width of the central 99 %, and 3 times as far as any value that is not: normal noise
    reaches 2 times that half-width; velocities in contacts reach farther, but with every value in between. Columns that
    rest half of the time (contact forces, switches, sparse rewards) have no width to compare with, and a large reward
    at the end of episodes is a goal; both are left alone.
    """
    for columns, place in ((scan.observation, scan.observation_place), (scan.reward, scan.step_place)):
        low, quarter, middle, three, high = columns.quantiles
        half = np.where(three > quarter, (high - low) / 2, 0)
        reach = np.maximum(columns.high - middle, middle - columns.low)
        for i in np.flatnonzero((half > 0) & (reach > 20 * half)):
            outliers, rows = _outliers(columns, int(i), float(middle[i]), float(half[i]))
            if not outliers.size or (columns is scan.reward and np.isin(rows, scan.dataset.ends).all()):
                continue
            far = int(np.argmax(np.abs(outliers - middle[i])))
            value, where = float(outliers[far]), place(int(rows[far]))
            count, repeats = len(outliers), int((outliers == value).sum())
            sentinel = (
                f"; the value {value:g} occurs {repeats} times, like a mark for missing data" if repeats > 2 else ""
            )
            yield Finding(
                "extreme-value",
                "warning",
                f"{columns.names[i]} reaches {value:g} in episode {where['episode']}, step {where['step']}, while 99 % "
                f"of its values lie in {low[i]:.3g} to {high[i]:.3g} ({count} such "
                f"value{'s' if count > 1 else ''}{sentinel}).",
                "Clip them or leave them empty (`--missing` fills or splits there): they dominate normalization and "
                "the loss. Do not drop single rows: that joins two distant states.",
                {"column": columns.names[i], "value": value, "count": count, "repeats": repeats, "first": where},
            )


def far_from_zero(scan: Scan) -> Iterator[Finding]:
    """A large offset eats the digits of float32: a column of clock times in seconds moves in steps of two minutes.

    float32 has 24 bits, so the offset m rounds to steps of m / 2^24; a hundredth of the column's spread is too coarse.
    """
    columns = scan.observation
    low, _, middle, _, high = columns.quantiles
    spread = high - low
    coarse = np.flatnonzero((spread > 0) & (np.abs(middle) * 2.0**-24 > 1e-2 * spread))
    if coarse.size:
        i = int(coarse[0])
        yield Finding(
            "rounded-column",
            "warning",
            f"{_names([columns.names[j] for j in coarse])} lies so far from zero ({middle[i]:.6g}) that float32 keeps "
            f"only steps of {abs(middle[i]) * 2.0**-23:.2g} of a spread of {spread[i]:.2g}.",
            "Subtract a fixed offset before saving (the start time, a reference position).",
            {"columns": {columns.names[j]: float(middle[j]) for j in coarse}},
        )


def reward_signal(scan: Scan) -> Iterator[Finding]:
    """Rewards that say nothing: all zero, or the same for every step of episodes that never terminate."""
    low, high = float(scan.reward.low[0]), float(scan.reward.high[0])
    data = scan.dataset
    if scan.reward.bad[0] == data.n_steps or low != high:
        return
    if low == 0:
        yield Finding(
            "zero-rewards",
            "error",
            f"All {data.n_steps:,} rewards are zero, so every policy looks equally good.",
            "Check that the reward column was chosen and that the goal was ever reached; imitation learning does not "
            "need rewards.",
            {"steps": data.n_steps},
        )
    elif not data.terminated.any() and len(np.unique(data.lengths)) == 1:
        yield Finding(
            "constant-rewards",
            "warning",
            f"Every step has the reward {low:g} and no episode terminates, so every policy looks equally good.",
            "Check the reward column, and whether terminations were recorded as timeouts.",
            {"value": low},
        )


def action_bounds(scan: Scan) -> Iterator[Finding]:
    """Actions outside the declared bounds, or no bounds for actions that need some."""
    data, columns = scan.dataset, scan.action
    if data.discrete:
        return
    if scan.bounds is None:
        beyond = np.flatnonzero(np.maximum(columns.high, -columns.low) > 1 + 1e-5)
        if beyond.size:
            reach = [f"{columns.names[i]} reaches from {columns.low[i]:.4g} to {columns.high[i]:.4g}" for i in beyond]
            low, high = (_brief(bounds) for bounds in (columns.low, columns.high))
            yield Finding(
                "unknown-bounds",
                "error",
                f"{_names(reach)}, but no bounds are known and the policy acts in -1 to 1.",
                f"Declare the bounds, so that actions can be mapped; those seen are --action-low {low} --action-high "
                f"{high} (`action_low` and `action_high` in a schema).",
                {"low": columns.low.tolist(), "high": columns.high.tolist()},
            )
        return
    low, high = scan.bounds
    width = np.where(np.isfinite(high - low), high - low, 0)
    excess = np.maximum(columns.high - high, low - columns.low)
    over = np.flatnonzero(excess > 1e-6 * width + 1e-6)  # float32 rounding of the bounds themselves is no finding
    if not over.size:
        return
    count = 0
    for _, part in walk(columns.values):
        count += int(((part > high + 1e-6) | (part < low - 1e-6)).any(axis=1).sum())
    i = int(over[np.argmax(excess[over] / np.maximum(width[over], 1e-30))])  # in parts of its own range
    yield Finding(
        "action-out-of-bounds",
        # A controller may overshoot by rounding; more than a hundredth of the range is another unit or another bound.
        "error" if (excess[over] > 0.01 * width[over]).any() else "warning",
        f"{count:,} of {data.n_steps:,} steps have actions outside the declared bounds; {columns.names[i]} reaches "
        f"{columns.low[i]:.4g} to {columns.high[i]:.4g} where {low[i]:.4g} to {high[i]:.4g} is declared.",
        "Correct the declared bounds, or clip the actions if the robot clipped them.",
        {"columns": [columns.names[j] for j in over], "steps": count, "largest_excess": float(excess[i])},
    )


def action_kind(scan: Scan) -> Iterator[Finding]:
    """Discrete actions that never occur, and continuous ones that look discrete."""
    data = scan.dataset
    if data.discrete:
        n = data.spec.action_dim
        missing = np.flatnonzero(scan.action_counts[:n] == 0)
        if missing.size and data.n_steps >= 20 * n:
            hint = "; numbers seem to start at 1" if missing.tolist() == [0] else ""
            yield Finding(
                "unused-actions",
                "note",
                f"{missing.size} of {n} actions never occur (the first is {missing[0]}){hint}.",
                "Renumber the actions from 0, or accept that nothing can be learnt about the missing ones.",
                {"actions": missing[:100].tolist()},
            )
        return
    columns = scan.action
    values = columns.sample
    # A single action with few, whole values is a choice; pandas turns such columns to floats when a cell is empty.
    if values.shape[1] == 1 and len(values) >= 100 and (values == np.floor(values)).all():
        kinds = np.unique(values)
        if 2 < len(kinds) <= 20 and kinds[0] >= 0:
            yield Finding(
                "whole-number-actions",
                "warning",
                f"The action takes only the whole numbers {kinds[0]:.0f} to {kinds[-1]:.0f} but is read as continuous.",
                "If it is a choice among options, declare it discrete (`--discrete True`).",
                {"values": kinds.tolist()},
            )


WALL_DEPTH, WALL_SHARE = 0.1, 0.01
"""How deep in a wall, in meters, no torso comes, and the share of positions beyond which a file is another maze's."""


def in_maze_walls(scan: Scan) -> Iterator[Finding]:
    """Positions inside the walls of the maze that the data set names: these are other coordinates, or another maze."""
    data = scan.dataset
    size = maze_size(data.meta.env_id)
    if size is None or data.observations.shape[1] < 2:
        return
    inside, first = 0, None
    for block, part in walk(data.observations):
        bad = np.flatnonzero(in_walls(part[:, :2], size, WALL_DEPTH))
        inside += len(bad)
        if first is None and len(bad):
            first = scan.observation_place(block.start + int(bad[0]))
    share = inside / len(data.observations)
    if first is not None and share > WALL_SHARE:
        yield Finding(
            "in-walls",
            "error",
            f"{share:.0%} of the positions lie in the walls of {data.meta.env_id}, the first in episode "
            f"{first['episode']}, step {first['step']}.",
            "The data are of another maze or in other coordinates (D4RL's origin is the start cell, and y grows with "
            "the row of the map): name the environment they belong to.",
            {"positions": inside, "share": share},
        )


def _same(values: np.ndarray, i: int, j: int) -> bool:
    return all(np.array_equal(part[:, i], part[:, j], equal_nan=True) for _, part in walk(values))


def _outliers(columns: Columns, i: int, middle: float, half: float) -> tuple[np.ndarray, np.ndarray]:
    """The values of a column beyond the widest gap in its tail, and their rows; none if there is no such gap."""
    tail: list[np.ndarray] = []
    at: list[np.ndarray] = []
    for block, rows in walk(columns.values):
        part = np.asarray(rows[:, i], np.float64)
        hit = np.flatnonzero(np.isfinite(part) & (np.abs(part - middle) > half))
        tail.append(part[hit])
        at.append(hit + block.start)
    values, rows = np.concatenate(tail), np.concatenate(at)
    distance = np.abs(values - middle)
    order = np.argsort(distance)
    ratio = distance[order][1:] / np.maximum(distance[order][:-1], half)
    ratio[distance[order][1:] <= 20 * half] = 0
    gap = int(np.argmax(ratio)) if ratio.size else -1
    beyond = order[gap + 1 :] if gap >= 0 and ratio[gap] >= 3 else order[:0]
    return values[beyond], rows[beyond]


def _brief(bounds: np.ndarray) -> str:
    """Bounds as a command line takes them."""
    return " ".join(f"{bound:.6g}" for bound in bounds[:20])


def _names(names: list[str]) -> str:
    return ", ".join(names[:4]) + (f" and {len(names) - 4} more" if len(names) > 4 else "")
