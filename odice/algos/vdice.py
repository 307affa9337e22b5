"""The V-DICE family of the O-DICE paper: one update, three gradient rules.

V-DICE learns a value function from a fixed log, and reads from it how much to imitate each logged action:

    V   minimizes  E_D[(1 - lam) V(s) + lam f*(R)],   R = r + gamma m V(s') - V(s),  m = 1 - terminated
    pi  maximizes  E_D[w(R) log pi(a|s)]

The gradient of f*(R) has a forward part F (through V(s)) and a backward part B (through V(s')).

| name         | gradient of the f* term                  | frozen sides                                   |
|--------------|------------------------------------------|------------------------------------------------|
| `vdice-true` | F + B                                    | none: both values are the online network's     |
| `sdice`      | F                                        | V(s') from the target network                  |
| `odice`      | F + eta (B - <F,B>/<F,F> F)              | F: V(s') from the target, B: V(s) from it      |

One update, in this order: values and targets; residuals; the gradient of V under the rule; Adam on V; target <- Polyak;
the policy's weight from the residual R_f *before the step of V*; Adam on the policy.

Differs from the paper (ODICE, ICLR 2024), each by a named setting:
- the weight is max(0, R_f) without Algorithm 1's "+1" and factor, as the paper's appendix says (`policy_weight`), and
  it is clamped at 100, as the released code does (`weight_clamp`);
- the projection acts once per batch on the mean gradients, as Algorithm 1, not per sample as section 2.3;
- twin values, LayerNorm, a 1024-wide policy and weight decay belong to the `reference` preset; the paper's text has
  none.

What adapts itself to a log, and a remedy for random next states, are in `auto`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from odice.algos.health import WEIGHTS
from odice.algos.registry import register
from odice.algos.validation import require, validate
from odice.core.divergences import DivergenceLike, divergence
from odice.core.extraction import WeightForm, effective_sample_size, residual_weight, weighted_cloning
from odice.core.gradients import Rule, RuleGradient, orthogonal, semi, true
from odice.core.learner import Learned, Learner
from odice.core.networks import Ensemble, Init, value_network
from odice.core.optim import polyak
from odice.core.policies import Policy, policy_network
from odice.core.vdice import Heads, value_gradient
from odice.types import Algo, Batch, Metrics, Spec


@dataclass(frozen=True)
class VDICEConfig:
    """What the three members share. Defaults follow the paper's text."""

    lam: float = 0.6
    """lambda: weight of f*(R) against (1 - lambda) V(s). Larger searches harder for good actions; too large lets V
    diverge."""
    divergence: DivergenceLike = "pearson"
    """f: the divergence between the policy's and the data's visitation: a name (`odice list` shows them) or a
    `Divergence`."""
    discount: float = 0.99
    """gamma: discount of the next state's value."""
    polyak: float = 0.005
    """tau: share of the online network that enters the target network after each update."""
    twin: bool = False
    """Two value heads; targets take their minimum."""
    layer_norm: bool = False
    """LayerNorm in the value network's hidden layers."""
    value_hidden: tuple[int, ...] = (256, 256)
    """Widths of the value network's hidden layers."""
    policy_hidden: tuple[int, ...] = (256, 256)
    """Widths of the policy's hidden layers."""
    value_lr: float = 1e-4
    """Adam's learning rate for V."""
    policy_lr: float = 1e-4
    """Adam's learning rate for the policy."""
    policy_weight_decay: float = 0.0
    """Coupled L2 decay of the policy, joined to the gradient before Adam's moments."""
    policy_weight: WeightForm = "residual"
    """w(R): `ratio` is (f')^-1(R) of Algorithm 1, `excess` drops its "+1", `residual` is max(0, R)."""
    weight_clamp: float = 100.0
    """Largest weight of a transition in the policy's loss."""
    tanh_mean: bool = False
    """Squash the Gaussian's mean into (-1, 1)."""
    init: Init = "torch"
    """Initialization of all networks: torch's uniform, or orthogonal with gain sqrt(2)."""
    batch_size: int = 256
    """Transitions per update."""
    diagnose: bool = False
    """Log the two gradients' norms, cosine, projection and Theorem 2's bound on eta."""

    def __post_init__(self):
        require(
            0 < self.lam < 1,
            f"lam must lie strictly between 0 and 1, got {self.lam}: it trades (1 - lam) V for lam f*.",
        )
        validate(self)
        divergence(self.divergence)


@dataclass(frozen=True)
class ODICEConfig(VDICEConfig):
    """V-DICE with the orthogonal gradient."""

    eta: float = 1.0
    """eta: strength of the projected backward gradient; the paper searches 0.2 ... 1.0."""

    def __post_init__(self):
        super().__post_init__()
        orthogonal(self.eta)


class State(NamedTuple):
    value: Learned[Ensemble]
    target: Ensemble
    policy: Learned[Policy]
    step: Int[Array, ""]


def networks(cfg: VDICEConfig, spec: Spec, key) -> tuple[Ensemble, Policy]:
    """V and the policy, before their first update."""
    key_value, key_policy = jax.random.split(key)
    heads = 2 if cfg.twin else 1
    value = value_network(key_value, spec, cfg.value_hidden, heads=heads, layer_norm=cfg.layer_norm, init=cfg.init)
    return value, policy_network(key_policy, spec, cfg.policy_hidden, tanh_mean=cfg.tanh_mean, init=cfg.init)


def measure(
    cfg: VDICEConfig, result: RuleGradient, residual_fwd: Heads, weight: Float[Array, " b"], policy_loss: Array
) -> Metrics:
    """The metrics of one update."""
    metrics = {
        "value_loss": result.losses["forward"] + result.losses["rest"],
        "value_mean": result.losses["rest"] / (1.0 - cfg.lam),
        "residual_mean": jnp.mean(residual_fwd),
        "residual_max": jnp.max(residual_fwd),
        "policy_loss": policy_loss,
        "weight_mean": jnp.mean(weight),
        "weight_ess": effective_sample_size(weight),
    }
    if cfg.diagnose and result.diagnostics is not None:
        metrics |= result.diagnostics._asdict()
    return metrics


def vdice(cfg: VDICEConfig, rule: Rule, spec: Spec) -> Algo:
    """V-DICE under a gradient rule: Algorithm 1."""
    f = divergence(cfg.divergence)
    value_learner, policy_learner = Learner(cfg.value_lr), Learner(cfg.policy_lr, cfg.policy_weight_decay)

    def init(key) -> State:
        value, policy = networks(cfg, spec, key)
        target = jax.tree.map(jnp.copy, value)  # its own buffers: the loop donates the state
        return State(value_learner.init(value), target, policy_learner.init(policy), jnp.zeros((), jnp.int32))

    def update(state: State, batch: Batch, key) -> tuple[State, Metrics]:
        del key  # nothing here is random
        # V: the forward and the backward gradient of f*(R), joined by the rule, and the linear term's
        dual = {"divergence": f, "lam": cfg.lam, "discount": cfg.discount}
        result, residual_fwd = value_gradient(
            rule, state.value.params, state.target, batch, **dual, diagnose=cfg.diagnose
        )
        value = value_learner.step(state.value, result.gradient)
        target = polyak(value.params, state.target, cfg.polyak)

        # pi: cloning weighted by w(R_f); of twin values, by the mean of the clamped weights
        weight = jnp.mean(residual_weight(residual_fwd, f, cfg.policy_weight, cfg.weight_clamp), axis=0)
        policy_loss, gradient = jax.value_and_grad(weighted_cloning)(
            state.policy.params, jax.lax.stop_gradient(weight), batch.obs, batch.action
        )
        policy = policy_learner.step(state.policy, gradient)
        metrics = measure(cfg, result, residual_fwd, weight, policy_loss)
        return State(value, target, policy, state.step + 1), metrics

    return Algo(init, update, lambda state: state.policy.params)


DECLARED: dict[str, Any] = {
    "imitates": True,
    "diagnose": "diagnose",
    "value": lambda state: state.value.params,
    "when_diverged": ("lower", "lam"),
    "health": WEIGHTS,
}


@register("odice", ODICEConfig, **DECLARED)
def odice(cfg: ODICEConfig, spec: Spec) -> Algo:
    """O-DICE: V-DICE whose backward gradient is projected off the forward one."""
    return vdice(cfg, orthogonal(cfg.eta), spec)


@register("sdice", VDICEConfig, **DECLARED)
def sdice(cfg: VDICEConfig, spec: Spec) -> Algo:
    """S-DICE: V-DICE with the semi-gradient, a constraint on actions only."""
    return vdice(cfg, semi, spec)


@register("vdice-true", VDICEConfig, **DECLARED)
def vdice_true(cfg: VDICEConfig, spec: Spec) -> Algo:
    """True-gradient V-DICE: the full gradient of the objective, without a target network."""
    return vdice(cfg, true, spec)
