"""Continuous actions against an exact value: a linear system with quadratic rewards; its second moment is a recursion.

s' = A s + B a + w,   r = -(s^2 + C a^2),   a = K s (+ noise of sd e)
m' = (A + B K)^2 m + B^2 e^2 + var w,       E[r] = -((1 + C K^2) m + C e^2),       m = E[s^2]
"""

import numpy as np
import pytest

from odice.data.build import from_episodes
from odice.data.meta import Meta
from odice.evaluation.ope.behavior import clone
from odice.evaluation.ope.dice import FORMS, dice
from odice.evaluation.ope.doubly_robust import doubly_robust
from odice.evaluation.ope.episodes import make_episodes
from odice.evaluation.ope.fqe import fqe
from odice.evaluation.ope.importance import behavior_return, importance
from odice.evaluation.ope.intervals import resample
from odice.evaluation.ope.one_step import one_step
from odice.evaluation.ope.support import share_outside
from odice.policy.file import Layout
from odice.policy.policy import Policy

A, B, C, W = 0.9, 0.5, 0.1, 0.1
HORIZON, DISCOUNT, EPISODES = 10, 0.9, 600
BEHAVIOR, NOISE, GAIN, LIMIT = -0.2, 0.4, -0.7, 4.0


def exact(gain, noise, discount):
    """The return within the horizon; starts are uniform in [-1, 1]."""
    second, total = 1 / 3, 0.0
    for t in range(HORIZON):
        total -= discount**t * ((1 + C * gain**2) * second + C * noise**2)
        second = (A + B * gain) ** 2 * second + B**2 * noise**2 + W**2
    return total


@pytest.fixture(scope="module")
def log():
    rng, episodes = np.random.default_rng(0), []
    for _ in range(EPISODES):
        states, actions = [rng.uniform(-1, 1)], []
        for _ in range(HORIZON):
            actions.append(BEHAVIOR * states[-1] + NOISE * rng.standard_normal())
            states.append(A * states[-1] + B * actions[-1] + W * rng.standard_normal())
        s, a = np.array(states, np.float32), np.array(actions, np.float32)
        rewards = -(s[:-1] ** 2 + C * a**2)
        fields = {"observations": s[:, None], "actions": a[:, None], "rewards": rewards}
        episodes.append({**fields, "terminated": False, "truncated": True})
    data = from_episodes(episodes, meta=Meta(action_low=(-LIMIT,), action_high=(LIMIT,)))
    tensors = {"layers.0.weight": np.array([[GAIN / LIMIT]], np.float32), "layers.0.bias": np.zeros(1, np.float32)}
    bound = np.array([LIMIT], np.float32)
    return make_episodes(
        Policy(Layout((1, 1), False, "relu", "clip"), tensors, action_low=-bound, action_high=bound), data
    )


GAP = exact(GAIN, 0.0, DISCOUNT) - exact(BEHAVIOR, NOISE, DISCOUNT)
"""How much better the policy is."""


def test_the_oracle_and_the_log_agree(log):
    assert GAP > 0.2
    for discount in (DISCOUNT, 1.0):
        estimate = behavior_return(log, discount, resample(EPISODES, 200, np.random.default_rng(0)))
        assert estimate.value == pytest.approx(exact(BEHAVIOR, NOISE, discount), abs=3 * estimate.replicates.std())


@pytest.fixture(scope="module")
def behavior(log):
    return clone(log)


def test_the_cloned_behavior(log, behavior):
    """Its spread is the behavior's noise, in units of [-1, 1], and what it gives 80 % happens so often."""
    assert behavior.spread == pytest.approx([NOISE / LIMIT], rel=0.05)
    assert behavior.calibration < 0.03
    assert behavior.outside < 0.05  # at most what the behavior's own noise is
    ratio = lambda k: np.square(log.action - k * log.decisions.continuous[log.index] / GAIN)[:, 0]
    truth = (ratio(BEHAVIOR) - ratio(GAIN)) / 2 / (NOISE / LIMIT) ** 2
    assert np.median(np.abs(behavior.log_ratio - truth)) < 0.1


def mixed_log(choose):
    """Two behaviors in one log, which push to either side of 0; the policy always does `choose`."""
    rng, episodes = np.random.default_rng(0), []
    for number in range(100):
        s = rng.normal(size=(21, 1)).astype(np.float32)
        a = (0.8 if number % 4 < 2 else -0.8) + 0.05 * rng.standard_normal((20, 1))
        fields = {"observations": s, "actions": a.astype(np.float32), "rewards": np.ones(20)}
        episodes.append({**fields, "terminated": False, "truncated": True})
    data = from_episodes(episodes, meta=Meta(action_low=(-1.0,), action_high=(1.0,)))
    tensors = {"layers.0.weight": np.zeros((1, 1), np.float32), "layers.0.bias": np.array([choose], np.float32)}
    bound = np.ones(1, np.float32)
    return make_episodes(
        Policy(Layout((1, 1), False, "relu", "clip"), tensors, action_low=-bound, action_high=bound), data
    )


@pytest.mark.parametrize(("choose", "least", "most"), [(0.8, 0, 0.05), (-0.8, 0, 0.05), (0.0, 1, 1), (0.4, 1, 1)])
def test_between_two_behaviors_is_outside(choose, least, most):
    """A Gaussian around the mean of both would call 0 the most usual action of all."""
    assert least <= share_outside(mixed_log(choose)) <= most


def test_importance_sampling(log, behavior):
    """Its weights are those of the policy with the behavior's noise, so that is the value it must find."""
    estimate = importance(log, behavior.log_ratio, DISCOUNT, resample(EPISODES, 300, np.random.default_rng(1)))
    assert estimate.value == pytest.approx(exact(GAIN, NOISE, DISCOUNT), abs=3 * estimate.replicates.std())
    assert estimate.replicates.std() < 0.1 * GAP
    assert estimate.effective > 50


def test_fqe_and_doubly_robust(log, behavior):
    heads = resample(EPISODES, 3, np.random.default_rng(2))
    learned = fqe(log, DISCOUNT, heads)
    assert learned.replicates.mean() == pytest.approx(exact(GAIN, 0.0, DISCOUNT), abs=0.2 * GAP)
    counts = resample(EPISODES, 300, np.random.default_rng(3))
    robust = doubly_robust(log, learned, heads, behavior.log_ratio, DISCOUNT, counts)
    near = max(0.2 * GAP, 3 * robust.replicates.std())
    assert robust.value == pytest.approx(exact(GAIN, 0.0, DISCOUNT), abs=near)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["dual-dice", "gen-dice", "gradient-dice"])
def test_dice(log, name):
    """As importance sampling: the policy with the behavior's noise."""
    estimate = dice(log, DISCOUNT, np.ones((2, EPISODES)), FORMS[name], noise=np.array([NOISE / LIMIT]))
    gap = exact(GAIN, NOISE, DISCOUNT) - exact(BEHAVIOR, NOISE, DISCOUNT)
    assert estimate.dual.mean() == pytest.approx(exact(GAIN, NOISE, DISCOUNT), abs=0.3 * gap)
    assert estimate.mass == pytest.approx(1, abs=0.3)


def test_one_action_far_from_a_behavior_without_noise_overflows_nowhere():
    """Its ratio is e^2000, which counts as `MAX_WEIGHT`; warnings are errors here."""
    rng, n = np.random.default_rng(0), 4000
    actions = 1e-4 * rng.standard_normal((n, 1))
    actions[1000] = 1.0
    episodes = [
        {
            "observations": rng.normal(size=(11, 2)).astype(np.float32),
            "actions": part.astype(np.float32),
            "rewards": rng.normal(size=10).astype(np.float32),
            "terminated": True,
            "truncated": False,
        }
        for part in np.split(actions, n // 10)
    ]
    log = make_episodes(actions.astype(np.float32), from_episodes(episodes))
    assert np.isfinite(one_step(log, clone(log).log_ratio, 0.9))[0]
