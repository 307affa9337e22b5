"""Diffusion-DICE: semi-gradient DICE whose policy is a guided diffusion of actions (Mao, Xu et al., NeurIPS 2024).

A Gaussian policy averages what several agents did in one state. A diffusion of actions keeps their modes; DICE's ratio
says where to go from there. With x = (Qbar - V) / alpha, Qbar = min_i Qbar_i(s, a), and the soft chi-square

    f*(x) = x^2/4 + x,  w(x) = x/2 + 1   for x >= 0         f*(x) = w(x) - 1,  w(x) = e^x   below

    V    minimizes  E_D[f*(x) + V(s) / alpha]
    Q_i  minimizes  E_D[(r + gamma m V(s') - Q_i(s, a))^2],        m = 1 - terminated;  an ensemble likewise, to select

At the solution w(x) is the policy's ratio pi(a|s) / pi_D(a|s). Actions are noised, a_t = alpha_t a + sigma_t e, and

    e_theta   minimizes  E_D,t,e[||e_theta(s, a_t, t) - e||^2]   the behavior's score is -e_theta / sigma_t
    W         minimizes  E_D,t,e[min(w(x), 100) e^(-W(s, a_t, t)) + W(s, a_t, t)]   so W = log E[w | s, a_t]

Noising pi gives the density pi_D(a_t|s) E[w | s, a_t], so its score is that of the behavior plus grad W. This is the
*guidance*, learned from logged actions alone. To act, noise is taken out along

    score(a_t) + k grad W(s, a_t, t),                k = 1 is the policy of the ratio, more goes further

by 15 calls (`core.diffusion`), from several draws of noise, and the action with the largest mean Q is *selected*. The
draws are made once and kept with the policy: the same for every observation, so that an action is a function of it. The
first is 0, the middle of the noise: a kept draw is off the middle in the same way at every step.

One update, in this order: V; Q and the ensemble with the new V; Qbar; then, with the new V and Qbar, W; then e_theta.

Differs from the released code (maoliyuan/diffusion-DICE-Pytorch, 7ab5a92):
- there the behavior is learned first (600,000 updates of 4,096 rows, Adam 1e-4), then kept; here e_theta learns in the
  same update from the same rows as the rest, and its rate falls along a cosine unless `cosine_steps` is 0;
- e_theta is sigma_t a_t + alpha_t times an MLP of (s, a_t, features of t), there a U of residual blocks (512, 256, 128)
  that gets t and s in every block; features of t are sines and cosines of 16 fixed frequencies, there of 16 random
  ones;
- the log's actions and those that are made live in [-1, 1], and what is made is clipped to it;
- draws of noise are kept and the first is 0, there they are new at every step; of the draws the best is taken, there
  AntMaze draws one of them by a softmax of Q.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from odice.algos.health import CLAMPED_WEIGHTS, LARGE_WEIGHTS, VALUES_OF_RETURNS, WEIGHTS
from odice.algos.implicit_q import LENGTH, Losses, Values, ValuesConfig, implicit_values
from odice.algos.registry import register
from odice.algos.validation import positive, require
from odice.core.critics import Critic, min_over_heads
from odice.core.diffusion import DiffusionPolicy, Noised, TimeMLP, noised, predicted_noise
from odice.core.divergences import divergence
from odice.core.extraction import effective_sample_size
from odice.core.learner import Learned, Learner
from odice.core.networks import Init
from odice.types import Algo, Batch, Metrics, Spec

DEEP = 80.0
"""W below -80 is not pushed further by e^(-W), which would overflow (released code)."""


@dataclass(frozen=True)
class DiffusionDICEConfig(ValuesConfig):
    """Diffusion-DICE. Defaults are for a log of one's own; the preset `reference` has the released code's."""

    alpha: float = 0.5
    """alpha: strength of the divergence from the data, in the units of the rewards. Smaller searches harder."""
    guidance: float = 2.0
    """k: how far the guidance goes; 1 is the ratio's policy, 0 a clone (released code: 1 to 4)."""
    candidates: int = 1
    """Draws of noise, the first 0, of which the action with the largest Q is taken; 1 selects nothing."""
    critic_ensemble: int = 0
    """Independent Q for the selection alone; 0 selects by the first slow Q (released code: 10, AntMaze 0)."""
    solver_steps: int = 15
    """Calls of the networks per action."""
    noised_copies: int = 4
    """M: noised copies of each logged action in the loss of W, all of one time (released code: 16, AntMaze 32)."""
    score_hidden: tuple[int, ...] = (128, 128, 128)
    """Widths of e_theta's hidden layers."""
    guidance_hidden: tuple[int, ...] = (128, 128)
    """Widths of W's hidden layers."""
    score_lr: float = 1e-3
    """Adam's learning rate for e_theta, at the start."""
    guidance_lr: float = 3e-4
    """AdamW's learning rate for W."""
    cosine_steps: int | None = None
    """The rate of e_theta falls to 0 along a cosine over this many updates; None is the length of the run (1,000,000
    outside of one), 0 keeps it."""
    weight_decay: float = 1e-4
    """AdamW's decay of V, Q, the ensemble and W."""
    layer_norm: bool = True
    """LayerNorm in the hidden layers of V."""
    init: Init = "torch"
    """Initialization of all networks."""

    def __post_init__(self):
        super().__post_init__()
        positive(self, "alpha")
        for name, least in (("guidance", 0.0), ("weight_decay", 0.0), ("critic_ensemble", 0)):
            value = getattr(self, name)
            require(least <= value < float("inf"), f"{name} must be a finite number of at least 0, got {value}.")
        require(self.critic_ensemble <= 1000, f"critic_ensemble must be at most 1000, got {self.critic_ensemble}.")
        for name, most in (("candidates", 1024), ("solver_steps", 200), ("noised_copies", 1024)):
            value = getattr(self, name)
            require(1 <= value <= most, f"{name} must lie between 1 and {most}, got {value}.")
        for name in ("score_hidden", "guidance_hidden", "critic_hidden"):
            require(len(getattr(self, name)) > 0, f"{name} must have a layer; a policy file cannot hold one without.")


class State(NamedTuple):
    values: Values
    ensemble: Learned[Critic] | None
    score: Learned[TimeMLP]
    guidance: Learned[TimeMLP]
    noise: Float[Array, "candidates act"]
    """The draws that actions are made from."""


def score_loss(score: TimeMLP, obs: Float[Array, "b obs"], drawn: Noised) -> Float[Array, ""]:
    """The squared error of the predicted noise, added over the action's dimensions."""
    velocity = score(jnp.broadcast_to(obs[None], (*drawn.time.shape, obs.shape[-1])), drawn.action, drawn.time)
    error = predicted_noise(velocity, drawn.action, drawn.time) - drawn.noise
    return jnp.mean(jnp.sum(jnp.square(error), axis=-1))


def dual_loss(energy: Float[Array, "copies b"], weight: Float[Array, " b"]) -> Float[Array, ""]:
    """E[w e^(c - W) + W] for W = `energy`, whose least value is at W = log E[w | a_t]; c is 0 unless W is below -80.

    It is divided by the largest of e^(c - W), at least e^-1: a rate that adapts, as in EQL.
    """
    exponent = jax.lax.stop_gradient(jnp.minimum(0.0, energy + DEEP)) - energy
    largest = jax.lax.stop_gradient(jnp.maximum(jnp.max(exponent), -1.0))
    return jnp.mean(weight[None] * jnp.exp(exponent - largest) + jnp.exp(-largest) * energy)


def guidance_loss(
    guidance: TimeMLP, weight: Float[Array, " b"], obs: Float[Array, "b obs"], drawn: Noised
) -> tuple[Float[Array, ""], Float[Array, ""]]:
    """The dual loss of W at noised actions, and the mean of W."""
    seen = jnp.broadcast_to(obs[None], (*drawn.time.shape, obs.shape[-1]))
    energy = guidance(seen, drawn.action, drawn.time)[..., 0]
    return dual_loss(energy, weight), jnp.mean(energy)


@register(
    "diffusion-dice",
    DiffusionDICEConfig,
    discrete=False,
    schedule="cosine_steps",
    value=lambda state: state.values.value.params,
    when_diverged=("raise", "alpha"),
    health=(*WEIGHTS, CLAMPED_WEIGHTS, LARGE_WEIGHTS, VALUES_OF_RETURNS),
)
def diffusion_dice(cfg: DiffusionDICEConfig, spec: Spec) -> Algo:
    """Diffusion-DICE: semi-gradient DICE that guides a diffusion of the log's actions and selects by Q."""
    f, alpha = divergence("soft-pearson"), cfg.alpha
    adamw = lambda rate: Learner(rate, cfg.weight_decay, decoupled=True)
    unused = lambda q, v: jnp.ones_like(q)  # nothing is cloned with it
    losses = Losses(value=lambda q, v: jnp.mean(f.conjugate((q - v) / alpha) + v / alpha), weight=unused)
    values = implicit_values(cfg, losses, spec, adamw)
    length = LENGTH if cfg.cosine_steps is None else cfg.cosine_steps
    score_learner, guidance_learner = Learner(cfg.score_lr, cosine_steps=length), adamw(cfg.guidance_lr)
    critic_learner = adamw(cfg.critic_lr)

    def init(key: PRNGKeyArray) -> State:
        key_value, key_critic, key_ensemble, key_score, key_guidance, key_noise = jax.random.split(key, 6)
        ensemble = None
        if cfg.critic_ensemble:
            heads = {"heads": cfg.critic_ensemble, "init": cfg.init}
            ensemble = critic_learner.init(Critic(key_ensemble, spec, cfg.critic_hidden, **heads))
        return State(
            values=values.init(key_value, key_critic),
            ensemble=ensemble,
            score=score_learner.init(TimeMLP(key_score, spec, cfg.score_hidden, spec.action_dim, cfg.init)),
            guidance=guidance_learner.init(TimeMLP(key_guidance, spec, cfg.guidance_hidden, 1, cfg.init)),
            noise=jax.random.normal(key_noise, (cfg.candidates, spec.action_dim)).at[0].set(0.0),
        )

    def ensemble_step(ensemble: Learned[Critic], batch: Batch, td_target: Float[Array, " b"]):
        error = lambda critic: jnp.mean(jnp.square(td_target[None] - critic(batch.obs, batch.action)))
        loss, gradient = jax.value_and_grad(error)(ensemble.params)
        return critic_learner.step(ensemble, gradient), {"ensemble_loss": loss}

    def update(state: State, batch: Batch, key: PRNGKeyArray) -> tuple[State, Metrics]:
        key_values, key_guidance, key_score = jax.random.split(key, 3)
        fitted, (_, _, metrics, td_target) = values.update(state.values, batch, key_values)
        ensemble = state.ensemble
        if ensemble is not None:
            ensemble, more = ensemble_step(ensemble, batch, td_target)
            metrics |= more

        q = min_over_heads(fitted.target(batch.obs, batch.action))
        weight = jnp.minimum(f.weight((q - fitted.value.params(batch.obs)[0]) / alpha), cfg.weight_clamp)
        drawn = noised(key_guidance, batch.action, cfg.noised_copies)
        (w_loss, energy), gradient = jax.value_and_grad(guidance_loss, has_aux=True)(
            state.guidance.params, weight, batch.obs, drawn
        )
        guidance = guidance_learner.step(state.guidance, gradient)

        drawn = noised(key_score, batch.action, 1)
        s_loss, gradient = jax.value_and_grad(score_loss)(state.score.params, batch.obs, drawn)
        score = score_learner.step(state.score, gradient)
        metrics |= {
            "score_loss": s_loss,
            "guidance_loss": w_loss,
            "guidance_mean": energy,
            "weight_mean": jnp.mean(weight),
            "weight_ess": effective_sample_size(weight),
        }
        return State(fitted, ensemble, score, guidance, state.noise), metrics

    def policy(state: State) -> DiffusionPolicy:
        first = jax.tree.map(lambda leaf: leaf[:1], state.values.target)
        critic = first if state.ensemble is None else state.ensemble.params
        return DiffusionPolicy(
            state.score.params, state.guidance.params, critic, state.noise, cfg.guidance, cfg.solver_steps
        )

    return Algo(init, update, policy)
