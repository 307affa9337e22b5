"""LobsDICE: imitation from states alone (Kim et al., NeurIPS 2022): demonstrations have no actions, the imperfect
data have them.

Match the visitation of *steps from a state to the next*: minimize KL(d_pi(s, s') || d_expert(s, s')) + alpha KL(d_pi(s,
a) || d_U(s, a)) with U the union of demonstrations and imperfect data. With r = log d_expert(s, s') / d_U(s, s') from a
discriminator c(s, s') and x = r + gamma m V(s') - V(s):

    V    minimizes  (1 - gamma) E_p0[V(s0)] + (1 + alpha) log E_U[exp(x / (1 + alpha))] + g E[||grad V||^2]
    pi   maximizes  E_U[w log pi(a|s)],      w = exp(x / (1 + alpha)) / its mean over the batch

A pair of states says which way the expert went, where SMODICE's single states only say where it was: of two actions
that stay among the expert's states, only one may go its way. The rest is DemoDICE's (`algos.union`). A data set has an
action column, and that of the demonstrations is used as part of the union only, as in the official code: few rows of
many.

Differs from the official code (KAIST-AILab/imitation-dice, `lobsdice.py` with its default `closed_form_mu`): as
DemoDICE does from its; the second multiplier mu, which the closed form replaces, is left out.
"""

from __future__ import annotations

from dataclasses import dataclass

from odice.algos.registry import register
from odice.algos.union import DECLARED, KLUnionConfig, kl_union
from odice.types import Algo, Spec


@dataclass(frozen=True)
class LobsDICEConfig(KLUnionConfig):
    """LobsDICE. Defaults follow the official code."""

    alpha: float = 0.1
    """alpha: how much the policy is held to the union; larger is nearer to cloning all of it (official: 0.1)."""


@register("lobs-dice", LobsDICEConfig, **DECLARED)
def lobs_dice(cfg: LobsDICEConfig, spec: Spec) -> Algo:
    """LobsDICE: imitation of the expert's steps from state to state, with the actions of imperfect data."""
    return kl_union(cfg, "next", spec)
