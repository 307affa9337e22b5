"""Presets: published settings as data. A preset says what differs from an algorithm's defaults, and where each number
is from.

A preset never parses a data set's name: a table row says which settings, reward map and evaluation belong to it.
Data sets without a row get the preset's general values.
"""

from __future__ import annotations

import dataclasses
from importlib import import_module
from types import ModuleType
from typing import Any, NamedTuple

from odice.errors import OdiceError, unknown_name
from odice.presets.table import OWN, Protocol, Setting, Table, own_protocol

__all__ = ["OWN", "PRESETS", "Preset", "Protocol", "Setting", "own_protocol", "preset"]

PRESETS = {
    "paper": "what the text of the algorithm's own paper says",
    "reference": "what the authors' released code does",
    "corl": "what CORL's single-file implementation does",
}


class Preset(NamedTuple):
    """The settings and the protocol of one algorithm, for one data set or in general."""

    name: str
    algo: str
    data: str | None
    """The data set whose row was used; None for the general values."""
    settings: dict[str, Setting]
    protocol: Protocol

    def values(self) -> dict[str, Any]:
        """The settings as keyword arguments for `odice.make` or the algorithm's config."""
        return {name: setting.value for name, setting in self.settings.items()}


def preset(name: str, algo: str, data: str | None = None, *, imitation: bool = False) -> Preset:
    """Return the preset of an algorithm, with the row of a data set where the preset has one.

    Args:
        name: The preset; with `imitation` also `imitation`, which holds where none is chosen.
        algo: The algorithm.
        data: The data set; None for the preset's general values.
        imitation: Return the settings for learning from demonstrations.
    """
    if name not in PRESETS and not (imitation and name == "imitation"):
        raise unknown_name("preset", name, PRESETS)
    table = _table(name, algo, imitation)
    row = table.rows.get(data) if data else None
    fields = _fields(algo)
    settings = table.settings | (row.settings if row else {})
    return Preset(
        name,
        algo,
        data if row else None,
        {key: setting for key, setting in settings.items() if key in fields},
        row.protocol if row else table.protocol,
    )


def _table(name: str, algo: str, imitation: bool) -> Table:
    tables = _tables(name, imitation)
    if algo in tables:
        return tables[algo]
    from odice.algos import entry

    entry(algo)  # a misspelt algorithm gets its own error
    if name == "imitation":
        return Table({}, _imitation().PROTOCOL)
    what = "settings to imitate with" if imitation else "settings"
    others = [other for other in PRESETS if algo in _tables(other, imitation)]
    advice = f"{algo} has {' and '.join(others)}, and its defaults" if others else "leave --preset out"
    raise OdiceError(f"Preset {name!r} has no {what} for {algo!r}: {advice}.")


def _tables(name: str, imitation: bool) -> dict[str, Table]:
    if imitation:
        return _imitation().TABLES.get(name, {})
    return import_module(f"{__name__}.{name}").TABLES


def _imitation() -> ModuleType:
    return import_module("odice.presets.imitation")  # loaded when it is needed, like the other tables


def _fields(algo: str) -> set[str]:
    """Tables are shared by a family; an algorithm takes the settings its config has (S-DICE has no eta)."""
    from odice.algos import entry

    return {field.name for field in dataclasses.fields(entry(algo).config)}
