"""Which rows of a table belong together, and what orders them: proposals for the episode and the step."""

from __future__ import annotations

import numpy as np
import polars as pl
from polars.selectors import by_name

from odice.data.column_kinds import counts_rows, is_dated, is_number, rises
from odice.data.hints import hint, words_of
from odice.data.readers.encode import MAX_CATEGORIES
from odice.data.roles import Roles

IDENTIFIERS = ("id", "no", "nr", "number", "key", "uuid")
"""Last words of an identifier's name."""


class Blocks(Roles):
    """Finds the column that names episodes, in blocks of rows, by time or scattered, and the one that orders rows."""

    def _episode(self) -> np.ndarray | None:
        """Find the column that names episodes; return the number of each row's block, or None."""
        candidates = []
        for position, name in enumerate(self.table.columns):
            column = self.table[name]
            plain = column.dtype.is_integer() or (column.dtype == pl.String and not is_dated(column))
            if name in self.roles or not plain or column.null_count():
                continue
            rank = hint(name, "episode")
            if rank is None and words_of(name)[-1] in IDENTIFIERS:
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
            return self._scattered()
        rank, _, name, unique = min(candidates, key=lambda item: (item in times, *item))
        reason = f"{unique:,} values that stand in blocks of rows"
        self._set(name, "episode", reason if rank == 100 else f"its name, and {reason}", sure=rank < 100)
        if rank == 100:
            self._ask(f"{name} is taken as the episode: {reason}.", "episode", name)
        for rank, _, other, _ in candidates:
            if other != name and rank < 100:
                self._set(other, "left out", f"an identifier: like {name}, its values stand in blocks of rows")
        return self._blocks(name)

    def _panel(self) -> np.ndarray | None:
        """Find a column whose values come back at every time, as customers or machines in a weekly table do.

        The table is sorted by it from here on, so that its values stand in blocks.
        """
        times = [name for name in self.table.columns if name not in self.roles and self._time(name) is not None]
        repeated = [time for time in times if 2 * self.table[time].n_unique() <= self.table.height]
        for time in repeated[:1]:
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
                    return self._blocks(name)
        return None

    def _scattered(self) -> np.ndarray | None:
        """Find an identifier, by its name, whose rows do not stand together, and the column that orders them.

        The table is sorted by both from here on.
        """
        for name in self._free():
            column = self.table[name]
            plain = column.dtype.is_integer() or (column.dtype == pl.String and not is_dated(column))
            many = MAX_CATEGORIES < 2 * column.n_unique() <= self.table.height
            if not plain or column.null_count() or not many or not self._is_identifier(name):
                continue
            orders = [other for other in self._free() if other != name and self._orders(name, other)]
            self.table = self.table.sort(name, *orders[:1], maintain_order=True)
            self._set(name, "episode", f"its name, and {column.n_unique():,} values in several rows each")
            return self._blocks(name)
        return None

    def _is_identifier(self, name: str) -> bool:
        last = words_of(name)[-1]  # not `user_age`
        return last in IDENTIFIERS or hint(last, "episode") is not None

    def _orders(self, name: str, other: str) -> bool:
        """Whether a column has each of its values at most once per episode: a time, or whole numbers."""
        if self._time(other) is None and not self.table[other].dtype.is_integer():
            return False
        return self.table.select(by_name(name, other)).n_unique() == self.table.height

    def _blocks(self, name: str) -> np.ndarray:
        """The number of each row's block."""
        return (self.table[name] != self.table[name].shift()).fill_null(True).to_numpy().cumsum() - 1

    def _steps(self, blocks: np.ndarray | None) -> None:
        rising = []
        for name in self._free():
            values = self._time(name)
            if values is not None and rises(values.to_numpy(), blocks):
                rising.append((is_number(self.table[name]), name))
        for number, name in sorted(rising, key=lambda item: item[0])[:1]:  # a real time before a number
            where = "within episodes" if blocks is not None else "from row to row"
            self._set(name, "step", f"{'its name, and numbers that rise' if number else 'a time that rises'} {where}")
        if not rising and blocks is not None:
            for name in [name for name in self._free() if counts_rows(self.table[name], blocks)][:1]:
                self._set(name, "step", "it counts the rows of an episode")
        for name in self._free():
            if is_dated(self.table[name]) or (self._time(name) is not None and not is_number(self.table[name])):
                self._set(name, "left out", "a time")
