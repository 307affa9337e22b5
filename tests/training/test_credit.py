"""Credit: luck is taken out of what followed, skill is not."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

import odice
from odice.data.transitions import rows_of
from odice.experiments.worlds import WORLDS
from odice.training.credit import _Networks, _standard, _Steps, credit
from odice.training.skill import drawn_rows

pytestmark = pytest.mark.usefixtures("full_credit")


def steps_by_hand() -> _Steps:
    one = np.array([[1.0], [2.0]])
    return _Steps(
        observations=one,
        following=one + 3.0,
        both=np.concatenate([one, -one], axis=1),
        rewards=np.array([0.5, 0.25]),
        returns=np.zeros(2),
        over=np.array([False, True]),
        fold=np.array([0, 1]),
    )


def test_change_and_advantage_by_hand():
    value = lambda obs, fold: 10.0 * obs + fold[:, None]  # V(s) = 10 s, and 1 more in the second half
    model = lambda both, fold: np.stack([both[:, 0] + 1, 0.2 - both[:, 1], np.array([0.25, 2.0])], axis=1)
    networks = _Networks(value, model, None, discount=0.5)
    steps = steps_by_hand()
    # r + gamma m V(s') - V(s): the second step terminated, so nothing follows it
    np.testing.assert_allclose(networks.change(steps), [0.5 + 0.5 * 40 - 10, 0.25 - 21])
    # s + move is 1 + 2 and 2 + 3; the predicted chance of an end, 2, is cut to 1
    expected = [1.2 + 0.5 * 0.75 * 30 - 10, 2.2 + 0.5 * 0.0 * 51 - 21]
    np.testing.assert_allclose(networks.advantage(steps), expected)
    corrected = networks._replace(correction=lambda both, fold: both[:, :1] * 100)
    np.testing.assert_allclose(corrected.advantage(steps), np.add(expected, [100, 200]))


def test_the_explained_share_by_hand():
    """A model without a correction that predicts delta but for 1 in every other step."""
    steps = steps_by_hand()._replace(over=np.array([True, True]), rewards=np.array([3.0, -1.0]))
    value = lambda obs, fold: 0.0 * obs
    model = lambda both, fold: np.stack([0 * both[:, 0], np.array([3.0, 0.0]), np.ones(2)], axis=1)
    # delta is 3 and -1 (variance 4), what is missed 0 and -1 (variance 1/4)
    assert _Networks(value, model, None, 0.5).explained(steps) == pytest.approx(1 - 0.25 / 4)


def test_luck_earns_no_credit_in_a_lottery():
    log = WORLDS["lottery-10"].make_log(np.random.default_rng(1), 4000)
    result = credit(log, 0.99)
    gambled = log.actions == 1
    assert result.advantage[~gambled].mean() > result.advantage[gambled].mean() + 1.0
    won = gambled & (log.rewards > 0)
    chosen = drawn_rows(result.skill.steps, rows_of(log, "bootstrap"), 0.2)
    assert gambled[chosen].mean() < 0.1
    # a network that had seen the draws of the rows it judges would give those who won more
    assert abs(result.advantage[won].mean() - result.advantage[gambled & ~won].mean()) < 0.2


def test_without_chance_the_return_is_skill():
    world = WORLDS["grid"]
    log = world.make_log(np.random.default_rng(1), 400)
    result = credit(log, 0.99)
    assert np.corrcoef(result.skill.episodes, log.returns)[0, 1] > 0.9
    burned = np.asarray(log.rewards) < -0.3  # steps into the fire
    assert result.advantage[burned].mean() < result.advantage[~burned].mean() - 0.5


def test_where_returns_are_alike_nobody_has_credit():
    log = WORLDS["lottery-10"].make_log(np.random.default_rng(1), 50)
    result = credit(dataclasses.replace(log, rewards=np.full_like(log.rewards, 3.0)), 0.99)
    assert result.advantage.shape == (50,)
    assert not result.advantage.any()
    assert not result.skill.steps.any()


def test_rounding_is_no_credit():
    assert not _standard(1.0 + 1e-7 * np.arange(5.0)).any()
    np.testing.assert_allclose(_standard(np.array([1.0, 3.0])), [-1.0, 1.0])


@pytest.mark.slow
def test_the_default_takes_the_sure_action(tmp_path):
    world = WORLDS["lottery-30"]
    log = world.make_log(np.random.default_rng(0), 4000)
    small = {"value_hidden": (32, 32), "policy_hidden": (32, 32), "steps": 800, "eval_every": 800}
    run = odice.train(log, out=tmp_path, env="none", quiet=True, allow=("all",), **small)
    assert world.policy_table(run.policy)[0, :, 0].mean() > 0.95
