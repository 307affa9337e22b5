"""Drafted schemas: they can be read back whatever the columns are called, and hold what was proposed."""

import tomllib

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from odice.cli.main import main
from odice.data.propose import propose
from odice.data.readers.draft import schema_text

NAMES = st.text(st.characters(exclude_categories=("Cs",)), max_size=12)


def table(*names, rows=6):
    columns = {name: [float(i + k) for i in range(rows)] for k, name in enumerate(names)}
    return pl.DataFrame({**columns, "action": ["a", "b|c", "d\ne", "f=g", "", " h"], "reward": [0.0, 1, 0, 1, 0, 1]})


@given(st.lists(NAMES.filter(lambda n: n not in ("action", "reward")), min_size=1, max_size=4, unique=True))
@settings(max_examples=200, deadline=None)
def test_every_name_can_be_read_back(names):
    data = table(*names)
    proposal = propose(data)
    schema = tomllib.loads(schema_text(data, proposal, "x.csv", "x\n.toml"))
    assert tuple(schema.get("observation", ())) == proposal.columns("observation")
    assert schema["action"] == list(proposal.columns("action"))
    assert set(schema) <= {
        "observation",
        "action",
        "reward",
        "episode",
        "step",
        "cost",
        "categories",
        "terminated",
        "propensity",
        "one_step",
        "complete",
        "outcomes",
        "action_low",
        "action_high",
    }


@pytest.mark.parametrize("name", ["x\nreward = 'y'", "\x7f", "]", '"', "'''", "#", "🙂", "\u2028", "a\tb"])
def test_a_name_cannot_inject_an_entry(name):
    data = table(name)
    schema = tomllib.loads(schema_text(data, propose(data), "log.csv", "log.toml"))
    assert schema["observation"] == [name]
    assert schema["reward"] == "reward"


def test_all_words_of_a_column_are_its_categories():
    data = table("x")
    categories = tomllib.loads(schema_text(data, propose(data), "x.csv", "x.toml"))["categories"]
    assert set(categories) == {"action"}
    assert {"a", "b|c", "d\ne", "f=g"} <= set(categories["action"])


def test_a_folder_that_cannot_be_written_is_one_sentence(tmp_path, capsys):
    log = tmp_path / "log.csv"
    log.write_text("x,action,reward\n1,0,0\n2,1,1\n")
    assert main(["data", "schema", str(log), "--out", str(log / "x.toml")]) == 2
    assert capsys.readouterr().err.count("\n") == 1
