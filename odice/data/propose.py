"""Propose which column of an undescribed table plays which role, and why.

Names alone are not enough: `stay_id`, `season`, `died`, `outcome` and `dose` are nobody's usual names. So the values
count too: an identifier repeats in blocks, a time rises within them, an end is true at most once per block and there
last, an outcome is the same in all rows of a block. A policy may see only what is known before it acts; so identifiers,
times, actions, rewards, ends and outcomes are never proposed as observations.

A proposal is for a person to confirm: `questions` lists what should be looked at.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import suppress

import numpy as np
import polars as pl
from polars.selectors import by_name

from odice.data.column_kinds import flags_of, is_binary, is_number, only_last, quoted, rises, same_values
from odice.data.hints import hint, pattern, speaks_of, stem, words_of
from odice.data.proposal import Proposal, Question, Role
from odice.data.readers.encode import MAX_CATEGORIES


def propose(table: pl.DataFrame) -> Proposal:
    """Propose a role for every column of a table with one row per step."""
    return _Proposer(table).run()


class _Proposer:
    def __init__(self, table: pl.DataFrame):
        self.table, self.roles = table, {}
        self.questions: list[Question] = []
        self.formula: str | None = None
        self.complete = False
        self.rivals: list[str] = []
        """Columns that could be the reward, too."""

    def run(self) -> Proposal:
        self._unusable()
        blocks = self._episode()
        self._steps(blocks)
        self._one("propensity", lambda name: self._between(name, 0, 1), "its name, and values between 0 and 1")
        self._reward(blocks)
        self._action()
        self._one("cost", self._is_cost, "its name, and numbers")
        self._propensity()
        self._ends(blocks)
        self._without_reward(blocks)
        self._known_later(blocks)
        self._results()
        self._copies()
        self._after_action()
        self._observations()
        self._over(blocks)
        one_step = self._one_step(blocks)
        roles = tuple(self.roles[name] for name in self.table.columns)
        return Proposal(roles, one_step, self.complete, self.formula, tuple(self.questions))

    def _ask(self, text: str, about: str, default: str = "", options: tuple[str, ...] = ()) -> None:
        self.questions.append(Question(text, about, default, options))

    # --- one role after the other -------------------------------------------------------------------------------------

    def _unusable(self) -> None:
        rows = self.table.height
        for name in self.table.columns:
            column = self.table[name]
            if column.null_count() == rows:
                self._set(name, "left out", "it is empty")
            elif column.n_unique() == 1 and not column.null_count():
                self._set(name, "left out", f"it is always {str(column[0])[:30]}")
            elif not (is_number(column) or column.dtype in (pl.String, pl.Boolean) or column.dtype.is_temporal()):
                self._set(name, "left out", f"values of type {column.dtype} are not read")

    def _episode(self) -> np.ndarray | None:
        """Find the column that names episodes; return the number of each row's block, or None."""
        candidates = []
        for position, name in enumerate(self.table.columns):
            column = self.table[name]
            plain = column.dtype.is_integer() or column.dtype == pl.String
            if name in self.roles or not plain or column.null_count():
                continue
            rank = hint(name, "episode")
            if rank is None and words_of(name)[-1] in ("id", "no", "nr", "number", "key", "uuid"):
                rank = 50
            changes, unique = int((column != column.shift()).fill_null(True).sum()), column.n_unique()
            if unique == self.table.height and (
                rank is not None or (column.dtype == pl.String and unique > MAX_CATEGORIES)
            ):
                self._set(name, "left out", "it is different in every row: an identifier, a time or a text")
            elif unique == 1 or changes > 1.02 * unique:
                continue
            elif rank is not None or (position < 3 and 2 * changes <= self.table.height):
                candidates.append((100 if rank is None else rank, position, name, unique))
        times = [item for item in candidates if item[0] == 100 and hint(item[2], "step") is not None]
        if len(times) == len(candidates) and (panel := self._panel()) is not None:
            return panel
        if not candidates:
            return None
        rank, _, name, unique = min(candidates, key=lambda item: (item in times, *item))
        reason = f"{unique:,} values that stand in blocks of rows"
        self._set(name, "episode", reason if rank == 100 else f"its name, and {reason}", sure=rank < 100)
        if rank == 100:
            self._ask(f"{name} is taken as the episode: {reason}.", "episode", name)
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
                    text = f"{name} is taken as the episode: each value occurs at most once per {time}."
                    self._ask(text, "episode", name)
                    return (self.table[name] != self.table[name].shift()).fill_null(True).to_numpy().cumsum() - 1
        return None

    def _time(self, name: str) -> pl.Series | None:
        """Return a column as times or numbers that may order rows, or None."""
        column = self.table[name]
        if column.dtype == pl.String and hint(name, "step") is not None:
            for kind in (pl.Datetime, pl.Date):
                with suppress(pl.exceptions.PolarsError):
                    return column.str.strptime(kind, strict=True).to_physical().cast(pl.Float64)
        if column.dtype.is_temporal():
            return column.to_physical().cast(pl.Float64)
        return column.cast(pl.Float64) if is_number(column) and hint(name, "step") is not None else None

    def _steps(self, blocks: np.ndarray | None) -> None:
        rising = []
        for name in self._free():
            values = self._time(name)
            if values is not None and rises(values.to_numpy(), blocks):
                rising.append((is_number(self.table[name]), name))
        for number, name in sorted(rising, key=lambda item: item[0])[:1]:  # a real time before a number
            where = "within episodes" if blocks is not None else "from row to row"
            self._set(name, "step", f"{'its name, and numbers that rise' if number else 'a time that rises'} {where}")
        for name in self._free():
            if self._time(name) is not None and not is_number(self.table[name]):
                self._set(name, "left out", "a time")

    def _action(self) -> None:
        priced = lambda name: hint(name, "cost") is not None and hint(name, "action") != 0
        hinted = self._hinted("action", lambda name: self._choice(name) and not priced(name))
        if not hinted:
            self._before_reward()
            return
        best = hinted[0][0]
        family = [name for rank, name in hinted if rank == best and stem(name) == stem(hinted[0][1])]
        for name in family:
            self._set(name, "action", f"its name, and {self._kind(name)}", sure=len(hinted) == len(family))
        if len(hinted) > len(family):
            others = ", ".join(name for _, name in hinted if name not in family)
            text = f"{', '.join(family)} is taken as the action; {others} could be it, too."
            self._ask(text, "action", ", ".join(family))

    def _before_reward(self) -> None:
        """Take the column before the reward, and those like it: people write what was seen, done, and earned."""
        names = self.table.columns
        rewards = self._columns("reward") or [name for _, name in self._hinted("cost", self._numeric)]
        at = names.index(rewards[0]) - 1 if rewards else -1
        while at >= 0 and names[at] in self.roles:
            at -= 1
        if at < 0 or not self._choice(names[at]):
            self._ask("No column looks like the action that was taken.", "action")
            return
        family = [names[at]]
        while at > 0 and names[at - 1] not in self.roles and pattern(names[at - 1]) == pattern(names[at]):
            at -= 1
            family.insert(0, names[at])
        for name in family:
            self._set(name, "action", f"it stands before {rewards[0]}, and has {self._kind(name)}", sure=False)
        text = f"{', '.join(family)} is taken as the action, because it stands before {rewards[0]}."
        self._ask(text, "action", ", ".join(family))

    def _kind(self, name: str) -> str:
        return f"{self.table[name].n_unique()} choices" if self._discrete(name) else "amounts"

    def _reward(self, blocks: np.ndarray | None) -> None:
        hinted = self._hinted("reward", self._numeric)
        if not hinted:
            return
        name = hinted[0][1]
        sure = len(hinted) == 1 or hinted[0][0] == 0
        self._set(name, "reward", "its name, and numbers", sure=sure)
        if self._repeated(name, blocks):
            self.formula = f"last({quoted(name)})"
            self._set(name, "reward", "its name; one value per episode, so it counts once, in the last row", sure=False)
            text = f"{name} has one value per episode: it is counted once, as {self.formula}."
            self._ask(text, "reward", self.formula)
        self.rivals = [other for _, other in hinted[1:] if not sure]

    def _without_reward(self, blocks: np.ndarray | None) -> None:
        """Make a reward of a bad outcome where no column is one."""
        if self._has("reward"):
            return
        flags = [name for name in self.table.columns if is_binary(self.table[name]) and speaks_of(name, "bad")]
        name = next((n for n in flags if n not in self.roles or self.roles[n].role == "terminated"), None)
        if name is None:
            self._first_result()
            return
        self.formula = f"-last({quoted(name)})" if self._repeated(name, blocks) else f"-{quoted(name)}"
        if name not in self.roles:
            self._set(name, "outcome", "its name: what should not happen", sure=False)
        self._ask(f"No column looks like the reward; it is taken as {self.formula}.", "reward", self.formula)

    def _first_result(self) -> None:
        """Take the first number after the action as the reward, or ask for one."""
        after = [name for name in self._free() if self._numeric(name) and self._stands_after_action(name)]
        if not after:
            self._ask("No column looks like the reward: which one says how good a step was?", "reward")
            return
        self._set(after[0], "reward", "the first number after the action", sure=False)
        text = f"{after[0]} is taken as the reward, and more of it as better: it is the first number after the action."
        self._ask(text, "reward", after[0])

    def _repeated(self, name: str, blocks: np.ndarray | None) -> bool:
        """Whether a column has one value in all rows of an episode, and not the same in all episodes."""
        if blocks is None or self.table.height < 2 * (int(blocks[-1]) + 1):
            return False
        same = self.table.select(by_name(name).n_unique().over(pl.Series(blocks)).max()).item() == 1
        return same and self.table[name].n_unique() > 1

    def _propensity(self) -> None:
        """Recognize the probability of the action by its values: over all rows, the mean of 1/p of each choice is 1."""
        actions = self._columns("action")
        if self._has("propensity") or len(actions) != 1 or not self._discrete(actions[0]):
            return
        taken = self.table[actions[0]]
        for name in self._free():
            if not self.table[name].dtype.is_float() or not self._between(name, 0, 1) or taken.n_unique() < 2:
                continue
            sums = pl.DataFrame({"taken": taken, "inverse": 1 / self.table[name]}).group_by("taken").sum()
            means = sums["inverse"].to_numpy() / len(taken)
            if np.abs(means - 1).max() > 0.2:
                continue
            named = speaks_of(name, "chance")
            reason = f"1 / {name} has the mean 1 for each of the {len(means)} choices, as a probability has"
            self._set(name, "propensity", f"its name, and {reason}" if named else reason, sure=named)
            if not named:
                text = f"{name} is taken as the probability with which the action was chosen: {reason}."
                self._ask(text, name, "propensity", ("propensity", "observation", "left out"))
            return

    def _ends(self, blocks: np.ndarray | None) -> None:
        flags = {name: values for name in self._free() if (values := flags_of(self.table[name])) is not None}
        if blocks is None:
            for _, name in self._hinted("terminated", lambda name: name in flags)[:1]:
                self._set(name, "terminated", "its name, and true or false", sure=False)
            return
        last = [name for name, values in flags.items() if values.any() and only_last(values, blocks)]
        best = max(last, key=lambda name: (hint(name, "terminated") is not None, flags[name].sum()), default=None)
        for name in last:
            self._set(name, "left out", "it is true only in last rows: known when the episode is over")
        if best is not None:
            self._set(best, "terminated", "it is true in the last row of some episodes and nowhere else")

    def _known_later(self, blocks: np.ndarray | None) -> None:
        """Leave out what is only known when the episode is over."""
        if blocks is None:
            return
        for name in self._free():
            if hint(name, "outcome") is None or not self._repeated(name, blocks):
                continue
            if self.table[name].n_unique() <= MAX_CATEGORIES:
                why = "its name, and one value for all rows of an episode: it may be known only at the end"
                self._set(name, "left out", why, sure=False)
                text = f"{name} is left out: it has one value per episode, perhaps known only at its end."
                self._ask(text, name, "left out", ("left out", "observation"))

    def _results(self) -> None:
        """Keep a rival of the reward that stands after the action from the policy: it may be a result of the action."""
        rewards = self._columns("reward")
        for name in (name for name in self.rivals if name not in self.roles):
            after = self._stands_after_action(name)
            if after:
                self._set(name, "outcome", f"it may be a result of the action, like {rewards[0]}", sure=False)
            more = ", and is reported as an outcome" if after else ""
            self._ask(f"{rewards[0]} is taken as the reward; {name} could be it, too{more}.", "reward", rewards[0])

    def _after_action(self) -> None:
        """Keep what stands after the action from the policy, where other columns stand before it."""
        known = [name for name in self._free() if hint(name, "observation") == 0]
        before = [name for name in self._free() if not self._stands_after_action(name)]
        for name in self._free():
            if not before or name in known or not self._stands_after_action(name):
                continue
            role = "outcome" if self._numeric(name) else "left out"
            self._set(name, role, "it stands after the action, so it may be a result of it", sure=False)
            what = "reported as an outcome, and the policy does not see it" if role == "outcome" else "left out"
            text = f"{name} stands after the action, so it may be a result of it: it is {what}."
            self._ask(text, name, role, ("outcome", "observation", "left out"))

    def _stands_after_action(self, name: str) -> bool:
        names, actions = self.table.columns, self._columns("action")
        return bool(actions) and names.index(name) > names.index(actions[0])

    def _copies(self) -> None:
        """Leave out columns that say what was done or earned in this very row."""
        known = [n for n, item in self.roles.items() if item.role in ("action", "reward", "cost", "terminated")]
        for name in self._free():
            for other in known:
                if same_values(self.table[name], self.table[other]):
                    self._set(name, "left out", f"a copy of {other}")
                    break

    def _observations(self) -> None:
        for name in list(self._free()):
            column = self.table[name]
            if re.match(r"next[_.]", name.lower()):
                self._set(name, "left out", "its name says that it is known only after the step")
            elif column.dtype == pl.String and column.n_unique() > MAX_CATEGORIES:
                self._set(name, "left out", f"{column.n_unique():,} different words: a name or a free text")
            elif words_of(name)[-1] in ("id", "uuid", "key") and column.n_unique() > MAX_CATEGORIES:
                self._set(name, "left out", "an identifier, by its name and its many values")
            else:
                words = column.dtype == pl.String
                kind = "true or false" if is_binary(column) else "numbers"
                kind = f"{column.n_unique()} categories" if words else kind
                self._set(name, "observation", kind)

    def _one(self, role: str, fits: Callable[[str], bool], reason: str) -> None:
        for _, name in self._hinted(role, fits)[:1]:
            self._set(name, role, reason)

    def _is_cost(self, name: str) -> bool:
        return self._numeric(name) and (hint(name, "cost") == 0 or self._stands_after_action(name))

    def _over(self, blocks: np.ndarray | None) -> None:
        """Decide whether episodes are over at their last row, where neither a flag nor a common length says so."""
        names = self._columns("episode")
        if blocks is None or not names or hint(names[0], "episode") == 0:
            return
        lengths = np.bincount(blocks)
        flags = [flags_of(self.table[name]) for name in self._columns("terminated")]
        flagged = sum(int(each.sum()) for each in flags if each is not None)
        if flagged == len(lengths) or lengths.min() == lengths.max():
            return
        self.complete = speaks_of(names[0], "over")
        what = "over at its last row" if self.complete else "cut by the log, and goes on after its last row"
        text = f"Every {names[0]} is taken to be {what}."
        self._ask(text, "ends", "over" if self.complete else "cut", ("over", "cut"))

    def _one_step(self, blocks: np.ndarray | None) -> bool:
        if blocks is not None or self._has("terminated"):
            return False
        if self._has("step"):
            self._ask("No column tells one episode from the next: which one names it?", "episode")
            return False
        if not any(item.reason.startswith("it is different in every row") for item in self.roles.values()):
            self._ask("Every row is taken as an episode of its own.", "one_step", "yes", ("yes", "no"))
        return True

    def _hinted(self, role: str, fits: Callable[[str], bool]) -> list[tuple[int, str]]:
        """Return the open columns whose names speak for a role, the strongest first."""
        return sorted((rank, name) for name in self._free() if (rank := hint(name, role)) is not None and fits(name))

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
        return is_number(self.table[name]) or self.table[name].dtype == pl.Boolean

    def _between(self, name: str, low: float, high: float) -> bool:
        column = self.table[name]
        return is_number(column) and column.min() > low and column.max() <= high  # pyright: ignore

    def _discrete(self, name: str) -> bool:
        column = self.table[name]
        return not column.dtype.is_float() and column.n_unique() <= MAX_CATEGORIES

    def _choice(self, name: str) -> bool:
        return is_number(self.table[name]) or self._discrete(name)
