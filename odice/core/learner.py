"""How parameters learn: an optimizer, its schedule and an average of the parameters, as two pure functions.

A `Learner` closes over hyper-parameters; what changes is a `Learned`, a pytree that goes into an algorithm's state:

    learner = Learner(learning_rate=1e-4)
    value = learner.init(network)              # Learned: value.params is the network
    value = learner.step(value, gradient)
"""

from __future__ import annotations

from typing import Any, Generic, NamedTuple, TypeVar, cast

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Int, PyTree

from odice.core.optim import adam

Params = TypeVar("Params")


class Average(NamedTuple):
    """The mean of the parameters over the latest updates."""

    params: Any
    updates: Int[Array, ""]


class Learned(eqx.Module, Generic[Params]):
    """Parameters with the state of what trains them."""

    params: Params
    opt_state: optax.OptState
    average: Average | None = None

    @property
    def final(self) -> Params:
        """The averaged parameters where there is an average, else the latest."""
        return self.params if self.average is None else self.average.params


class Learner(NamedTuple):
    """Adam, with what may be added to it."""

    learning_rate: float
    weight_decay: float = 0.0
    """Coupled: joined to the gradient before the moments (`optim.adam`); or `decoupled`."""
    cosine_steps: int | None = 0
    """The learning rate falls to 0 along a cosine over this many updates; 0 or None keeps it."""
    window: float = 0.0
    """Average the parameters over about the last 1/window of the updates so far; 0 keeps no average."""
    decoupled: bool = False
    """The weight decay is AdamW's: after the moments, times the learning rate."""

    @property
    def optimizer(self) -> optax.GradientTransformation:
        steps = self.cosine_steps
        rate = optax.cosine_decay_schedule(self.learning_rate, steps) if steps else self.learning_rate
        return optax.adamw(rate, weight_decay=self.weight_decay) if self.decoupled else adam(rate, self.weight_decay)

    def init(self, params: Params) -> Learned[Params]:
        """The parameters before their first step."""
        average = Average(jax.tree.map(jnp.copy, params), jnp.zeros((), jnp.int32)) if self.window else None
        return Learned(params, self.optimizer.init(cast(Any, params)), average)

    def step(self, learned: Learned[Params], gradient: PyTree) -> Learned[Params]:
        """The parameters after one step along a gradient."""
        updates, opt_state = self.optimizer.update(gradient, learned.opt_state, cast(Any, learned.params))
        params = cast(Params, optax.apply_updates(cast(Any, learned.params), updates))
        average = learned.average
        if average is not None:
            average = Average(running_mean(average.params, params, average.updates, self.window), average.updates + 1)
        return Learned(params, opt_state, average)


def running_mean(mean: Params, latest: Params, updates: Int[Array, ""], window: float) -> Params:
    """The mean over about the last 1/`window` of the updates so far, whatever the length of the run."""
    share = jnp.minimum(1.0, window / (updates + 1.0))
    return jax.tree.map(lambda m, x: m + share * (x - m), mean, latest)
