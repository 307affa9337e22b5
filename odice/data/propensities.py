"""Recognize the probabilities with which actions were chosen, by what they must satisfy.

If p is the probability of the choice that was made in a row, the sum of 1/p over the rows in which a choice was made
is about the number of all rows, for every choice.
"""

from __future__ import annotations

import numpy as np
import polars as pl

from odice.data.hints import speaks_of, words_of
from odice.data.roles import Roles

EXPLAINED = 0.02
"""Share of the variance of probabilities that the choices must explain to be the ones they belong to."""


def are_propensities(column: pl.Series, choices: pl.Series) -> bool:
    """Whether a column may have the probabilities of the choices: the sum of 1/p of each is within 20 % of all rows."""
    if not column.dtype.is_float() or column.null_count() or not (column.min() > 0 and column.max() <= 1):  # pyright: ignore
        return False
    known = pl.DataFrame({"taken": choices, "inverse": 1 / column}).drop_nulls("taken")
    if known["taken"].n_unique() < 2:
        return False
    sums = known.group_by("taken").sum()
    return bool(np.abs(sums["inverse"].to_numpy() / len(known) - 1).max() <= 0.2)


def explained(column: pl.Series, choices: pl.Series) -> float:
    """The share of a column's variance that lies between the choices: near 0 if it has nothing to do with them."""
    values = column.to_numpy().astype(float)
    group = choices.cast(pl.String).fill_null("").rank("dense").to_numpy().astype(int) - 1
    means = np.bincount(group, values) / np.bincount(group)
    return float(np.var(means[group]) / np.var(values)) if np.var(values) > 0 else 0.0


class Propensities(Roles):
    """Finds the action by the column of its probabilities, and that column by the action."""

    def _action_by_propensity(self) -> None:
        """Find the action by the probabilities that another column has for it, where no name speaks for one."""
        if self._hinted("action", lambda name: self._choice(name) and not self._may_be_chance(name)):
            return
        table = self.table
        pairs = [
            (set(words_of(name)) <= set(words_of(chance)), explained(table[chance], table[name]), chance, name)
            for chance in [*self._columns("propensity"), *self._free()]
            for name in self._free()
            if name != chance and self._discrete(name) and are_propensities(table[chance], table[name])
        ]
        for named, share, chance, name in sorted(pairs, reverse=True)[:1]:
            if not named and share < EXPLAINED:
                return
            reason = f"{self._kind(name)}, and {chance} has their probabilities"
            self._set(name, "action", reason, sure=named)
            if not named:
                self._ask(f"{name} is taken as the action: it has {reason}.", "action", name)

    def _propensity(self) -> None:
        """Recognize the probability of the action by its values."""
        actions = self._columns("action")
        if self._has("propensity") or len(actions) != 1 or not self._discrete(actions[0]):
            return
        for name in self._free():
            if not are_propensities(self.table[name], self.table[actions[0]]):
                continue
            named = speaks_of(name, "chance")
            count = self.table[actions[0]].n_unique()
            reason = f"1 / {name} has the mean 1 for each of the {count} choices, as a probability has"
            self._set(name, "propensity", f"its name, and {reason}" if named else reason, sure=named)
            if not named:
                text = f"{name} is taken as the probability with which the action was chosen: {reason}."
                self._ask(text, name, "propensity", ("propensity", "observation", "left out"))
            return
