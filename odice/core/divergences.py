"""f-divergences as values: `f`, its non-negative convex conjugate, and the weight that conjugate hands to the policy.

DICE compares the policy's visitation P with the data's Q through D_f(P‖Q) = E_Q[f(P/Q)]. What the algorithms need of f
is

    conjugate(y) = sup_{x >= 0} (x y - f(x))        (`f*_p` in the paper's Lemma 1)
    weight(y)    = max(0, (f')^{-1}(y))             = d conjugate / dy  >= 0

The weight is the density ratio P/Q that a residual y asks for.

Numerics. Several conjugates have a pole, or grow like exp. From `y_cap` upwards each conjugate continues along its
tangent, so it stays convex, increasing and finite, and it is the *weight* that is capped (at `W_MAX` for the poles and
the exponentials). Clamping y instead would make the gradient vanish exactly where the residual is largest. The
derivative is given to jax explicitly as `weight`, so no unused branch can poison a gradient with NaN.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from odice.errors import OdiceError, unknown_name

Curve = Callable[[Float[Array, "*n"]], Float[Array, "*n"]]

W_MAX = 1e3
"""The largest weight of a divergence whose weight has a pole or grows exponentially. Policies clamp at 100, far
below."""

_POLE_GAP = 1e-4
"""How near float32 may come to a square-root pole: closer, rounding of y would dominate the weight."""

_Y_LIMIT = 1e15
"""Residuals beyond this saturate, so that squares and slopes stay inside float32."""


class Divergence(NamedTuple):
    """One f and what follows from it. All three curves act elementwise, except where `pointwise` is False."""

    name: str
    f: Curve
    conjugate: Curve
    weight: Curve
    y_max: float = math.inf
    """The conjugate is finite in exact arithmetic for y below this (at it, for some)."""
    y_cap: float = math.inf
    """From here on the implemented conjugate is its own tangent."""
    pointwise: bool = True
    """False when the conjugate couples the samples of a batch (last axis), as the Donsker-Varadhan form does."""


if TYPE_CHECKING:
    DivergenceLike = str | Divergence
    """A divergence, or the name of one."""
else:
    DivergenceLike = Any  # a command line cannot write the functions of a Divergence, and names it


def from_formulas(name: str, f: Curve, conjugate: Curve, weight: Curve, y_max=math.inf, y_cap=math.inf) -> Divergence:
    """Wraps textbook formulas, valid below `y_cap`, into curves that are safe for every finite float32."""
    top = min(y_cap, _Y_LIMIT)

    def safe_weight(y):
        return weight(jnp.clip(y, -_Y_LIMIT, top))

    @jax.custom_jvp
    def safe_conjugate(y):
        y = jnp.clip(y, -_Y_LIMIT, _Y_LIMIT)
        inside = jnp.minimum(y, top)
        return conjugate(inside) + weight(inside) * (y - inside)

    safe_conjugate.defjvps(lambda t, _, y: safe_weight(y) * t)
    return Divergence(name, f, safe_conjugate, safe_weight, y_max, y_cap)


def tempered(divergence: Divergence, temperature: Float[Array, ""] | float) -> Divergence:
    """`temperature` times f: a residual counts in units of the temperature, so rewards c times as large cancel with
    it."""
    return divergence._replace(
        f=lambda x: temperature * divergence.f(x),
        conjugate=lambda y: temperature * divergence.conjugate(y / temperature),
        weight=lambda y: divergence.weight(y / temperature),
        y_max=divergence.y_max * temperature,
        y_cap=divergence.y_cap * temperature,
    )


def _xlogx(x):
    positive = x > 0
    return jnp.where(positive, x * jnp.log(jnp.where(positive, x, 1.0)), 0.0)


def _positive(x):
    return jnp.maximum(x, 0.0)


def _pearson() -> Divergence:
    w = lambda y: _positive(1 + y / 2)
    return from_formulas("pearson", lambda x: (x - 1) ** 2, lambda y: w(y) ** 2 - 1, w)


def _half_pearson() -> Divergence:
    w = lambda y: _positive(1 + y)
    return from_formulas("half-pearson", lambda x: (x - 1) ** 2 / 2, lambda y: (w(y) ** 2 - 1) / 2, w)


def _soft_chi2() -> Divergence:
    # e^y below 0 and the chi-square line above: weights stay positive, so no sample is ever cut off.
    decay = lambda y: jnp.expm1(jnp.minimum(y, 0.0))
    f = lambda x: jnp.where(x < 1, _xlogx(x) - x + 1, (x - 1) ** 2 / 2)
    return from_formulas(
        "soft-chi2", f, lambda y: decay(y) + _positive(y) + _positive(y) ** 2 / 2, lambda y: 1 + decay(y) + _positive(y)
    )


def _soft_pearson() -> Divergence:
    # as soft-chi2, with Pearson's line in the place of half Pearson's above 1
    decay = lambda y: jnp.expm1(jnp.minimum(y, 0.0))
    f = lambda x: jnp.where(x < 1, _xlogx(x) - x + 1, (x - 1) ** 2)
    return from_formulas(
        "soft-pearson",
        f,
        lambda y: decay(y) + _positive(y) + _positive(y) ** 2 / 4,
        lambda y: 1 + decay(y) + _positive(y) / 2,
    )


def _kl() -> Divergence:
    w = lambda y: jnp.exp(y - 1)
    return from_formulas("kl", _xlogx, w, w, y_cap=1 + math.log(W_MAX))


def _kl_normalized() -> Divergence:
    return from_formulas(
        "kl-normalized", lambda x: _xlogx(x) - x + 1, jnp.expm1, jnp.exp, y_cap=math.log(W_MAX)
    )  # f(1) = f'(1) = 0: a zero residual has weight 1


def _kl_donsker_varadhan() -> Divergence:
    """KL with E_Q[w] = 1 enforced. The dual is log E_Q[e^y] in place of E_Q[f*(y)].

    `conjugate` returns that one number for every sample of the last axis: its mean is the dual, and the gradient of its
    sum is `weight`, as for the pointwise ones. Weights average to 1, so they are at most the batch size: nothing to
    cap.
    """

    def weight(y):
        return jax.nn.softmax(jnp.clip(y, -_Y_LIMIT, _Y_LIMIT), axis=-1) * y.shape[-1]

    @jax.custom_jvp
    def conjugate(y):
        log_sum = jax.nn.logsumexp(jnp.clip(y, -_Y_LIMIT, _Y_LIMIT), axis=-1, keepdims=True)
        return jnp.broadcast_to(log_sum - math.log(y.shape[-1]), y.shape)

    @conjugate.defjvp
    def _(primals, tangents):
        (y,), (t,) = primals, tangents
        return conjugate(y), jnp.broadcast_to(jnp.mean(weight(y) * t, axis=-1, keepdims=True), y.shape)

    return Divergence("kl-dv", _xlogx, conjugate, weight, pointwise=False)


def _forward_kl() -> Divergence:
    return from_formulas(
        "forward-kl",
        lambda x: -jnp.log(x) + x - 1,
        lambda y: -jnp.log1p(-y),
        lambda y: 1 / (1 - y),
        y_max=1.0,
        y_cap=1 - 1 / W_MAX,
    )


def _forward_kl_raw() -> Divergence:
    return from_formulas(
        "forward-kl-raw",
        lambda x: -jnp.log(x),
        lambda y: -1 - jnp.log(-y),
        lambda y: -1 / y,
        y_max=0.0,
        y_cap=-1 / W_MAX,
    )


def _hellinger() -> Divergence:
    return from_formulas(
        "hellinger",
        lambda x: (jnp.sqrt(x) - 1) ** 2,
        lambda y: y / (1 - y),
        lambda y: 1 / (1 - y) ** 2,
        y_max=1.0,
        y_cap=1 - W_MAX**-0.5,
    )


def _le_cam() -> Divergence:
    # (f')^{-1} is negative below -3/2, where the constrained conjugate is the constant -f(0).
    bend = lambda y: jnp.maximum(y, -1.5)
    return from_formulas(
        "le-cam",
        lambda x: (x - 1) ** 2 / (2 * (x + 1)),
        lambda y: 2 - bend(y) - 2 * jnp.sqrt(1 - 2 * bend(y)),
        lambda y: _positive(2 / jnp.sqrt(1 - 2 * bend(y)) - 1),
        y_max=0.5,
        y_cap=(1 - _POLE_GAP) / 2,
    )


def _le_cam_alternative() -> Divergence:
    bend = lambda y: jnp.maximum(y, -1.0)
    return from_formulas(
        "le-cam-alternative",
        lambda x: (1 - x) / (2 * (x + 1)),
        lambda y: 0.5 - bend(y) - 2 * jnp.sqrt(-bend(y)),
        lambda y: _positive(1 / jnp.sqrt(-bend(y)) - 1),
        y_max=0.0,
        y_cap=-((W_MAX + 1) ** -2),
    )


def _jensen_shannon() -> Divergence:
    return from_formulas(
        "jensen-shannon",
        lambda x: _xlogx(x) - (x + 1) * jnp.log((x + 1) / 2),
        lambda y: -jnp.log1p(-jnp.expm1(y)),
        lambda y: jnp.exp(y) / (1 - jnp.expm1(y)),
        y_max=math.log(2),
        y_cap=math.log(2 * W_MAX / (1 + W_MAX)),
    )


def _total_variation() -> Divergence:
    # The conjugate is +inf above 1/2. A bounded slope is the only usable surrogate: it goes on with slope 1.
    return from_formulas(
        "total-variation",
        lambda x: jnp.abs(x - 1) / 2,
        lambda y: jnp.maximum(y, -0.5),
        lambda y: jnp.where(y > -0.5, jnp.ones_like(y), jnp.zeros_like(y)),
        y_max=0.5,
        y_cap=0.5,
    )


def _neyman() -> Divergence:
    return from_formulas(
        "neyman",
        lambda x: (x - 1) ** 2 / x,
        lambda y: 2 - 2 * jnp.sqrt(1 - y),
        lambda y: 1 / jnp.sqrt(1 - y),
        y_max=1.0,
        y_cap=1 - _POLE_GAP,
    )


def alpha(a: float) -> Divergence:
    """The Cressie-Read / Amari family; a = 2 is half Pearson, 1/2 twice Hellinger, -1 half Neyman, a -> 1 and 0 the two
    KLs."""
    if a in (0.0, 1.0):
        raise ValueError("alpha(0) is 'forward-kl' and alpha(1) is 'kl-normalized'; the formula here divides by zero")
    p = 1 / (a - 1)
    if a > 1:  # base 0 at y = -p: below it the constrained conjugate is the constant -1/a
        base = lambda y: _positive(1 + (a - 1) * y)
        y_max = math.inf
        y_cap = math.inf if a >= 2 else (W_MAX ** (a - 1) - 1) / (a - 1)  # at most linear growth needs no cap
    else:  # a pole at y = 1/(1-a)
        base = lambda y: 1 + (a - 1) * y
        y_max = 1 / (1 - a)
        y_cap = (1 - max(W_MAX ** (a - 1), _POLE_GAP)) / (1 - a)
    return from_formulas(
        f"alpha({a:g})",
        lambda x: (x**a - a * x - (1 - a)) / (a * (a - 1)),
        lambda y: (base(y) ** (a * p) - 1) / a,
        lambda y: base(y) ** p,
        y_max,
        y_cap,
    )


DIVERGENCES: dict[str, Divergence] = {
    d.name: d
    for d in (
        _pearson(),
        _half_pearson(),
        _soft_chi2(),
        _soft_pearson(),
        _kl(),
        _kl_normalized(),
        _kl_donsker_varadhan(),
        _forward_kl(),
        _forward_kl_raw(),
        _hellinger(),
        _le_cam(),
        _le_cam_alternative(),
        _jensen_shannon(),
        _total_variation(),
        _neyman(),
    )
}


def register_divergence(new: Divergence) -> Divergence:
    """Make a divergence known by its name; one that is taken is refused."""
    if new.name in DIVERGENCES:
        raise OdiceError(f"A divergence called {new.name!r} is registered already; choose another name.")
    DIVERGENCES[new.name] = new
    return new


def divergence(name: DivergenceLike) -> Divergence:
    """A divergence by name (a `Divergence` is given back as it is); `alpha(0.5)` names a member of the alpha family."""
    if isinstance(name, Divergence):
        return name
    if name in DIVERGENCES:
        return DIVERGENCES[name]
    if name.startswith("alpha(") and name.endswith(")"):
        try:
            a = float(name[len("alpha(") : -1])
        except ValueError:
            a = math.nan
        if math.isfinite(a) and a not in (0.0, 1.0):
            return alpha(a)
    raise unknown_name("divergence", name, [*DIVERGENCES, "alpha(A) with a number A other than 0 and 1"])
