"""`--help` of every command: it fits the terminal, names every flag, and shows no None."""

import contextlib
import dataclasses
import importlib
import io
import re

import pytest

from odice.cli import collect, data
from odice.cli.help import field_notes
from odice.cli.main import COMMANDS, main

pytestmark = pytest.mark.fast
SUBCOMMANDS = {"inspect": data.Inspect, "schema": data.WriteSchema, "convert": data.Convert, "example": data.Example}
SUBCOMMANDS |= {"collect": collect.Collect}
WORDS = [[name] for name in COMMANDS if name != "list"] + [["data", name] for name in SUBCOMMANDS]
WORDS += [["suite", "make"], ["suite", "list"], ["theory", "visitation"], ["train", "--help-all"]]


def help_of(words: list[str]) -> str:
    with contextlib.redirect_stdout(io.StringIO()) as said, pytest.raises(SystemExit) as done:
        main([*words, "--help"])
    assert done.value.code == 0
    return said.getvalue()


@pytest.mark.parametrize("columns", [60, 80])
@pytest.mark.parametrize("words", WORDS, ids=" ".join)
def test_it_fits_the_terminal(words, columns, monkeypatch):
    monkeypatch.setenv("COLUMNS", str(columns))
    text = help_of(words)
    assert text.startswith(f"usage: odice {words[0]}")
    assert not [line for line in text.splitlines() if len(line) > columns]
    assert not re.search(r"None[\]}|]|[{|\[]None", text)  # a default or a kind of value


@pytest.mark.parametrize("name", ["evaluate", "select", "report", "export", "decide", "trial", "demo", "bench"])
def test_it_names_every_flag_with_a_sentence(name):
    kind, text = importlib.import_module(f"odice.cli.{name}").Args, " ".join(help_of([name]).split())
    for field in dataclasses.fields(kind):
        if "OmitArgPrefixes" not in str(field.type) and "Positional" not in str(field.type):
            assert f"--{field.name.replace('_', '-')}" in text
            assert field_notes(kind)[field.name] in text


def test_a_command_of_commands():
    assert re.findall(r"^  ([a-z]+)", help_of(["data"]), re.MULTILINE) == list(SUBCOMMANDS)
    assert re.findall(r"^  ([a-z]+)", help_of(["suite"]), re.MULTILINE) == ["make", "list"]


def test_an_unknown_one_is_refused(capsys):
    assert main(["data", "inspct"]) == 2
    assert "inspect" in capsys.readouterr().err
