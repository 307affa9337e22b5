"""The smallest of several heads, and that its gradient survives compilation."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from odice.algos.algae_dice import policy_value
from odice.core.critics import Critic, min_over_heads
from odice.core.policies import SquashedPolicy, draw
from odice.types import Spec


def test_the_smallest_head_gets_the_gradient():
    q = jnp.asarray([[3.0, 1.0, 2.0], [2.0, 5.0, 2.0], [4.0, 0.5, 2.0]])
    np.testing.assert_array_equal(min_over_heads(q), np.min(np.asarray(q), axis=0))
    gradient = jax.grad(lambda q: min_over_heads(q).sum())(q)
    np.testing.assert_array_equal(gradient, [[0, 0, 1], [1, 0, 0], [0, 1, 0]])  # of equal ones the first


@pytest.mark.slow
def test_compiled_the_gradient_is_the_same():
    """With `jnp.min` the compiled gradient loses rows here (jax 0.10, CPU): it is wrong by 0.02 where its size is 3."""
    keys, spec = jax.random.split(jax.random.key(0), 8), Spec(3, 2)
    policy = SquashedPolicy(keys[0], spec, (32,), spread="tanh", init="orthonormal")
    critic = Critic(keys[1], spec, (32,), init="orthonormal")
    obs = jax.random.uniform(keys[2], (64, 3), minval=-1, maxval=1)

    def gradient(policy):
        value = lambda policy: policy_value(critic, draw(policy, keys[4], obs, 1), obs, 0.99)
        return jax.grad(lambda policy: jnp.mean(min_over_heads(value(policy))))(policy)

    pairs = zip(jax.tree.leaves(gradient(policy)), jax.tree.leaves(jax.jit(gradient)(policy)), strict=True)
    for eager, compiled in pairs:
        np.testing.assert_allclose(eager, compiled, atol=1e-5)
