"""The commands' `--help`, from their dataclasses: a flag is a field, its text the string below the field.

tyro parses the arguments. It does not wrap descriptions, and shows `{None}|STR` and `(default: None)` for what may be
left out, so the text is made here. What it says about wrong arguments becomes one sentence here too.
"""

from __future__ import annotations

import ast
import dataclasses
import inspect
import io
import re
import shutil
import textwrap
import types
from collections.abc import Iterator, Mapping, Sequence
from contextlib import redirect_stderr
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, TypeVar, Union, get_args, get_origin, get_type_hints

import tyro

from odice.errors import OdiceError, unknown_name

INDENT = 18
Command = TypeVar("Command")
NAMES = {int: "INT", float: "FLOAT", str: "TEXT", Path: "PATH", bool: "{True,False}"}


class Group(NamedTuple):
    """Flags under one title."""

    title: str
    kind: type
    values: Any
    """An object that has the defaults."""
    names: tuple[str, ...] = ()
    """The fields to show, in this order; none: all."""


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


def parse(kind: type[Command], prog: str, argv: Sequence[str], about: str = "", pairs: bool = True) -> Command:
    """The arguments as a `kind`; `--help` prints the help instead.

    Args:
        kind: The command's dataclass.
        prog: The command, such as `odice report`.
        argv: The arguments.
        about: What it does; by default the docstring of `kind`.
        pairs: Whether every switch `--x` has a `--no-x`.
    """
    if {"-h", "--help"} & set(argv):
        print(help_text(prog, about or inspect.getdoc(kind) or "", groups_of(kind)))
        raise SystemExit(0)
    return arguments(kind, prog, argv, config=() if pairs else (tyro.conf.FlagCreatePairsOff,))


def arguments(kind: type[Command], prog: str, argv: Sequence[str], **options: Any) -> Command:
    """The arguments as a `kind`, by tyro; what is wrong with them is one sentence.

    Args:
        kind: The command's dataclass.
        prog: The command.
        argv: The arguments.
        **options: Of `tyro.cli`.
    """
    printed = io.StringIO()
    try:
        with redirect_stderr(printed):
            return tyro.cli(kind, prog=prog, args=argv, **options)
    except SystemExit as end:
        if not end.code:
            raise
    raise OdiceError(f"{_in_a_sentence(printed.getvalue(), prog)} See `{prog} --help`.")


def _in_a_sentence(printed: str, prog: str) -> str:
    """Turn tyro's message into a sentence.

    The message is a title, what is wrong, the flags concerned (six spaces before each), and where the help is.
    """
    printed = re.sub(
        r"^╭─ (.*?) ─*╮$", r"\1\n -----", printed, flags=re.MULTILINE
    )  # a terminal's box becomes plain text
    printed = re.sub(r"^│", " ", re.sub(r"│$|^╰─*╯$", "", printed, flags=re.MULTILINE), flags=re.MULTILINE)
    _, *parts = re.split(r"\n *[-─]{5,} *\n", printed)
    what = " ".join((parts or [printed])[0].partition("Got errors:")[0].split())
    flags = [
        line.replace("{None}|", "") for line in re.findall(r"^ {6}(\S.*?) *$", "\n".join(parts[:-1]), re.MULTILINE)
    ]
    if what.startswith("Missing from ") and flags:
        return f"{prog} needs {' and '.join(flags)}."
    if match := re.match(r"Unrecognized options: (.*)", what):
        near = f"; did you mean {' or '.join(flag.split()[0] for flag in flags)}?" if flags else "."
        return f"{prog} does not take {match[1]}{near}"
    if what.startswith("Error parsing ") and flags:
        (flag, _, takes), given = flags[0].partition(" "), re.findall("'[^']*'", what)
        return f"{flag} takes {takes}, not {' '.join(given) or 'that'}."
    if match := re.match(r"invalid choice (.*) for argument '(.*)'\. Expected one of \((.*)\)", what):
        return f"{match[2]} takes one of {match[3]}, not {match[1]}."
    if match := re.match(r"Missing value for argument '(.*)'\.", what):
        return f"{match[1]} needs a value."
    return f"{what.rstrip('.')}."


def changed_flags(values: Any) -> Iterator[str]:
    """Yield the flags of a parsed command whose values are not their defaults, those of dataclasses within it too."""
    for field in dataclasses.fields(values):
        value = getattr(values, field.name)
        if dataclasses.is_dataclass(value):
            yield from changed_flags(value)
        elif value != field.default:
            yield f"--{field.name.replace('_', '-')}"


def parse_subcommand(commands: Mapping[str, type], prog: str, argv: Sequence[str], about: str) -> Any:
    """The arguments of a command that has commands of its own, such as `odice data inspect`.

    Args:
        commands: Their dataclasses by name.
        prog: The command, such as `odice data`.
        argv: The arguments, the name of the inner command first.
        about: What the command does.
    """
    if not argv or argv[0] in ("-h", "--help"):
        lines = [f"usage: {prog} COMMAND [OPTIONS]", "", *wrap(about), "", "commands:"]
        for name, kind in commands.items():
            lines += entry(name, " ".join((inspect.getdoc(kind) or "").split()))
        print("\n".join([*lines, "", *wrap(f"`{prog} COMMAND --help` explains a command.")]))
        raise SystemExit(0 if argv else 2)
    if argv[0] not in commands:
        raise unknown_name(f"command of {prog}", argv[0], commands)
    return parse(commands[argv[0]], f"{prog} {argv[0]}", argv[1:], pairs=False)


def groups_of(kind: type) -> list[Group]:
    """The command's own flags, then those of the dataclasses in it."""
    hints, inner = get_type_hints(kind, include_extras=True), []
    own = [field.name for field in dataclasses.fields(kind) if not dataclasses.is_dataclass(bare(hints[field.name]))]
    for field in dataclasses.fields(kind):
        nested = bare(hints[field.name])
        if dataclasses.is_dataclass(nested) and isinstance(nested, type):
            first, *others = groups_of(nested)
            inner += [first._replace(title=title_of(nested)), *others]
    return [Group("options", kind, kind, tuple(own)), *inner]


def title_of(kind: type) -> str:
    """The first sentence of a docstring, as a title."""
    return (inspect.getdoc(kind) or "options").partition("\n\n")[0].partition(". ")[0].rstrip(".:").replace("\n", " ")


def help_text(prog: str, about: str, groups: Sequence[Group], needs: str = "", end: str = "") -> str:
    """The text of `--help`.

    Args:
        prog: The command.
        about: What it does, in paragraphs.
        groups: Its flags; a positional argument is shown first.
        needs: Text of the usage between command and options.
        end: A last paragraph.
    """
    positional = [(group, name) for group in groups for name in names_of(group) if is_positional(group.kind, name)]
    words = " ".join(
        [metavar(group.kind, name) or name.upper() for group, name in positional] + ([needs] if needs else [])
    )
    lines = wrap(f"usage: {prog} {words + ' ' if words else ''}[OPTIONS]")
    for paragraph in inspect.cleandoc(about).split("\n\n"):
        lines += ["", *wrap(paragraph)]
    lines += [""] if positional or not groups[0].title else []
    for group, name in positional:
        lines += entry(metavar(group.kind, name) or name.upper(), note_of(group, name))
    title = ""
    for group in groups:
        shown = [name for name in names_of(group) if not is_positional(group.kind, name)]
        if shown and group.title != title:
            title = group.title
            lines += ["", *wrap(f"{title}:")]
        for name in shown:
            lines += entry(flag_of(group, name), note_of(group, name))
    return "\n".join([*lines, "", *wrap(end)] if end else lines)


def width() -> int:
    """Columns of the help: those of the terminal, from 50 to 100."""
    return max(50, min(shutil.get_terminal_size((80, 24)).columns, 100))


def wrap(text: str, indent: str = "") -> list[str]:
    """Wrap a text at the width of the help."""
    line = " ".join(text.split())
    return textwrap.wrap(line, width(), initial_indent=indent, subsequent_indent=indent, break_on_hyphens=False)


def entry(head: str, text: str) -> list[str]:
    """A name and, to its right or below it, what it means."""
    first, *others = wrap(text, " " * INDENT) or [""]
    head = f"  {head}"
    if len(head) + 2 <= INDENT:
        return [f"{head:<{INDENT}}{first.lstrip()}", *others]
    head = head if len(head) <= width() else head.replace(",", ", ")
    return [*textwrap.wrap(head, width(), subsequent_indent="      ", break_on_hyphens=False), first, *others]


def names_of(group: Group) -> tuple[str, ...]:
    """The fields of a group, in the order in which they are shown."""
    return group.names or tuple(field.name for field in dataclasses.fields(group.kind))


def note_of(group: Group, name: str) -> str:
    """The text below a field, and its default where it has one that says something."""
    value = default_of(group, name)
    note = field_notes(group.kind).get(name, "")
    if value is None or isinstance(value, bool) or value in ((), [], ""):
        return note + (" [on]" if value else "")
    return f"{note} [{' '.join(map(str, value)) if isinstance(value, tuple | list) else value}]"


def default_of(group: Group, name: str) -> Any:
    """The default of a field; None where it has none."""
    if not isinstance(group.values, type):
        value = getattr(group.values, name, None)
        return None if value is tyro.MISSING else value
    field = next(field for field in dataclasses.fields(group.values) if field.name == name)
    return None if field.default is dataclasses.MISSING else field.default


def flag_of(group: Group, name: str) -> str:
    """`--name VALUE`; a switch has no value, and one that is on has a `--no-name`."""
    flag, kind = f"--{name.replace('_', '-')}", metavar(group.kind, name)
    if bare(get_type_hints(group.kind, include_extras=True)[name]) is bool:
        return f"{flag}, {flag.replace('--', '--no-')}" if default_of(group, name) else flag
    return f"{flag} {kind}"


def metavar(kind: type, name: str) -> str:
    """What a flag takes."""
    hint = get_type_hints(kind, include_extras=True)[name]
    for mark in marks(hint):
        if getattr(mark, "metavar", None):
            return mark.metavar
    if is_positional(kind, name) and get_origin(bare(hint)) is not Literal:
        return name.upper()
    return type_name(bare(hint))


def type_name(kind: Any) -> str:
    """The kind of a value, in a word."""
    kind, options = bare(kind), get_args(bare(kind))
    if get_origin(kind) is Literal:
        return "{" + ",".join(map(str, options)) + "}"
    if get_origin(kind) in (Union, types.UnionType):
        return "|".join(dict.fromkeys(type_name(one) for one in options if one is not type(None)))
    if get_origin(kind) is tuple:
        return f"{type_name(options[0])}..." if options[-1] is Ellipsis else " ".join(map(type_name, options))
    return NAMES.get(kind, "VALUE")


def bare(hint: Any) -> Any:
    """The type without its annotations."""
    while get_origin(hint) is Annotated:
        hint = get_args(hint)[0]
    return hint


def marks(hint: Any) -> Iterator[Any]:
    """The annotations of a type."""
    while get_origin(hint) is Annotated:
        yield from get_args(hint)[1:]
        hint = get_args(hint)[0]


def is_positional(kind: type, name: str) -> bool:
    """Whether a field is given by its place and not by a flag."""
    return any(mark is tyro.conf.Positional for mark in marks(get_type_hints(kind, include_extras=True)[name]))
