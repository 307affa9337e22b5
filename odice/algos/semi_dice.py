"""Semi-gradient DICE as a frame, and the correction of its ratio: what `cors-dice` and `idrl` share.

With x = (Q - V) / alpha and w(x) = max(0, (f')^-1(x)):

    V    minimizes  E_D[V(s) + alpha f*(x)],                    Q here is min_i Qbar_i(s, a)
    Q_i  minimizes  E_D[(r + gamma m V(s') - Q_i(s, a))^2]

which is the frame of implicit Q-learning (`implicit_q`) with its own loss of V. At the solution E_{a ~ D}[w(x) | s]
is 1: w(a|s) = w(x) is a ratio of policies. `core.state_ratio` learns the ratio of visits to states from it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import jax.numpy as jnp
from jaxtyping import Array, Float

from odice.algos.implicit_q import ImplicitConfig, Losses
from odice.algos.validation import not_negative, positive
from odice.core.critics import Critic, min_over_heads
from odice.core.divergences import divergence
from odice.core.learner import Learner
from odice.core.networks import Ensemble, value_network
from odice.core.state_ratio import StateRatio, state_ratio
from odice.types import Batch, Spec


@dataclass(frozen=True)
class SemiDICEConfig(ImplicitConfig):
    """What both share. Defaults follow the official code of CORSDICE."""

    alpha: float = 0.1
    """alpha: strength of the divergence from the data, in the units of the rewards (CORSDICE: 0.01, 0.1, 1 or 10)."""
    divergence: Literal["soft-chi2", "half-pearson"] = "soft-chi2"
    """f: the soft chi-square, whose weights are positive, or half Pearson, whose weights may be 0."""
    state_lr: float = 3e-5
    """Adam's learning rate for nu (CORSDICE: a tenth of V's)."""
    gradient_penalty: float = 0.01
    """Weight of the penalty on slopes of nu above 5 (CORSDICE: 0.01)."""
    layer_norm: bool = True
    """LayerNorm in the hidden layers of V, nu and e."""

    def __post_init__(self):
        super().__post_init__()
        positive(self, "alpha")
        not_negative(self, "gradient_penalty")


def semi_losses(cfg: SemiDICEConfig, *, linear: bool = False) -> Losses:
    """Semi-gradient DICE in the frame of implicit Q-learning; `linear` clones with max(0, 1 + x)."""
    f, alpha = divergence(cfg.divergence), cfg.alpha
    weight = (lambda x: jnp.maximum(1 + x, 0.0)) if linear else f.weight
    return Losses(
        value=lambda q, v: jnp.mean(v + alpha * f.conjugate((q - v) / alpha)),
        weight=lambda q, v: jnp.minimum(weight((q - v) / alpha), cfg.weight_clamp),
    )


def action_ratio(cfg: SemiDICEConfig, critic: Critic, value: Ensemble, batch: Batch) -> Float[Array, " b"]:
    """w(a|s)."""
    advantage = min_over_heads(critic(batch.obs, batch.action)) - value(batch.obs)[0]
    return divergence(cfg.divergence).weight(advantage / cfg.alpha)


def correction(cfg: SemiDICEConfig, spec: Spec, f: str | None = None) -> StateRatio:
    """The estimator of w(s), with networks like V's; its divergence is that of w(a|s) unless `f` names another."""
    options = {"heads": 1, "layer_norm": cfg.layer_norm, "init": cfg.init}
    return state_ratio(
        divergence(f or cfg.divergence),
        lambda key: value_network(key, spec, cfg.value_hidden, **options),
        Learner(cfg.state_lr),
        Learner(cfg.value_lr),
        discount=cfg.discount,
        gradient_penalty=cfg.gradient_penalty,
    )
