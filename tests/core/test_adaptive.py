"""What an update adapts, against numpy."""

import jax.numpy as jnp
import numpy as np
import pytest

from odice.core import adaptive
from odice.core.divergences import divergence, tempered


def numpy_ess(weight):
    return weight.sum() ** 2 / (len(weight) * (weight**2).sum())


def test_the_weight_of_a_choice():
    residual = jnp.asarray([-1.0, 0.0, 2.0, 5.0], jnp.float32)
    choice = adaptive.Choice(jnp.float32(0.5), jnp.float32(2.0))
    above = np.array([0.0, 0.0, 0.5, 2.0])  # R / 2 - 0.5
    np.testing.assert_allclose(adaptive.choice_weight(residual, choice, 100.0), above / above.mean(), rtol=1e-6)
    np.testing.assert_allclose(adaptive.choice_weight(residual, choice, 2.0), [0, 0, 0.8, 2.0], rtol=1e-6)


@pytest.mark.parametrize("scale", [0.01, 1.0, 100.0])
@pytest.mark.parametrize("wanted", [0.15, 0.5])
def test_a_choice_finds_its_share_at_every_scale(scale, wanted):
    rng, choice, found = np.random.default_rng(0), adaptive.first_choice(), []
    for i in range(1500):
        residual = jnp.asarray(scale * rng.normal(1.0, 2.0, 512), jnp.float32)
        weight = adaptive.choice_weight(residual, choice, 100.0)
        choice = adaptive.next_choice(choice, residual, weight, wanted)
        if i >= 1400:
            found.append(numpy_ess(np.asarray(weight, np.float64)))
    assert np.mean(found) == pytest.approx(wanted, rel=0.05)
    assert float(choice.spread) == pytest.approx(2 * scale, rel=0.05)


def test_the_temperature_finds_its_share():
    rng, log_temperature, f = np.random.default_rng(0), adaptive.first_temperature(), divergence("pearson")
    residual = jnp.asarray(rng.normal(0, 30.0, 2048), jnp.float32)
    for _ in range(3000):
        weight = tempered(f, jnp.exp(log_temperature)).weight(residual)
        log_temperature = adaptive.next_temperature(log_temperature, weight, 0.8)
    weight = np.maximum(0, 1 + np.asarray(residual, np.float64) / np.exp(float(log_temperature)) / 2)
    assert numpy_ess(weight) == pytest.approx(0.8, rel=0.02)


def test_a_batch_without_weight_warms_and_lowers():
    nothing = jnp.zeros(64)
    assert adaptive.next_temperature(jnp.zeros(()), nothing, 0.5) > 0
    choice = adaptive.next_choice(adaptive.Choice(jnp.ones(()), jnp.ones(())), jnp.zeros(64), nothing, 0.5)
    assert choice.threshold < 1
    assert np.isfinite(float(choice.spread))


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
        mean = adaptive.running_mean(mean, jnp.float32(value), i, 10.0)
    assert float(mean) == pytest.approx(weights @ x, abs=1e-5)
    assert weights[150:].sum() > 0.9  # the beginning is forgotten
