"""Columns of the observation that say what is only known later: the action, the reward, the end, the return; and ids.

A policy that is trained on such a column looks excellent and is useless, because nobody knows the column's value when
the policy has to act. Only what is all but certain is reported: a column counts as giving something away if at most one
in a hundred of the errors is left that one makes without the column. A column that merely predicts well is what a
column is for.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from odice.data.dataset import Dataset, pick
from odice.data.doctor.finding import Finding
from odice.data.doctor.scan import Scan

ROWS = 20_000
LEFT = 0.01
"""Share of the errors that may be left."""
EXACT = 1e-5
"""Share of the variance that may be left of a number that a column gives away: rounding."""
GROUP = 20
"""Rows per value of a column, at least, on average: of a column that never repeats itself every value is a rule."""
ERRORS = 20
"""What is nearly always the same cannot be given away: without the column there must be so many errors."""
FEW_VALUES = 30
EPISODES = 30
LATER = "Leave it out of the observation, unless it is known before the action is taken."


def leaked_steps(scan: Scan) -> Iterator[Finding]:
    """Columns that equal or determine the action, the reward or the end of their own step, or those of the next."""
    data = scan.dataset
    if scan.observation.bad.any() or scan.action.bad.any() or scan.reward.bad.any():
        return
    rows = np.sort(np.random.default_rng(0).choice(data.n_steps, min(data.n_steps, ROWS), replace=False))
    owner = np.searchsorted(data.ends, rows)
    seen = pick(data.observations, rows + owner).astype(np.float64)
    inner = rows < data.ends[owner]
    every, followed = _columns(seen), _columns(seen[inner])
    targets = {
        ("leaked-action", "the action of its own step"): (_at(data.actions, rows), every),
        ("leaked-reward", "the reward of its own step"): (_at(data.rewards, rows), every),
        ("leaked-end", "whether the episode ends with its step"): (_at(_ends(data), rows), every),
        ("leaked-future", "the next step's action"): (_at(data.actions, rows[inner] + 1), followed),
        ("leaked-future", "the next step's reward"): (_at(data.rewards, rows[inner] + 1), followed),
    }
    clocks = _clocks(data)
    for (code, what), (target, columns) in targets.items():
        names = [
            name
            for j, name in enumerate(scan.observation.names)
            if not (clocks[j] and code == "leaked-end")  # episodes may well end at a fixed time
            and any(_determines(columns[j], y) for y in target)
        ]
        if names:
            yield Finding(
                code,
                "warning",
                f"{_listed(names)} of the observation {'gives' if len(names) == 1 else 'give'} away {what}.",
                LATER,
                {"columns": names, "what": what},
            )


def leaked_returns(scan: Scan) -> Iterator[Finding]:
    """Columns that stay the same within an episode and say what it will earn; and columns that number the episodes."""
    data = scan.dataset
    if scan.observation.bad.any() or scan.reward.bad.any() or data.n_episodes < EPISODES:
        return
    first = pick(data.observations, data.starts + np.arange(data.n_episodes)).astype(np.float64)
    last = pick(data.observations, data.ends + np.arange(data.n_episodes)).astype(np.float64)
    still = (first == last).all(axis=0) & (data.lengths.max() > 1)
    outcomes, ids = [], []
    for j, name in enumerate(scan.observation.names):
        if still[j] and np.ptp(first[:, j]) > 0 and _constant_within(data, j):
            # Nothing that is known from the start explains all but a fiftieth of what a whole episode earns.
            line = np.corrcoef(first[:, j], data.returns)[0, 1] ** 2 if np.ptp(data.returns) > 0 else 0.0
            if line > 0.98 or _determines(_column(first[:, j]), _column(data.returns), group=5):
                outcomes.append(name)
            elif _numbers(first[:, j]):
                ids.append(name)
        elif data.lengths.max() == 1 and _numbers(first[:, j]):
            ids.append(name)
    if outcomes:
        yield Finding(
            "leaked-return",
            "warning",
            f"{_listed(outcomes)} of the observation {'stays' if len(outcomes) == 1 else 'stay'} the same within an "
            "episode and give away what it earns in the end.",
            LATER,
            {"columns": outcomes},
        )
    if ids:
        yield Finding(
            "id-column",
            "warning",
            f"{_listed(ids)} of the observation {'numbers' if len(ids) == 1 else 'number'} the episodes.",
            "Leave it out: by a number that only names an episode, a policy can memorize the episode.",
            {"columns": ids},
        )


def time_backwards(scan: Scan) -> Iterator[Finding]:
    """A clock among the observations that runs backwards inside an episode: rows are out of order."""
    data = scan.dataset
    if scan.observation.bad.any():
        return
    backwards = []
    for j, name in enumerate(scan.observation.names):
        change, before, after = _changes(data, j)
        if len(change) < 50 or not (change < 0).any():
            continue
        usual = np.median(change)
        # A clock moves by the same amount nearly everywhere; one that wraps (an hour of the day) goes back all its way.
        if usual <= 0 or np.mean(np.isclose(change, usual, rtol=1e-3)) < 0.95:
            continue
        low, high = before.min(), before.max()
        tenth = 0.1 * (high - low)
        inside = (change < 0) & ~((before > high - tenth - usual) & (after < low + tenth + usual))
        if inside.any():
            backwards.append((name, int(inside.sum())))
    if backwards:
        names = [name for name, _ in backwards]
        yield Finding(
            "time-backwards",
            "warning",
            f"{_listed(names)} of the observation: a clock that goes back {backwards[0][1]} times inside episodes, "
            "so rows are out of order.",
            "Name the column that orders the rows (--step-column), or sort the rows of each episode.",
            {"columns": dict(backwards)},
        )


# --- the parts --------------------------------------------------------------------------------------------------------


class _Column(NamedTuple):
    """A column, its different values, and which of them stands in each row."""

    rows: np.ndarray
    values: np.ndarray
    codes: np.ndarray


def _column(rows: np.ndarray) -> _Column:
    return _Column(rows, *np.unique(rows, return_inverse=True))


def _columns(rows: np.ndarray) -> list[_Column]:
    return [_column(rows[:, j]) for j in range(rows.shape[1])]


def _at(values: np.ndarray, rows: np.ndarray) -> list[_Column]:
    """The columns of these rows."""
    chosen = pick(values, rows).astype(np.float64)
    return _columns(chosen[:, None] if chosen.ndim == 1 else chosen)


def _determines(column: _Column, target: _Column, group: float = GROUP) -> bool:
    """Whether a column leaves next to nothing open about a target."""
    x, levels, level = column
    y, values, codes = target
    if len(values) < 2 or len(x) < EPISODES or len(levels) == 1:
        return False
    if len(values) > FEW_VALUES:
        # The equality of two numbers with many values is no coincidence. A regression would also find a controller
        # without noise, whose action is a multiple of what it sees.
        if len(levels) > FEW_VALUES:
            return bool(np.mean(np.isclose(x, y, rtol=1e-5, atol=EXACT * np.ptp(y))) > 1 - LEFT)
        mean = np.bincount(level, y) / np.bincount(level)
        return bool(np.mean((y - mean[level]) ** 2) < LEFT * y.var()) and len(x) / len(levels) >= group
    if len(x) / len(levels) < group:
        return False
    table = np.zeros((len(levels), len(values)))
    np.add.at(table, (level, codes), 1)
    errors = len(x) - table.sum(axis=0).max()
    return bool(errors >= ERRORS and len(x) - table.max(axis=1).sum() <= LEFT * errors)


def _ends(data: Dataset) -> np.ndarray:
    flags = np.zeros(data.n_steps)
    flags[data.ends] = 1.0
    return flags


def _changes(data: Dataset, column: int, most: int = 2000) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """One-step changes of a column in the first episodes, and the values before and after."""
    episodes = int(np.searchsorted(np.cumsum(data.lengths), most)) + 1
    parts = [
        data[e].observations[: data.lengths[e], column].astype(np.float64) for e in range(min(episodes, len(data)))
    ]
    before, after = (np.concatenate([part[cut] for part in parts]) for cut in (slice(None, -1), slice(1, None)))
    return after - before, before, after


def _clocks(data: Dataset) -> list[bool]:
    """Which columns only ever grow within an episode."""
    out = []
    for j in range(data.observations.shape[1]):
        change = _changes(data, j)[0]
        out.append(len(change) > 0 and bool((change > 0).all() or (change < 0).all()))
    return out


def _constant_within(data: Dataset, column: int) -> bool:
    return not _changes(data, column)[0].any()


def _numbers(x: np.ndarray) -> bool:
    """Whether these whole numbers count upwards, each once, without large gaps."""
    step = np.diff(x)
    return bool((x == np.floor(x)).all() and (step > 0).all() and np.mean(step) < 20 and np.median(step) <= 2)


def _listed(names: list[str]) -> str:
    head = ", ".join(map(repr, names[:4])) + (", ..." if len(names) > 4 else "")
    return f"{'Column' if len(names) == 1 else 'Columns'} {head}"
