"""IQ-Learn: inverse soft Q-learning (Garg et al., NeurIPS 2021), offline: the semi-gradient of Q-form DICE.

With V(s) = E_{a ~ pi}[Q(s, a) - T log pi(a|s)] and rho = Q(s, a) - gamma m V(s'), the reward that Q stands for, on
expert transitions:

    Q    minimizes  -E[rho] + E[V(s) - gamma m V(s')] + E[rho^2] / (4 alpha)                     (`value-expert`, chi)
                or  -E[rho] + (1 - gamma) E[V(s)] + E[rho^2] / (4 alpha)                         (`v0`)
    pi   minimizes  E_{s, a ~ pi}[T log pi(a|s) - Q(s, a)]

Raise the reward of what the expert did, lower the value of what the policy would do in the same states, and keep
rewards small. With R = -rho the first and the last term are f*(R) = R + R^2 / (4 alpha): Q-form DICE (`core.qdice`).
V(s') comes from the target network and carries no gradient, which makes it the semi-gradient; `use_target=False` is the
true gradient. Other divergences replace f*: the official code weighs rho by the derivative of f*, which is the same
gradient.

The recovered reward is rho (`core.qdice.recovered_reward`). Of a finite set of actions pi = softmax(Q / T) and V = T
log sum_a exp(Q(s, a) / T) are exact.

Differs from the official code (Div99/IQ-Learn):
- only its offline losses: nothing here needs the environment or rows of the policy's own;
- batches are drawn with replacement; networks are 256-256 with ReLU for discrete actions too (there 64-64 with ELU),
  and these have a target as well (there V(s') carries gradient: `use_target=False`);
- of a `twin`, each head has its own V(s); the code takes the minimum there as well.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from odice.algos.inverse_q import DECLARED, InverseConfig, inverse
from odice.algos.registry import register
from odice.core.gradients import semi, true
from odice.core.qdice import Objective, reward_divergence
from odice.types import Algo, Spec


@dataclass(frozen=True)
class IQLearnConfig(InverseConfig):
    """IQ-Learn. Defaults follow the official MuJoCo scripts and their offline loss."""

    loss: Literal["value-expert", "v0"] = "value-expert"
    """The linear term: V(s) - gamma m V(s') on expert rows, or (1 - gamma) V(s) (online scripts of Hopper and
    Walker)."""
    use_target: bool = True
    """V(s') from the target network, without gradient (MuJoCo configs); off, the online one with gradient (library
    default)."""


@register("iq-learn", IQLearnConfig, **DECLARED)
def iq_learn(cfg: IQLearnConfig, spec: Spec) -> Algo:
    """IQ-Learn: imitation by inverse soft Q-learning, the semi-gradient of Q-form DICE."""
    telescoping = cfg.loss == "value-expert"
    objective = Objective(
        reward_divergence(cfg.divergence, cfg.alpha),
        cfg.discount,
        cfg.temperature,
        linear=1.0 if telescoping else 1.0 - cfg.discount,
        telescope=1.0 if telescoping else 0.0,
    )
    return inverse(cfg, objective, semi if cfg.use_target else true, spec, "iq-learn")
