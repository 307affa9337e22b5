"""Tables as strangers have them: each is read as a person would, or ends in a sentence that says what to do."""

import gzip

import numpy as np
import polars as pl
import pytest

from odice.data.load import load
from odice.data.propose import propose
from odice.decision.read import proposed_schema
from odice.errors import OdiceError

HEAD = ["patient_id", "visit", "score", "ward", "treatment", "recovered"]
rng = np.random.default_rng(0)
ROWS = [
    [
        f"P{i:04d}",
        t,
        round(float(rng.normal()), 3),
        "AB"[(i + t) % 2],
        ("low", "high")[rng.integers(2)],
        rng.integers(2),
    ]
    for i in range(100)
    for t in range(3)
]


def text(rows=ROWS, head=HEAD, sep=",", end="\n"):
    return "".join(sep.join(map(str, row)) + end for row in [head, *rows])


def changed(column, value):
    """The table with another column: `value` is called with a row and its number."""
    place = HEAD.index(column)
    return text([[*row[:place], value(row, i), *row[place + 1 :]] for i, row in enumerate(ROWS)])


def read(folder, content, name="log.csv"):
    file = folder / name
    file.write_bytes(content if isinstance(content, bytes) else content.encode())
    said: list[str] = []
    schema = proposed_schema(file, folder / "schema.toml", None, said.append)
    return load(file, schema=schema)


SHUFFLED = [ROWS[i] for i in rng.permutation(len(ROWS))]
SAME = {
    "byte order mark": "\ufeff" + text(),
    "semicolons": text(sep=";"),
    "decimal commas": text([[*r[:2], str(r[2]).replace(".", ","), *r[3:]] for r in ROWS], sep=";"),
    "tabs": text(sep="\t"),
    "windows lines": text(end="\r\n"),
    "a note over two lines": text([[*r, '"a\nb, ""c"""'] for r in ROWS], [*HEAD, "note"]),
    "an empty column": text([[*r, ""] for r in ROWS], [*HEAD, "lab"]),
    "a column of row numbers": text([[i, *r] for i, r in enumerate(ROWS)], ["", *HEAD]),
    "yes and no": changed("recovered", lambda row, i: "yes" if row[5] else "no"),
    "unsorted": text(SHUFFLED),
    "the action in codes, too": text([[*r, {"low": 7, "high": 9}[r[4]]] for r in ROWS], [*HEAD, "given"]),
    "the reward in percent, too": text([[*r, 100 * r[5]] for r in ROWS], [*HEAD, "pct"]),
}


@pytest.mark.parametrize("name", SAME)
def test_a_table_is_read_however_it_is_written(tmp_path, name):
    data = read(tmp_path, SAME[name])
    assert [column["name"] for column in data.meta.obs_columns] == ["score", "ward"]
    assert (data.n_episodes, data.n_steps, data.meta.choices) == (100, 300, ("high", "low"))
    order = slice(None)
    if name == "unsorted":  # episodes are numbered as they first appear, and their rows are in order
        first = list(dict.fromkeys(row[0] for row in SHUFFLED))
        order = [3 * int(patient[1:]) + t for patient in first for t in range(3)]
    np.testing.assert_array_equal(data.rewards, np.array([row[5] for row in ROWS], np.float32)[order])
    np.testing.assert_allclose(data.step_observations()[:, 0], np.array([row[2] for row in ROWS])[order], rtol=1e-6)


def test_a_compressed_table_is_read(tmp_path):
    assert read(tmp_path, gzip.compress(text().encode()), "log.csv.gz").n_episodes == 100


@pytest.mark.parametrize(
    ("written", "number"),
    [("$12.50", 12.5), ("-€3", -3.0), ("7 %", 7.0), ('"12,500"', 12500.0), ("NA", None), ("n/a", None), ("?", None)],
)
def test_numbers_as_people_write_them(tmp_path, written, number):
    (tmp_path / "log.csv").write_text(changed("score", lambda row, i: written if i == 5 else row[2]))
    from odice.data.readers.table import scan_first

    column = scan_first(tmp_path / "log.csv").collect()["score"]
    assert column.dtype == pl.Float64
    assert column[5] == number
    assert column[6] == ROWS[6][2]


def test_spaces_around_names_and_numbers_do_not_count(tmp_path):
    from odice.data.readers.table import scan_first

    (tmp_path / "log.csv").write_text("a , b, c\n 1.5 ,x, -2\n2 ,y , NA\n")
    table = scan_first(tmp_path / "log.csv").collect()
    assert table.to_dict(as_series=False) == {"a": [1.5, 2.0], "b": ["x", "y "], "c": [-2.0, None]}


def test_words_for_missing_values_stay_words_among_words(tmp_path):
    """NA may be North America."""
    from odice.data.readers.table import scan_first

    (tmp_path / "log.csv").write_text(changed("ward", lambda row, i: "NA" if i % 2 else "EU"))
    assert set(scan_first(tmp_path / "log.csv").collect()["ward"]) == {"NA", "EU"}


REFUSED = {
    "no bytes": (b"", "the first line is empty"),
    "no rows": (text([]), "a header but no rows"),
    "one row": (text(ROWS[:1]), "one row; a decision needs many"),
    "utf-16": (text().encode("utf-16"), "save it as CSV in UTF-8"),
    "latin-1": (changed("ward", lambda row, i: "Zürich").encode("latin-1"), "save it as CSV in UTF-8"),
    "a name in latin-1": (text(head=["stäy", *HEAD[1:]]).encode("latin-1"), "save it as CSV in UTF-8"),
    "noise": (rng.integers(0, 256, 5000, dtype=np.uint8).tobytes(), "UTF-8"),
    "a name twice": (text(head=[*HEAD[:3], "score", *HEAD[4:]]), "two columns are called 'score'"),
    "one action": (changed("treatment", lambda row, i: "low"), "no column looks like the action"),
    "400 actions": (changed("treatment", lambda row, i: f"drug {i % 200}"), "no column looks like the action"),
    "a reward in words": (changed("recovered", lambda row, i: "good" if row[5] else "bad"), "like the reward"),
    "ids only": (text([row[:2] for row in ROWS], HEAD[:2]), "no column looks like the action"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_read_is_one_sentence(tmp_path, name):
    content, sentence = REFUSED[name]
    with pytest.raises(OdiceError, match=sentence):
        read(tmp_path, content)


@pytest.mark.parametrize("column", ["treatment", "recovered"])
def test_episodes_that_lack_an_action_or_a_reward_are_left_out_and_counted(tmp_path, column):
    content = changed(column, lambda row, i: "" if i in (7, 8, 100) else row[HEAD.index(column)])
    data = read(tmp_path, content)  # rows 7 and 8 are of one episode
    assert (data.n_episodes, data.n_steps) == (98, 294)
    kept = [row for i, row in enumerate(ROWS) if i // 3 not in (2, 33)]
    np.testing.assert_array_equal(data.rewards, np.array([row[5] for row in kept], np.float32))
    assert "2 of 100 episodes lack an action, a reward or a cost and are left out" in data.meta.history
    doubt = next(text for text in propose(pl.read_csv(content.encode())).doubts if "left out" in text)
    assert doubt == f"2 of 100 episodes are left out, because {column} is empty in some of their rows."
    with pytest.raises(OdiceError, match="leave out their episodes with `skip_incomplete`"):
        load(tmp_path / "log.csv", schema=tmp_path / "schema.toml", skip_incomplete=False)


@pytest.mark.parametrize("name", ["treatment", "group"])  # a usual name of an action, and none
def test_probabilities_are_known_where_an_action_is_missing(name):
    low = np.random.default_rng(3).random(300) < 0.7
    actions = [None if i == 7 else ("low" if each else "high") for i, each in enumerate(low)]
    new = [pl.Series(name, actions), pl.Series("p", np.where(low, 0.7, 0.3))]
    table = pl.read_csv(text().encode()).with_columns(new).select(*HEAD[:4], name, "p", "recovered")
    assert propose(table).columns("propensity") == ("p",)
    assert propose(table).columns("action") == (name,)


def test_a_log_in_which_every_episode_lacks_something_is_refused(tmp_path):
    with pytest.raises(OdiceError, match="every episode lacks an action, a reward or a cost"):
        read(tmp_path, changed("recovered", lambda row, i: "" if row[1] == 1 else row[5]))


@pytest.mark.parametrize("names", [("dose_a", "dose_b"), ("dose_morphine", "dose_ketamine"), ("dose_1", "dose_2")])
def test_amounts_side_by_side_are_one_action(names):
    rows = np.random.default_rng(1).uniform(size=(300, 2)).round(2)
    table = pl.read_csv(text().encode()).drop("treatment")
    table = table.with_columns(pl.Series(name, rows[:, i]) for i, name in enumerate(names))
    assert propose(table.select(*HEAD[:4], *names, "recovered")).columns("action") == names


@pytest.mark.parametrize("written", ["1,234.5", "1.234,5"])
def test_thousands_are_read_where_columns_are_separated_by_semicolons(tmp_path, written):
    from odice.data.readers.table import scan_first

    small = "12.5" if written.endswith(".5") else "12,5"
    rows = [[*r[:2], written if i == 5 else small, *r[3:]] for i, r in enumerate(ROWS)]
    (tmp_path / "log.csv").write_text(text(rows, sep=";"))
    column = scan_first(tmp_path / "log.csv").collect()["score"]
    assert (column[5], column[6]) == (1234.5, 12.5)


def test_an_action_that_cannot_be_one_is_explained():
    table = pl.read_csv(changed("treatment", lambda row, i: "low").encode())
    assert "always low, so there is nothing to compare" in propose(table).doubts[0]
    table = pl.read_csv(changed("treatment", lambda row, i: f"drug {i % 200}").encode())
    assert "200 choices, more than the 64 that are read; group them" in propose(table).doubts[0]


def test_dates_are_known_by_their_values():
    """They order the rows of an episode, and never name one."""
    table = pl.read_csv(text().encode())
    days = [f"{1 + t:02d}.03.2024 08:00" for _, t, *_ in ROWS]
    proposal = propose(table.drop("visit").with_columns(pl.Series("Measured at", days)))
    assert proposal["Measured at"].role == "step"
    alone = table.drop("patient_id", "visit").with_columns(
        pl.Series("sent on", [f"{1 + i // 11}/3/2024" for i in range(300)])
    )
    proposal = propose(alone.select("sent on", *alone.columns[:-1]))
    assert proposal["sent on"].role == "left out"
    assert proposal.one_step
    moments = [f"2024-01-01 {i // 60:02d}:{i % 60:02d}" for i in range(300)]
    proposal = propose(alone.with_columns(pl.Series("at", moments)))
    assert proposal.columns("episode") == ()  # every row has a time of its own, so no column comes back at each
    assert proposal.columns("action") == ("treatment",)


def test_probabilities_tell_which_column_was_drawn():
    """Of several columns of choices only the drawn one has these probabilities, and no name is needed."""
    generator = np.random.default_rng(0)
    chance = np.array([0.5, 0.3, 0.2])
    drawn = generator.choice(3, 3000, p=chance)
    table = pl.DataFrame(
        {
            "material": generator.choice(["x", "y", "z"], 3000),
            "humidity": generator.normal(size=3000),
            "mode": np.array(["k", "l", "m"])[drawn],
            "w": chance[drawn],
            "kg": generator.normal(size=3000) + drawn,
        }
    )
    proposal = propose(table)
    assert (proposal.columns("action"), proposal.columns("propensity")) == (("mode",), ("w",))
    assert proposal.columns("observation") == ("material", "humidity")
    proposal = propose(table.rename({"w": "p_mode"}))
    assert proposal.columns("propensity") == ("p_mode",)
    coin = table.with_columns(pl.Series("mode", generator.choice(["k", "l"], 3000)), pl.lit(0.5).alias("w"))
    assert propose(coin.rename({"mode": "action", "w": "probability"})).columns("propensity") == ("probability",)
