"""How alike V's gradients at a state and at its successor are: the paper's measure of feature co-adaptation."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from odice.core.gradients import inner
from odice.core.networks import Ensemble
from odice.types import Batch


@jax.jit
def feature_products(value: Ensemble, batch: Batch) -> dict[str, Float[Array, ""]]:
    """`grad V(s) . grad V(s')` over a batch (Figure 3, right), their cosine, and the range of V.

    Gradients are with respect to all parameters of a head; products are averaged over heads and over transitions that
    do not terminate. Sample by sample: the gradients of a batch would not fit in memory.
    """
    slope = jax.grad(lambda value, obs: jnp.sum(value(obs[None])))

    def one(pair: tuple[Array, Array]) -> tuple[Array, Array]:
        here, there = slope(value, pair[0]), slope(value, pair[1])
        product = inner(here, there)
        length = jnp.sqrt(inner(here, here)) * jnp.sqrt(inner(there, there))
        return product / value.size, product / jnp.maximum(length, jnp.finfo(length.dtype).tiny)

    product, cosine = jax.lax.map(one, (batch.obs, batch.next_obs))
    values = value(batch.obs)
    fraction = batch.mask / jnp.maximum(jnp.sum(batch.mask), 1.0)
    return {
        "feature_product": jnp.sum(fraction * product),
        "feature_cosine": jnp.sum(fraction * cosine),
        "value_min": jnp.min(values),
        "value_max": jnp.max(values),
    }
