"""Propose which column of an undescribed table plays which role, each with its reason.

Names alone are not enough: `stay_id`, `season`, `died`, `outcome` and `dose` are nobody's usual names. So the values
count too: an identifier repeats in blocks, a time rises within them, an end is true at most once per block and there
last, an outcome is the same in all rows of a block. A policy may see only what is known before it acts; so identifiers,
times, actions, rewards, ends and outcomes are never proposed as observations.

A proposal is for a person to confirm: `doubts` lists the roles that should be looked at.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field

import numpy as np
import polars as pl
from polars.selectors import by_name

from odice.data.names import ALIASES
from odice.data.readers.encode import MAX_CATEGORIES

ROLES = ("episode", "step", "action", "propensity", "reward", "cost", "terminated", "observation", "left out")

# Words within a column's name that speak for a role, the strongest first.
_HINTS = {
    "episode": "episode traj trajectory rollout session stay encounter admission visit case trip ticket journey "
    "patient subject customer client user account member household student machine unit",
    "step": "step timestep time timestamp date day week month hour minute tick turn period round frame index order seq "
    "no nr number t",
    "action": "action act decision choice treatment dose dosage arm chosen recommended intervention prescribed offer "
    "channel control command order_qty quantity item setpoint throttle torque bid creative move drug medication",
    "propensity": "propensity propensity_score pscore action_prob action_probability logging_prob prob_of_action",
    "reward": "reward rew payoff profit revenue recovered gain utility return points click clicked conversion "
    "converted sale sales purchase purchased survived success income pnl margin yield score outcome result",
    "cost": "cost costs expense expenses spend spent fee penalty side_effect adverse",
    "terminated": "terminated terminal termination died dead death deceased closed churned failed crashed done end "
    "ended finished is_last discharged default",
    "outcome": "outcome result label final status died dead death survived success discharge class",
}
HINTS = {role: words.split() for role, words in _HINTS.items()}


@dataclass(frozen=True)
class Role:
    """What one column is proposed as, and why."""

    column: str
    role: str
    reason: str
    sure: bool = True


@dataclass(frozen=True)
class Proposal:
    """Roles of every column of a table, in the order of the table."""

    roles: tuple[Role, ...]
    one_step: bool = False
    """Whether every row is an episode of its own."""
    doubts: tuple[str, ...] = field(default=())
    """Questions for a person, as sentences."""

    def columns(self, role: str) -> tuple[str, ...]:
        """Return the columns that are proposed for a role."""
        return tuple(item.column for item in self.roles if item.role == role)

    def __getitem__(self, column: str) -> Role:
        return next(item for item in self.roles if item.column == column)


def propose(table: pl.DataFrame) -> Proposal:
    """Propose a role for every column of a table with one row per step."""
    return _Proposer(table).run()


class _Proposer:
    def __init__(self, table: pl.DataFrame):
        self.table, self.roles = table, {}
        self.doubts: list[str] = []
        self.rivals: list[str] = []
        """Columns that could be the reward, too."""

    def run(self) -> Proposal:
        self._unusable()
        blocks = self._episode()
        self._steps(blocks)
        self._one("propensity", lambda name: self._between(name, 0, 1), "its name, and values between 0 and 1")
        self._reward()
        self._one("cost", self._numeric, "its name, and numbers")
        self._action()
        self._ends(blocks)
        self._known_later(blocks)
        self._results()
        self._copies()
        self._observations()
        one_step = blocks is None and not self._has("terminated", "step")
        if blocks is None and not one_step and not self._has("terminated"):
            self.doubts.append("No column tells one episode from the next: name it as `episode`, or the end of one.")
        return Proposal(tuple(self.roles[name] for name in self.table.columns), one_step, tuple(self.doubts))

    # --- one role after the other -------------------------------------------------------------------------------------

    def _unusable(self) -> None:
        rows = self.table.height
        for name in self.table.columns:
            column = self.table[name]
            if column.null_count() == rows:
                self._set(name, "left out", "it is empty")
            elif column.n_unique() == 1 and not column.null_count():
                self._set(name, "left out", f"it is always {str(column[0])[:30]}")
            elif not (_is_number(column) or column.dtype in (pl.String, pl.Boolean) or column.dtype.is_temporal()):
                self._set(name, "left out", f"values of type {column.dtype} are not read")

    def _episode(self) -> np.ndarray | None:
        """Find the column that names episodes; return the number of each row's block, or None."""
        candidates = []
        for position, name in enumerate(self.table.columns):
            column = self.table[name]
            plain = column.dtype.is_integer() or column.dtype == pl.String
            if name in self.roles or not plain or column.null_count():
                continue
            hint = _hint(name, "episode")
            if hint is None and _words(name)[-1] in ("id", "no", "nr", "number", "key", "uuid"):
                hint = 50
            changes, unique = int((column != column.shift()).fill_null(True).sum()), column.n_unique()
            if unique == self.table.height and (
                hint is not None or (column.dtype == pl.String and unique > MAX_CATEGORIES)
            ):
                self._set(name, "left out", "it is different in every row: an identifier, a time or a text")
            elif unique == 1 or changes > 1.02 * unique:
                continue
            elif hint is not None or (position < 3 and 2 * changes <= self.table.height):
                candidates.append((100 if hint is None else hint, position, name, unique))
        times = [item for item in candidates if item[0] == 100 and _hint(item[2], "step") is not None]
        if len(times) == len(candidates) and (panel := self._panel()) is not None:
            return panel
        if not candidates:
            return None
        rank, _, name, unique = min(candidates, key=lambda item: (item in times, *item))
        reason = f"{unique:,} values that stand in blocks of rows"
        self._set(name, "episode", reason if rank == 100 else f"its name, and {reason}", sure=rank < 100)
        if rank == 100:
            self.doubts.append(f"{name} is taken as the episode: {reason}.")
        for rank, _, other, _ in candidates:
            if other != name and rank < 100:
                self._set(other, "left out", f"an identifier: like {name}, its values stand in blocks of rows")
        return (self.table[name] != self.table[name].shift()).fill_null(True).to_numpy().cumsum() - 1

    def _panel(self) -> np.ndarray | None:
        """Find a column whose values come back at every time, as customers or machines in a weekly table do.

        The table is sorted by it from here on, so that its values stand in blocks.
        """
        times = [name for name in self.table.columns if name not in self.roles and self._time(name) is not None]
        for time in times[:1]:
            for name in self.table.columns:
                column = self.table[name]
                if name in self.roles or name == time or not (column.dtype.is_integer() or column.dtype == pl.String):
                    continue
                pairs = self.table.select(by_name(name, time)).n_unique()
                if pairs == self.table.height and 1 < column.n_unique() <= self.table.height // 2:
                    self.table = self.table.sort(name, time, maintain_order=True)
                    self._set(
                        name, "episode", f"{column.n_unique():,} values, each at most once per {time}", sure=False
                    )
                    self.doubts.append(f"{name} is taken as the episode: each value occurs once per {time}.")
                    return (self.table[name] != self.table[name].shift()).fill_null(True).to_numpy().cumsum() - 1
        return None

    def _time(self, name: str) -> pl.Series | None:
        """Return a column as times or numbers that may order rows, or None."""
        column = self.table[name]
        if column.dtype == pl.String and _hint(name, "step") is not None:
            for kind in (pl.Datetime, pl.Date):
                with suppress(pl.exceptions.PolarsError):
                    return column.str.strptime(kind, strict=True).to_physical().cast(pl.Float64)
        if column.dtype.is_temporal():
            return column.to_physical().cast(pl.Float64)
        return column.cast(pl.Float64) if _is_number(column) and _hint(name, "step") is not None else None

    def _steps(self, blocks: np.ndarray | None) -> None:
        rising = []
        for name in self._free():
            values = self._time(name)
            if values is not None and _rises(values.to_numpy(), blocks):
                rising.append((_is_number(self.table[name]), name))
        for number, name in sorted(rising, key=lambda item: item[0])[:1]:  # a real time before a number
            where = "within episodes" if blocks is not None else "from row to row"
            self._set(name, "step", f"{'its name, and numbers that rise' if number else 'a time that rises'} {where}")
        for name in self._free():
            if self._time(name) is not None and not _is_number(self.table[name]):
                self._set(name, "left out", "a time")

    def _action(self) -> None:
        hinted = sorted(
            (hint, name) for name in self._free() if (hint := _hint(name, "action")) is not None and self._choice(name)
        )
        if not hinted:
            self._before_reward()
            return
        best = hinted[0][0]
        family = [name for hint, name in hinted if hint == best and _stem(name) == _stem(hinted[0][1])]
        for name in family:
            self._set(name, "action", f"its name, and {self._kind(name)}", sure=len(hinted) == len(family))
        if len(hinted) > len(family):
            others = ", ".join(name for _, name in hinted if name not in family)
            self.doubts.append(f"{', '.join(family)} is taken as the action; {others} could be it, too.")

    def _before_reward(self) -> None:
        """Take the column before the reward, and those like it: people write what was seen, done, and earned."""
        names = self.table.columns
        rewards = self._columns("reward") or self._columns("cost")
        at = names.index(rewards[0]) - 1 if rewards else -1
        while at >= 0 and names[at] in self.roles:
            at -= 1
        if at < 0 or not self._choice(names[at]):
            self.doubts.append("No column looks like the action that was taken: name it as `action`.")
            return
        family = [names[at]]
        while at > 0 and names[at - 1] not in self.roles and _pattern(names[at - 1]) == _pattern(names[at]):
            at -= 1
            family.insert(0, names[at])
        for name in family:
            self._set(name, "action", f"it stands before {rewards[0]}, and has {self._kind(name)}", sure=False)
        self.doubts.append(f"{', '.join(family)} is taken as the action, because it stands before {rewards[0]}.")

    def _kind(self, name: str) -> str:
        return f"{self.table[name].n_unique()} choices" if self._discrete(name) else "amounts"

    def _reward(self) -> None:
        hinted = sorted((h, n) for n in self._free() if (h := _hint(n, "reward")) is not None and self._numeric(n))
        if hinted:
            name = hinted[0][1]
            self._set(name, "reward", "its name, and numbers", sure=len(hinted) == 1 or hinted[0][0] == 0)
            self.rivals = [other for _, other in hinted[1:] if not self.roles[name].sure]
        else:
            self.doubts.append("No column looks like the reward: name it as `reward`.")

    def _ends(self, blocks: np.ndarray | None) -> None:
        flags = {name: values for name in self._free() if (values := _flags(self.table[name])) is not None}
        if blocks is None:
            named = sorted((hint, name) for name in flags if (hint := _hint(name, "terminated")) is not None)
            for _, name in named[:1]:
                self._set(name, "terminated", "its name, and true or false", sure=False)
            return
        last = [name for name, values in flags.items() if values.any() and _only_last(values, blocks)]
        best = max(last, key=lambda name: (_hint(name, "terminated") is not None, flags[name].sum()), default=None)
        for name in last:
            if name == best:
                self._set(name, "terminated", "it is true in the last row of some episodes and nowhere else")
            else:
                self._set(name, "left out", "it is true only in last rows: known when the episode is over")

    def _known_later(self, blocks: np.ndarray | None) -> None:
        """Leave out what is only known when the episode is over."""
        if blocks is None:
            return
        for name in self._free():
            hint = _hint(name, "outcome")
            if hint is None:
                continue
            column = self.table[name]
            same = self.table.select(by_name(name).n_unique().over(pl.Series(blocks)).max()).item() == 1
            if same and column.n_unique() <= MAX_CATEGORIES:
                why = "its name, and one value for all rows of an episode: it may be known only at the end"
                self._set(name, "left out", why, sure=False)
                self.doubts.append(f"{name} is left out: it has one value per episode, perhaps known only at its end.")

    def _results(self) -> None:
        """Leave out what may be a result of the action: a rival of the reward that stands after the action."""
        names, actions, rewards = self.table.columns, self._columns("action"), self._columns("reward")
        for name in (name for name in self.rivals if name not in self.roles):
            after = bool(actions) and names.index(name) > names.index(actions[0])
            if after:
                self._set(name, "left out", f"it may be a result of the action, like {rewards[0]}", sure=False)
            more = ", and it is left out" if after else ""
            self.doubts.append(f"{rewards[0]} is taken as the reward; {name} could be it, too{more}.")

    def _copies(self) -> None:
        """Leave out columns that say what was done or earned in this very row."""
        known = [n for n, item in self.roles.items() if item.role in ("action", "reward", "cost", "terminated")]
        for name in self._free():
            for other in known:
                if _same(self.table[name], self.table[other]):
                    self._set(name, "left out", f"a copy of {other}")
                    break

    def _observations(self) -> None:
        for name in list(self._free()):
            column = self.table[name]
            if re.match(r"next[_.]", name.lower()):
                self._set(name, "left out", "its name says that it is known only after the step")
            elif column.dtype == pl.String and column.n_unique() > MAX_CATEGORIES:
                self._set(name, "left out", f"{column.n_unique():,} different words: a name or a free text")
            elif _words(name)[-1] in ("id", "uuid", "key") and column.n_unique() > MAX_CATEGORIES:
                self._set(name, "left out", "an identifier, by its name and its many values")
            else:
                words = column.dtype == pl.String
                kind = f"{column.n_unique()} categories" if words else "true or false" if _binary(column) else "numbers"
                self._set(name, "observation", kind)

    def _one(self, role: str, fits, reason: str) -> None:
        hinted = sorted((h, n) for n in self._free() if (h := _hint(n, role)) is not None and fits(n))
        if hinted:
            self._set(hinted[0][1], role, reason)

    # --- what columns are ---------------------------------------------------------------------------------------------

    def _set(self, name: str, role: str, reason: str, sure: bool = True) -> None:
        self.roles[name] = Role(name, role, reason, sure)

    def _columns(self, role: str) -> list[str]:
        return [name for name in self.table.columns if name in self.roles and self.roles[name].role == role]

    def _free(self) -> list[str]:
        return [name for name in self.table.columns if name not in self.roles]

    def _has(self, *roles: str) -> bool:
        return any(item.role in roles for item in self.roles.values())

    def _numeric(self, name: str) -> bool:
        return _is_number(self.table[name]) or self.table[name].dtype == pl.Boolean

    def _between(self, name: str, low: float, high: float) -> bool:
        column = self.table[name]
        return _is_number(column) and column.min() > low and column.max() <= high  # pyright: ignore

    def _discrete(self, name: str) -> bool:
        column = self.table[name]
        return not column.dtype.is_float() and column.n_unique() <= MAX_CATEGORIES

    def _choice(self, name: str) -> bool:
        return _is_number(self.table[name]) or self._discrete(name)


def _is_number(column: pl.Series) -> bool:
    return column.dtype.is_numeric()


def _binary(column: pl.Series) -> bool:
    return column.dtype == pl.Boolean or (_is_number(column) and set(column.drop_nulls().unique()) <= {0, 1})


def _flags(column: pl.Series) -> np.ndarray | None:
    """Return a column of truth values as such, or None."""
    return column.fill_null(False).cast(pl.Float64).to_numpy() > 0 if _binary(column) else None


def _only_last(flags: np.ndarray, blocks: np.ndarray) -> bool:
    last = np.append(blocks[1:] != blocks[:-1], True)
    return not bool((flags & ~last).any())


def _rises(values: np.ndarray, blocks: np.ndarray | None) -> bool:
    """Whether numbers rise from row to row, within blocks."""
    if len(values) < 2 or not np.isfinite(values).all():
        return False
    steps = np.diff(values)
    if blocks is not None:
        steps = steps[blocks[1:] == blocks[:-1]]
    return len(steps) > 0 and bool((steps > 0).all())


def _same(one: pl.Series, other: pl.Series) -> bool:
    if one.dtype == pl.String or other.dtype == pl.String:
        return one.dtype == other.dtype and bool((one == other).fill_null(False).all())
    if one.dtype.is_temporal() or other.dtype.is_temporal():
        return False
    return bool((one.cast(pl.Float64) == other.cast(pl.Float64)).fill_null(False).all())


def _words(name: str) -> list[str]:
    """Split a name into lower-case words: `StayID`, `stay_id` and `stay.id` are `stay`, `id`."""
    parts = re.sub(r"([a-z0-9])([A-Z])", r"\1 \2", name)
    return [word for word in re.split(r"[^a-z]+", parts.lower()) if word] or [name.lower()]


def _stem(name: str) -> str:
    return re.sub(r"[\W_]*\d+$", "", name.lower())


LAGGED = ("last", "prev", "previous", "lag", "lagged", "past", "prior", "old", "next")


def _pattern(name: str) -> str:
    return re.sub(r"\d+", "#", name.lower())


def _hint(name: str, role: str) -> int | None:
    """Return how strongly a name speaks for a role: 0 is a usual name, larger is weaker, None is not at all."""
    words = _words(name)
    if name.lower() in ALIASES.get(role, ()) or _stem(name) in ALIASES.get(role, ()):
        return 0
    if role not in ("episode", "step") and words[0] in LAGGED:
        return None  # of another step
    hints = HINTS[role]
    ranks: Iterable[int] = (
        hints.index(hint) + 1 for hint in hints if hint in words or "_".join(words) == hint or hint == _stem(name)
    )
    return min(ranks, default=None)
