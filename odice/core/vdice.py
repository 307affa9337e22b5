"""V-form DICE: the residual pair and its losses.

    minimize over V   E_D[(1 - lam) V(s) + lam f*(R)],      R = r + gamma m V(s') - V(s),   m = 1 - terminated

split into the two residuals a gradient rule acts on. The frozen side of each is `v_bar`, `v_next_bar`:

    R_f = r + gamma m v_next_bar - v           (gradient through V(s))
    R_b = r + gamma m v_next - v_bar           (gradient through V(s'))

For a target network the bars are the minimum over its heads ("bidirectional target"); for the true gradient they are
the online values of the same head, and R_f = R_b = R.

Where next states are random, one s' per transition is not enough: E[f*(R)] is above f*(E[R | s, a]), and what the loss
adds is the noise of s'. The remedy is a second network e(s, a), the mean of R over next states: by duality

    f*(E[R | s, a]) = max_e E[f*(e) + f*'(e) (R - e) | s, a],      reached at e = E[R | s, a]

is linear in R, so one sample of s' gives an unbiased gradient, f*'(e) times that of R (`losses`, `expected`).
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from odice.core.divergences import Divergence
from odice.core.gradients import LossPair, Rule, RuleGradient, rule_gradient
from odice.core.networks import Ensemble
from odice.core.sweep import Point
from odice.types import Batch

Heads = Float[Array, "heads b"]


class Frozen(NamedTuple):
    """The stop-gradient side of the residuals, one row per online head."""

    v_bar: Heads
    v_next_bar: Heads


def freeze(rule: Rule, v: Heads, v_next: Heads, v_target: Heads, v_next_target: Heads) -> Frozen:
    """The values without gradient: the minimum over the target's heads; without a target, the online values."""
    if not rule.use_target:
        return Frozen(jax.lax.stop_gradient(v), jax.lax.stop_gradient(v_next))
    pessimistic = lambda target, like: jnp.broadcast_to(jnp.min(target, axis=0, keepdims=True), like.shape)
    return jax.lax.stop_gradient(Frozen(pessimistic(v_target, v), pessimistic(v_next_target, v_next)))


def residual(v: Heads, v_next: Heads, reward: Float[Array, " b"], mask: Float[Array, " b"], discount: float) -> Heads:
    """r + gamma m V(s') - V(s), per head."""
    return reward[None] + discount * mask[None] * v_next - v


def losses(
    frozen: Frozen,
    reward: Float[Array, " b"],
    mask: Float[Array, " b"],
    *,
    divergence: Divergence,
    lam: float,
    discount: float,
    excess: bool = False,
    expected: Heads | None = None,
) -> LossPair:
    """Forward, backward and linear loss of a batch; means over heads *and* samples, as the reference takes them.

    So each head of a twin gets half the gradient it would get alone (Adam does not notice). The backward loss comes at
    full strength: its eta belongs to the rule.

    With `excess` the backward loss is that of f*(R_b) - R_b, whose slope is w - 1. The linear term balances the forward
    loss of a weight of 1, but nothing balances the backward one: where most weights are near 1 it pushes every value
    down, without end. The data's own visitation needs no push, so only what the weights add to it is sent back.

    With `expected`, e(s, a), f* is replaced by its tangent there, in both losses.
    """
    if expected is None:
        mean = lambda residuals: lam * jnp.mean(divergence.conjugate(residuals))
    else:
        e, slope = jax.lax.stop_gradient((expected, divergence.weight(expected)))
        mean = lambda residuals: lam * jnp.mean(divergence.conjugate(e) + slope * (residuals - e))
    back = lambda residuals: mean(residuals) - lam * jnp.mean(residuals) if excess else mean(residuals)
    return LossPair(
        forward=lambda v: mean(residual(v, frozen.v_next_bar, reward, mask, discount)),
        backward=lambda v_next: back(residual(frozen.v_bar, v_next, reward, mask, discount)),
        rest=lambda v: (1.0 - lam) * jnp.mean(v),
    )


def value_gradient(
    rule: Rule,
    value: Ensemble,
    target: Ensemble,
    batch: Batch,
    *,
    divergence: Divergence,
    lam: float,
    discount: float,
    offset: float = 0.0,
    excess: bool = False,
    expected: Heads | None = None,
    diagnose: bool = False,
) -> tuple[RuleGradient, Heads]:
    """The gradient of V on a batch under a gradient rule.

    Args:
        rule: what becomes of the backward gradient.
        value: V, the online network.
        target: its slow copy; used where the rule has a target.
        batch: transitions.
        divergence: f.
        lam: weight of f*(R) against (1 - lam) V(s).
        discount: gamma.
        offset: added to the values of both networks.
        excess: see `losses`.
        expected: see `losses`.
        diagnose: also measure the two gradients.

    Returns:
        The gradient with its losses, and the forward residual R_f per head.
    """
    here, there = Point(batch.obs, offset), Point(batch.next_obs, offset)
    bars = (here(target), there(target)) if rule.use_target else None
    kept = {}

    def pair(v: Heads, v_next: Heads) -> LossPair:
        frozen = freeze(rule, v, v_next, *(bars or (v, v_next)))
        kept["residual"] = residual(v, frozen.v_next_bar, batch.reward, batch.mask, discount)
        options = {"divergence": divergence, "lam": lam, "discount": discount, "excess": excess, "expected": expected}
        return losses(frozen, batch.reward, batch.mask, **options)

    return rule_gradient(rule, value, here, there, pair, diagnose=diagnose), kept["residual"]
