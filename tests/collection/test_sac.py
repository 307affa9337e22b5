"""SAC: one update against numpy in float64, its batches from a replay, and a task that it solves."""

import dataclasses
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from odice.algos import make
from odice.collection.behavior import Training, train
from odice.collection.learner import make_learn, to_batch
from odice.collection.replay import pack
from odice.collection.sac import SACConfig, sac
from odice.envs.small import LQR, LQREnv
from odice.errors import OdiceError
from odice.evaluation.simulator.evaluate import evaluate
from odice.policy.policy import Policy
from tests.algos.support import SPEC, adam, arrays, close, flatten, linear, make_batch, same, slope, twin

GAMMA, TAU, LR = 0.9, 0.1, 0.02
LINEAR = SACConfig(critic_hidden=(), policy_hidden=(), discount=GAMMA, polyak=TAU, critic_lr=LR, policy_lr=LR)
KEY = jax.random.key(9)


@pytest.fixture(scope="module")
def warm():
    """A state whose target and moments are not those of the beginning."""
    algo = sac(LINEAR, SPEC)
    update = jax.jit(algo.update)
    state = algo.init(jax.random.key(1))
    for i in range(3):
        state, _ = update(state, make_batch(10 + i), jax.random.key(i))
    return update, state


def squashed(theta, s, key):
    """Draws of a tanh-Gaussian with a linear mean and log std, and their log densities."""
    eps = np.asarray(jax.random.normal(key, (1, len(s), 2)), np.float64)[0]
    mean, log_std = np.split(linear(theta, s, 4), 2, -1)
    action = np.tanh(mean + np.exp(log_std) * eps)
    normal = (-0.5 * eps**2 - log_std - 0.5 * math.log(2 * math.pi)).sum(-1)
    return action, normal - np.log(1 - action**2).sum(-1)


def test_one_update_equals_numpy(warm):
    update, state = warm
    batch = make_batch()
    s, a, r, s2, m = arrays(batch)
    key_policy, key_next = jax.random.split(KEY)
    policy, critic, target = map(flatten, (state.policy.params, state.critic.params, state.target))
    alpha = np.exp(float(state.log_alpha.params))

    def policy_loss(theta):
        action, log_pi = squashed(theta, s, key_policy)
        return np.mean(alpha * log_pi - twin(critic, s, action).min(0))

    a2, log_pi2 = squashed(policy, s2, key_next)
    y = r + GAMMA * m * (twin(target, s2, a2).min(0) - alpha * log_pi2)
    critic_loss = lambda theta: ((twin(theta, s, a) - y) ** 2).mean(1).sum()
    log_pi = squashed(policy, s, key_policy)[1].mean()

    after, metrics = update(state, batch, KEY)
    expected = adam(critic, slope(critic_loss, critic), state.critic.opt_state, LR)
    close(after.critic.params, expected, rtol=2e-3, atol=2e-4)
    close(after.target, TAU * expected + (1 - TAU) * target, rtol=2e-3, atol=2e-4)
    close(
        after.policy.params, adam(policy, slope(policy_loss, policy), state.policy.opt_state, LR), rtol=2e-3, atol=2e-4
    )
    entropy_gap = np.array([-(log_pi - 2)])  # H is minus the two numbers of an action
    close(after.log_alpha.params, adam(flatten(state.log_alpha.params), entropy_gap, state.log_alpha.opt_state, LR))
    values = [metrics[name] for name in ("critic_loss", "policy_loss", "entropy", "temperature")]
    np.testing.assert_allclose(values, [critic_loss(critic), policy_loss(policy), -log_pi, alpha], rtol=1e-4)


def test_what_follows_a_terminal_state_is_not_used(warm):
    update, state = warm
    batch = make_batch()
    elsewhere = jnp.where(batch.terminated[:, None], 7.0, batch.next_obs)
    same(update(state, batch, KEY)[0], update(state, batch._replace(next_obs=elsewhere), KEY)[0])


def test_cql_without_its_penalty_has_the_same_target(warm):
    """The two share their expectations: with weight 0 and the entropy in the backup, CQL's target is SAC's."""
    from odice.algos.cql import CQLConfig, td_target

    _, state = warm
    batch, alpha = make_batch(), np.exp(float(state.log_alpha.params))
    cfg = CQLConfig(backup_entropy=True, discount=GAMMA)
    like = make("cql", SPEC, critic_hidden=(), policy_hidden=()).init(KEY)
    like = like._replace(policy=state.policy, target=state.target, log_alpha=state.log_alpha)
    _, _, r, s2, m = arrays(batch)
    a2, log_pi2 = squashed(flatten(state.policy.params), s2, KEY)
    expected = r + GAMMA * m * (twin(flatten(state.target), s2, a2).min(0) - alpha * log_pi2)
    np.testing.assert_allclose(td_target(cfg, like, batch, KEY), expected, rtol=1e-3, atol=1e-4)


def test_a_packed_row_is_read_back_as_a_batch():
    batch = make_batch()
    truncated = ~np.asarray(batch.terminated)
    rows = pack(SPEC, batch.obs, batch.action, batch.reward, batch.next_obs, batch.terminated, truncated)
    assert rows.dtype == np.float32
    same(to_batch(jnp.asarray(rows), SPEC), batch)


def test_batches_come_from_the_filled_rows_alone():
    """Rows that were not written yet hold a reward that would be noticed."""
    cfg = dataclasses.replace(LINEAR, batch_size=32)
    algo = sac(cfg, SPEC)
    learn = make_learn(cfg, SPEC, 4)
    batch = make_batch()
    rows = pack(SPEC, batch.obs, batch.action, batch.reward, batch.next_obs, batch.terminated, batch.terminated)
    empty = np.full_like(rows, 1e6)
    values = [
        learn(algo.init(jax.random.key(1)), jnp.asarray(np.concatenate([rows, other])), 16, 0, 100)
        for other in (empty, np.zeros_like(rows))
    ]
    same(values[0], values[1])
    assert float(values[0][1]["critic_loss"]) < 1e3


@pytest.mark.fast
def test_bad_settings_are_refused():
    with pytest.raises(OdiceError, match="batch_size"):
        SACConfig(batch_size=0)
    with pytest.raises(OdiceError, match="multiple of num_envs"):
        Training(num_envs=3, chunk=50)
    with pytest.raises(OdiceError, match="eval_every"):
        Training(eval_every=70)


@pytest.mark.slow
def test_it_learns_a_linear_quadratic_task(tmp_path):
    """Doing nothing scores 0, the optimum of Riccati's recursion 100, random actions far below 0."""
    small = SACConfig(critic_hidden=(64, 64), policy_hidden=(64, 64), critic_lr=1e-3, policy_lr=1e-3, batch_size=128)
    training = Training(small, warmup=500, eval_every=500, checkpoint_every=3000)
    train(LQREnv_50, tmp_path / "sac", budget=3000, training=training, quiet=True)
    evaluation = evaluate(Policy.load(tmp_path / "sac" / "policy" / "last"), LQR, episodes=20, seed=5)
    assert evaluation.score is not None
    assert evaluation.score > 85


def LQREnv_50():
    import gymnasium

    return gymnasium.wrappers.TimeLimit(LQREnv(), 50)
