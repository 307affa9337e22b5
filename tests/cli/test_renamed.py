"""Flags with a new name: the old one works, and one line says what it is called now."""

import pytest

import odice
from odice.cli.main import main
from odice.cli.renamed import RENAMED, renamed
from odice.envs.small import LQR

NAMES = {"--colour": "--color", "--old-name": "--new"}


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["--colour", "red"], ["--color", "red"]),
        (["--colour=red=blue"], ["--color=red=blue"]),
        (["--no-colour"], ["--no-color"]),
        (["--old_name", "1", "--old-name=2"], ["--new", "1", "--new=2"]),
        (["colour", "--colourful", "--my-colour", "a--colour"], ["colour", "--colourful", "--my-colour", "a--colour"]),
        (["--keep_this=--colour", "--", "--colour"], ["--keep_this=--colour", "--", "--colour"]),
    ],
)
def test_only_whole_flags_are_renamed(words, expected, capsys):
    assert renamed(words, NAMES) == expected
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.count("\n") == (1 if words != expected else 0)


def test_the_note_names_both(capsys):
    renamed(["--colour", "red", "--no-old-name"], NAMES)
    assert capsys.readouterr().err.splitlines() == [
        "odice: note: --colour is now --color; the old name goes in the next version.",
        "odice: note: --no-old-name is now --no-new; the old name goes in the next version.",
    ]


def test_collect_takes_its_old_flags(tmp_path, capsys):
    out = tmp_path / "log.parquet"
    words = ["--env", LQR, "--recipe", "random", "--steps", "60", "--out", str(out), "--quiet"]
    assert main(["data", "collect", *words, "--behaviour", str(tmp_path / "sac"), "--lanes=2", "--chunk", "50"]) == 0
    assert [line.split(" is ")[0] for line in capsys.readouterr().err.splitlines()] == [
        "odice: note: --behaviour",
        "odice: note: --lanes",
    ]
    assert odice.load(out).n_steps == 60


@pytest.mark.parametrize("command", RENAMED)
def test_the_new_names_are_flags_and_the_old_ones_are_not(command, capsys):
    calls = {"data": [["data", "collect"], ["data", "inspect"]], "train": [["train", "--algo", "optidice"]]}
    flags = []
    for words in calls.get(command, [[command]]):
        with pytest.raises(SystemExit):
            main([*words, "--help"])
        flags += capsys.readouterr().out.replace(",", " ").split()
    for old, new in RENAMED[command].items():
        assert new in flags or (command, new) == ("imitate", "--normalize")  # OptiDICE does not imitate
        assert old not in flags
