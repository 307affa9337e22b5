"""Words, gaps and missing values: what a table's cells become, and that a deployed policy does the same."""

from __future__ import annotations

import json
import math
import warnings

import numpy as np
import polars as pl
import pytest

from odice.data.dataset import UnfinishedEpisodeWarning
from odice.data.doctor import inspect
from odice.data.load import load
from odice.data.meta import Meta
from odice.data.preprocess import Fitted, Preprocess, fit
from odice.encoding import encode, is_column, layout
from odice.errors import OdiceError
from odice.policy.file import Layout
from odice.policy.policy import Policy
from tests.worlds import ads, hospital, hvac, trading, write

ROLES = {"observation": ("temp", "mode"), "action": ("dose",), "reward": "gain", "episode": "ward", "step": "hour"}
TABLE = {
    "ward": [1, 1, 1, 2, 2],
    "hour": [0, 1, 2, 0, 1],
    "temp": [37.0, None, 39.0, None, 38.0],
    "mode": ["on", "off", None, "on", "idle"],
    "dose": ["low", "high", "low", "none", "low"],
    "gain": [0.0, 1.0, 2.0, 3.0, 4.0],
}


def read(table, tmp_path, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UnfinishedEpisodeWarning)
        return load(write(table, tmp_path / "log.csv"), **{**ROLES, **options})


def test_words_become_one_number_per_category_and_actions_are_numbered(tmp_path):
    data = read({**TABLE, "temp": [37.0, 38, 39, 37, 38], "mode": ["on", "off", "on", "on", "idle"]}, tmp_path)
    assert data.meta.obs_layout == (("temp", 1), ("mode=idle", 1), ("mode=off", 1), ("mode=on", 1))
    expected = [[37, 0, 0, 1], [38, 0, 1, 0], [39, 0, 0, 1], [37, 0, 0, 1], [38, 1, 0, 0]]
    assert data.step_observations().tolist() == expected
    assert (data.actions.tolist(), data.meta.choices) == ([1, 0, 1, 2, 1], ("high", "low", "none"))


def test_categories_can_be_pinned_and_numbers_declared(tmp_path):
    table = {**TABLE, "temp": [1, 2, 1, 1, 2], "mode": ["on", "off", "on", "on", "off"]}
    pins = ("temp", "mode=off|on|standby", "dose=none|low|high")
    data = read(table, tmp_path, categories=pins)
    assert [name for name, _ in data.meta.obs_layout] == ["temp=1", "temp=2", "mode=off", "mode=on", "mode=standby"]
    assert data.actions.tolist() == [1, 2, 1, 0, 1]
    with pytest.raises(OdiceError, match="'off', which is not among its categories on"):
        read(table, tmp_path, categories=("mode=on",))
    with pytest.raises(OdiceError, match="no observation or action column"):
        read(table, tmp_path, categories=("gain",))


def test_text_that_is_almost_a_number_is_still_a_fault(tmp_path):
    with pytest.raises(OdiceError, match="column 'temp' holds 'hot' in data row 2, which is not a number"):
        read({**TABLE, "temp": ["37", "hot", "39", "37", "38"], "mode": ["on"] * 5}, tmp_path)
    long = {name: values * 20 for name, values in TABLE.items()}
    long |= {"ward": range(100), "mode": [f"patient {i}" for i in range(100)], "temp": [1.0] * 100}
    with pytest.raises(OdiceError, match="100 different texts"):
        read(long, tmp_path)


@pytest.mark.parametrize(
    ("missing", "temps"),
    [("impute", [37, 38, 39, 38, 38]), ("forward-fill", [37, 37, 39, 38, 38])],  # 38 is the median of 37, 39, 38
)
def test_missing_numbers_are_filled_as_chosen(missing, temps, tmp_path):
    data = read(TABLE, tmp_path, missing=missing, missing_indicator=True)
    names = [name for name, _ in data.meta.obs_layout]
    assert names == ["temp", "temp is missing", "mode=idle", "mode=off", "mode=on", "mode is missing"]
    rows = data.step_observations()
    assert rows[:, 0].tolist() == temps
    assert rows[:, 1].tolist() == [0, 1, 0, 1, 0]
    assert rows[:, 5].tolist() == [0, 0, 1, 0, 0]
    third = [0, 0, 0] if missing == "impute" else [0, 1, 0]  # off, from the step before
    assert rows[2, 2:5].tolist() == third


@pytest.mark.parametrize("missing", ["impute", "forward-fill"])
def test_a_log_with_gaps_can_be_read_in_its_own_encoding(missing, tmp_path):
    """Judging a policy reads its log again; a missing word is known by a number of its own."""
    data = read(TABLE, tmp_path, missing=missing)
    assert [name for name, _ in data.meta.obs_layout][-1] == "mode is missing"
    again = read(TABLE, tmp_path, missing=missing, encoding=data.encoding)
    np.testing.assert_array_equal(again.observations, data.observations)
    assert encode(data.encoding.columns, {"temp": 37, "mode": None}).tolist() == [37, 0, 0, 0, 1]


def test_missing_values_are_refused_by_default(tmp_path):
    with pytest.raises(OdiceError, match=r"column 'temp' has 2 empty cells, the first in data row 2 .*say `missing`"):
        read(TABLE, tmp_path)
    with pytest.raises(OdiceError, match="expected one of refuse, forward-fill, impute, split"):
        read(TABLE, tmp_path, missing="zero")


def test_a_row_that_lacks_a_value_can_split_its_episode(tmp_path):
    """Rows 1, 2 and 3 lack something: what is left are two rows that were never neighbors."""
    data = read(TABLE, tmp_path, missing="split")
    assert data.lengths.tolist() == [1, 1]
    assert data.rewards.tolist() == [0, 4]
    assert "3 rows that lack a value left out" in data.meta.history[0]
    lost = {**TABLE, "temp": [1.0] * 5, "mode": ["on"] * 5, "gain": [0.0, None, 2.0, 3.0, 4.0]}
    assert read(lost, tmp_path, missing="split").lengths.tolist() == [1, 1, 2]
    priced = {**lost, "gain": [0.0, 1.0, 2.0, 3.0, 4.0], "price": [0.0, None, 2.0, 3.0, 4.0]}
    data = read(priced, tmp_path, missing="split", cost="price")
    assert (data.lengths.tolist(), data.costs.tolist()) == ([1, 1, 2], [0, 2, 3, 4])


def test_an_episode_without_a_reward_is_left_out_before_others_are_split(tmp_path):
    """Two entries, two meanings: `missing` says what becomes of rows, `skip_incomplete` of whole episodes."""
    lost = {**TABLE, "mode": ["on"] * 5, "temp": [1.0, 2.0, 3.0, None, 5.0], "gain": [0.0, None, 2.0, 3.0, 4.0]}
    assert read(lost, tmp_path, missing="split").rewards.tolist() == [0, 2, 4]
    data = read(lost, tmp_path, missing="split", skip_incomplete=True)
    assert (data.lengths.tolist(), data.rewards.tolist()) == ([1], [4])


def test_next_observations_are_encoded_alike(tmp_path):
    table = {
        **TABLE,
        "next_temp": [None, 39.0, 40.0, 38.0, None],
        "next_mode": ["off", None, "idle", "idle", None],
    }
    data = read(table, tmp_path, missing="impute", missing_indicator=True)
    assert data.final_known.tolist() == [True, False]
    assert data[0].observations[-1].tolist() == [40, 0, 1, 0, 0, 0]
    assert "next_mismatch" not in data.meta.evidence


@pytest.mark.parametrize("world", [ads, hospital])
def test_a_policys_row_gives_the_numbers_of_the_log(world, tmp_path):
    log = world.make_log(0)
    data = load(write(log, tmp_path / "log.csv"), **world.COLUMNS)
    columns = json.loads(json.dumps(fit(Preprocess(normalize_obs=True), data).to_dict()))["columns"]
    assert all(map(is_column, columns))
    assert layout(columns) == data.meta.obs_layout
    for i in (0, 7, 100):
        row = {name: column[i] for name, column in log.items()}
        np.testing.assert_array_equal(encode(columns, row), data.step_observations()[i])


def test_a_deployed_policy_takes_a_row_of_the_table(tmp_path):
    data = read(TABLE, tmp_path, missing="impute", missing_indicator=True)
    fitted = fit(Preprocess(), data)
    weights = np.random.default_rng(0).normal(size=(6, 3)).astype(np.float32)
    tensors = {"layers.0.weight": weights, "layers.0.bias": np.zeros(3, np.float32)}
    about = {"preprocess": fitted.to_dict()}
    Policy(Layout((6, 3), False, "relu", "argmax"), tensors, about=about).save(tmp_path / "policy")
    policy = Policy.load(tmp_path / "policy")
    row, numbers = {"temp": None, "mode": "off", "remark": "x"}, [38, 1, 0, 1, 0, 0]
    np.testing.assert_array_equal(policy.outputs(row), policy.outputs(numbers))
    assert policy(row) == policy(numbers)
    assert policy.choices == ("high", "low", "none")
    with pytest.raises(OdiceError, match="'mode' is 'turbo'; the policy knows idle, off, on"):
        policy({"temp": 37.0, "mode": "turbo"})
    with pytest.raises(OdiceError, match="give it an array"):
        Policy(Layout((6, 3), False, "relu", "argmax"), tensors)(row)


def test_columns_of_a_stranger_are_not_trusted():
    assert is_column({"name": "x"})
    bad = [{}, {"name": 1}, {"name": "x", "values": [1]}, {"name": "x", "fill": math.nan}, {"name": "x", "width": -1}]
    assert not any(map(is_column, [*bad, {"name": "x", "else": 1}, "x"]))
    with pytest.raises(OdiceError, match="obs_columns"):
        Meta.from_dict({"obs_columns": [{"name": "x", "values": "abc"}]})
    assert Fitted.from_dict({"columns": [{"name": "x"}]}).columns == ({"name": "x"},)


def test_a_missing_value_that_was_never_missing_is_refused():
    with pytest.raises(OdiceError, match="needs a value for 'x'"):
        encode([{"name": "x"}], {})


COLUMNS = [{"name": "pair", "width": 2}, {"name": "x"}, {"name": "mode", "values": ["1", "on"]}, {"name": "y"}]
ROW = {"pair": [1, 2], "x": 3.0, "mode": "on", "y": True}


def test_a_row_of_every_kind():
    assert encode(COLUMNS, ROW).tolist() == [1, 2, 3, 0, 1, 1]
    assert encode(COLUMNS, {**ROW, "pair": np.array([1.0, 2.0]), "x": np.int8(3), "mode": 1.0}).tolist() == [
        *(1, 2, 3, 1, 0, 1)
    ]
    assert encode(COLUMNS, {**ROW, "x": [3.0], "y": np.array(1)}).tolist() == [1, 2, 3, 0, 1, 1]
    assert encode(COLUMNS, {**ROW, "x": 1e300}).tolist()[2] == math.inf  # which a policy refuses


@pytest.mark.parametrize(
    "bad", ["3", b"3", {}, [], [1, 2], [[1]], [None], ["1"], 1j, np.array([1, 2]), object(), 10**400]
)
@pytest.mark.parametrize("name", ["x", "y"])
def test_a_number_is_one_number(name, bad):
    """A list would shift the columns after it, and the sum of the widths may still be right."""
    with pytest.raises(OdiceError, match=f"'{name}' is .*(a number there|too large)"):
        encode(COLUMNS, {**ROW, name: bad})


@pytest.mark.parametrize(
    "bad", [1, [1], [1, 2, 3], "12", ["1", "2"], {0: 1, 1: 2}, [[1, 2]], [1, None], np.zeros((1, 2))]
)
def test_a_list_has_its_length(bad):
    with pytest.raises(OdiceError, match=r"'pair' is .*a list of 2 numbers there"):
        encode(COLUMNS, {**ROW, "pair": bad})


@pytest.mark.parametrize("bad", ["off", [], ["on"], {}, 2, np.datetime64("2025-01-01"), 10**400, "\ud800"])
def test_a_category_is_one_of_its_words(bad):
    with pytest.raises(OdiceError, match=r"'mode' is .*; the policy knows 1, on"):
        encode(COLUMNS, {**ROW, "mode": bad})


# --- time -------------------------------------------------------------------------------------------------------------


def timed(minutes, tmp_path, **options):
    times = [f"2025-03-01 {minute // 60:02d}:{minute % 60:02d}:00" for minute in minutes]
    n = len(minutes)
    table = {"time": times, "temp": np.arange(n) * 1.0, "dose": [0, 1] * (n // 2), "gain": np.arange(n) * 1.0}
    roles = {"observation": ("temp",), "action": ("dose",), "reward": "gain", "step": "time"}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UnfinishedEpisodeWarning)
        return load(write(table, tmp_path / "timed.csv"), **roles, **options)


def test_episodes_are_split_at_gaps_of_time(tmp_path):
    minutes = [0, 5, 10, 60, 65, 70, 75, 300]
    data = timed(minutes, tmp_path, max_gap=600)
    assert data.lengths.tolist() == [3, 4, 1]
    assert data.truncated.all()
    assert "split at 2 gaps of 'time' above 600" in data.meta.history
    with pytest.raises(OdiceError, match="no column says where episodes end"):
        timed(minutes, tmp_path)


def test_a_gap_in_a_regular_step_column_is_noticed_and_max_gap_answers_it(tmp_path):
    log = {name: np.asarray(column) for name, column in hospital.make_log(0).items()}
    out = np.isin(np.arange(len(log["hour"])), [5, 6, 41])  # inside long stays
    table = {name: column[~out] for name, column in log.items()}
    path = write(table, tmp_path / "ward.csv")
    values = [f for f in inspect(load(path, **hospital.COLUMNS)).findings if f.code == "step-gap"]
    assert [(f.severity, f.evidence["count"], f.evidence["largest"]) for f in values] == [("warning", 2, 3.0)]
    assert "--max-gap 1" in values[0].advice
    with pytest.warns(UnfinishedEpisodeWarning):
        split = load(path, **hospital.COLUMNS, max_gap=1)
    assert split.n_episodes == 302
    assert "step-gap" not in {f.code for f in inspect(split).findings}


def test_weekends_are_no_gaps(tmp_path):
    assert "step_gaps" not in read_world(trading, tmp_path).meta.evidence


def read_world(world, tmp_path):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UnfinishedEpisodeWarning)
        return load(write(world.make_log(0), tmp_path / "world.csv"), **world.COLUMNS)


def test_rows_are_put_in_the_order_of_their_time(tmp_path):
    """Times as text sort as times: nine o'clock before ten, whatever the letters say."""
    log = hvac.make_log(0, episodes=12)
    order = np.random.default_rng(0).permutation(len(log["day"]))
    mixed = {name: np.asarray(column)[order] for name, column in log.items()}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UnfinishedEpisodeWarning)
        first = load(write(log, tmp_path / "log.csv"), **hvac.COLUMNS)
        again = load(write(mixed, tmp_path / "mixed.csv"), **hvac.COLUMNS, step="timestamp")
    assert again.n_episodes == 12
    one = {tuple(np.round(e.rewards, 5)) for e in again}
    assert one <= {tuple(np.round(e.rewards, 5)) for e in first}


def test_polars_categories_are_words(tmp_path):
    frame = pl.DataFrame(
        {**TABLE, "temp": [1.0] * 5, "mode": pl.Series(["on", "off", "on", "on", "off"], dtype=pl.Categorical)}
    )
    frame.write_parquet(tmp_path / "log.parquet")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UnfinishedEpisodeWarning)
        data = load(tmp_path / "log.parquet", **ROLES)
    assert data.step_observations()[:, 1:].tolist() == [[0, 1], [1, 0], [0, 1], [0, 1], [1, 0]]
