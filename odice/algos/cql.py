"""CQL: conservative Q-learning (Kumar et al., NeurIPS 2020), soft actor-critic whose Q is pushed down off the data.

    y    = r + gamma m min_j Qbar_j(s', a'),   a' ~ pi(.|s')
    D_i  = T log sum_a exp(Q_i(s, a) / T) - Q_i(s, a_data)              how far Q off the data lies above Q on it
    Q_i  minimizes  E_D[(Q_i(s, a) - y)^2 + w D_i]
    pi   minimizes  E_D[alpha log pi(a|s) - min_i Q_i(s, a)],  a ~ pi(.|s)
    alpha           such that the entropy of pi is H:  minimizes  -log alpha (log pi + H)

The sum over actions is estimated with N uniform ones, N from pi(.|s) and N from pi(.|s'), all evaluated at s, each
divided by its density: log sum exp over Q - log density (the constant 3N is left out). A finite set of actions is
summed exactly, and expectations over pi are exact too.

Options: *Lagrange* (`lagrange_gap` g): the penalty is alpha' w (D_i - g), and alpha' >= 0 grows while D exceeds g.
*Max-backup*: y takes the best of N actions at s'; `min-max` takes the minimum over critics first (CORL), `max-min` the
maximum over actions (official).

One update: all gradients at the old networks, then every step, then the target of Q. (CORL steps alpha', alpha,
pi and Q one after the other, but computes each loss from the old values, so this is the same.)

Differs:
- pi(.|s') is not sampled at a true terminal, whose next observation is arbitrary: proposals come from pi(.|s) there;
- CORL's second critic ignores its depth setting and always has 3 hidden layers (on AntMaze 5 and 3). Here both are
  alike; `second_critic_hidden` brings the difference back, for published numbers;
- no cloning warm-up of the policy (official: 40,000 updates; CORL: none); output layers have zero biases;
- for discrete actions, soft actor-critic with exact sums: ours, with H = 0.1 log(number of actions).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from odice.algos.health import VALUES_OF_RETURNS
from odice.algos.registry import register
from odice.algos.validation import not_negative, positive, require, validate
from odice.core.critics import Critic, Critics, min_over_heads, q_at, sac_policy_loss, sac_value
from odice.core.learner import Learned, Learner
from odice.core.networks import Init, orthogonal
from odice.core.optim import polyak
from odice.core.policies import CategoricalPolicy, SquashedPolicy, draw, target_entropy
from odice.types import Algo, Batch, Metrics, Spec

CORL_LOG_STD_MIN = -20.0


@dataclass(frozen=True)
class CQLConfig:
    """CQL. Defaults follow CORL's locomotion runs."""

    cql_weight: float = 10.0
    """w: weight of the conservative term; CORL 10, AntMaze 5. 0 is soft actor-critic."""
    cql_temperature: float = 1.0
    """T: temperature of the sum over actions."""
    n_actions: int = 10
    """N: actions from each of the three sources, and of a max-backup."""
    clip_min: float | None = None
    """Floor of D_i, below which it is not pushed further; CORL on AntMaze -200."""
    lagrange_gap: float | None = None
    """g: the D that the Lagrange variant holds; None keeps the weight fixed. CORL on AntMaze 0.8."""
    lagrange_form: Literal["corl", "official"] = "corl"
    """`corl`: alpha' w (D - g), alpha' from e. `official`: alpha' (w D - g), alpha' from 1."""
    max_backup: bool = False
    """The target takes the best of N actions at s' instead of one sample (AntMaze)."""
    backup_order: Literal["min-max", "max-min"] = "min-max"
    """Max-backup: minimum over critics, then maximum over actions (CORL), or the other way round (official)."""
    backup_entropy: bool = False
    """Subtract alpha log pi(a'|s') in the target, as soft actor-critic does; CQL's codes do not."""
    target_entropy: float | None = None
    """H; None is minus the action's dimension, for a finite set 0.1 log(number of actions)."""
    discount: float = 0.99
    """gamma: discount of the next state's value."""
    polyak: float = 0.005
    """tau: share of the online critics that enters the target after each update."""
    critic_hidden: tuple[int, ...] = (256, 256, 256)
    """Widths of the hidden layers of each critic."""
    second_critic_hidden: tuple[int, ...] | None = None
    """Other widths for the second critic: CORL's bug on AntMaze."""
    policy_hidden: tuple[int, ...] = (256, 256, 256)
    """Widths of the policy's hidden layers."""
    critic_lr: float = 3e-4
    """Adam's learning rate for the critics and alpha'."""
    policy_lr: float = 3e-5
    """Adam's learning rate for the policy and alpha; AntMaze 1e-4."""
    init: Init = "orthogonal"
    """Initialization of the critics' hidden layers; the policy's are torch's, output layers are small (CORL)."""
    batch_size: int = 256
    """Transitions per update."""

    def __post_init__(self):
        validate(self)
        not_negative(self, "cql_weight")
        require(self.n_actions >= 1, f"n_actions must be at least 1, got {self.n_actions}.")
        positive(self, "cql_temperature")


class State(NamedTuple):
    policy: Learned[SquashedPolicy | CategoricalPolicy]
    critic: Learned[Critic | Critics]
    target: Critic | Critics
    log_alpha: Learned[Float[Array, ""]]
    log_alpha_prime: Learned[Float[Array, ""]]
    step: Int[Array, ""]


def td_target(cfg: CQLConfig, state: State, batch: Batch, key) -> Float[Array, " b"]:
    """y: r + gamma m times the value of s' under the policy and the target critics."""
    if cfg.max_backup:
        draws = draw(state.policy.params, key, batch.next_obs, cfg.n_actions)
        q = q_at(state.target, batch.next_obs, draws.action)
        v = jnp.max(min_over_heads(q), axis=0) if cfg.backup_order == "min-max" else min_over_heads(jnp.max(q, axis=1))
    else:
        alpha = jnp.exp(state.log_alpha.params) if cfg.backup_entropy else 0.0
        v = sac_value(state.policy.params, state.target, alpha, batch.next_obs, key)
    return batch.reward + cfg.discount * batch.mask * v


def proposals(cfg: CQLConfig, policy, batch: Batch, keys) -> tuple[Array | None, Float[Array, "n b"]]:
    """The actions of the conservative sum and their log densities; nothing of it carries a gradient."""
    if isinstance(policy, CategoricalPolicy):
        return None, jnp.zeros((batch.obs.shape[0],))[None]
    there = jnp.where(batch.terminated[:, None], batch.obs, batch.next_obs)
    shape = (cfg.n_actions, *batch.action.shape)
    uniform = jax.random.uniform(keys[0], shape, minval=-1.0, maxval=1.0)
    here, there = (policy.sample(k, obs, cfg.n_actions) for k, obs in zip(keys[1:], (batch.obs, there), strict=True))
    density = jnp.full(shape[:2], shape[-1] * math.log(0.5))
    actions = jnp.concatenate([uniform, there.action, here.action])
    return jax.lax.stop_gradient((actions, jnp.concatenate([density, there.log_prob, here.log_prob])))


def conservative(cfg: CQLConfig, critic, q, obs, actions, log_density) -> Float[Array, " heads"]:
    """D_i, averaged over the batch; `q` is Q_i at the logged actions."""
    scaled = (q_at(critic, obs, actions) - log_density[None]) / cfg.cql_temperature
    gap = cfg.cql_temperature * jax.nn.logsumexp(scaled, axis=1) - q
    return jnp.mean(gap if cfg.clip_min is None else jnp.maximum(gap, cfg.clip_min), axis=1)


def penalty(cfg: CQLConfig, log_alpha_prime, gap: Float[Array, " heads"]) -> Float[Array, ""]:
    """What D adds to the critics' loss, summed over them."""
    if cfg.lagrange_gap is None:
        return jnp.sum(cfg.cql_weight * gap)
    multiplier = jnp.clip(jnp.exp(log_alpha_prime), 0.0, 1e6)
    if cfg.lagrange_form == "corl":
        return jnp.sum(multiplier * cfg.cql_weight * (gap - cfg.lagrange_gap))
    return jnp.sum(multiplier * (cfg.cql_weight * gap - cfg.lagrange_gap))


def networks(cfg: CQLConfig, key, spec: Spec) -> tuple[SquashedPolicy | CategoricalPolicy, Critic | Critics]:
    """CORL's: small output layers, and for the spread of the policy a learnt scale and shift."""
    key_policy, key_first, key_second = jax.random.split(key, 3)
    xavier = jax.nn.initializers.variance_scaling(1e-4, "fan_avg", "uniform")  # gain 1e-2
    if spec.discrete:
        policy = CategoricalPolicy(key_policy, spec, cfg.policy_hidden, last=xavier)
    else:
        spread = {"affine": (1.0, -1.0), "log_std_min": CORL_LOG_STD_MIN}
        policy = SquashedPolicy(key_policy, spec, cfg.policy_hidden, last=xavier, **spread)
    options = {"init": cfg.init, "last": orthogonal(1e-2)}
    if cfg.second_critic_hidden is None:
        return policy, Critic(key_first, spec, cfg.critic_hidden, **options)
    shapes = zip((key_first, key_second), (cfg.critic_hidden, cfg.second_critic_hidden), strict=True)
    return policy, Critics(tuple(Critic(k, spec, hidden, heads=1, **options) for k, hidden in shapes))


@register("cql", CQLConfig, when_diverged=("lower", "critic_lr"), health=(VALUES_OF_RETURNS,))
def cql(cfg: CQLConfig, spec: Spec) -> Algo:
    """CQL: soft actor-critic whose Q is pushed down on actions that are not in the data."""
    critic_learner, policy_learner = Learner(cfg.critic_lr), Learner(cfg.policy_lr)
    entropy = target_entropy(cfg.target_entropy, spec)

    def init(key) -> State:
        policy, critic = networks(cfg, key, spec)
        log_alpha, log_prime = jnp.zeros(()), jnp.asarray(1.0 if cfg.lagrange_form == "corl" else 0.0)
        return State(
            policy=policy_learner.init(policy),
            critic=critic_learner.init(critic),
            target=jax.tree.map(jnp.copy, critic),  # its own buffers: the loop donates the state
            log_alpha=policy_learner.init(log_alpha),
            log_alpha_prime=critic_learner.init(log_prime),
            step=jnp.zeros((), jnp.int32),
        )

    def critic_loss(critic, state: State, batch: Batch, td_target, actions, log_density):
        q = critic(batch.obs, batch.action)
        error = jnp.sum(jnp.mean(jnp.square(q - td_target[None]), axis=1))
        gap = conservative(cfg, critic, q, batch.obs, actions, log_density)
        return error + penalty(cfg, state.log_alpha_prime.params, gap), (error, gap, jnp.mean(q))

    def update(state: State, batch: Batch, key) -> tuple[State, Metrics]:
        key_policy, key_next, *key_proposals = jax.random.split(key, 5)
        alpha = jnp.exp(state.log_alpha.params)
        (pi_loss, log_pi), pi_gradient = jax.value_and_grad(sac_policy_loss, has_aux=True)(
            state.policy.params, state.critic.params, alpha, batch.obs, key_policy
        )
        target_q = td_target(cfg, state, batch, key_next)
        known = proposals(cfg, state.policy.params, batch, key_proposals)
        (_, (error, gap, q_mean)), q_gradient = jax.value_and_grad(critic_loss, has_aux=True)(
            state.critic.params, state, batch, target_q, *known
        )
        # -log alpha (log pi + H), and alpha' climbs the penalty it weighs
        log_alpha, log_prime = policy_learner.step(state.log_alpha, -(log_pi + entropy)), state.log_alpha_prime
        if cfg.lagrange_gap is not None:
            climb = jax.grad(lambda x: -0.5 * penalty(cfg, x, gap))(log_prime.params)
            log_prime = critic_learner.step(log_prime, climb)
        policy = policy_learner.step(state.policy, pi_gradient)
        critic = critic_learner.step(state.critic, q_gradient)
        target = polyak(critic.params, state.target, cfg.polyak)
        metrics = {
            "critic_loss": error,
            "critic_mean": q_mean,
            "conservative_gap": jnp.mean(gap),
            "policy_loss": pi_loss,
            "entropy": -log_pi,
            "temperature": alpha,
        }
        if cfg.lagrange_gap is not None:
            metrics["alpha_prime"] = jnp.exp(state.log_alpha_prime.params)
        return State(policy, critic, target, log_alpha, log_prime, state.step + 1), metrics

    return Algo(init, update, lambda state: state.policy.params)
