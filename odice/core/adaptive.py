"""Numbers that an update adapts instead of asking for them: the divergence's temperature, and the policy's choice.

Both are steered by the effective sample size (ESS) of weights, the share of the data that is really used. For Pearson's
chi-square and weights of mean 1 it is the divergence itself: ESS = 1 / (1 + E[(w - 1)^2]). So holding it is staying
within a distance of the data, with the temperature as the multiplier of that constraint; and it has no unit, so it
means the same on every log.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from odice.core.extraction import effective_sample_size

RATE = 0.01
"""Of the gap between the wanted and the found logarithm of the ESS, closed per update."""
START = 2.0
"""The first log temperature. High, so that the first values are those of the data; it falls from there."""
TINY = 1e-6
"""Floor of scales, for batches without any difference in them."""


class Choice(NamedTuple):
    """Which residuals the policy imitates: those above `threshold` standard deviations `spread`."""

    threshold: Float[Array, ""]
    spread: Float[Array, ""]


def first_temperature() -> Float[Array, ""]:
    return jnp.full((), START, jnp.float32)  # a weak type would compile the loop twice


def next_temperature(log_temperature: Float[Array, ""], weight: Float[Array, " b"], wanted: float) -> Float[Array, ""]:
    """Warmer where the weights rest on fewer samples than wanted, colder where on more."""
    return log_temperature + RATE * _gap(weight, wanted)


def first_choice() -> Choice:
    return Choice(jnp.zeros(()), jnp.ones(()))


def choice_weight(residual: Float[Array, " b"], choice: Choice, clamp: float) -> Float[Array, " b"]:
    """max(0, R / spread - threshold), divided by its mean over the batch, at most `clamp`."""
    above = jnp.maximum(residual / choice.spread - choice.threshold, 0.0)
    return jnp.minimum(above / jnp.maximum(jnp.mean(above), TINY), clamp)


def next_choice(choice: Choice, residual: Float[Array, " b"], weight: Float[Array, " b"], wanted: float) -> Choice:
    """A lower threshold where the policy rests on fewer samples than wanted; the spread follows the residuals'."""
    ratio = jnp.log(jnp.maximum(jnp.std(residual), TINY) / choice.spread)
    return Choice(
        threshold=choice.threshold - RATE * _gap(weight, wanted),
        spread=choice.spread * jnp.exp(RATE * ratio),
    )


def _gap(weight: Float[Array, " b"], wanted: float) -> Float[Array, ""]:
    """log wanted - log found. A batch without any weight counts as one sample."""
    found = jnp.maximum(effective_sample_size(weight), 1.0 / weight.shape[0])
    return jnp.log(wanted) - jnp.log(found)


def running_mean(mean, latest, step, window: float):
    """The mean over the last 1/`window` of all updates so far: it needs no length of the run, and forgets the
    beginning."""
    share = jnp.minimum(1.0, window / (step + 1.0))
    return jax.tree.map(lambda m, x: m + share * (x - m), mean, latest)
