"""AlgaeDICE: a policy gradient from any experience (Nachum et al., 2019): Q-form DICE with rewards, under three
gradient rules.

The dual of "earn much and stay near the data's visitation" over both Q and the policy, with h the conjugate of the
divergence:

    J = alpha (1 - gamma) E_p0[Q(s0, a0)] + E_D[h(R)],     R = r + gamma m V(s') - Q(s, a),    h(x) = |x|^p / p
    V(s') = Q(s', a') - T log pi(a'|s'),      a0 ~ pi(s0),  a' ~ pi(s'),   m = 1 - terminated

    Q    minimizes  J
    pi   maximizes  alpha (1 - gamma) E[Q(s0, a0)] + E_D[w R],   w = max(0, R)^(p - 1) fixed;  minus o times a penalty
    T    such that the entropy of pi is H:  minimizes  T (-log pi(a'|s') - H)

alpha = 0 and h = x^2 / 2 is soft actor-critic. As in the V-form (`core.vdice`) the gradient of E[h(R)] has a forward
part, through Q(s, a), and a backward part, through V(s'), and `gradient` says what becomes of the second:

| gradient     | V(s') in R                                     | backward part                                    |
|--------------|------------------------------------------------|--------------------------------------------------|
| `true`       | share V(s') + (1 - share) Vbar(s')             | kept; share = 1 is the full gradient of J        |
| `semi`       | Vbar(s')                                       | none                                             |
| `orthogonal` | Vbar(s'), and V(s') against Qbar(s, a)         | projected off the forward one, with strength eta |

Vbar is the smaller of the target's two heads. The official code is `true` with share = 0.05, almost a semi-gradient.
The orthogonal one is new here.

One update, in this order: both critics; then, at every `policy_delay`-th update, the policy and T with the *new*
critics, and the target.

Differs from the official code (google-research, algae_dice): offline, from a log, where it collects its own data;
losses are means over the heads, there sums (with Adam no difference but in its epsilon, 1e-8 here and 1e-7 there);
discount 1 has no form of its own; discrete actions, with exact expectations, are ours.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from odice.algos.registry import register
from odice.algos.validation import not_negative, positive, require, validate
from odice.algos.value_dice import orthogonal_penalty
from odice.core import vdice
from odice.core.critics import Critic, Heads, min_over_heads, q_at
from odice.core.divergences import Divergence
from odice.core.extraction import effective_sample_size
from odice.core.gradients import LossPair, Rule, orthogonal, rule, rule_gradient
from odice.core.learner import Learned, Learner
from odice.core.networks import Init
from odice.core.optim import polyak
from odice.core.policies import CategoricalPolicy, Draws, SquashedPolicy, draw, target_entropy
from odice.errors import OdiceError
from odice.types import Algo, Batch, Metrics, Spec


@dataclass(frozen=True)
class AlgaeDICEConfig:
    """AlgaeDICE. Defaults follow the official code."""

    alpha: float = 0.01
    """alpha: strength of the divergence from the data, as the weight of the first states' values (official: 0.01)."""
    exponent: float = 1.5
    """p: h(x) = |x|^p / p (official: 1.5). 2 is the squared error of soft actor-critic."""
    gradient: Literal["true", "semi", "orthogonal"] = "true"
    """What becomes of the gradient through V(s')."""
    online_share: float = 0.05
    """share: how much of V(s') is the online network's, with the true gradient (official: 0.05). 1 has no target."""
    eta: float = 1.0
    """eta: strength of the projected backward gradient, with the orthogonal one."""
    target_entropy: float | None = None
    """H; None is minus the action's dimension, for a finite set 0.1 log(number of actions)."""
    init_temperature: float = 1.0
    """T at the start (official: 1). Where rewards are small, a smaller one learns sooner."""
    orthogonal_penalty: float = 1e-4
    """o: weight of the policy's orthogonal regularizer (official: 1e-4)."""
    policy_delay: int = 2
    """Updates of the critics for one of the policy and the target (official: 2)."""
    discount: float = 0.99
    """gamma: discount of the next state's value."""
    polyak: float = 0.005
    """tau: share of the online critics that enters the target at each policy step."""
    critic_hidden: tuple[int, ...] = (256, 256)
    """Widths of the hidden layers of each critic."""
    policy_hidden: tuple[int, ...] = (256, 256)
    """Widths of the policy's hidden layers."""
    critic_lr: float = 1e-3
    """Adam's learning rate for the critics (official: 1e-3)."""
    policy_lr: float = 1e-3
    """Adam's learning rate for the policy and T (official: 1e-3)."""
    init: Init = "orthonormal"
    """Initialization of all networks: orthogonal with gain 1 and zero biases (official)."""
    batch_size: int = 256
    """Transitions per update, and as many initial states."""

    def __post_init__(self):
        validate(self)
        not_negative(self, "alpha")
        require(1 < self.exponent < math.inf, f"exponent must be above 1, got {self.exponent}.")
        require(0 <= self.online_share <= 1, f"online_share must lie in [0, 1], got {self.online_share}.")
        require(self.policy_delay >= 1, f"policy_delay must be at least 1, got {self.policy_delay}.")
        positive(self, "init_temperature")
        orthogonal(self.eta)


class PolicyMetrics(NamedTuple):
    """What the last policy step measured; kept in the state because not every update has one."""

    loss: Float[Array, ""]
    entropy: Float[Array, ""]
    weight_ess: Float[Array, ""]


class State(NamedTuple):
    policy: Learned[SquashedPolicy | CategoricalPolicy]
    critic: Learned[Critic]
    target: Critic
    log_temperature: Learned[Float[Array, ""]]
    measured: PolicyMetrics
    step: Int[Array, ""]


def power(exponent: float) -> Divergence:
    """h as the conjugate of a divergence; its weight is h' for positive residuals, which is what the policy climbs."""
    dual = exponent / (exponent - 1)
    return Divergence(
        "power",
        f=lambda x: jnp.abs(x) ** dual / dual,
        conjugate=lambda y: jnp.abs(y) ** exponent / exponent,
        weight=lambda y: jnp.maximum(y, 0.0) ** (exponent - 1),
    )


def policy_value(critic: Critic, draws: Draws, obs: Float[Array, "b obs"], temperature) -> Heads:
    """E_{a ~ pi}[Q - T log pi], per head."""
    inside = q_at(critic, obs, draws.action) - temperature * draws.log_prob[None]
    return jnp.sum(draws.prob[None] * inside, axis=1)


class AlgaeDraws(NamedTuple):
    """The policy's actions at first states and at next states."""

    first: Draws
    there: Draws


def draw_both(policy, batch: Batch, key) -> AlgaeDraws:
    assert batch.initial_obs is not None
    key_first, key_there = jax.random.split(key)
    return AlgaeDraws(draw(policy, key_first, batch.initial_obs, 1), draw(policy, key_there, batch.next_obs, 1))


def mixed(share: float, online: Heads, target: Heads) -> Heads:
    """share V + (1 - share) min Vbar, per head."""
    return share * online + (1 - share) * jnp.broadcast_to(min_over_heads(target)[None], online.shape)


def critic_gradient(cfg: AlgaeDICEConfig, how: Rule, state: State, batch: Batch, drawn: AlgaeDraws, temperature):
    """The rule's gradient of J, and R and Q(s, a) of the batch."""
    assert batch.initial_obs is not None
    target_next = policy_value(state.target, drawn.there, batch.next_obs, temperature)
    seen = {}

    def losses(here, v_next: Heads) -> LossPair:
        q, _ = here
        v_mixed = mixed(cfg.online_share, v_next, target_next)
        if how.name == "true":
            frozen = jax.lax.stop_gradient(vdice.Frozen(q, v_mixed))
        else:
            frozen = vdice.freeze(how, q, v_next, state.target(batch.obs, batch.action), target_next)
        options = {"divergence": power(cfg.exponent), "lam": 1.0, "discount": cfg.discount}
        pair = vdice.losses(frozen, batch.reward, batch.mask, **options)
        seen["q"] = q
        seen["residual"] = vdice.residual(q, frozen.v_next_bar, batch.reward, batch.mask, cfg.discount)
        mix = (lambda v: mixed(cfg.online_share, v, target_next)) if how.name == "true" else (lambda v: v)
        return LossPair(
            forward=lambda here: pair.forward(here[0]),
            backward=lambda v: pair.backward(mix(v)),
            rest=lambda here: cfg.alpha * (1 - cfg.discount) * jnp.mean(here[1]),
        )

    def here(critic: Critic):
        assert batch.initial_obs is not None
        first = policy_value(critic, drawn.first, batch.initial_obs, 0.0)
        return critic(batch.obs, batch.action), first

    there = lambda critic: policy_value(critic, drawn.there, batch.next_obs, temperature)
    result = rule_gradient(how, state.critic.params, here, there, losses)
    return result, seen["q"], seen["residual"]


def policy_loss(cfg: AlgaeDICEConfig, policy, state: State, batch: Batch, key):
    """-J for the policy, whose gradient goes through its own actions, with its penalty; and what was seen."""
    assert batch.initial_obs is not None
    critic, temperature = state.critic.params, jnp.exp(state.log_temperature.params)
    drawn = draw_both(policy, batch, key)
    share = {"true": cfg.online_share, "semi": 0.0, "orthogonal": 0.0}[cfg.gradient]
    online, target = (policy_value(net, drawn.there, batch.next_obs, temperature) for net in (critic, state.target))
    q = critic(batch.obs, batch.action)
    residual = vdice.residual(q, mixed(share, online, target), batch.reward, batch.mask, cfg.discount)
    weight = jax.lax.stop_gradient(power(cfg.exponent).weight(residual))
    first = policy_value(critic, drawn.first, batch.initial_obs, 0.0)
    dual = jnp.mean(weight * residual) + cfg.alpha * (1 - cfg.discount) * jnp.mean(first)
    network = policy.logits if isinstance(policy, CategoricalPolicy) else policy.network
    entropy = -jnp.mean(jnp.sum(drawn.there.prob * drawn.there.log_prob, axis=0))
    seen = PolicyMetrics(-dual, entropy, effective_sample_size(jnp.mean(weight, axis=0)))
    return cfg.orthogonal_penalty * orthogonal_penalty(network) - dual, seen


@register("algae-dice", AlgaeDICEConfig, when_diverged=("lower", "critic_lr"))
def algae_dice(cfg: AlgaeDICEConfig, spec: Spec) -> Algo:
    """AlgaeDICE: Q-form DICE with rewards, an actor-critic whose dual may keep, drop or project the backward
    gradient."""
    critic_learner, policy_learner = Learner(cfg.critic_lr), Learner(cfg.policy_lr)
    entropy = target_entropy(cfg.target_entropy, spec)
    how = rule(cfg.gradient, cfg.eta)

    def init(key) -> State:
        key_policy, key_critic = jax.random.split(key)
        if spec.discrete:
            policy = CategoricalPolicy(key_policy, spec, cfg.policy_hidden, init=cfg.init)
        else:
            policy = SquashedPolicy(key_policy, spec, cfg.policy_hidden, spread="tanh", init=cfg.init)
        critic = Critic(key_critic, spec, cfg.critic_hidden, init=cfg.init)
        log_temperature = jnp.asarray(math.log(cfg.init_temperature), jnp.float32)  # a weak type compiles twice
        return State(
            policy=policy_learner.init(policy),
            critic=critic_learner.init(critic),
            target=jax.tree.map(jnp.copy, critic),  # its own buffers: the loop donates the state
            log_temperature=policy_learner.init(log_temperature),
            measured=PolicyMetrics(*jnp.zeros(3)),
            step=jnp.zeros((), jnp.int32),
        )

    def policy_step(state: State, batch: Batch, key) -> State:
        loss = lambda policy: policy_loss(cfg, policy, state, batch, key)
        gradient, seen = jax.grad(loss, has_aux=True)(state.policy.params)
        temperature = jnp.exp(state.log_temperature.params)
        climb = temperature * (seen.entropy - entropy)  # of T (entropy - H), by log T
        return state._replace(
            policy=policy_learner.step(state.policy, gradient),
            log_temperature=policy_learner.step(state.log_temperature, climb),
            target=polyak(state.critic.params, state.target, cfg.polyak),
            measured=seen,
        )

    def update(state: State, batch: Batch, key) -> tuple[State, Metrics]:
        if batch.initial_obs is None:
            raise OdiceError("algae-dice needs initial states in its batches: train on data with episodes.")
        key_critic, key_policy = jax.random.split(key)
        temperature = jnp.exp(state.log_temperature.params)
        drawn = jax.lax.stop_gradient(draw_both(state.policy.params, batch, key_critic))
        result, q, residual = critic_gradient(cfg, how, state, batch, drawn, temperature)
        state = state._replace(critic=critic_learner.step(state.critic, result.gradient), step=state.step + 1)
        due = state.step % cfg.policy_delay == 0
        state = jax.lax.cond(due, policy_step, lambda state, *_: state, state, batch, key_policy)
        metrics = {
            "critic_loss": result.losses["forward"] + result.losses["rest"],
            "critic_mean": jnp.mean(q),
            "residual_mean": jnp.mean(residual),
            "temperature": temperature,
            "policy_loss": state.measured.loss,
            "entropy": state.measured.entropy,
            "weight_ess": state.measured.weight_ess,
        }
        return state, metrics

    return Algo(init, update, lambda state: state.policy.params, initial_states=True)
