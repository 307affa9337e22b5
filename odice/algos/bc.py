"""Behavior cloning, on all of the data or on its best episodes.

    pi  minimizes  E_D[(pi(s) - a)^2]        a deterministic policy; the mean runs over action dimensions too
                or E_D[-log pi(a|s)]         a stochastic one, and discrete actions

| name    | data                                                       |
|---------|------------------------------------------------------------|
| `bc`    | all episodes                                               |
| `bc-10` | the tenth of the episodes with the highest return          |

BC is the baseline of every comparison: it does not use rewards. Percentage BC uses them once, to choose its episodes,
and is a surprisingly strong baseline on mixed data.

Differs from CORL, whose BC the published tables use:
- `bc-10` ranks whole episodes by their plain return; CORL ranks chunks of at most 1000 rows, which drift across the
  borders of episodes, by theirs (its runs do not discount);
- for discrete actions the loss is the cross entropy; CORL has none.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from odice.algos.registry import register
from odice.algos.validation import require, validate
from odice.core.learner import Learned, Learner
from odice.core.networks import Init
from odice.core.policies import Policy, TanhPolicy, policy_network
from odice.types import Algo, Batch, Metrics, Spec


@dataclass(frozen=True)
class BCConfig:
    """Defaults follow CORL's BC."""

    policy: Literal["deterministic", "gaussian"] = "deterministic"
    """pi: tanh of a network with squared error (CORL), or a Gaussian with -log pi. Discrete actions have a softmax."""
    tanh_mean: bool = True
    """Squash the Gaussian's mean into (-1, 1), as IQL's policy does. A deterministic policy always is."""
    policy_hidden: tuple[int, ...] = (256, 256)
    """Widths of the policy's hidden layers (CORL: 256, 256)."""
    policy_lr: float = 3e-4
    """Adam's learning rate (CORL: 3e-4)."""
    policy_weight_decay: float = 0.0
    """Coupled L2 decay, joined to the gradient before Adam's moments (CORL: none)."""
    init: Init = "torch"
    """Initialization of the network: torch's uniform (CORL), orthogonal with gain sqrt(2), or Glorot's uniform."""
    batch_size: int = 256
    """Transitions per update (CORL: 256)."""
    top_returns: float = 1.0
    """Share of the episodes, those with the highest return, that are cloned. The run selects them before training."""

    def __post_init__(self):
        validate(self)
        require(
            0 < self.top_returns <= 1,
            f"top_returns must lie in (0, 1], got {self.top_returns}: it is a share of the episodes.",
        )


@dataclass(frozen=True)
class PercentBCConfig(BCConfig):
    """Behavior cloning of the best episodes."""

    top_returns: float = 0.1
    """Share of the episodes, those with the highest return, that are cloned (CORL: 0.1)."""


class State(NamedTuple):
    policy: Learned[Policy]
    step: Int[Array, ""]


def cloning_loss(policy: Policy, batch: Batch) -> Float[Array, ""]:
    """The squared error per action dimension for a deterministic policy, else -log pi(a|s)."""
    loss = -jnp.mean(policy.log_prob(batch.obs, batch.action))
    return loss / batch.action.shape[-1] if isinstance(policy, TanhPolicy) else loss


def action_error(policy: Policy, batch: Batch) -> Float[Array, ""]:
    """How far the policy's action is from the logged one: root mean square, or the share of wrong choices."""
    mode = policy.mode(batch.obs)
    if batch.action.ndim == 1:
        return jnp.mean((mode != batch.action).astype(jnp.float32))
    return jnp.sqrt(jnp.mean(jnp.square(mode - batch.action)))


@register("bc", BCConfig, imitates=True, best_episodes="top_returns")
def bc(cfg: BCConfig, spec: Spec) -> Algo:
    """BC: behavior cloning of all the data."""
    learner = Learner(cfg.policy_lr, cfg.policy_weight_decay)

    def init(key) -> State:
        policy = policy_network(
            key,
            spec,
            cfg.policy_hidden,
            tanh_mean=cfg.tanh_mean,
            deterministic=cfg.policy == "deterministic",
            init=cfg.init,
        )
        return State(learner.init(policy), jnp.zeros((), jnp.int32))

    def update(state: State, batch: Batch, key) -> tuple[State, Metrics]:
        del key  # nothing here is random
        loss, gradient = jax.value_and_grad(cloning_loss)(state.policy.params, batch)
        metrics = {"policy_loss": loss, "action_error": action_error(state.policy.params, batch)}
        return State(learner.step(state.policy, gradient), state.step + 1), metrics

    return Algo(init, update, lambda state: state.policy.params)


@register("bc-10", PercentBCConfig, best_episodes="top_returns")
def percent_bc(cfg: PercentBCConfig, spec: Spec) -> Algo:
    """Percentage BC: behavior cloning of the tenth of the episodes with the highest return."""
    return bc(cfg, spec)
