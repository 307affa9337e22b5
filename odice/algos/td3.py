"""TD3 as a frame: twin critics on a smoothed target action, a deterministic policy every few updates.

    a'   = clip(pibar(s') + clip(eps, -c, c), -1, 1),    eps ~ N(0, sigma^2)
    Q_i  learns from the values of a' under Qbar
    pi   descends a loss of its own, with the *new* critics

One update, in this order: both critics; then, at every `policy_delay`-th update, the policy, and after it all targets
(policy's and critics') by Polyak. Between two policy steps the targets do not change. TD3+BC and ReBRAC are this frame
with their own losses.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray, PyTree

from odice.algos.validation import not_negative, require, validate
from odice.core.critics import Critic
from odice.core.learner import Learned, Learner
from odice.core.networks import Init
from odice.core.optim import polyak
from odice.core.policies import TanhPolicy
from odice.types import Algo, Batch, Metrics


@dataclass(frozen=True)
class TD3Config:
    """What both share. Defaults are TD3's."""

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
    critic_hidden: tuple[int, ...] = (256, 256)
    """Widths of the hidden layers of each critic."""
    policy_hidden: tuple[int, ...] = (256, 256)
    """Widths of the policy's hidden layers."""
    critic_lr: float = 3e-4
    """Adam's learning rate for the critics."""
    policy_lr: float = 3e-4
    """Adam's learning rate for the policy."""
    init: Init = "torch"
    """Initialization of all networks: torch's uniform (official code), orthogonal, or Glorot's uniform."""
    batch_size: int = 256
    """Transitions per update."""

    def __post_init__(self):
        validate(self)
        not_negative(self, "target_noise", "noise_clip")
        require(self.policy_delay >= 1, f"policy_delay must be at least 1, got {self.policy_delay}.")


class State(NamedTuple):
    policy: Learned[TanhPolicy]
    policy_target: TanhPolicy
    critic: Learned[Critic]
    critic_target: Critic
    measured: Any
    """What the last policy step measured, a tuple with `loss`; kept here because not every update has one."""
    step: Int[Array, ""]


class Losses(NamedTuple):
    """What makes a member of the family."""

    critic: Callable[[State, Batch, PRNGKeyArray], tuple[tuple[Float[Array, ""], Float[Array, ""]], PyTree]]
    """(state, batch, key) -> ((the critics' loss, the mean of Q), the critics' gradient)."""
    policy: Callable[[TanhPolicy, Critic, Batch], tuple[Float[Array, ""], Any]]
    """(policy, critic, batch) -> the policy's loss, and what is measured."""
    measured: type
    """The tuple of what is measured; its fields are metrics (`loss` is called `policy_loss`)."""


def next_action(cfg: TD3Config, state: State, batch: Batch, key: PRNGKeyArray) -> Float[Array, "b act"]:
    """The target policy's action at s', smoothed."""
    noise = cfg.target_noise * jax.random.normal(key, batch.action.shape)
    action = state.policy_target.mode(batch.next_obs) + jnp.clip(noise, -cfg.noise_clip, cfg.noise_clip)
    return jnp.clip(action, -1.0, 1.0)


def td3(
    cfg: TD3Config,
    losses: Losses,
    make_policy: Callable[[PRNGKeyArray], TanhPolicy],
    make_critic: Callable[[PRNGKeyArray], Critic],
) -> Algo:
    """The algorithm that a config, two losses and two networks make."""
    critic_learner, policy_learner = Learner(cfg.critic_lr), Learner(cfg.policy_lr)

    def init(key) -> State:
        key_policy, key_critic = jax.random.split(key)
        policy, critic = make_policy(key_policy), make_critic(key_critic)
        return State(
            policy=policy_learner.init(policy),
            policy_target=jax.tree.map(jnp.copy, policy),  # their own buffers: the loop donates the state
            critic=critic_learner.init(critic),
            critic_target=jax.tree.map(jnp.copy, critic),
            measured=losses.measured(*jnp.zeros(len(losses.measured._fields))),
            step=jnp.zeros((), jnp.int32),
        )

    def policy_step(state: State, batch: Batch) -> State:
        loss = lambda policy: losses.policy(policy, state.critic.params, batch)
        gradient, measured = jax.grad(loss, has_aux=True)(state.policy.params)
        policy = policy_learner.step(state.policy, gradient)
        return state._replace(
            policy=policy,
            policy_target=polyak(policy.params, state.policy_target, cfg.polyak),
            critic_target=polyak(state.critic.params, state.critic_target, cfg.polyak),
            measured=measured,
        )

    def update(state: State, batch: Batch, key) -> tuple[State, Metrics]:
        (loss, q_mean), gradient = losses.critic(state, batch, key)
        state = state._replace(critic=critic_learner.step(state.critic, gradient), step=state.step + 1)
        due = state.step % cfg.policy_delay == 0
        state = jax.lax.cond(due, policy_step, lambda state, _: state, state, batch)
        measured = dict(state.measured._asdict())
        return state, {"critic_loss": loss, "critic_mean": q_mean, "policy_loss": measured.pop("loss"), **measured}

    return Algo(init, update, lambda state: state.policy.params)
