"""The worlds are what their docstrings say: reproducible logs, and a truth that tells good policies from bad ones."""

from __future__ import annotations

import numpy as np
import pytest

from odice.data.load import load
from tests.worlds import WORLDS, hospital, record, simulate, write


@pytest.mark.parametrize("world", WORLDS, ids=lambda world: world.__name__.split(".")[-1])
def test_a_good_policy_is_worth_more_than_the_logs_and_a_seed_gives_the_same_log(world):
    log, again, other = world.make_log(0), world.make_log(0), world.make_log(1)
    assert all(np.array_equal(log[name], again[name]) for name in log)
    assert any(not np.array_equal(log[name], other[name]) for name in log)
    steps = record(world.WORLD, 0, 600)
    logged = np.bincount(steps.episode, steps.rewards)
    good = simulate(world.WORLD, world.good, 600, seed=1).returns
    error = np.hypot(logged.std(), good.std()) / np.sqrt(600)
    assert good.mean() > logged.mean() + 3 * error


def test_the_hospitals_log_is_as_described(tmp_path):
    returns = np.concatenate([hospital.dataset(seed, 2000).returns for seed in range(3)])
    assert abs(returns.mean() - 0.32) < 0.03
    assert abs((returns < 0).mean() - 0.045) < 0.01
    assert set(np.unique(returns)) == {-1.0, 0.0, 1.0}
    log = hospital.make_log(seed=3)
    data, direct = load(write(log, tmp_path / "ward.csv"), **hospital.COLUMNS), hospital.dataset(seed=3)
    assert (data.n_episodes, data.discrete, data.spec.action_dim) == (300, True, 5)
    assert np.array_equal(data.actions, direct.actions)
    assert np.array_equal(data.terminated, direct.terminated)
    np.testing.assert_allclose(data.step_observations(), direct.step_observations(), atol=1e-3)


def test_waiting_kills_in_the_hospital():
    good, deaths = hospital.simulate(hospital.good, 4000, seed=1)
    wait, wait_deaths = hospital.simulate(lambda vitals: np.zeros(len(vitals), int), 4000, seed=1)
    assert good.mean() > 0.45
    assert deaths.mean() < 0.02
    assert wait.mean() < -0.2
    assert wait_deaths.mean() > 0.3
