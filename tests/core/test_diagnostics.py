"""The feature product against a network whose gradients are written down by hand."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from odice.core.diagnostics import feature_products
from odice.core.networks import Ensemble
from odice.types import Batch


def batch(obs, next_obs, terminated):
    n = len(obs)
    fields = (obs, np.zeros((n, 1)), np.zeros(n), next_obs)
    return Batch(*(jnp.asarray(x, jnp.float32) for x in fields), terminated=jnp.asarray(terminated))


@pytest.mark.parametrize("heads", [1, 2])
def test_a_linear_value(heads):
    """V(s) = w.s + b has grad V(s) = (s, 1), whatever w is; a terminated row does not count."""
    rng = np.random.default_rng(0)
    obs, after = rng.normal(size=(2, 6, 3))
    value = Ensemble(jax.random.key(0), heads, (3, 1))
    products = feature_products(value, batch(obs, after, [False] * 5 + [True]))
    product = np.sum(obs * after, axis=1) + 1
    length = np.sqrt((np.sum(obs**2, axis=1) + 1) * (np.sum(after**2, axis=1) + 1))
    np.testing.assert_allclose(products["feature_product"], product[:5].mean(), rtol=1e-5)
    np.testing.assert_allclose(products["feature_cosine"], (product / length)[:5].mean(), rtol=1e-5)
    weights, bias = np.asarray(value.heads.weights[0])[:, :, 0], np.asarray(value.heads.biases[0])
    values = weights @ obs.T + bias
    np.testing.assert_allclose(products["value_min"], values.min(), rtol=1e-5)
    np.testing.assert_allclose(products["value_max"], values.max(), rtol=1e-5)


def test_all_terminated_is_zero_not_nan():
    value = Ensemble(jax.random.key(0), 1, (2, 4, 1))
    products = feature_products(value, batch(np.ones((3, 2)), np.ones((3, 2)), [True] * 3))
    assert float(products["feature_product"]) == 0.0
