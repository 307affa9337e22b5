"""The cost column: it loads, it travels with its steps, and it is not lost on the way."""

import numpy as np
import polars as pl
import pytest

import odice
from odice.data.columns import MAKERS, make_columns
from odice.data.join import concatenate
from odice.data.preprocess import absorb
from odice.data.transitions import to_transitions
from odice.errors import OdiceError
from odice.types import COLUMNS

N = 30


def columns(costs=True):
    rng = np.random.default_rng(0)
    ends = np.arange(N) % 10 == 9
    values = {
        "observations": rng.normal(size=(N, 2)).astype(np.float32),
        "actions": rng.normal(size=(N, 1)).astype(np.float32),
        "rewards": rng.normal(size=N).astype(np.float32),
        "terminals": ends,
        "timeouts": np.zeros(N, bool),
    }
    return values | ({"costs": np.arange(N, dtype=np.float32)} if costs else {})


def test_costs_travel_with_their_steps():
    data = odice.load(columns())
    np.testing.assert_array_equal(data.costs, np.arange(N))
    np.testing.assert_array_equal(data.select([2, 0]).costs, [*range(20, 30), *range(10)])
    np.testing.assert_array_equal(data.first(13).costs, np.arange(13))
    np.testing.assert_array_equal(concatenate([data, data]).costs, [*range(N), *range(N)])
    assert concatenate([data, odice.load(columns(costs=False))]).costs is None
    absorbed = absorb(data).costs
    assert absorbed.sum() == np.arange(N).sum()
    assert len(absorbed) == N + 3
    arrays = to_transitions(data, "qlearning", make_columns(["cost"], data, 0.9))
    np.testing.assert_array_equal(arrays.columns["cost"], np.arange(N - 1))  # its last step is always lost
    np.testing.assert_array_equal(arrays.batch(np.array([3, 15])).column("cost"), [3, 15])
    with pytest.raises(OdiceError, match="needs a cost for every step; name a column with --cost-column"):
        make_columns(["cost"], odice.load(columns(costs=False)), 0.9)


def test_the_next_action_is_that_of_the_following_step():
    data = odice.load(columns())
    following = make_columns(["next_action"], data, 0.9)["next_action"]
    np.testing.assert_array_equal(following[:9], data.actions[1:10])
    assert np.isnan(following[data.ends]).all()
    assert np.isnan(following).sum() == data.n_episodes


def test_every_column_can_be_made():
    """Credit takes training (tests/training/test_credit.py)."""
    assert {*MAKERS, "credit"} == set(COLUMNS)


def test_the_fingerprint_knows_them():
    with_costs, without = odice.load(columns()), odice.load(columns(costs=False))
    assert with_costs.fingerprint != without.fingerprint


@pytest.mark.parametrize("name", ["log.hdf5", "log.parquet"])
def test_files_keep_them(tmp_path, name):
    data = odice.load(columns())
    again = odice.load(data.save(tmp_path / name))
    np.testing.assert_array_equal(again.costs, data.costs)
    assert again.fingerprint == data.fingerprint


def test_a_table_with_a_cost_column(tmp_path):
    table = pl.DataFrame({"episode": [0, 0, 1, 1], "obs_0": [1.0, 2, 3, 4], "action_0": [0.1, 0.2, 0.3, 0.4]})
    table = table.with_columns(reward=pl.lit(1.0), cost=pl.Series([5.0, 6, 7, 8]), wear=pl.Series([1.0, 2, 3, 4]))
    path = tmp_path / "log.csv"
    table.write_csv(path)
    with pytest.warns(UserWarning, match="kept as truncated"):
        data = odice.load(path)
    np.testing.assert_array_equal(data.costs, [5, 6, 7, 8])
    with pytest.warns(UserWarning, match="kept as truncated"):
        np.testing.assert_array_equal(odice.load(path, cost="wear").costs, [1, 2, 3, 4])


def test_what_has_no_place_for_them_says_so(tmp_path):
    with pytest.raises(OdiceError, match="no place for costs"):
        odice.load(columns()).save(tmp_path / "minari-v0", "minari")
    with pytest.raises(OdiceError, match="one cost per step"):
        odice.load(columns() | {"costs": np.zeros((N, 2))})
