"""Bind a schema to the columns of a table: by name, by pattern, or by the usual names.

Nothing is guessed where guessing could train on wrong data: a column `done` does not tell whether the world ended or
only the log did, two families of names could both be the observation, `obs_0, obs_2` lacks one; each of these is an
error that says what to write instead.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from difflib import get_close_matches
from fnmatch import fnmatchcase
from itertools import pairwise
from typing import Any

from odice.data.names import ALIASES, DONE, natural
from odice.data.schema import GROUPS, SINGLE, Schema
from odice.errors import OdiceError

# A family of columns is a word of `ALIASES`, alone or followed by a part (obs_0, observation.x, state[3]), or s0, a1...
LETTERS = {"observation": "sox", "action": "au"}
# What a policy may see before it acts; a column of any other role is no observation.
SEEN = ("observation", "next_observation", "first", "step")


def bind(schema: Schema, columns: Sequence[str], where: str) -> Schema:
    """Return the same schema with every role bound to columns that exist.

    Args:
        schema: What is declared; a role that is not is looked for by the usual names.
        columns: The names of all columns of the table.
        where: The table, for messages.
    """
    roles: dict[str, Any] = {}
    for role in SINGLE:
        given = getattr(schema, role)
        roles[role] = _only(given, columns, role, where) if given else _by_name(role, columns, where)
    taken = {name for name in roles.values() if name}
    for role in ("action", "observation"):
        given, rest = getattr(schema, role), [c for c in columns if c not in taken]
        if role == "observation":  # a pattern means what has no other role
            rest = [c for c in rest if c not in _after_a_step(columns)]
        roles[role] = _expand(given, columns, role, where, rest) if given else _family(role, rest, where)
        taken.update(roles[role])
    given = schema.next_observation
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
    _check_ends(schema, roles, columns, where)
    return replace(schema, **roles)


def _check_ends(schema: Schema, roles: Mapping[str, Any], columns: Sequence[str], where: str) -> None:
    done = [c for c in columns if c.lower() in DONE]
    if done and not roles["terminated"] and done[0] not in roles.values():
        raise OdiceError(
            f"{where}: column {done[0]!r} does not say whether the world ended (terminated) or only the log did "
            f"(truncated); name it as `terminated`, as `truncated`, or as `last` if it means either."
        )
    by_time = schema.max_gap is not None and roles["step"]
    ends = ("terminated", "truncated", "episode", "first", "last")
    if not by_time and not schema.one_step and not any(roles[role] for role in ends):
        raise OdiceError(
            f"{where}: no column says where episodes end; name one as `episode`, `terminated`, `truncated`, "
            f"`first` or `last`, or say `one_step = true` (--one-step True) if every row stands for itself. "
            f"Columns: {_some(columns)}."
        )


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
    for role in (role for role in (*GROUPS, *SINGLE) if role not in SEEN):
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
