"""XQL: extreme Q-learning (Garg et al., ICLR 2023), Gumbel regression in the frame of implicit Q-learning.

    V    minimizes  E_D[exp(z) - z - 1],                    z = min((q - V(s)) / beta, cap),   q = min_i Qbar_i(s, a)
    pi   maximizes  E_D[min(exp(temperature (q - V(s))), 100) log pi(a|s)]
    Q_i  minimizes  E_D[huber_20(r + gamma m V(s') - Q_i(s, a))]

Errors of a maximum are Gumbel distributed, and this loss is the likelihood of such errors. Its minimum over V(s) is the
soft maximum

    V(s) = beta log E_{a ~ D}[exp(q(s, a) / beta)]

over the logged actions: beta -> 0 is their maximum, beta -> infinity their mean. It is the dual of a KL divergence,
f-DVL's third one ("reverse KL"). EQL has the same minimum, but other gradients beyond the cap: there its linear term
still pulls, here nothing does.

The exponential is kept in range as the official code does it: the loss is divided by exp(max z), at least by exp(-1),
which acts as an adaptive learning rate.

Differs from the official code (Div99/xql, offline): no dropout; no gradient penalty and no logarithm of the loss, which
are off there. Discrete actions are ours, and have no noise.
"""

from __future__ import annotations

from dataclasses import dataclass

import jax
import jax.numpy as jnp

from odice.algos.implicit_q import DECLARED, HuberConfig, Losses, huber_losses, implicit
from odice.algos.registry import register
from odice.algos.validation import positive, require
from odice.types import Algo, Spec


@dataclass(frozen=True)
class XQLConfig(HuberConfig):
    """XQL. Defaults follow the official code."""

    beta: float = 1.0
    """beta: temperature of the soft maximum; official 1 on MuJoCo, 0.8 on AntMaze. Smaller searches harder."""
    exponent_cap: float = 7.0
    """Largest exponent in the loss of V (official default 7, its commands 5)."""
    value_updates: int = 1
    """Steps of V per update, on the same batch (official script for antmaze-medium-diverse: 4)."""
    action_noise: float = 0.0
    """Standard deviation of the noise on the logged actions, clipped at 0.5, in the loss of V alone (official script
    for halfcheetah-medium: 0.1)."""

    def __post_init__(self):
        super().__post_init__()
        require(self.value_updates >= 1, f"value_updates must be at least 1, got {self.value_updates}.")
        require(0 <= self.action_noise < 1, f"action_noise must lie in [0, 1), got {self.action_noise}.")
        positive(self, "beta", "exponent_cap")


def losses(cfg: XQLConfig) -> Losses:
    """What XQL puts into the frame of implicit Q-learning."""

    def value(q, v):
        z = jnp.minimum((q - v) / cfg.beta, cfg.exponent_cap)
        largest = jax.lax.stop_gradient(jnp.maximum(jnp.max(z), -1.0))
        return jnp.mean(jnp.exp(z - largest) - jnp.exp(-largest) * (z + 1.0))

    return huber_losses(cfg, value)._replace(value_updates=cfg.value_updates, action_noise=cfg.action_noise)


@register("xql", XQLConfig, **DECLARED, when_diverged=("raise", "beta"))
def xql(cfg: XQLConfig, spec: Spec) -> Algo:
    """XQL: the soft maximum of Q over logged actions by Gumbel regression, policy by advantage-weighted cloning."""
    return implicit(cfg, losses(cfg), spec)
