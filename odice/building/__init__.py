"""What an algorithm of one's own is built from, under one stable name.

    from odice.building import Learner, policy_network, weighted_cloning

The modules behind these names may move; the names here stay. `odice.register` makes the algorithm known,
`odice.Algo`, `odice.Batch` and `odice.Spec` are the types that it meets.
"""

from odice.algos.health import Check
from odice.algos.validation import positive, require, validate
from odice.core.critics import Critic, Critics, expectile, huber, min_over_heads
from odice.core.discriminator import classification_loss, grad_norm, interpolate, log_odds
from odice.core.divergences import Divergence, DivergenceLike, divergence, from_formulas, tempered
from odice.core.expected import NextState, next_state
from odice.core.extraction import (
    Extraction,
    advantage_weight,
    effective_sample_size,
    residual_extraction,
    residual_weight,
    weighted_cloning,
)
from odice.core.gradients import LossPair, Rule, RuleGradient, orthogonal, rule, rule_gradient, semi, true
from odice.core.learner import Learned, Learner
from odice.core.networks import MLP, Ensemble, Init, value_network
from odice.core.optim import adam, polyak
from odice.core.policies import (
    CategoricalPolicy,
    Deterministic,
    Draws,
    GaussianPolicy,
    Policy,
    SquashedPolicy,
    TanhPolicy,
    draw,
    policy_network,
)
from odice.core.vdice import residual, value_gradient
from odice.types import COLUMNS, Algo, Batch, Metrics, Spec, Transitions

__all__ = [
    "COLUMNS",
    "MLP",
    "Algo",
    "Batch",
    "CategoricalPolicy",
    "Check",
    "Critic",
    "Critics",
    "Deterministic",
    "Divergence",
    "DivergenceLike",
    "Draws",
    "Ensemble",
    "Extraction",
    "GaussianPolicy",
    "Init",
    "Learned",
    "Learner",
    "LossPair",
    "Metrics",
    "NextState",
    "Policy",
    "Rule",
    "RuleGradient",
    "Spec",
    "SquashedPolicy",
    "TanhPolicy",
    "Transitions",
    "adam",
    "advantage_weight",
    "classification_loss",
    "divergence",
    "draw",
    "effective_sample_size",
    "expectile",
    "from_formulas",
    "grad_norm",
    "huber",
    "interpolate",
    "log_odds",
    "min_over_heads",
    "next_state",
    "orthogonal",
    "policy_network",
    "polyak",
    "positive",
    "require",
    "residual",
    "residual_extraction",
    "residual_weight",
    "rule",
    "rule_gradient",
    "semi",
    "tempered",
    "true",
    "validate",
    "value_gradient",
    "value_network",
    "weighted_cloning",
]
