"""AWAC and CRR: an actor-critic whose policy clones the log's actions, weighted by their advantage.

    y    = r + gamma m min_j Qbar_j(s', a'),   a' ~ pi(.|s')
    Q_i  minimizes  E_D[(Q_i(s, a) - y)^2]
    A    = min_i Q_i(s, a) - 1/N sum_n min_i Q_i(s, a_n),   a_n ~ pi(.|s)
    pi   maximizes  E_D[w(A) log pi(a|s)]

| name   | paper                                  | N | w(A)                                                       |
|--------|----------------------------------------|---|------------------------------------------------------------|
| `awac` | Nair et al., 2020                      | 1 | min(exp(A / beta), clamp)                                  |
| `crr`  | Wang et al., NeurIPS 2020              | 4 | 1{A > 0} (`binary`), or min(exp(A / beta), clamp) (`exp`)   |

Against IQL (`iql`), Q is evaluated at the policy's own actions, in the target and in the advantage: no expectile, but
values of actions that the log may not have. Actions of a finite set are summed exactly.

One update, in this order: both critics; the policy with the *new* critics; the target by Polyak.

Differs:
- AWAC: as CORL's code (`algorithms/offline/awac.py`, tinkoff-ai/CORL, 6afec904), whose beta is called lambda; discrete
  actions are ours;
- CRR: its paper has one distributional critic (a categorical one) and a target policy; here two scalar critics, and the
  policy itself. No official code was read: the formulas are the paper's, so there is no preset.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from odice.algos.health import VALUES_OF_RETURNS, WEIGHTS
from odice.algos.registry import register
from odice.algos.validation import positive, require, validate
from odice.core.critics import Critic, critic_loss, min_over_heads, q_at
from odice.core.extraction import advantage_weight, effective_sample_size, weighted_cloning
from odice.core.learner import Learned, Learner
from odice.core.networks import Init
from odice.core.optim import polyak
from odice.core.policies import Policy, draw, policy_network
from odice.types import Algo, Batch, Metrics, Spec

Values = Float[Array, " b"]


@dataclass(frozen=True)
class AWACConfig:
    """AWAC. Defaults follow CORL's locomotion configs."""

    beta: float = 1 / 3
    """beta: temperature of the weights (CORL: 0.3333, AntMaze 0.1). Smaller prefers good actions more sharply."""
    n_actions: int = 1
    """N: actions of the policy whose mean value is the baseline (CORL: 1)."""
    weight_clamp: float = 100.0
    """Largest weight of a transition in the policy's loss."""
    discount: float = 0.99
    """gamma: discount of the next state's value."""
    polyak: float = 0.005
    """tau: share of the online critics that enters the target after each update."""
    critic_hidden: tuple[int, ...] = (256, 256, 256)
    """Widths of the hidden layers of each critic."""
    policy_hidden: tuple[int, ...] = (256, 256, 256)
    """Widths of the policy's hidden layers."""
    critic_lr: float = 3e-4
    """Adam's learning rate for the critics."""
    policy_lr: float = 3e-4
    """Adam's learning rate for the policy."""
    log_std_min: float = -20.0
    """Floor of the Gaussian's log standard deviation."""
    init: Init = "torch"
    """Initialization of all networks."""
    batch_size: int = 256
    """Transitions per update."""

    def __post_init__(self):
        validate(self)
        positive(self, "beta")
        require(self.n_actions >= 1, f"n_actions must be at least 1, got {self.n_actions}.")


@dataclass(frozen=True)
class CRRConfig(AWACConfig):
    """CRR. Defaults follow its paper where they are widths, rates and batches of AWAC's kind."""

    filter: Literal["binary", "exp"] = "binary"
    """w: 1 for positive advantages and 0 for others, or exponential."""
    beta: float = 1.0
    """beta: temperature of the exponential weights (paper: 1)."""
    n_actions: int = 4
    """N: actions of the policy whose mean value is the baseline (paper: 4)."""
    weight_clamp: float = 20.0
    """Largest weight of a transition in the policy's loss (paper: 20)."""


class State(NamedTuple):
    policy: Learned[Policy]
    critic: Learned[Critic]
    target: Critic
    step: Int[Array, ""]


def policy_value(policy: Policy, critic: Critic, obs: Float[Array, "b obs"], count: int, key) -> Values:
    """The mean of min_i Q_i over `count` actions of the policy; of a finite set, over all of them."""
    draws = draw(policy, key, obs, count)
    return jnp.sum(draws.prob * min_over_heads(q_at(critic, obs, draws.action)), axis=0)


def weighted_actor_critic(cfg: AWACConfig, weigh: Callable[[Values], Values], spec: Spec) -> Algo:
    """The algorithm that a config and a weight of the advantage make."""
    critic_learner, policy_learner = Learner(cfg.critic_lr), Learner(cfg.policy_lr)

    def init(key) -> State:
        key_policy, key_critic = jax.random.split(key)
        policy = policy_network(key_policy, spec, cfg.policy_hidden, log_std_min=cfg.log_std_min, init=cfg.init)
        critic = Critic(key_critic, spec, cfg.critic_hidden, init=cfg.init)
        target = jax.tree.map(jnp.copy, critic)  # its own buffers: the loop donates the state
        return State(policy_learner.init(policy), critic_learner.init(critic), target, jnp.zeros((), jnp.int32))

    def update(state: State, batch: Batch, key) -> tuple[State, Metrics]:
        key_next, key_policy = jax.random.split(key)
        v_next = policy_value(state.policy.params, state.target, batch.next_obs, 1, key_next)
        td_target = batch.reward + cfg.discount * batch.mask * v_next
        (loss, q_mean), gradient = jax.value_and_grad(critic_loss, has_aux=True)(state.critic.params, td_target, batch)
        critic = critic_learner.step(state.critic, gradient)

        baseline = policy_value(state.policy.params, critic.params, batch.obs, cfg.n_actions, key_policy)
        advantage = min_over_heads(critic.params(batch.obs, batch.action)) - baseline
        weight = jax.lax.stop_gradient(weigh(advantage))
        cloning, gradient = jax.value_and_grad(weighted_cloning)(state.policy.params, weight, batch.obs, batch.action)
        policy = policy_learner.step(state.policy, gradient)
        metrics = {
            "critic_loss": loss,
            "critic_mean": q_mean,
            "policy_loss": cloning,
            "advantage_mean": jnp.mean(advantage),
            "weight_mean": jnp.mean(weight),
            "weight_ess": effective_sample_size(weight),
        }
        return State(policy, critic, polyak(critic.params, state.target, cfg.polyak), state.step + 1), metrics

    return Algo(init, update, lambda state: state.policy.params)


DECLARED: dict[str, Any] = {"when_diverged": ("lower", "critic_lr"), "health": (*WEIGHTS, VALUES_OF_RETURNS)}


@register("awac", AWACConfig, **DECLARED)
def awac(cfg: AWACConfig, spec: Spec) -> Algo:
    """AWAC: actor-critic whose policy clones the log with exponential weights of the advantage."""
    return weighted_actor_critic(cfg, lambda a: advantage_weight(a, 1 / cfg.beta, cfg.weight_clamp), spec)


@register("crr", CRRConfig, **DECLARED)
def crr(cfg: CRRConfig, spec: Spec) -> Algo:
    """CRR: critic-regularized regression, cloning of the log's actions that beat the policy's own."""
    if cfg.filter == "binary":
        return weighted_actor_critic(cfg, lambda a: (a > 0).astype(a.dtype), spec)
    return weighted_actor_critic(cfg, lambda a: advantage_weight(a, 1 / cfg.beta, cfg.weight_clamp), spec)
