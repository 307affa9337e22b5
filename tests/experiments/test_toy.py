"""What the toy experiment measures, on value maps whose answers are plain; and one rule that must learn."""

import numpy as np
import pytest

from odice.errors import OdiceError
from odice.experiments import gridworld, toy

CONFIG = toy.ToyConfig()
WORLD = CONFIG.world
SEEN = gridworld.support(WORLD, gridworld.collect(WORLD, 800, seed=0))
TO_GOAL = np.minimum(WORLD.distance(WORLD.cells, 0), WORLD.distance(WORLD.cells, 1)).reshape(WORLD.shape)


def test_a_value_that_knows_the_way_and_the_data():
    path, measures = toy.measure(WORLD, SEEN, -TO_GOAL + 1000.0 * SEEN)
    assert measures["reached_goal"]
    assert measures["return"] == 10 - 39
    assert measures["walk_in_support"] == 1
    assert len(path) == 41
    assert measures["auc"] == measures["auc_near"] == measures["auc_far"] == measures["auc_matched"] == 1
    assert measures["value_inside"] - measures["value_outside"] > 900


def test_a_value_that_knows_only_the_way():
    _, measures = toy.measure(WORLD, SEEN, -TO_GOAL.astype(float))
    assert measures["return"] == 10 - 39
    assert measures["auc_matched"] == 0.5
    assert measures["inside_to_goal"] == measures["outside_to_goal"] == 1


def test_a_value_that_shuns_the_data():
    _, measures = toy.measure(WORLD, SEEN, np.where(SEEN, -1000.0, TO_GOAL))
    assert not measures["reached_goal"]
    assert measures["return"] == -200
    assert measures["auc"] == 0


def test_settings_are_the_chosen_ones_unless_given():
    assert CONFIG.settings("semi") == toy.CHOSEN["semi"]
    given = toy.ToyConfig(lam=0.3, eta=0.0)
    assert given.settings("semi") == {"lam": 0.3}
    assert given.settings("orthogonal") == {"lam": 0.3, "eta": 0.0}


def test_no_rule_is_refused():
    with pytest.raises(OdiceError, match="rules"):
        toy.ToyConfig(rules=())


@pytest.mark.slow
def test_the_semi_gradient_finds_a_goal():
    [outcome] = toy.run(toy.ToyConfig(rules=("semi",), steps=3000))
    assert outcome.measures["reached_goal"]
