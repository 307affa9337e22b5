"""TD3+BC: TD3 with a cloning term (Fujimoto and Gu, NeurIPS 2021).

    a'   = clip(pibar(s') + clip(eps, -c, c), -1, 1),    eps ~ N(0, sigma^2)
    Q_i  minimizes  E_D[(r + gamma m min_j Qbar_j(s', a') - Q_i(s, a))^2]
    pi   minimizes  E_D[-k Q_1(s, pi(s)) + mean over dimensions of (pi(s) - a)^2],    k = alpha / sg(E_D|Q_1(s, pi(s))|)

The factor k makes alpha independent of the scale of the rewards; alpha = 0 is behavior cloning.

The loss of Q_i above is its semi-gradient. `gradient` may also be `orthogonal`: the backward gradient of (r + gamma m
Q_i(s', a') - min_j Qbar_j(s, a))^2, through Q_i(s', a'), projected off the forward one and added with strength eta
(`core.bellman`), or `true`: all of it, without a target critic. Neither is in the paper.

The order of an update is the frame's (`td3`).

Differs from the official code (sfujim/TD3_BC): in nothing but that k's denominator has a floor of 1e-8, where theirs
divides by zero if every Q is 0. It was run on the -v0 data sets; rewards unchanged, observations normalized.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from odice.algos.health import VALUES_OF_RETURNS
from odice.algos.registry import register
from odice.algos.td3 import Losses, State, TD3Config, next_action, td3
from odice.algos.validation import not_negative
from odice.core import vdice
from odice.core.bellman import squared_losses
from odice.core.critics import Critic, critic_loss, min_over_heads
from odice.core.gradients import orthogonal, rule, rule_gradient
from odice.core.policies import TanhPolicy
from odice.core.sweep import Point
from odice.types import Algo, Batch, Spec


@dataclass(frozen=True)
class TD3BCConfig(TD3Config):
    """TD3+BC. Defaults follow the official code."""

    alpha: float = 2.5
    """alpha: weight of the (normalized) value against the cloning term; 0 is behavior cloning."""
    gradient: Literal["semi", "orthogonal", "true"] = "semi"
    """What becomes of the gradient through Q(s', a'): dropped (TD3), projected off the forward one, or kept."""
    eta: float = 1.0
    """eta: strength of the projected backward gradient, where `gradient` is orthogonal."""

    def __post_init__(self):
        super().__post_init__()
        not_negative(self, "alpha")
        orthogonal(self.eta)


class PolicyMetrics(NamedTuple):
    """What a policy step measures."""

    loss: Float[Array, ""]
    cloning_loss: Float[Array, ""]
    value_scale: Float[Array, ""]


def td_target(cfg: TD3BCConfig, state: State, batch: Batch, key: PRNGKeyArray) -> Float[Array, " b"]:
    """r + gamma m min_j Qbar_j(s', a') with a smoothed target action."""
    q_next = min_over_heads(state.critic_target(batch.next_obs, next_action(cfg, state, batch, key)))
    return batch.reward + cfg.discount * batch.mask * q_next


def rule_critic_gradient(cfg: TD3BCConfig, state: State, batch: Batch, key: PRNGKeyArray):
    """The squared error, the mean of Q, and the gradient under a rule that does not drop the backward part."""
    how, action = rule(cfg.gradient, cfg.eta), next_action(cfg, state, batch, key)
    pairs = (batch.obs, batch.action), (batch.next_obs, action)
    here, there = (Point(jnp.concatenate(pair, axis=-1)) for pair in pairs)
    bars = here(state.critic_target), there(state.critic_target)
    seen = {}

    def losses(q, q_next):
        seen["q"] = q
        frozen = vdice.freeze(how, q, q_next, *bars)
        return squared_losses(frozen, batch.reward, batch.mask, cfg.discount, scale=1.0)

    result = rule_gradient(how, state.critic.params, here, there, losses)
    return (result.losses["forward"], jnp.mean(seen["q"])), result.gradient


def policy_loss(
    policy: TanhPolicy, critic: Critic, batch: Batch, alpha: float | Float[Array, ""]
) -> tuple[Float[Array, ""], PolicyMetrics]:
    """-k Q_1(s, pi(s)) and the cloning term."""
    action = policy.mode(batch.obs)
    q = critic(batch.obs, action)[0]
    scale = jax.lax.stop_gradient(jnp.mean(jnp.abs(q)))
    cloning = jnp.mean(jnp.square(action - batch.action))
    loss = cloning - alpha / jnp.maximum(scale, 1e-8) * jnp.mean(q)
    return loss, PolicyMetrics(loss, cloning, scale)


@register("td3-bc", TD3BCConfig, discrete=False, when_diverged=("lower", "alpha"), health=(VALUES_OF_RETURNS,))
def td3_bc(cfg: TD3BCConfig, spec: Spec) -> Algo:
    """TD3+BC: twin delayed actor-critic whose policy also clones the data."""

    def critic_gradient(state: State, batch: Batch, key):
        if cfg.gradient != "semi":
            return rule_critic_gradient(cfg, state, batch, key)
        target = td_target(cfg, state, batch, key)
        return jax.value_and_grad(critic_loss, has_aux=True)(state.critic.params, target, batch)

    losses = Losses(
        critic=critic_gradient,
        policy=lambda policy, critic, batch: policy_loss(policy, critic, batch, cfg.alpha),
        measured=PolicyMetrics,
    )
    return td3(
        cfg,
        losses,
        lambda key: TanhPolicy(key, spec, cfg.policy_hidden, init=cfg.init),
        lambda key: Critic(key, spec, cfg.critic_hidden, init=cfg.init),
    )
