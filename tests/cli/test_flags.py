"""Flags that messages name exist: every `--flag` in a text of odice is one that a command takes."""

import ast
import dataclasses
import re
from pathlib import Path

import pytest

import odice
from odice.algos import algorithms
from odice.cli.train import CommandFlags
from odice.training.options import RunOptions

pytestmark = pytest.mark.fast
PACKAGE = Path(odice.__file__).parent
FLAG = re.compile(r"(?<![\w-])--([a-z][a-z0-9-]*[a-z0-9])")
OTHERS = {
    "untracked-files",
    "porcelain",
    "always",
    "abbrev",
    "dirty",
    "exclude",
    "constraint",
    "head",
    "port",
    "help",
    "help-all",
    "version",
    "no",
}
"""Flags of git, pip and ray that odice calls or names, and those of every command."""


def texts(path):
    """The line and the text of every string constant that is not a docstring; parts of f-strings too."""
    tree = ast.parse(path.read_text("utf-8"))
    docs = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docs:
            yield node.lineno, node.value


def flags():
    """Every field of a class of the command line, of a run and of an algorithm, as a flag; and arguments of parsers."""
    names = {item.name for kind in (RunOptions, CommandFlags) for item in dataclasses.fields(kind)}
    names |= {item.name for entry in algorithms().values() for item in dataclasses.fields(entry.config)}
    for path in (PACKAGE / "cli").glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.ClassDef):
                names |= {item.target.id for item in node.body if isinstance(item, ast.AnnAssign)}
    names = {name.replace("_", "-") for name in names}
    return names | {f"no-{name}" for name in names}


def test_every_flag_in_a_message_exists():
    known = flags() | OTHERS
    wrong = [
        f"{path.relative_to(PACKAGE)}:{line}: --{name}"
        for path in sorted(PACKAGE.rglob("*.py"))
        for line, text in texts(path)
        for name in FLAG.findall(text)
        if name not in known and not name.startswith("xla")
    ]
    assert not wrong, "\n".join(["", *wrong])


def test_a_flag_that_does_not_exist_would_be_seen(tmp_path):
    (tmp_path / "wrong.py").write_text(
        '"""About --nothing."""\nraise ValueError(f"{1}: leave out --nothing, or --seed.")\n'
    )
    assert [FLAG.findall(text) for _, text in texts(tmp_path / "wrong.py")] == [["nothing", "seed"]]
