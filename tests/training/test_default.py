"""The default, without a preset: what it takes from the log, and that the unit of the rewards does not matter."""

import numpy as np
import pytest

import odice
from odice.data.to_go import returns_to_go
from tests.training.line import SMALL, line_log

SHORT = {**SMALL, "steps": 60, "eval_every": 30, "quiet": True, "allow": ("all",), "env": "none"}


def policy_of(factor, out):
    log = line_log()
    run = odice.train({**log, "rewards": log["rewards"] * np.float32(factor)}, out=out, **SHORT)
    obs = np.random.default_rng(1).normal(size=(50, 4)).astype(np.float32)
    return run, run.policy(obs)


def test_the_unit_of_the_rewards_does_not_matter(tmp_path):
    run, actions = policy_of(1.0, tmp_path / "1")
    _, in_64ths = policy_of(64.0, tmp_path / "64")
    np.testing.assert_array_equal(actions, in_64ths)  # a power of two rounds nothing
    log = odice.load(line_log())
    returns = returns_to_go(log, 0.99) * 10 / returns_to_go(log, 0.99).std()
    decided = run.policy.about["config"]
    assert decided["value_start"] == pytest.approx(np.quantile(returns, 0.99), rel=1e-4)
    assert decided["cosine_steps"] == 60


def test_rewards_as_they_are_do_depend_on_it(tmp_path):
    """So the test above can fail: it is the scale from the log that removes the unit."""
    as_they_are = {"value_start": 0.0, "reward": "none", "balance": 0.0, "credit_weight": 0.0}
    log = line_log()
    acts = []
    for factor in (1.0, 64.0):
        rewards = log["rewards"] * np.float32(factor)
        run = odice.train({**log, "rewards": rewards}, out=tmp_path / str(factor), **SHORT, **as_they_are)
        acts.append(run.policy(np.ones((5, 4), np.float32)))
    assert np.abs(acts[0] - acts[1]).max() > 1e-3
