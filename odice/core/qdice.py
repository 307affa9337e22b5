"""Q-form DICE: the residual pair, its losses, and the values, penalty and recovered reward that go with them.

    minimize over Q   E_D[l V(s) + lam alpha f*(R / alpha)],      R = gamma m V(s') - Q(s, a),   m = 1 - terminated
    V(s) = E_{a ~ pi}[Q(s, a) - T log pi(a|s)]

The data are an expert's and there is no reward: -R is the reward under which the expert is optimal. As in the V-form
(`core.vdice`, whose residuals these are, with Q(s, a) for V(s)), the gradient has two parts that a rule of
`core.gradients` combines: forward, through Q(s, a), and backward, through V(s') = Q(s', a') - T log pi(a'|s').

    R_f = gamma m Vbar(s') - Q(s, a)           R_b = gamma m V(s') - Qbar(s, a)

| algorithm    | rule        | f                        | T    | l         |
|--------------|-------------|--------------------------|------|-----------|
| `value-dice` | true        | KL, Donsker-Varadhan     | 0    | 1 - gamma |
| `iq-learn`   | semi        | chi-square and others    | 0.01 | 1         |
| `oq-dice`    | orthogonal  | as IQ-Learn              | 0.01 | 1 - lam   |

The linear term stands for (1 - gamma) E[V(s0)], the value where episodes start. Over complete episodes it equals
E_D[V(s) - gamma m V(s')] (the sum telescopes), which is IQ-Learn's form: l = 1, and `telescope` = 1 adds -gamma m V(s')
to the backward loss.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from odice.core import vdice
from odice.core.critics import Critic, q_at
from odice.core.discriminator import Points, grad_norm
from odice.core.divergences import Divergence, divergence, tempered
from odice.core.gradients import LossPair, Rule, RuleGradient, rule_gradient
from odice.core.policies import Draws, draw
from odice.core.vdice import Frozen, Heads
from odice.types import Batch


class Objective(NamedTuple):
    """What is minimized over Q; the symbols are those above."""

    divergence: Divergence
    """f, with its strength alpha inside (`reward_divergence`)."""
    discount: float
    """gamma."""
    temperature: float
    """T."""
    linear: float
    """l."""
    lam: float = 1.0
    telescope: float = 0.0


class AtState(NamedTuple):
    """Q and V at the first state of each transition, one row per head."""

    q: Heads
    """Q(s, a) of the logged action."""
    v: Heads
    """V(s) of the policy."""


class Drawn(NamedTuple):
    """The policy's actions at both ends of the transitions of a batch."""

    here: Draws
    there: Draws


def chi(alpha: float) -> Divergence:
    """Pearson's chi-square as IQ-Learn uses it: f*(y) = y + y^2 / (4 alpha) for every y.

    The non-negative conjugate (`pearson`) is flat where the density ratio would be negative, below y = -2 alpha; this
    one turns up again. So a recovered reward above 2 alpha is pulled back, which keeps Q bounded.
    """
    return Divergence(
        "chi",
        f=lambda x: alpha * (x - 1) ** 2,
        conjugate=lambda y: y + y * y / (4 * alpha),
        weight=lambda y: 1 + y / (2 * alpha),
    )


def reward_divergence(name: str, alpha: float) -> Divergence:
    """`chi`, or a divergence of `core.divergences`, with strength alpha: alpha f, whose conjugate is alpha f*(y /
    alpha)."""
    if name == "chi":
        return chi(alpha)
    return tempered(divergence(name), alpha)


def draw_both(policy, key: PRNGKeyArray, batch: Batch) -> Drawn:
    """One action of the policy at s and one at s'; of a finite set, all of them."""
    key_here, key_there = jax.random.split(key)
    return Drawn(draw(policy, key_here, batch.obs, 1), draw(policy, key_there, batch.next_obs, 1))


def soft_value(critic, draws: Draws, obs: Float[Array, "b obs"], temperature: float) -> Heads:
    """V(s), per head: Q - T log pi of the drawn action; of a finite set exactly, T log sum_a exp(Q(s, a) / T).

    The exact value is that of the policy softmax(Q / T), whichever policy the draws are from.
    """
    q = q_at(critic, obs, draws.action)
    if draws.action is None:
        return temperature * jax.nn.logsumexp(q / temperature, axis=1)
    return jnp.sum(draws.prob[None] * (q - temperature * draws.log_prob[None]), axis=1)


def evaluate(critic, batch: Batch, draws: Draws, temperature: float) -> AtState:
    """Q(s, a) and V(s)."""
    return AtState(critic(batch.obs, batch.action), soft_value(critic, draws, batch.obs, temperature))


def losses(objective: Objective, frozen: Frozen, mask: Float[Array, " b"]) -> LossPair:
    """The V-form's pair with Q(s, a) in the place of V(s); the linear term is on V(s), which here is another number."""
    gamma, telescope = objective.discount, objective.telescope
    pair = vdice.losses(
        frozen,
        jnp.zeros_like(mask),
        mask,
        divergence=objective.divergence,
        lam=objective.lam,
        discount=gamma,
    )
    return LossPair(
        forward=lambda here: pair.forward(here.q),
        backward=lambda v_next: pair.backward(v_next) - telescope * gamma * jnp.mean(mask[None] * v_next),
        rest=lambda here: objective.linear * jnp.mean(here.v),
    )


def value(objective: Objective, here: AtState, v_next: Heads, mask: Float[Array, " b"]) -> Float[Array, ""]:
    """The objective itself. The policy of ValueDICE climbs what Q descends."""
    residual = vdice.residual(here.q, v_next, jnp.zeros_like(mask), mask, objective.discount)
    start = objective.linear * here.v - objective.telescope * objective.discount * mask[None] * v_next
    return objective.lam * jnp.mean(objective.divergence.conjugate(residual)) + jnp.mean(start)


def critic_gradient(
    rule: Rule, objective: Objective, critic, target, batch: Batch, drawn: Drawn, diagnose: bool = False
) -> tuple[RuleGradient, AtState, Heads]:
    """The rule's gradient of Q; Q(s, a) and V(s); and the residual R_f. `target` may be None for a rule that has
    none."""
    drawn, temperature = jax.lax.stop_gradient(drawn), objective.temperature
    seen = {}

    def pair(here: AtState, v_next: Heads) -> LossPair:
        bars = here.q, v_next
        if rule.use_target:
            bars = target(batch.obs, batch.action), soft_value(target, drawn.there, batch.next_obs, temperature)
        frozen = vdice.freeze(rule, here.q, v_next, *bars)
        zero = jnp.zeros_like(batch.mask)
        seen["here"] = here
        seen["residual"] = vdice.residual(here.q, frozen.v_next_bar, zero, batch.mask, objective.discount)
        return losses(objective, frozen, batch.mask)

    result = rule_gradient(
        rule,
        critic,
        here=lambda net: evaluate(net, batch, drawn.here, temperature),
        there=lambda net: soft_value(net, drawn.there, batch.next_obs, temperature),
        losses=pair,
        diagnose=diagnose,
    )
    return result, seen["here"], seen["residual"]


def gradient_penalty(critic: Critic, points: Points) -> Float[Array, ""]:
    """E[(||grad_(s, a) Q|| - 1)^2]: keeps Q from bending sharply between the points it is given. Heads are averaged."""
    norms = jnp.stack([grad_norm(lambda *at, i=head: critic(*at)[i], points) for head in range(critic.size)])
    return jnp.mean(jnp.square(norms - 1))


def recovered_reward(critic, policy, batch: Batch, key: PRNGKeyArray, *, discount: float, temperature: float):
    """r(s, a, s') = Q(s, a) - gamma m V(s'), the reward under which the expert's behavior is optimal; one per row.

    For ValueDICE (T = 0) it is log d_expert / d_policy, up to a constant. Of a twin, the mean of the heads.
    """
    v_next = soft_value(critic, draw(policy, key, batch.next_obs, 1), batch.next_obs, temperature)
    return jnp.mean(critic(batch.obs, batch.action) - discount * batch.mask[None] * v_next, axis=0)
