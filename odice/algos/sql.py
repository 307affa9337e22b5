"""SQL and EQL: implicit value regularization (Xu et al., ICLR 2023), with a chi-square and with a KL divergence.

Both regularize the policy towards the data, action by action, and solve for the value in closed form:

    SQL   V minimizes  E_D[1{u > 0} u^2 + V(s) / alpha],         u = (q - V(s)) / (2 alpha) + 1
          w = max(q - V(s), 0)
    EQL   V minimizes  E_D[exp(z) + V(s) / alpha],               z = (q - V(s)) / alpha
          w = exp(10 z)

with q = min_i Qbar_i(s, a); both weights are clipped to [0, 100]. The rest is the frame of implicit Q-learning:

    pi   maximizes  E_D[w log pi(a|s)]
    Q_i  minimizes  E_D[(r + gamma m V(s') - Q_i(s, a))^2]

SQL's weight is exactly 0 for actions of negative advantage: it does not imitate them at all ("sparse"). Its loss of V
at alpha = 1 is twice that of semi-gradient V-DICE with Pearson's chi-square at lam = 1/2, with q in the place of r +
gamma m V(s').

EQL's exponential is kept in range as the official code does it: z is cut at `exponent_cap`, beyond which only V / alpha
pulls, and the loss is divided by exp(max z), which acts as an adaptive learning rate.

Differs from the paper, as the official code (ryanxhr/IVR) does, each by a named setting:
- SQL's weight has neither the "+1" nor the "2 alpha" of u (`sparse_ratio` puts both back);
- EQL's weight is ten times as sharp as the loss it comes from (`sharpness`; the paper's is 1).

Differs from the official code: no dropout (there, in the policy on Kitchen; the value dropout of its AntMaze config is
inactive).
"""

from __future__ import annotations

from dataclasses import dataclass

import jax
import jax.numpy as jnp

from odice.algos.implicit_q import DECLARED, ImplicitConfig, Losses, implicit
from odice.algos.registry import register
from odice.algos.validation import positive
from odice.core.extraction import advantage_weight
from odice.types import Algo, Spec


@dataclass(frozen=True)
class SQLConfig(ImplicitConfig):
    """SQL. Defaults follow the official MuJoCo config."""

    alpha: float = 1.0
    """alpha: strength of the regularization towards the data; MuJoCo 1, AntMaze 0.1. Smaller searches harder."""
    sparse_ratio: bool = False
    """The paper's weight max(0, u) in place of the code's max(0, q - V)."""
    layer_norm: bool = True
    """LayerNorm in the hidden layers of V (official code: all configs)."""

    def __post_init__(self):
        super().__post_init__()
        positive(self, "alpha")


@dataclass(frozen=True)
class EQLConfig(ImplicitConfig):
    """EQL. Defaults follow the official MuJoCo config."""

    alpha: float = 2.0
    """alpha: strength of the regularization towards the data; MuJoCo 2, AntMaze 0.5. Smaller searches harder."""
    sharpness: float = 10.0
    """The policy's weight is exp(sharpness (q - V) / alpha); official code 10, paper 1."""
    exponent_cap: float = 5.0
    """Largest exponent in the loss of V (official code: 5)."""
    layer_norm: bool = True
    """LayerNorm in the hidden layers of V (official code: all configs)."""

    def __post_init__(self):
        super().__post_init__()
        positive(self, "alpha", "sharpness", "exponent_cap")


def sparse_losses(cfg: SQLConfig) -> Losses:
    """What SQL puts into the frame of implicit Q-learning."""
    ratio = lambda q, v: jnp.maximum((q - v) / (2 * cfg.alpha) + 1, 0.0)
    advantage = lambda q, v: jnp.maximum(q - v, 0.0)
    form = ratio if cfg.sparse_ratio else advantage
    return Losses(
        value=lambda q, v: jnp.mean(jnp.square(ratio(q, v)) + v / cfg.alpha),
        weight=lambda q, v: jnp.minimum(form(q, v), cfg.weight_clamp),
    )


def exponential_losses(cfg: EQLConfig) -> Losses:
    """What EQL puts into the frame of implicit Q-learning."""

    def value(q, v):
        z = jnp.minimum((q - v) / cfg.alpha, cfg.exponent_cap)
        largest = jax.lax.stop_gradient(jnp.maximum(jnp.max(z), -1.0))
        return jnp.mean(jnp.exp(z - largest) + jnp.exp(-largest) * v / cfg.alpha)

    return Losses(value=value, weight=lambda q, v: advantage_weight(q - v, cfg.sharpness / cfg.alpha, cfg.weight_clamp))


@register("sql", SQLConfig, **DECLARED, when_diverged=("raise", "alpha"))
def sql(cfg: SQLConfig, spec: Spec) -> Algo:
    """SQL: implicit value regularization with chi-square; actions of negative advantage get no weight."""
    return implicit(cfg, sparse_losses(cfg), spec)


@register("eql", EQLConfig, **DECLARED, when_diverged=("raise", "alpha"))
def eql(cfg: EQLConfig, spec: Spec) -> Algo:
    """EQL: implicit value regularization with KL; exponential values and weights."""
    return implicit(cfg, exponential_losses(cfg), spec)
