"""CoptiDICE: the best policy whose cost stays below a limit (Lee et al., ICLR 2022), by stationary-distribution
corrections.

Every step has a cost c in addition to its reward r. The policy shall earn much and cost at most `cost_limit` on
average:

    maximize over d   E_d[r] - alpha D_f(d || d_D)     with   E_d[c] <= limit

With e = r - lam c + gamma m V(s') - V(s), m = 1 - terminated, and w = max(0, (f')^-1(e / alpha)):

    V     minimizes  (1 - gamma) E_p0[V(s0)] + alpha E_D[f*(e / alpha)]                               (true gradient)
    lam   minimizes  -lam (C - limit),     lam >= 0: the price of a unit of cost rises while C is above the limit

C is what the policy costs. E_D[w c], the plain estimate, is too low where the data are few, so an upper bound takes its
place: the largest cost over all reweightings q of the batch that stay within a KL divergence of eps,

    l     = (1 - gamma) chi(s0) + w (c + gamma m chi(s') - chi(s)),       q = softmax(l / tau) times the batch's size
    chi   minimizes  E[q l],      tau minimizes  -tau (KL(q) - eps),      C = E[q w c]

chi is a value function of the cost. eps = 0 takes the plain estimate. w carries no gradient in these three. The policy
clones by weight:

    pi    minimizes  -E_D[w log pi(a|s)]

V and chi also pay k E[max(0, ||grad|| - 5)^2] between first states and those of the batch. s0 are first states of
episodes, drawn apart; row i of the batch goes with first state i. One update: all gradients at the old values, then
Adam on everything.

The limit is on E_d[c], the discounted average of the cost per step: a budget of B per episode of T steps is about B /
T.

Differs from the official code (google-deepmind/constrained_optidice):
- one cost, there several; networks of our usual shapes (there 512-512-256 with LayerNorm, and for the policy four
  residual blocks of 1024 with a mixture of five Gaussians per dimension, acted with its noise); here a Gaussian, or a
  softmax for discrete actions;
- it trains on logs with costs computed from the observation; here they are a column of the data.
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
from odice.core.discriminator import steepness
from odice.core.divergences import divergence
from odice.core.extraction import effective_sample_size, weighted_cloning
from odice.core.learner import Learned, Learner
from odice.core.networks import Ensemble, Init, value_network
from odice.core.policies import Policy, policy_network
from odice.core.vdice import residual
from odice.types import Algo, Batch, Metrics, Spec


@dataclass(frozen=True)
class CoptiDICEConfig:
    """CoptiDICE. Defaults follow the official code but for the networks."""

    cost_limit: float = 0.1
    """What the policy may cost per step, in the units of the cost column (official example: 0.1)."""
    bound_radius: float = 0.01
    """eps: how far, in KL, the batch may be reweighed to find the largest cost; 0 takes the plain estimate (official:
    0.01)."""
    alpha: float = 0.01
    """alpha: strength of the divergence from the data (official: 0.01, for rewards between 0 and 1)."""
    divergence: Literal["soft-chi2", "half-pearson", "kl"] = "soft-chi2"
    """f: the official code's 'softchi' (its default), 'chisquare' and 'kl'."""
    gradient_penalty: float = 1e-5
    """k: weight of the penalty on slopes of V and chi above 5 (official: 1e-5)."""
    discount: float = 0.99
    """gamma: discount of the next state's value (official: 0.995)."""
    value_hidden: tuple[int, ...] = (256, 256)
    """Widths of the hidden layers of V and chi."""
    policy_hidden: tuple[int, ...] = (256, 256)
    """Widths of the policy's hidden layers."""
    layer_norm: bool = True
    """LayerNorm in the hidden layers of V and chi (official)."""
    value_lr: float = 3e-4
    """Adam's learning rate for V, chi, lam and tau (official: 3e-4)."""
    policy_lr: float = 3e-4
    """Adam's learning rate for the policy (official: 3e-4)."""
    tanh_mean: bool = True
    """Squash the Gaussian's mean into (-1, 1)."""
    init: Init = "torch"
    """Initialization of all networks."""
    batch_size: int = 1024
    """Transitions per update, and as many initial states (official: 1024)."""

    def __post_init__(self):
        validate(self)
        positive(self, "alpha")
        require(math.isfinite(self.cost_limit), f"cost_limit must be a finite number, got {self.cost_limit}.")
        not_negative(self, "bound_radius", "gradient_penalty")


class Dual(NamedTuple):
    """What is learned in one step, without the policy."""

    value: Ensemble
    chi: Ensemble
    log_lam: Float[Array, ""]
    log_tau: Float[Array, ""]

    @property
    def lam(self) -> Float[Array, ""]:
        return jnp.clip(jnp.exp(self.log_lam), 0.0, 1e3)

    @property
    def tau(self) -> Float[Array, ""]:
        return jnp.exp(self.log_tau) + 1e-6


class State(NamedTuple):
    dual: Learned[Dual]
    policy: Learned[Policy]
    step: Int[Array, ""]


def value_loss(cfg: CoptiDICEConfig, value: Ensemble, lam, batch: Batch) -> tuple[Float[Array, ""], tuple]:
    """The dual for rewards of r - lam c; and V(s), the weights w of the batch."""
    assert batch.initial_obs is not None
    v = value(batch.obs)
    e = residual(v, value(batch.next_obs), batch.reward - lam * batch.column("cost"), batch.mask, cfg.discount)[0]
    f = divergence(cfg.divergence)
    start = (1 - cfg.discount) * jnp.mean(value(batch.initial_obs))
    dual = start + cfg.alpha * jnp.mean(f.conjugate(e / cfg.alpha))
    return dual, (v[0], jax.lax.stop_gradient(f.weight(e / cfg.alpha)))


class Bound(NamedTuple):
    """What the reweighed batch says."""

    loss: Float[Array, ""]
    """E[q l], which chi minimizes."""
    cost: Float[Array, ""]
    """C: the upper bound of the policy's cost."""
    divergence: Float[Array, ""]
    """KL(q)."""


def cost_bound(cfg: CoptiDICEConfig, chi: Ensemble, tau, weight: Float[Array, " b"], batch: Batch) -> Bound:
    """The largest cost of reweightings of the batch, for a temperature tau; without a radius the plain estimate."""
    assert batch.initial_obs is not None
    if cfg.bound_radius == 0:
        return Bound(jnp.zeros(()), jnp.mean(weight * batch.column("cost")), jnp.zeros(()))
    flow = residual(chi(batch.obs), chi(batch.next_obs), batch.column("cost"), batch.mask, cfg.discount)[0]
    ell = (1 - cfg.discount) * chi(batch.initial_obs)[0] + weight * flow
    log_q = jax.nn.log_softmax(ell / tau) + math.log(ell.shape[0])
    q = jnp.exp(log_q)
    return Bound(jnp.mean(q * ell), jnp.mean(q * weight * batch.column("cost")), jnp.mean(q * log_q - q + 1))


def total_loss(cfg: CoptiDICEConfig, params: Dual, batch: Batch, key) -> tuple[Float[Array, ""], tuple]:
    """All losses but the policy's, added: none reaches what another one learns."""
    stop, first = jax.lax.stop_gradient, batch.initial_obs
    assert first is not None
    dual, (v, weight) = value_loss(cfg, params.value, stop(params.lam), batch)
    bound = cost_bound(cfg, params.chi, stop(params.tau), weight, batch)
    multipliers = -params.lam * (stop(bound.cost) - cfg.cost_limit)
    if cfg.bound_radius > 0:
        multipliers -= params.tau * (stop(bound.divergence) - cfg.bound_radius)
    steep = lambda network: cfg.gradient_penalty * steepness(network, first, batch.obs, key)
    return dual + bound.loss + multipliers + (steep(params.value) + steep(params.chi)), (dual, v, weight, bound)


@register(
    "copti-dice",
    CoptiDICEConfig,
    columns={"cost": None},
    value=lambda state: state.dual.params.value,
    when_diverged=("raise", "alpha"),
)
def copti_dice(cfg: CoptiDICEConfig, spec: Spec) -> Algo:
    """CoptiDICE: the best policy whose cost per step stays below a limit, from data with a cost column."""
    dual_learner, policy_learner = Learner(cfg.value_lr), Learner(cfg.policy_lr)

    def init(key) -> State:
        key_value, key_chi, key_policy = jax.random.split(key, 3)
        options = {"heads": 1, "layer_norm": cfg.layer_norm, "init": cfg.init}
        value, chi = (value_network(k, spec, cfg.value_hidden, **options) for k in (key_value, key_chi))
        dual = dual_learner.init(Dual(value, chi, jnp.zeros(()), jnp.zeros(())))
        policy = policy_network(key_policy, spec, cfg.policy_hidden, tanh_mean=cfg.tanh_mean, init=cfg.init)
        return State(dual, policy_learner.init(policy), jnp.zeros((), jnp.int32))

    def update(state: State, batch: Batch, key) -> tuple[State, Metrics]:
        before = state.dual.params
        loss = lambda params: total_loss(cfg, params, batch, key)
        (_, (value, v, weight, bound)), gradient = jax.value_and_grad(loss, has_aux=True)(before)
        dual = dual_learner.step(state.dual, gradient)
        cloning, gradient = jax.value_and_grad(weighted_cloning)(state.policy.params, weight, batch.obs, batch.action)
        policy = policy_learner.step(state.policy, gradient)
        metrics = {
            "value_loss": value,
            "value_mean": jnp.mean(v),
            "policy_loss": cloning,
            "cost_estimate": jnp.mean(weight * batch.column("cost")),
            "cost_bound": bound.cost,
            "cost_of_data": jnp.mean(batch.column("cost")),
            "reward_estimate": jnp.mean(weight * batch.reward),
            "price": before.lam,
            "tau": before.tau,
            "weight_mean": jnp.mean(weight),
            "weight_ess": effective_sample_size(weight),
        }
        return State(dual, policy, state.step + 1), metrics

    return Algo(init, update, lambda state: state.policy.params, initial_states=True)
