"""The statistics against scipy, closed forms and numbers made by hand."""

import numpy as np
import pytest
import scipy  # its parts are imported when they are used
from hypothesis import given
from hypothesis import strategies as st

from odice.reports import statistics
from odice.reports.statistics import BootstrapInterval, interval, iqm, optimality_gap, performance_profile
from odice.reports.statistics import probability_of_improvement as improvement

RNG = np.random.default_rng(3)


@pytest.mark.parametrize("n", range(1, 14))
def test_iqm_is_the_trimmed_mean(n):
    scores = RNG.normal(size=(2, n))
    assert iqm(scores) == pytest.approx(scipy.stats.trim_mean(scores, 0.25, axis=1))


def test_the_optimality_gap_by_hand():
    # 40 below, 0 (above does not count), 100 below
    assert optimality_gap(np.array([[60.0, 130.0, 0.0]])) == pytest.approx([140 / 3])
    assert optimality_gap(np.array([[0.5, 2.0]]), gamma=1.0) == pytest.approx([0.25])


@given(
    st.lists(st.integers(0, 5), min_size=1, max_size=6),
    st.lists(st.integers(0, 5), min_size=1, max_size=6),
)
def test_the_probability_of_improvement_is_mann_whitneys(x, y):
    a, b = np.array(x, float), np.array(y, float)
    expected = scipy.stats.mannwhitneyu(a, b).statistic / (len(a) * len(b))
    assert improvement([a], [b], replications=2).value == pytest.approx(expected)


def test_improvement_is_the_mean_over_tasks_however_many_runs_each_has():
    x = [np.array([2.0, 2.0]), np.array([0.0, 0.0, 0.0])]
    y = [np.array([1.0]), np.array([1.0])]
    probability = improvement(x, y)
    assert (probability.value, probability.low, probability.high) == (0.5, 0.5, 0.5)


def test_the_interval_is_scipys_percentile_bootstrap():
    scores = RNG.normal(50, 10, 12)
    ours = interval([scores], statistics.mean)
    theirs = scipy.stats.bootstrap(
        (scores,), np.mean, method="percentile", n_resamples=10_000, rng=np.random.default_rng(1)
    ).confidence_interval
    assert ours.value == pytest.approx(scores.mean())
    assert ours.low == pytest.approx(theirs.low, abs=0.25)  # the ends move by about 0.1 from one draw to another
    assert ours.high == pytest.approx(theirs.high, abs=0.25)


def test_the_stratified_interval_in_closed_form():
    """The mean of many runs is nearly normal; drawn within tasks, only the variance inside the tasks counts."""
    tasks = [level + RNG.normal(0, 1, 200) for level in (0.0, 1000.0)]
    error = np.sqrt(sum(task.var() for task in tasks) / 200) / 2  # of the mean of two means
    bounds = interval(tasks, statistics.mean)
    assert bounds.low == pytest.approx(bounds.value - 1.96 * error, abs=0.15 * error)
    assert bounds.high == pytest.approx(bounds.value + 1.96 * error, abs=0.15 * error)


def test_two_runs_in_closed_form():
    """The mean of two draws from {0, 1} is 0, 1/2 or 1 with probability 1/4, 1/2, 1/4."""
    bounds = interval([np.array([0.0, 1.0])], statistics.mean)
    assert bounds == BootstrapInterval(0.5, 0.0, 1.0)
    drawn = statistics.resample([np.array([0.0, 1.0])], np.random.default_rng(0), 20_000).mean(-1)
    assert np.mean(drawn == 0.5) == pytest.approx(0.5, abs=0.02)


def test_draws_stay_in_their_task():
    drawn = statistics.resample([np.array([1.0, 2.0]), np.array([10.0, 20.0, 30.0])], np.random.default_rng(0), 500)
    assert set(drawn[:, :2].flat) == {1.0, 2.0}
    assert set(drawn[:, 2:].flat) == {10.0, 20.0, 30.0}


def test_one_run_of_each_task_has_no_interval():
    bounds = interval([np.array([1.0]), np.array([3.0])], iqm)
    assert bounds.value == 2.0
    assert not bounds.known
    assert not improvement([np.array([1.0])], [np.array([0.0])]).known
    assert interval([np.array([1.0]), np.array([3.0, 5.0])], iqm).known


def test_the_same_runs_give_the_same_interval():
    scores = RNG.normal(size=5)
    assert interval([scores], iqm) == interval([scores], iqm)


def test_a_profile_counts_the_runs_that_are_strictly_above():
    tasks = [np.array([10.0, 20.0]), np.array([20.0, 40.0])]
    profile = performance_profile(tasks, np.array([0.0, 10.0, 20.0, 40.0]))
    assert profile.share.tolist() == [1.0, 0.75, 0.25, 0.0]
    assert (profile.low <= profile.share).all()
    assert (profile.share <= profile.high).all()
    assert profile.low[0] == profile.high[0] == 1.0
