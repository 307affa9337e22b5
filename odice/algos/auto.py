"""`auto`: odice's own default for a log that nobody has tuned for. V-DICE with what can be adapted from the log.

The objective and the gradient rule are those of V-DICE (`algos.vdice`):

    V   minimizes  E_D[(1 - lam) V(s) + lam T f*(R / T)],   R = r + gamma m V(s') - V(s)
    pi  maximizes  E_D[w log pi(a|s)],                      w = max(0, A / spread - level) / mean

| part                       | adapted to the log                                                                     |
|----------------------------|----------------------------------------------------------------------------------------|
| temperature T              | V's weights f*'(R / T) rest on a share `value_ess` of the data                          |
| the policy's steps         | are those at which the agents show most skill (`training.skill`): the share of the data |
|                            | that `distance` says. V and the critic learn from all                                   |
| level                      | the policy's weights rest on a half of those steps (`policy_ess`)                       |
| A = e + k C - b(s)         | e is R averaged over next states (`double_sampling`), C the step's credit, measured     |
|                            | before the run (`training.credit`, `credit_weight` k), b(s) what the state alone        |
|                            | explains; e and C each in standard deviations                                           |
| balance                    | every state keeps its weight: (w + kappa) / (n(s) + kappa); kappa (`balance`) is larger |
|                            | where the model that the credit comes from errs more                                    |
| where V starts             | a high return of the log (`value_start`)                                                |
| learning rates, the policy | fall along a cosine over the run (`cosine_steps`); averaged over it (`average`)         |

Only the excess of V's weights over 1 is sent backward while T is adapted (`core.vdice.losses` says why).

Where next states are random, f* of one sample overstates a transition. With `double_sampling` a critic learns
e(s, a), the mean of R over next states (`core.expected`):

    off      -                                                                 what the paper does
    policy   e in place of R in w                                              OptiDICE's remedy; V stays biased
    both     and V minimizes E_D[(1 - lam) V(s) + lam f*'(e) R], f*'(e) fixed  two networks; no bias (`core.vdice`)

Each part is switched off by its setting; with all of them off this is V-DICE. Measured in
docs/explanation/auto.md.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from odice.algos.health import WEIGHTS
from odice.algos.registry import register
from odice.algos.validation import require
from odice.algos.vdice import ODICEConfig, measure, networks
from odice.core.adaptive import Temperature, adapted_temperature, fixed_temperature, threshold_extraction
from odice.core.critics import Critic
from odice.core.divergences import divergence
from odice.core.expected import NextState, next_state
from odice.core.extraction import Extraction, residual_extraction, weighted_cloning
from odice.core.gradients import rule
from odice.core.learner import Learned, Learner
from odice.core.networks import Ensemble, value_network
from odice.core.optim import polyak
from odice.core.policies import Policy
from odice.core.vdice import value_gradient
from odice.types import Algo, Batch, Metrics, Spec

Distance = Literal["near", "medium", "far"]
SHARES: dict[Distance, float] = {"near": 0.5, "medium": 0.2, "far": 0.1}
"""Share of the data that the policy learns from."""
BALANCE = 0.1
"""kappa where the log was not measured."""


@dataclass(frozen=True)
class AutoConfig(ODICEConfig):
    """V-DICE adapted to the log. Defaults are odice's own choice, the same for every log (docs/explanation/auto.md)."""

    lam: float = 0.5
    """lambda: weight of f*(R) against (1 - lambda) V(s). At 1/2 the weights of V have mean 1, so that their effective
    sample is a divergence from the data."""
    gradient: Literal["orthogonal", "semi", "true"] = "semi"
    """What becomes of the gradient through V(s'): projected off the forward one, dropped, or kept."""
    eta: float = 0.5
    """eta: strength of the projected backward gradient, where `gradient` is orthogonal."""
    polyak: float = 0.02
    """tau: share of the online network that enters the target network after each update."""
    value_lr: float = 1e-3
    """Adam's first learning rate for V, and for the baseline and the critic where there are any."""
    policy_lr: float = 3e-3
    """Adam's first learning rate for the policy."""
    policy_weight_decay: float = 1e-3
    """L2 penalty on the policy: the chosen steps are few, and without it their noise is learned by heart."""
    value_ess: float = 0.9
    """Share of the data that V's weights f*'(R) rest on: the temperature of the divergence is adapted to it. Near 1
    values are those of the data's own policy, near 0 those of its best actions. 0 keeps the divergence, and the scale
    of the rewards then counts."""
    distance: Distance = "medium"
    """How far the policy may go from the log: it learns from a half, a fifth or a tenth of the data, the steps at which
    the agents show most skill."""
    chosen_share: float | None = None
    """Share of the data that the policy learns from; None follows from `distance`, 1 is all of it. Needs a
    `credit_weight` and `double_sampling`."""
    policy_ess: float = 0.5
    """Share of those steps that the policy's weights rest on: a threshold is adapted to it, after what the state alone
    explains (a network with V's widths, by least squares) has been taken away. 0 weighs by `policy_weight` instead."""
    balance: float | None = None
    """kappa in (w + kappa) / (n(s) + kappa), where n(s) is the mean of the policy's weight w in a state: every state
    counts as often as it is in the data, and where no action stands out, or kappa is large, all are imitated alike. 0
    is off. None follows from the log (`training.skill`). Needs `policy_ess`."""
    credit_weight: float = 2.0
    """How much a step's credit, what its action brings on average (`training.credit`), counts next to the residual,
    each in its own standard deviations. 0 measures no credit, and learns from all steps. Needs `policy_ess`."""
    double_sampling: Literal["off", "policy", "both"] = "policy"
    """Whose weights come from the mean residual over next states: nobody's, the policy's, or also those of V. Where
    next states are random, `off` prefers risky actions."""
    value_start: float | None = None
    """What V is before the first update, added to the networks' output; None is a high return of the log."""
    cosine_steps: int | None = None
    """The learning rates fall to 0 along a cosine over this many updates; None is the length of the run, 0 keeps
    them."""
    tanh_mean: bool = True
    """Squash the Gaussian's mean into (-1, 1): logged actions often lie at their bounds."""
    average: float = 10.0
    """The policy is the average of its weights over about the last 1/average of the updates so far; 0 is the latest
    weights."""

    def __post_init__(self):
        super().__post_init__()
        for name in ("value_ess", "policy_ess"):
            share = getattr(self, name)
            require(0 <= share < 1, f"{name} must lie between 0 and 1, got {share}: it is a share (0 is off).")
        part = self.chosen_share is None or 0 < self.chosen_share <= 1
        require(part, f"chosen_share must lie above 0 and at most at 1, got {self.chosen_share} (1 is all).")
        require((self.balance or 0) >= 0, f"balance must not be negative, got {self.balance}.")
        require(self.credit_weight >= 0, f"credit_weight must not be negative, got {self.credit_weight}.")
        require(self.average == 0 or self.average >= 1, f"average must be 0 or at least 1, got {self.average}.")


class State(NamedTuple):
    value: Learned[Ensemble]
    target: Ensemble
    policy: Learned[Policy]
    temperature: Float[Array, ""] | None
    extraction: Any
    next_state: Learned[Critic] | None
    step: Int[Array, ""]


class Parts(NamedTuple):
    """What the config chooses."""

    temperature: Temperature
    extraction: Extraction
    next_state: NextState | None


def choose_parts(cfg: AutoConfig, spec: Spec, learner: Learner) -> Parts:
    """The parts that a config switches on; networks of theirs are trained by `learner`."""
    f = divergence(cfg.divergence)
    shape: dict[str, Any] = {"layer_norm": cfg.layer_norm, "init": cfg.init}
    extraction = residual_extraction(cfg.policy_weight, cfg.weight_clamp)
    if cfg.policy_ess:
        make = lambda key: value_network(key, spec, cfg.value_hidden, heads=1, **shape)
        extraction = threshold_extraction(
            cfg.policy_ess,
            cfg.weight_clamp,
            learner=learner,
            make_baseline=make,
            credit_weight=cfg.credit_weight,
            balance=BALANCE if cfg.balance is None else cfg.balance,
        )
    averaged = None
    if cfg.double_sampling != "off":
        heads = 2 if cfg.twin else 1
        averaged = next_state(learner, lambda key: Critic(key, spec, cfg.value_hidden, heads=heads, **shape))
    temperature = adapted_temperature(f, cfg.value_ess) if cfg.value_ess else fixed_temperature(f)
    return Parts(temperature, extraction, averaged)


def derived(cfg: AutoConfig) -> dict[str, tuple[Any, str]]:
    """The share of the data that the policy learns from, from the distance."""
    if cfg.chosen_share is not None:
        return {}
    if cfg.double_sampling == "off" or not cfg.credit_weight:
        return {"chosen_share": (1.0, "double_sampling and credit_weight, which it needs")}
    return {"chosen_share": (SHARES[cfg.distance], f"distance {cfg.distance}")}


@register(
    "auto",
    AutoConfig,
    diagnose="diagnose",
    value=lambda state: state.value.params,
    when_diverged=("lower", "lam"),
    health=WEIGHTS,
    schedule="cosine_steps",
    value_start="value_start",
    columns={"credit": "credit_weight"},
    chosen_share="chosen_share",
    balance="balance",
    derived=derived,
)
def auto(cfg: AutoConfig, spec: Spec) -> Algo:
    """The default: V-DICE that takes its temperature, episodes and weights from the log, without its luck."""
    how = rule(cfg.gradient, cfg.eta)
    value_learner = Learner(cfg.value_lr, cosine_steps=cfg.cosine_steps)
    policy_learner = Learner(cfg.policy_lr, cfg.policy_weight_decay, cfg.cosine_steps, cfg.average)
    parts = choose_parts(cfg, spec, value_learner)

    def init(key) -> State:
        value, policy = networks(cfg, spec, key)
        key_value = jax.random.split(key)[0]
        return State(
            value=value_learner.init(value),
            target=jax.tree.map(jnp.copy, value),  # its own buffers: the loop donates the state
            policy=policy_learner.init(policy),
            temperature=parts.temperature.init(),
            extraction=parts.extraction.init(jax.random.fold_in(key_value, 2)),
            next_state=parts.next_state.init(jax.random.fold_in(key_value, 1)) if parts.next_state else None,
            step=jnp.zeros((), jnp.int32),
        )

    def update(state: State, batch: Batch, key) -> tuple[State, Metrics]:
        del key  # nothing here is random
        f, v = parts.temperature.divergence(state.temperature), state.value.params
        mean_residual = parts.next_state.residual(state.next_state, v, batch) if parts.next_state else None
        expected = mean_residual if cfg.double_sampling == "both" else None
        result, residual_fwd = value_gradient(
            how,
            v,
            state.target,
            batch,
            divergence=f,
            lam=cfg.lam,
            discount=cfg.discount,
            offset=cfg.value_start or 0.0,
            excess=cfg.value_ess > 0,
            expected=expected,
            diagnose=cfg.diagnose,
        )
        value = value_learner.step(state.value, result.gradient)
        averaged = parts.next_state.step(state.next_state, v, batch, residual_fwd) if parts.next_state else None
        temperature = parts.temperature.step(state.temperature, residual_fwd if expected is None else expected)

        learned, by_policy = batch, residual_fwd if mean_residual is None else mean_residual
        if batch.chosen is not None and parts.next_state:
            learned, by_policy = batch.chosen, parts.next_state.residual(state.next_state, v, batch.chosen)
        weight, extraction, measured = parts.extraction.weigh(state.extraction, by_policy, f, learned)
        policy_loss, gradient = jax.value_and_grad(weighted_cloning)(
            state.policy.params, jax.lax.stop_gradient(weight), learned.obs, learned.action
        )
        policy = policy_learner.step(state.policy, gradient)

        metrics = measure(cfg, result, residual_fwd, weight, policy_loss) | measured
        if mean_residual is not None:
            metrics["next_state_noise"] = jnp.sqrt(jnp.mean(jnp.square(mean_residual - residual_fwd)))
        if temperature is not None:
            metrics["temperature"] = jnp.exp(temperature)
        target = polyak(value.params, state.target, cfg.polyak)
        return State(value, target, policy, temperature, extraction, averaged, state.step + 1), metrics

    return Algo(init, update, lambda state: state.policy.final)
