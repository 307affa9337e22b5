"""The Q-form's residual pair against numpy on linear critics, and the identities of the three rules on it."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from odice.core import qdice
from odice.core.critics import Critic
from odice.core.divergences import divergence
from odice.core.gradients import orthogonal, semi, true
from odice.core.policies import CategoricalPolicy, Draws, SquashedPolicy, draw
from odice.core.qdice import Drawn, Objective, chi, critic_gradient, reward_divergence
from odice.errors import OdiceError
from odice.types import Spec
from tests.algos.support import SPEC, arrays, flatten, make_batch, slope, twin, zero

GAMMA, T, LAM, ALPHA = 0.9, 0.3, 0.55, 0.7
OBJECTIVE = Objective(chi(ALPHA), GAMMA, T, linear=1 - LAM, lam=LAM)
TELESCOPING = Objective(chi(ALPHA), GAMMA, T, linear=1.0, telescope=1.0)
DUAL = Objective(divergence("kl-dv"), GAMMA, 0.0, linear=1 - GAMMA)


@functools.cache
def setting(seed=0, n=16):
    """A batch, drawn actions with made-up log densities, and a linear twin critic with a target of its own."""
    rng = np.random.default_rng(seed)
    sample = lambda: Draws(
        jnp.asarray(rng.uniform(-1, 1, (1, n, 2)), jnp.float32),
        jnp.asarray(rng.normal(size=(1, n)), jnp.float32),
        jnp.ones((1, n)),
    )
    critic, target = (Critic(jax.random.key(seed + i), SPEC, ()) for i in range(2))
    return make_batch(seed, n), Drawn(sample(), sample()), critic, target


@functools.cache
def compiled(rule, objective, diagnose):
    """One program for each: op by op, each op of each test is a program of its own."""
    return jax.jit(functools.partial(critic_gradient, rule, objective, diagnose=diagnose))


def gradient(rule, objective, problem, diagnose=False):
    batch, drawn, critic, target = problem
    return compiled(rule, objective, diagnose)(critic, target, batch, drawn)


# --- numpy ----------------------------------------------------------------------------------------------------------


def parts(objective, problem, conjugate, rule):
    """Forward, backward and linear gradient by central differences in float64."""
    batch, drawn, critic, target = problem
    s, a, _, s2, m = arrays(batch)
    here, there = (
        (np.asarray(d.action[0], np.float64), np.asarray(d.log_prob[0], np.float64)) for d in (drawn.here, drawn.there)
    )
    t = objective.temperature
    q = lambda theta: twin(theta, s, a)
    v = lambda theta: twin(theta, s, here[0]) - t * here[1]
    v_next = lambda theta: twin(theta, s2, there[0]) - t * there[1]
    theta, slow = flatten(critic), flatten(target)
    q_bar, next_bar = (q(slow).min(0), v_next(slow).min(0)) if rule.use_target else (q(theta), v_next(theta))
    f = lambda residual: objective.lam * np.mean(conjugate(residual))
    telescoped = lambda x: objective.telescope * GAMMA * np.mean(m * v_next(x))
    return (
        slope(lambda x: f(GAMMA * m * next_bar - q(x)), theta),
        slope(lambda x: f(GAMMA * m * v_next(x) - q_bar) - telescoped(x), theta),
        slope(lambda x: objective.linear * np.mean(v(x)), theta),
    )


CONJUGATES = {
    "chi": (OBJECTIVE, lambda y: y + y**2 / (4 * ALPHA)),
    "telescoping": (TELESCOPING, lambda y: y + y**2 / (4 * ALPHA)),
    "donsker-varadhan": (DUAL, lambda y: np.log(np.mean(np.exp(y), axis=-1))),
}


@pytest.mark.parametrize("name", CONJUGATES)
def test_rules_equal_numpy(name):
    problem = setting()
    objective, conjugate = CONJUGATES[name]
    for rule in (true, semi, orthogonal(0.7)):
        f, b, rest = parts(objective, problem, conjugate, rule)
        expected = {"true": f + b, "semi": f, "orthogonal": f + 0.7 * (b - f @ b / (f @ f) * f)}[rule.name] + rest
        result, _, _ = gradient(rule, objective, problem)
        np.testing.assert_allclose(flatten(result.gradient), expected, rtol=2e-4, atol=2e-5)


def test_residual_and_values_by_hand():
    batch, drawn, critic, target = setting()
    s, a, _, s2, m = arrays(batch)
    _, here, residual = gradient(semi, OBJECTIVE, (batch, drawn, critic, target))
    d = jax.tree.map(lambda x: np.asarray(x[0], np.float64), drawn)
    theta, slow = flatten(critic), flatten(target)
    np.testing.assert_allclose(here.q, twin(theta, s, a), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(here.v, twin(theta, s, d.here.action) - T * d.here.log_prob, rtol=1e-4, atol=1e-5)
    v_next = (twin(slow, s2, d.there.action) - T * d.there.log_prob).min(0)
    np.testing.assert_allclose(residual, GAMMA * m * v_next - twin(theta, s, a), rtol=1e-4, atol=1e-5)


# --- identities of the rules ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", CONJUGATES)
def test_true_rule_is_the_gradient_of_the_objective(name):
    objective, _ = CONJUGATES[name]
    batch, drawn, critic, _ = problem = setting()

    def objective_of(net):
        here = qdice.evaluate(net, batch, drawn.here, objective.temperature)
        v_next = qdice.soft_value(net, drawn.there, batch.next_obs, objective.temperature)
        return qdice.value(objective, here, v_next, batch.mask)

    result, _, _ = gradient(true, objective, problem)
    np.testing.assert_allclose(flatten(result.gradient), flatten(jax.grad(objective_of)(critic)), rtol=1e-4, atol=1e-6)


def test_limits_of_the_orthogonal_rule():
    batch, drawn, critic, _ = problem = setting()
    of = lambda rule, problem=problem: flatten(gradient(rule, OBJECTIVE, problem, diagnose=True)[0].gradient)
    np.testing.assert_allclose(of(orthogonal(0.0)), of(semi), rtol=1e-6)
    equal = jax.tree.map(lambda leaf: jnp.stack([leaf[0], leaf[0]]), critic)  # the minimum is each head's own value
    fresh = (batch, drawn, equal, equal)
    np.testing.assert_allclose(
        of(orthogonal(1.0)._replace(project=False), fresh), of(true, fresh), rtol=1e-5, atol=1e-7
    )


def test_projected_part_is_orthogonal_to_the_forward_gradient():
    problem = setting()
    linear = OBJECTIVE._replace(linear=0.0)
    forward = flatten(gradient(semi, linear, problem)[0].gradient)
    both, _, _ = gradient(orthogonal(1.0), linear, problem)
    perpendicular = flatten(both.gradient) - forward
    assert abs(perpendicular @ forward) < 1e-5 * np.linalg.norm(perpendicular) * np.linalg.norm(forward)
    assert np.linalg.norm(perpendicular) > 0.1 * np.linalg.norm(forward)


@pytest.mark.parametrize("rule", [true, semi, orthogonal(1.0)], ids=lambda r: r.name)
def test_next_observation_of_a_terminal_is_never_used(rule):
    batch, *others = setting()
    garbage = jnp.where(batch.terminated[:, None], 77.0, batch.next_obs)
    of = lambda b: flatten(gradient(rule, TELESCOPING, (b, *others))[0].gradient)
    clean, dirty = of(batch), of(batch._replace(next_obs=garbage))
    np.testing.assert_allclose(clean, dirty, rtol=1e-6)
    unmasked = of(batch._replace(next_obs=garbage, terminated=jnp.zeros_like(batch.terminated)))
    assert not np.allclose(clean, unmasked, rtol=1e-2)


@pytest.mark.parametrize("rule", [semi, orthogonal(1.0)], ids=lambda r: r.name)
def test_the_policy_and_the_target_get_no_gradient(rule):
    batch, drawn, critic, target = setting()
    total = lambda result: sum(jnp.sum(leaf) for leaf in jax.tree.leaves(result.gradient))
    of_draws = jax.grad(lambda d: total(gradient(rule, OBJECTIVE, (batch, d, critic, target))[0]))(drawn)
    of_target = jax.grad(lambda t: total(gradient(rule, OBJECTIVE, (batch, drawn, critic, t))[0]))(target)
    assert zero(of_draws)
    assert zero(of_target)


def test_rewards_are_never_read():
    batch, *others = setting()
    of = lambda b: flatten(gradient(orthogonal(1.0), OBJECTIVE, (b, *others))[0].gradient)
    np.testing.assert_array_equal(of(batch), of(batch._replace(reward=batch.reward * 0)))


# --- divergences ----------------------------------------------------------------------------------------------------


def test_chi_is_linear_plus_square():
    d = chi(0.5)
    y = jnp.asarray([-3.0, -1.0, 0.0, 2.0])
    np.testing.assert_allclose(d.conjugate(y), [-3 + 4.5, -1 + 0.5, 0, 2 + 2])
    np.testing.assert_allclose(jax.vmap(jax.grad(d.conjugate))(y), d.weight(y))
    pearson = reward_divergence("pearson", 0.5)  # the same until the density ratio would be negative
    np.testing.assert_allclose(pearson.conjugate(y[1:]), d.conjugate(y[1:]), atol=1e-6)
    np.testing.assert_allclose(pearson.conjugate(y[:1]), [-0.5], atol=1e-6)


WEIGHTS = {  # what the official code of IQ-Learn multiplies a reward with
    "hellinger": lambda rho: 1 / (1 + rho) ** 2,
    "kl": lambda rho: np.exp(-rho - 1),
    "kl-normalized": lambda rho: np.exp(-rho),
    "kl-dv": lambda rho: np.exp(-rho) / np.mean(np.exp(-rho)),
    "jensen-shannon": lambda rho: np.exp(-rho) / (2 - np.exp(-rho)),
}


@pytest.mark.parametrize("name", WEIGHTS)
def test_gradients_are_those_of_the_official_weights(name):
    rho = np.linspace(-0.4, 2.0, 7)
    d = reward_divergence(name, 1.0)
    slope_of_rho = jax.grad(lambda x: jnp.sum(d.conjugate(-x)))(jnp.asarray(rho, jnp.float32))
    np.testing.assert_allclose(slope_of_rho, -WEIGHTS[name](rho), rtol=1e-4)


def test_strength_scales_the_divergence():
    d = reward_divergence("pearson", 2.0)
    np.testing.assert_allclose(d.conjugate(jnp.asarray(3.0)), 2 * ((1 + 0.75) ** 2 - 1))
    np.testing.assert_allclose(d.weight(jnp.asarray(3.0)), 1.75)
    with pytest.raises(OdiceError, match="Did you mean 'hellinger'"):
        reward_divergence("helinger", 1.0)


def test_log_mean_exp_does_not_overflow():
    batch, drawn, critic, target = setting()
    steep = jax.tree.map(lambda leaf: 1e4 * leaf, critic)
    result, _, residual = gradient(true, DUAL, (batch, drawn, steep, target))
    assert np.isfinite(flatten(result.gradient)).all()
    top = np.asarray(residual, np.float64)
    expected = np.mean(top.max(1) + np.log(np.mean(np.exp(top - top.max(1, keepdims=True)), axis=1)))
    np.testing.assert_allclose(result.losses["forward"], expected, rtol=1e-5)


# --- values, penalty, reward ----------------------------------------------------------------------------------------


def test_soft_value_of_a_finite_set_is_exact():
    spec = Spec(3, 4, discrete=True)
    critic, policy = Critic(jax.random.key(0), spec, ()), CategoricalPolicy(jax.random.key(1), spec, ())
    obs = make_batch().obs
    value = qdice.soft_value(critic, draw(policy, jax.random.key(2), obs, 1), obs, T)[0]
    q = np.asarray(critic.every(obs)[0], np.float64)
    np.testing.assert_allclose(value, T * np.log(np.exp(q / T).sum(-1)), rtol=1e-5)
    p = np.exp(q / T) / np.exp(q / T).sum(-1, keepdims=True)
    np.testing.assert_allclose(value, (p * (q - T * np.log(p))).sum(-1), rtol=1e-4)  # E_pi[Q] + T H(pi)


def test_gradient_penalty_of_a_linear_critic():
    batch, _, critic, _ = setting()
    norms = np.linalg.norm(np.asarray(critic.heads.weights[0])[..., 0], axis=1)
    np.testing.assert_allclose(
        qdice.gradient_penalty(critic, (batch.obs, batch.action)), np.mean((norms - 1) ** 2), rtol=1e-5
    )
    flat = jax.tree.map(jnp.zeros_like, critic)
    loss, gradient = jax.value_and_grad(qdice.gradient_penalty)(flat, (batch.obs, batch.action))
    np.testing.assert_allclose(loss, 1.0, rtol=1e-5)
    assert np.isfinite(flatten(gradient)).all()


def test_recovered_reward_by_hand():
    batch, _, critic, _ = setting()
    policy, key = SquashedPolicy(jax.random.key(3), SPEC, ()), jax.random.key(4)
    reward = qdice.recovered_reward(critic, policy, batch, key, discount=GAMMA, temperature=T)
    s, a, _, s2, m = arrays(batch)
    drawn = policy.sample(key, batch.next_obs, 1)
    theta, action = flatten(critic), np.asarray(drawn.action[0], np.float64)
    v_next = twin(theta, s2, action) - T * np.asarray(drawn.log_prob[0], np.float64)
    np.testing.assert_allclose(reward, (twin(theta, s, a) - GAMMA * m * v_next).mean(0), rtol=1e-4, atol=1e-5)
