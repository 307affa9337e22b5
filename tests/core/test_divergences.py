"""Every divergence against a supremum taken on a grid, and the properties the algorithms rely on."""

from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from odice.core.divergences import DIVERGENCES, W_MAX, alpha, divergence
from odice.errors import OdiceError

ALPHAS = [alpha(a) for a in (-1.0, -0.5, 0.5, 1.5, 2.0, 3.0)]
POINTWISE = [d for d in DIVERGENCES.values() if d.pointwise] + ALPHAS
finite_floats = st.floats(allow_nan=False, allow_infinity=False, width=32)
each = pytest.mark.parametrize("d", POINTWISE, ids=lambda d: d.name)

# f written once more in numpy float64, straight from the table of f-divergences.
F = {
    "pearson": lambda x: (x - 1) ** 2,
    "half-pearson": lambda x: 0.5 * (x - 1) ** 2,
    "soft-chi2": lambda x: np.where(x < 1, x * np.log(x) - x + 1, 0.5 * (x - 1) ** 2),
    "soft-pearson": lambda x: np.where(x < 1, x * np.log(x) - x + 1, (x - 1) ** 2),
    "kl": lambda x: x * np.log(x),
    "kl-normalized": lambda x: x * np.log(x) - x + 1,
    "forward-kl": lambda x: x - 1 - np.log(x),
    "forward-kl-raw": lambda x: -np.log(x),
    "hellinger": lambda x: x - 2 * np.sqrt(x) + 1,
    "le-cam": lambda x: (1 - x) ** 2 / (2 * x + 2),
    "le-cam-alternative": lambda x: (1 - x) / (2 * x + 2),
    "jensen-shannon": lambda x: x * np.log(x) - (1 + x) * np.log((1 + x) / 2),
    "total-variation": lambda x: 0.5 * np.abs(x - 1),
    "neyman": lambda x: x - 2 + 1 / x,
} | {f"alpha({a:g})": (lambda x, a=a: (x**a - a * x - (1 - a)) / (a * (a - 1))) for a in (-1, -0.5, 0.5, 1.5, 2, 3)}

GRID = np.concatenate([[1e-12], np.geomspace(1e-9, 3e3, 400_001)])


@cache
def compiled(name):
    d = {d.name: d for d in POINTWISE}[name]
    return jax.jit(lambda y: (d.conjugate(y), jax.vmap(jax.grad(d.conjugate))(y), d.weight(y)))


def evaluate(d, y):
    """Value, autodiff slope and weight, as numpy arrays."""
    return tuple(np.asarray(v) for v in compiled(d.name)(jnp.asarray(y)))


def residuals_inside(d, n=41):
    """Residuals in the domain where the weight stays below 100: wide enough to see every branch."""
    y = np.linspace(-6.0, min(d.y_cap, 6.0), 4001, dtype=np.float32)
    weight = np.asarray(d.weight(jnp.asarray(y)))
    y = y[weight < 100]
    return y[np.linspace(0, len(y) - 1, n).astype(int)]


@each
def test_f_is_the_tabled_function(d):
    x = np.geomspace(1e-3, 50, 101)
    np.testing.assert_allclose(d.f(jnp.asarray(x, jnp.float32)), F[d.name](x), rtol=2e-4, atol=2e-5)


@each
def test_conjugate_is_the_supremum_over_nonnegative_x(d):
    y = residuals_inside(d)
    f = F[d.name](GRID)
    supremum = np.array([np.max(GRID * v - f) for v in y.astype(np.float64)])
    np.testing.assert_allclose(d.conjugate(jnp.asarray(y)), supremum, rtol=1e-3, atol=1e-4)


@each
def test_weight_is_the_maximizer(d):
    if d.name == "total-variation":
        pytest.skip("its maximizer is set-valued")
    y = residuals_inside(d)
    f = F[d.name](GRID)
    maximizer = np.array([GRID[np.argmax(GRID * v - f)] for v in y.astype(np.float64)])
    np.testing.assert_allclose(d.weight(jnp.asarray(y)), maximizer, rtol=5e-3, atol=1e-3)


@each
def test_gradient_of_the_conjugate_is_the_weight_by_finite_differences(d):
    y = residuals_inside(d)[1:-1].astype(np.float64)
    if d.name == "total-variation":
        y = y[np.abs(np.abs(y) - 0.5) > 0.02]  # kinks
    h = 1e-4
    with jax.enable_x64(True):
        wide = lambda v: np.asarray(d.conjugate(jnp.asarray(v, jnp.float64)))
        slope = (wide(y + h) - wide(y - h)) / (2 * h)
    np.testing.assert_allclose(d.weight(jnp.asarray(y, jnp.float32)), slope, rtol=1e-2, atol=1e-3)


@each
@settings(max_examples=20)
@given(y=arrays(np.float32, 256, elements=finite_floats))
def test_finite_everywhere_and_grad_equals_weight(d, y):
    value, slope, weight = evaluate(d, y)
    assert np.isfinite(value).all()
    assert np.isfinite(slope).all()
    np.testing.assert_array_equal(slope, weight)
    assert (weight >= 0).all()  # Lemma 1


@each
@settings(max_examples=20)
@given(ends=arrays(np.float64, (2, 64), elements=st.floats(-1e4, 1e4)), t=st.floats(0, 1))
def test_convex_and_increasing(d, ends, t):
    low, high = np.sort(ends, axis=0)
    with jax.enable_x64(True):
        (c_low, _, w_low), (c_high, _, w_high) = evaluate(d, low), evaluate(d, high)
        c_between = evaluate(d, t * low + (1 - t) * high)[0]
    slack = 1e-9 * (1 + np.abs(c_low) + np.abs(c_high))
    assert (c_low <= c_high + slack).all()
    assert (w_low <= w_high + 1e-9).all()
    assert (c_between <= t * c_low + (1 - t) * c_high + slack).all()


@pytest.mark.parametrize("name", ["kl", "forward-kl", "hellinger", "jensen-shannon", "alpha(0.5)"])
def test_weight_is_capped_not_cut(name):
    d = divergence(name)
    far = jnp.float32(1e6)
    assert 10 < float(d.weight(far)) <= W_MAX * 1.01  # still pulls: clamping y would have given a zero gradient


@pytest.mark.parametrize(
    ("a", "name", "factor"), [(2.0, "half-pearson", 1), (0.5, "hellinger", 2), (-1.0, "neyman", 0.5)]
)
def test_alpha_family_contains_its_relatives(a, name, factor):
    y = np.linspace(-0.4, 0.4, 9, dtype=np.float32)
    relative = divergence(name)  # (c f)*(y) = c f*(y / c)
    np.testing.assert_allclose(
        alpha(a).conjugate(jnp.asarray(y)), factor * relative.conjugate(jnp.asarray(y / factor)), atol=1e-5
    )


def test_donsker_varadhan_enforces_mean_weight_one():
    d = divergence("kl-dv")
    y = jnp.asarray(np.random.default_rng(0).normal(size=(2, 64)), jnp.float32)
    expected = np.log(np.mean(np.exp(np.asarray(y, np.float64)), axis=1))
    np.testing.assert_allclose(jnp.mean(d.conjugate(y), axis=1), expected, rtol=1e-5)
    np.testing.assert_allclose(jnp.mean(d.weight(y), axis=1), 1.0, rtol=1e-5)
    np.testing.assert_allclose(jax.grad(lambda v: jnp.sum(d.conjugate(v)))(y), d.weight(y), rtol=1e-5)
    huge = jnp.asarray([1e30, -1e30, 0.0], jnp.float32)
    assert np.isfinite(jax.grad(lambda v: jnp.sum(d.conjugate(v)))(huge)).all()


@pytest.mark.parametrize("name", ["pearsn", "alpha(1)", "alpha(x)", "alpha(nan)", ""])
def test_unknown_divergence_lists_the_valid_ones(name):
    with pytest.raises(OdiceError, match=r"Valid: .*pearson"):
        divergence(name)
