"""IQL: implicit Q-learning (Kostrikov et al., ICLR 2022).

    V    minimizes  E_D[|tau - 1{u < 0}| u^2],           u = min_i Qbar_i(s, a) - V(s)
    pi   maximizes  E_D[min(exp(beta (q - V(s))), 100) log pi(a|s)],   q = min_i Qbar_i(s, a)
    Q_i  minimizes  E_D[(r + gamma m V(s') - Q_i(s, a))^2]

The loss of V is an expectile regression: tau = 1/2 gives the mean of Q over the logged actions, tau -> 1 their maximum.
So V is the value of the best action the data support, and Q is never evaluated at another one.

One update, in this order (`algos.implicit_q`): V; the policy and Q with the *new* V; the target of Q.

Differs from the official code (ikostrikov/implicit_q_learning): no dropout in the policy, which it uses on Adroit and
Kitchen only. CORL's variant is the preset `corl`: torch's initialization, the V of *before* its step for policy and Q
(`fresh_value`), a lower floor of the standard deviation, and on two data sets a deterministic policy and a slower
target. Its Q loss is the mean of the heads, here and officially the sum: with Adam the difference is none but in its
epsilon.
"""

from __future__ import annotations

from dataclasses import dataclass

import jax.numpy as jnp

from odice.algos.implicit_q import DECLARED, ImplicitConfig, Losses, implicit
from odice.algos.registry import register
from odice.algos.validation import not_negative, require
from odice.core.critics import expectile
from odice.core.extraction import advantage_weight
from odice.types import Algo, Spec


@dataclass(frozen=True)
class IQLConfig(ImplicitConfig):
    """IQL. Defaults follow the official MuJoCo config."""

    expectile: float = 0.7
    """tau: which expectile of Q over the logged actions V is; MuJoCo 0.7, AntMaze 0.9."""
    beta: float = 3.0
    """beta: how sharply the policy prefers actions of high advantage; MuJoCo 3, AntMaze 10. 0 is behavior cloning."""

    def __post_init__(self):
        super().__post_init__()
        require(
            0 < self.expectile < 1,
            f"expectile must lie strictly between 0 and 1, got {self.expectile}: 1/2 is the mean, 1 the maximum.",
        )
        not_negative(self, "beta")


def losses(cfg: IQLConfig) -> Losses:
    """What IQL puts into the frame of implicit Q-learning."""
    return Losses(
        value=lambda q, v: jnp.mean(expectile(q - v, cfg.expectile)),
        weight=lambda q, v: advantage_weight(q - v, cfg.beta, cfg.weight_clamp),
    )


@register("iql", IQLConfig, **DECLARED)
def iql(cfg: IQLConfig, spec: Spec) -> Algo:
    """IQL: values by expectile regression on logged actions, policy by advantage-weighted cloning."""
    return implicit(cfg, losses(cfg), spec)
