"""The worlds' computed values agree with values made another way: by hand, and by episodes."""

from __future__ import annotations

import numpy as np
import pytest

from odice.experiments.worlds import WORLDS


@pytest.mark.parametrize("name", WORLDS)
def test_computed_values_agree_with_episodes(name):
    world = WORLDS[name]
    rng = np.random.default_rng(0)
    for value, act in ((world.behavior_value, None), (world.best_value, world.as_policy(world.best_table))):
        returns = world.make_log(rng, 3000, act=act).returns
        assert abs(returns.mean() - value) < 4 * returns.std() / np.sqrt(3000) + 1e-6
    assert world.worst_value < min(world.random_value, world.behavior_value)
    assert max(world.random_value, world.behavior_value) < world.best_value


def test_values_by_hand():
    lottery, corridor = WORLDS["lottery-30"], WORLDS["corridor"]
    assert lottery.best_value == pytest.approx(0.6)
    assert lottery.true_value(lambda obs: np.ones(len(obs), int)) == pytest.approx(0.45)
    assert lottery.true_value(lambda obs: np.full((len(obs), 2), 0.5)) == pytest.approx(0.525)
    gamble_at_even_odds = lambda obs: (obs[:, 0] >= 0.5).astype(int)
    assert corridor.true_value(gamble_at_even_odds) == pytest.approx(20 * (0.6 + 0.6 + 0.75 + 0.9) / 4)
    assert corridor.best_value == pytest.approx(corridor.true_value(gamble_at_even_odds))


def test_continuous_actions_are_rounded_to_the_levels_of_the_table():
    world = WORLDS["inventory"]
    order = lambda amount: lambda obs: np.full((len(obs), 1), amount)
    assert world.true_value(order(4.4)) == world.true_value(order(4.0))
    assert world.true_value(order(4.4)) != world.true_value(order(4.6))


def test_a_seed_gives_the_same_log_and_no_terminal_state_is_missed():
    world = WORLDS["hospital"]
    log, again = (world.make_log(np.random.default_rng(5), 50) for _ in range(2))
    assert np.array_equal(log.observations, again.observations)
    assert np.array_equal(log.rewards, again.rewards)
    assert log.terminated.all()
    assert log.lengths.max() <= world.horizon
