"""The squared Bellman error under three gradient rules: Baird's counterexample, and a small MDP with known values."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from odice.core import vdice
from odice.core.bellman import squared_losses
from odice.core.gradients import rule, rule_gradient

# Baird: 7 states with 8 features; from each of them the evaluated action leads to the last one, without reward. So V =
# 0.
BAIRD = np.zeros((7, 8), np.float32)
BAIRD[np.arange(6), np.arange(6)] = 2
BAIRD[:6, 7] = 1
BAIRD[6, 6:] = 1, 2
START = np.array([1, 1, 1, 1, 1, 1, 10, 1], np.float32)


def descend(how, features, following, reward, start, discount, *, lr, steps):
    """Gradient descent on the whole data with linear values and no target network; the values at the end."""
    x, y, r = map(jnp.asarray, (features, following, reward))
    ones = jnp.ones_like(r)

    @jax.jit
    def run(w):
        def one(w, _):
            def losses(v, v_next):
                frozen = vdice.Frozen(jax.lax.stop_gradient(v), jax.lax.stop_gradient(v_next))
                return squared_losses(frozen, r, ones, discount)

            gradients = rule_gradient(how, w, lambda w: (x @ w)[None], lambda w: (y @ w)[None], losses)
            return w - lr * gradients.gradient, None

        return jax.lax.scan(one, w, None, length=steps)[0]

    return np.asarray(x @ run(jnp.asarray(start)), np.float64)


@pytest.mark.parametrize(
    ("name", "low", "high"), [("semi", 1e6, np.inf), ("true", 0.5, 3.0), ("orthogonal", 0.0, 0.05)]
)
def test_bairds_counterexample(name, low, high):
    """The semi-gradient diverges; the residual gradient stays, but stops far from 0; the orthogonal one arrives."""
    following = np.repeat(BAIRD[6:], 7, axis=0)
    zero = np.zeros(7, np.float32)
    values = descend(rule(name, 0.2), BAIRD, following, zero, START, 0.99, lr=0.01, steps=15_000)
    assert low <= np.sqrt(np.mean(values**2)) <= high


@pytest.mark.parametrize("name", ["semi", "true", "orthogonal"])
def test_a_chain_with_a_table_of_values(name):
    """With one feature per state and deterministic steps all three have the same fixed point: the true values."""
    n, discount = 6, 0.8
    following = np.roll(np.eye(n, dtype=np.float32), 1, axis=1)
    reward = np.arange(n, dtype=np.float32) / n
    exact = np.linalg.solve(np.eye(n) - discount * following, reward)
    start = np.zeros(n, np.float32)
    values = descend(
        rule(name, 0.5), np.eye(n, dtype=np.float32), following, reward, start, discount, lr=0.5, steps=4000
    )
    np.testing.assert_allclose(values, exact, atol=2e-3)
