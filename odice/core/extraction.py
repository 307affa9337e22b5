"""From values to a policy: how much each transition of the data should be imitated, and the imitation itself."""

from __future__ import annotations

import math
from typing import Literal

import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from odice.core.divergences import Divergence
from odice.core.networks import Policy

WeightForm = Literal["residual", "ratio", "excess"]
"""What a residual R is worth, written out for Pearson chi-square:

`ratio`     max(0, R/2 + 1)   the density ratio (f')^{-1}(R) of Algorithm 1
`excess`    max(0, R/2)       the ratio above that of a zero residual: drops the "+1"
`residual`  max(0, R)         drops the "+1" and the factor: the paper's appendix and the reference code
"""


def residual_weight(
    residual: Float[Array, "*n"], divergence: Divergence, form: WeightForm, clamp: float
) -> Float[Array, "*n"]:
    """The imitation weight of a residual, between 0 and `clamp`."""
    if form == "residual":
        weight = residual
    elif form == "excess":
        weight = divergence.weight(residual) - divergence.weight(jnp.zeros_like(residual))
    else:
        weight = divergence.weight(residual)
    return jnp.clip(weight, 0.0, clamp)


def advantage_weight(advantage: Float[Array, " b"], temperature: float, clamp: float) -> Float[Array, " b"]:
    """min(exp(temperature * advantage), clamp): advantage-weighted regression, without overflow on the way."""
    return jnp.exp(jnp.minimum(temperature * advantage, math.log(clamp)))


def weighted_cloning(
    policy: Policy,
    weight: Float[Array, " b"],
    obs: Float[Array, "b obs"],
    action: Float[Array, "b act"] | Int[Array, " b"],
) -> Float[Array, ""]:
    """-E[w log pi(a|s)]. The weight has one number per sample: average the heads of a twin before."""
    return -jnp.mean(weight * policy.log_prob(obs, action))


def effective_sample_size(weight: Float[Array, " b"]) -> Float[Array, ""]:
    """(sum w)^2 / sum w^2, as a share of the batch: 1 when all weights are equal, 1/b when one sample has everything."""
    total, squares = jnp.sum(weight), jnp.sum(weight * weight)
    return total * total / jnp.maximum(squares * weight.shape[0], jnp.finfo(weight.dtype).tiny)
