"""No false alarm on ten clean logs of different fields, and alarms where something is wrong with them."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

from odice.data.build import from_steps
from odice.data.dataset import UnfinishedEpisodeWarning
from odice.data.doctor import inspect
from odice.data.load import load
from tests.worlds import WORLDS, hvac, inventory, record, traffic, write


def findings(path, world, **more):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UnfinishedEpisodeWarning)
        return inspect(load(path, **{**world.COLUMNS, **more})).findings


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("world", WORLDS, ids=lambda world: world.__name__.split(".")[-1])
def test_clean_logs_raise_no_alarm(world, seed, tmp_path):
    reported = findings(write(world.make_log(seed), tmp_path / "log.csv"), world)
    assert [f.message for f in reported if f.severity != "note"] == []
    assert {f.code for f in reported} <= {"unfinished"}


@pytest.mark.parametrize("world", [traffic, inventory], ids=("traffic", "inventory"))
def test_rewards_of_the_next_state_are_no_shift_but_a_shift_of_them_is_found(world, tmp_path):
    log = world.make_log(0)
    reward = world.COLUMNS["reward"]
    early = {**log, reward: np.roll(log[reward], -1)}
    assert {f.code for f in findings(write(early, tmp_path / "early.csv"), world)} == {"shifted-rewards", "unfinished"}


def test_one_step_episodes_of_their_own_are_no_terminal_run():
    """Short visits among long ones, each with a state of its own; the same rows as one stay that goes on are a run."""
    rng = np.random.default_rng(0)
    lengths = np.where(rng.random(300) < 0.4, 1, 15)
    episode = np.repeat(np.arange(300), lengths)
    ends = np.cumsum(lengths) - 1
    terminated = np.isin(np.arange(len(episode)), ends)
    starts = rng.normal(size=(300, 3))
    observations = starts[episode] + 0.01 * rng.normal(size=(len(episode), 3))
    rows = {"actions": rng.integers(0, 2, len(episode)), "rewards": rng.normal(size=len(episode))}
    own = from_steps(observations, **rows, terminated=terminated, episode=episode)
    assert "terminal-runs" not in {f.code for f in inspect(own).findings}
    stays = np.where(lengths == 1, 0, 1).cumsum()
    observations = starts[stays[episode] - 1] + 0.01 * rng.normal(size=(len(episode), 3))
    goes_on = from_steps(observations, **rows, terminated=terminated)
    assert "terminal-runs" in {f.code for f in inspect(goes_on).findings}


def test_columns_of_different_units_are_checked_separately(tmp_path):
    log = hvac.make_log(0)
    messages = {f.code: f.message for f in findings(write(log, tmp_path / "l.csv"), hvac, action_low=None)}
    assert "from 0 to 8" in messages["unknown-bounds"]
    assert "to 600" not in messages["unknown-bounds"].split(",")[0]
    out = {**log, "heating_kw": np.where(np.arange(len(log["day"])) == 7, 16.0, log["heating_kw"])}
    out["fresh_air_m3h"] = np.where(np.arange(len(log["day"])) == 9, 620.0, log["fresh_air_m3h"])
    result = next(f for f in findings(write(out, tmp_path / "o.csv"), hvac) if f.code == "action-out-of-bounds")
    assert result.evidence["largest_excess"] == pytest.approx(8.0)  # twice its range, though 20 m3/h is a larger number


def test_a_next_observation_is_compared_in_its_own_unit():
    """A difference of 0.5 is rounding in a column of thousands, and none in a column of tenths."""
    rng = np.random.default_rng(0)
    states = rng.normal(size=(2001, 2)) * [1e4, 0.1]
    rows = {"actions": rng.integers(0, 2, 2000), "rewards": rng.normal(size=2000)}
    flags = {"truncated": np.arange(2000) % 100 == 99, "episode": np.arange(2000) // 100}
    for column, severity in ((0, "note"), (1, "error")):
        nexts = states[1:].copy()
        nexts[:, column] += 0.5
        result = inspect(from_steps(states[:-1], **rows, **flags, next_observations=nexts)).findings
        mismatch = next(f for f in result if f.code == "next-mismatch")
        assert (mismatch.severity, mismatch.evidence["column"]) == (severity, column)


def test_the_worlds_themselves_have_next_states_in_their_rewards():
    """The test above means something: the cost of a quarter hour is a function of the temperature it led to."""
    steps = record(hvac.WORLD, 0, 50)
    heat, price = steps.actions[:, 0], steps.observations[:, 3]
    away = np.maximum(np.abs(steps.next_observations[:, 0] - 21.5) - 1, 0) * (0.1 + 0.9 * steps.observations[:, 4])
    stale = np.maximum(steps.next_observations[:, 2] - 1000, 0) / 1000 * steps.observations[:, 4]
    np.testing.assert_allclose(steps.rewards, -(price * heat * 0.25 + 0.3 * away + 0.5 * stale), atol=1e-9)
