"""What a schema says about ends of episodes, outcomes that every row repeats, and columns with two roles."""

import numpy as np
import polars as pl
import pytest

import odice
from odice.data.dataset import UnfinishedEpisodeWarning
from odice.data.doctor import inspect
from odice.data.schema import Schema
from odice.errors import OdiceError

ROLES = {"observation": "x", "action": "a", "reward": "r"}


def write(path, **columns):
    n = 6
    table = {"id": np.repeat([1, 2], [4, 2]), "t": [0, 1, 2, 3, 0, 1], "x": np.arange(n) * 0.5, "a": [0, 1] * 3}
    pl.DataFrame({**table, "r": np.arange(n) * 1.0, **columns}).write_csv(path)
    return path


def test_every_row_is_terminal_is_said_once(tmp_path):
    data = odice.load(write(tmp_path / "l.csv"), schema={**ROLES, "one_step": True})
    assert data.lengths.tolist() == [1] * 6
    assert data.terminated.all()
    with pytest.raises(OdiceError, match="one_step = true"):
        odice.load(tmp_path / "l.csv", schema=ROLES)


@pytest.mark.parametrize(("complete", "terminated"), [(True, [True, True]), (False, [True, False])])
def test_an_episode_without_a_flag_is_over_or_cut(tmp_path, complete, terminated):
    log = write(tmp_path / "l.csv", died=[0, 0, 0, 1, 0, 0])
    data = odice.load(log, schema={**ROLES, "episode": "id", "terminated": "died", "complete": complete})
    assert data.terminated.tolist() == terminated
    assert data.truncated.tolist() == [not each for each in terminated]
    assert "unfinished" not in data.meta.evidence


def test_a_piece_of_a_split_episode_is_not_over(tmp_path):
    log = write(tmp_path / "l.csv", t=[0, 1, 7, 8, 0, 1])
    with pytest.warns(UnfinishedEpisodeWarning, match="1 of 3 episodes end"):
        data = odice.load(log, schema={**ROLES, "episode": "id", "step": "t", "max_gap": 2.0, "complete": True})
    assert data.lengths.tolist() == [2, 2, 2]
    assert data.terminated.tolist() == [False, True, True]


def test_an_outcome_that_every_row_repeats_counts_once(tmp_path):
    log = write(tmp_path / "l.csv", died=[1, 1, 1, 1, 0, 0], t=[3, 2, 1, 0, 0, 1])
    schema = {**ROLES, "reward": "2 - 3 * last(died)", "episode": "id", "step": "t", "complete": True}
    data = odice.load(log, schema=schema)
    assert data.rewards.tolist() == [2, 2, 2, -1, 2, 2]  # in the order of t
    with pytest.raises(OdiceError, match="needs the column that names episodes"):
        odice.load(log, schema={**ROLES, "reward": "last(died)", "one_step": True})


@pytest.mark.parametrize("role", ["reward", "cost", "propensity", "episode", "terminated", "action"])
def test_what_is_not_known_before_the_action_is_no_observation(tmp_path, role):
    log = write(tmp_path / "l.csv", y=[1, 0, 1, 0, 0, 1])
    schema = {**ROLES, "episode": "id", role: "y", "observation": "x,y"}
    with pytest.raises(OdiceError, match=f"'y' is an observation and also the `{role}`"):
        odice.load(log, schema=schema)


def test_a_schema_is_read_back(tmp_path):
    entries = {**ROLES, "episode": "id", "complete": True, "cost_limit": 2.0, "outcomes": ["r", "x - a"]}
    schema = Schema.parse({**entries, "categories": {"a": ["0", "1"]}, "action_low": 0.5}, "here")
    assert Schema.parse(schema.to_dict(), "here") == schema
    data = odice.load(write(tmp_path / "l.csv"), schema=entries)
    assert Schema.parse(data.meta.schema, "here").outcomes == ("r", "x - a")


def test_returns_of_the_first_steps(tmp_path):
    data = odice.load(write(tmp_path / "l.csv"), schema={**ROLES, "episode": "id", "complete": True})
    assert data.returns_within(None).tolist() == [6, 9]
    assert data.returns_within(3).tolist() == [3, 9]
    assert data.returns_within(1).tolist() == [0, 4]
    assert data.returns_within(10**30).tolist() == [6, 9]
    with pytest.raises(OdiceError, match="at least 1; got 0"):
        data.returns_within(0)


def test_short_episodes_of_states_that_recur_may_be_equal():
    """Stays of two rows in a few states with decimals repeat by chance, and removing them would bias the log."""
    rng = np.random.default_rng(0)
    n = 400
    rows = {"observations": rng.choice([0.5, 1.5, 2.5], (2 * n, 2)), "actions": rng.integers(0, 2, 2 * n)}
    rows |= {"rewards": rng.integers(0, 2, 2 * n).astype(float), "terminated": np.arange(2 * n) % 2 == 1}
    assert "duplicate-episodes" not in {finding.code for finding in inspect(odice.load(rows)).findings}
    rows["observations"] = rng.normal(size=(2 * n, 2))
    rows["observations"][2:4] = rows["observations"][:2]
    for name in ("actions", "rewards"):
        rows[name][2:4] = rows[name][:2]
    assert "duplicate-episodes" in {finding.code for finding in inspect(odice.load(rows)).findings}


def test_a_log_that_was_exported_five_times_does_not_hide_its_copies():
    """States that recur because the whole log was copied say nothing about chance."""
    rng = np.random.default_rng(0)
    rows = {"observations": rng.normal(size=(60, 2)), "actions": rng.integers(0, 2, 60), "rewards": rng.normal(size=60)}
    order = rng.permutation(np.repeat(np.arange(60), 5))
    data = odice.load({**{name: values[order] for name, values in rows.items()}, "terminated": np.ones(300, bool)})
    finding = next(item for item in inspect(data).findings if item.code == "duplicate-episodes")
    assert "240 of 300 episodes" in finding.message


def test_unknown_bounds_are_an_error_with_the_bounds_seen():
    rng = np.random.default_rng(0)
    dose = rng.uniform(0, 8, (200, 1))
    rows = {"observations": rng.normal(size=(200, 2)), "actions": dose, "rewards": rng.normal(size=200)}
    data = odice.load({**rows, "terminated": np.arange(200) % 10 == 9})
    finding = next(item for item in inspect(data).findings if item.code == "unknown-bounds")
    assert finding.severity == "error"
    assert f"--action-high {dose.max():.6g}"[:18] in finding.advice
