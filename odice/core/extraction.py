"""From values to a policy: how much each transition of the data should be imitated, and the imitation itself."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Literal, NamedTuple, Protocol, runtime_checkable

import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray

from odice.core.divergences import Divergence

WeightForm = Literal["residual", "ratio", "excess"]
"""What a residual R is worth, written out for Pearson chi-square:

`ratio`     max(0, R/2 + 1)   the density ratio (f')^{-1}(R) of Algorithm 1
`excess`    max(0, R/2)       the ratio above that of a zero residual: drops the "+1"
`residual`  max(0, R)         drops the "+1" and the factor: the paper's appendix and the reference code

What is dropped is chi-square's. With KL the reference code weighs by the ratio e^(R - 1), and so does `residual`.
"""


@runtime_checkable
class Density(Protocol):
    """A policy with log pi(a|s)."""

    def log_prob(self, obs: Any, action: Any) -> Float[Array, " b"]: ...


class Extraction(NamedTuple):
    """From residuals to imitation weights; it owns its state, as an optax transformation does."""

    init: Callable[[PRNGKeyArray], Any]
    weigh: Callable[..., tuple[Float[Array, " b"], Any, dict[str, Float[Array, ""]]]]
    """(state, residuals (heads, b), divergence, batch) -> (weight, next state, metrics)."""


def residual_extraction(form: WeightForm, clamp: float) -> Extraction:
    """The paper's weight, which needs no state; of twin values, the mean of the clamped weights."""

    def weigh(state, residual: Float[Array, "heads b"], divergence: Divergence, batch):
        del batch
        return jnp.mean(residual_weight(residual, divergence, form, clamp), axis=0), state, {}

    return Extraction(lambda key: None, weigh)


def residual_weight(
    residual: Float[Array, "*n"], divergence: Divergence, form: WeightForm, clamp: float
) -> Float[Array, "*n"]:
    """The imitation weight of a residual, between 0 and `clamp`."""
    if form == "residual" and divergence.name != "kl":
        weight = residual
    elif form == "excess":
        weight = divergence.weight(residual) - divergence.weight(jnp.zeros_like(residual))
    else:
        weight = divergence.weight(residual)
    return jnp.clip(weight, 0.0, clamp)


def advantage_weight(advantage: Float[Array, " b"], temperature: float, clamp: float) -> Float[Array, " b"]:
    """min(exp(temperature * advantage), clamp): advantage-weighted regression, without overflow on the way."""
    return jnp.exp(jnp.minimum(temperature * advantage, math.log(clamp)))


def log_ratio(x: Float[Array, " b"], divergence: str, *, floor_below_one: bool = False) -> Float[Array, " b"]:
    """log w(x) in a form whose gradient does not vanish or overflow where w is small.

    Half Pearson's w is 0 below x = -1: there its log is held at log(1e-10). `floor_below_one` does so for every x < 0,
    which is what OptiDICE's released code does by mistake.
    """
    if divergence == "kl":
        return x - 1
    above = jnp.log1p(jnp.maximum(x, 0.0))
    if divergence == "soft-chi2":
        return jnp.where(x < 0, x, above)
    tiny = math.log(1e-10)
    below = jnp.full_like(x, tiny) if floor_below_one else jnp.log(jnp.maximum(1 + jnp.minimum(x, 0.0), 1e-10))
    return jnp.where(x < 0, below, above)


def weighted_cloning(
    policy: Density,
    weight: Float[Array, " b"],
    obs: Float[Array, "b obs"],
    action: Float[Array, "b act"] | Int[Array, " b"],
) -> Float[Array, ""]:
    """-E[w log pi(a|s)]. The weight has one number per sample: average the heads of a twin before."""
    return -jnp.mean(weight * policy.log_prob(obs, action))


def effective_sample_size(weight: Float[Array, " b"]) -> Float[Array, ""]:
    """(sum w)^2 / sum w^2, as a share of the batch: 1 when all weights are equal, 1/b when one sample has
    everything."""
    total, squares = jnp.sum(weight), jnp.sum(weight * weight)
    return total * total / jnp.maximum(squares * weight.shape[0], jnp.finfo(weight.dtype).tiny)
