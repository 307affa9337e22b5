"""SMODICE: state matching offline (Ma et al., ICML 2022): demonstrations need no actions, the imperfect data have them.

Match the visitation of *states*: minimize KL(d_pi(s) || d_expert(s)) over policies that the union U of demonstrations
and imperfect data supports. With r(s) = log d_expert(s) / d_U(s) from a discriminator c(s) and x = r + gamma m V(s') -
V(s):

    V    minimizes  (1 - gamma) E_p0[V(s0)] + log E_U[exp(x)]              (`kl-dv`)
                or  (1 - gamma) E_p0[V(s0)] + E_U[f*(x)], f = (y - 1)^2 / 2  (`half-pearson`)
    pi   maximizes  E_U[w log pi(a|s)] + exp(e) (entropy of pi),      w = exp(x) / its batch mean, or max(0, x + 1)

Both are those of the frame `algos.union`. The discriminator is learnt first, then fixed while V and pi learn.
`state_only=False` lets it see actions too. As in DemoDICE, `kl-dv` needs absorbing states, and `odice imitate` adds
them (the official code makes some, but never samples them: preset `reference` has none).

Differs from the official code (JasonMa2016/SMODICE):
- log E exp(x) is computed with its maximum subtracted, and the weights exp(x) are divided by their mean: V is free up
  to a constant, and so would be the size of the policy's loss;
- half Pearson's conjugate is the one for non-negative weights, which are those the policy uses; there it is x + x^2 / 2
  everywhere;
- all layers of the discriminator learn; there, only the upper half of its layers does;
- observations are normalized with std + 1e-3, not 1e-10; the discriminator's batches are as large as the others (there
  256).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import jax.numpy as jnp

from odice.algos.registry import register
from odice.algos.union import DECLARED, Frame, UnionConfig, union_algorithm
from odice.algos.validation import require
from odice.core.networks import Init
from odice.types import Algo, Spec


@dataclass(frozen=True)
class SMODICEConfig(UnionConfig):
    """SMODICE. Defaults follow the official code."""

    divergence: Literal["kl-dv", "half-pearson"] = "kl-dv"
    """f: KL in its normalized form, or half of chi-square (official 'kl', its default, and 'chi')."""
    state_only: bool = True
    """Whether the discriminator sees states alone; off, it sees actions too, and demonstrations need them."""
    discriminator_steps: int = 4000
    """Updates in which the discriminator alone learns (official: 1000 passes over a trajectory of 1000 rows, 256 at a
    time)."""
    discriminator_penalty: float = 10.0
    """k: weight of (||grad c|| - 1)^2 (official: 10)."""
    value_weight_decay: float = 1e-4
    """Coupled L2 decay of V (official: 1e-4)."""
    entropy: bool = True
    """Hold the entropy of the policy at H (official)."""
    init: Init = "glorot"
    """Initialization of V and the policy (official: Xavier's); the discriminator starts as torch's networks do."""

    def __post_init__(self):
        super().__post_init__()
        require(
            self.discriminator_steps >= 1, f"discriminator_steps must be at least 1, got {self.discriminator_steps}."
        )


@register("smodice", SMODICEConfig, **DECLARED)
def smodice(cfg: SMODICEConfig, spec: Spec) -> Algo:
    """SMODICE: imitation of the expert's states, with the actions of imperfect data."""
    inputs = "state" if cfg.state_only else "action"
    frame = Frame(inputs, 0.0, 1.0, cfg.divergence, cfg.discriminator_steps, jnp.tanh, discriminator_init="torch")
    return union_algorithm(cfg, frame, spec)
