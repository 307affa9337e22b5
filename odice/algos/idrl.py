"""IDRL: iterative dual RL (Xu et al., ICLR 2025): visitation ratios decide which transitions are worth imitating.

The weights of dual methods are meant to be visitation ratios, and are not: semi-gradient values give the ratio of
actions, and even the right ratio belongs to a regularized optimum, held to the data. Each round k = 1 ... K repairs
both, on the part D_k of the data that is left (D_1 is all of it):

    V, Q      semi-gradient DICE on D_k gives w(a|s), with the slow copy of Q                 (`semi_dice`)
    nu, e     off-policy evaluation of w(a|s) pi_D(a|s) on D_k gives w(s)                     (`core.state_ratio`)
    D_(k+1)   the transitions of D_k with  w(s, a) = w(s) w(a|s) > threshold

so each round is held to the better data of the one before. The policy clones by weight, with the ratio of the round:

    pi        maximizes  E_{D_k}[min(w(s, a), 100) log pi(a|s)]

Half Pearson's w(a|s) is 0 for advantages below -alpha; w(s) is 0, in a network nearly 0, for states that the better
policy does not come to. That is what removes transitions. First states stay those of all episodes.

A round lasts `total_steps` / K updates. At its end a copy of Qbar, V and e is kept, which decides for every transition
of a later batch whether it is in D_k. A batch of D_k is a batch of the data in which kept rows are drawn, with
replacement, in the place of removed ones. Networks go on from one round to the next.

No public code was found; the paper's settings were not verified. Ours: networks and rates of CORSDICE's code, the
threshold in the place of 0, a warm start of the rounds, and cloning in every round instead of the last alone, so that a
run always has a policy.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from odice.algos.health import WEIGHTS
from odice.algos.implicit_q import LENGTH, Values, cloning_policy, implicit_values
from odice.algos.registry import register
from odice.algos.semi_dice import SemiDICEConfig, action_ratio, correction, semi_losses
from odice.algos.validation import require
from odice.core.critics import Critic
from odice.core.divergences import divergence
from odice.core.extraction import effective_sample_size, weighted_cloning
from odice.core.learner import Learned, Learner
from odice.core.networks import Ensemble
from odice.core.policies import Policy
from odice.core.state_ratio import Visits
from odice.types import Algo, Batch, Metrics, Spec


@dataclass(frozen=True)
class IDRLConfig(SemiDICEConfig):
    """IDRL: one or two rounds of pruning."""

    rounds: int = 2
    """K: rounds, each on what the one before has left; 1 removes nothing."""
    total_steps: int | None = None
    """Updates of all rounds; None is the length of the run (1,000,000 outside of one)."""
    threshold: float = 0.05
    """A transition is removed if its ratio w(s, a) is not above this."""
    divergence: Literal["soft-chi2", "half-pearson"] = "half-pearson"
    """f of w(a|s): half Pearson's gives bad actions no weight, the soft chi-square's little."""
    state_divergence: Literal["soft-chi2", "half-pearson"] = "soft-chi2"
    """f of w(s): both have the same solution; the soft chi-square's weights are never stuck at 0."""
    state_lr: float = 3e-4
    """Adam's learning rate for nu."""

    def __post_init__(self):
        super().__post_init__()
        require(0 <= self.threshold < 1, f"threshold must lie in [0, 1), got {self.threshold}.")
        require(1 <= self.rounds <= 10, f"rounds must be 1 to 10, got {self.rounds}.")
        steps = self.total_steps
        require(steps is None or steps >= self.rounds, f"total_steps must be at least {self.rounds}, got {steps}.")

    @property
    def round_steps(self) -> int:
        return max(1, (self.total_steps or LENGTH) // self.rounds)


class RatioNetworks(NamedTuple):
    """The networks of one round that give w(s, a), by which transitions are kept or removed."""

    critic: Critic
    value: Ensemble
    flow: Ensemble


class State(NamedTuple):
    values: Values
    visits: Visits
    policy: Learned[Policy]
    judges: RatioNetworks
    """Those of all rounds but the last, stacked; meaningless where a round is not over."""
    step: Int[Array, ""]


def ratio(cfg: IDRLConfig, networks: RatioNetworks, batch: Batch) -> Float[Array, " b"]:
    """w(s, a) = w(s) w(a|s)."""
    on_states = divergence(cfg.state_divergence).weight(networks.flow(batch.obs)[0])
    return on_states * action_ratio(cfg, networks.critic, networks.value, batch)


def kept(cfg: IDRLConfig, earlier: RatioNetworks, number: Int[Array, ""], batch: Batch) -> Bool[Array, " b"]:
    """Which rows of a batch the rounds before round `number` have kept; rounds count from 0."""
    left = jnp.ones(batch.reward.shape, bool)
    for i in range(cfg.rounds - 1):
        networks = jax.tree.map(lambda leaf, i=i: leaf[i], earlier)
        left &= (ratio(cfg, networks, batch) > cfg.threshold) | (i >= number)
    return left


def resampled(batch: Batch, left: Bool[Array, " b"], key) -> Batch:
    """The batch with removed rows replaced by kept ones; as it is if none is kept. First states stay."""
    size = left.shape[0]
    order = jnp.argsort(~left, stable=True)  # kept rows first
    drawn = order[jax.random.randint(key, (size,), 0, jnp.maximum(jnp.sum(left), 1))]
    rows = jnp.where(left | ~jnp.any(left), jnp.arange(size), drawn)
    first, expert = batch.initial_obs, batch.expert
    chosen = jax.tree.map(lambda leaf: leaf[rows], batch._replace(initial_obs=None, expert=None))
    return chosen._replace(initial_obs=first, expert=expert)


@register(
    "idrl",
    IDRLConfig,
    schedule="total_steps",
    value=lambda state: state.values.value.params,
    health=WEIGHTS,
    when_diverged=("raise", "alpha"),
)
def idrl(cfg: IDRLConfig, spec: Spec) -> Algo:
    """IDRL: semi-gradient DICE, corrected to visitation ratios, in rounds that each remove what has no weight."""
    values, visits = implicit_values(cfg, semi_losses(cfg), spec), correction(cfg, spec, cfg.state_divergence)
    length = cfg.total_steps or LENGTH
    policy_learner = Learner(cfg.policy_lr, cosine_steps=length if cfg.cosine_steps is None else cfg.cosine_steps)

    def init(key) -> State:
        key_value, key_critic, key_policy, key_visits = jax.random.split(key, 4)
        fitted, learned = values.init(key_value, key_critic), visits.init(key_visits)
        networks = RatioNetworks(fitted.target, fitted.value.params, learned.flow.params)
        return State(
            values=fitted,
            visits=learned,
            policy=policy_learner.init(cloning_policy(cfg, key_policy, spec)),
            judges=jax.tree.map(
                lambda leaf: jnp.stack([leaf] * (cfg.rounds - 1)) if cfg.rounds > 1 else leaf, networks
            ),
            step=jnp.zeros((), jnp.int32),
        )

    def update(state: State, batch: Batch, key) -> tuple[State, Metrics]:
        key_rows, key_values, key_visits = jax.random.split(key, 3)
        number = jnp.minimum(state.step // cfg.round_steps, cfg.rounds - 1)
        left = kept(cfg, state.judges, number, batch)
        batch = resampled(batch, left, key_rows)

        fitted, (_, _, metrics, _) = values.update(state.values, batch, key_values)
        on_actions = action_ratio(cfg, fitted.target, fitted.value.params, batch)
        learned, error = visits.step(state.visits, on_actions, batch, key_visits)
        weight = jnp.minimum(visits.ratio(learned, batch.obs) * on_actions, cfg.weight_clamp)
        loss, gradient = jax.value_and_grad(weighted_cloning)(state.policy.params, weight, batch.obs, batch.action)

        networks = RatioNetworks(fitted.target, fitted.value.params, learned.flow.params)
        over = (state.step + 1) % cfg.round_steps == 0
        keep = lambda judges: jax.tree.map(lambda stack, leaf: stack.at[number].set(leaf), judges, networks)
        judges = state.judges
        if cfg.rounds > 1:
            judges = jax.lax.cond(over & (number < cfg.rounds - 1), keep, lambda judges: judges, judges)
        metrics |= {
            "flow_loss": error,
            "policy_loss": loss,
            "round": (number + 1).astype(jnp.float32),
            "kept": jnp.mean(left.astype(jnp.float32)),
            "weight_mean": jnp.mean(weight),
            "weight_ess": effective_sample_size(weight),
            "reward_estimate": jnp.mean(weight * batch.reward),
        }
        policy = policy_learner.step(state.policy, gradient)
        return State(fitted, learned, policy, judges, state.step + 1), metrics

    return Algo(init, update, lambda state: state.policy.params, initial_states=True)
