"""SAC: soft actor-critic with automatic temperature (Haarnoja et al., 2018), the behaviour that data are collected
with.

    y     = r + gamma m (min_j Qbar_j(s', a') - alpha log pi(a'|s')),   a' ~ pi(.|s')
    Q_i   minimises  E[(Q_i(s, a) - y)^2]
    pi    minimises  E[alpha log pi(a|s) - min_i Q_i(s, a)],   a ~ pi(.|s), the tanh of a Gaussian
    alpha such that the entropy of pi is H = -dim(a):   minimises  -log alpha (log pi + H)

The losses are those of CQL without its conservative term (`core.critics`); here they learn from a replay that grows.
One update: all gradients at the networks of before, then every step, then the target of Q.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, PRNGKeyArray

from odice.algos.validation import validate
from odice.core.critics import Critic, sac_policy_loss, sac_value
from odice.core.optim import adam, opt_init, polyak, step
from odice.core.policies import SquashedPolicy
from odice.types import Algo, Batch, Metrics, Spec

LOG_STD_MIN = -20.0
"""As in SAC's own code; a narrower spread than the offline policies' is needed to become precise."""


@dataclass(frozen=True)
class SACConfig:
    """SAC. Defaults are the paper's second version, with both learning rates 3e-4."""

    discount: float = 0.99
    """gamma: discount of the next state's value."""
    polyak: float = 0.005
    """tau: share of the online critics that enters the target after each update."""
    critic_hidden: tuple[int, ...] = (256, 256)
    """Widths of the hidden layers of each critic."""
    policy_hidden: tuple[int, ...] = (256, 256)
    """Widths of the policy's hidden layers."""
    critic_lr: float = 3e-4
    """Adam's learning rate for the critics."""
    policy_lr: float = 3e-4
    """Adam's learning rate for the policy and the temperature."""
    target_entropy: float | None = None
    """H; None is minus the action's dimension."""
    batch_size: int = 256
    """Transitions per update."""

    def __post_init__(self):
        validate(self)


class State(NamedTuple):
    policy: SquashedPolicy
    critic: Critic
    target: Critic
    log_alpha: Float[Array, ""]
    policy_opt: optax.OptState
    critic_opt: optax.OptState
    alpha_opt: optax.OptState


def sac(cfg: SACConfig, spec: Spec) -> Algo:
    """The three functions of soft actor-critic for a box of actions."""
    critic_optimizer, policy_optimizer = adam(cfg.critic_lr), adam(cfg.policy_lr)
    entropy = -float(spec.action_dim) if cfg.target_entropy is None else cfg.target_entropy

    def init(key: PRNGKeyArray) -> State:
        key_policy, key_critic = jax.random.split(key)
        policy = SquashedPolicy(key_policy, spec, cfg.policy_hidden, log_std_min=LOG_STD_MIN)
        critic = Critic(key_critic, spec, cfg.critic_hidden)
        log_alpha = jnp.zeros(())
        return State(
            policy=policy,
            critic=critic,
            target=jax.tree.map(jnp.copy, critic),  # its own buffers: the loop donates the state
            log_alpha=log_alpha,
            policy_opt=opt_init(policy_optimizer, policy),
            critic_opt=opt_init(critic_optimizer, critic),
            alpha_opt=opt_init(policy_optimizer, log_alpha),
        )

    def critic_loss(critic: Critic, batch: Batch, td_target: Float[Array, " b"]):
        q = critic(batch.obs, batch.action)
        return jnp.sum(jnp.mean(jnp.square(q - td_target[None]), axis=1)), jnp.mean(q)

    def update(state: State, batch: Batch, key: PRNGKeyArray) -> tuple[State, Metrics]:
        key_policy, key_next = jax.random.split(key)
        alpha = jnp.exp(state.log_alpha)
        (pi_loss, log_pi), pi_gradient = jax.value_and_grad(sac_policy_loss, has_aux=True)(
            state.policy, state.critic, alpha, batch.obs, key_policy
        )
        after = sac_value(state.policy, state.target, alpha, batch.next_obs, key_next)
        td_target = batch.reward + cfg.discount * batch.mask * after
        (error, q_mean), q_gradient = jax.value_and_grad(critic_loss, has_aux=True)(state.critic, batch, td_target)
        log_alpha, alpha_opt = step(policy_optimizer, -(log_pi + entropy), state.alpha_opt, state.log_alpha)
        policy, policy_opt = step(policy_optimizer, pi_gradient, state.policy_opt, state.policy)
        critic, critic_opt = step(critic_optimizer, q_gradient, state.critic_opt, state.critic)
        target = polyak(critic, state.target, cfg.polyak)
        metrics = {
            "critic_loss": error,
            "critic_mean": q_mean,
            "policy_loss": pi_loss,
            "entropy": -log_pi,
            "temperature": alpha,
        }
        return State(policy, critic, target, log_alpha, policy_opt, critic_opt, alpha_opt), metrics

    return Algo(init, update, lambda state: state.policy)
