"""TD3+BC: TD3 with a cloning term (Fujimoto and Gu, NeurIPS 2021).

    a'   = clip(pibar(s') + clip(eps, -c, c), -1, 1),    eps ~ N(0, sigma^2)
    Q_i  minimises  E_D[(r + gamma m min_j Qbar_j(s', a') - Q_i(s, a))^2]
    pi   minimises  E_D[-k Q_1(s, pi(s)) + mean over dimensions of (pi(s) - a)^2],    k = alpha / sg(E_D|Q_1(s, pi(s))|)

The factor k makes alpha independent of the scale of the rewards; alpha = 0 is behaviour cloning.

The loss of Q_i above is its semi-gradient. `gradient` may also be `orthogonal`: the backward gradient of (r + gamma m
Q_i(s', a') - min_j Qbar_j(s, a))^2, through Q_i(s', a'), projected off the forward one and added with strength eta
(`core.bellman`), or `true`: all of it, without a target. Neither is in the paper.

One update, in this order: both critics; then, at every `policy_delay`-th update, the policy with the *new* critics, and
after it all targets (policy's and critics') by Polyak. Between two policy steps the targets stand still.

Differs from the official code (sfujim/TD3_BC): in nothing but that k's denominator has a floor of 1e-8, where theirs
divides by zero if every Q is 0. It was run on the -v0 data sets; rewards unchanged, observations normalised.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray

from odice.algos.health import VALUES_OF_RETURNS
from odice.algos.registry import register
from odice.algos.validation import require, validate
from odice.core import vdice
from odice.core.bellman import squared_losses
from odice.core.critics import Critic, min_over_heads
from odice.core.gradients import orthogonal, rule, rule_gradient
from odice.core.learner import Learned, Learner
from odice.core.networks import Init
from odice.core.optim import polyak
from odice.core.policies import TanhPolicy
from odice.core.sweep import Point
from odice.types import Algo, Batch, Metrics, Spec


@dataclass(frozen=True)
class TD3BCConfig:
    """TD3+BC. Defaults follow the official code."""

    alpha: float = 2.5
    """alpha: weight of the (normalised) value against the cloning term; 0 is behaviour cloning."""
    discount: float = 0.99
    """gamma: discount of the next state's value."""
    polyak: float = 0.005
    """tau: share of the online networks that enters the targets at each policy step."""
    target_noise: float = 0.2
    """sigma: standard deviation of the noise on the target policy's action."""
    noise_clip: float = 0.5
    """c: largest noise on the target policy's action."""
    policy_delay: int = 2
    """Updates of the critics for one of the policy and the targets."""
    gradient: Literal["semi", "orthogonal", "true"] = "semi"
    """What becomes of the gradient through Q(s', a'): dropped (TD3), projected off the forward one, or kept."""
    eta: float = 1.0
    """eta: strength of the projected backward gradient, where `gradient` is orthogonal."""
    critic_hidden: tuple[int, ...] = (256, 256)
    """Widths of the hidden layers of each critic."""
    policy_hidden: tuple[int, ...] = (256, 256)
    """Widths of the policy's hidden layers."""
    critic_lr: float = 3e-4
    """Adam's learning rate for the critics."""
    policy_lr: float = 3e-4
    """Adam's learning rate for the policy."""
    init: Init = "torch"
    """Initialisation of all networks: torch's uniform (official code), orthogonal, or Glorot's uniform."""
    batch_size: int = 256
    """Transitions per update."""

    def __post_init__(self):
        validate(self)
        for name in ("alpha", "target_noise", "noise_clip"):
            value = getattr(self, name)
            require(0 <= value < float("inf"), f"{name} must be a finite number of at least 0, got {value}.")
        require(self.policy_delay >= 1, f"policy_delay must be at least 1, got {self.policy_delay}.")
        orthogonal(self.eta)


class PolicyMetrics(NamedTuple):
    """What the last policy step measured; kept in the state because not every update has one."""

    loss: Float[Array, ""]
    cloning: Float[Array, ""]
    value_scale: Float[Array, ""]


class State(NamedTuple):
    policy: Learned[TanhPolicy]
    policy_target: TanhPolicy
    critic: Learned[Critic]
    critic_target: Critic
    measured: PolicyMetrics
    step: Int[Array, ""]


def next_action(cfg: TD3BCConfig, state: State, batch: Batch, key: PRNGKeyArray) -> Float[Array, "b act"]:
    """The target policy's action at s', smoothed."""
    noise = cfg.target_noise * jax.random.normal(key, batch.action.shape)
    action = state.policy_target.mode(batch.next_obs) + jnp.clip(noise, -cfg.noise_clip, cfg.noise_clip)
    return jnp.clip(action, -1.0, 1.0)


def td_target(cfg: TD3BCConfig, state: State, batch: Batch, key: PRNGKeyArray) -> Float[Array, " b"]:
    """r + gamma m min_j Qbar_j(s', a') with a smoothed target action."""
    q_next = min_over_heads(state.critic_target(batch.next_obs, next_action(cfg, state, batch, key)))
    return batch.reward + cfg.discount * batch.mask * q_next


def critic_loss(
    critic: Critic, td_target: Float[Array, " b"], batch: Batch
) -> tuple[Float[Array, ""], Float[Array, ""]]:
    """The squared errors of both heads, added; and the mean of Q."""
    q = critic(batch.obs, batch.action)
    return jnp.sum(jnp.mean(jnp.square(q - td_target[None]), axis=1)), jnp.mean(q)


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
    critic_learner, policy_learner = Learner(cfg.critic_lr), Learner(cfg.policy_lr)

    def init(key) -> State:
        key_policy, key_critic = jax.random.split(key)
        policy = TanhPolicy(key_policy, spec, cfg.policy_hidden, init=cfg.init)
        critic = Critic(key_critic, spec, cfg.critic_hidden, init=cfg.init)
        return State(
            policy=policy_learner.init(policy),
            policy_target=jax.tree.map(jnp.copy, policy),
            critic=critic_learner.init(critic),
            critic_target=jax.tree.map(jnp.copy, critic),
            measured=PolicyMetrics(*jnp.zeros(3)),
            step=jnp.zeros((), jnp.int32),
        )

    def policy_step(state: State, batch: Batch) -> State:
        gradient, measured = jax.grad(policy_loss, has_aux=True)(
            state.policy.params, state.critic.params, batch, cfg.alpha
        )
        policy = policy_learner.step(state.policy, gradient)
        return state._replace(
            policy=policy,
            policy_target=polyak(policy.params, state.policy_target, cfg.polyak),
            critic_target=polyak(state.critic.params, state.critic_target, cfg.polyak),
            measured=measured,
        )

    def update(state: State, batch: Batch, key) -> tuple[State, Metrics]:
        if cfg.gradient == "semi":
            target_q = td_target(cfg, state, batch, key)
            (loss, q_mean), gradient = jax.value_and_grad(critic_loss, has_aux=True)(
                state.critic.params, target_q, batch
            )
        else:
            (loss, q_mean), gradient = rule_critic_gradient(cfg, state, batch, key)
        state = state._replace(critic=critic_learner.step(state.critic, gradient), step=state.step + 1)
        due = state.step % cfg.policy_delay == 0
        state = jax.lax.cond(due, policy_step, lambda state, _: state, state, batch)
        metrics = {
            "critic_loss": loss,
            "critic_mean": q_mean,
            "policy_loss": state.measured.loss,
            "cloning_loss": state.measured.cloning,
            "value_scale": state.measured.value_scale,
        }
        return state, metrics

    return Algo(init, update, lambda state: state.policy.params)
