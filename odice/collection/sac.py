"""SAC: soft actor-critic with automatic temperature (Haarnoja et al., 2018), the behavior that data are collected
with.

    y     = r + gamma m (min_j Qbar_j(s', a') - alpha log pi(a'|s')),   a' ~ pi(.|s')
    Q_i   minimizes  E[(Q_i(s, a) - y)^2]
    pi    minimizes  E[alpha log pi(a|s) - min_i Q_i(s, a)],   a ~ pi(.|s), the tanh of a Gaussian
    alpha such that the entropy of pi is H = -dim(a):   minimizes  -log alpha (log pi + H)

The losses are those of CQL without its conservative term (`core.critics`); here they learn from a replay that grows.
One update: all gradients at the old networks, then every step, then the target of Q.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from odice.algos.validation import validate
from odice.core.critics import Critic, critic_loss, sac_policy_loss, sac_value
from odice.core.learner import Learned, Learner
from odice.core.optim import polyak
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

    def build(self, spec: Spec) -> Algo:
        """The algorithm that these settings belong to."""
        return sac(self, spec)


class State(NamedTuple):
    policy: Learned[SquashedPolicy]
    critic: Learned[Critic]
    target: Critic
    log_alpha: Learned[Float[Array, ""]]


def sac(cfg: SACConfig, spec: Spec) -> Algo:
    """The three functions of soft actor-critic for a box of actions."""
    critic_learner, policy_learner = Learner(cfg.critic_lr), Learner(cfg.policy_lr)
    entropy = -float(spec.action_dim) if cfg.target_entropy is None else cfg.target_entropy

    def init(key: PRNGKeyArray) -> State:
        key_policy, key_critic = jax.random.split(key)
        policy = SquashedPolicy(key_policy, spec, cfg.policy_hidden, log_std_min=LOG_STD_MIN)
        critic = Critic(key_critic, spec, cfg.critic_hidden)
        return State(
            policy=policy_learner.init(policy),
            critic=critic_learner.init(critic),
            target=jax.tree.map(jnp.copy, critic),  # its own buffers: the loop donates the state
            log_alpha=policy_learner.init(jnp.zeros(())),
        )

    def update(state: State, batch: Batch, key: PRNGKeyArray) -> tuple[State, Metrics]:
        key_policy, key_next = jax.random.split(key)
        alpha, pi, q = jnp.exp(state.log_alpha.params), state.policy.params, state.critic.params
        (pi_loss, log_pi), pi_gradient = jax.value_and_grad(sac_policy_loss, has_aux=True)(
            pi, q, alpha, batch.obs, key_policy
        )
        after = sac_value(pi, state.target, alpha, batch.next_obs, key_next)
        td_target = batch.reward + cfg.discount * batch.mask * after
        (error, q_mean), q_gradient = jax.value_and_grad(critic_loss, has_aux=True)(q, td_target, batch)
        log_alpha = policy_learner.step(state.log_alpha, -(log_pi + entropy))
        policy = policy_learner.step(state.policy, pi_gradient)
        critic = critic_learner.step(state.critic, q_gradient)
        target = polyak(critic.params, state.target, cfg.polyak)
        metrics = {
            "critic_loss": error,
            "critic_mean": q_mean,
            "policy_loss": pi_loss,
            "entropy": -log_pi,
            "temperature": alpha,
        }
        return State(policy, critic, target, log_alpha), metrics

    return Algo(init, update, lambda state: state.policy.params)
