"""The product with a hand-written gradient against numpy, and under the transformations that algorithms use."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from odice.core.dense import NARROW, dense, weight_gradient

WIDE = NARROW + 5


@pytest.mark.parametrize("rows", [(), (7,), (2, 7)])
@pytest.mark.parametrize(("fan_in", "fan_out"), [(3, 2), (3, WIDE), (WIDE, 2), (WIDE, WIDE)])
def test_gradients_equal_numpy(rows, fan_in, fan_out):
    rng = np.random.default_rng(0)
    x, w, dy = (rng.normal(size=shape) for shape in ((*rows, fan_in), (fan_in, fan_out), (*rows, fan_out)))
    y, pull = jax.vjp(dense, *(jnp.asarray(a, jnp.float32) for a in (x, w)))
    dx, dw = pull(jnp.asarray(dy, jnp.float32))
    np.testing.assert_allclose(y, x @ w, atol=1e-4)
    np.testing.assert_allclose(dx, dy @ w.T, atol=1e-4)
    np.testing.assert_allclose(dw, x.reshape(-1, fan_in).T @ dy.reshape(-1, fan_out), atol=1e-4)


@pytest.mark.parametrize("fan_out", [2, WIDE])
def test_a_batch_of_networks(fan_out):
    """Seeds in one `vmap`: each gets the gradient it gets alone."""
    x = jax.random.normal(jax.random.key(0), (3, 7, WIDE))
    w = jax.random.normal(jax.random.key(1), (3, WIDE, fan_out))
    grad = jax.grad(lambda w, x: jnp.sum(jnp.sin(dense(x, w))))
    np.testing.assert_allclose(jax.vmap(grad)(w, x), jnp.stack([grad(w[i], x[i]) for i in range(3)]), atol=1e-4)


def test_second_derivatives():
    """A gradient penalty differentiates the gradient; the theory's Hessians run forward over it."""
    x, w = jax.random.normal(jax.random.key(0), (4, 3)), jax.random.normal(jax.random.key(1), (3, 2))
    penalty = lambda product: lambda w: jnp.sum(jnp.square(jax.grad(lambda x: jnp.sum(jnp.sin(product(x, w))))(x)))
    plain = lambda x, w: x @ w
    np.testing.assert_allclose(jax.grad(penalty(dense))(w), jax.grad(penalty(plain))(w), rtol=1e-4)
    curved = lambda product: jax.hessian(lambda w: jnp.sum(jnp.sin(product(x, w))))(w)
    np.testing.assert_allclose(curved(dense), curved(plain), atol=1e-4)


def test_a_narrow_gradient_is_the_transposed_product():
    program = str(jax.make_jaxpr(weight_gradient)(jnp.zeros((7, WIDE)), jnp.zeros((7, 2))))
    assert program.index("dot_general") < program.index("optimization_barrier")
