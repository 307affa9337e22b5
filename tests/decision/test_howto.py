"""The how-to pages for one-step tables, randomized logs, several outcomes and panels: their commands are run."""

import json
import re
from pathlib import Path

import polars as pl
import pytest

from odice.cli.main import main
from odice.data.examples import EXAMPLES, example
from odice.decision import candidates

PAGES = Path(__file__).parents[2] / "docs" / "howto"
TINY = {"clone": {"algo": "bc-10", "policy_hidden": (16, 16), "batch_size": 64, "steps": 60}}


@pytest.mark.slow
@pytest.mark.parametrize("name", ["one_step", "randomized", "outcomes", "panel"])
def test_the_commands_of_a_page_run(name, tmp_path, monkeypatch, capsys):
    """With one small candidate in the place of five."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(candidates, "CANDIDATES", TINY)
    monkeypatch.setattr(candidates, "cores", lambda: 1)
    text = (PAGES / f"{name}.md").read_text("utf-8").replace("\\\n", " ")
    commands = re.findall(r"^    odice ((?:data|decide) .*)$", text, re.MULTILINE)
    assert len(commands) >= 2
    for command in commands:
        assert main(command.split()) == 0, command
    page = (tmp_path / "decision" / "decision.html").read_text("utf-8")
    facts = json.loads((tmp_path / "decision" / "decision.json").read_text("utf-8"))
    said = capsys.readouterr().out
    if name == "one_step":
        assert "rows is one decision" in page
    if name == "randomized":
        assert "Why things were done" not in page  # it is known
        assert "propensity" in facts["ranked"][0]["estimates"]
    if name == "outcomes":
        assert facts["cost_limit"] == 60.0
        assert [item["name"] for item in facts["outcomes"]] == ["dizzy"]
    if name == "panel":
        assert re.search(r"the first \d\d rows of each are counted", said)
        assert "2024-01-01 to 2024-06-24" in page


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_is_the_same_every_time(name):
    table = example(name, 400)
    assert table.equals(example(name, 400))
    assert not table.equals(example(name, 400, seed=1))
    assert 300 <= table.height <= 600


def test_an_example_says_what_it_cannot_do(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["data", "example", "pannel"]) == 2
    assert "Did you mean 'panel'" in capsys.readouterr().err
    assert main(["data", "example", "panel", "--rows", "100"]) == 0
    assert main(["data", "example", "panel"]) == 2  # nothing is overwritten
    assert pl.read_csv("panel.csv").height < 150
