"""OptiDICE against numpy: the dual, the e-network, the multipliers, both extractions, initial states."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from odice.algos import make
from odice.algos.optidice import OptiDICEConfig, e_loss, gain, policy_loss, ratio, value_loss
from odice.core.extraction import log_ratio
from odice.core.learner import Learned
from odice.errors import OdiceError
from odice.types import Batch, Spec
from tests.algos.support import (
    SPEC,
    adam,
    arrays,
    close,
    flatten,
    heads,
    learn,
    linear,
    log_slope,
    make_batch,
    slope,
    warm,
    zero,
)
from tests.oracles.tabular import random_mdp, sample_log, solve_dual

GAMMA, LR, ALPHA, PENALTY = 0.9, 0.02, 0.7, 0.4
LINEAR = {"value_hidden": (), "critic_hidden": (), "policy_hidden": (), "discount": GAMMA, "alpha": ALPHA, "mixture": 2}
LINEAR |= {"value_lr": LR, "critic_lr": LR, "policy_lr": LR, "lam_penalty": PENALTY}
VARIANTS = {
    "cloning": {"extraction": "cloning", "divergence": "soft-chi2", "e_loss": "minimax"},
    "projection": {"extraction": "projection", "divergence": "half-pearson", "e_loss": "mse"},
}
KEY = jax.random.key(9)
value_loss = jax.jit(value_loss, static_argnums=0)
LOG2PI = np.log(2 * np.pi)


# --- the papers' formulas, in numpy --------------------------------------------------------------------------------


def weight(name, x):
    return np.where(x < 0, np.exp(np.minimum(x, 0)), 1 + x) if name == "soft-chi2" else np.maximum(0, 1 + x)


def f(name, w):
    chi = (w - 1) ** 2 / 2
    return np.where(w < 1, w * np.log(np.maximum(w, 1e-300)) - w + 1, chi) if name == "soft-chi2" else chi


def normal(u, mean, log_std):
    return (-0.5 * ((u - mean) / np.exp(log_std)) ** 2 - log_std - 0.5 * LOG2PI).sum(-1)


def squashed(theta, s):
    mean, log_std = np.split(linear(theta, s, 4), 2, -1)
    return mean, np.clip(log_std, -5, 2)


def mixture(theta, s, u):
    """Two components: shares, then (means, log stds) of each."""
    out = linear(theta, s, 10)
    share = np.exp(out[:, :2]) / np.exp(out[:, :2]).sum(1, keepdims=True)
    part = lambda k: normal(u, out[:, 2 + 4 * k : 4 + 4 * k], np.clip(out[:, 4 + 4 * k : 6 + 4 * k], -5, 2))
    return np.log(sum(share[:, k] * np.exp(part(k)) for k in (0, 1)))


def numpy_update(variant, state, batch):
    name = VARIANTS[variant]["divergence"]
    s, a, r, s2, m = arrays(batch)
    s0, sa = np.asarray(batch.initial_obs, np.float64), np.concatenate([s, a], -1)
    v_of = lambda theta, x: heads(theta, x, 1)[0]
    residual = lambda theta: r + GAMMA * m * v_of(theta, s2) - v_of(theta, s)

    def dual(theta):  # the last parameter is lam_v
        x = (residual(theta) - theta[-1]) / ALPHA
        w = weight(name, x)
        return (1 - GAMMA) * v_of(theta, s0).mean() + ALPHA * (x * w - f(name, w)).mean() + lagrange(theta[-1])

    lagrange = lambda lam: lam + PENALTY * lam**2 / 2
    value = flatten(state.value.params)
    e_v, e = residual(value), flatten(state.advantage.params)
    lam_e = e[-1]
    w_of = lambda theta, lam: weight(name, (v_of(theta, sa) - lam) / ALPHA)
    goal = lambda w, lam: (w * (e_v - lam) - ALPHA * f(name, w)).mean()
    if variant == "cloning":
        g_e = slope(lambda theta: -goal(w_of(theta, lam_e), lam_e), e)
    else:
        g_e = slope(lambda theta: ((v_of(theta, sa) - e_v) ** 2).mean(), e)
    g_e[-1] = slope(lambda lam: goal(w_of(e, lam[0]), lam[0]) + lagrange(lam[0]), np.array([lam_e]))[0]

    w, u = w_of(e, lam_e), np.arctanh(a)
    eps = np.asarray(jax.random.normal(KEY, (16, 2)), np.float64)
    policy, data = (
        flatten(state.actor.params),
        flatten(state.data_policy.params) if variant != "cloning" else None,
    )

    def extraction(theta):
        mean, log_std = squashed(theta, s)
        raw = mean + np.exp(log_std) * eps
        log_raw = normal(raw, mean, log_std)
        entropy = np.exp(policy[-1]) * (log_raw - log_slope(raw)).mean()
        if variant == "cloning":
            return -(w * (normal(u, mean, log_std) - log_slope(u))).mean() + entropy
        x = (v_of(e, np.concatenate([s, np.tanh(raw)], -1)) - lam_e) / ALPHA
        return -(np.log(np.maximum(weight(name, x), 1e-10)) - log_raw + mixture(data, s, raw)).mean() + entropy

    g_pi = slope(extraction, policy)
    mean, log_std = squashed(policy, s)
    raw = mean + np.exp(log_std) * eps
    g_pi[-1] = -((normal(raw, mean, log_std) - log_slope(raw)).mean() - 2)
    values = {
        "value": adam(value, slope(dual, value), state.value.opt_state, LR),
        "e": adam(e, g_e, state.advantage.opt_state, LR),
        "policy": adam(policy, g_pi, state.actor.opt_state, LR),
    }
    if data is not None:
        g = slope(lambda theta: -mixture(theta, s, u).mean(), data)
        values["data_policy"] = adam(data, g, state.data_policy.opt_state, LR)
    return values


@pytest.mark.parametrize("variant", sorted(VARIANTS))
def test_one_update_equals_numpy(variant):
    algo, state = warm("optidice", LINEAR | VARIANTS[variant], initial=True)
    batch = make_batch(initial=True)
    expected = numpy_update(variant, state, batch)
    after, metrics = algo.update(state, batch, KEY)
    close(after.value.params, expected["value"])
    close(after.advantage.params, expected["e"])
    close(after.actor.params, expected["policy"])
    if "data_policy" in expected:
        close(after.data_policy.params, expected["data_policy"])
    assert after.step == 4
    assert all(np.isfinite(x) and x.shape == () for x in metrics.values())


# --- multipliers, gradients, initial states -------------------------------------------------------------------------


@pytest.fixture(scope="module")
def warmed():
    return warm("optidice", LINEAR | VARIANTS["projection"], initial=True)


def test_the_multipliers_balance_the_mean_weight(warmed):
    """d/d lam_v of the dual is 1 - E[w]: at the optimum the weights average to 1."""
    _, state = warmed
    cfg = OptiDICEConfig(alpha=ALPHA, discount=GAMMA)
    batch = make_batch(initial=True)
    (value, lam_v), lam_e = state.value.params, state.advantage.params.lam_e
    slope_v = jax.grad(lambda lam: value_loss(cfg, value, lam, batch)[0])(lam_v)
    e_v = value_loss(cfg, value, lam_v, batch)[1][0]
    np.testing.assert_allclose(slope_v, 1 - np.mean(weight("soft-chi2", (np.asarray(e_v) - lam_v) / ALPHA)), rtol=1e-4)
    # with e = e_v, lam_e has the same balance: the gradient through w vanishes
    slope_e = jax.grad(lambda lam: gain(cfg, e_v, lam, e_v) + lam)(lam_e)
    np.testing.assert_allclose(slope_e, 1 - jnp.mean(ratio(cfg, e_v, lam_e)), rtol=1e-3, atol=1e-5)


def test_the_minimax_loss_is_least_where_e_is_the_residual():
    cfg = OptiDICEConfig(alpha=ALPHA)
    e_v = jnp.linspace(-2, 2, 9)
    best = gain(cfg, e_v, 0.1, e_v)
    for shift in (-0.5, 0.5):
        assert gain(cfg, e_v + shift, 0.1, e_v) < best


def test_gradients_stop_where_they_should(warmed):
    _, state = warmed
    batch = make_batch(initial=True)
    cfg = OptiDICEConfig(**(LINEAR | VARIANTS["projection"]))
    with_value = lambda params: state._replace(value=Learned(params, state.value.opt_state))
    policy, (e, lam_e) = state.actor.params.policy, state.advantage.params
    loss = lambda params: policy_loss(cfg, policy, with_value(params), batch, jnp.ones(16), KEY)[0]
    assert zero(jax.jit(jax.grad(loss))(state.value.params))
    e_v = jnp.linspace(-1, 1, 16)
    one = jax.jit(jax.grad(lambda e: e_loss(cfg, e, lam_e, e_v, batch)))(e)
    assert not zero(one)
    # no gradient of e or of the policy reaches V: with V's rate at 0 it stands still
    frozen = make("optidice", SPEC, **(LINEAR | VARIANTS["projection"] | {"value_lr": 0.0}))
    after, _ = jax.jit(frozen.update)(state, batch, KEY)
    np.testing.assert_array_equal(flatten(after.value.params), flatten(state.value.params))


def test_initial_states_are_those_of_episodes_or_of_the_data(warmed):
    _, state = warmed
    batch = make_batch(initial=True)
    value = state.value.params.value
    at = lambda batch, **more: value_loss(OptiDICEConfig(discount=GAMMA, **more), value, 0.0, batch)[0]
    moved = batch._replace(initial_obs=batch.initial_obs + 1.0)
    assert at(batch) != at(moved)
    assert at(batch, initial="data") == at(moved, initial="data")
    shift = (1 - GAMMA) * (jnp.mean(value(batch.obs)) - jnp.mean(value(batch.initial_obs)))
    np.testing.assert_allclose(at(batch, initial="data") - at(batch), shift, rtol=1e-3, atol=1e-5)
    with pytest.raises(OdiceError, match="initial states"):
        at(make_batch())
    assert make("optidice", SPEC).initial_states
    assert not make("optidice", SPEC, initial="data").initial_states


def test_next_observation_of_a_terminal_is_never_used(warmed):
    algo, state = warmed
    batch = make_batch(initial=True)
    garbage = batch._replace(next_obs=jnp.where(batch.terminated[:, None], 77.0, batch.next_obs))
    clean, dirty = (algo.update(state, each, KEY)[0] for each in (batch, garbage))
    np.testing.assert_array_equal(flatten(clean), flatten(dirty))


def test_the_policy_waits_for_the_warm_up():
    algo, state = warm("optidice", LINEAR | {"warmup_steps": 2}, steps=0, initial=True)
    moves = []
    for i in range(4):
        before = flatten(state.actor.params)
        state, _ = algo.update(state, make_batch(i, initial=True), KEY)
        moves.append(not np.array_equal(flatten(state.actor.params), before))
    assert moves == [False, False, True, True]


def test_without_multipliers_they_stay_at_zero():
    _, state = warm("optidice", LINEAR | {"normalize": False, "entropy": False}, initial=True)
    assert (state.value.params.lam_v, state.advantage.params.lam_e, state.actor.params.log_entropy) == (0, 0, 0)


def test_log_of_the_ratio():
    x = np.array([-3.0, -0.5, -1e-3, 0.0, 2.0], np.float32)
    for name in ("soft-chi2", "half-pearson"):
        expected = np.log(np.maximum(weight(name, x.astype(np.float64)), 1e-10))
        np.testing.assert_allclose(log_ratio(jnp.asarray(x), name), expected, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(log_ratio(jnp.asarray(x), "kl"), x - 1)
    kept = log_ratio(jnp.asarray(x), "half-pearson", floor_below_one=True)
    np.testing.assert_allclose(kept, [*[np.log(1e-10)] * 3, 0, np.log(3)], rtol=1e-5, atol=1e-6)
    slopes = jax.vmap(jax.grad(lambda x: log_ratio(x[None], "soft-chi2")[0]))(jnp.asarray([-200.0, 3.0]))
    np.testing.assert_allclose(slopes, [1.0, 0.25])  # no underflow where w is tiny


SMALL = {"value_hidden": (32, 32), "critic_hidden": (32, 32), "policy_hidden": (32,), "alpha": 0.5, "discount": 0.8}
SMALL |= {"value_lr": 3e-3, "critic_lr": 3e-3, "policy_lr": 3e-3, "target_entropy": -2.0}


@pytest.mark.slow
@pytest.mark.parametrize("extraction", ["cloning", "projection"])
def test_it_finds_the_best_first_action_and_the_mass_of_its_policy(extraction):
    """Episodes of two steps have the discounted mass 1 - gamma^2, and the ratios must add up to it."""
    action, metrics = learn("optidice", steps=2400, extraction=extraction, normalize=False, **SMALL)
    np.testing.assert_allclose(action, [0.5], atol=0.15)
    np.testing.assert_allclose(metrics["weight_mean"], 1 - 0.8**2, atol=0.04)


@pytest.mark.slow
def test_with_terminals_the_multipliers_drift_and_the_policy_does_not():
    action, metrics = learn("optidice", steps=2400, **SMALL)
    np.testing.assert_allclose(action, [0.5], atol=0.15)
    assert metrics["lam_v"] < -3


@pytest.mark.fast
@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"alpha": 0.0}, "alpha must be a positive"),
        ({"divergence": "soft-chi"}, "Did you mean 'soft-chi2'"),
        ({"extraction": "clonning"}, "Did you mean 'cloning'"),
        ({"mixture": 0}, "mixture"),
        ({"warmup_steps": -1}, "warmup_steps"),
        ({"lam_penalty": -1.0}, "lam_penalty"),
    ],
)
def test_bad_settings_are_refused(settings, message):
    with pytest.raises(OdiceError, match=message):
        OptiDICEConfig(**settings)


@functools.cache
def tabular_world():
    """A deterministic MDP without an end, a log of it, and the exact answer for the log's own visitation."""
    rng = np.random.default_rng(4)
    mdp = random_mdp(rng, 5, 3, terminals=0, branching=1, discount=0.8)._replace(initial=np.full(5, 0.2))
    log = sample_log(mdp, rng.dirichlet(np.ones(3), size=5), rng, 500)
    data = np.zeros((5, 3))
    np.add.at(data, (log.state, log.action), log.share)
    batch = Batch(
        obs=jnp.eye(5)[log.state],
        action=jnp.asarray(log.action),
        reward=jnp.asarray(mdp.reward[log.state, log.action], jnp.float32),
        next_obs=jnp.eye(5)[log.next_state],
        terminated=jnp.zeros(500, bool),
        initial_obs=jnp.eye(5)[np.arange(500) % 5],
    )
    return batch, data, solve_dual(mdp, data, alpha=0.7, divergence="soft-chi2")


@pytest.mark.parametrize("extraction", ["cloning", "projection"])
def test_with_choices_it_is_the_exact_answer(extraction):
    """Tables in the place of networks, the whole log as one batch: values, ratios and the policy of strong duality."""
    batch, data, exact = tabular_world()
    tables = {"value_hidden": (), "critic_hidden": (), "policy_hidden": (), "discount": 0.8, "alpha": 0.7}
    rates = {"value_lr": 0.01, "critic_lr": 0.02, "policy_lr": 0.02, "e_loss": "mse", "entropy": False}
    algo = make("optidice", Spec(5, 3, discrete=True), extraction=extraction, normalize=False, **tables, **rates)
    update = lambda _, state: algo.update(state, batch, jax.random.key(0))[0]
    state = jax.jit(lambda state: jax.lax.fori_loop(0, 6000, update, state))(algo.init(jax.random.key(0)))
    np.testing.assert_allclose(state.value.params.value(jnp.eye(5))[0], exact.value, atol=2e-3)
    ratio = weight("soft-chi2", np.asarray(state.advantage.params.e.every(jnp.eye(5))[0], np.float64) / 0.7)
    np.testing.assert_allclose((ratio * data)[data > 0], exact.visitation[data > 0], atol=2e-3)
    policy = np.asarray(jax.nn.softmax(state.actor.params.policy.logits(jnp.eye(5)), axis=-1))
    np.testing.assert_allclose(policy, exact.policy, atol=0.02)


@pytest.mark.long
def test_of_five_choices_it_finds_the_right_one():
    action, _ = learn("optidice", steps=2400, discrete=True, normalize=False, **(SMALL | {"target_entropy": None}))
    assert action == 3
