"""The roles of a table's columns as far as they are decided, and what the columns look like."""

from __future__ import annotations

from collections.abc import Callable

import polars as pl

from odice.data.column_kinds import is_dated, is_number
from odice.data.hints import hint, speaks_of
from odice.data.proposal import Question, Role
from odice.data.readers.encode import MAX_CATEGORIES, clock


class Roles:
    """A table, and what is proposed for its columns so far."""

    def __init__(self, table: pl.DataFrame):
        self.table = table
        self.roles: dict[str, Role] = {}
        self.questions: list[Question] = []

    def _ask(self, text: str, about: str, default: str = "", options: tuple[str, ...] = ()) -> None:
        self.questions.append(Question(text, about, default, options))

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

    def _constant(self, name: str) -> bool:
        column = self.table[name]
        return column.n_unique() == 1 and not column.null_count()

    def _may_be_chance(self, name: str) -> bool:
        named = speaks_of(name, "chance") or hint(name, "propensity") is not None
        return named and self.table[name].dtype.is_float() and self._between(name, 0, 1)

    def _between(self, name: str, low: float, high: float) -> bool:
        column = self.table[name]
        return is_number(column) and column.min() > low and column.max() <= high  # pyright: ignore

    def _discrete(self, name: str) -> bool:
        column = self.table[name]
        return not column.dtype.is_float() and column.n_unique() <= MAX_CATEGORIES

    def _choice(self, name: str) -> bool:
        return is_number(self.table[name]) or self._discrete(name)

    def _kind(self, name: str) -> str:
        return f"{self.table[name].drop_nulls().n_unique()} choices" if self._discrete(name) else "amounts"

    def _time(self, name: str) -> pl.Series | None:
        """Return a column as times or numbers that may order rows, or None."""
        column = self.table[name]
        if is_dated(column) or (column.dtype == pl.String and hint(name, "step") is not None):
            ticks = clock(column)
            return None if ticks is None else pl.Series(ticks)
        if column.dtype.is_temporal():
            return column.to_physical().cast(pl.Float64)
        return column.cast(pl.Float64) if is_number(column) and hint(name, "step") is not None else None
