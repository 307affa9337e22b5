"""V-DICE as the critic of soft actor-critic: O-DICE online, which its authors name as future work.

Soft actor-critic asks Q what its own policy earns; here V-DICE says what the best actions in the replay earn, and the
policy climbs the Q that comes with it. With e = min_i Q_i(s, a) - V(s), the mean of R over next states
(`algos.vdice`, `double_sampling = both`):

    Q_i   minimises  E[(Q_i(s, a) - r - gamma m Vbar(s'))^2]
    V     minimises  E[(1 - lam) V(s) + lam f*(R)],   R = r + gamma m V(s') - V(s),   by a gradient rule, weights f*'(e)
    pi    minimises  E[alpha log pi(a|s) - min_i Q_i(s, a)],   a ~ pi,    and alpha as in `algos.sac`

The rules are those of `core.gradients`: F + B, F, or F with the projected B. Vbar is the target network; with the true
gradient, V itself. f is Pearson's, in units of `temperature`. V has no entropy in it. A study (docs/online.md), not an
algorithm of the registry: it needs an environment.

One update: all gradients at the networks of before, then every step, then the target of V.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, PRNGKeyArray

from odice.algos.sac import LOG_STD_MIN, SACConfig, sac
from odice.algos.validation import positive, require
from odice.core import vdice
from odice.core.critics import Critic, min_over_heads, sac_policy_loss
from odice.core.divergences import divergence, tempered
from odice.core.gradients import orthogonal, rule, rule_gradient
from odice.core.networks import Ensemble, value_network
from odice.core.optim import adam, opt_init, polyak, step
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


class State(NamedTuple):
    policy: SquashedPolicy
    critic: Critic
    value: Ensemble
    target: Ensemble
    log_alpha: Float[Array, ""]
    policy_opt: optax.OptState
    critic_opt: optax.OptState
    value_opt: optax.OptState
    alpha_opt: optax.OptState


def dual_sac(cfg: DualSACConfig, spec: Spec) -> Algo:
    """The three functions of soft actor-critic with V-DICE as its critic."""
    critic_optimizer, policy_optimizer = adam(cfg.critic_lr), adam(cfg.policy_lr)
    entropy = -float(spec.action_dim) if cfg.target_entropy is None else cfg.target_entropy
    how, f = rule(cfg.gradient, cfg.eta), tempered(divergence("pearson"), cfg.temperature)

    def init(key: PRNGKeyArray) -> State:
        key_policy, key_critic, key_value = jax.random.split(key, 3)
        policy = SquashedPolicy(key_policy, spec, cfg.policy_hidden, log_std_min=LOG_STD_MIN)
        critic = Critic(key_critic, spec, cfg.critic_hidden)
        value, log_alpha = value_network(key_value, spec, cfg.critic_hidden, heads=1), jnp.zeros(())
        return State(
            policy=policy,
            critic=critic,
            value=value,
            target=jax.tree.map(jnp.copy, value),  # its own buffers: the loop donates the state
            log_alpha=log_alpha,
            policy_opt=opt_init(policy_optimizer, policy),
            critic_opt=opt_init(critic_optimizer, critic),
            value_opt=opt_init(critic_optimizer, value),
            alpha_opt=opt_init(policy_optimizer, log_alpha),
        )

    def value_gradient(state: State, batch: Batch, q: Float[Array, "heads b"]):
        expected = min_over_heads(q)[None] - state.value(batch.obs)

        def losses(v, v_next):
            frozen = vdice.freeze(how, v, v_next, state.target(batch.obs), state.target(batch.next_obs))
            options = {"divergence": f, "lam": cfg.lam, "discount": cfg.discount, "expected": expected}
            return vdice.losses(frozen, batch.reward, batch.mask, **options)

        here, there = (lambda value, at=at: value(at) for at in (batch.obs, batch.next_obs))
        return rule_gradient(how, state.value, here, there, losses)

    def update(state: State, batch: Batch, key: PRNGKeyArray) -> tuple[State, Metrics]:
        alpha = jnp.exp(state.log_alpha)
        (pi_loss, log_pi), pi_gradient = jax.value_and_grad(sac_policy_loss, has_aux=True)(
            state.policy, state.critic, alpha, batch.obs, key
        )
        after = (state.target if how.use_target else state.value)(batch.next_obs)[0]
        backup = batch.reward + cfg.discount * batch.mask * after
        squared = lambda critic: jnp.sum(
            jnp.mean(jnp.square(critic(batch.obs, batch.action) - backup[None]), axis=1), axis=0
        )
        error, q_gradient = jax.value_and_grad(squared)(state.critic)
        q = state.critic(batch.obs, batch.action)
        result = value_gradient(state, batch, q)
        log_alpha, alpha_opt = step(policy_optimizer, -(log_pi + entropy), state.alpha_opt, state.log_alpha)
        policy, policy_opt = step(policy_optimizer, pi_gradient, state.policy_opt, state.policy)
        critic, critic_opt = step(critic_optimizer, q_gradient, state.critic_opt, state.critic)
        value, value_opt = step(critic_optimizer, result.gradient, state.value_opt, state.value)
        metrics = {
            "critic_loss": error,
            "critic_mean": jnp.mean(q),
            "value_mean": jnp.mean(state.value(batch.obs)),
            "policy_loss": pi_loss,
            "entropy": -log_pi,
            "temperature": alpha,
        }
        target = polyak(value, state.target, cfg.polyak)
        opts = (policy_opt, critic_opt, value_opt, alpha_opt)
        return State(policy, critic, value, target, log_alpha, *opts), metrics

    return Algo(init, update, lambda state: state.policy)


def actor_critic(cfg: SACConfig, spec: Spec) -> Algo:
    """The algorithm that a config belongs to."""
    return dual_sac(cfg, spec) if isinstance(cfg, DualSACConfig) else sac(cfg, spec)
