"""The worlds are what their docstrings say: reproducible logs, and a truth that tells good policies from bad ones."""

from __future__ import annotations

import numpy as np

from odice.data.load import load
from tests.worlds import hospital, write


def test_the_hospitals_log_is_reproducible_and_as_described(tmp_path):
    log = hospital.make_log(seed=3)
    again = hospital.make_log(seed=3)
    assert all(np.array_equal(log[name], again[name]) for name in log)
    returns = np.concatenate([hospital.dataset(seed, 2000).returns for seed in range(3)])
    assert abs(returns.mean() - 0.32) < 0.03
    assert abs((returns < 0).mean() - 0.045) < 0.01
    assert set(np.unique(returns)) == {-1.0, 0.0, 1.0}
    data, direct = load(write(log, tmp_path / "ward.csv"), **hospital.COLUMNS), hospital.dataset(seed=3)
    assert (data.n_episodes, data.discrete, data.spec.action_dim) == (300, True, 5)
    assert np.array_equal(data.actions, direct.actions)
    assert np.array_equal(data.terminated, direct.terminated)
    np.testing.assert_allclose(data.step_observations(), direct.step_observations(), atol=1e-3)


def test_the_hospital_tells_policies_apart():
    troubles = np.linalg.pinv(hospital.MIX)

    def worst_first(vitals):
        return 1 + np.argmax((vitals - hospital.USUAL) @ troubles, axis=1)

    good, deaths = hospital.simulate(worst_first, 4000, seed=1)
    wait, wait_deaths = hospital.simulate(lambda vitals: np.zeros(len(vitals), int), 4000, seed=1)
    assert good.mean() > 0.45
    assert deaths.mean() < 0.02
    assert wait.mean() < -0.2
    assert wait_deaths.mean() > 0.3
