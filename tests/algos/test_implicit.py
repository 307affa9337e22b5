"""The family of implicit Q-learning (IQL, SQL, EQL, f-DVL, XQL): whole updates against numpy, order, gradients,
identities."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from odice.algos import algorithms, make
from odice.algos.fdvl import FDVLConfig
from odice.algos.fdvl import losses as fdvl_losses
from odice.algos.iql import IQLConfig
from odice.algos.iql import losses as iql_losses
from odice.algos.sql import EQLConfig, SQLConfig, exponential_losses, sparse_losses
from odice.algos.xql import XQLConfig
from odice.algos.xql import losses as xql_losses
from odice.core import vdice
from odice.core.critics import Critic, expectile, huber, min_over_heads
from odice.core.divergences import divergence
from odice.core.extraction import advantage_weight
from odice.errors import OdiceError
from odice.types import Spec
from tests.algos.support import (
    SPEC,
    adam,
    arrays,
    close,
    flatten,
    gaussian,
    heads,
    learn,
    make_batch,
    part,
    same,
    slope,
    twin,
    warm,
)

GAMMA, TAU, LR, CLAMP = 0.9, 0.1, 0.05, 1.5
LINEAR = {
    "value_hidden": (),
    "critic_hidden": (),
    "policy_hidden": (),
    "layer_norm": False,
    "init": "torch",
    "discount": GAMMA,
    "polyak": TAU,
    "value_lr": LR,
    "critic_lr": LR,
    "policy_lr": LR,
    "cosine_steps": 0,
    "weight_clamp": CLAMP,
}
EXTRA = {
    "iql": {"expectile": 0.8, "beta": 2.0},
    "sql": {"alpha": 0.7},
    "eql": {"alpha": 1.3, "sharpness": 4.0, "exponent_cap": 0.9},
    "fdvl": {"lam": 0.6, "temperature": 2.0, "huber_delta": 0.6},
    "xql": {"beta": 1.3, "exponent_cap": 0.9, "temperature": 2.0, "huber_delta": 0.6, "random_actions": 2},
}
KEY = jax.random.key(5)
NAMES = sorted(EXTRA)


# --- the papers' formulas, in numpy --------------------------------------------------------------------------------


def numpy_value_loss(name, q, v, frozen_v):
    """`frozen_v` is V where a gradient must not go (EQL's scale)."""
    if name == "iql":
        u = q - v
        return np.mean(np.where(u < 0, 0.2, 0.8) * u**2)
    if name == "sql":
        u = (q - v) / 1.4 + 1
        return np.mean((u > 0) * u**2 + v / 0.7)
    if name == "eql":
        z = np.minimum((q - v) / 1.3, 0.9)
        big = max(np.minimum((q - frozen_v) / 1.3, 0.9).max(), -1.0)
        return np.mean(np.exp(z - big) + np.exp(-big) * v / 1.3)
    if name == "xql":
        z = np.minimum((q - v) / 1.3, 0.9)
        big = max(np.minimum((q - frozen_v) / 1.3, 0.9).max(), -1.0)
        return np.mean(np.exp(-big) * (np.exp(z) - z - 1))
    y = q - v
    return np.mean(0.6 * np.where(y <= -2, -1, y + y**2 / 4) + 0.4 * v)


def numpy_weight(name, q, v):
    sharp = {"iql": 2.0, "eql": 4.0 / 1.3, "fdvl": 2.0, "xql": 2.0}
    return np.clip(q - v if name == "sql" else np.exp(sharp[name] * (q - v)), 0, CLAMP)


def numpy_error(name, d):
    if name not in ("fdvl", "xql"):
        return d**2
    return np.where(np.abs(d) <= 0.6, 0.5 * d**2, 0.6 * (np.abs(d) - 0.3))


def numpy_update(name, state, batch, fresh=True):
    s, a, r, s2, m = arrays(batch)
    value, critic, target, policy = map(
        flatten, (state.value.params, state.critic.params, state.target, state.policy.params)
    )
    q = twin(target, s, a).min(0)
    v_of = lambda theta, x: heads(theta, x, 1)[0]
    every, wide_q = s, q
    if name == "xql":  # two uniform actions beside each logged one
        random = np.asarray(jax.random.uniform(KEY, (32, 2), minval=-1.0, maxval=1.0), np.float64)
        every = np.concatenate([s, np.repeat(s, 2, axis=0)])
        wide_q = twin(target, every, np.concatenate([a, random])).min(0)
    loss = lambda theta: numpy_value_loss(name, wide_q, v_of(theta, every), v_of(value, every))
    new_value = adam(value, slope(loss, value), state.value.opt_state, LR)
    used = new_value if fresh else value
    weight = numpy_weight(name, q, v_of(used, s))
    loss = lambda theta: -np.mean(weight * gaussian(theta, s, a, tanh=True))
    new_policy = adam(policy, slope(loss, policy), state.policy.opt_state, LR)
    goal = r + GAMMA * m * v_of(used, s2)
    loss = lambda theta: numpy_error(name, goal - twin(theta, s, a)).mean(1).sum()
    new_critic = adam(critic, slope(loss, critic), state.critic.opt_state, LR)
    return new_value, new_critic, TAU * new_critic + (1 - TAU) * target, new_policy


@pytest.mark.parametrize("fresh", [True, False])
@pytest.mark.parametrize("name", NAMES)
def test_one_update_equals_numpy(name, fresh):
    batch = make_batch()
    algo, state = warm(name, LINEAR | EXTRA[name] | {"fresh_value": fresh})
    expected = numpy_update(name, state, batch, fresh)
    after, metrics = algo.update(state, batch, KEY)
    for tree, numbers in zip(
        (after.value.params, after.critic.params, after.target, after.policy.params), expected, strict=True
    ):
        close(tree, numbers)
    assert after.step == 4
    assert 0 < metrics["weight_mean"] < CLAMP  # some weights are inside their clamp
    assert all(np.isfinite(x) and x.shape == () for x in metrics.values())


def test_several_steps_of_v_on_noisy_actions():
    """XQL's scripts: V takes several steps with one q at noisy actions; policy and Q see the logged actions."""
    batch = make_batch()
    extra = {**EXTRA["xql"], "random_actions": 0, "value_updates": 3, "action_noise": 0.3}
    algo, state = warm("xql", LINEAR | extra)
    s, a, _, _, _ = arrays(batch)
    noise = np.asarray(jax.random.normal(jax.random.fold_in(KEY, 1), a.shape), np.float64)
    moved = np.clip(a + np.clip(0.3 * noise, -0.5, 0.5), -1, 1)
    assert np.abs(moved - a).max() > 0.1
    target = flatten(state.target)
    q = twin(target, s, moved).min(0)
    v_of = lambda theta, x: heads(theta, x, 1)[0]
    theta, opt, before = flatten(state.value.params), state.value.opt_state, state
    for _ in range(3):
        frozen = v_of(theta, s)
        theta = adam(
            theta, slope(lambda at, frozen=frozen: numpy_value_loss("xql", q, v_of(at, s), frozen), theta), opt, LR
        )
        once = make("xql", SPEC, **(LINEAR | extra | {"value_updates": 1})).update
        state = once(state, batch, KEY)[0]._replace(target=before.target)  # for the optimizer's moments
        opt = state.value.opt_state
    after, _ = algo.update(before, batch, KEY)
    close(after.value.params, theta)
    weight = numpy_weight("xql", twin(target, s, a).min(0), v_of(theta, s))
    policy = flatten(before.policy.params)
    loss = lambda at: -np.mean(weight * gaussian(at, s, a, tanh=True))
    close(after.policy.params, adam(policy, slope(loss, policy), before.policy.opt_state, LR))


def test_xql_is_a_soft_maximum():
    """The minimum over V of the Gumbel loss is beta log mean exp(q / beta)."""
    q = np.array([0.0, 0.4, 1.0, -2.0])
    for beta in (0.3, 1.0, 10.0):
        loss = xql_losses(XQLConfig(beta=beta)).value
        slope_at = jax.grad(lambda v, loss=loss: loss(jnp.asarray(q), jnp.full(4, v)))
        best = beta * np.log(np.mean(np.exp(q / beta)))
        np.testing.assert_allclose(slope_at(best), 0.0, atol=1e-5)
        assert slope_at(best + 0.1) > 0 > slope_at(best - 0.1)


def test_the_surrogate_of_the_official_fdvl_code():
    """max(d + d^2/4, 0): 0 on [-4, 0], growing again below, and equal to the conjugate above 0."""
    d = np.linspace(-6, 3, 40).astype(np.float32)
    zeros = jnp.zeros(1)
    loss = lambda surrogate, x: float(
        fdvl_losses(FDVLConfig(lam=0.6, surrogate=surrogate)).value(jnp.asarray([x]), zeros)
    )
    coded = np.array([loss(True, x) for x in d])
    np.testing.assert_allclose(coded, 0.6 * np.maximum(d + d**2 / 4, 0), rtol=1e-4, atol=1e-6)
    exact = np.array([loss(False, x) for x in d])
    np.testing.assert_allclose(exact[d >= 0], coded[d >= 0], rtol=1e-4, atol=1e-6)
    assert np.all(exact[d < 0] < coded[d < 0])


# --- stop-gradients -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
def test_updates_touch_only_their_own_network(name):
    """With the other learning rates at 0, no gradient has moved anything else."""
    batch = make_batch()
    _, state = warm(name, LINEAR | EXTRA[name])
    for own in ("value", "critic", "policy"):
        rates = {f"{each}_lr": LR if each == own else 0.0 for each in ("value", "critic", "policy")}
        after, _ = make(name, SPEC, **(LINEAR | EXTRA[name] | rates)).update(state, batch, KEY)
        for each in ("value", "critic", "policy"):
            moved = not np.array_equal(flatten(part(after, each)), flatten(part(state, each)))
            assert moved == (each == own)


def test_the_scale_of_eql_carries_no_gradient():
    """The largest exponent scales the loss and is not differentiated: twice the scale, twice the gradient."""
    frame = exponential_losses(EQLConfig(alpha=1.0))
    q = jnp.asarray([0.3, -0.2, 1.0])
    v = jnp.zeros(3)
    largest = 1.0
    gradient = jax.grad(lambda v: frame.value(q, v))(v)
    np.testing.assert_allclose(gradient, (1 - np.exp(np.asarray(q))) / 3 * np.exp(-largest), rtol=1e-5)


@pytest.mark.parametrize("name", NAMES)
def test_next_observation_of_a_terminal_is_never_used(name):
    batch = make_batch()
    algo, state = warm(name, LINEAR | EXTRA[name])
    garbage = batch._replace(next_obs=jnp.where(batch.terminated[:, None], 77.0, batch.next_obs))
    clean, dirty = (algo.update(state, each, KEY)[0] for each in (batch, garbage))
    same(clean.critic.params, dirty.critic.params)
    moved = garbage._replace(terminated=jnp.zeros_like(batch.terminated))
    with pytest.raises(AssertionError):
        same(clean.critic.params, algo.update(state, moved, KEY)[0].critic.params, rtol=1e-2)


# --- identities -----------------------------------------------------------------------------------------------------

Q = jnp.asarray(np.random.default_rng(0).normal(size=64), jnp.float32)
V = jnp.asarray(np.random.default_rng(1).normal(size=64) * 3, jnp.float32)


def value_gradient(losses, v=V):
    return jax.grad(lambda v: losses.value(Q, v))(v)


def test_expectile_one_half_is_the_squared_error():
    half = iql_losses(IQLConfig(expectile=0.5))
    np.testing.assert_allclose(2 * half.value(Q, V), np.mean((np.asarray(Q) - np.asarray(V)) ** 2), rtol=1e-5)
    np.testing.assert_allclose(value_gradient(half), (V - Q) / 64, rtol=1e-5, atol=1e-8)


def test_sql_at_one_is_twice_semi_gradient_vdice_at_one_half():
    """Up to the constant 1, with Q in the place of r + gamma m V(s')."""
    frozen = vdice.Frozen(v_bar=V[None], v_next_bar=Q[None])
    ones = jnp.ones(64)
    pair = vdice.losses(frozen, 0 * ones, ones, divergence=divergence("pearson"), lam=0.5, discount=1.0)
    semi = lambda v: pair.forward(v[None]) + pair.rest(v[None])
    sql = sparse_losses(SQLConfig(alpha=1.0))
    np.testing.assert_allclose(sql.value(Q, V), 2 * semi(V) + 1, rtol=1e-5)
    np.testing.assert_allclose(value_gradient(sql), 2 * jax.grad(semi)(V), rtol=1e-5, atol=1e-7)


def test_eql_is_the_reverse_kl():
    """Times its scale: E[f*(q - v) + v] with the conjugate of x log x - x + 1, where no exponent is cut."""
    eql = exponential_losses(EQLConfig(alpha=1.0, exponent_cap=50.0))
    v = V / 3  # no weight reaches the cap of our conjugate
    scale = np.exp(np.max(np.asarray(Q - v)))
    kl = lambda v: jnp.mean(divergence("kl-normalized").conjugate(Q - v) + v)
    np.testing.assert_allclose(scale * eql.value(Q, v), kl(v) + 1, rtol=1e-4)
    np.testing.assert_allclose(scale * value_gradient(eql, v), jax.grad(kl)(v), rtol=1e-3, atol=1e-6)


def test_fdvl_at_one_half_is_half_of_sql_at_one():
    gradients = [value_gradient(x) for x in (fdvl_losses(FDVLConfig(lam=0.5)), sparse_losses(SQLConfig(alpha=1.0)))]
    np.testing.assert_allclose(2 * gradients[0], gradients[1], rtol=1e-5, atol=1e-7)


def test_weights_of_the_papers():
    sql = sparse_losses(SQLConfig(alpha=0.5, sparse_ratio=True))
    np.testing.assert_allclose(
        sql.weight(Q, V), np.clip((np.asarray(Q) - np.asarray(V)) / 1.0 + 1, 0, 100), rtol=1e-5, atol=1e-6
    )
    assert np.all(np.asarray(sparse_losses(SQLConfig()).weight(Q, V))[np.asarray(Q < V)] == 0)
    np.testing.assert_allclose(iql_losses(IQLConfig(beta=0.0)).weight(Q, V), np.ones(64))  # beta = 0: cloning


# --- shared pieces --------------------------------------------------------------------------------------------------


def test_expectile_minimizer_on_a_grid():
    """The tau-expectile m of numbers x solves sum |tau - 1{x < m}| (x - m) = 0."""
    x = np.random.default_rng(2).normal(size=200)
    grid = np.linspace(-2, 2, 4001)
    total = [float(jnp.mean(expectile(jnp.asarray(x - m, jnp.float32), 0.9))) for m in grid[::10]]
    best = grid[::10][int(np.argmin(total))]
    balance = np.sum(np.where(x < best, 0.1, 0.9) * (x - best))
    assert abs(balance) < 0.01 * 200


def test_huber_and_advantage_weight():
    u = np.array([-3.0, -0.5, 0.0, 1.0, 1.5], np.float32)
    np.testing.assert_allclose(huber(jnp.asarray(u), 1.0), [2.5, 0.125, 0.0, 0.5, 1.0])
    weight = advantage_weight(jnp.asarray([-1.0, 0.0, 1e6]), 3.0, 100.0)
    np.testing.assert_allclose(weight, [np.exp(-3), 1, 100], rtol=1e-5)
    slope_at = jax.grad(lambda x: advantage_weight(x[None], 3.0, 100.0)[0])(jnp.asarray(1e6))
    assert slope_at == 0  # clamped, and no overflow on the way


def test_discrete_critic_picks_the_output_of_its_action():
    spec = Spec(3, 4, discrete=True)
    critic = jax.jit(lambda key: Critic(key, spec, (8,)))(jax.random.key(0))
    batch = make_batch()
    action = jnp.arange(16) % 4
    every = np.asarray(critic.every(batch.obs))
    assert every.shape == (2, 16, 4)
    picked = critic(batch.obs, action)
    np.testing.assert_allclose(picked, every[:, np.arange(16), np.arange(16) % 4], rtol=1e-6)
    np.testing.assert_allclose(min_over_heads(picked), np.minimum(*np.asarray(picked)), rtol=1e-6)


def test_the_policys_learning_rate_falls_along_a_cosine():
    sizes = []
    for steps in (0, 3):
        algo, state = warm("iql", LINEAR | {"cosine_steps": 4}, steps=steps)
        after, _ = algo.update(state, make_batch(), KEY)
        gradient = flatten(after.policy.params) - flatten(state.policy.params)
        sizes.append(np.abs(gradient).max())
    assert sizes[0] == pytest.approx(LR, rel=1e-3)  # Adam's first step has the size of its rate
    assert sizes[1] < 0.5 * LR * (1 + np.cos(np.pi * 3 / 4)) * 4


def test_corls_deterministic_policy_is_cloned_by_squared_error():
    algo, state = warm("iql", LINEAR | {"deterministic": True})
    batch = make_batch()
    s, a, *_ = arrays(batch)
    distance = (
        (np.tanh(s @ flatten(state.policy.params)[:6].reshape(3, 2) + flatten(state.policy.params)[6:]) - a) ** 2
    ).sum(1)
    np.testing.assert_allclose(state.policy.params.log_prob(batch.obs, batch.action), -distance, rtol=1e-4)
    assert algo.act(state, batch.obs).shape == (16, SPEC.action_dim)


# --- learning -------------------------------------------------------------------------------------------------------

TRAIN = {"value_hidden": (32, 32), "critic_hidden": (32, 32), "policy_hidden": (32,), "cosine_steps": 0, "polyak": 0.05}
TRAIN |= {"init": "torch", "value_lr": 3e-3, "critic_lr": 3e-3, "policy_lr": 3e-3}
SEARCH = {
    "iql": {"expectile": 0.8, "beta": 3.0},
    "sql": {"alpha": 0.3},
    "eql": {"alpha": 1.0},
    "fdvl": {"lam": 0.7, "temperature": 3.0, "batch_size": 128},
    "xql": {"beta": 0.5, "temperature": 3.0, "batch_size": 128},
}


@pytest.mark.slow
@pytest.mark.parametrize("discrete", [False, pytest.param(True, marks=pytest.mark.long)])
@pytest.mark.parametrize("name", NAMES)
def test_it_finds_the_best_first_action(name, discrete):
    action, metrics = learn(name, steps=1000, discrete=discrete, **TRAIN, **SEARCH[name])
    assert all(np.isfinite(x) for x in metrics.values())
    if discrete:
        assert action == 3
        assert action.dtype.kind == "i"
    else:
        np.testing.assert_allclose(action, [0.5], atol=0.15)


# --- settings -------------------------------------------------------------------------------------------------------


@pytest.mark.fast
@pytest.mark.parametrize(
    ("name", "settings", "message"),
    [
        ("iql", {"expectile": 1.0}, "expectile must lie"),
        ("iql", {"expectile": float("nan")}, "expectile must lie"),
        ("iql", {"beta": -1.0}, "beta"),
        ("iql", {"init": "ortogonal"}, "Did you mean 'orthogonal'"),
        ("iql", {"critic_lr": -1.0}, "critic_lr"),
        ("iql", {"cosine_steps": -1}, "cosine_steps"),
        ("iql", {"weight_clamp": 0.0}, "weight_clamp"),
        ("sql", {"alpha": 0.0}, "alpha must be a positive number"),
        ("eql", {"sharpness": float("inf")}, "sharpness"),
        ("fdvl", {"lam": 1.1}, "lam must lie"),
        ("fdvl", {"random_actions": -1}, "random_actions"),
        ("xql", {"beta": 0.0}, "beta must be a positive number"),
        ("fdvl", {"divergence": "pearsson"}, "Did you mean 'pearson'"),
        ("fdvl", {"divergence": "kl", "surrogate": True}, "surrogate"),
        ("fdvl", {"polyak": 0.0}, "polyak"),
    ],
)
def test_bad_settings_are_refused(name, settings, message):
    with pytest.raises(OdiceError, match=message):
        make(name, SPEC, **settings)


@pytest.mark.parametrize("name", NAMES)
def test_every_field_has_a_docstring_in_its_source(name):
    """`odice train --help` shows them."""
    import inspect

    source = "".join(inspect.getsource(c) for c in algorithms()[name].config.__mro__ if dataclasses.is_dataclass(c))
    for field in dataclasses.fields(algorithms()[name].config):
        assert source.split(f"    {field.name}: ")[1].splitlines()[1].strip().startswith('"""'), field.name
