"""The fixed point on a path: the library's own gradients vanish there, and it says what the experiment found."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from odice.core.divergences import divergence
from odice.core.gradients import combine, rule
from odice.experiments import toy_path

pytestmark = pytest.mark.fast

SETTINGS = [("true", 0.9, 0.0), ("semi", 0.6, 0.0), ("orthogonal", 0.5, 0.4), ("orthogonal", 0.5, 3.0)]


@pytest.mark.parametrize(("name", "lam", "eta"), SETTINGS)
def test_gradient_of_the_rule_is_zero(name, lam, eta):
    with jax.enable_x64(True):
        v = jnp.asarray(toy_path.values(toy_path.weights(name, lam, eta), scale=2.0))
        reward, f = jnp.asarray(toy_path.rewards(2.0)), divergence("pearson")
        following = lambda x: jnp.append(x[1:], 0.0)
        loss = lambda here, there: lam * jnp.mean(f.conjugate(reward + 0.99 * following(there) - here))
        forward, backward = jax.grad(loss, argnums=0)(v, v), jax.grad(loss, argnums=1)(v, v)
        gradient, _ = combine(rule(name, eta), forward, backward)
        np.testing.assert_allclose(gradient + (1 - lam) / toy_path.LENGTH, 0, atol=1e-12)


@pytest.mark.parametrize(
    ("name", "lam", "eta", "scale", "finds"),
    [
        ("semi", 0.6, 0.0, 1.0, True),
        ("semi", 0.7, 0.0, 1.0, False),  # R = 2 (1/lam - 2) is below -1: it cancels the cost of a move
        ("orthogonal", 0.5, 0.4, 1.0, True),
        ("orthogonal", 0.5, 1.0, 1.0, False),
        ("orthogonal", 0.5, 10.0, 10.0, True),
        ("true", 0.9, 0.0, 1.0, False),
        ("true", 0.9, 0.0, 10.0, True),
    ],
)
def test_where_v_rises_from_the_start(name, lam, eta, scale, finds):
    v = toy_path.values(toy_path.weights(name, lam, eta), scale)
    assert (v[1] > v[0]) == finds
