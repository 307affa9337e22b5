"""The log density ratio of demonstrations and other data, learnt by classification.

    c  minimizes  E_expert[-log sigmoid(c)] + E_union[-log(1 - sigmoid(c))] + k E[(||grad c|| - 1)^2]

At the minimum without the penalty, c = log d_expert / d_union. The penalty is taken at random points between the two
samples; it keeps c finite where they do not overlap.
"""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

Points = tuple[Array, ...]
"""Inputs of a network, row by row: (s,) or (s, a). Whole numbers are choices: nothing lies between them."""


def classification_loss(expert: Float[Array, "*b"], union: Float[Array, "*n"]) -> Float[Array, ""]:
    """Cross entropy of the logits, one class each. Written with softplus: it does not overflow."""
    return jnp.mean(jax.nn.softplus(-expert)) + jnp.mean(jax.nn.softplus(union))


def log_odds(logit: Float[Array, "*b"], smooth: float) -> Float[Array, "*b"]:
    """log p / (1 - p) with p = sigmoid(logit): the logit itself, bounded at both ends if `smooth` > 0.

    -log(1 / (p + smooth) - 1 + smooth) is DemoDICE's form; 1e-3 keeps it between -6.9 and 13.8.
    """
    if smooth == 0:
        return logit
    return -jnp.log(1 / (jax.nn.sigmoid(logit) + smooth) - 1 + smooth)


def interpolate(key: PRNGKeyArray, a: Points, b: Points) -> Points:
    """A random point between two rows, with one mixing weight for all its parts; a choice comes from the nearer one."""
    mix_weight = jax.random.uniform(key, (a[0].shape[0],))

    def mix(x: Array, y: Array) -> Array:
        if not jnp.issubdtype(x.dtype, jnp.floating):
            return jnp.where(mix_weight > 0.5, x, y)
        return mix_weight[:, None] * x + (1 - mix_weight[:, None]) * y

    return tuple(map(mix, a, b))


def grad_norm(network: Callable[..., Array], points: Points) -> Float[Array, " b"]:
    """||grad f|| at each row, over the parts that are real numbers, for a network with one head."""
    real = tuple(i for i, part in enumerate(points) if jnp.issubdtype(part.dtype, jnp.floating))
    parts = jax.grad(lambda *inputs: jnp.sum(network(*inputs)), argnums=real)(*points)
    squares = jnp.sum(jnp.square(jnp.concatenate(parts, axis=-1)), axis=-1)
    return jnp.sqrt(squares + jnp.finfo(squares.dtype).eps ** 2)  # a root has no gradient at 0


STEEP = 5.0
"""Slopes up to here are free."""


def steepness(
    network: Callable[..., Array], a: Float[Array, "b n"], b: Float[Array, "b n"], key: PRNGKeyArray
) -> Float[Array, ""]:
    """E[max(0, ||grad f|| - 5)^2] at random points between two samples, for a network with one head."""
    norms = grad_norm(network, interpolate(key, (a,), (b,)))
    return jnp.mean(jnp.square(jnp.maximum(norms - STEEP, 0.0)))
