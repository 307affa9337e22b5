"""The mean residual over random next states, learned by a critic: a remedy for double sampling.

V-DICE evaluates f* at a residual with one sampled next state, and E[f*(R)] is above f*(E[R | s, a]). A critic Q(s, a)
learns r + gamma m V(s') by least squares, so that e(s, a) = Q(s, a) - V(s) is the mean of R over next states.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import PRNGKeyArray

from odice.core.critics import Critic
from odice.core.learner import Learned, Learner
from odice.core.networks import Ensemble
from odice.core.vdice import Heads
from odice.types import Batch


class NextState(NamedTuple):
    """An average of the residual over next states; it owns its state."""

    init: Callable[[PRNGKeyArray], Learned[Critic]]
    residual: Callable[[Any, Ensemble, Batch], Heads]
    """(state, V, batch) -> e(s, a), per head."""
    step: Callable[[Any, Ensemble, Batch, Heads], Learned[Critic]]
    """(state, V, batch, R) -> the state after one step of Q towards r + gamma m V(s'), which is R + V(s)."""


def next_state(learner: Learner, make: Callable[[PRNGKeyArray], Critic]) -> NextState:
    """The average by a critic, which `make` makes and `learner` trains."""

    def residual(state: Learned[Critic], value: Ensemble, batch: Batch) -> Heads:
        return state.params(batch.obs, batch.action) - value(batch.obs)

    def step(state: Learned[Critic], value: Ensemble, batch: Batch, residual: Heads) -> Learned[Critic]:
        target = jax.lax.stop_gradient(residual + value(batch.obs))
        error = lambda critic: jnp.mean(jnp.square(critic(batch.obs, batch.action) - target))
        return learner.step(state, jax.grad(error)(state.params))

    return NextState(lambda key: learner.init(make(key)), residual, step)
