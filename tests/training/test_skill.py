"""Skill of episodes: luck is taken out as far as it is luck, and the rows of the best episodes are drawn."""

from __future__ import annotations

import numpy as np
import pytest

from odice.data.transitions import Rows
from odice.training.skill import balance, drawn_rows, enough, episode_skill, episode_weights


def simulated(error: float, episodes: int = 4000, steps: int = 9, seed: int = 0):
    """Episodes of known skill in a world of chance, and a model whose errors repeat themselves along an episode."""
    rng = np.random.default_rng(seed)
    skill, begun = rng.normal(size=episodes), rng.normal(size=episodes)
    luck = rng.normal(size=(episodes, steps))
    wrong = error * rng.normal(size=(episodes, 1)) * np.ones((1, steps))
    returns = skill + 2.0 * begun + luck.sum(axis=1)
    return skill, returns, begun, (luck + wrong).ravel(), np.arange(episodes) * steps


def test_true_luck_is_taken_out_and_the_start_too():
    skill, returns, begun, luck, starts = simulated(error=0.0)
    result = episode_skill(returns, begun, luck, starts)
    assert result.ratio == pytest.approx(1.0, abs=0.06)
    np.testing.assert_allclose(result.score, skill - skill.mean(), atol=0.25)
    assert np.corrcoef(returns, skill)[0, 1] < 0.35  # it was hidden


def test_errors_of_a_model_are_taken_out_only_as_far_as_they_may_be_luck():
    error, steps = 0.8, 9
    _, returns, begun, luck, starts = simulated(error, steps=steps)
    result = episode_skill(returns, 0 * begun, luck, starts)
    expected = (steps + steps**2 * error**2) / (steps * (1 + error**2))
    assert result.ratio == pytest.approx(expected, rel=0.06)
    kept = returns - np.add.reduceat(luck, starts) / result.ratio
    np.testing.assert_allclose(result.score, kept - kept.mean(), atol=1e-9)
    # the share is the part of the sum's variance that independent steps would have
    assert np.var(np.add.reduceat(luck, starts)) / result.ratio == pytest.approx(steps * (1 + error**2), rel=0.03)


def test_luck_that_moves_against_itself_is_not_taken_out_more_than_once():
    luck = np.tile([1.0, -1.0], 4)
    result = episode_skill(np.arange(4.0), np.zeros(4), luck, np.arange(4) * 2)
    assert result.ratio == 0.0
    np.testing.assert_allclose(result.score, np.arange(4) - 1.5)


def test_what_is_left_by_rounding_is_no_skill():
    rng = np.random.default_rng(0)
    luck = rng.normal(size=50)
    result = episode_skill(luck + 1e-8 * rng.normal(size=50), np.zeros(50), luck, np.arange(50))
    assert not result.score.any()


def test_a_start_that_promises_less_than_it_keeps_is_not_punished():
    """A negative slope over few episodes would say that the worse the start, the better the agent."""
    begun = np.array([1.0, 2.0, 3.0])
    result = episode_skill(-begun, begun, np.zeros(3), np.arange(3))
    np.testing.assert_allclose(result.score, [1.0, 0.0, -1.0])


@pytest.mark.parametrize("share", [0.1, 0.35, 0.8])
def test_the_weights_have_the_effective_sample_that_is_asked_for(share):
    rng = np.random.default_rng(1)
    score, sizes = rng.normal(size=300), rng.integers(1, 40, 300)
    weight = np.repeat(episode_weights(score, sizes, share), sizes)
    assert weight.mean() == pytest.approx(1.0)
    assert 1 / np.mean(np.square(weight)) == pytest.approx(share, rel=1e-6)
    each = np.repeat(score, sizes)
    slope, level = np.polyfit(each[weight > 0], weight[weight > 0], 1)  # a line above a level, and 0 below
    assert slope > 0
    assert each[weight == 0].max() <= -level / slope + 1e-9


def test_weights_of_three_episodes_by_hand():
    """Scores 0, 1, 2: max(0, x - 1/2) is 0, 1/2, 3/2, and (2)^2 / (3 (1/4 + 9/4)) = 8/15."""
    weight = episode_weights(np.array([0.0, 1.0, 2.0]), np.ones(3, int), 8 / 15)
    np.testing.assert_allclose(weight, [0.0, 0.75, 2.25], atol=1e-9)


def rows_of_lengths(kept) -> Rows:
    kept = np.asarray(kept)
    return Rows(kept, np.cumsum(kept) - kept, np.cumsum(kept) - kept)


def test_every_row_is_drawn_as_often_as_its_episode_counts():
    rng = np.random.default_rng(2)
    score, rows = rng.normal(size=40), rows_of_lengths([0, *rng.integers(1, 30, 38), 0])
    drawn = drawn_rows(score, rows, 0.25)
    assert drawn is not None
    assert drawn.dtype == np.int32
    assert len(drawn) == rows.size
    times = np.bincount(drawn, minlength=rows.size)
    expected = np.repeat(episode_weights(score, rows.kept, 0.25), rows.kept)
    assert np.abs(times - expected).max() <= 1.0 + 1e-9


def test_all_rows_where_no_episode_stands_out():
    rows = rows_of_lengths([3, 4])
    assert drawn_rows(np.zeros(2), rows, 0.2) is None
    assert drawn_rows(np.array([1.0, 2.0]), rows, 1.0) is None
    best = drawn_rows(np.array([1.0, 2.0]), rows, 0.2)  # one of two episodes is more than a fifth
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
