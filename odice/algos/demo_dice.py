"""DemoDICE: imitation from few demonstrations and much imperfect data (Kim et al., ICLR 2022).

Match the expert's visitation, but stay near the data: minimize KL(d_pi || d_expert) + alpha KL(d_pi || d_U) with U the
union of demonstrations and imperfect data. With r = log d_expert / d_U from a discriminator c(s, a) and x = r + gamma m
V(s') - V(s):

    V    minimizes  (1 - gamma) E_p0[V(s0)] + (1 + alpha) log E_U[exp(x / (1 + alpha))] + g E[||grad V||^2]
    pi   maximizes  E_U[w log pi(a|s)],      w = exp(x / (1 + alpha)) / its mean over the batch

Both are those of the frame `algos.union`. The log mean exp is computed with its maximum subtracted. Adding a constant
to V changes nothing unless some rows are terminated: then V drifts upwards without end, and terminal rows lose all
their weight. So `odice imitate` gives this algorithm absorbing states.

Differs from the official code (KAIST-AILab/imitation-dice):
- terminal rows are masked, and absorbing states stand behind them; there, neither is so, and V(s') of a terminal row is
  that of the next episode's first state. `bootstrap_terminals`, with the absorbing states off, is the nearest to it
  (preset `reference`);
- observations are normalized by the union, not by the imperfect data alone;
- Adam's epsilon is 1e-8, not 1e-7; the policy's mean before the tanh is not cut at +-7.
"""

from __future__ import annotations

from dataclasses import dataclass

from odice.algos.registry import register
from odice.algos.union import DECLARED, KLUnionConfig, kl_union
from odice.types import Algo, Spec


@dataclass(frozen=True)
class DemoDICEConfig(KLUnionConfig):
    """DemoDICE. Defaults follow the official code."""

    alpha: float = 0.0
    """alpha: how much the policy is held to the union; larger is nearer to cloning all of it (official: 0)."""


@register("demo-dice", DemoDICEConfig, **DECLARED)
def demo_dice(cfg: DemoDICEConfig, spec: Spec) -> Algo:
    """DemoDICE: imitation from demonstrations and imperfect data, by KL to the expert and to the data."""
    return kl_union(cfg, "action", spec)
