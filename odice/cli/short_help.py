"""A help of the options that matter most; `--help-all` has the others."""

from __future__ import annotations

import ast
import dataclasses
import inspect
import textwrap
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any

WIDTH = 80
INDENT = 18


def field_notes(config: type) -> dict[str, str]:
    """Return the help of each field of a dataclass: in its metadata, or as the text under it."""
    given = {item.name: item.metadata["help"] for item in dataclasses.fields(config) if "help" in item.metadata}
    notes: dict[str, str] = dict(given)
    for base in reversed(config.__mro__):
        if dataclasses.is_dataclass(base) and vars(base).get("__annotations__", {}).keys() - given.keys():
            (definition,) = ast.parse(textwrap.dedent(inspect.getsource(base))).body
            for field, note in pairwise(getattr(definition, "body", [])):
                match field, note:
                    case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(text))):
                        notes[name] = " ".join(text.split())
    return notes


def short_help(prog: str, about: str, options: Sequence[str], kinds: Iterable[type], values: Any) -> str:
    """The text of `--help`: these options, each with its value where it has one.

    Args:
        prog: the command, such as `odice train`.
        about: what it does.
        options: names of fields, in the order to show.
        kinds: the dataclasses whose fields are options.
        values: an object with these fields.
    """
    kinds = list(kinds)
    notes = {name: note for kind in kinds for name, note in field_notes(kind).items()}
    lines = [f"usage: {prog} --data LOG [OPTIONS]", "", textwrap.fill(about, WIDTH), ""]
    for name in options:
        value = getattr(values, name, None)
        default = "" if isinstance(value, type(None) | tuple | list) or name == "data" else f" [{value}]"
        text = textwrap.wrap(notes[name] + default, WIDTH - INDENT)
        flag = f"  --{name.replace('_', '-')}"
        lines.append(f"{flag:<{INDENT}}{text[0]}" if len(flag) < INDENT else f"{flag}\n{' ' * INDENT}{text[0]}")
        lines += [" " * INDENT + line for line in text[1:]]
    count = sum(len(dataclasses.fields(kind)) for kind in kinds) - len(options)
    more = (
        f"`{prog} --help-all` shows {count} more: columns of tables, rewards, evaluation, checkpoints, and "
        "the settings of the algorithm that --algo names."
    )
    return "\n".join([*lines, "", textwrap.fill(more, WIDTH)])
