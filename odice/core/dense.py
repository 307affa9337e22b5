"""A matrix product whose weight gradient is written the way a CPU computes it fastest.

Of y = x w, reverse mode makes the weight gradient x^T dy. XLA's fast matrix products for CPUs know no transposed left
side; a slower one steps in: a fifth slower for square layers, ten times slower for a layer with few outputs. So the
transposed matrix is made first, behind a barrier, or the compiler would fold it back into the product; and the
gradient of a narrow layer is computed as (dy^T x)^T (benchmarks/NOTES.md has the numbers).
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

Host = Array | np.ndarray

NARROW = 64
"""Up to this many columns a matrix counts as narrow."""
WIDE = 512
"""From more columns on, making the transposed matrix costs more than the slower product does."""


@jax.custom_vjp
def dense(x: Float[Host, "*b n"], weight: Float[Host, "n m"]) -> Float[Array, "*b m"]:
    """x @ weight. Both may lie on the host: a state that was fetched is evaluated too."""
    return jnp.matmul(x, weight)


def _forward(x, weight):
    return x @ weight, (x, weight)


def _backward(kept, dy):
    x, weight = kept
    return dy @ weight.T, weight_gradient(x.reshape(-1, x.shape[-1]), dy.reshape(-1, dy.shape[-1]))


dense.defvjp(_forward, _backward)


def weight_gradient(x: Float[Array, "b n"], dy: Float[Array, "b m"]) -> Float[Array, "n m"]:
    """x^T dy."""
    if dy.shape[-1] <= NARROW:
        return jax.lax.optimization_barrier(dy.T @ x).T
    if NARROW < x.shape[-1] <= WIDE:
        return jax.lax.optimization_barrier(x.T) @ dy
    return x.T @ dy
