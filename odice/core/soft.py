"""Soft actor-critic's expectations over a policy: by samples, or exactly over a finite set of actions."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from odice.core.critics import least
from odice.core.networks import CategoricalPolicy


class Draws(NamedTuple):
    """Actions at each state of a batch: samples, or all of a finite set (`action` is then None)."""

    action: Float[Array, "n b act"] | None
    log_prob: Float[Array, "n b"]
    share: Float[Array, "n b"]
    """Weights whose sum over n is 1: an expectation over pi is sum(share * g)."""


def draw(policy, key: PRNGKeyArray, obs: Float[Array, "b obs"], count: int) -> Draws:
    """`count` samples with gradients through their noise; of a finite set every action, with gradients through its share."""
    if isinstance(policy, CategoricalPolicy):
        log_prob = jax.nn.log_softmax(policy.logits(obs), axis=-1).T
        return Draws(None, log_prob, jnp.exp(log_prob))
    sample = policy.sample(key, obs, count)
    return Draws(sample.action, sample.log_prob, jnp.full_like(sample.log_prob, 1 / count))


def q_at(critic, obs: Float[Array, "b obs"], action: Float[Array, "n b act"] | None) -> Float[Array, "heads n b"]:
    """Q_i(s, a) for every action drawn: one action a state at a time, so that the layers' activations stay in the cache."""
    if action is None:
        return jnp.moveaxis(critic.every(obs), -1, 1)
    return jnp.moveaxis(jax.lax.map(lambda one: critic(obs, one), action), 0, 1)


def soft_value(policy, critic, alpha, obs, key) -> Float[Array, " b"]:
    """V(s) = E[min_i Q_i - alpha log pi] over one draw: what a soft target bootstraps from."""
    draws = draw(policy, key, obs, 1)
    return jnp.sum(draws.share * (least(q_at(critic, obs, draws.action)) - alpha * draws.log_prob), axis=0)


def soft_policy_loss(policy, critic, alpha, obs, key) -> tuple[Float[Array, ""], Float[Array, ""]]:
    """E[alpha log pi - min_i Q_i] over one draw, and the mean of log pi."""
    draws = draw(policy, key, obs, 1)
    q = least(q_at(critic, obs, draws.action))
    average = lambda x: jnp.mean(jnp.sum(draws.share * x, axis=0))
    return average(alpha * draws.log_prob - q), average(draws.log_prob)
