"""Logs that would make the bounds of an estimate false are named, and give no verdict; those of learners are not."""

import numpy as np
import pytest

from odice.data.build import from_steps
from odice.data.doctor import doubts, inspect
from odice.evaluation.ope.estimate import estimate

DOUBTS = {"trend", "grouped-rows", "wrong-propensities"}
ROWS = 800


def one_step(observations, actions, rewards, **more):
    return from_steps(observations, actions, rewards, terminated=np.ones(len(rewards), bool), **more)


def codes(data):
    return [finding.code for finding in doubts(data)]


def drawn(rng, p):
    """An action of every row, by probabilities."""
    return (p.cumsum(axis=1) > rng.random((len(p), 1))).argmax(axis=1)


def by_logits(logits):
    p = np.exp(logits - logits.max(axis=1, keepdims=True))
    return p / p.sum(axis=1, keepdims=True)


def fashion(seed, observed=False):
    """Rewards rise and action 2 comes into fashion; it does nothing."""
    rng = np.random.default_rng(seed)
    time = np.linspace(0, 1, ROWS)
    actions = np.where(rng.random(ROWS) < time, 2, rng.integers(0, 2, ROWS))
    seen = rng.normal(size=(ROWS, 4))
    if observed:
        seen[:, 3] = time
    return one_step(seen, actions, 2 * time + 0.5 * rng.normal(size=ROWS))


def learner(seed):
    """Actions change and rewards rise, because of the actions."""
    rng = np.random.default_rng(seed)
    seen, weights = rng.normal(size=(ROWS, 4)), rng.normal(size=(4, 3))
    value = np.tanh(2 * seen @ weights) + np.abs(seen @ weights[:, ::-1]) + rng.normal(size=3)
    actions = drawn(rng, by_logits(4 * value * np.linspace(0, 1, ROWS)[:, None]))
    return one_step(seen, actions, value[np.arange(ROWS), actions] + 0.5 * rng.normal(size=ROWS))


def stationary(seed, claimed=None):
    rng = np.random.default_rng(seed)
    seen = rng.normal(size=(ROWS, 4))
    p = by_logits(seen @ rng.normal(size=(4, 3)))
    actions = drawn(rng, p)
    stated = p[np.arange(ROWS), actions] if claimed is None else np.full(ROWS, claimed)
    return one_step(seen, actions, seen[:, 0] + rng.normal(size=ROWS), propensities=stated)


def visits(seed, like=True):
    """Twenty rows of each of forty customers, who have an age, a habit and, if they are alike, a luck of their own."""
    rng = np.random.default_rng(seed)
    who = np.repeat(np.arange(ROWS // 20), 20)
    age, luck = rng.integers(18, 80, ROWS // 20), rng.normal(size=ROWS // 20) * like
    habit = rng.integers(0, 3, ROWS // 20)
    actions = np.where(rng.random(ROWS) < 0.8, habit[who], rng.integers(0, 3, ROWS))
    seen = np.column_stack([age[who], rng.normal(size=ROWS)])
    return one_step(seen, actions, luck[who] + 0.5 * rng.normal(size=ROWS))


@pytest.mark.parametrize("seed", range(3))
def test_each_is_found_and_nothing_else(seed):
    assert codes(fashion(seed)) == ["trend"]
    assert codes(visits(seed)) == ["grouped-rows"]
    assert codes(stationary(seed, claimed=1 / 3)) == ["wrong-propensities"]


@pytest.mark.parametrize("seed", range(5))
def test_learners_and_stationary_logs_raise_no_alarm(seed):
    assert codes(learner(seed)) == []
    assert codes(stationary(seed)) == []
    assert codes(fashion(seed, observed=True)) == []
    assert codes(visits(seed, like=False)) == []


def test_a_sorted_column_is_no_group():
    data = visits(0)
    order = np.argsort(data.step_observations()[:, 0], kind="stable")
    assert codes(data.select(order)) == []


def test_the_inspection_reports_them():
    (finding,) = inspect(fashion(0)).findings
    assert finding.code == "trend"
    assert "action 2 is more frequent" in finding.message
    (finding,) = inspect(visits(0)).findings
    assert "'observation[0]'" in finding.message


def misstated(seed):
    return stationary(seed, claimed=1 / 3)


@pytest.mark.parametrize("log", [fashion, visits, misstated])
def test_no_verdict_rests_on_such_a_log(log):
    data = log(0)
    result = estimate(lambda seen: np.full(len(seen), 2), data, discount=1.0)
    assert result.verdict.answer == "cannot tell"
    assert result.verdict.lower_bound is None
    assert result.doubt == result.verdict.reason
    assert doubts(data)[0].message in result.verdict.reason
