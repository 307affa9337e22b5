"""Presets: published settings as data. A preset says what differs from an algorithm's defaults, and where each number
is from.

A preset never looks into a data set's name: a table row says which settings, reward map and evaluation belong to it.
Data sets without a row get the preset's general values.
"""

from __future__ import annotations

import dataclasses
from importlib import import_module
from typing import Any, NamedTuple

from odice.errors import OdiceError, unknown_name

PRESETS = {
    "paper": "what the text of the algorithm's own paper says",
    "reference": "what the authors' released code does",
    "corl": "what CORL's single-file implementation does",
}


class Setting(NamedTuple):
    """One number and where it comes from."""

    value: Any
    source: str


class Protocol(NamedTuple):
    """What surrounds the updates: how long, how the data are transformed, how the policy is scored."""

    steps: int = 1_000_000
    reward: str = "none"
    """Name of the reward map (`data.preprocess`)."""
    normalize_obs: bool = False
    clip_actions: float | None = None
    """Logged actions are clipped to +- this."""
    convention: str = "qlearning"
    """Which steps count (`data.transitions`)."""
    final_obs: str = "recorded"
    """What follows a demonstration that was cut by time (`data.demonstrations`)."""
    absorbing: bool = False
    """Whether a state that absorbs follows every terminal one (`data.preprocess`)."""
    eval_every: int = 5_000
    eval_episodes: int = 10
    source: str = ""


OWN = Protocol(
    normalize_obs=True,
    convention="bootstrap",
    source="odice's own choice: cloning failed on raw observations (docs/results.md); steps with a next state count",
)
"""What holds where no preset is chosen."""

OWN_PROTOCOLS = {
    "auto": OWN._replace(
        steps=20_000,
        eval_every=1_000,
        reward="return-spread",
        source=f"{OWN.source}; length and reward map not compared with others (docs/defaults.md)",
    )
}
"""Algorithms that have their own in its place."""


def own_protocol(algo: str) -> Protocol:
    """What surrounds an algorithm's updates where no preset is chosen."""
    return OWN_PROTOCOLS.get(algo, OWN)


class Preset(NamedTuple):
    name: str
    algo: str
    data: str | None
    """The data set whose row was used; None for the general values."""
    settings: dict[str, Setting]
    protocol: Protocol

    def values(self) -> dict[str, Any]:
        """The settings as keyword arguments for `odice.make` or the algorithm's config."""
        return {name: setting.value for name, setting in self.settings.items()}


class Row(NamedTuple):
    """What a preset says of one data set, beyond its general values."""

    settings: dict[str, Setting]
    protocol: Protocol


class Table(NamedTuple):
    """A preset for one algorithm: general values, and rows by data set."""

    settings: dict[str, Setting]
    protocol: Protocol
    rows: dict[str, Row] = {}


def preset(name: str, algo: str, data: str | None = None, *, imitation: bool = False) -> Preset:
    """The preset `name` of an algorithm, with the row of data set `data` where the preset has one.

    With `imitation`, what the preset says of learning from demonstrations; its name may then be `imitation` too, for
    what holds when none is chosen.
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
        from odice.presets.imitation import PROTOCOL

        return Table({}, PROTOCOL)
    what = "settings to imitate with" if imitation else "settings"
    others = [other for other in PRESETS if algo in _tables(other, imitation)]
    advice = f"{algo} has {' and '.join(others)}, and its defaults" if others else "leave --preset out"
    raise OdiceError(f"Preset {name!r} has no {what} for {algo!r}: {advice}.")


def _tables(name: str, imitation: bool) -> dict[str, Table]:
    if imitation:
        from odice.presets.imitation import TABLES

        return TABLES.get(name, {})
    return import_module(f"{__name__}.{name}").TABLES


def _fields(algo: str) -> set[str]:
    """Tables are shared by a family; an algorithm takes the settings its config has (S-DICE has no eta)."""
    from odice.algos import entry

    return {field.name for field in dataclasses.fields(entry(algo).config)}
