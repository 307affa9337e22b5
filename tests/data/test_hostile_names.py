"""Columns with names and words of an enemy: a schema that odice writes says the same when it is read back."""

import warnings

import polars as pl
import pytest

import odice
from odice.cli.main import main
from odice.data.binding import bind
from odice.data.propose import propose
from odice.data.readers.draft import schema_text
from odice.data.schema import Schema
from odice.errors import OdiceError
from odice.reports.html import page

NAMES = [
    "a\nepisode = 'x'",
    "tab\there",
    "quote\"'",
    "back\\slash",
    "#hash",
    "[table]",
    "a=b",
    "a|b",
    "",
    " ",
    "*",
    "\x00x",
]
NAMES += [
    "\x7f",
    "\u2028line",
    "\u202ereversed",
    "ключ",
    "🤖",
    "a.b.c",
    "categories",
    "x" * 300,
    "[[a]]",
    "'" * 3,
    '"' * 3,
]
WORDS = ["plain", "a|b", "a=b", "", " spaced ", "x\ny", "]", '"', "'", "\\", "#", "\u2028"]


def table(name, words=("p", "q")):
    n = 60
    return pl.DataFrame(
        {
            "episode": [i // 5 for i in range(n)],
            name: [words[i % len(words)] for i in range(n)],
            "speed": [float(i % 7) for i in range(n)],
            "action": [i % 2 for i in range(n)],
            "reward": [float(i % 3) for i in range(n)],
        }
    )


@pytest.mark.parametrize("name", NAMES)
def test_a_hostile_name_goes_there_and_back(name, tmp_path):
    frame = table(name)
    frame.write_parquet(tmp_path / "log.parquet")
    (tmp_path / "log.toml").write_text(schema_text(frame, propose(frame), "log", "log.toml"), "utf-8")
    schema = Schema.read(tmp_path / "log.toml")
    assert set(schema.columns()) <= set(frame.columns)
    assert (schema.reward, schema.episode) == ("reward", "episode")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        data = odice.load(tmp_path / "log.parquet", schema=tmp_path / "log.toml")
    assert data.n_episodes == 12
    if name in schema.observation:
        assert dict(schema.categories)[name] == ("p", "q")
        assert (name, ("p", "q")) in [(c["name"], tuple(c.get("values", ()))) for c in data.meta.obs_columns]


def test_a_name_that_is_a_pattern_is_refused(tmp_path):
    """polars' operations on a series look its name up, and would take this one for a regular expression."""
    table("^x$").write_parquet(tmp_path / "log.parquet")
    with pytest.raises(OdiceError, match=r"the column '\^x\$' is called what polars takes for a pattern"):
        odice.load(tmp_path / "log.parquet", observation=["^x$"], action=["action"])


def test_hostile_words_go_there_and_back(tmp_path):
    frame = table("mode", WORDS)
    frame.write_parquet(tmp_path / "log.parquet")
    (tmp_path / "log.toml").write_text(schema_text(frame, propose(frame), "log\nreward = 'x'", "log.toml"), "utf-8")
    assert dict(Schema.read(tmp_path / "log.toml").categories)["mode"] == tuple(
        sorted({word.strip() for word in WORDS})
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        data = odice.load(tmp_path / "log.parquet", schema=tmp_path / "log.toml")
    (column,) = [column for column in data.meta.obs_columns if column["name"] == "mode"]
    assert tuple(column["values"]) == tuple(sorted({word.strip() for word in WORDS}))


def test_a_few_faults_among_numbers_are_no_categories(tmp_path, capsys):
    frame = table("level", [str(i) for i in range(20)] + ["ERR"])
    frame.write_csv(tmp_path / "log.csv")
    assert main(["data", "schema", str(tmp_path / "log.csv"), "--out", str(tmp_path / "log.toml")]) in (0, 1)
    text = (tmp_path / "log.toml").read_text()
    assert "level: 2 cells are not numbers (ERR)" in text
    assert "level" not in dict(Schema.read(tmp_path / "log.toml").categories)
    capsys.readouterr()
    with pytest.raises(OdiceError, match="column 'level' holds 'ERR' in data row 21, which is not a number"):
        odice.load(tmp_path / "log.csv", observation=["level"], action=["action"])


def test_a_pattern_means_what_has_no_other_role():
    columns = ["episode", "x", "y", "action", "reward", "next_x", "next_y", "terminated"]
    assert bind(Schema(observation=("*",)), columns, "log").observation == ("x", "y")
    assert bind(Schema(observation=("*",), action=("y",)), columns[:5], "log").observation == ("action", "x")
    with pytest.raises(OdiceError, match=r"'reward' is an observation and also the `reward`"):
        bind(Schema(observation=("x", "reward")), columns[:5], "log")


def test_a_schema_on_a_disk_that_cannot_be_written(tmp_path, capsys, monkeypatch):
    table("mode").write_csv(tmp_path / "log.csv")
    (tmp_path / "file").write_text("")
    assert main(["data", "schema", str(tmp_path / "log.csv"), "--out", str(tmp_path / "file" / "log.toml")]) == 2
    assert "Traceback" not in capsys.readouterr().err


def test_names_and_words_of_a_file_do_not_control_the_terminal(tmp_path, monkeypatch, capsys):
    """A column may be called like what clears the screen, and a word like what turns the line around."""
    monkeypatch.chdir(tmp_path)
    words, actions = ("\x1b]0;x\x07", "b"), ("st\u202eop", "go")
    rows = [f"{i * 0.37 % 1:.2f},{words[i % 2]},{actions[i % 3 % 2]},{i % 3}" for i in range(40)]
    (tmp_path / "log.csv").write_text("\x1b[2Jage,mode,action,reward\n" + "\n".join(rows))
    commands = ["data schema log.csv", "decide log.csv --yes --steps 0", "data inspect log.csv --schema log.toml"]
    commands.append("data inspect log.csv --observation-columns nothing --action-columns action")
    for command in commands:
        main(command.split())
        said = capsys.readouterr()
        assert not set(said.out + said.err) & {"\x1b", "\x07", "\u202e"}, command
    assert "\\x1b[2Jage" in said.err


def test_words_of_a_file_do_not_turn_the_numbers_of_a_page_around():
    said = page("page.html", title="go\u202e in 100 %", lead="\x1b[2J")
    assert "go\\u202e in 100 %" in said
    assert "\\x1b[2J" in said
    assert not set(said) & {"\x1b", "\u202e"}
