"""RGM: rewards that are not quite right, corrected by a few demonstrations (Li et al., ICLR 2023, "Mind the Gap").

A log has rewards r that may be wrong: sparse, biased, of the wrong sign in places. Demonstrations, fewer than would
do for imitation, show what is meant. Two levels: below, DICE learns from corrected rewards; above, the correction D is
such that the visitation this leads to is the expert's. With U the union of both data, h = log d_expert / d_U of a
discriminator and x = (r + D + gamma m V(s') - V(s)) / alpha:

    below   V    minimizes  (1 - gamma) E_p0[V(s0)] + alpha E_U[f*(x)]        (true gradient; D held)
            pi   maximizes  E_U[w log pi(a|s)] + exp(e) (entropy of pi),      w = f*'(x)
    above   D    minimizes  KL(w d_U || d_expert) = E_U[w (log w - h)]        (V held)
                        or  E_U[exp(h) f(w exp(-h))]                          (half Pearson)

D(s, a, r) = scale tanh(net), so it cannot outweigh rewards of another size. For KL the term of V is alpha log
E_U[exp(x)], and w is exp(x) divided by its mean (`algos.union`). The upper level moves far slower than the lower one,
so that V stays near its minimum for the D of now.

One update: while `discriminator_steps` last, the discriminator; after them D by one step, then V and pi with the new D.

Differs from the official code (Facebear-ljx/RGM):
- for KL, w in the upper level is divided by its mean, as in the lower one: V is free up to a constant, and D would have
  to chase it. There it is exp(min(x, 10)) as it is (`normalize=False`);
- demonstrations are part of the union, with the rewards they have; there they are used by the discriminator alone;
- all layers of the discriminator learn; there, only the upper half of its layers does;
- half Pearson's conjugate is the one for non-negative weights;
- for KL, three things of its lower level are not here: x is cut at 10 in V's loss (a larger one has no gradient there),
  the policy's weights exp(x) are cut at 100, and they are divided by their sum, not by their mean: its cloning loss is
  smaller by the size of a batch, so that the entropy's term weighs that much more.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Literal

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from odice.algos import union
from odice.algos.registry import register
from odice.algos.union import DECLARED, Frame, State, UnionConfig
from odice.algos.validation import positive, require
from odice.core.critics import Critic
from odice.core.divergences import divergence
from odice.core.learner import Learner
from odice.core.networks import Ensemble, Init
from odice.core.vdice import residual
from odice.types import Algo, Batch, Metrics, Spec

LARGEST = 10.0
"""Above this x counts as this, where w is not divided by its mean (official)."""


@dataclass(frozen=True)
class RGMConfig(UnionConfig):
    """RGM. Defaults follow the official code, but for `normalize` and `correction_lr`."""

    alpha: float = 0.5
    """alpha: how much the policy is held to the data (official: 0.5, walker2d-medium-replay 4)."""
    divergence: Literal["kl-dv", "half-pearson"] = "kl-dv"
    """f: KL in its normalized form, or half of chi-square (official 'kl', its default, and 'chi')."""
    normalize: bool = True
    """Divide w by its mean in the upper level too (official: no)."""
    correction_scale: float = 3.0
    """scale: D lies within +- this (official: 3, for rewards of mean 0 and deviation 1)."""
    correction_hidden: tuple[int, ...] = (256, 256)
    """Widths of D's hidden layers."""
    correction_lr: float = 3e-5
    """Adam's learning rate for D (official: 3e-7, a thousandth of the others', for a million updates)."""
    correction_weight_decay: float = 1e-4
    """Coupled L2 decay of D (official: 1e-4)."""
    deterministic: bool = False
    """One action per state (official: for hopper); else a distribution whose entropy is held at H."""
    discriminator_steps: int = 3000
    """Updates in which the discriminator alone learns (official: 1000 passes over a trajectory of 1000 rows, 256 at a
    time)."""
    discriminator_lr: float = 1e-3
    """Adam's learning rate for the discriminator (official: 1e-3)."""
    value_weight_decay: float = 1e-4
    """Coupled L2 decay of V (official: 1e-4)."""
    entropy: bool = True
    """Hold the entropy of the policy at H (official)."""
    cosine_steps: int | None = None
    """The rates of the policy and of D fall to 0 along a cosine over this many updates; None is the length of the run,
    0 keeps them."""
    init: Init = "glorot"
    """Initialization of V, D and the policy (official: Xavier's); the discriminator starts as torch's networks do."""

    def __post_init__(self):
        super().__post_init__()
        positive(self, "alpha", "correction_scale")
        steps = self.discriminator_steps
        require(steps >= 1, f"discriminator_steps must be at least 1, got {steps}.")


def corrected(cfg: RGMConfig, correction: Critic, batch: Batch) -> Float[Array, " b"]:
    """D(s, a, r)."""
    inputs = jnp.concatenate([batch.obs, batch.reward[:, None]], axis=-1)
    return cfg.correction_scale * jnp.tanh(correction(inputs, batch.action)[0])


def correction_loss(
    cfg: RGMConfig, correction: Critic, value: Ensemble, log_expert: Float[Array, " b"], batch: Batch
) -> Float[Array, ""]:
    """How far the visitation that D leads to is from the expert's. `log_expert` is h."""
    v, v_next = value(batch.obs), value(batch.next_obs)
    reward = batch.reward + corrected(cfg, correction, batch)
    x = residual(v, v_next, reward, batch.mask, cfg.discount)[0] / cfg.alpha
    if cfg.divergence == "kl-dv":
        mean = jax.nn.logsumexp(x) - jnp.log(x.size)
        log_w = x - mean if cfg.normalize else jnp.minimum(x, LARGEST)
        return jnp.mean(jnp.exp(log_w) * (log_w - log_expert))
    f = divergence(cfg.divergence)
    return jnp.mean(jnp.exp(log_expert) * f.f(f.weight(x) * jnp.exp(-log_expert)))


@register(
    "rgm",
    RGMConfig,
    **DECLARED,
    reads_rewards=True,
    schedule="cosine_steps",
)
def rgm(cfg: RGMConfig, spec: Spec) -> Algo:
    """RGM: DICE on rewards that are corrected until its visitation is that of a few demonstrations."""
    own = dataclasses.replace(cfg, entropy=cfg.entropy and not (cfg.deterministic and not spec.discrete))
    frame = Frame("action", 0.0, cfg.alpha, cfg.divergence, cfg.discriminator_steps, jnp.tanh, "torch")
    frame = frame._replace(deterministic=cfg.deterministic, policy_steps=cfg.cosine_steps or 0)
    parts = union.union_parts(own, frame, spec)
    learner = Learner(cfg.correction_lr, cfg.correction_weight_decay, cfg.cosine_steps)

    def init(key) -> State:
        with_reward = spec._replace(obs_dim=spec.obs_dim + 1)
        correction = Critic(jax.random.fold_in(key, 1), with_reward, cfg.correction_hidden, heads=1, init=cfg.init)
        return parts.init(key)._replace(correction=learner.init(correction))

    def learn_both(state: State, batch: Batch, key) -> tuple[State, Metrics]:
        assert state.correction is not None
        log_expert = state.discriminator.params(*union.discriminator_inputs(frame, batch))[0]
        above = lambda net: correction_loss(cfg, net, state.value.params, log_expert, batch)
        loss, gradient = jax.value_and_grad(above)(state.correction.params)
        correction = learner.step(state.correction, gradient)
        added = corrected(cfg, correction.params, batch)
        new, metrics = parts.learn_policy(state, batch, batch.reward + added, key)
        metrics |= {"correction_loss": loss, "correction_mean": jnp.mean(added), "correction_std": jnp.std(added)}
        return new._replace(correction=correction), metrics

    update = union.in_two_stages(cfg.discriminator_steps, parts.learn_discriminator, learn_both)
    return Algo(init, update, lambda state: state.actor.params.policy, initial_states=True, expert=True)
