"""The gradient rules against numpy on flat vectors, and their identities."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from odice.core.gradients import FORWARD_FLOOR, LossPair, combine, orthogonal, rule, rule_gradient, semi, true
from odice.errors import OdiceError

vectors = arrays(np.float32, 7, elements=st.floats(-10, 10, width=32))


def as_tree(vector):
    """Split over leaves: a rule acts on the whole parameter vector, not leaf by leaf."""
    return {"a": jnp.asarray(vector[:3]), "b": [jnp.asarray(vector[3:]).reshape(2, 2)]}


def as_vector(tree):
    return np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(tree)])


@given(f=vectors, b=vectors, eta=st.floats(0, 3))
def test_orthogonal_matches_gram_schmidt(f, b, eta):
    gradient, _ = combine(orthogonal(eta), as_tree(f), as_tree(b))
    f64, b64 = f.astype(np.float64), b.astype(np.float64)
    kappa = f64 @ b64 / max(f64 @ f64, FORWARD_FLOOR)
    expected = f64 + eta * (b64 - kappa * f64)
    scale = 1 + np.abs(kappa) * np.abs(f64).max() + np.abs(b64).max()
    np.testing.assert_allclose(as_vector(gradient), expected, atol=1e-5 * scale * (1 + eta))


@given(f=vectors, b=vectors)
def test_projected_part_is_orthogonal(f, b):
    if f @ f < 1e-6:
        return
    gradient, _ = combine(orthogonal(1.0), as_tree(f), as_tree(b))
    perp = as_vector(gradient).astype(np.float64) - f
    assert abs(perp @ f) <= 1e-4 * (1 + np.linalg.norm(f) * np.linalg.norm(b))


@given(f=vectors, b=vectors)
def test_true_is_the_sum_and_semi_the_forward(f, b):
    np.testing.assert_allclose(as_vector(combine(true, as_tree(f), as_tree(b))[0]), f + b, atol=1e-5)
    np.testing.assert_allclose(as_vector(combine(semi, as_tree(f), as_tree(b))[0]), f, atol=1e-5)


def test_vanishing_forward_gradient_lets_the_backward_one_pass():
    b = np.arange(7, dtype=np.float32)
    gradient, seen = combine(orthogonal(0.5), as_tree(np.zeros(7, np.float32)), as_tree(b))
    np.testing.assert_allclose(as_vector(gradient), 0.5 * b)
    assert seen.projection == 0
    assert all(np.isfinite(v) for v in seen)


def test_tiny_forward_gradient_is_projected_in_part_only():
    f = np.zeros(7, np.float32)
    f[0] = 1e-6  # <F,F> = 1e-12 is below the floor
    b = np.ones(7, np.float32)
    gradient, _ = combine(orthogonal(1.0), as_tree(f), as_tree(b))
    kappa = 1e-6 / FORWARD_FLOOR
    np.testing.assert_allclose(as_vector(gradient), b + (1 - kappa) * f, rtol=1e-5)


def test_diagnostics_by_hand():
    # F = (3, 4, 0..), B = (0, -5, 12, 0..): |F| = 5, |B| = 13, <F,B> = -20
    f = np.array([3, 4, 0, 0, 0, 0, 0], np.float32)
    b = np.array([0, -5, 12, 0, 0, 0, 0], np.float32)
    _, seen = combine(orthogonal(1.0), as_tree(f), as_tree(b))
    np.testing.assert_allclose(seen.forward_norm, 5, rtol=1e-6)
    np.testing.assert_allclose(seen.backward_norm, 13, rtol=1e-6)
    np.testing.assert_allclose(seen.cosine, -20 / 65, rtol=1e-6)
    np.testing.assert_allclose(seen.projection, -20 / 25, rtol=1e-6)
    # <F+B, F + eta Bperp> = 25 - 20 + eta (169 - 16) = 0 at
    np.testing.assert_allclose(seen.eta_bound, -5 / 153, rtol=1e-5)


def test_eta_bound_is_theorem_2():
    """With F = -c g and B = c gamma g', the batch bound is the theorem's formula in phi and k."""
    rng = np.random.default_rng(1)
    g, g_next, c, gamma = rng.normal(size=7), rng.normal(size=7), 1.7, 0.9
    f, b = (-c * g).astype(np.float32), (c * gamma * g_next).astype(np.float32)
    _, seen = combine(orthogonal(1.0), as_tree(f), as_tree(b))
    cos = g @ g_next / np.linalg.norm(g) / np.linalg.norm(g_next)
    k = np.linalg.norm(g) / (gamma * np.linalg.norm(g_next))
    np.testing.assert_allclose(seen.eta_bound, (cos * k - k**2) / (1 - cos**2), rtol=1e-4)


@pytest.mark.parametrize("strength", [0.0, 1e-12, -0.99, 0.99, 1e6])
def test_diagnostics_of_parallel_gradients_are_finite(strength):
    """No perpendicular part is left, or only rounding: a number that is logged must not look like divergence."""
    f = 1e3 * np.random.default_rng(2).normal(size=7).astype(np.float32)
    _, seen = combine(orthogonal(1.0), as_tree(f), as_tree(np.float32(strength) * f))
    assert np.isfinite(seen).all()
    assert strength > 0 or seen.eta_bound <= 0  # B smaller than F and against it: the loss falls for any eta


# --- the same through a network -------------------------------------------------------------------------------------


def two_point_problem():
    rng = np.random.default_rng(0)
    x, y = (jnp.asarray(rng.normal(size=(2, 5, 3)), jnp.float32)[i] for i in range(2))
    params = {"w": jnp.asarray(rng.normal(size=3), jnp.float32), "c": jnp.asarray(0.3, jnp.float32)}
    network = lambda p, z: jnp.tanh(z @ p["w"]) + p["c"]
    frozen, frozen_next = (network(params, z) for z in (x, y))

    def losses(v, v_next):
        assert v.shape == v_next.shape == (5,)
        return LossPair(
            forward=lambda v: jnp.mean((1.0 + 0.9 * frozen_next - v) ** 2),
            backward=lambda v_next: jnp.mean((1.0 + 0.9 * v_next - frozen) ** 2),
            rest=lambda v: 0.4 * jnp.mean(v),
        )

    def total(p):
        v, v_next = network(p, x), network(p, y)
        return jnp.mean((1.0 + 0.9 * v_next - v) ** 2) + 0.4 * jnp.mean(v)

    run = lambda r, **kw: rule_gradient(r, params, lambda p: network(p, x), lambda p: network(p, y), losses, **kw)
    parts = {
        "forward": jax.grad(lambda p: jnp.mean((1.0 + 0.9 * frozen_next - network(p, x)) ** 2))(params),
        "backward": jax.grad(lambda p: jnp.mean((1.0 + 0.9 * network(p, y) - frozen) ** 2))(params),
        "rest": jax.grad(lambda p: 0.4 * jnp.mean(network(p, x)))(params),
    }
    return run, {k: as_vector(v) for k, v in parts.items()}, as_vector(jax.grad(total)(params))


@pytest.mark.parametrize("diagnose", [False, True])
def test_rules_through_a_network(diagnose):
    run, part, total = two_point_problem()
    get = lambda r: as_vector(run(r, diagnose=diagnose).gradient)
    np.testing.assert_allclose(get(true), total, rtol=1e-5)
    np.testing.assert_allclose(get(semi), part["forward"] + part["rest"], rtol=1e-5)
    f, b = part["forward"], part["backward"]
    perp = b - (f @ b) / (f @ f) * f
    np.testing.assert_allclose(get(orthogonal(0.7)), f + 0.7 * perp + part["rest"], rtol=1e-4)


def test_identities_of_the_rules():
    run, _, _ = two_point_problem()
    get = lambda r: as_vector(run(r, diagnose=True).gradient)
    np.testing.assert_allclose(get(orthogonal(0.0)), get(semi), rtol=1e-6)
    unprojected = orthogonal(1.0)._replace(project=False)
    np.testing.assert_allclose(get(unprojected), get(true), rtol=1e-6)


def test_networks_run_once_each():
    """The forward, linear and backward term share one evaluation per point."""
    calls = []

    def here(p):
        calls.append("here")
        return p * 1.0

    def there(p):
        calls.append("there")
        return p * 2.0

    pair = LossPair(jnp.sum, jnp.sum, jnp.sum)
    rule_gradient(orthogonal(1.0), jnp.ones(3), here, there, lambda *_: pair, diagnose=True)
    assert calls == ["here", "there"]


def test_bad_rules_are_refused():
    with pytest.raises(OdiceError, match="eta must be at least 0"):
        orthogonal(-0.1)
    with pytest.raises(OdiceError, match="eta"):
        orthogonal(float("nan"))
    with pytest.raises(OdiceError, match="Did you mean 'orthogonal'"):
        rule("ortogonal")
