"""Action values Q(s, a): twin networks for continuous and discrete actions, and the losses that train them."""

from __future__ import annotations

import functools
from collections.abc import Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray

from odice.core.networks import MLP, each_head
from odice.core.policies import draw
from odice.types import Batch, Spec

Heads = Float[Array, "heads *b"]


class Critic(eqx.Module):
    """Independent Q networks with stacked parameters.

    Continuous actions are inputs, after the observation; of a finite set, every action has its own output.
    """

    heads: MLP
    discrete: bool = eqx.field(static=True)

    def __init__(self, key: PRNGKeyArray, spec: Spec, hidden: Sequence[int], *, heads: int = 2, **options):
        sizes = (spec.obs_dim if spec.discrete else spec.obs_dim + spec.action_dim, *hidden)
        sizes = (*sizes, spec.action_dim if spec.discrete else 1)
        self.heads = jax.vmap(lambda k: MLP(k, sizes, **options))(jax.random.split(key, heads))
        self.discrete = spec.discrete

    def __call__(self, obs: Float[Array, "*b obs"], action: Float[Array, "*b act"] | Int[Array, "*b"]) -> Heads:
        """Q_i(s, a), one row per head."""
        if self.discrete:
            chosen = jnp.broadcast_to(action[None, ..., None], (self.size, *action.shape, 1))
            return jnp.take_along_axis(self.every(obs), chosen, axis=-1)[..., 0]
        both = jnp.concatenate([obs, action], axis=-1)
        return each_head(self.heads, self.size, lambda head: head(both)[..., 0])

    def every(self, obs: Float[Array, "*b obs"]) -> Float[Array, "heads *b actions"]:
        """Q_i(s, .) over a finite set of actions."""
        return each_head(self.heads, self.size, lambda head: head(obs))

    @property
    def size(self) -> int:
        return self.heads.weights[0].shape[0]


class Critics(eqx.Module):
    """Critics of different shapes, called as one critic."""

    parts: tuple[Critic, ...]

    def __call__(self, obs, action) -> Heads:
        return jnp.concatenate([part(obs, action) for part in self.parts])

    def every(self, obs) -> Float[Array, "heads *b actions"]:
        return jnp.concatenate([part.every(obs) for part in self.parts])


def min_over_heads(q: Heads) -> Float[Array, "*b"]:
    """The pessimistic one of the heads: min_i Q_i; its gradient goes to that head.

    Heads are compared with each other. The gradient of `jnp.min` goes to the heads that equal the minimum; a compiler
    that computes a head twice may round it differently, and then a row has no gradient.
    """
    return functools.reduce(lambda least, head: jnp.where(head < least, head, least), q)


def expectile(u: Float[Array, "*n"], tau: float) -> Float[Array, "*n"]:
    """|tau - 1{u < 0}| u^2, elementwise; its minimizer over a shift of u is the tau-expectile, and tau = 1/2 is half
    u^2."""
    return jnp.where(u < 0, 1.0 - tau, tau) * jnp.square(u)


def huber(u: Float[Array, "*n"], delta: float) -> Float[Array, "*n"]:
    """u^2 / 2 for |u| <= delta, and from there on its tangent."""
    inside = jnp.clip(u, -delta, delta)
    return inside * (u - 0.5 * inside)


def critic_loss(critic: Critic, target: Float[Array, " b"], batch: Batch) -> tuple[Float[Array, ""], Float[Array, ""]]:
    """The squared errors of all heads against one target, added; and the mean of Q."""
    q = critic(batch.obs, batch.action)
    return jnp.sum(jnp.mean(jnp.square(q - target[None]), axis=1)), jnp.mean(q)


# --- soft actor-critic ---------------------------------------------------------------------------------------------


def q_at(critic, obs: Float[Array, "b obs"], action: Float[Array, "n b act"] | None) -> Float[Array, "heads n b"]:
    """Q_i(s, a) for every action drawn: one action a state at a time, so that the layers' activations stay in the
    cache."""
    if action is None:
        return jnp.moveaxis(critic.every(obs), -1, 1)
    return jnp.moveaxis(jax.lax.map(lambda one: critic(obs, one), action), 0, 1)


def sac_value(policy, critic, alpha, obs, key) -> Float[Array, " b"]:
    """V(s) = E[min_i Q_i - alpha log pi] over one draw: what a soft target bootstraps from."""
    draws = draw(policy, key, obs, 1)
    return jnp.sum(draws.prob * (min_over_heads(q_at(critic, obs, draws.action)) - alpha * draws.log_prob), axis=0)


def sac_policy_loss(policy, critic, alpha, obs, key) -> tuple[Float[Array, ""], Float[Array, ""]]:
    """E[alpha log pi - min_i Q_i] over one draw, and the mean of log pi."""
    draws = draw(policy, key, obs, 1)
    q = min_over_heads(q_at(critic, obs, draws.action))
    average = lambda x: jnp.mean(jnp.sum(draws.prob * x, axis=0))
    return average(alpha * draws.log_prob - q), average(draws.log_prob)
