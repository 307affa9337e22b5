"""DemoDICE: imitation from few demonstrations and much imperfect data (Kim et al., ICLR 2022).

Match the expert's visitation, but stay near the data: minimise KL(d_pi || d_expert) + alpha KL(d_pi || d_U) with U the
union of demonstrations and imperfect data. With r = log d_expert / d_U from a discriminator c(s, a) and x = r + gamma m
V(s') - V(s):

    V    minimises  (1 - gamma) E_p0[V(s0)] + (1 + alpha) log E_U[exp(x / (1 + alpha))] + g E[||grad V||^2]
    pi   maximises  E_U[w log pi(a|s)],      w = exp(x / (1 + alpha)) / its mean over the batch

What both are made of is in `algos.mixed`. The log mean exp is computed with its maximum subtracted. Adding a constant
to V changes nothing unless some rows are terminated: then V drifts upwards without end, and terminal rows lose all
their weight. So `odice imitate` gives this algorithm absorbing states.

Differs from the official code (KAIST-AILab/imitation-dice):
- terminal rows are masked, and absorbing states stand behind them; there, neither is so, and V(s') of a terminal row is
  that of the next episode's first state. `bootstrap_terminals`, with the absorbing states off, is the nearest to it
  (preset `reference`);
- observations are normalised by the union, not by the imperfect data alone;
- Adam's epsilon is 1e-8, not 1e-7; the policy's mean before the tanh is not cut at +-7.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from odice.algos.health import UNION
from odice.algos.mixed import Frame, UnionConfig, union_algorithm
from odice.algos.registry import register
from odice.algos.validation import require
from odice.core.networks import Init
from odice.types import Algo, Spec


@dataclass(frozen=True)
class DemoDICEConfig(UnionConfig):
    """DemoDICE. Defaults follow the official code."""

    alpha: float = 0.0
    """alpha: how much the policy is held to the union; larger is nearer to cloning all of it (official default 0)."""
    smooth: float = 1e-3
    """Holds r between -6.9 and 13.8: -log(1 / (sigmoid(c) + smooth) - 1 + smooth) (official: 1e-3). 0 leaves it
    free."""
    discriminator_penalty: float = 0.1
    """k: weight of (||grad c|| - 1)^2 (official: 0.1)."""
    value_penalty: float = 1e-4
    """g: weight of ||grad V||^2 (official: 1e-4)."""

    bootstrap_terminals: bool = False
    """V(s') counts after a terminal too (official: there is no mask). s' is then what the data have there."""
    init: Init = "he"
    """Initialisation of all networks (official: he_normal)."""

    def __post_init__(self):
        super().__post_init__()
        require(0 <= self.alpha < math.inf, f"alpha must be at least 0, got {self.alpha}.")
        require(0 <= self.smooth < 1, f"smooth must lie in [0, 1), got {self.smooth}.")


@register(
    "demo-dice",
    DemoDICEConfig,
    imitates=True,
    value=lambda state: state.value,
    when_diverged=("lower", "value_lr"),
    health=UNION,
)
def demo_dice(cfg: DemoDICEConfig, spec: Spec) -> Algo:
    """DemoDICE: imitation from demonstrations beside imperfect data, by KL to the expert and to the data."""
    official: dict[str, Any] = {
        "penalize_reward": True,
        "last_bias": False,
        "bootstrap_terminals": cfg.bootstrap_terminals,
    }
    return union_algorithm(cfg, Frame("action", cfg.smooth, 1.0 + cfg.alpha, "kl-dv", **official), spec)
