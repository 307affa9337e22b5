"""Implicit Q-learning as a frame: V is fitted to Q at the logged actions, Q to V at the next state, so no action of the
policy is ever evaluated.

    V    minimizes  E_D[value_loss(q, V(s))],                       q = min_i Qbar_i(s, a)
    pi   maximizes  E_D[weight(q, V(s)) log pi(a|s)]
    Q_i  minimizes  E_D[error(r + gamma m V(s') - Q_i(s, a))]       each head, added

One update, in this order: V; Q with the new V; Qbar <- Polyak; the policy with the new V and the old Qbar. IQL, SQL,
EQL, f-DVL and XQL are this frame with their own `value_loss`, `weight` and `error`. The last two may add uniform
actions to those of the data, in the loss of V alone (`random_actions`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray

from odice.algos.health import CLAMPED_WEIGHTS, LARGE_WEIGHTS, VALUES_OF_RETURNS, WEIGHTS
from odice.algos.validation import positive, require, validate
from odice.core.critics import Critic, huber, min_over_heads
from odice.core.extraction import advantage_weight, effective_sample_size, weighted_cloning
from odice.core.learner import Learned, Learner
from odice.core.networks import Ensemble, Init, value_network
from odice.core.optim import polyak
from odice.core.policies import LOG_STD_MIN, Policy, policy_network
from odice.types import Algo, Batch, Metrics, Spec

Rows = Float[Array, " b"]
LENGTH = 1_000_000
"""Length of a schedule outside of a run; a run fills in its own."""


@dataclass(frozen=True)
class ValuesConfig:
    """Settings of V and Q. Defaults follow the official code of IQL."""

    discount: float = 0.99
    """gamma: discount of the next state's value."""
    polyak: float = 0.005
    """tau: share of the online Q that enters the target after each update."""
    fresh_value: bool = True
    """Policy and Q use V after its step (official codes); off, V before it (CORL)."""
    layer_norm: bool = False
    """LayerNorm in the hidden layers of V."""
    value_hidden: tuple[int, ...] = (256, 256)
    """Widths of V's hidden layers."""
    critic_hidden: tuple[int, ...] = (256, 256)
    """Widths of the hidden layers of each Q."""
    value_lr: float = 3e-4
    """Adam's learning rate for V."""
    critic_lr: float = 3e-4
    """Adam's learning rate for Q."""
    weight_clamp: float = 100.0
    """Largest weight of a transition in the policy's loss."""
    init: Init = "orthogonal"
    """Initialization of all networks: orthogonal with gain sqrt(2) (official codes), torch's uniform (CORL), or
    Glorot's."""
    batch_size: int = 256
    """Transitions per update."""

    def __post_init__(self):
        validate(self)


@dataclass(frozen=True)
class ImplicitConfig(ValuesConfig):
    """What the members of the family share. Defaults follow the official code of IQL."""

    policy_hidden: tuple[int, ...] = (256, 256)
    """Widths of the policy's hidden layers."""
    policy_lr: float = 3e-4
    """Adam's learning rate for the policy, at the start."""
    cosine_steps: int | None = None
    """The policy's learning rate falls to 0 along a cosine over this many updates; None is the length of the run
    (1,000,000 outside of one), 0 keeps it."""
    tanh_mean: bool = True
    """Squash the Gaussian's mean into (-1, 1)."""
    log_std_min: float = LOG_STD_MIN
    """Floor of the Gaussian's log standard deviation (official codes: -5, CORL: -20)."""
    deterministic: bool = False
    """A deterministic tanh policy with squared error instead of the Gaussian (CORL: two data sets)."""


@dataclass(frozen=True)
class HuberConfig(ImplicitConfig):
    """What f-DVL and XQL add, whose official codes share theirs."""

    temperature: float = 3.0
    """How sharply the policy prefers actions of high advantage; MuJoCo 3, AntMaze 10."""
    random_actions: int = 0
    """Uniform actions per state in addition to the logged one, in the loss of V (official locomotion command: 1)."""
    huber_delta: float = 20.0
    """Temporal differences beyond this count linearly in the loss of Q."""
    layer_norm: bool = True
    """LayerNorm in the hidden layers of V (official code)."""
    batch_size: int = 1024
    """Transitions per update (official code: 1024)."""

    def __post_init__(self):
        super().__post_init__()
        require(self.random_actions >= 0, f"random_actions must be at least 0, got {self.random_actions}.")
        positive(self, "huber_delta", "temperature")


class Losses(NamedTuple):
    """What makes a member of the family."""

    value: Callable[[Rows, Rows], Float[Array, ""]]
    """(q, v) -> the loss of V; q carries no gradient."""
    weight: Callable[[Rows, Rows], Rows]
    """(q, v) -> how much each transition is imitated."""
    error: Callable[[Float[Array, "heads b"]], Float[Array, "heads b"]] = jnp.square
    """The loss of a temporal difference, elementwise."""
    random_actions: int = 0
    """Uniform actions per state in addition to the logged one, in the loss of V alone."""
    value_updates: int = 1
    """Steps of V per update, on the same batch."""
    action_noise: float = 0.0
    """Standard deviation of Gaussian noise on the logged actions, in the loss of V alone."""


def huber_losses(cfg: HuberConfig, value: Callable[[Rows, Rows], Float[Array, ""]]) -> Losses:
    """The losses of f-DVL and XQL around their loss of V: exponential weights, Huber errors."""
    return Losses(
        value=value,
        weight=lambda q, v: advantage_weight(q - v, cfg.temperature, cfg.weight_clamp),
        error=lambda d: huber(d, cfg.huber_delta),
        random_actions=cfg.random_actions,
    )


class State(NamedTuple):
    value: Learned[Ensemble]
    critic: Learned[Critic]
    target: Critic
    policy: Learned[Policy]
    step: Int[Array, ""]


DECLARED: dict[str, Any] = {
    "schedule": "cosine_steps",
    "value": lambda state: state.value.params,
    "health": (*WEIGHTS, CLAMPED_WEIGHTS, LARGE_WEIGHTS, VALUES_OF_RETURNS),
}
"""What every algorithm of this frame declares to the registry."""


def with_random_actions(batch: Batch, count: int, spec: Spec, key) -> tuple[Float[Array, "n obs"], Array]:
    """The states and actions of a batch, and behind them `count` uniform actions for each state."""
    if count == 0:
        return batch.obs, batch.action
    shape = (count * batch.action.shape[0], *batch.action.shape[1:])
    if spec.discrete:
        random = jax.random.randint(key, shape, 0, spec.action_dim, batch.action.dtype)
    else:
        random = jax.random.uniform(key, shape, minval=-1.0, maxval=1.0)
    obs = jnp.concatenate([batch.obs, jnp.repeat(batch.obs, count, axis=0)])
    return obs, jnp.concatenate([batch.action, random])


NOISE_CLIP = 0.5
"""Largest noise on an action (official codes of XQL and f-DVL)."""


def with_noise(action: Float[Array, "n act"], scale: float, key) -> Float[Array, "n act"]:
    """Actions with clipped Gaussian noise, within their bounds."""
    noise = jnp.clip(scale * jax.random.normal(key, action.shape), -NOISE_CLIP, NOISE_CLIP)
    return jnp.clip(action + noise, -1.0, 1.0)


class Values(NamedTuple):
    """V, Q and Q's target."""

    value: Learned[Ensemble]
    critic: Learned[Critic]
    target: Critic


class Fit(NamedTuple):
    """What an update of the values hands to the policy's."""

    q: Rows
    """min_i Qbar_i(s, a)."""
    v: Rows
    """V(s), after or before its step (`fresh_value`)."""
    metrics: Metrics
    td_target: Rows
    """r + gamma m V(s'): what Q was fitted to."""


class ValuePart(NamedTuple):
    """V and Q of the frame, without a policy."""

    init: Callable[[PRNGKeyArray, PRNGKeyArray], Values]
    update: Callable[[Values, Batch, PRNGKeyArray], tuple[Values, Fit]]


def implicit_values(
    cfg: ValuesConfig, losses: Losses, spec: Spec, learner: Callable[[float], Learner] = Learner
) -> ValuePart:
    """The values that a config and the losses make; `learner` makes the optimizer of a learning rate."""
    value_learner, critic_learner = learner(cfg.value_lr), learner(cfg.critic_lr)

    def init(key_value, key_critic) -> Values:
        value = value_network(key_value, spec, cfg.value_hidden, heads=1, layer_norm=cfg.layer_norm, init=cfg.init)
        critic = Critic(key_critic, spec, cfg.critic_hidden, init=cfg.init)
        target = jax.tree.map(jnp.copy, critic)  # its own buffers: the loop donates the state
        return Values(value_learner.init(value), critic_learner.init(critic), target)

    def value_loss(value: Ensemble, q: Rows, obs: Float[Array, "n obs"]) -> tuple[Float[Array, ""], Rows]:
        v = value(obs)[0]
        return losses.value(q, v), v

    def critic_loss(critic: Critic, td_target: Rows, batch: Batch) -> tuple[Float[Array, ""], Float[Array, "heads b"]]:
        q = critic(batch.obs, batch.action)
        return jnp.sum(jnp.mean(losses.error(td_target[None] - q), axis=1)), q

    def update(state: Values, batch: Batch, key) -> tuple[Values, Fit]:
        obs, action = with_random_actions(batch, losses.random_actions, spec, key)
        if losses.action_noise:
            action = with_noise(action, losses.action_noise, jax.random.fold_in(key, 1))
        q_of_value = min_over_heads(state.target(obs, action))
        (v_loss, v), gradient = jax.value_and_grad(value_loss, has_aux=True)(state.value.params, q_of_value, obs)
        value = value_learner.step(state.value, gradient)
        for _ in range(losses.value_updates - 1):
            gradient = jax.grad(value_loss, has_aux=True)(value.params, q_of_value, obs)[0]
            value = value_learner.step(value, gradient)
        logged = batch.obs.shape[0]
        q = min_over_heads(state.target(batch.obs, batch.action)) if losses.action_noise else q_of_value[:logged]
        v = v[:logged]
        v_used = value.params(batch.obs)[0] if cfg.fresh_value else v

        v_next = (value if cfg.fresh_value else state.value).params(batch.next_obs)[0]
        td_target = batch.reward + cfg.discount * batch.mask * v_next
        (q_loss, online), gradient = jax.value_and_grad(critic_loss, has_aux=True)(
            state.critic.params, td_target, batch
        )
        critic = critic_learner.step(state.critic, gradient)
        metrics = {
            "value_loss": v_loss,
            "value_mean": jnp.mean(v),
            "critic_loss": q_loss,
            "critic_mean": jnp.mean(online),
            "advantage_mean": jnp.mean(q - v_used),
        }
        return Values(value, critic, polyak(critic.params, state.target, cfg.polyak)), Fit(
            q, v_used, metrics, td_target
        )

    return ValuePart(init, update)


def cloning_policy(cfg: ImplicitConfig, key: PRNGKeyArray, spec: Spec) -> Policy:
    """The policy of the frame's settings."""
    options = {"tanh_mean": cfg.tanh_mean, "log_std_min": cfg.log_std_min, "deterministic": cfg.deterministic}
    return policy_network(key, spec, cfg.policy_hidden, **options, init=cfg.init)


def implicit(cfg: ImplicitConfig, losses: Losses, spec: Spec) -> Algo:
    """The algorithm that a config and three losses make."""
    length = LENGTH if cfg.cosine_steps is None else cfg.cosine_steps
    values, policy_learner = implicit_values(cfg, losses, spec), Learner(cfg.policy_lr, cosine_steps=length)

    def init(key) -> State:
        key_value, key_critic, key_policy = jax.random.split(key, 3)
        policy = policy_learner.init(cloning_policy(cfg, key_policy, spec))
        return State(*values.init(key_value, key_critic), policy=policy, step=jnp.zeros((), jnp.int32))

    def update(state: State, batch: Batch, key) -> tuple[State, Metrics]:
        fitted, (q, v, metrics, _) = values.update(Values(state.value, state.critic, state.target), batch, key)
        weight = losses.weight(q, v)
        policy_loss, gradient = jax.value_and_grad(weighted_cloning)(
            state.policy.params, weight, batch.obs, batch.action
        )
        policy = policy_learner.step(state.policy, gradient)
        metrics |= {
            "policy_loss": policy_loss,
            "weight_mean": jnp.mean(weight),
            "weight_ess": effective_sample_size(weight),
        }
        return State(*fitted, policy=policy, step=state.step + 1), metrics

    return Algo(init, update, lambda state: state.policy.params)
