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

import numpy as np
import polars as pl
from polars.selectors import by_name

from odice.data.blocks import Blocks
from odice.data.column_kinds import (
    brief,
    counts_rows,
    flags_of,
    has_digits,
    is_binary,
    is_number,
    only_last,
    quoted,
    same_values,
)
from odice.data.hints import hint, pattern, speaks_of, stem, words_of
from odice.data.propensities import Propensities
from odice.data.proposal import Proposal
from odice.data.readers.columns import as_flags
from odice.data.readers.encode import MAX_CATEGORIES

CLEAR = 12
"""Names whose rank is at most this can hardly mean anything else."""


def propose(table: pl.DataFrame) -> Proposal:
    """Propose a role for every column of a table with one row per step."""
    return _Proposer(table).run()


class _Proposer(Blocks, Propensities):
    """Decides the role of every column: first what is clearest, then what depends on it."""

    def __init__(self, table: pl.DataFrame):
        words = [name for name in table.columns if table[name].dtype == pl.String]
        flags = {name: values for name in words if (values := as_flags(table[name])) is not None}
        super().__init__(table.with_columns(**flags))
        self.formula: str | None = None
        self.complete = self.skip_incomplete = False
        self.rivals: list[str] = []
        """Columns that could be the reward, too."""

    def run(self) -> Proposal:
        self._unusable()
        blocks = self._episode()
        self._steps(blocks)
        self._one("propensity", lambda name: self._between(name, 0, 1), "its name, and values between 0 and 1")
        self._reward(blocks)
        self._action_by_propensity()
        self._action()
        self._one("cost", self._is_cost, "its name, and numbers")
        self._propensity()
        self._ends(blocks)
        self._without_reward(blocks)
        self._known_later(blocks)
        self._copies()
        self._results()
        self._after_action()
        self._observations()
        self._over(blocks)
        one_step = self._one_step(blocks)
        roles = tuple(self.roles[name] for name in self.table.columns)
        self._incomplete(blocks)
        return Proposal(roles, one_step, self.complete, self.skip_incomplete, self.formula, tuple(self.questions))

    # --- one role after the other -------------------------------------------------------------------------------------

    def _unusable(self) -> None:
        rows = self.table.height
        for name in self.table.columns:
            column = self.table[name]
            if column.null_count() == rows:
                self._set(name, "left out", "it is empty")
            elif self._constant(name) and not self._may_be_chance(name):
                self._set(name, "left out", f"it is always {brief(column[0])}")
            elif hint(name, "step") is None and counts_rows(column, np.zeros(rows, int)):
                self._set(name, "left out", "it counts the rows of the table")
            elif not (is_number(column) or column.dtype in (pl.String, pl.Boolean) or column.dtype.is_temporal()):
                self._set(name, "left out", f"values of type {column.dtype} are not read")

    def _action(self) -> None:
        priced = lambda name: hint(name, "cost") is not None and hint(name, "action") != 0
        fits = lambda name: self._choice(name) and not priced(name) and not self._may_be_chance(name)
        hinted = self._hinted("action", fits)
        if not hinted:
            if not self._has("action") and not self._unusable_action():
                self._before_reward()
            return
        best = hinted[0][0]
        family = self._neighbors([name for rank, name in hinted if rank == best])
        for name in family:
            self._set(name, "action", f"its name, and {self._kind(name)}", sure=len(hinted) == len(family))
        if len(hinted) > len(family):
            others = ", ".join(name for _, name in hinted if name not in family)
            text = f"{', '.join(family)} is taken as the action; {others} could be it, too."
            self._ask(text, "action", ", ".join(family))

    def _neighbors(self, named: list[str]) -> list[str]:
        """Return the first of these columns, those that differ from it by a number, and amounts that stand beside it.

        So `dose_morphine` and `dose_ketamine` are one action of two amounts.
        """
        first, names = named[0], self.table.columns
        family = [name for name in named if stem(name) == stem(first)]
        is_amount = lambda name: not self._discrete(name)
        if len(family) > 1 or not is_amount(first):
            return family
        amounts = [name for name in names if name in named and is_amount(name)]
        at = names.index(amounts[0])
        return amounts if names[at : at + len(amounts)] == amounts else family

    def _unusable_action(self) -> bool:
        """Whether a column is called like the action and cannot be it; a person is asked for another."""
        for name in self.table.columns:
            rank, column = hint(name, "action"), self.table[name]
            if rank is None or rank > CLEAR or (name in self.roles and not self._constant(name)):
                continue
            count = column.n_unique()
            if (
                column.null_count() == len(column)
                or self._may_be_chance(name)
                or not (count == 1 or not self._choice(name))
            ):
                continue
            one = f"is always {brief(column[0])}, so there is nothing to compare"
            why = (
                one
                if count == 1
                else f"has {count:,} choices, more than the {MAX_CATEGORIES} that are read; group them"
            )
            self._set(name, "left out", f"its name speaks for the action, but it {why}")
            self._ask(f"{name} is called like the action, but it {why}. Is another column the action?", "action")
            return True
        return False

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
        if rewards and self._columns("action") and not self._stands_after_action(rewards[0]) and not self.formula:
            self._early_reward(rewards[0])
            rewards = self._columns("reward")
        for name in (name for name in self.rivals if rewards and name not in self.roles):
            after = self._stands_after_action(name)
            if after:
                self._set(name, "outcome", f"it may be a result of the action, like {rewards[0]}", sure=False)
            more = ", and is reported as an outcome" if after else ""
            self._ask(f"{rewards[0]} is taken as the reward; {name} could be it, too{more}.", "reward", rewards[0])

    def _early_reward(self, reward: str) -> None:
        """Doubt a reward that stands before the action; it is none where a column after the action is called so."""
        if hint(reward, "reward") == 0:
            return
        text = [
            name for name in self._free() if self.table[name].dtype == pl.String and self._stands_after_action(name)
        ]
        for name in [name for name in text if hint(name, "reward") is not None][:1]:
            del self.roles[reward]
            word = brief(self.table[name].drop_nulls()[0])
            self._set(name, "left out", f"its name speaks for the reward, but it holds words such as {word}")
            self._ask(f"{name} is called like the reward, but it holds words such as {word}: write numbers.", "reward")
            return
        self._ask(f"{reward} is taken as the reward, although it stands before the action.", "reward", reward)

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
                if same_values(self.table[name], self.table[other]) or self._renamed(name, other):
                    self._set(name, "left out", f"a copy of {other}")
                    break

    def _renamed(self, name: str, other: str) -> bool:
        """Whether a column says the same as another in other words or codes."""
        count = self.table[other].n_unique()
        if not 1 < count == self.table[name].n_unique() <= min(MAX_CATEGORIES, self.table.height // 10):
            return False
        return self.table.select(by_name(name, other)).n_unique() == count

    def _observations(self) -> None:
        for name in list(self._free()):
            column = self.table[name]
            if self._constant(name):
                self._set(name, "left out", f"it is always {brief(column[0])}")
            elif re.match(r"next[_.]", name.lower()):
                self._set(name, "left out", "its name says that it is known only after the step")
            elif column.dtype == pl.String and column.n_unique() > MAX_CATEGORIES:
                what = f"{column.n_unique():,} different words: a name or a free text"
                if has_digits(column):
                    what = f"words with digits, such as {brief(column.drop_nulls()[0])}: write numbers to use it"
                self._set(name, "left out", what)
            elif words_of(name)[-1] in ("id", "uuid", "key") and column.n_unique() > MAX_CATEGORIES:
                self._set(name, "left out", "an identifier, by its name and its many values")
            else:
                words = column.dtype == pl.String
                kind = "true or false" if is_binary(column) else "numbers"
                kind = f"{column.drop_nulls().n_unique()} categories" if words else kind
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

    def _incomplete(self, blocks: np.ndarray | None) -> None:
        """Leave out the episodes in which an action, a reward or a cost was not recorded."""
        needed = [*self._columns("action"), *self._columns("reward"), *self._columns("cost")]
        lacking = [name for name in needed if self.table[name].null_count()]
        if not lacking:
            return
        rows = np.any([self.table[name].is_null().to_numpy() for name in lacking], axis=0)
        numbers = np.arange(len(rows)) if blocks is None else blocks
        what = f"{len(np.unique(numbers[rows])):,} of {len(np.unique(numbers)):,} episodes"
        self.skip_incomplete = True
        text = f"{what} are left out, because {' or '.join(lacking)} is empty in some of their rows."
        self._ask(text, "incomplete", "leave out", ("leave out", "stop"))

    def _one_step(self, blocks: np.ndarray | None) -> bool:
        if blocks is not None or self._has("terminated"):
            return False
        if self._has("step"):
            self._ask("No column tells one episode from the next: which one names it?", "episode")
            return False
        if not any(item.reason.startswith("it is different in every row") for item in self.roles.values()):
            self._ask("Every row is taken as an episode of its own.", "one_step", "yes", ("yes", "no"))
        return True
