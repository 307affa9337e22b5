"""Skill: luck is taken out as far as it is luck, and the rows of the steps that show most skill are drawn."""

from __future__ import annotations

import numpy as np
import pytest

from odice.data.transitions import Rows
from odice.training.skill import AROUND, balance, drawn_rows, enough, row_weights, skill_of


def simulated(error: float, episodes: int = 4000, steps: int = 9, seed: int = 0):
    """Episodes of known skill in a world of chance, and a model whose errors repeat themselves along an episode.

    Gives the skill of each episode, and the arguments of `skill_of` but for the discount.
    """
    rng = np.random.default_rng(seed)
    skill, begun = rng.normal(size=episodes), rng.normal(size=episodes)
    luck = rng.normal(size=(episodes, steps))
    wrong = error * rng.normal(size=(episodes, 1)) * np.ones((1, steps))
    change = skill[:, None] / steps + luck
    returns = change.sum(axis=1) + 2.0 * begun
    return skill, (returns, begun, change.ravel(), (luck + wrong).ravel(), np.full(episodes, steps))


def test_true_luck_is_taken_out_and_the_start_too():
    skill, given = simulated(error=0.0)
    result = skill_of(*given, discount=1.0)
    assert result.ratio == pytest.approx(1.0, abs=0.06)
    assert result.share == pytest.approx(1.0, abs=0.06)
    np.testing.assert_allclose(result.episodes, skill - skill.mean(), atol=0.25)
    assert np.corrcoef(given[0], skill)[0, 1] < 0.35  # it was hidden
    assert np.corrcoef(result.steps.reshape(-1, 9)[:, 0], skill)[0, 1] > 0.99


def test_errors_of_a_model_are_taken_out_only_as_far_as_they_may_be_luck():
    """The slope is that of luck on luck with errors: the variance of the one over that of both."""
    error, steps = 0.8, 9
    _, (returns, begun, change, luck, lengths) = simulated(error, steps=steps)
    result = skill_of(returns, 0 * begun, change, luck, lengths, 1.0)
    assert result.ratio == pytest.approx((steps + steps**2 * error**2) / (steps * (1 + error**2)), rel=0.06)
    assert result.share == pytest.approx(steps / (steps + steps**2 * error**2), abs=0.03)
    kept = returns - result.share * luck.reshape(-1, steps).sum(axis=1)
    np.testing.assert_allclose(result.episodes, kept - kept.mean(), atol=1e-9)


def test_where_no_chance_is_a_model_without_knowledge_takes_nothing_away():
    """What it calls luck is the whole change, and that repeats itself along an episode; and a model that is wrong in a
    way that has nothing to do with what happened has the slope 0."""
    rng = np.random.default_rng(0)
    intent = np.repeat(rng.normal(size=3000), 10)
    returns, lengths = 10 * intent[::10], np.full(3000, 10)
    unknown = skill_of(returns, np.zeros(3000), intent, intent, lengths, 0.9)
    assert unknown.ratio == pytest.approx(10.0, rel=0.01)
    assert unknown.share == pytest.approx(0.1, rel=0.01)
    noise = rng.normal(size=30_000)
    wrong = skill_of(returns, np.zeros(3000), intent, noise, lengths, 0.9)
    assert wrong.ratio == pytest.approx(1.0, abs=0.1)  # this alone would take it for luck
    assert wrong.share < 0.05


def test_luck_that_moves_against_itself_is_not_taken_out_more_than_once():
    luck = np.tile([1.0, -1.0], 4)
    result = skill_of(np.arange(4.0), np.zeros(4), luck, luck, np.full(4, 2), 1.0)
    assert result.ratio == 0.0
    np.testing.assert_allclose(result.episodes, np.arange(4) - 1.5)


def test_what_is_left_by_rounding_is_no_skill():
    rng = np.random.default_rng(0)
    luck = rng.normal(size=50)
    change = luck + 1e-8 * rng.normal(size=50)
    result = skill_of(change, np.zeros(50), change, luck, np.ones(50, int), 1.0)
    assert not result.episodes.any()
    assert not result.steps.any()


def test_a_start_that_promises_less_than_it_keeps_is_not_punished():
    """A negative slope over few episodes would say that the worse the start, the better the agent."""
    begun, none = np.array([1.0, 2.0, 3.0]), np.zeros(3)
    result = skill_of(-begun, begun, none, none, np.ones(3, int), 1.0)
    np.testing.assert_allclose(result.episodes, [1.0, 0.0, -1.0])


def test_the_skill_of_steps_by_hand():
    """Two episodes without luck and equal returns: what is left are the sums over neighbors, at weights 1, 1/2, 1/4."""
    change = np.array([4.0, 0.0, -4.0, 1.0, -1.0])
    result = skill_of(np.zeros(2), np.zeros(2), change, np.zeros(5), np.array([3, 2]), 0.5)
    around = np.array([4 - 1, 2 - 2, 1 - 4, 1 - 0.5, 0.5 - 1])
    np.testing.assert_allclose(result.steps, AROUND * (around - around.mean()) / around.std())


def test_a_good_agent_and_a_good_part_of_an_episode_both_count():
    """Where every step is as V expects, the return tells agents apart; where returns are alike, the part does."""
    lengths, flat = np.full(2, 4), np.zeros(8)
    agents = skill_of(np.array([1.0, 3.0]), np.zeros(2), flat, flat, lengths, 0.9).steps
    np.testing.assert_allclose(agents, np.repeat([-1.0, 1.0], 4))
    part = np.array([0, 0, 1, 1, 0, 0, -1, -1.0])
    parts = skill_of(np.array([1.0, 1.0]), np.zeros(2), part, flat, lengths, 0.9).steps
    assert (np.diff(parts[:4]) > 0)[:2].all()
    assert parts[:4].min() > 0 > parts[4:].max()


@pytest.mark.parametrize("share", [0.1, 0.35, 0.8])
def test_the_weights_have_the_effective_sample_that_is_asked_for(share):
    score = np.random.default_rng(1).normal(size=3000)
    weight = row_weights(score, share)
    assert weight.mean() == pytest.approx(1.0)
    assert 1 / np.mean(np.square(weight)) == pytest.approx(share, rel=1e-6)
    slope, level = np.polyfit(score[weight > 0], weight[weight > 0], 1)  # a line above a level, and 0 below
    assert slope > 0
    assert score[weight == 0].max() <= -level / slope + 1e-9


def test_weights_of_three_rows_by_hand():
    """Scores 0, 1, 2: max(0, x - 1/2) is 0, 1/2, 3/2, and (2)^2 / (3 (1/4 + 9/4)) = 8/15."""
    weight = row_weights(np.array([0.0, 1.0, 2.0]), 8 / 15)
    np.testing.assert_allclose(weight, [0.0, 0.75, 2.25], atol=1e-9)


def rows_of_lengths(kept, dropped: int = 0) -> Rows:
    """Episodes that keep so many steps, and drop so many at their end."""
    kept = np.asarray(kept)
    return Rows(kept, np.cumsum(kept) - kept, np.cumsum(kept + dropped) - (kept + dropped))


@pytest.mark.parametrize("dropped", [0, 2])
def test_every_row_is_drawn_as_often_as_its_step_counts(dropped):
    rng = np.random.default_rng(2)
    rows = rows_of_lengths([0, *rng.integers(1, 30, 38), 0], dropped)
    score = rng.normal(size=rows.size + 40 * dropped)
    drawn = drawn_rows(score, rows, 0.25)
    assert drawn is not None
    assert drawn.dtype == np.int32
    assert len(drawn) == rows.size
    times = np.bincount(drawn, minlength=rows.size)
    steps = np.concatenate([start + np.arange(kept) for start, kept in zip(rows.starts, rows.kept, strict=True)])
    assert np.abs(times - row_weights(score[steps], 0.25)).max() <= 1.0 + 1e-9


def test_all_rows_where_no_step_stands_out():
    rows = rows_of_lengths([3, 4])
    assert drawn_rows(np.zeros(7), rows, 0.2) is None
    assert drawn_rows(np.arange(7.0), rows, 1.0) is None
    best = drawn_rows(np.repeat([1.0, 2.0], [3, 4]), rows, 0.2)  # one of two episodes is more than a fifth
    assert best is not None
    assert set(best.tolist()) == {3, 4, 5, 6}


def test_a_small_log_gives_up_less():
    assert enough(0.2, 100_000) == 0.2
    assert enough(0.2, 7500) == pytest.approx(0.4)
    assert enough(0.2, 1000) == 1.0


def test_balance_is_the_error_of_the_model_in_units_of_luck():
    """The ratio of luck of variance 1 with errors of variance e^2 that stay the same for T steps is known; with errors
    that are small beside the luck of a step, the ratio less 1 is T e^2: the errors' variance over that of the luck."""
    error, steps = 0.1, 50
    ratio = (steps + steps**2 * error**2) / (steps * (1 + error**2))
    assert balance(ratio) == pytest.approx(steps**2 * error**2 / steps, rel=0.04)
    assert balance(0.5) == balance(1.0) == pytest.approx(0.1)
