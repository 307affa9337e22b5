"""OQ-DICE: Q-form DICE with the orthogonal gradient, for imitation. New here: no paper or public code has it.

O-DICE's rule (`core.gradients`) needs a residual with two ends, and Q-form DICE has one. On expert transitions

    minimize over Q   E[(1 - lam) V(s) + lam alpha f*(R / alpha)],      R = gamma m V(s') - Q(s, a)
    V(s) = E_{a ~ pi}[Q(s, a) - T log pi(a|s)]

with the gradient of the f* term

    F + eta (B - <F, B> / <F, F> F)      F: through Q(s, a), target's V(s');   B: through V(s'), target's Q(s, a)

IQ-Learn drops B, ValueDICE keeps all of it. What it is for: F moves Q at the expert's actions only; B lowers Q(s', a')
of the actions that the *policy* would take in the states an expert transition leads to, as the objective asks for,
without undoing the step along F.

Our choices, each with its reason:
- pi minimizes E[T log pi - Q] as in IQ-Learn, not weighted cloning: all rows are the expert's, there is nothing to
  weigh;
- f is IQ-Learn's chi-square, so that eta = 0 and lam = 1/2 is IQ-Learn (`value-expert`), a test;
- the linear term has no backward part, as in O-DICE: the expert's states stand for those where episodes start;
- the projection is over all parameters of Q at once, per batch, as in O-DICE.
"""

from __future__ import annotations

from dataclasses import dataclass

from odice.algos.inverse_q import DECLARED, InverseConfig, inverse
from odice.algos.registry import register
from odice.algos.validation import require
from odice.core.gradients import orthogonal
from odice.core.qdice import Objective, reward_divergence
from odice.types import Algo, Spec


@dataclass(frozen=True)
class OQDICEConfig(InverseConfig):
    """OQ-DICE. Defaults are IQ-Learn's, with O-DICE's eta."""

    lam: float = 0.5
    """lambda: weight of f*(R) against (1 - lambda) V(s); 1/2 is IQ-Learn's balance."""
    eta: float = 1.0
    """eta: strength of the projected backward gradient (O-DICE in imitation: 1). 0 is the semi-gradient."""

    def __post_init__(self):
        super().__post_init__()
        require(
            0 < self.lam < 1,
            f"lam must lie strictly between 0 and 1, got {self.lam}: it trades (1 - lam) V for lam f*.",
        )
        orthogonal(self.eta)


@register("oq-dice", OQDICEConfig, **DECLARED)
def oq_dice(cfg: OQDICEConfig, spec: Spec) -> Algo:
    """OQ-DICE: imitation by Q-form DICE whose backward gradient is projected off the forward one."""
    objective = Objective(
        reward_divergence(cfg.divergence, cfg.alpha),
        cfg.discount,
        cfg.temperature,
        linear=1.0 - cfg.lam,
        lam=cfg.lam,
    )
    return inverse(cfg, objective, orthogonal(cfg.eta), spec, "oq-dice")
