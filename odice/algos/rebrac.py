"""ReBRAC: TD3 held to the data in both networks (Tarasov et al., NeurIPS 2023).

    a'   = clip(pibar(s') + clip(eps, -c, c), -1, 1),    eps ~ N(0, sigma^2)
    y    = r + gamma m (min_j Qbar_j(s', a') - b_Q ||a' - a'_D||^2)          a'_D: the action that the log has at s'
    Q_i  minimizes  E_D[(Q_i(s, a) - y)^2]
    pi   minimizes  E_D[b_pi ||pi(s) - a||^2 - k min_i Q_i(s, pi(s))],       k = 1 / sg(E_D|min_i Q_i(s, pi(s))|)

TD3+BC (`td3-bc`) with the penalty in the critic's target too, deep networks, LayerNorm in the critics and large
batches; its paper measures what each brings. Squared distances are summed over the action's dimensions.

The order of an update is the frame's (`td3`).

Where the log has no a'_D (the last step of an episode that was cut by time) there is no penalty in y. D4RL's convention
(`--convention qlearning`) leaves such steps out.

Differs from CORL's code (`algorithms/offline/rebrac.py`, tinkoff-ai/CORL, 6afec904): LayerNorm comes before the ReLU,
there after it; biases start as torch's, there at 0.1; the targets follow the new policy, there the old one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from odice.algos.health import VALUES_OF_RETURNS
from odice.algos.registry import register
from odice.algos.td3 import Losses, State, TD3Config, next_action, td3
from odice.algos.validation import not_negative
from odice.core.critics import Critic, critic_loss, min_over_heads
from odice.core.networks import Init, symmetric
from odice.core.policies import TanhPolicy
from odice.types import Algo, Batch, Spec


@dataclass(frozen=True)
class ReBRACConfig(TD3Config):
    """ReBRAC. Defaults follow CORL's locomotion configs; its penalties differ by data set (preset `corl`)."""

    policy_penalty: float = 0.01
    """b_pi: weight of the squared distance to the logged action in the policy's loss (CORL: 0.001 to 0.1)."""
    critic_penalty: float = 0.01
    """b_Q: weight of the squared distance to the log's next action in the target of Q (CORL: 0 to 0.5)."""
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
    """Initialization of the hidden layers; the output layers start small (CORL)."""
    batch_size: int = 1024
    """Transitions per update; AntMaze 256."""

    def __post_init__(self):
        super().__post_init__()
        not_negative(self, "policy_penalty", "critic_penalty")


class PolicyMetrics(NamedTuple):
    """What a policy step measures."""

    loss: Float[Array, ""]
    distance: Float[Array, ""]
    value_scale: Float[Array, ""]


def distance(action: Float[Array, "b act"], logged: Float[Array, "b act"]) -> Float[Array, " b"]:
    """The squared distance to the logged action; 0 where the log has none (NaN)."""
    return jnp.sum(jnp.square(jnp.where(jnp.isnan(logged), 0.0, action - logged)), axis=-1)


def td_target(cfg: ReBRACConfig, state: State, batch: Batch, key: PRNGKeyArray) -> Float[Array, " b"]:
    """y: the pessimistic value of a smoothed target action, less its distance to the log's."""
    action = next_action(cfg, state, batch, key)
    penalty = cfg.critic_penalty * distance(action, batch.column("next_action"))
    v_next = min_over_heads(state.critic_target(batch.next_obs, action)) - penalty
    return batch.reward + cfg.discount * batch.mask * v_next


def policy_loss(cfg: ReBRACConfig, policy: TanhPolicy, critic: Critic, batch: Batch):
    """The penalty less the normalized value, and its parts."""
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
    """ReBRAC: TD3 whose policy and critics are both held to the data, with deep normalized critics."""

    def critic_gradient(state: State, batch: Batch, key):
        target = td_target(cfg, state, batch, key)
        return jax.value_and_grad(critic_loss, has_aux=True)(state.critic.params, target, batch)

    options = {"layer_norm": cfg.layer_norm, "init": cfg.init, "last": symmetric(3e-3)}
    return td3(
        cfg,
        Losses(critic_gradient, lambda policy, critic, batch: policy_loss(cfg, policy, critic, batch), PolicyMetrics),
        lambda key: TanhPolicy(key, spec, cfg.policy_hidden, init=cfg.init, last=symmetric(1e-3)),
        lambda key: Critic(key, spec, cfg.critic_hidden, **options),
    )
