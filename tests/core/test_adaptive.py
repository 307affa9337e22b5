"""What an update adapts, against numpy."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from odice.core import adaptive
from odice.core.divergences import divergence, tempered
from odice.core.learner import Learner, running_mean
from odice.core.networks import value_network
from odice.types import Batch, Spec


def numpy_ess(weight):
    return weight.sum() ** 2 / (len(weight) * (weight**2).sum())


def test_the_weight_of_a_threshold():
    residual = jnp.asarray([-1.0, 0.0, 2.0, 5.0], jnp.float32)
    threshold = adaptive.Threshold(jnp.float32(0.5), jnp.float32(2.0))
    above = np.array([0.0, 0.0, 0.5, 2.0])  # R / 2 - 0.5
    np.testing.assert_allclose(adaptive.threshold_weight(residual, threshold, 100.0), above / above.mean(), rtol=1e-6)
    np.testing.assert_allclose(adaptive.threshold_weight(residual, threshold, 2.0), [0, 0, 0.8, 2.0], rtol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("scale", [0.01, 1.0, 100.0])
@pytest.mark.parametrize("target", [0.15, 0.5])
def test_a_threshold_finds_its_share_at_every_scale(scale, target):
    rng, threshold, result = np.random.default_rng(0), adaptive.Threshold(jnp.zeros(()), jnp.ones(())), []
    for i in range(1500):
        residual = jnp.asarray(scale * rng.normal(1.0, 2.0, 512), jnp.float32)
        weight = adaptive.threshold_weight(residual, threshold, 100.0)
        threshold = adaptive.next_threshold(threshold, residual, weight, target)
        if i >= 1400:
            result.append(numpy_ess(np.asarray(weight, np.float64)))
    assert np.mean(result) == pytest.approx(target, rel=0.05)
    assert float(threshold.spread) == pytest.approx(2 * scale, rel=0.05)


@pytest.mark.slow
def test_balanced_weights_leave_every_state_its_share():
    """Two states: in the first one action in four stands out, in the second none does."""
    spec, kappa = Spec(2, 1), 0.1
    linear = lambda key: value_network(key, spec, (), heads=1)
    part = adaptive.threshold_extraction(0.2, 100.0, balance=kappa, learner=Learner(0.05), make_baseline=linear)
    obs = np.repeat(np.eye(2, dtype=np.float32), 64, axis=0)
    advantage = np.where(np.arange(128) % 4 == 0, 3.0, -1.0) * (np.arange(128) < 64)
    batch = Batch(jnp.asarray(obs), jnp.zeros((128, 1)), jnp.zeros(128), jnp.asarray(obs), jnp.zeros(128, bool))
    residual, state = jnp.asarray(advantage[None], jnp.float32), part.init(jax.random.key(0))
    baseline, network = (each.params.heads for each in (state.baseline, state.state_weight))
    weight, state, _ = part.weigh(state, residual, divergence("pearson"), batch)

    outputs = [obs @ np.asarray(net.weights[0][0])[:, 0] + float(net.biases[0][0, 0]) for net in (baseline, network)]
    above = np.maximum(advantage - outputs[0], 0)
    above /= above.mean()
    np.testing.assert_allclose(weight, (above + kappa) / (np.log1p(np.exp(outputs[1])) + kappa), rtol=1e-4)

    again = jax.jit(lambda state: part.weigh(state, residual, divergence("pearson"), batch)[:2])
    for _ in range(1500):
        weight, state = again(state)
    first, second = np.asarray(weight).reshape(2, 16, 4)
    np.testing.assert_allclose([first.mean(), second.mean()], 1.0, atol=0.1)
    np.testing.assert_allclose(second, 1.0, atol=0.2)  # all alike
    assert first[:, 0].min() > 10 * first[:, 1:].max()


def test_the_temperature_finds_its_share():
    rng, part = np.random.default_rng(0), adaptive.adapted_temperature(divergence("pearson"), 0.8)
    residual, log_temperature = jnp.asarray(rng.normal(0, 30.0, (1, 2048)), jnp.float32), part.init()
    for _ in range(3000):
        log_temperature = part.step(log_temperature, residual)
    weight = np.maximum(0, 1 + np.asarray(residual[0], np.float64) / np.exp(float(log_temperature)) / 2)
    assert numpy_ess(weight) == pytest.approx(0.8, rel=0.02)


def test_a_batch_without_weight_warms_and_lowers():
    nothing = jnp.zeros(64)
    part = adaptive.adapted_temperature(divergence("pearson"), 0.5)
    assert part.step(jnp.zeros(()), jnp.full((1, 64), -1e3)) > 0
    threshold = adaptive.next_threshold(adaptive.Threshold(jnp.ones(()), jnp.ones(())), jnp.zeros(64), nothing, 0.5)
    assert threshold.level < 1
    assert np.isfinite(float(threshold.spread))


@pytest.mark.parametrize("name", ["pearson", "soft-chi2", "kl"])
def test_a_tempered_divergence_is_a_multiple(name):
    """Its conjugate against the supremum over a grid, its weight against where the supremum is."""
    plain, warm = divergence(name), tempered(divergence(name), 3.0)
    x = np.linspace(1e-6, 30, 300_001)
    f = 3.0 * np.asarray(plain.f(jnp.asarray(x)), np.float64)
    for y in (-4.0, -1.0, 0.5, 4.0):
        gain = x * y - f
        assert float(warm.conjugate(jnp.float32(y))) == pytest.approx(gain.max(), abs=1e-3)
        assert float(warm.weight(jnp.float32(y))) == pytest.approx(x[gain.argmax()], abs=1e-2)


def test_the_running_mean_is_over_the_last_part():
    """Against the weights written out: update i has share 10 / (i + 1), and all later ones leave it 1 - share."""
    x = np.random.default_rng(0).normal(size=200)
    shares = np.minimum(1, 10 / np.arange(1, 201))
    weights = np.array([shares[i] * np.prod(1 - shares[i + 1 :]) for i in range(200)])
    mean = jnp.zeros(())
    for i, value in enumerate(x):
        mean = running_mean(mean, jnp.float32(value), jnp.asarray(i), 10.0)
    assert float(mean) == pytest.approx(weights @ x, abs=1e-5)
    assert weights[150:].sum() > 0.9  # the beginning is forgotten
