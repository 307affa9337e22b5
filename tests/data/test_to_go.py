"""Discounted returns to go, against sums written out."""

from dataclasses import replace

import numpy as np
import pytest

import odice
from odice.data.preprocess import Preprocess, fit
from odice.data.to_go import high, returns_to_go, spread, standardized_returns
from tests.training.line import line_log


@pytest.fixture
def uneven():
    """Episodes of 3, 1 and 5 steps."""
    ends = np.isin(np.arange(9), (2, 3, 8))
    rewards = np.array([1, -2, 4, 3, 0, 0, 0, 0, 10], np.float32)
    return odice.load(
        {"observations": np.zeros((9, 2), np.float32), "actions": np.zeros((9, 1), np.float32), "rewards": rewards,
         "terminals": ends}
    )  # fmt: skip


def test_returns_to_go(uneven):
    written = [1 - 1 + 1, -2 + 2, 4, 3, 10 / 16, 10 / 8, 10 / 4, 10 / 2, 10]
    np.testing.assert_allclose(returns_to_go(uneven, 0.5), written)
    np.testing.assert_allclose(spread(uneven, 0.5), np.std(written))
    assert high(uneven, 0.5) == pytest.approx(np.quantile(written, 0.99))


def test_outcomes_are_standardized_returns_and_cut_episodes_go_on(uneven):
    """The last episode is cut: its mean reward, 2, follows for five more steps."""
    cut = replace(uneven, terminated=np.array([True, True, False]), truncated=np.array([False, False, True]))
    tail = 2 * (1 / 2 + 1 / 4 + 1 / 8 + 1 / 16 + 1 / 32)
    written = np.array([1 - 1 + 1, -2 + 2, 4, 3, *((10 + tail) / 2**k for k in (4, 3, 2, 1, 0))])
    np.testing.assert_allclose(standardized_returns(cut, 0.5), (written - written.mean()) / written.std(), rtol=1e-6)
    assert np.abs(standardized_returns(uneven, 1.0)).max() < 10  # a discount of 1 stays finite
    np.testing.assert_array_equal(standardized_returns(replace(uneven, rewards=np.zeros(9, np.float32)), 0.9), 0)


def test_rewards_are_scaled_by_the_spread():
    log = odice.load(line_log())
    fitted = fit(Preprocess(return_spread=10.0, discount=0.9), log)
    seen = fitted.apply(log)
    assert returns_to_go(seen, 0.9).std() == pytest.approx(10.0, rel=1e-5)
    hundred = fit(Preprocess(return_spread=10.0, discount=0.9), replace(log, rewards=100 * log.rewards))
    assert hundred.reward_scale == pytest.approx(fitted.reward_scale / 100, rel=1e-6)


def test_equal_returns_keep_their_scale(uneven):
    silent = replace(uneven, rewards=np.zeros_like(uneven.rewards))
    assert fit(Preprocess(return_spread=10.0), silent).reward_scale == 10.0
