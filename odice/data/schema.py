"""Which column of a table means what.

A table holds one row per step. What its columns mean is said by keyword, by a small schema file, or by the usual names;
the first that speaks wins. Nothing is guessed where guessing could train on wrong data: a column `done` does not tell
whether the world ended or only the log did, two families of names could both be the observation, `obs_0, obs_2` lacks
one; each of these is an error that says what to write instead.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from difflib import get_close_matches
from fnmatch import fnmatchcase
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal, get_args

from odice.data.names import ALIASES, DONE
from odice.errors import OdiceError, unknown_name
from odice.files import read_text

Categories = tuple[tuple[str, tuple[str, ...]], ...]
"""(column, its values in order; none: as they are in the log)."""
Missing = Literal["refuse", "forward-fill", "impute", "split"]
# Roles that one column plays; the observation and the action have families of columns.
SINGLE = ("reward", "cost", "propensity", "terminated", "truncated", "episode", "first", "last", "step")
# A family of columns is a word of `ALIASES`, alone or followed by a part (obs_0, observation.x, state[3]), or s0, a1...
LETTERS = {"observation": "sox", "action": "au"}
# What a policy cannot see before it acts.
HIDDEN = ("action", "reward", "cost", "propensity", "terminated", "truncated", "last", "episode")
GROUPS = ("observation", "action", "next_observation")
# A file longer than this is not a schema; it is refused before it is parsed.
MAX_FILE = 1 << 20


@dataclass(frozen=True)
class Schema:
    """Columns of a table by role, and what the table itself cannot say; see docs/howto/tables.md.

    A role that is not given is taken from the usual names, or absent. `TableFlags` has the same as flags.
    """

    observation: tuple[str, ...] = ()
    """Columns of the observation, with commas or spaces between them; patterns such as 'joint_*' work."""
    action: tuple[str, ...] = ()
    """Columns of the action."""
    next_observation: tuple[str, ...] = ()
    """Columns of the observation after the step."""
    reward: str | None = None
    """Column of the reward."""
    cost: str | None = None
    """Column of a step's cost, for algorithms that keep a limit on it."""
    propensity: str | None = None
    """Column of the probability with which the action was chosen, where the behavior was randomized."""
    terminated: str | None = None
    """Column that is true where the world ended."""
    truncated: str | None = None
    """Column that is true where only the log ended."""
    episode: str | None = None
    """Column with the number or name of the episode."""
    first: str | None = None
    """Column that is true at the first step of an episode."""
    last: str | None = None
    """Column that is true at the last step of an episode, whatever the reason."""
    step: str | None = None
    """Column that orders the rows of an episode."""
    one_step: bool | None = None
    """Whether every row is an episode of its own that ends there."""
    complete: bool | None = None
    """Whether every episode is over at its last row (discharged, closed); otherwise the log may only have stopped."""
    cost_limit: float | None = None
    """The most that an episode may cost on average; `odice decide` keeps to it."""
    outcomes: tuple[str, ...] = ()
    """Further columns, or arithmetic of them, whose change `odice decide` reports; nothing is trained on them."""
    discrete: bool | None = None
    """Whether the action is a choice among options; otherwise whole numbers in one column are."""
    n_actions: int | None = None
    """Number of discrete actions."""
    action_low: tuple[float, ...] | None = None
    """Lower bound of the actions: one number, or one for each."""
    action_high: tuple[float, ...] | None = None
    """Upper bound of the actions."""
    env_id: str | None = None
    """Environment the log comes from."""
    ref_min: float | None = None
    """Return that counts as score 0."""
    ref_max: float | None = None
    """Return that counts as score 100."""
    categories: Categories = ()
    """Columns whose numbers are categories; columns of words are recognized. `mode=auto|manual|off`, or in a
    file `mode = ["auto", "manual", "off"]` under `[categories]`, fixes the values."""
    units: tuple[str, ...] = ()
    """Units of observation columns, as `heart_rate=bpm`; they travel with the policy."""
    missing: Missing | None = None
    """What to do where an observation lacks a value: refuse (the default), forward-fill from the step before, impute
    the column's median, or split the episode there, which also takes out rows without an action or a reward."""
    missing_indicator: bool | None = None
    """Whether each column that lacks values gets another that says where."""
    max_gap: float | None = None
    """Split an episode where the step column moves by more than this (in its own unit; seconds for times)."""

    @classmethod
    def parse(cls, given: Mapping[str, Any], where: str) -> Schema:
        """A Schema from plain values, each checked; lists of columns may be written as `"x,y"`."""
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
        if not isinstance(given, dict):
            raise OdiceError(f"{path}: holds a {type(given).__name__}; a schema is a set of entries `role = column`.")
        return cls.parse(given, str(path))

    def over(self, other: Schema) -> Schema:
        """This schema, with the other one's entries where this one is silent."""
        mine = {item.name: value for item in fields(self) if (value := getattr(self, item.name)) not in (None, ())}
        return replace(other, **mine)

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values of what is said; `parse` gives the same schema again."""
        said = {item.name: value for item in fields(self) if (value := getattr(self, item.name)) not in (None, ())}
        if "categories" in said:
            said["categories"] = {name: list(values) for name, values in self.categories}
        return {name: list(value) if isinstance(value, tuple) else value for name, value in said.items()}

    def columns(self) -> list[str]:
        """Every column the schema names, once, in a fixed order."""
        singles = [getattr(self, role) for role in SINGLE]
        return list(dict.fromkeys([*(c for g in GROUPS for c in getattr(self, g)), *filter(None, singles)]))

    def bind(self, columns: Sequence[str], where: str) -> Schema:
        """The same schema with every role bound to columns that exist."""
        roles: dict[str, Any] = {}
        for role in SINGLE:
            given = getattr(self, role)
            roles[role] = _only(given, columns, role, where) if given else _by_name(role, columns, where)
        taken = {name for name in roles.values() if name}
        for role in ("action", "observation"):
            given, rest = getattr(self, role), [c for c in columns if c not in taken]
            if role == "observation":  # a pattern means what has no other role
                rest = [c for c in rest if c not in _after_a_step(columns)]
            roles[role] = _expand(given, columns, role, where, rest) if given else _family(role, rest, where)
            taken.update(roles[role])
        given = self.next_observation
        roles["next_observation"] = (
            _expand(given, columns, "next_observation", where) if given else _next(roles["observation"], columns, where)
        )
        if len(roles["next_observation"]) not in (0, len(roles["observation"])):
            raise OdiceError(
                f"{where}: {len(roles['next_observation'])} next-observation columns for {len(roles['observation'])} "
                "observation columns; name as many of each, in the same order."
            )
        if not roles["reward"]:
            raise _missing("reward", columns, where)
        _check_hidden(roles, where)
        self._check_ends(roles, columns, where)
        return replace(self, **roles)

    def _check_ends(self, roles: dict[str, Any], columns: Sequence[str], where: str) -> None:
        done = [c for c in columns if c.lower() in DONE]
        if done and not roles["terminated"] and done[0] not in roles.values():
            raise OdiceError(
                f"{where}: column {done[0]!r} does not say whether the world ended (terminated) or only the log did "
                f"(truncated); name it as `terminated`, as `truncated`, or as `last` if it means either."
            )
        by_time = self.max_gap is not None and roles["step"]
        if (
            not by_time
            and not self.one_step
            and not any(roles[role] for role in ("terminated", "truncated", "episode", "first", "last"))
        ):
            raise OdiceError(
                f"{where}: no column says where episodes end; name one as `episode`, `terminated`, `truncated`, "
                f"`first` or `last`, or say `one_step = true` (--one-step True) if every row stands for itself. "
                f"Columns: {_some(columns)}."
            )


@dataclass(frozen=True)
class TableFlags:
    """What the columns of a table mean: the flags of `odice data`, `odice train` and `odice imitate`.

    docs/howto/tables.md explains them. `X_column` names the column of the schema's role X; the other flags are the
    schema's entries themselves.
    """

    observation_columns: tuple[str, ...] = ()
    """Columns of the observation, with commas or spaces between them; patterns such as 'joint_*' work."""
    action_columns: tuple[str, ...] = ()
    """Columns of the action."""
    next_observation_columns: tuple[str, ...] = ()
    """Columns of the observation after the step."""
    reward_column: str | None = None
    """Column of the reward."""
    cost_column: str | None = None
    """Column of a step's cost, for algorithms that keep a limit on it."""
    propensity_column: str | None = None
    """Column of the probability with which the action was chosen, where the behavior was randomized."""
    terminated_column: str | None = None
    """Column that is true where the world ended."""
    truncated_column: str | None = None
    """Column that is true where only the log ended."""
    episode_column: str | None = None
    """Column with the number or name of the episode."""
    first_column: str | None = None
    """Column that is true at the first step of an episode."""
    last_column: str | None = None
    """Column that is true at the last step of an episode, whatever the reason."""
    step_column: str | None = None
    """Column that orders the rows of an episode: a number, a date or a time."""
    one_step: bool | None = None
    """Whether every row is an episode of its own that ends there."""
    complete: bool | None = None
    """Whether every episode is over at its last row (discharged, closed); otherwise the log may only have stopped."""
    max_gap: float | None = None
    """Split an episode where the step column moves by more than this (in its own unit; seconds for times)."""
    categories: tuple[str, ...] = ()
    """Columns whose numbers are categories; columns of words are recognized. 'mode=auto|off' fixes the
    values."""
    units: tuple[str, ...] = ()
    """Units of observation columns, as 'heart_rate=bpm'; they travel with the policy."""
    missing: Missing | None = None
    """Where an observation lacks a value: refuse (the default), forward-fill from the step before, impute the median,
    or split the episode there."""
    missing_indicator: bool | None = None
    """Whether each column that lacks values gets another that says where."""
    discrete: bool | None = None
    """Whether the action is a choice among options; otherwise whole numbers or words in one column are."""
    n_choices: int | None = None
    """Number of discrete actions (`n_actions` of a schema), where some may never occur in the log."""
    action_low: tuple[float, ...] | None = None
    """Lower bound of the actions: one number, or one for each."""
    action_high: tuple[float, ...] | None = None
    """Upper bound of the actions."""

    def table(self, file: str | Path | None = None) -> dict[str, Any]:
        """The table reader's option that these flags are, over a schema file; none if nothing is said."""
        given = {}
        for item in fields(TableFlags):
            value = getattr(self, item.name)
            if value not in (None, ()):
                role = item.name.removesuffix("_columns").removesuffix("_column").replace("n_choices", "n_actions")
                given[role] = ",".join(value) if item.name.endswith("_columns") else value
        if not given and file is None:
            return {}
        said = Schema.parse(given, "the flags")
        return {"schema": said if file is None else said.over(Schema.read(file))}


def usual_columns(columns: Sequence[str]) -> Schema:
    """The roles that the usual names give without doubt; the others are left open."""

    def clear(find: Callable[[], Any], otherwise: Any) -> Any:
        try:
            return find()
        except OdiceError:
            return otherwise

    roles: dict[str, Any] = {role: clear(lambda role=role: _by_name(role, columns, ""), None) for role in SINGLE}
    rest = [c for c in columns if c not in roles.values()]
    for role in ("observation", "action"):
        roles[role] = clear(lambda role=role: _family(role, rest, ""), ())
    if roles["observation"]:
        roles["next_observation"] = clear(lambda: _next(roles["observation"], columns, ""), ())
    return Schema(**roles)


# --- the steps of it -----------------------------------------------------------------------------------------------


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


def _by_name(role: str, columns: Sequence[str], where: str) -> str | None:
    matches = [c for c in columns if c.lower() in ALIASES[role]]
    if len(matches) > 1:
        raise OdiceError(f"{where}: {_some(matches)} could each be the `{role}` column; say which one is.")
    return matches[0] if matches else None


def _only(pattern: str, columns: Sequence[str], role: str, where: str) -> str:
    matches = list(_expand((pattern,), columns, role, where))
    if len(matches) > 1:
        raise OdiceError(f"{where}: {pattern!r} fits {_some(matches)}, but `{role}` is one column; name it in full.")
    return matches[0]


def _expand(
    patterns: Iterable[str], columns: Sequence[str], role: str, where: str, free: Sequence[str] | None = None
) -> tuple[str, ...]:
    """The columns that names or patterns mean, numbered parts in the order of their numbers.

    A name may be that of any column; a pattern stands for those in `free`, by default all.
    """
    out: list[str] = []
    for pattern in patterns:
        if pattern in columns:
            out.append(pattern)
            continue
        matches = [c for c in (columns if free is None else free) if fnmatchcase(c, pattern)]
        if not matches:
            near = get_close_matches(pattern, columns, n=1, cutoff=0.5)
            hint = f"; did you mean {near[0]!r}?" if near else "."
            raise OdiceError(f"{where}: no column {pattern!r} (for `{role}`) among {_some(columns)}{hint}")
        out += sorted(matches, key=natural)
    if len(set(out)) < len(out):
        twice = next(c for c in out if out.count(c) > 1)
        raise OdiceError(f"{where}: column {twice!r} is named twice for `{role}`; name each column once.")
    return tuple(out)


def _family(role: str, columns: Sequence[str], where: str) -> tuple[str, ...]:
    """The observation or action columns by their usual names."""
    families: dict[str, dict[str, str]] = {}
    words = "|".join(ALIASES[role])
    for column in columns:
        match = re.fullmatch(rf"({words})(?:[\W_]*(.*?)\W*)", column, re.IGNORECASE | re.DOTALL)
        separated = match and (not match[2] or match[2].isdigit() or not column[len(match[1])].isalnum())
        if match and separated and "next" not in re.split(r"[\W_]+", column.lower()):
            families.setdefault(match[1].lower(), {})[column] = match[2]
    if not families:
        for column in columns:
            letter = re.fullmatch(rf"([{LETTERS[role]}])[\W_]*(\d*)\W*", column, re.IGNORECASE)
            if letter:
                families.setdefault(letter[1].lower(), {})[column] = letter[2]
    if not families:
        raise _missing(role, columns, where)
    if len(families) > 1:
        several = [next(iter(family)) for family in families.values()]
        raise OdiceError(f"{where}: {_some(several)} could each be the {role}; name the columns of `{role}`.")
    return _in_order(role, next(iter(families.values())), where)


def _in_order(role: str, family: Mapping[str, str], where: str) -> tuple[str, ...]:
    """Numbered columns by number, checked for gaps; named ones as they come."""
    parts = list(family.values())
    numbered = [p for p in parts if p.isdecimal() and p.isascii() and len(p) < 10]
    if not numbered or len(family) == 1:
        return tuple(family)
    if len(numbered) < len(parts):
        raise OdiceError(
            f"{where}: {_some(list(family))} mix numbers and names; name the columns of `{role}` (a pattern such as "
            "'obs_[0-9]*' will do)."
        )
    order = sorted(family, key=lambda c: int(family[c]))
    numbers = [int(family[c]) for c in order]
    if len(set(numbers)) < len(numbers):
        raise OdiceError(f"{where}: {_some(order)} repeat a number; name the columns of `{role}`.")
    if (first := numbers[0]) > 1 or numbers != list(range(first, first + len(numbers))):
        gap = next((b - 1 for a, b in pairwise(numbers) if b != a + 1), numbers[0] - 1)
        raise OdiceError(
            f"{where}: the {role} columns {order[0]!r} to {order[-1]!r} lack number {gap}; add the column, or name "
            "those that count."
        )
    return tuple(order)


def _next_names(column: str) -> list[str]:
    """The usual names of a column after the step."""
    word = re.match(r"[^\W\d_]+", column)
    inner = [f"{word[0]}_next{column[word.end() :]}", f"{word[0]}.next{column[word.end() :]}"] if word else []
    return [f"next_{column}", f"next.{column}", f"next{column}", f"new_{column}", f"{column}_next", *inner]


def _after_a_step(columns: Sequence[str]) -> set[str]:
    """The columns that hold another column's value after the step."""
    return {name for column in columns for name in _next_names(column)} & set(columns)


def _next(observation: Sequence[str], columns: Sequence[str], where: str) -> tuple[str, ...]:
    """The columns that hold the observation after the step: next_obs_0 for obs_0, and the like."""
    have = set(columns)
    names = [next((n for n in _next_names(c) if n in have), None) for c in observation]
    if all(names):
        return tuple(n for n in names if n)
    words = "|".join((*ALIASES["observation"], *LETTERS["observation"]))
    stray = [c for c in columns if re.match(rf"(next|new)[\W_]*({words})([\W_\d]|$)", c, re.IGNORECASE)]
    if any(names) or stray:
        lacking = observation[names.index(None)]
        seen = next((n for n in names if n), None) or stray[0]
        raise OdiceError(
            f"{where}: there is {seen!r} but no {_next_names(lacking)[0]!r} for {lacking!r}; add it, name the columns "
            "of `next_observation`, or leave them all out."
        )
    return ()


def _check_hidden(roles: Mapping[str, Any], where: str) -> None:
    """Refuse an observation that also plays a role which is not known before the action."""
    for role in HIDDEN:
        both = {roles[role]} if role in SINGLE else set(roles[role])
        if both := both & set(roles["observation"]):
            raise OdiceError(
                f"{where}: column {both.pop()!r} is an observation and also the `{role}`, which is not known before "
                "the action; name it once."
            )


def _missing(role: str, columns: Sequence[str], where: str) -> OdiceError:
    usual = {
        "reward": "'reward' or 'r'",
        "observation": "'obs_0', 'observation.x', 'state_x' or 's0'",
        "action": "'action', 'action_0' or 'a0'",
    }[role]
    near = next((c for c in columns if get_close_matches(c.lower(), ALIASES[role], n=1, cutoff=0.7)), None)
    hint = (
        f"; did you mean {near!r}? Then name it as `{role}`."
        if near
        else f"; name it as `{role}` (`odice data schema` helps)."
    )
    return OdiceError(f"{where}: no {role} column (such as {usual}) among {_some(columns)}{hint}")


def _some(names: Sequence[str], most: int = 12) -> str:
    short = [repr(n if len(n) <= 40 else n[:37] + "...") for n in names[:most]]
    return ", ".join(short) + (f" and {len(names) - most} more" if len(names) > most else "")


def natural(name: str) -> list[tuple[int, int | str]]:
    """A sort key that puts part 2 before part 10."""
    parts = re.split(r"([0-9]{1,18})", name)
    return [(0, int(p)) if p.isdecimal() and p.isascii() else (1, p) for p in parts]


def _line(error: BaseException) -> str:
    return " ".join(str(error).split())[:120]
