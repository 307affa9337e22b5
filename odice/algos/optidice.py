"""OptiDICE: stationary-distribution corrections by the true gradient (Lee et al., ICML 2021).

With e_v = r + gamma m V(s') - V(s), m = 1 - terminated, and w(x) = max(0, (f')^-1(x)):

    V, lam_v   minimize   (1 - gamma) E_p0[V(s0)] + alpha E_D[f*((e_v - lam_v) / alpha)] + lam_v        (true gradient)
    e          minimizes  E_D[alpha f(w_e) - w_e (e_v - lam_e)],    w_e = w((e(s, a) - lam_e) / alpha)   (`minimax`)
               or         E_D[(e(s, a) - e_v)^2]                                                         (`mse`)
    lam_e      minimizes  E_D[w_e (e_v - lam_e) - alpha f(w_e)] + lam_e

e_v carries no gradient in the last three. s0 are first states of episodes, drawn apart. The multipliers make the
weights average to 1: at the optimum E_D[w] = 1. The network e(s, a) averages e_v over next states, for which one sample
is not enough.

    pi minimizes  -E_D[w_e log pi(a|s)]                                                      (`cloning`)
               or -E_{s ~ D, a ~ pi}[log w_e(s, a) - log pi(a|s) + log pi_D(a|s)]              (`projection`)

The information projection takes densities before the tanh and learns a model pi_D of the data's policy, a mixture of
tanh-Gaussians, by maximum likelihood. Both add exp(c) E_{a ~ pi}[log pi(a|s)] (`entropy`), with c such that pi's
entropy is H. Of a finite set of actions, pi and pi_D are softmaxes and the expectations over pi are exact sums.

Where episodes terminate, a policy's discounted visitation has less mass than 1, and the multipliers' constraint
contradicts V's: the dual has no minimum, lam_v falls and V rises for ever (e_v - lam_v, and with it the policy,
settle). Then `normalize=False` is the well-posed problem.

One update: all gradients at the old values, then every step. The policy and c do not learn for `warmup_steps`.

Differs from the official code (secury/optidice):
- its log w for half Pearson is log(1e-10) for every w < 1, where it should be so only for w = 0; kept behind
  `floor_below_one`;
- its absorbing states never enter a batch and are masked besides, so they are left out; Adam's epsilon is 1e-8, not
  1e-7;
- discrete actions are ours: its neural networks have none, the paper's tables have them;
- the mean before the tanh is not clipped (there at 7.24, where tanh is 1 - 1e-6), and output biases start at 0.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from odice.algos.health import WEIGHTS
from odice.algos.registry import register
from odice.algos.validation import not_negative, positive, require, validate
from odice.core.critics import Critic
from odice.core.divergences import divergence
from odice.core.extraction import effective_sample_size, log_ratio, weighted_cloning
from odice.core.learner import Learned, Learner
from odice.core.networks import Ensemble, Init, symmetric, value_network
from odice.core.policies import CategoricalPolicy, SquashedMixture, SquashedPolicy, draw, target_entropy
from odice.core.vdice import residual
from odice.errors import OdiceError
from odice.types import Algo, Batch, Metrics, Spec


@dataclass(frozen=True)
class OptiDICEConfig:
    """OptiDICE. Defaults follow the official code, without its warm-up."""

    alpha: float = 1.0
    """alpha: strength of the divergence from the data (official default 1, its Maze2D command 0.001; the paper's were
    not at hand)."""
    divergence: Literal["soft-chi2", "half-pearson", "kl"] = "soft-chi2"
    """f: the official code's 'elu' (its default), 'chisquare' and 'kl'."""
    extraction: Literal["cloning", "projection"] = "projection"
    """From weights to a policy: the information projection (the official default), or weighted cloning."""
    e_loss: Literal["minimax", "mse"] = "minimax"
    """How e(s, a) is learnt (official default minimax; its Maze2D command mse)."""
    normalize: bool = True
    """Learn the multipliers lam_v and lam_e; off, both stay 0."""
    lam_penalty: float = 0.0
    """Adds lam_penalty lam^2 / 2 to the multipliers' losses; 1 is the official 'gendice' option."""
    initial: Literal["episodes", "data"] = "episodes"
    """p0: first states of episodes, or all states of the data as the other DICE codes take."""
    entropy: bool = True
    """Hold the entropy of the policy at H."""
    target_entropy: float | None = None
    """H; None is minus the action's dimension, for a finite set 0.1 log(number of actions)."""
    floor_below_one: bool = False
    """Half Pearson, projection: the official code's log w, which takes every w < 1 for 1e-10."""
    mixture: int = 5
    """Components of the data policy pi_D (projection, continuous actions)."""
    warmup_steps: int = 0
    """Updates before the policy starts to learn; official 500,000 of 3,000,000."""
    discount: float = 0.99
    """gamma: discount of the next state's value."""
    value_hidden: tuple[int, ...] = (256, 256)
    """Widths of V's hidden layers."""
    critic_hidden: tuple[int, ...] = (256, 256)
    """Widths of the hidden layers of e."""
    policy_hidden: tuple[int, ...] = (256, 256)
    """Widths of the hidden layers of pi and pi_D."""
    value_lr: float = 3e-4
    """Adam's learning rate for V and lam_v."""
    critic_lr: float = 3e-4
    """Adam's learning rate for e and lam_e."""
    policy_lr: float = 3e-4
    """Adam's learning rate for pi, pi_D and c."""
    init: Init = "glorot"
    """Initialization of hidden layers; output layers are small."""
    batch_size: int = 512
    """Transitions per update, and as many initial states."""

    def __post_init__(self):
        validate(self)
        positive(self, "alpha")
        require(self.mixture >= 1, f"mixture must be at least 1, got {self.mixture}.")
        require(self.warmup_steps >= 0, f"warmup_steps must be at least 0, got {self.warmup_steps}.")
        not_negative(self, "lam_penalty")


class Value(NamedTuple):
    """V and its multiplier."""

    value: Ensemble
    lam_v: Float[Array, ""]


class Advantage(NamedTuple):
    """e and its multiplier."""

    e: Critic
    lam_e: Float[Array, ""]


class Actor(NamedTuple):
    """The policy and the logarithm c of its entropy's weight."""

    policy: SquashedPolicy | CategoricalPolicy
    log_entropy: Float[Array, ""]


class State(NamedTuple):
    value: Learned[Value]
    advantage: Learned[Advantage]
    actor: Learned[Actor]
    data_policy: Learned[SquashedMixture | CategoricalPolicy] | None
    step: Int[Array, ""]


def value_loss(cfg: OptiDICEConfig, value: Ensemble, lam_v, batch: Batch) -> tuple[Float[Array, ""], tuple]:
    """The dual objective, and (e_v, V(s)) of the batch."""
    if cfg.initial == "episodes" and batch.initial_obs is None:
        raise OdiceError(
            "optidice needs initial states in its batches; use initial='data' where there are no episodes."
        )
    first = batch.obs if cfg.initial == "data" or batch.initial_obs is None else batch.initial_obs
    v = value(batch.obs)
    e_v = residual(v, value(batch.next_obs), batch.reward, batch.mask, cfg.discount)[0]
    dual = cfg.alpha * jnp.mean(divergence(cfg.divergence).conjugate((e_v - lam_v) / cfg.alpha))
    start = (1 - cfg.discount) * jnp.mean(value(first))
    return start + dual + lam_v + cfg.lam_penalty * jnp.square(lam_v) / 2, (e_v, v)


def ratio(cfg: OptiDICEConfig, e: Float[Array, " b"], lam_e) -> Float[Array, " b"]:
    """w_e, the density ratio between the optimal policy and the data."""
    return divergence(cfg.divergence).weight((e - lam_e) / cfg.alpha)


def gain(cfg: OptiDICEConfig, e, lam_e, e_v) -> Float[Array, ""]:
    """E_D[w_e (e_v - lam_e) - alpha f(w_e)]: e maximizes it, lam_e minimizes it (plus lam_e)."""
    w = ratio(cfg, e, lam_e)
    return jnp.mean(w * (e_v - lam_e) - cfg.alpha * divergence(cfg.divergence).f(w))


def e_loss(cfg: OptiDICEConfig, e: Critic, lam_e, e_v, batch: Batch) -> Float[Array, ""]:
    """The loss of the network e; `e_v` and lam_e carry no gradient."""
    predicted = e(batch.obs, batch.action)[0]
    if cfg.e_loss == "mse":
        return jnp.mean(jnp.square(predicted - e_v))
    return -gain(cfg, predicted, lam_e, e_v)


def projection(cfg: OptiDICEConfig, policy, state: State, batch: Batch, key) -> tuple[Array, Array]:
    """The information projection's loss, and the mean of log pi over the policy's own actions."""
    assert state.data_policy is not None
    (e, lam_e), data_policy = state.advantage.params, state.data_policy.params
    log_w = lambda e: log_ratio((e - lam_e) / cfg.alpha, cfg.divergence, floor_below_one=cfg.floor_below_one)
    if isinstance(data_policy, CategoricalPolicy):
        draws, behavior = draw(policy, key, batch.obs, 1), draw(data_policy, key, batch.obs, 1)
        average = lambda x: jnp.mean(jnp.sum(draws.prob * x, axis=0))
        ratios = jax.vmap(log_w)(e.every(batch.obs)[0].T)
        return average(draws.log_prob - behavior.log_prob - ratios), average(draws.log_prob)
    drawn = policy.sample(key, batch.obs)
    behavior = data_policy.raw_log_prob(batch.obs, drawn.raw)
    loss = jnp.mean(drawn.raw_log_prob - behavior - log_w(e(batch.obs, drawn.action)[0]))
    return loss, jnp.mean(drawn.log_prob)


def policy_loss(cfg: OptiDICEConfig, policy, state: State, batch: Batch, weight, key):
    """The extraction's loss with its entropy term, and the mean of log pi over the policy's own actions."""
    if cfg.extraction == "cloning":
        draws = draw(policy, key, batch.obs, 1)
        log_pi = jnp.mean(jnp.sum(draws.prob * draws.log_prob, axis=0))
        loss = weighted_cloning(policy, weight, batch.obs, batch.action)
    else:
        loss, log_pi = projection(cfg, policy, state, batch, key)
    return (loss + jnp.exp(state.actor.params.log_entropy) * log_pi if cfg.entropy else loss), log_pi


@register(
    "optidice",
    OptiDICEConfig,
    value=lambda state: state.value.params.value,
    when_diverged=("raise", "alpha"),
    health=WEIGHTS,
)
def optidice(cfg: OptiDICEConfig, spec: Spec) -> Algo:
    """OptiDICE: the true-gradient dual with initial states and normalized weights; two policy extractions."""
    value_learner, advantage_learner = Learner(cfg.value_lr), Learner(cfg.critic_lr)
    policy_learner = Learner(cfg.policy_lr)
    entropy = target_entropy(cfg.target_entropy, spec)

    def init(key) -> State:
        key_value, key_e, key_policy, key_data = jax.random.split(key, 4)
        small = {"init": cfg.init, "last": symmetric(3e-3)}
        value = value_network(key_value, spec, cfg.value_hidden, heads=1, **small)
        e = Critic(key_e, spec, cfg.critic_hidden, heads=1, **small)
        head = {"init": cfg.init, "last": symmetric(1e-3)}
        policy = (CategoricalPolicy if spec.discrete else SquashedPolicy)(key_policy, spec, cfg.policy_hidden, **head)
        data_policy = None
        if cfg.extraction == "projection" and spec.discrete:
            data_policy = CategoricalPolicy(key_data, spec, cfg.policy_hidden, **head)
        elif cfg.extraction == "projection":
            data_policy = SquashedMixture(key_data, spec, cfg.policy_hidden, components=cfg.mixture, init=cfg.init)
        return State(
            value=value_learner.init(Value(value, jnp.zeros(()))),
            advantage=advantage_learner.init(Advantage(e, jnp.zeros(()))),
            actor=policy_learner.init(Actor(policy, jnp.zeros(()))),
            data_policy=None if data_policy is None else policy_learner.init(data_policy),
            step=jnp.zeros((), jnp.int32),
        )

    def learn_values(state: State, batch: Batch) -> tuple[State, Metrics, Float[Array, " b"]]:
        """One step of V, e and their multipliers; and the weights before it."""
        (v_loss, (e_v, v)), gradient = jax.value_and_grad(
            lambda params: value_loss(cfg, params.value, params.lam_v, batch), has_aux=True
        )(state.value.params)
        e_v, (e, lam_e) = jax.lax.stop_gradient(e_v), state.advantage.params
        predicted = e(batch.obs, batch.action)[0]
        weight = ratio(cfg, predicted, lam_e)
        loss, e_gradient = jax.value_and_grad(lambda e: e_loss(cfg, e, lam_e, e_v, batch))(e)
        penalised = lambda lam: gain(cfg, predicted, lam, e_v) + lam + cfg.lam_penalty * jnp.square(lam) / 2
        held = 1.0 if cfg.normalize else 0.0
        value = value_learner.step(state.value, gradient._replace(lam_v=held * gradient.lam_v))
        both = Advantage(e_gradient, held * jax.grad(penalised)(lam_e))
        metrics = {
            "value_loss": v_loss,
            "value_mean": jnp.mean(v),
            "residual_mean": jnp.mean(e_v),
            "e_loss": loss,
            "e_error": jnp.sqrt(jnp.mean(jnp.square(predicted - e_v))),
            "lam_v": state.value.params.lam_v,
            "lam_e": lam_e,
            "weight_mean": jnp.mean(weight),
            "weight_ess": effective_sample_size(weight),
        }
        new = state._replace(value=value, advantage=advantage_learner.step(state.advantage, both))
        return new, metrics, weight

    def clone_data(state: State, batch: Batch) -> State:
        """pi_D by maximum likelihood, where the projection needs it."""
        if state.data_policy is None:
            return state
        ones = jnp.ones_like(batch.reward)
        gradient = jax.grad(weighted_cloning)(state.data_policy.params, ones, batch.obs, batch.action)
        return state._replace(data_policy=policy_learner.step(state.data_policy, gradient))

    def update(state: State, batch: Batch, key) -> tuple[State, Metrics]:
        new, metrics, weight = learn_values(state, batch)
        new = clone_data(new, batch)._replace(step=state.step + 1)
        (loss, log_pi), gradient = jax.value_and_grad(
            lambda policy: policy_loss(cfg, policy, state, batch, weight, key), has_aux=True
        )(state.actor.params.policy)
        c_gradient = -(log_pi + entropy) if cfg.entropy else jnp.zeros(())
        fresh = policy_learner.step(state.actor, Actor(gradient, c_gradient))
        warm = state.step >= cfg.warmup_steps
        actor = jax.tree.map(lambda a, b: jnp.where(warm, a, b), fresh, state.actor)
        entropy_weight = jnp.exp(state.actor.params.log_entropy)
        metrics |= {"policy_loss": loss, "entropy": -log_pi, "entropy_weight": entropy_weight}
        return new._replace(actor=actor), metrics

    return Algo(init, update, lambda state: state.actor.params.policy, initial_states=cfg.initial == "episodes")
