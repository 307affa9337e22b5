"""V-DICE as the critic of soft actor-critic: O-DICE online, which its authors name as future work.

In soft actor-critic Q is the value of the current policy; here V-DICE learns the value of the best actions in the
replay, and the policy maximizes the Q that comes with it. With e = min_i Q_i(s, a) - V(s), the mean of R over next
states (`core.expected`):

    Q_i   minimizes  E[(Q_i(s, a) - r - gamma m Vbar(s'))^2]
    V     minimizes  E[(1 - lam) V(s) + lam f*(R)],   R = r + gamma m V(s') - V(s),   by a gradient rule, weights f*'(e)
    pi    minimizes  E[alpha log pi(a|s) - min_i Q_i(s, a)],   a ~ pi,    and alpha as in `collection.sac`

The rules are those of `core.gradients`: F + B, F, or F with the projected B. Vbar is the target network; with the true
gradient, V itself. f is Pearson's, in units of `temperature`. V has no entropy in it. A study
(docs/research/online.md), not an algorithm of the registry: it needs an environment.

One update: all gradients at the old networks, then every step, then the target of V.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from odice.algos.validation import positive, require
from odice.collection.sac import LOG_STD_MIN, SACConfig
from odice.core import vdice
from odice.core.critics import Critic, min_over_heads, sac_policy_loss
from odice.core.divergences import divergence, tempered
from odice.core.gradients import orthogonal, rule, rule_gradient
from odice.core.learner import Learned, Learner
from odice.core.networks import Ensemble, value_network
from odice.core.optim import polyak
from odice.core.policies import SquashedPolicy
from odice.types import Algo, Batch, Metrics, Spec


@dataclass(frozen=True)
class DualSACConfig(SACConfig):
    """SAC's settings, and V-DICE's. Two of SAC's mean V here: `polyak` moves its target, `critic_lr` learns it too."""

    gradient: Literal["true", "semi", "orthogonal"] = "orthogonal"
    """What becomes of the gradient through V(s')."""
    eta: float = 1.0
    """eta: strength of the projected backward gradient."""
    lam: float = 0.6
    """lambda: larger asks for better actions of the replay."""
    temperature: float = 1.0
    """Residuals count in units of this."""

    def __post_init__(self):
        super().__post_init__()
        require(0 < self.lam < 1, f"lam must lie strictly between 0 and 1, got {self.lam}.")
        positive(self, "temperature")
        orthogonal(self.eta)

    def build(self, spec: Spec) -> Algo:
        return dual_sac(self, spec)


class State(NamedTuple):
    policy: Learned[SquashedPolicy]
    critic: Learned[Critic]
    value: Learned[Ensemble]
    target: Ensemble
    log_alpha: Learned[Float[Array, ""]]


def dual_sac(cfg: DualSACConfig, spec: Spec) -> Algo:
    """The three functions of soft actor-critic with V-DICE as its critic."""
    critic_learner, policy_learner = Learner(cfg.critic_lr), Learner(cfg.policy_lr)
    entropy = -float(spec.action_dim) if cfg.target_entropy is None else cfg.target_entropy
    how, f = rule(cfg.gradient, cfg.eta), tempered(divergence("pearson"), cfg.temperature)

    def init(key: PRNGKeyArray) -> State:
        key_policy, key_critic, key_value = jax.random.split(key, 3)
        policy = SquashedPolicy(key_policy, spec, cfg.policy_hidden, log_std_min=LOG_STD_MIN)
        critic = Critic(key_critic, spec, cfg.critic_hidden)
        value = value_network(key_value, spec, cfg.critic_hidden, heads=1)
        return State(
            policy=policy_learner.init(policy),
            critic=critic_learner.init(critic),
            value=critic_learner.init(value),
            target=jax.tree.map(jnp.copy, value),  # its own buffers: the loop donates the state
            log_alpha=policy_learner.init(jnp.zeros(())),
        )

    def value_gradient(state: State, batch: Batch, q: Float[Array, "heads b"]):
        expected = min_over_heads(q)[None] - state.value.params(batch.obs)

        def losses(v, v_next):
            frozen = vdice.freeze(how, v, v_next, state.target(batch.obs), state.target(batch.next_obs))
            options = {"divergence": f, "lam": cfg.lam, "discount": cfg.discount, "expected": expected}
            return vdice.losses(frozen, batch.reward, batch.mask, **options)

        here, there = (lambda value, at=at: value(at) for at in (batch.obs, batch.next_obs))
        return rule_gradient(how, state.value.params, here, there, losses)

    def update(state: State, batch: Batch, key: PRNGKeyArray) -> tuple[State, Metrics]:
        alpha, critic, value = jnp.exp(state.log_alpha.params), state.critic.params, state.value.params
        (pi_loss, log_pi), pi_gradient = jax.value_and_grad(sac_policy_loss, has_aux=True)(
            state.policy.params, critic, alpha, batch.obs, key
        )
        after = (state.target if how.use_target else value)(batch.next_obs)[0]
        backup = batch.reward + cfg.discount * batch.mask * after
        squared = lambda critic: jnp.sum(
            jnp.mean(jnp.square(critic(batch.obs, batch.action) - backup[None]), axis=1), axis=0
        )
        error, q_gradient = jax.value_and_grad(squared)(critic)
        q = critic(batch.obs, batch.action)
        result = value_gradient(state, batch, q)
        metrics = {
            "critic_loss": error,
            "critic_mean": jnp.mean(q),
            "value_mean": jnp.mean(value(batch.obs)),
            "policy_loss": pi_loss,
            "entropy": -log_pi,
            "temperature": alpha,
        }
        stepped = critic_learner.step(state.value, result.gradient)
        new = State(
            policy=policy_learner.step(state.policy, pi_gradient),
            critic=critic_learner.step(state.critic, q_gradient),
            value=stepped,
            target=polyak(stepped.params, state.target, cfg.polyak),
            log_alpha=policy_learner.step(state.log_alpha, -(log_pi + entropy)),
        )
        return new, metrics

    return Algo(init, update, lambda state: state.policy.params)
