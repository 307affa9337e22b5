"""LobsDICE: imitation from states alone (Kim et al., NeurIPS 2022): demonstrations have no actions, the imperfect data
beside them do.

Match the visitation of *steps from a state to the next*: minimise KL(d_pi(s, s') || d_expert(s, s')) + alpha KL(d_pi(s,
a) || d_U(s, a)) with U the union of demonstrations and imperfect data. With r = log d_expert(s, s') / d_U(s, s') from a
discriminator c(s, s') and x = r + gamma m V(s') - V(s):

    V    minimises  (1 - gamma) E_p0[V(s0)] + (1 + alpha) log E_U[exp(x / (1 + alpha))] + g E[||grad V||^2]
    pi   maximises  E_U[w log pi(a|s)],      w = exp(x / (1 + alpha)) / its mean over the batch

A pair of states says which way the expert went, where SMODICE's single states only say where it was: of two actions
that stay among the expert's states, only one may go its way. The rest is DemoDICE's (`algos.mixed`). A data set has an
action column, and that of the demonstrations is used as part of the union only, as in the official code: few rows of
many.

Differs from the official code (KAIST-AILab/imitation-dice, `lobsdice.py` with its default `closed_form_mu`): as
DemoDICE does from its; the second multiplier mu, which the closed form replaces, is left out.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from odice.algos.mixed import Frame, UnionConfig, union_algorithm
from odice.algos.registry import register
from odice.algos.validation import require
from odice.core.networks import Init
from odice.types import Algo, Spec


@dataclass(frozen=True)
class LobsDICEConfig(UnionConfig):
    """LobsDICE. Defaults follow the official code."""

    alpha: float = 0.1
    """alpha: how much the policy is held to the union; larger is nearer to cloning all of it (official default 0.1)."""
    smooth: float = 1e-3
    """Holds r between -6.9 and 13.8: -log(1 / (sigmoid(c) + smooth) - 1 + smooth) (official: 1e-3). 0 leaves it
    free."""
    discriminator_penalty: float = 0.1
    """k: weight of (||grad r|| - 1)^2 (official: 0.1)."""
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
    "lobs-dice", LobsDICEConfig, imitates=True, value=lambda state: state.value, when_diverged=("lower", "value_lr")
)
def lobs_dice(cfg: LobsDICEConfig, spec: Spec) -> Algo:
    """LobsDICE: imitation of the expert's steps from state to state, with the actions of imperfect data."""
    official: dict[str, Any] = {
        "penalize_reward": True,
        "last_bias": False,
        "bootstrap_terminals": cfg.bootstrap_terminals,
    }
    return union_algorithm(cfg, Frame("next", cfg.smooth, 1.0 + cfg.alpha, "kl-dv", **official), spec)
