"""Numbers that an update adapts to the data: the divergence's temperature, and the threshold of imitation.

Both are steered by the effective sample size (ESS) of weights, the share of the data that is really used. For Pearson's
chi-square and weights of mean 1 it is the divergence itself: ESS = 1 / (1 + E[(w - 1)^2]). So holding it is staying
within a distance of the data, with the temperature as the multiplier of that constraint; and it has no unit, so it
means the same on every log.

`Temperature` and `Extraction` are parts of an algorithm that own their state, as optax's transformations do.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from odice.core.divergences import Divergence, tempered
from odice.core.extraction import Extraction, effective_sample_size
from odice.core.learner import Learned, Learner
from odice.core.networks import Ensemble
from odice.core.vdice import Heads
from odice.types import Batch

RATE = 0.01
"""Share of the gap between the target's and the measured logarithm of the ESS that one update closes."""
START = 2.0
"""The first log temperature. High, so that the first values are those of the data; it falls from there."""
TINY = 1e-6
"""Floor of scales, for batches without any difference in them."""


class Temperature(NamedTuple):
    """A divergence whose temperature is adapted."""

    init: Callable[[], Float[Array, ""] | None]
    divergence: Callable[[Any], Divergence]
    """state -> f at the temperature of this update."""
    step: Callable[[Any, Heads], Any]
    """(state, residuals of V's weights) -> the state of the next update."""


def fixed_temperature(f: Divergence) -> Temperature:
    """The divergence as it is."""
    return Temperature(lambda: None, lambda _: f, lambda state, _: state)


def adapted_temperature(f: Divergence, target_ess: float) -> Temperature:
    """The temperature at which the weights f*'(R / T) have the ESS `target_ess`; its state is log T."""

    def at(log_temperature: Float[Array, ""]) -> Divergence:
        return tempered(f, jnp.exp(log_temperature))

    def step(log_temperature: Float[Array, ""], residual: Heads) -> Float[Array, ""]:
        weight = jnp.mean(at(log_temperature).weight(residual), axis=0)
        return log_temperature + RATE * _gap(weight, target_ess)

    first = lambda: jnp.full((), START, jnp.float32)  # a weak type would compile the loop twice
    return Temperature(first, at, step)


class Threshold(NamedTuple):
    """Residuals above `level` standard deviations `spread` are imitated."""

    level: Float[Array, ""]
    spread: Float[Array, ""]


class ThresholdState(NamedTuple):
    threshold: Threshold
    baseline: Learned[Ensemble]
    state_weight: Learned[Ensemble] | None = None


def threshold_extraction(
    target_ess: float,
    clamp: float,
    *,
    learner: Learner,
    make_baseline: Callable[[PRNGKeyArray], Ensemble],
    credit_weight: float = 0.0,
    balance: float = 0.0,
) -> Extraction:
    """Weights max(0, A / spread - level), divided by their mean, whose ESS is held at `target_ess`.

    Args:
        target_ess: share of the data that the weights rest on.
        clamp: largest weight.
        learner: trains the baseline, and n.
        make_baseline: makes a network b(s) that learns A's mean in each state by least squares and is taken from A:
            what is left belongs to the action. It makes n too.
        credit_weight: how much the column `credit` counts in A next to the residual, each in its own standard
            deviations.
        balance: kappa in the weight (w + kappa) / (n(s) + kappa), where n(s) is a network that learns w's mean in each
            state. So every state has the weight that it has in the log, and where no action stands out all are
            imitated alike. 0 leaves w as it is.
    """

    def init(key: PRNGKeyArray) -> ThresholdState:
        state_weight = learner.init(make_baseline(jax.random.fold_in(key, 1))) if balance else None
        return ThresholdState(Threshold(jnp.zeros(()), jnp.ones(())), learner.init(make_baseline(key)), state_weight)

    def with_credit(residual: Heads, batch: Batch) -> Heads:
        if not credit_weight:
            return residual
        credit = batch.column("credit")[None]
        return residual / jnp.maximum(jnp.std(residual), TINY) + credit_weight * credit

    def without_baseline(baseline: Learned[Ensemble], residual: Heads, batch: Batch):
        """A - b(s), and the baseline after one step towards A."""
        target = jnp.mean(jax.lax.stop_gradient(residual), axis=0, keepdims=True)
        explained, pull = jax.vjp(lambda network: network(batch.obs), baseline.params)
        (gradient,) = pull(2.0 * (explained - target) / target.size)
        return residual - explained, learner.step(baseline, gradient)

    def balanced(state_weight: Learned[Ensemble] | None, weight: Float[Array, " b"], batch: Batch):
        """(w + kappa) / (n(s) + kappa), and n after one step towards w."""
        if state_weight is None:
            return weight, None
        expected, pull = jax.vjp(lambda network: jax.nn.softplus(network(batch.obs)[0]), state_weight.params)
        (gradient,) = pull(2.0 * (expected - weight) / weight.size)
        evened = jnp.minimum((weight + balance) / (expected + balance), clamp)
        return evened, learner.step(state_weight, gradient)

    def weigh(state: ThresholdState, residual: Heads, divergence: Divergence, batch: Batch):
        del divergence
        residual, baseline = without_baseline(state.baseline, with_credit(residual, batch), batch)
        advantage = jnp.mean(residual, axis=0)
        weight = threshold_weight(advantage, state.threshold, clamp)
        threshold = next_threshold(state.threshold, advantage, weight, target_ess)
        weight, state_weight = balanced(state.state_weight, weight, batch)
        return weight, ThresholdState(threshold, baseline, state_weight), {"threshold": threshold.level}

    return Extraction(init, weigh)


def threshold_weight(advantage: Float[Array, " b"], threshold: Threshold, clamp: float) -> Float[Array, " b"]:
    """max(0, A / spread - level), divided by its mean over the batch, at most `clamp`."""
    above = jnp.maximum(advantage / threshold.spread - threshold.level, 0.0)
    return jnp.minimum(above / jnp.maximum(jnp.mean(above), TINY), clamp)


def next_threshold(
    threshold: Threshold, advantage: Float[Array, " b"], weight: Float[Array, " b"], target_ess: float
) -> Threshold:
    """A lower level where the weights rest on fewer samples than the target; the spread follows the advantages'."""
    ratio = jnp.log(jnp.maximum(jnp.std(advantage), TINY) / threshold.spread)
    return Threshold(
        level=threshold.level - RATE * _gap(weight, target_ess),
        spread=threshold.spread * jnp.exp(RATE * ratio),
    )


def _gap(weight: Float[Array, " b"], target_ess: float) -> Float[Array, ""]:
    """log target - log measured. A batch without any weight counts as one sample."""
    measured = jnp.maximum(effective_sample_size(weight), 1.0 / weight.shape[0])
    return jnp.log(target_ess) - jnp.log(measured)
