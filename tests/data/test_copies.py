"""A log that was exported several times: the copies of an episode stay on one side of a split, and judge once."""

import numpy as np
import pytest

from odice.data.build import from_steps
from odice.evaluation.ope.estimate import estimate
from odice.evaluation.ope.held_out import evaluation_episodes

DISTINCT, TIMES = 160, 5


def exported(again=TIMES, whole=False, different=DISTINCT):
    rng = np.random.default_rng(0)
    seen = rng.normal(size=(different, 4))
    seen, actions, rewards = (
        np.round(20 * seen) if whole else seen,
        rng.integers(0, 3, different),
        rng.random(different),
    )
    rows = rng.permutation(np.repeat(np.arange(different), again))
    return from_steps(seen[rows], actions[rows], rewards[rows], terminated=np.ones(len(rows), bool))


@pytest.mark.parametrize("whole", [False, True])
def test_copies_are_on_one_side_of_a_split(whole):
    data = exported(whole=whole)
    assert len(data.originals) == DISTINCT
    held, trained = data.split(0.3)
    assert held.n_episodes == round(0.3 * DISTINCT) * TIMES
    assert held.n_episodes + trained.n_episodes == data.n_episodes
    assert not set(held.rewards.tolist()) & set(trained.rewards.tolist())


def test_copies_judge_once():
    data = exported()
    by = evaluation_episodes(lambda seen: seen, data)
    assert (by.data.n_episodes, by.copies) == (DISTINCT, (TIMES - 1) * DISTINCT)
    assert by.sentence.endswith("; 640 copies of them are not counted")
    policy = lambda seen: (seen[:, 0] > 0).astype(int)
    once, column = estimate(policy, data.select(data.originals)), policy(data.step_observations())
    for candidate in (policy, column):
        again = estimate(candidate, data)
        assert again.episodes == DISTINCT
        assert again.estimates["importance"].improvement == once.estimates["importance"].improvement


def test_rows_that_are_alike_by_chance_are_no_copies():
    """Eight different rows among 800, as a log of two contexts and two choices has."""
    rng = np.random.default_rng(0)
    context, action, reward = rng.integers(0, 2, (3, 800))
    data = from_steps(context[:, None], action, reward, terminated=np.ones(800, bool))
    assert len(data.originals) == 800
    assert data.split(0.25)[0].n_episodes == 200
