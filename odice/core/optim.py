"""Slow copies of networks, and the optimizers every algorithm shares."""

from __future__ import annotations

from typing import Any, TypeVar, cast

import jax
import optax
from jaxtyping import PyTree

Params = TypeVar("Params")


def polyak(online: Params, target: Params, rate: float) -> Params:
    """target <- rate * online + (1 - rate) * target."""
    return jax.tree.map(lambda o, t: rate * o + (1.0 - rate) * t, online, target)


def adam(learning_rate: float | optax.Schedule, weight_decay: float = 0.0) -> optax.GradientTransformation:
    """Adam with *coupled* weight decay: the decay joins the gradient before the moments, as torch's
    `Adam(weight_decay)`.

    `optax.adamw` decays after them, which is another algorithm. Applies to every parameter, biases and log-std
    included.
    """
    if weight_decay == 0.0:
        return optax.adam(learning_rate)
    return optax.chain(optax.add_decayed_weights(weight_decay), optax.adam(learning_rate))


def step(
    optimizer: optax.GradientTransformation, gradient: PyTree, opt_state: optax.OptState, params: Params
) -> tuple[Params, optax.OptState]:
    """One optimizer step: (new parameters, new optimizer state)."""
    updates, opt_state = optimizer.update(gradient, opt_state, cast(Any, params))
    return cast(Params, optax.apply_updates(cast(Any, params), updates)), opt_state


def opt_init(optimizer: optax.GradientTransformation, params: PyTree) -> optax.OptState:
    """An optimizer's state before its first step."""
    return optimizer.init(cast(Any, params))
