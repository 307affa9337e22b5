"""The V-DICE family: one update, three gradient rules.

V-DICE learns a value function from a fixed log, and reads from it how much to imitate each logged action:

    V   minimises  E_D[(1 - lam) V(s) + lam f*(R)],   R = r + gamma m V(s') - V(s),  m = 1 - terminated
    pi  maximises  E_D[w(R) log pi(a|s)]

With `value_sample` and `policy_sample` the divergence's temperature and the policy's choice are adapted
(`core.adaptive`), and the return that followed in the log may count beside the residual (`policy_outcome`): what holds
in a run without a preset (docs/defaults.md).

The gradient of f*(R) has a forward part F (through V(s)) and a backward part B (through V(s')).

| name         | gradient of the f* term                  | frozen sides                                   |
|--------------|------------------------------------------|------------------------------------------------|
| `vdice-true` | F + B                                    | none: both values are the online network's     |
| `sdice`      | F                                        | V(s') from the target network                  |
| `odice`      | F + eta (B - <F,B>/<F,F> F)              | F: V(s') from the target, B: V(s) from it      |

Where next states are random, f* of one sample overstates a transition (the paper's limitation: double sampling). With
`double_sampling` a critic learns Q(s, a), the mean of r + gamma m V(s') over next states, by least squares, and e(s, a)
= Q(s, a) - V(s) is the mean of R_f:

    off      -                                                                   what the paper does
    policy   w(e) in place of w(R_f)                                             OptiDICE's remedy; V stays biased
    both     and V minimises E_D[(1 - lam) V(s) + lam f*'(e) R], f*'(e) fixed    two networks; no bias (`core.vdice`)

One update, in this order: values and targets; residuals; the gradient of V under the rule; Adam on V; target <- Polyak;
the policy's weight from the residual R_f *of before the V step*; Adam on the policy.

Differs from the paper (ODICE, ICLR 2024), each by a named setting:
- the weight is max(0, R_f) without Algorithm 1's "+1" and factor, as the paper's appendix says (`policy_weight`), and
  it is clamped at 100, as the released code does (`weight_clamp`);
- the projection acts once per batch on the mean gradients, as Algorithm 1, not per sample as section 2.3;
- twin values, LayerNorm, a 1024-wide policy and weight decay belong to the `reference` preset; the paper's text has
  none.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Int

from odice.algos.health import WEIGHTS
from odice.algos.registry import register
from odice.algos.validation import require, validate
from odice.core import adaptive, vdice
from odice.core.critics import Critic
from odice.core.divergences import Divergence, DivergenceLike, divergence, tempered
from odice.core.extraction import WeightForm, effective_sample_size, residual_weight, weighted_cloning
from odice.core.gradients import Rule, orthogonal, rule_gradient, semi, true
from odice.core.networks import Ensemble, Init, value_network
from odice.core.optim import adam, opt_init, polyak, step
from odice.core.policies import Policy, policy_network
from odice.core.sweep import Point
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
    """Initialisation of all networks: torch's uniform, or orthogonal with gain sqrt(2)."""
    batch_size: int = 256
    """Transitions per update."""
    value_sample: float = 0.0
    """Share of the data that V's weights f*'(R) rest on: the temperature of the divergence is adapted to it. Near 1
    values are those of the data's own policy, near 0 those of its best actions. Only the excess of a weight over 1 is
    then sent backward. 0 keeps the divergence, and the rewards' scale counts."""
    policy_sample: float = 0.0
    """Share of the data that the policy's weights rest on: a threshold of the residuals is adapted to it, and takes the
    place of `policy_weight`. 0 keeps `policy_weight`."""
    policy_baseline: bool = False
    """Take from the residual what the state alone explains of it (a network with V's widths and rate, by least squares)
    before the policy chooses: what is left belongs to the action. Counts with `policy_sample` only."""
    policy_outcome: float = 0.0
    """How much the return that followed in the log counts beside the residual, each in its own standard deviations,
    when the policy chooses. The residual tells one action from another and joins parts of episodes; the return tells
    one agent from another where a log has several. Counts with `policy_sample` only."""
    double_sampling: Literal["off", "policy", "both"] = "off"
    """Whose weights a critic makes, which averages R over next states: nobody's, the policy's, or also those of V.
    Where next states are random, `off` prefers risky actions. The critic has V's widths and learning rate."""
    value_start: float | None = 0.0
    """What V is before the first update, beside the networks' own output; None is a high return of the log."""
    cosine_steps: int | None = 0
    """The learning rates fall to 0 along a cosine over this many updates; None is the length of the run, 0 keeps
    them."""
    average: float = 0.0
    """The policy is the average of its weights over about the last 1/average of the updates so far; 0 is the latest
    weights."""
    diagnose: bool = False
    """Log the two gradients' norms, cosine, projection and Theorem 2's bound on eta."""

    def __post_init__(self):
        require(
            0 < self.lam < 1,
            f"lam must lie strictly between 0 and 1, got {self.lam}: it trades (1 - lam) V for lam f*.",
        )
        for name in ("value_sample", "policy_sample"):
            share = getattr(self, name)
            require(0 <= share < 1, f"{name} must lie between 0 and 1, got {share}: it is a share (0 is off).")
        require(self.policy_outcome >= 0, f"policy_outcome must not be negative, got {self.policy_outcome}.")
        require(self.average == 0 or self.average >= 1, f"average must be 0 or at least 1, got {self.average}.")
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
    value: Ensemble
    target: Ensemble
    policy: Policy
    value_opt: optax.OptState
    policy_opt: optax.OptState
    step: Int[Array, ""]
    log_temperature: Float[Array, ""] | None = None
    choice: adaptive.Choice | None = None
    average: Policy | None = None
    critic: Critic | None = None
    critic_opt: optax.OptState | None = None
    baseline: Ensemble | None = None
    baseline_opt: optax.OptState | None = None


def _rate(cfg: VDICEConfig, first: float) -> float | optax.Schedule:
    return optax.cosine_decay_schedule(first, cfg.cosine_steps) if cfg.cosine_steps else first


def _vdice(cfg: VDICEConfig, rule: Rule, spec: Spec) -> Algo:
    f = divergence(cfg.divergence)
    value_optimizer = adam(_rate(cfg, cfg.value_lr))
    policy_optimizer = adam(_rate(cfg, cfg.policy_lr), cfg.policy_weight_decay)

    def init(key) -> State:
        key_value, key_policy = jax.random.split(key)
        value = value_network(
            key_value, spec, cfg.value_hidden, heads=2 if cfg.twin else 1, layer_norm=cfg.layer_norm, init=cfg.init
        )
        policy = policy_network(key_policy, spec, cfg.policy_hidden, tanh_mean=cfg.tanh_mean, init=cfg.init)
        critic = None
        if cfg.double_sampling != "off":
            shape = {"heads": 2 if cfg.twin else 1, "layer_norm": cfg.layer_norm, "init": cfg.init}
            critic = Critic(jax.random.fold_in(key_value, 1), spec, cfg.value_hidden, **shape)
        baseline = None
        if cfg.policy_baseline and cfg.policy_sample:
            shape = {"layer_norm": cfg.layer_norm, "init": cfg.init}
            baseline = value_network(jax.random.fold_in(key_value, 2), spec, cfg.value_hidden, heads=1, **shape)
        return State(
            value=value,
            target=jax.tree.map(jnp.copy, value),  # its own buffers: the loop donates the state
            policy=policy,
            value_opt=value_optimizer.init(value),  # pyright: ignore[reportArgumentType]
            policy_opt=policy_optimizer.init(policy),  # pyright: ignore[reportArgumentType]
            step=jnp.zeros((), jnp.int32),
            log_temperature=adaptive.first_temperature() if cfg.value_sample else None,
            choice=adaptive.first_choice() if cfg.policy_sample else None,
            average=jax.tree.map(jnp.copy, policy) if cfg.average else None,
            critic=critic,
            critic_opt=None if critic is None else opt_init(value_optimizer, critic),
            baseline=baseline,
            baseline_opt=None if baseline is None else opt_init(value_optimizer, baseline),
        )

    def value_gradient(state: State, batch: Batch, f: Divergence, expected):
        """The rule's gradient of V, and the residual R_f."""
        here, there = (Point(obs, cfg.value_start or 0.0) for obs in (batch.obs, batch.next_obs))
        target = (here(state.target), there(state.target)) if rule.use_target else None
        residuals = {}

        def losses(v, v_next):
            frozen = vdice.freeze(rule, v, v_next, *(target or (v, v_next)))
            residuals["forward"] = vdice.residual(v, frozen.v_next_bar, batch.reward, batch.mask, cfg.discount)
            return vdice.losses(
                frozen,
                batch.reward,
                batch.mask,
                divergence=f,
                lam=cfg.lam,
                discount=cfg.discount,
                excess=cfg.value_sample > 0,
                expected=expected,
            )

        result = rule_gradient(rule, state.value, here, there, losses, diagnose=cfg.diagnose)
        return result, residuals["forward"]

    def mean_residual(state: State, batch: Batch):
        """e(s, a) = Q(s, a) - V(s), where there is a critic."""
        if state.critic is None:
            return None
        return state.critic(batch.obs, batch.action) - state.value(batch.obs)  # where both start cancels

    def learn_critic(state: State, batch: Batch, residual_fwd):
        """One step of Q towards r + gamma m V(s'), which is R_f + V(s)."""
        if state.critic is None or state.critic_opt is None:
            return None, None
        backup = jax.lax.stop_gradient(residual_fwd + state.value(batch.obs))
        error = lambda critic: jnp.mean(jnp.square(critic(batch.obs, batch.action) - backup))
        return step(value_optimizer, jax.grad(error)(state.critic), state.critic_opt, state.critic)

    def with_outcome(residual, batch: Batch):
        """The residual and what followed in the log, each in its own standard deviations."""
        if not cfg.policy_outcome or not cfg.policy_sample:
            return residual
        if batch.outcome is None:
            raise ValueError("policy_outcome asks for Batch.outcome; `odice.train` brings it, or leave it 0")
        return residual / jnp.maximum(jnp.std(residual), adaptive.TINY) + cfg.policy_outcome * batch.outcome[None]

    def learn_baseline(state: State, batch: Batch, residual):
        """The residual without what the state explains of it, before one step of the baseline towards it."""
        if state.baseline is None or state.baseline_opt is None:
            return residual, None, None
        target = jnp.mean(jax.lax.stop_gradient(residual), axis=0, keepdims=True)
        explained, pull = jax.vjp(lambda baseline: baseline(batch.obs), state.baseline)
        (gradient,) = pull(2.0 * (explained - target) / target.size)
        return residual - explained, *step(value_optimizer, gradient, state.baseline_opt, state.baseline)

    def imitation_weight(state: State, by_value, residual_fwd, weigh: Divergence):
        """How much each transition is imitated, from R_f or e; and the choice and temperature of the next update.

        `by_value` is what the weights of V rest on."""
        choice, log_temperature = state.choice, state.log_temperature
        if log_temperature is not None:
            used = jnp.mean(weigh.weight(by_value), axis=0)
            log_temperature = adaptive.next_temperature(log_temperature, used, cfg.value_sample)
        if choice is None:
            # One weight per sample: the mean over the heads of the clamped weights.
            weight = jnp.mean(residual_weight(residual_fwd, weigh, cfg.policy_weight, cfg.weight_clamp), axis=0)
            return weight, choice, log_temperature
        residual = jnp.mean(residual_fwd, axis=0)
        weight = adaptive.choice_weight(residual, choice, cfg.weight_clamp)
        return weight, adaptive.next_choice(choice, residual, weight, cfg.policy_sample), log_temperature

    def update(state: State, batch: Batch, key) -> tuple[State, Metrics]:
        del key  # nothing here is random
        weigh = f if state.log_temperature is None else tempered(f, jnp.exp(state.log_temperature))
        expected = mean_residual(state, batch)
        in_value = expected if cfg.double_sampling == "both" else None
        result, residual_fwd = value_gradient(state, batch, weigh, in_value)
        value, value_opt = step(value_optimizer, result.gradient, state.value_opt, state.value)
        critic, critic_opt = learn_critic(state, batch, residual_fwd)

        by_value = residual_fwd if in_value is None else in_value
        by_policy = residual_fwd if expected is None else expected
        by_policy, baseline, baseline_opt = learn_baseline(state, batch, with_outcome(by_policy, batch))
        weight, choice, log_temperature = imitation_weight(state, by_value, by_policy, weigh)
        policy_loss, policy_gradient = jax.value_and_grad(weighted_cloning)(
            state.policy, jax.lax.stop_gradient(weight), batch.obs, batch.action
        )
        policy, policy_opt = step(policy_optimizer, policy_gradient, state.policy_opt, state.policy)

        metrics = {
            "value_loss": result.losses["forward"] + result.losses["rest"],
            "value_mean": result.losses["rest"] / (1.0 - cfg.lam),
            "residual_mean": jnp.mean(residual_fwd),
            "residual_max": jnp.max(residual_fwd),
            "policy_loss": policy_loss,
            "weight_mean": jnp.mean(weight),
            "weight_ess": effective_sample_size(weight),
        }
        if expected is not None:
            metrics["next_state_noise"] = jnp.sqrt(jnp.mean(jnp.square(expected - residual_fwd)))
        if log_temperature is not None:
            metrics["temperature"] = jnp.exp(log_temperature)
        if choice is not None:
            metrics["threshold"] = choice.threshold
        if cfg.diagnose and result.diagnostics is not None:
            metrics |= result.diagnostics._asdict()
        average = state.average
        if average is not None:
            average = adaptive.running_mean(average, policy, state.step, cfg.average)
        target = polyak(value, state.target, cfg.polyak)
        new = (value, target, policy, value_opt, policy_opt, state.step + 1, log_temperature, choice, average)
        return State(*new, critic, critic_opt, baseline, baseline_opt), metrics

    return Algo(init, update, lambda state: state.policy if state.average is None else state.average)


DECLARED: dict[str, Any] = {
    "imitates": True,
    "diagnose": "diagnose",
    "value": lambda state: state.value,
    "when_diverged": ("lower", "lam"),
    "health": WEIGHTS,
    "schedule": "cosine_steps",
    "value_start": "value_start",
    "outcome": "policy_outcome",
}


@register("odice", ODICEConfig, **DECLARED)
def odice(cfg: ODICEConfig, spec: Spec) -> Algo:
    """O-DICE: V-DICE whose backward gradient is projected off the forward one."""
    return _vdice(cfg, orthogonal(cfg.eta), spec)


@register("sdice", VDICEConfig, **DECLARED)
def sdice(cfg: VDICEConfig, spec: Spec) -> Algo:
    """S-DICE: V-DICE with the semi-gradient, a constraint on actions only."""
    return _vdice(cfg, semi, spec)


@register("vdice-true", VDICEConfig, **DECLARED)
def vdice_true(cfg: VDICEConfig, spec: Spec) -> Algo:
    """True-gradient V-DICE: the whole gradient of the objective, without a target network."""
    return _vdice(cfg, true, spec)
