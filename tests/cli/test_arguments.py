"""Wrong arguments: one sentence that says what is wrong and where the help is, at every width of the terminal."""

import subprocess
import sys

import pytest

from odice.cli.main import main

WRONG = {
    "train": "odice train needs --data STR.",
    "train --data": "--data needs a value.",
    "train --data x --algo": "--algo needs a value.",
    "train --data x --steps 1e5": "--steps takes INT, not '1e5'.",
    "train --data x --batch-size abc": "--batch-size takes INT, not 'abc'.",
    "train --data x --stepps 5": "odice train does not take --stepps, 5; did you mean --steps?",
    "train --data x --devices two": "--devices takes INT|{all}, not 'two'.",
    "train --data x --policy-hidden a b": "--policy-hidden takes [INT [INT ...]], not 'a' 'b'.",
    "train --data x --parallel foo": "--parallel takes one of 'auto', 'processes', 'vmap', not 'foo'.",
    "data convert": "odice data convert needs SOURCE and --out PATH.",
    "export x": "odice export needs --onnx FILE.",
    "list foo": "odice list does not take foo.",
    "decide a.csv b.csv": "odice decide does not take b.csv.",
}


@pytest.mark.fast
@pytest.mark.parametrize("columns", ["40", "200"])
@pytest.mark.parametrize("command", WRONG)
def test_wrong_arguments_are_one_sentence(command, columns, monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", columns)
    assert main(command.split()) == 2
    prog = " ".join(command.split()[: 2 if command.startswith("data") else 1])
    out = capsys.readouterr()
    assert (out.out, out.err) == ("", f"odice: {WRONG[command]} See `odice {prog} --help`.\n")


def test_the_box_of_a_terminal_becomes_the_same_sentence():
    command = [sys.executable, "-X", "utf8", "-m", "odice", "train", "--data", "x", "--stepps", "5"]
    said = subprocess.run(command, capture_output=True, text=True, encoding="utf-8")
    sentence = "odice: odice train does not take --stepps, 5; did you mean --steps? See `odice train --help`.\n"
    assert (said.returncode, said.stdout, said.stderr) == (2, "", sentence)


@pytest.mark.fast
@pytest.mark.parametrize("numbers", [("--rows", "0"), ("--rows", "-5"), ("--seed", "-1")])
def test_an_example_of_no_rows_is_refused(numbers, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["data", "example", "panel", *numbers]) == 2
    assert "at least 1 row, and a seed of at least 0" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())
