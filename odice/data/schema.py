"""A schema: which column of a table means what, and what the table itself cannot say.

`Schema` is the one declaration of its entries. The parser of schema files, the keywords of `odice.load`, the flags of
the commands (`TableFlags`), the drafts of `odice data schema` and the reference page are all made from its fields.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, make_dataclass, replace
from pathlib import Path
from typing import Any, Literal, get_args, get_type_hints

from odice.errors import OdiceError, unknown_name
from odice.files import read_text

Categories = tuple[tuple[str, tuple[str, ...]], ...]
"""(column, its values in order; none: as they are in the log)."""
Missing = Literal["refuse", "forward-fill", "impute", "split"]
# A file longer than this is not a schema; it is refused before it is parsed.
MAX_FILE = 1 << 20


def _entry(help: str, *, flag: str | None = "{}", default: Any = None) -> Any:
    """A field of `Schema`: what it means, and the name of its flag, if it has one ({} is the field's name)."""
    return field(default=default, metadata={"help": help, "flag": flag})


def _column(help: str) -> Any:
    """A role that one column plays. `--reward` of `odice train` is the reward map, so its flag says column."""
    return _entry(help, flag="{}_column")


def _columns(help: str) -> Any:
    """A role that several columns play."""
    return _entry(help, flag="{}_columns", default=())


@dataclass(frozen=True)
class Schema:
    """Columns of a table by role, and what the table itself cannot say; see docs/reference/tables.md.

    A role that is not given is taken from the usual names, or absent.
    """

    observation: tuple[str, ...] = _columns(
        "Columns of the observation, with commas or spaces between them; patterns such as 'joint_*' work."
    )
    action: tuple[str, ...] = _columns("Columns of the action.")
    next_observation: tuple[str, ...] = _columns("Columns of the observation after the step.")
    reward: str | None = _column("Column of the reward of the step, or arithmetic of columns.")
    cost: str | None = _column("Column of the cost of the step, for algorithms that keep a limit on it.")
    propensity: str | None = _column(
        "Column of the probability with which the action was chosen, where the behavior was randomized."
    )
    terminated: str | None = _column("Column that is true where the world ended: nothing that comes after has value.")
    truncated: str | None = _column("Column that is true where only the log ended.")
    episode: str | None = _column("Column with the number or name of the episode.")
    first: str | None = _column("Column that is true at the first step of an episode.")
    last: str | None = _column("Column that is true at the last step of an episode, whatever the reason.")
    step: str | None = _column("Column that orders the rows of an episode: a number, a date or a time.")
    one_step: bool | None = _entry("Whether every row is an episode of its own that ends there.")
    complete: bool | None = _entry(
        "Whether every episode is over at its last row (discharged, closed); otherwise the log may only have stopped."
    )
    max_gap: float | None = _entry(
        "Split an episode where the step column moves by more than this (in its own unit; seconds for times)."
    )
    cost_limit: float | None = _entry(
        "The most that an episode may cost on average; `odice decide` keeps to it.", flag=None
    )
    outcomes: tuple[str, ...] = _entry(
        "Further columns, or arithmetic of them, whose change `odice decide` reports; nothing is trained on them.",
        flag=None,
        default=(),
    )
    categories: Categories = _entry(
        "Columns whose numbers are categories; columns of words are recognized. `mode=auto|manual|off` fixes the "
        "values and their order.",
        default=(),
    )
    units: tuple[str, ...] = _entry(
        "Units of observation columns, as `heart_rate=bpm`; they travel with the policy.", default=()
    )
    missing: Missing | None = _entry(
        "What to do where an observation lacks a value: refuse (the default), forward-fill from the step before, "
        "impute the column's median, or split the episode there, as at rows without an action, a reward or a cost."
    )
    missing_indicator: bool | None = _entry(
        "Whether each column of numbers that lacks values gets another that says where, as columns of words do."
    )
    skip_incomplete: bool | None = _entry(
        "Whether an episode that lacks an action, a reward or a cost is left out, all of it; otherwise that is an "
        "error, unless `missing` splits the episode there."
    )
    discrete: bool | None = _entry(
        "Whether the action is a choice among options; otherwise whole numbers or words in one column are."
    )
    n_actions: int | None = _entry(
        "Number of discrete actions, where some may never occur in the log.", flag="n_choices"
    )
    action_low: tuple[float, ...] | None = _entry("Lower bound of the actions: one number, or one for each.")
    action_high: tuple[float, ...] | None = _entry("Upper bound of the actions.")
    env_id: str | None = _entry("Environment the log comes from.", flag=None)
    ref_min: float | None = _entry("Return that counts as score 0.", flag=None)
    ref_max: float | None = _entry("Return that counts as score 100.", flag=None)

    @classmethod
    def parse(cls, given: Mapping[str, Any], where: str) -> Schema:
        """A Schema from plain values, each checked; lists of columns may be written as `"x,y"`."""
        if not isinstance(given, Mapping):
            raise OdiceError(f"{where}: holds a {type(given).__name__}; a schema is a set of entries `role = column`.")
        kinds = {item.name: str(item.type) for item in fields(cls)}
        values = {}
        for key, value in given.items():
            if key not in kinds:
                raise OdiceError(f"{where}: {unknown_name('entry', key, kinds)}")
            if value is not None:
                values[key] = _value(key, value, kinds[key], where)
        return cls(**values)

    @classmethod
    def read(cls, path: str | Path) -> Schema:
        """The schema in a TOML or JSON file."""
        path = Path(path)
        try:
            text = read_text(path, MAX_FILE)
            given = json.loads(text) if path.suffix.lower() == ".json" else tomllib.loads(text)
        except (ValueError, RecursionError) as error:
            kind = "JSON" if path.suffix.lower() == ".json" else "TOML"
            raise OdiceError(f"{path}: not valid {kind} ({_line(error)}); correct the schema file.") from error
        return cls.parse(given, str(path))

    def over(self, other: Schema) -> Schema:
        """This schema, with the other one's entries where this one is silent."""
        return replace(other, **self._entries())

    def to_dict(self) -> dict[str, Any]:
        """Return its entries as plain JSON values; `parse` gives the same schema again."""
        entries = self._entries()
        if "categories" in entries:
            entries["categories"] = {name: list(values) for name, values in self.categories}
        return {name: list(value) if isinstance(value, tuple) else value for name, value in entries.items()}

    def _entries(self) -> dict[str, Any]:
        """Return the entries that are set, in the order of the fields."""
        return {item.name: value for item in fields(self) if (value := getattr(self, item.name)) not in (None, ())}

    def columns(self) -> list[str]:
        """Every column the schema names, once, in a fixed order."""
        singles = [getattr(self, role) for role in SINGLE]
        return list(dict.fromkeys([*(c for g in GROUPS for c in getattr(self, g)), *filter(None, singles)]))


HELP = {item.name: item.metadata["help"] for item in fields(Schema)}
FLAGS = {item.name: item.metadata["flag"].format(item.name) for item in fields(Schema) if item.metadata["flag"]}
"""The flag of each entry that has one."""
SINGLE = tuple(name for name, flag in FLAGS.items() if flag == f"{name}_column")
GROUPS = tuple(name for name, flag in FLAGS.items() if flag == f"{name}_columns")


def _flags() -> Any:
    """A dataclass with a field for each flag; its docstring has their help, which the command line shows."""
    kinds = get_type_hints(Schema) | {"categories": tuple[str, ...]}
    entries = {item.name: item for item in fields(Schema)}
    flags = [
        (flag, kinds[name], field(default=entries[name].default, metadata=entries[name].metadata))
        for name, flag in FLAGS.items()
    ]
    text = "\n".join(f"    {flag}: {HELP[name]}" for name, flag in FLAGS.items())
    return make_dataclass("_Flags", flags, frozen=True, namespace={"__doc__": f"Flags.\n\nAttributes:\n{text}\n"})


class TableFlags(_flags()):
    """Columns of a table. Flags of the commands; docs/reference/tables.md explains them."""

    def table(self, file: str | Path | None = None) -> dict[str, Any]:
        """Return the table reader's option that these flags are, over a schema file; empty where nothing is given."""
        given = {name: value for name, flag in FLAGS.items() if (value := getattr(self, flag)) not in (None, ())}
        given |= {name: ",".join(given[name]) for name in GROUPS if name in given}
        if not given and file is None:
            return {}
        schema = Schema.parse(given, "the flags")
        return {"schema": schema if file is None else schema.over(Schema.read(file))}


def _value(key: str, value: Any, kind: str, where: str) -> Any:
    """One entry, converted to its type or refused."""
    wrong = OdiceError(f"{where}: entry {key!r} is {str(value)[:80]!r}; expected {_EXPECTED[kind]}.")
    if kind == "tuple[str, ...]":
        items = [part.strip() for part in value.split(",")] if isinstance(value, str) and value else value
        if isinstance(items, list | tuple) and items and all(isinstance(i, str) for i in items):
            return tuple(items)
    elif kind == "Categories":
        if (pairs := _categories(value)) is not None:
            return pairs
    elif kind == "Missing | None":
        if value in get_args(Missing):
            return value
    elif kind == "str | None":
        if isinstance(value, str) and value:
            return value
    elif kind == "bool | None":
        if isinstance(value, bool):
            return value
    elif kind == "int | None":
        if isinstance(value, int) and not isinstance(value, bool) and 0 < value <= 1 << 31:
            return value
    else:
        items = value if isinstance(value, list | tuple) else [value]
        if items and all(isinstance(i, int | float) and not isinstance(i, bool) and abs(i) < 1e38 for i in items):
            numbers = tuple(float(i) for i in items)
            if kind.startswith("tuple"):
                return numbers
            if len(numbers) == 1:
                return numbers[0]
    raise wrong


def _categories(value: Any) -> Categories | None:
    """Columns with their values, from `name` and `name=a|b`, or from a table; None if it is neither."""
    if isinstance(value, Mapping):
        pairs = [(name, tuple(values)) for name, values in value.items() if isinstance(values, list | tuple)]
        fits = len(pairs) == len(value) and all(isinstance(word, str) for _, words in pairs for word in words)
        return tuple(pairs) if pairs and fits else None
    items = [part.strip() for part in value.split(",")] if isinstance(value, str) else value
    if not isinstance(items, list | tuple) or not items or not all(isinstance(item, str) for item in items):
        return None
    parts = [item.partition("=") for item in items]
    return tuple((name, tuple(words.split("|")) if words else ()) for name, _, words in parts)


_EXPECTED = {
    "tuple[str, ...]": "a column name or a list of names",
    "Categories": "columns, as `mode` or `mode=auto|off`, or a table with a list of values for each",
    "str | None": "one name",
    "Missing | None": "one of " + ", ".join(get_args(Missing)),
    "bool | None": "true or false",
    "int | None": "a whole number above 0",
    "tuple[float, ...] | None": "a number or a list of finite numbers",
    "float | None": "a finite number",
}


def _line(error: BaseException) -> str:
    return " ".join(str(error).split())[:120]
