"""f-DVL: dual V-learning (Sikchi et al., ICLR 2024), a DICE objective in the frame of implicit Q-learning.

    V    minimizes  E_D[lam f*(d) + (1 - lam) V(s)],        d = min_i Qbar_i(s, a) - V(s)
    pi   maximizes  E_D[min(exp(temperature (q - V(s))), 100) log pi(a|s)],    q = min_i Qbar_i(s, a)
    Q_i  minimizes  E_D[huber_20(r + gamma m V(s') - Q_i(s, a))]

f* is the conjugate of a divergence under non-negative weights (`core.divergences`); for Pearson's chi-square f*(d) =
max(0, 1 + d/2)^2 - 1. The divergence shapes V only: the policy is extracted as IQL does it. Against V-DICE, Q takes the
place of r + gamma m V(s'), so the noise of one next state does not enter f*.

Differs from the official code (hari-sikchi/DVL):
- its chi-square f* is max(d + d^2/4, 0), which agrees with the conjugate for d >= 0 only: it is 0 on [-4, 0], and below
  *grows* and pushes V down. Its total variation f* is max(d, 0), where the conjugate is max(d, -1/2). `surrogate`
  takes both as they are there, which the published numbers need;
- no action noise in the loss of V, no gradient penalty on Q and no dropout, which are off there. Its locomotion command
  adds one uniform action per state to the loss of V (`random_actions`), and has lam = 1, which switches the linear term
  off: what then holds V down are the random actions. Both are in the preset `reference`;
- its third divergence, the reverse KL, is `xql`.
Not verified: the paper's lam for each data set is not in its code. The default is that of our V-DICE.
"""

from __future__ import annotations

from dataclasses import dataclass

import jax.numpy as jnp

from odice.algos.implicit_q import DECLARED, HuberConfig, Losses, huber_losses, implicit
from odice.algos.registry import register
from odice.algos.validation import require
from odice.core.divergences import DivergenceLike, divergence
from odice.errors import unknown_name
from odice.types import Algo, Spec

SURROGATES = {
    "pearson": lambda d: jnp.maximum(d + jnp.square(d) / 4, 0.0),
    "total-variation": lambda d: jnp.maximum(d, 0.0),
}
"""What the official code has in the place of the conjugates."""


@dataclass(frozen=True)
class FDVLConfig(HuberConfig):
    """f-DVL. Defaults follow the official code with the chi-square divergence."""

    lam: float = 0.6
    """lambda: weight of f*(d) against (1 - lambda) V(s). Larger searches harder for good actions."""
    divergence: DivergenceLike = "pearson"
    """f: the divergence, by name or as a `Divergence` (the paper: chi-square and total variation)."""
    surrogate: bool = False
    """The official code's max(d + d^2/4, 0) and max(d, 0) in the place of the conjugates."""

    def __post_init__(self):
        super().__post_init__()
        require(
            0 < self.lam <= 1,
            f"lam must lie in (0, 1], got {self.lam}: it trades (1 - lam) V for lam f*.",
        )
        name = divergence(self.divergence).name
        if self.surrogate and name not in SURROGATES:
            raise unknown_name("divergence with a surrogate", name, SURROGATES)


def losses(cfg: FDVLConfig) -> Losses:
    """What f-DVL puts into the frame of implicit Q-learning."""
    conjugate = SURROGATES[divergence(cfg.divergence).name] if cfg.surrogate else divergence(cfg.divergence).conjugate
    return huber_losses(cfg, lambda q, v: jnp.mean(cfg.lam * conjugate(q - v) + (1.0 - cfg.lam) * v))


@register("fdvl", FDVLConfig, **DECLARED, when_diverged=("lower", "lam"))
def fdvl(cfg: FDVLConfig, spec: Spec) -> Algo:
    """f-DVL: the V-DICE loss with Q in the place of the one-step target, policy by advantage-weighted cloning."""
    return implicit(cfg, losses(cfg), spec)
