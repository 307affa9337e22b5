"""CQL against numpy: the conservative term, both backups, Lagrange, soft actor-critic as its limit, discrete
actions."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from odice.algos import make
from odice.algos.cql import CQLConfig, conservative, penalty, proposals, td_target
from odice.core.critics import Critics, sac_policy_loss
from odice.core.policies import SquashedPolicy, log_det_jacobian
from odice.errors import OdiceError
from odice.types import Spec
from tests.algos.support import (
    SPEC,
    adam,
    arrays,
    assert_best,
    close,
    flatten,
    learn,
    linear,
    make_batch,
    part,
    same,
    slope,
    twin,
    warm,
    zero,
)

GAMMA, TAU, LR, N = 0.9, 0.1, 0.02, 3
LINEAR = {"critic_hidden": (), "policy_hidden": (), "discount": GAMMA, "polyak": TAU, "critic_lr": LR, "policy_lr": LR}
LINEAR |= {"n_actions": N, "init": "torch", "cql_weight": 0.7, "cql_temperature": 0.8}
KEY = jax.random.key(9)
LOG2PI = math.log(2 * math.pi)


td_target = jax.jit(td_target, static_argnums=0)
sac_policy_loss = jax.jit(sac_policy_loss)


# --- soft actor-critic with a linear squashed Gaussian, in numpy ----------------------------------------------------


def noise(key, *shape):
    return np.asarray(jax.random.normal(key, shape), np.float64)


def squashed(theta, s, eps):
    """Actions and log densities; parameters in the order network (3 -> 4), scale and shift of the log std."""
    mean, out = np.split(linear(theta, s, 4), 2, -1)
    log_std = np.clip(theta[-2] * out + theta[-1], -20, 2)
    raw = mean + np.exp(log_std) * eps
    action = np.tanh(raw)
    normal = (-0.5 * eps**2 - log_std - 0.5 * LOG2PI).sum(-1)
    return action, normal - np.log(1 - action**2).sum(-1)


def many(theta, s, actions):
    """Q_i of several actions per state: (heads, n, b)."""
    return np.stack([twin(theta, s, a) for a in actions], 1)


def log_sum_exp(x, axis):
    top = x.max(axis, keepdims=True)
    return (top + np.log(np.exp(x - top).sum(axis, keepdims=True))).squeeze(axis)


def numpy_update(state, batch, weight=0.7, temperature=0.8, prime=None):
    """Order of keys: policy, next action, uniform, here, there."""
    s, a, r, s2, m = arrays(batch)
    keys = jax.random.split(KEY, 5)
    policy, critic, target = map(flatten, (state.policy.params, state.critic.params, state.target))
    alpha = np.exp(float(state.log_alpha.params))
    eps = noise(keys[0], 1, 16, 2)[0]

    def policy_loss(theta):
        action, log_pi = squashed(theta, s, eps)
        return np.mean(alpha * log_pi - twin(critic, s, action).min(0))

    a2, _ = squashed(policy, s2, noise(keys[1], 1, 16, 2)[0])
    y = r + GAMMA * m * twin(target, s2, a2).min(0)
    uniform = np.asarray(jax.random.uniform(keys[2], (N, 16, 2), minval=-1.0, maxval=1.0), np.float64)
    there = np.where(m[:, None] == 1, s2, s)
    here, log_here = squashed(policy, s, noise(keys[3], N, 16, 2))
    away, log_away = squashed(policy, there, noise(keys[4], N, 16, 2))
    actions = np.concatenate([uniform, away, here])
    density = np.concatenate([np.full((N, 16), 2 * np.log(0.5)), log_away, log_here])

    def gap(theta):
        q = (many(theta, s, actions) - density) / temperature
        return (temperature * log_sum_exp(q, 1) - twin(theta, s, a)).mean(1)

    scale = weight if prime is None else prime[0] * weight
    critic_loss = lambda theta: ((twin(theta, s, a) - y) ** 2).mean(1).sum() + (scale * gap(theta)).sum()
    log_pi = squashed(policy, s, eps)[1].mean()
    new_critic = adam(critic, slope(critic_loss, critic), state.critic.opt_state, LR)
    return {
        "policy": adam(policy, slope(policy_loss, policy), state.policy.opt_state, LR),
        "critic": new_critic,
        "target": TAU * new_critic + (1 - TAU) * target,
        "log_alpha": adam(flatten(state.log_alpha.params), np.array([-(log_pi - 2)]), state.log_alpha.opt_state, LR),
        "gap": gap(critic),
    }


@pytest.mark.parametrize("weight", [0.7, 0.0])
def test_one_update_equals_numpy(weight):
    """With weight 0 the numpy side is plain soft actor-critic."""
    algo, state = warm("cql", LINEAR | {"cql_weight": weight})
    batch = make_batch()
    expected = numpy_update(state, batch, weight)
    after, metrics = algo.update(state, batch, KEY)
    for name in ("policy", "critic", "target", "log_alpha"):
        close(part(after, name), expected[name], rtol=2e-3, atol=2e-4)
    np.testing.assert_allclose(metrics["conservative_gap"], expected["gap"].mean(), rtol=1e-3)
    assert after.step == 4
    assert all(np.isfinite(x) and x.shape == () for x in metrics.values())


def test_lagrange():
    """alpha' weighs the penalty of this update, and climbs while D is above the gap."""
    algo, state = warm("cql", LINEAR | {"lagrange_gap": -50.0}, steps=0)
    batch, alpha_prime = make_batch(), np.exp(1.0)
    assert state.log_alpha_prime.params == 1.0
    expected = numpy_update(state, batch, prime=(alpha_prime,))
    after, metrics = algo.update(state, batch, KEY)
    close(after.critic.params, expected["critic"], rtol=2e-3, atol=2e-4)
    assert float(after.log_alpha_prime.params - state.log_alpha_prime.params) == pytest.approx(
        LR, rel=1e-3
    )  # Adam's first step
    assert metrics["alpha_prime"] == pytest.approx(alpha_prime)


@pytest.mark.parametrize("form", ["corl", "official"])
def test_lagrange_in_both_forms(form):
    cfg = CQLConfig(cql_weight=0.7, lagrange_gap=2.0, lagrange_form=form)
    by_hand = {"corl": 0.7 * (1 - 2) + 0.7 * (4 - 2), "official": (0.7 * 1 - 2) + (0.7 * 4 - 2)}[form]
    at = lambda x: penalty(cfg, x, jnp.asarray([1.0, 4.0]))
    np.testing.assert_allclose(at(jnp.asarray(0.3)), np.exp(0.3) * by_hand, rtol=1e-5)
    np.testing.assert_allclose(jax.grad(at)(jnp.asarray(0.3)), np.exp(0.3) * by_hand, rtol=1e-5)  # what alpha' climbs


@pytest.mark.parametrize("order", ["min-max", "max-min"])
def test_max_backup_in_both_orders(order):
    _, state = warm("cql", LINEAR)
    batch = make_batch()
    _, _, r, s2, m = arrays(batch)
    actions, _ = squashed(flatten(state.policy.params), s2, noise(KEY, N, 16, 2))
    q = many(flatten(state.target), s2, actions)
    v = q.min(0).max(0) if order == "min-max" else q.max(1).min(0)
    cfg = CQLConfig(**LINEAR, max_backup=True, backup_order=order)
    np.testing.assert_allclose(td_target(cfg, state, batch, KEY), r + GAMMA * m * v, rtol=1e-4, atol=1e-5)
    assert np.all(q.min(0).max(0) <= q.max(1).min(0) + 1e-12)  # min-max is the more careful one


def test_entropy_in_the_backup_and_the_floor_of_the_gap():
    _, state = warm("cql", LINEAR)
    batch = make_batch()
    _, _, r, s2, m = arrays(batch)
    action, log_pi = squashed(flatten(state.policy.params), s2, noise(KEY, 1, 16, 2)[0])
    v = twin(flatten(state.target), s2, action).min(0) - np.exp(float(state.log_alpha.params)) * log_pi
    goal = td_target(CQLConfig(**LINEAR, backup_entropy=True), state, batch, KEY)
    np.testing.assert_allclose(goal, r + GAMMA * m * v, rtol=1e-3, atol=1e-4)
    q = jax.jit(lambda critic: critic(batch.obs, batch.action))(state.critic.params)
    known = jax.jit(proposals, static_argnums=0)(
        CQLConfig(**LINEAR), state.policy.params, batch, jax.random.split(KEY, 3)
    )
    floor = jax.jit(conservative, static_argnums=0)(
        CQLConfig(**LINEAR, clip_min=500.0), state.critic.params, q, batch.obs, *known
    )
    np.testing.assert_allclose(floor, [500.0, 500.0])


def test_gradients_stop_where_they_should():
    batch = make_batch()
    _, state = warm("cql", LINEAR)
    cfg = CQLConfig(**LINEAR)
    keys = jax.random.split(KEY, 3)
    through_policy = lambda policy: sum(map(jnp.sum, proposals(cfg, policy, batch, keys)))
    assert zero(jax.jit(jax.grad(through_policy))(state.policy.params))
    goal = lambda critic: jnp.sum(td_target(cfg, state._replace(critic=critic), batch, KEY))
    assert zero(jax.jit(jax.grad(goal))(state.critic.params))
    log_pi_only = jax.grad(lambda a: sac_policy_loss(state.policy.params, state.critic.params, a, batch.obs, KEY)[0])(
        jnp.zeros(())
    )
    np.testing.assert_allclose(
        log_pi_only, sac_policy_loss(state.policy.params, state.critic.params, 0.0, batch.obs, KEY)[1], rtol=1e-5
    )


def test_next_observation_of_a_terminal_is_never_used():
    batch = make_batch()
    algo, state = warm("cql", LINEAR)
    garbage = batch._replace(next_obs=jnp.where(batch.terminated[:, None], 77.0, batch.next_obs))
    clean, dirty = (algo.update(state, each, KEY)[0] for each in (batch, garbage))
    same((clean.policy.params, clean.critic.params), (dirty.policy.params, dirty.critic.params))


def test_discrete_actions_are_summed_exactly():
    spec = Spec(3, 2, discrete=True)
    batch = make_batch(discrete=True)
    algo, state = warm("cql", LINEAR, spec)
    s, a, r, s2, m = arrays(batch)
    pick = lambda theta, x: np.stack(
        [x @ theta[6 * h : 6 * h + 6].reshape(3, 2) + theta[12 + 2 * h : 14 + 2 * h] for h in (0, 1)]
    )
    critic, target, policy = map(flatten, (state.critic.params, state.target, state.policy.params))
    softmax = lambda x: np.exp(x) / np.exp(x).sum(-1, keepdims=True)
    pi, pi2 = softmax(linear(policy, s, 2)), softmax(linear(policy, s2, 2))
    y = r + GAMMA * m * (pi2 * pick(target, s2).min(0)).sum(-1)
    np.testing.assert_allclose(td_target(CQLConfig(**LINEAR), state, batch, KEY), y, rtol=1e-4, atol=1e-5)
    data = lambda theta: np.take_along_axis(pick(theta, s), a.astype(int)[None, :, None], -1)[..., 0]
    gap = lambda theta: (0.8 * log_sum_exp(pick(theta, s) / 0.8, 2) - data(theta)).mean(1)
    critic_loss = lambda theta: ((data(theta) - y) ** 2).mean(1).sum() + 0.7 * gap(theta).sum()
    alpha = np.exp(float(state.log_alpha.params))

    def policy_loss(theta):
        pi = softmax(linear(theta, s, 2))
        return (pi * (alpha * np.log(pi) - pick(critic, s).min(0))).sum(-1).mean()

    after, metrics = algo.update(state, batch, KEY)
    close(after.critic.params, adam(critic, slope(critic_loss, critic), state.critic.opt_state, LR))
    close(after.policy.params, adam(policy, slope(policy_loss, policy), state.policy.opt_state, LR))
    np.testing.assert_allclose(metrics["entropy"], -(pi * np.log(pi)).sum(-1).mean(), rtol=1e-4)
    assert algo.act(state, batch.obs).dtype.kind == "i"


# --- networks -------------------------------------------------------------------------------------------------------


def test_squashed_policy():
    policy = jax.jit(lambda key: SquashedPolicy(key, SPEC, (8,)))(jax.random.key(0))
    obs = make_batch().obs
    drawn = jax.jit(lambda policy: policy.sample(KEY, obs, 4))(policy)
    log_prob = jax.jit(lambda policy, obs, action: policy.log_prob(obs, action))
    assert drawn.action.shape == (4, 16, 2)
    assert np.abs(drawn.action).max() < 1
    for i in range(4):  # the density of a sample is that of the same action from outside
        np.testing.assert_allclose(log_prob(policy, obs, drawn.action[i]), drawn.log_prob[i], rtol=2e-3, atol=2e-3)
    network, output = policy.deterministic()
    assert (output, network.weights[-1].shape) == ("tanh", (8, 2))
    np.testing.assert_allclose(policy.mode(obs), np.tanh(network(obs)), rtol=1e-5, atol=1e-6)
    far = jnp.asarray([[30.0, -30.0]])
    np.testing.assert_allclose(log_det_jacobian(far), [2 * (2 * np.log(2) - 60)], rtol=1e-5)  # no -inf
    grid = np.linspace(-0.9999, 0.9999, 20001, dtype=np.float32)
    narrow = jax.jit(lambda key: SquashedPolicy(key, Spec(3, 1), (8,)))(jax.random.key(0))
    density = np.exp(log_prob(narrow, jnp.broadcast_to(obs[:1], (20001, 3)), jnp.asarray(grid[:, None])))
    assert np.trapezoid(density, grid) == pytest.approx(1.0, abs=0.02)


def test_corls_second_critic_has_its_own_depth():
    algo = make("cql", SPEC, **(LINEAR | {"critic_hidden": (8, 8), "second_critic_hidden": (8,)}))
    state = jax.jit(lambda key: algo.init(key))(jax.random.key(0))
    assert isinstance(state.critic.params, Critics)
    assert [len(part.heads.weights) for part in state.critic.params.parts] == [3, 2]
    q = state.critic.params(make_batch().obs, make_batch().action)
    assert q.shape == (2, 16)
    for head, critic in enumerate(state.critic.params.parts):
        np.testing.assert_array_equal(q[head], critic(make_batch().obs, make_batch().action)[0])


@pytest.mark.slow
@pytest.mark.parametrize("discrete", [False, pytest.param(True, marks=pytest.mark.long)])
def test_it_finds_the_best_first_action(discrete):
    settings = {"critic_hidden": (32, 32), "policy_hidden": (32,), "critic_lr": 3e-3, "policy_lr": 3e-3, "polyak": 0.05}
    settings |= {"init": "torch", "n_actions": 4, "cql_weight": 0.1, "target_entropy": 0.1 if discrete else -2.0}
    action, _ = learn("cql", steps=1000, discrete=discrete, **settings)
    assert_best(action, discrete)


@pytest.mark.fast
@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"cql_weight": -1.0}, "cql_weight"),
        ({"n_actions": 0}, "n_actions"),
        ({"cql_temperature": 0.0}, "cql_temperature"),
        ({"backup_order": "minmax"}, "Did you mean 'min-max'"),
        ({"lagrange_form": "coral"}, "Did you mean 'corl'"),
        ({"second_critic_hidden": (0,)}, "second_critic_hidden"),
    ],
)
def test_bad_settings_are_refused(settings, message):
    with pytest.raises(OdiceError, match=message):
        CQLConfig(**settings)
