"""The fast path of two-point gradients against its oracle, `jax.vjp`; and how much work it saves."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import odice
from odice.core import gradients, sweep, vdice
from odice.core.critics import Critic
from odice.core.divergences import divergence
from odice.core.gradients import orthogonal, rule_gradient, semi, true
from odice.core.networks import Ensemble
from odice.core.sweep import Point
from odice.types import Batch, Spec

OBS, SAMPLES = 3, 16
RULES = {"true": true, "semi": semi, "orthogonal": orthogonal(0.7)}
RNG = np.random.default_rng(0)
HERE, THERE = (jnp.asarray(RNG.normal(size=(SAMPLES, OBS)), jnp.float32) for _ in range(2))
REWARD = jnp.asarray(RNG.normal(size=SAMPLES), jnp.float32)
MASK = jnp.asarray(RNG.random(SAMPLES) < 0.8, jnp.float32)


def ensemble(heads: int, depth: int, **options) -> Ensemble:
    """A network with no parameter at its initial value: zeros and ones would hide mistakes."""
    shape = jax.eval_shape(lambda: Ensemble(jax.random.key(1), heads, (OBS, *(8,) * depth, 1), **options))
    rng = np.random.default_rng(2)
    return jax.tree.map(lambda leaf: jnp.asarray(rng.normal(0, 0.5, leaf.shape), leaf.dtype), shape)


def assert_close(result, expected, tolerance=1e-5):
    assert jax.tree.structure(result) == jax.tree.structure(expected)
    for a, b in zip(jax.tree.leaves(result), jax.tree.leaves(expected), strict=True):
        assert a.shape == b.shape
        np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance * (1 + float(np.max(np.abs(b)))))


# Every pair of two choices is there, not every combination of all.
SHAPES = [(1, 0, False), (2, 0, False), (1, 1, False), (2, 2, False)]
SHAPES += [(2, 1, True), (1, 2, True), (1, 3, False), (2, 3, True)]
"""Heads, hidden layers, LayerNorm."""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("heads", "depth", "layer_norm", "activation"),
    [(*shape, jax.nn.relu) for shape in SHAPES] + [(*shape, jnp.tanh) for shape in SHAPES[4:7]],
)
def test_values_and_pullbacks_equal_jax(heads, depth, layer_norm, activation):
    net, point = ensemble(heads, depth, layer_norm=layer_norm, activation=activation), Point(HERE, 0.5)
    (values, pull), (expected, pull_jax) = sweep.vjp(point, net), jax.vjp(point, net)
    np.testing.assert_allclose(values, expected, atol=1e-5)
    np.testing.assert_allclose(values, net(HERE) + 0.5, atol=1e-5)
    for cotangent in jnp.asarray(np.random.default_rng(3).normal(size=(2, *values.shape)), jnp.float32):
        assert_close(pull(cotangent), pull_jax(cotangent))


@pytest.mark.slow
def test_a_network_without_a_last_bias():
    net = ensemble(2, 2, last_bias=False)
    cotangent = jnp.ones((2, SAMPLES))
    assert_close(sweep.vjp(Point(HERE), net)[1](cotangent), jax.vjp(Point(HERE), net)[1](cotangent))


def test_critics_are_scalar_networks_too():
    critic, action = Critic(jax.random.key(0), Spec(OBS, 2), (8, 8)), jnp.tanh(THERE[:, :2])
    point = Point(jnp.concatenate([HERE, action], axis=-1))
    values, pull = sweep.vjp(point, critic)
    expected, pull_jax = jax.vjp(lambda critic: critic(HERE, action), critic)
    np.testing.assert_allclose(values, expected, atol=1e-5)
    assert_close(pull(values), pull_jax(values))


def run(rule, net, target, here, there, diagnose):
    bars = target(HERE), target(THERE)
    losses = lambda v, v_next: vdice.losses(
        vdice.freeze(rule, v, v_next, *bars), REWARD, MASK, divergence=divergence("pearson"), lam=0.6, discount=0.9
    )
    return rule_gradient(rule, net, here, there, losses, diagnose)


@pytest.mark.slow
@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize(("heads", "depth", "layer_norm"), SHAPES[2:])
def test_rules(heads, depth, layer_norm, rule):
    net = ensemble(heads, depth, layer_norm=layer_norm)
    target = jax.tree.map(lambda leaf: 0.9 * leaf, net)
    points = Point(HERE), Point(THERE)
    for diagnose in (False, True):
        outcome = run(RULES[rule], net, target, *points, diagnose)
        expected = run(RULES[rule], net, target, *(lambda net, p=p: p(net) for p in points), diagnose)
        assert_close(outcome, expected, 1e-4)


@pytest.mark.slow
@pytest.mark.parametrize(("heads", "layer_norm"), [pytest.param(1, False, marks=pytest.mark.long), (2, True)])
@pytest.mark.parametrize("algo", ["odice", "sdice", "vdice-true"])
def test_training_is_the_same_up_to_rounding(algo, heads, layer_norm, monkeypatch):
    """Ten updates with the fast path and with `jax.vjp`: the same metrics and parameters."""
    batch = Batch(HERE, jnp.tanh(THERE[:, :2]), REWARD, THERE, MASK == 0)

    def train():
        settings = {"twin": heads == 2, "layer_norm": layer_norm, "value_hidden": (16, 16), "policy_hidden": (16, 16)}
        made = odice.make(algo, Spec(OBS, 2), **settings, diagnose=True)
        state, update = made.init(jax.random.key(0)), jax.jit(made.update)
        seen = []
        for step in range(10):
            state, metrics = update(state, batch, jax.random.key(step))
            seen.append(metrics)
        return (state.value.params, state.policy.params), seen

    fast = train()
    monkeypatch.setattr(gradients, "_vjp", jax.vjp)
    assert_close(fast, train(), 1e-5)


def test_a_second_gradient_costs_its_weight_products_alone():
    net, cotangents = ensemble(1, 2), jax.random.normal(jax.random.key(0), (2, 1, SAMPLES))

    def products(pulls: int) -> int:
        def gradients(net):
            _, pull = sweep.vjp(Point(HERE), net)
            return [pull(cotangent) for cotangent in cotangents[:pulls]]

        return str(jax.make_jaxpr(gradients)(net)).count("dot_general")

    assert products(2) - products(1) == len(net.heads.weights)
