"""Random pairs of consecutive states on small value functions: what `theory` checks the paper's theorems on.

The gradients come from the code that trains (`core.gradients`, `core.vdice`); the losses that they change are written
out here. As in the paper's analysis the target network equals the online one, so both residuals of a pair have the same
f*'.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float

from odice.core import gradients, vdice
from odice.core.divergences import divergence
from odice.core.gradients import LossPair, Rule, RuleGradient
from odice.core.networks import MLP

GAMMA = 0.9
PEARSON = divergence("pearson")
SIZES = (3, 5, 5, 1)

Params = Float[Array, " p"]
Value = Callable[[Params, Any], Float[Array, " b"]]


def fast_jit(function: Callable) -> Callable:
    """`jax.jit` for tiny arrays: without LLVM's optimizer the many small programs here compile in half the time."""
    return jax.jit(function, compiler_options={"xla_backend_optimization_level": 0})


class Draw(NamedTuple):
    """One random problem; a `Family` stacks many along a leading axis."""

    params: Params
    here: Any
    """What V needs to know of s; of s' in `there`."""
    there: Any
    reward: Float[Array, " b"]


class Family(NamedTuple):
    """Many random problems with the same kind of value function."""

    name: str
    value: Value
    draws: Draw

    def map(self, measure: Callable[[At], Any]) -> Any:
        """`measure` of every draw, as numpy arrays."""
        return jax.device_get(fast_jit(jax.vmap(lambda draw: measure(At(self.value, draw))))(self.draws))


def orthogonal_step(forward: Params, backward: Params, eta: Float[Array, ""] | float) -> Params:
    """F + eta (B - kappa F) for an eta that may be traced."""
    rule = gradients.orthogonal()._replace(eta=eta)  # pyright: ignore[reportArgumentType]
    return gradients.combine(rule, forward, backward)[0]


class At(NamedTuple):
    """One draw's losses and gradients."""

    value: Value
    draw: Draw

    @property
    def params(self) -> Params:
        return self.draw.params

    def _losses(self, v: Array, v_next: Array) -> LossPair:
        frozen = vdice.freeze(gradients.true, v, v_next, v, v_next)
        mask = jnp.ones_like(self.draw.reward)
        # lam = 1 leaves the pair alone: the theorems are about f* without the linear term
        return vdice.losses(frozen, self.draw.reward, mask, divergence=PEARSON, lam=1.0, discount=GAMMA)

    def gradient(self, rule: Rule) -> RuleGradient:
        """What training would step along."""
        here = lambda params: self.value(params, self.draw.here)[None]
        there = lambda params: self.value(params, self.draw.there)[None]
        return gradients.rule_gradient(rule, self.params, here, there, self._losses)

    def split(self) -> tuple[Params, Params]:
        """The forward gradient F and the backward gradient B."""
        forward = self.gradient(gradients.semi).gradient
        return forward, self.gradient(gradients.true).gradient - forward

    def forward_loss(self, params: Params) -> Float[Array, ""]:
        """L_1: V(s') is fixed at the draw's parameters."""
        v_next = self.value(self.params, self.draw.there)
        return jnp.mean(PEARSON.conjugate(self.draw.reward + GAMMA * v_next - self.value(params, self.draw.here)))

    def loss(self, params: Params) -> Float[Array, ""]:
        """The total loss f*(r + gamma V(s') - V(s)): both values move."""
        return jnp.mean(PEARSON.conjugate(self.residual(params)))

    def residual(self, params: Params) -> Float[Array, " b"]:
        v, v_next = self.value(params, self.draw.here), self.value(params, self.draw.there)
        return self.draw.reward + GAMMA * v_next - v

    def features(self, params: Params) -> tuple[Params, Params]:
        """grad V(s) and grad V(s'), averaged over the draw's samples."""
        mean = lambda params, point: jnp.mean(self.value(params, point))
        return jax.grad(mean)(params, self.draw.here), jax.grad(mean)(params, self.draw.there)

    def psi(self, params: Params) -> Float[Array, ""]:
        """Psi: the feature dot product of consecutive states."""
        return jnp.vdot(*self.features(params))

    def hessians(self) -> tuple[Float[Array, "p p"], Float[Array, "p p"]]:
        """H(s) and H(s')."""
        curvature = jax.hessian(lambda params, point: jnp.mean(self.value(params, point)))
        return curvature(self.params, self.draw.here), curvature(self.params, self.draw.there)


def _family(name: str, value: Value, rng: np.random.Generator, params: np.ndarray, here: Any, there: Any) -> Family:
    """Add rewards that put residuals into (-1, 2), where Pearson's weight is positive: the theorems need f*' > 0."""
    draws = Draw(*jax.tree.map(jnp.asarray, (params, here, there)), reward=jnp.zeros(()))
    advance = fast_jit(jax.vmap(lambda p, a, b: value(p, a) - GAMMA * value(p, b)))(*draws[:3])
    return Family(name, value, draws._replace(reward=advance + rng.uniform(-1.0, 2.0, advance.shape)))


def _per_parameter(layers: list[float]) -> np.ndarray:
    """One number per layer, spread over a flat MLP: all weights, then all biases."""
    widths = list(pairwise(SIZES))
    return np.repeat(layers * 2, [i * o for i, o in widths] + [o for _, o in widths])


def with_mirrors(family: Family) -> Family:
    """Every network, then every network with its last layer negated: V becomes -V, residuals stay as they were."""
    draws, sign = family.draws, jnp.asarray(_per_parameter([1.0, 1.0, -1.0]))
    residual = family.map(lambda at: at.residual(at.params))
    mirrors = draws._replace(params=draws.params * sign[None], reward=2 * residual - draws.reward)
    return family._replace(draws=jax.tree.map(lambda *pair: jnp.concatenate(pair), draws, mirrors))


def networks(rng: np.random.Generator, activation: Callable[[Array], Array], count: int, batch: int = 1) -> Family:
    """Small MLPs at torch's initialization.

    s' is s, stretched by 1/4 to 4, with noise: so either gradient may be the longer.
    """
    shape = jax.eval_shape(lambda: MLP(jax.random.key(0), SIZES, activation=activation))
    unravel = ravel_pytree(jax.tree.map(lambda leaf: np.zeros(leaf.shape), shape))[1]
    # drawn in numpy: jax would spend longer on compiling its generator than on all the checks
    limit = _per_parameter([n**-0.5 for n in SIZES[:-1]])
    params = rng.uniform(-1.0, 1.0, (count, limit.size)) * limit
    s = rng.normal(size=(count, batch, SIZES[0]))
    s_next = s * 4 ** rng.uniform(-1, 1, (count, batch, 1)) + 0.3 * rng.normal(size=s.shape)
    value = lambda params, points: unravel(params)(points)[..., 0]
    return _family(activation.__name__, value, rng, params, s, s_next)


def quadratics(rng: np.random.Generator, count: int, size: int = 6, spread: float = 0.01) -> Family:
    """V = phi.theta + theta.H.theta / 2 with H near a multiple of 1: well-conditioned, as Theorem 3 has it in mind."""

    def points():
        noise = spread * rng.normal(size=(count, size, size))
        hessian = rng.uniform(0.5, 1.5, (count, 1, 1)) * np.eye(size) + noise + noise.transpose(0, 2, 1)
        return rng.normal(size=(count, 1, size)), hessian

    value = lambda params, point: point[0] @ params + jnp.vdot(params, point[1] @ params)[None] / 2
    return _family("quadratic", value, rng, 0.3 * rng.normal(size=(count, size)), points(), points())
