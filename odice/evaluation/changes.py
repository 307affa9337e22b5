"""What a policy would change: how often it acts differently from a log, in which situations, and the clearest examples.

All of it is read off the log's own states; nothing is simulated. An action differs where another choice is taken or,
for amounts, where any of them is off by more than a tenth of the range that the log shows.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from odice.data.dataset import Dataset

AMOUNT = 0.1
"""Of the range of logged amounts: a smaller difference is the same action."""
ROWS = 50_000
"""Steps that are compared, at most; of a longer log evenly spaced ones."""
MAX_NAMES = 12
ALIKE = 3
"""Examples of the same pair of actions, at most; amounts are the same if they fall into the same fifth of the logged
range."""
FIFTHS = 5
CLEAR = 0.1
"""Of a situation: the least change of a share, or of an amount relative to its range, times the root of its share of
all steps."""


@dataclass(frozen=True)
class ActionChange:
    """How often a choice is taken, or how large an amount is, in the log and by the policy."""

    name: str
    today: float
    policy: float


@dataclass(frozen=True)
class Situation:
    """A condition on one column under which the policy's actions differ most from the log's."""

    condition: str
    share: float
    """Of all steps."""
    action: str
    """The choice, or the amount."""
    today: float
    """Share of its steps with that choice, or the mean amount."""
    policy: float


@dataclass(frozen=True)
class Example:
    """One step of the log in which the policy would have acted differently."""

    values: dict[str, str]
    today: str
    policy: str


@dataclass(frozen=True)
class Changes:
    """What a policy would do differently in the states of a log."""

    differs: float
    discrete: bool
    actions: tuple[ActionChange, ...]
    situations: tuple[Situation, ...]
    examples: tuple[Example, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values."""
        return asdict(self)


def changes(policy: Callable[[np.ndarray], np.ndarray], data: Dataset, examples: int = 10) -> Changes:
    """Compare what a policy would do with what was logged, state by state.

    Args:
        policy: From observations to actions, such as a `Policy`. Examples of choices are ranked by how clearly the
            policy's `outputs` prefer its own, where it has them; of amounts, by the difference.
        data: The log.
        examples: Examples to return, at most.
    """
    rows = np.unique(np.linspace(0, data.n_steps - 1, min(data.n_steps, ROWS)).astype(int))
    observations, logged = data.step_observations()[rows], data.actions[rows]
    chosen = np.asarray(policy(observations))
    if data.discrete and chosen.max() >= data.spec.action_dim:  # a choice that the log does not have
        data = replace(data, meta=replace(data.meta, n_actions=int(chosen.max()) + 1))
    strength = _strength(policy, observations, chosen, logged, data.discrete)
    columns = _columns(data, observations)
    return Changes(
        differs=float((strength > 0).mean()),
        discrete=data.discrete,
        actions=_actions(data, logged, chosen),
        situations=_situations(data, columns, logged, chosen),
        examples=_examples(data, columns, rows, strength, logged, chosen, examples),
    )


def _strength(policy: Any, observations: np.ndarray, chosen: np.ndarray, logged: np.ndarray, discrete: bool):
    """Return how clearly the policy differs in each state; 0 where it does not."""
    if not discrete:
        spread = np.maximum(np.ptp(logged, axis=0), 1e-12)
        away = np.max(np.abs(chosen - logged) / spread, axis=-1)
        return np.where(away > AMOUNT, away, 0.0)
    different = chosen != logged
    if not hasattr(policy, "outputs"):
        return different.astype(float)
    values = np.asarray(policy.outputs(observations), float)
    values = np.exp(values - values.max(axis=-1, keepdims=True))
    values /= values.sum(axis=-1, keepdims=True)
    index = np.arange(len(values))
    return np.where(different, 1e-9 + values[index, chosen] - values[index, logged], 0.0)


def _actions(data: Dataset, logged: np.ndarray, chosen: np.ndarray) -> tuple[ActionChange, ...]:
    names = action_names(data)
    if not data.discrete:
        return tuple(
            ActionChange(name, float(logged[:, i].mean()), float(chosen[:, i].mean())) for i, name in enumerate(names)
        )
    count = lambda actions: np.bincount(actions, minlength=len(names)) / len(actions)
    pairs = [ActionChange(*item) for item in zip(names, count(logged).tolist(), count(chosen).tolist(), strict=True)]
    return tuple(sorted(pairs, key=lambda item: -abs(item.policy - item.today))[:MAX_NAMES])


def action_names(data: Dataset) -> list[str]:
    """Return a name for every choice, or for every amount."""
    known = (data.meta.choices if data.discrete else data.meta.action_names) or ()
    count = data.spec.action_dim
    if len(known) == count:
        return list(known)
    return [f"choice {i}" if data.discrete else f"action {i}" for i in range(count)]


# --- situations -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Column:
    """A column of the table behind the observations: numbers, or the index of a category."""

    name: str
    values: np.ndarray
    categories: tuple[str, ...] = ()
    unit: str = ""

    def text(self, row: int) -> str:
        value = self.values[row]
        if self.categories:
            return self.categories[int(value)] if value >= 0 else "missing"
        return f"{value:.4g}{' ' + self.unit if self.unit else ''}"


def _columns(data: Dataset, observations: np.ndarray) -> list[_Column]:
    units = dict(data.meta.obs_units or ())
    if not data.meta.obs_columns:
        names = data.meta.obs_names or [f"observation {i}" for i in range(observations.shape[1])]
        return [_Column(name, observations[:, i], unit=units.get(name, "")) for i, name in enumerate(names)]
    columns, at = [], 0
    for column in data.meta.obs_columns:
        name, values, width = column["name"], column.get("values"), column.get("width", 1)
        if values:
            part = observations[:, at : at + len(values)]
            code = np.where(part.max(axis=1) > 0, part.argmax(axis=1), -1)
            columns.append(_Column(name, code, tuple(values)))
            at += len(values)
        else:
            for i in range(width):
                label = name if width == 1 else f"{name}[{i}]"
                columns.append(_Column(label, observations[:, at + i], unit=units.get(name, "")))
            at += width
        at += bool(column.get("indicator"))
    return columns


def _situations(
    data: Dataset, columns: list[_Column], logged: np.ndarray, chosen: np.ndarray, most: int = 3
) -> tuple[Situation, ...]:
    """Return the conditions under which the actions change most, at most one per column."""
    names = action_names(data)
    if data.discrete:  # (steps, choices) of zeros and ones
        before, after = (np.eye(len(names), dtype=np.float32)[actions] for actions in (logged, chosen))
        scale = np.ones(len(names))
    else:
        before, after, scale = logged, chosen, np.maximum(np.ptp(logged, axis=0), 1e-12)
    best = []
    for column in columns:
        options = [
            option
            for condition, inside in _conditions(column)
            if (option := _situation(condition, inside, before, after, scale, names)) is not None
        ]
        if options:
            best.append(max(options, key=lambda item: item[0]))
    best.sort(key=lambda item: -item[0])
    return tuple(situation for score, situation in best[:most] if score > CLEAR)


def _conditions(column: _Column):
    if column.categories:
        for code, name in enumerate(column.categories):
            yield f"{column.name} is {name}", column.values == code
        return
    if np.isin(column.values, (0, 1)).all():
        for value in (0, 1):
            yield f"{column.name} is {value}", column.values == value
        return
    unit = f" {column.unit}" if column.unit else ""
    for cut in np.unique(np.quantile(column.values, np.linspace(0.1, 0.9, 9))):
        yield f"{column.name} above {cut:.4g}{unit}", column.values > cut
        yield f"{column.name} at most {cut:.4g}{unit}", column.values <= cut


def _situation(
    condition: str, inside: np.ndarray, before: np.ndarray, after: np.ndarray, scale: np.ndarray, names: list[str]
) -> tuple[float, Situation] | None:
    share = float(inside.mean())
    if not 0.05 <= share <= 0.95:
        return None
    today, policy = before[inside].mean(axis=0), after[inside].mean(axis=0)
    which = int(np.argmax(np.abs(policy - today) / scale))
    score = float(abs(policy[which] - today[which]) / scale[which] * np.sqrt(share))
    return score, Situation(condition, share, names[which], float(today[which]), float(policy[which]))


# --- examples ---------------------------------------------------------------------------------------------------------


def _examples(
    data: Dataset,
    columns: list[_Column],
    rows: np.ndarray,
    strength: np.ndarray,
    logged: np.ndarray,
    chosen: np.ndarray,
    most: int,
) -> tuple[Example, ...]:
    """Return the steps in which the policy differs most clearly, at most one per episode.

    There are at most `ALIKE` of each pair of actions (logged, chosen), unless there are too few other pairs.
    """
    kinds = np.stack([_kind(actions, logged, data.discrete) for actions in (logged, chosen)], axis=1)
    episodes = np.searchsorted(data.starts, rows, side="right") - 1
    names, seen, examples, spare = action_names(data), set(), [], []
    pairs: Counter[bytes] = Counter()
    for row in np.argsort(-strength, kind="stable"):
        if strength[row] <= 0 or len(examples) == most:
            break
        if episodes[row] in seen:
            continue
        pair = kinds[row].tobytes()
        alike = pairs[pair] >= ALIKE
        if alike and len(spare) >= most:
            continue
        pairs[pair] += 1
        seen.add(episodes[row])
        values = {column.name: column.text(int(row)) for column in columns[:MAX_NAMES]}
        example = Example(values, _action(logged[row], names, data), _action(chosen[row], names, data))
        (spare if alike else examples).append(example)
    return tuple((examples + spare)[:most])


def _kind(actions: np.ndarray, logged: np.ndarray, discrete: bool) -> np.ndarray:
    """Return the choice, or the fifth of the logged range that each amount falls into."""
    if discrete:
        return np.asarray(actions)
    low, spread = logged.min(axis=0), np.maximum(np.ptp(logged, axis=0), 1e-12)
    return np.clip(np.floor(FIFTHS * (actions - low) / spread), 0, FIFTHS - 1).astype(np.int64)


def _action(action: Any, names: list[str], data: Dataset) -> str:
    if data.discrete:
        return names[int(action)]
    return ", ".join(f"{name} {value:.3g}" for name, value in zip(names, action, strict=True))
