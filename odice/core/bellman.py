"""The squared Bellman error as a two-point loss: what any gradient rule of `core.gradients` can act on.

    minimize over Q   E_D[(r + gamma m Q(s', a') - Q(s, a))^2] / 2,      m = 1 - terminated

The semi-gradient of it is fitted Q-iteration (TD learning), which may diverge off-policy; the true one is Baird's
residual gradient, which never does but is slow, because it is as ill-conditioned as the Bellman operator is
contracting. The orthogonal rule keeps the forward direction of the first and removes from the second what would undo
it: O-DICE's rule on the loss that its authors name as future work. `docs/research/bellman.md` has what came out.
"""

from __future__ import annotations

import jax.numpy as jnp
from jaxtyping import Array, Float

from odice.core.gradients import LossPair
from odice.core.vdice import Frozen, residual


def squared_losses(
    frozen: Frozen, reward: Float[Array, " b"], mask: Float[Array, " b"], discount: float, scale: float = 0.5
) -> LossPair:
    """Forward and backward squared error of a batch: means over samples, added over heads, times `scale`."""
    error = lambda q, q_next: scale * jnp.sum(jnp.mean(jnp.square(residual(q, q_next, reward, mask, discount)), axis=1))
    return LossPair(
        forward=lambda q: error(q, frozen.v_next_bar),
        backward=lambda q_next: error(frozen.v_bar, q_next),
        rest=lambda q: jnp.zeros(()),
    )
