"""ReBRAC: TD3 held to the data in both networks (Tarasov et al., NeurIPS 2023).

    a'   = clip(pibar(s') + clip(eps, -c, c), -1, 1),    eps ~ N(0, sigma^2)
    y    = r + gamma m (min_j Qbar_j(s', a') - b_Q ||a' - a'_D||^2)          a'_D: the action that the log has at s'
    Q_i  minimises  E_D[(Q_i(s, a) - y)^2]
    pi   minimises  E_D[b_pi ||pi(s) - a||^2 - k min_i Q_i(s, pi(s))],       k = 1 / sg(E_D|min_i Q_i(s, pi(s))|)

TD3+BC (`td3-bc`) with the penalty in the critic's target too, deep networks, LayerNorm in the critics and large
batches; its paper measures what each brings. Squared distances are summed over the action's dimensions.

One update, in this order: both critics; then, at every `policy_delay`-th update, the policy with the *new* critics, and
all targets by Polyak.

Where the log has no a'_D (the last step of an episode that was cut by time) there is no penalty in y. D4RL's convention
(`--convention qlearning`) leaves such steps out.

Differs from CORL's code (`algorithms/offline/rebrac.py`, tinkoff-ai/CORL, 6afec904): LayerNorm comes before the ReLU,
there after it; biases start as torch's, there at 0.1; the targets follow the policy of after its step, there of before.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray

from odice.algos.health import VALUES_OF_RETURNS
from odice.algos.registry import register
from odice.algos.validation import require, validate
from odice.core.critics import Critic, min_over_heads
from odice.core.learner import Learned, Learner
from odice.core.networks import Init, symmetric
from odice.core.optim import polyak
from odice.core.policies import TanhPolicy
from odice.types import Algo, Batch, Metrics, Spec


@dataclass(frozen=True)
class ReBRACConfig:
    """ReBRAC. Defaults follow CORL's locomotion configs; its penalties differ by data set (preset `corl`)."""

    policy_penalty: float = 0.01
    """b_pi: weight of the squared distance to the logged action in the policy's loss (CORL: 0.001 to 0.1)."""
    critic_penalty: float = 0.01
    """b_Q: weight of the squared distance to the log's next action in the target of Q (CORL: 0 to 0.5)."""
    discount: float = 0.99
    """gamma: discount of the next state's value; AntMaze 0.999."""
    polyak: float = 0.005
    """tau: share of the online networks that enters the targets at each policy step."""
    target_noise: float = 0.2
    """sigma: standard deviation of the noise on the target policy's action."""
    noise_clip: float = 0.5
    """c: largest noise on the target policy's action."""
    policy_delay: int = 2
    """Updates of the critics for one of the policy and the targets."""
    layer_norm: bool = True
    """LayerNorm in the critics' hidden layers."""
    critic_hidden: tuple[int, ...] = (256, 256, 256)
    """Widths of the hidden layers of each critic."""
    policy_hidden: tuple[int, ...] = (256, 256, 256)
    """Widths of the policy's hidden layers."""
    critic_lr: float = 1e-3
    """Adam's learning rate for the critics; AntMaze 5e-5."""
    policy_lr: float = 1e-3
    """Adam's learning rate for the policy; AntMaze 3e-4."""
    init: Init = "torch"
    """Initialisation of the hidden layers; the output layers start small (CORL)."""
    batch_size: int = 1024
    """Transitions per update; AntMaze 256."""

    def __post_init__(self):
        validate(self)
        for name in ("policy_penalty", "critic_penalty", "target_noise", "noise_clip"):
            value = getattr(self, name)
            require(0 <= value < float("inf"), f"{name} must be a finite number of at least 0, got {value}.")
        require(self.policy_delay >= 1, f"policy_delay must be at least 1, got {self.policy_delay}.")


class PolicyMetrics(NamedTuple):
    """What the last policy step measured; kept in the state because not every update has one."""

    loss: Float[Array, ""]
    distance: Float[Array, ""]
    value_scale: Float[Array, ""]


class State(NamedTuple):
    policy: Learned[TanhPolicy]
    policy_target: TanhPolicy
    critic: Learned[Critic]
    critic_target: Critic
    measured: PolicyMetrics
    step: Int[Array, ""]


def distance(action: Float[Array, "b act"], logged: Float[Array, "b act"]) -> Float[Array, " b"]:
    """The squared distance to the logged action; 0 where the log has none (NaN)."""
    return jnp.sum(jnp.square(jnp.where(jnp.isnan(logged), 0.0, action - logged)), axis=-1)


def td_target(cfg: ReBRACConfig, state: State, batch: Batch, key: PRNGKeyArray) -> Float[Array, " b"]:
    """y: the pessimistic value of a smoothed target action, less its distance to the log's."""
    noise = jnp.clip(cfg.target_noise * jax.random.normal(key, batch.action.shape), -cfg.noise_clip, cfg.noise_clip)
    action = jnp.clip(state.policy_target.mode(batch.next_obs) + noise, -1.0, 1.0)
    penalty = cfg.critic_penalty * distance(action, batch.column("next_action"))
    v_next = min_over_heads(state.critic_target(batch.next_obs, action)) - penalty
    return batch.reward + cfg.discount * batch.mask * v_next


def critic_loss(critic: Critic, target: Float[Array, " b"], batch: Batch):
    """The squared errors of both heads, added; and the mean of Q."""
    q = critic(batch.obs, batch.action)
    return jnp.sum(jnp.mean(jnp.square(q - target[None]), axis=1)), jnp.mean(q)


def policy_loss(cfg: ReBRACConfig, policy: TanhPolicy, critic: Critic, batch: Batch):
    """The penalty less the normalised value, and its parts."""
    action = policy.mode(batch.obs)
    q = min_over_heads(critic(batch.obs, action))
    scale = jax.lax.stop_gradient(jnp.mean(jnp.abs(q)))
    near = jnp.mean(distance(action, batch.action))
    loss = cfg.policy_penalty * near - jnp.mean(q) / jnp.maximum(scale, 1e-8)
    return loss, PolicyMetrics(loss, near, scale)


@register(
    "rebrac",
    ReBRACConfig,
    discrete=False,
    columns={"next_action": None},
    when_diverged=("raise", "policy_penalty"),
    health=(VALUES_OF_RETURNS,),
)
def rebrac(cfg: ReBRACConfig, spec: Spec) -> Algo:
    """ReBRAC: TD3 whose policy and critics are both held to the data, with deep normalised critics."""
    critic_learner, policy_learner = Learner(cfg.critic_lr), Learner(cfg.policy_lr)

    def init(key) -> State:
        key_policy, key_critic = jax.random.split(key)
        policy = TanhPolicy(key_policy, spec, cfg.policy_hidden, init=cfg.init, last=symmetric(1e-3))
        options = {"layer_norm": cfg.layer_norm, "init": cfg.init, "last": symmetric(3e-3)}
        critic = Critic(key_critic, spec, cfg.critic_hidden, **options)
        return State(
            policy=policy_learner.init(policy),
            policy_target=jax.tree.map(jnp.copy, policy),  # their own buffers: the loop donates the state
            critic=critic_learner.init(critic),
            critic_target=jax.tree.map(jnp.copy, critic),
            measured=PolicyMetrics(*jnp.zeros(3)),
            step=jnp.zeros((), jnp.int32),
        )

    def policy_step(state: State, batch: Batch) -> State:
        loss = lambda policy: policy_loss(cfg, policy, state.critic.params, batch)
        gradient, measured = jax.grad(loss, has_aux=True)(state.policy.params)
        policy = policy_learner.step(state.policy, gradient)
        return state._replace(
            policy=policy,
            policy_target=polyak(policy.params, state.policy_target, cfg.polyak),
            critic_target=polyak(state.critic.params, state.critic_target, cfg.polyak),
            measured=measured,
        )

    def update(state: State, batch: Batch, key) -> tuple[State, Metrics]:
        target = td_target(cfg, state, batch, key)
        (loss, q_mean), gradient = jax.value_and_grad(critic_loss, has_aux=True)(state.critic.params, target, batch)
        state = state._replace(critic=critic_learner.step(state.critic, gradient), step=state.step + 1)
        due = state.step % cfg.policy_delay == 0
        state = jax.lax.cond(due, policy_step, lambda state, _: state, state, batch)
        metrics = {
            "critic_loss": loss,
            "critic_mean": q_mean,
            "policy_loss": state.measured.loss,
            "distance": state.measured.distance,
            "value_scale": state.measured.value_scale,
        }
        return state, metrics

    return Algo(init, update, lambda state: state.policy.params)
