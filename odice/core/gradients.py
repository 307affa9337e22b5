"""Gradient rules: what to do with the backward gradient of a Bellman residual.

A residual R = r + gamma V(s') - V(s) sends two gradients into V's parameters: the forward one F (through V(s)) and the
backward one B (through V(s')). A rule turns the pair into one gradient:

    true         F + B                       what the objective says
    semi         F                           V(s') frozen, as in TD learning
    orthogonal   F + eta (B - kappa F),      kappa = <F, B> / <F, F>    (O-DICE)

so a rule is three settings: how much of B (`eta`), whether B is projected off F (`project`), and whether the frozen
sides of the two residuals come from a target network (`use_target`). All parameters count as one vector: the heads of a
twin network are projected as one, once per batch.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from odice.core import sweep
from odice.errors import OdiceError, unknown_name

FORWARD_FLOOR = 1e-10
"""Floor of <F, F> in the projection. Every residual may sit where f*' = 0: then F = 0, kappa = 0 and B passes
unprojected."""


class Rule(NamedTuple):
    """How a forward and a backward gradient become one."""

    name: str
    eta: float
    project: bool
    use_target: bool


class Diagnostics(NamedTuple):
    """Measurements of one pair of gradients. `cosine` is between F and B as loss gradients: F = -f*' grad V(s) and
    B = +gamma f*' grad V(s'), so parallel features show as -1."""

    forward_norm: Float[Array, ""]
    backward_norm: Float[Array, ""]
    cosine: Float[Array, ""]
    projection: Float[Array, ""]
    """kappa for a backward gradient of full strength; what `orthogonal` removes is kappa F."""
    eta_bound: Float[Array, ""]
    """Theorem 2 for a batch: the loss falls to first order iff eta is above this."""


true = Rule("true", eta=1.0, project=False, use_target=False)
semi = Rule("semi", eta=0.0, project=False, use_target=True)


def orthogonal(eta: float = 1.0) -> Rule:
    """O-DICE's rule; `eta` is the strength of the projected backward gradient."""
    if not eta >= 0:
        raise OdiceError(
            f"eta must be at least 0 (0 is the semi-gradient), got {eta}: it scales the backward gradient."
        )
    return Rule("orthogonal", eta=eta, project=True, use_target=True)


RULES = ("true", "semi", "orthogonal")


def rule(name: str, eta: float = 1.0) -> Rule:
    """A rule by name; `eta` is used by `orthogonal` only."""
    if name not in RULES:
        raise unknown_name("gradient rule", name, RULES)
    return orthogonal(eta) if name == "orthogonal" else {"true": true, "semi": semi}[name]


def inner(a: PyTree, b: PyTree) -> Float[Array, ""]:
    """Inner product of two gradients as flat vectors."""
    return sum(jax.tree.leaves(jax.tree.map(lambda x, y: jnp.vdot(x, y), a, b)), start=jnp.zeros(()))


def combine(rule: Rule, forward: PyTree, backward: PyTree) -> tuple[PyTree, Diagnostics]:
    """Applies a rule to the forward and the backward gradient; both have the structure of the parameters."""
    ff, fb, bb = inner(forward, forward), inner(forward, backward), inner(backward, backward)
    kappa = fb / jnp.maximum(ff, FORWARD_FLOOR)
    keep = 1.0 - rule.eta * kappa if rule.project else jnp.ones_like(kappa)
    gradient = jax.tree.map(lambda f, b: keep * f + rule.eta * b, forward, backward)
    tiny = jnp.finfo(ff.dtype).tiny
    rounding = jnp.maximum(jnp.finfo(ff.dtype).eps * (ff + bb), tiny)  # parallel gradients differ by no more than this
    perpendicular = jnp.maximum(bb - fb * fb / jnp.maximum(ff, FORWARD_FLOOR), rounding)
    return gradient, Diagnostics(
        forward_norm=jnp.sqrt(ff),
        backward_norm=jnp.sqrt(bb),
        cosine=fb / jnp.maximum(jnp.sqrt(ff) * jnp.sqrt(bb), tiny),
        projection=kappa,
        eta_bound=-(ff + fb) / perpendicular,
    )


class LossPair(NamedTuple):
    """The losses of one residual pair, as functions of the network's outputs here (x = V(s)) and next (x' = V(s')).

    `forward` may only depend on x through a gradient and `backward` only on x'; `rest` is everything else on x (the
    linear term). The rule acts on the pair, `rest` is added to its result. Outputs may be trees of arrays: the x of the
    Q-form is Q(s, a) and V(s).
    """

    forward: Callable[[Any], Float[Array, ""]]
    backward: Callable[[Any], Float[Array, ""]]
    rest: Callable[[Any], Float[Array, ""]]


class RuleGradient(NamedTuple):
    """The gradient of a two-point loss under a rule, with what it was made from."""

    gradient: PyTree
    losses: dict[str, Float[Array, ""]]
    """The values of the `LossPair`: forward, backward, rest."""
    diagnostics: Diagnostics | None


def rule_gradient(
    rule: Rule,
    params: PyTree,
    here: Callable[[PyTree], PyTree],
    there: Callable[[PyTree], PyTree],
    losses: Callable[[Any, Any], LossPair],
    diagnose: bool = False,
) -> RuleGradient:
    """One gradient of a two-point loss under a rule.

    `here` and `there` evaluate the network at the two points; each runs once, and every term pulls its own gradient
    back through that one evaluation (where it is a `sweep.Point`, through one backward sweep too). `losses(x, x')`
    builds the pair from the two outputs. The backward pass of a rule with eta = 0 is skipped unless `diagnose` needs
    it, so the semi-gradient costs what it should.
    """
    x, pull = _vjp(here, params)
    x_next, pull_next = _vjp(there, params)
    pair = losses(x, x_next)
    loss_f, dx_f = jax.value_and_grad(pair.forward)(x)
    loss_r, dx_r = jax.value_and_grad(pair.rest)(x)
    loss_b, dx_b = jax.value_and_grad(pair.backward)(x_next)
    values = {"forward": loss_f, "backward": loss_b, "rest": loss_r}

    if rule.eta == 0.0 and not diagnose:
        return RuleGradient(pull(_sum(dx_f, dx_r))[0], values, None)
    if not rule.project and not diagnose:  # linear in the cotangents: no need to tell the terms apart
        (g_here,), (g_next,) = pull(_sum(dx_f, dx_r)), pull_next(jax.tree.map(lambda d: rule.eta * d, dx_b))
        return RuleGradient(_sum(g_here, g_next), values, None)
    (g_forward,), (g_rest,), (g_backward,) = pull(dx_f), pull(dx_r), pull_next(dx_b)
    combined, diagnostics = combine(rule, g_forward, g_backward)
    return RuleGradient(_sum(combined, g_rest), values, diagnostics)


def _vjp(point: Callable[[PyTree], PyTree], params: PyTree) -> tuple[PyTree, Callable[[PyTree], tuple[PyTree]]]:
    return sweep.vjp(point, params) if isinstance(point, sweep.Point) else jax.vjp(point, params)


def _sum(a: PyTree, b: PyTree) -> PyTree:
    return jax.tree.map(jnp.add, a, b)
