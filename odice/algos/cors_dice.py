"""CORSDICE: semi-gradient DICE with corrected estimates of return and cost (arXiv 2506.08644), and a limit on the cost.

Semi-gradient DICE learns, with x = (Q - V) / alpha and w(x) = max(0, (f')^-1(x)),

    V    minimizes  E_D[V(s) + alpha f*(x)],                            Q here is min_i Qbar_i(s, a)
    pi   maximizes  E_D[min(w(x), 100) log pi(a|s)]
    Q_i  minimizes  E_D[(r - lam c + gamma m V(s') - Q_i(s, a))^2],     m = 1 - terminated

At its solution E_{a ~ D}[w | s] = 1: w(a|s) is a ratio of policies, not of visits. E_D[w(a|s) r] is then what the
policy earns at the *data's* states, which is not its return. The ratio of visits to states is learned from it
(`core.state_ratio`), and the product is the ratio of visits to pairs:

    w(s, a) = w(s) w(a|s),     return = E_D[w(s, a) r] / (1 - gamma),     cost per step  C = E_D[w(s, a) c]
    lam  minimizes  lam (limit - C),    lam >= 0: the price of a unit of cost rises while C is above the limit

Without `cost_limit` no cost is read and lam = 0. Estimates are of the policy w(a|s) pi_D(a|s), acted with its noise;
the metrics have the uncorrected ones too.

One update, in this order: V; Q; its target; the policy; then, with the new V and target, the two networks of w(s); then
lam.

Differs from the official code (ku-dmlab/CORSDICE, 20cfa50):
- it clones with max(0, 1 + x), whatever f is (`policy_weight` linear), so with the soft chi-square its estimates are of
  another policy than the one it learns;
- it compares C, an average per step, with B (1 - gamma^T) / ((1 - gamma) T) for a budget of B per episode of T steps,
  which is a discounted *sum*: 1 / (1 - gamma) times as much. Here both are averages per step, as for `copti-dice`;
- its w(a|s) takes the latest Q, while V is fitted to the slow copy Qbar: while lam moves, the mean of w(a|s) is then
  not 1, and the estimates lose mass. Here w(a|s) takes Qbar;
- gamma nu(s') is masked where episodes terminate; its slopes are penalised between first states and those of the batch
  (there: the next ones), each row with its own mixing weight;
- two terms of its loss of nu cancel, w(s) e(s) - f(w(s)) has no gradient at w = (f')^-1(e), and are left out.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from odice.algos import implicit_q
from odice.algos.implicit_q import DECLARED, implicit
from odice.algos.registry import register
from odice.algos.semi_dice import SemiDICEConfig, action_ratio, correction, semi_losses
from odice.algos.validation import require
from odice.core.extraction import effective_sample_size
from odice.core.learner import Learned, Learner
from odice.core.state_ratio import Visits
from odice.types import Algo, Batch, Metrics, Spec


@dataclass(frozen=True)
class CORSDICEConfig(SemiDICEConfig):
    """CORSDICE. Defaults follow the official code's commands."""

    cost_limit: float | None = None
    """What the policy may cost per step, in the units of the cost column; None reads no cost."""
    policy_weight: Literal["ratio", "linear"] = "ratio"
    """What clones: w(a|s), or max(0, 1 + x) as the official code does for every f."""
    cost_lr: float = 3e-4
    """Adam's learning rate for the price of the cost."""

    def __post_init__(self):
        super().__post_init__()
        require(
            self.cost_limit is None or 0 < self.cost_limit < math.inf,
            f"cost_limit must be a positive number, or left out for no limit; got {self.cost_limit}.",
        )


class State(NamedTuple):
    base: implicit_q.State
    """V, Q, its target and the policy."""
    visits: Visits
    log_price: Learned[Float[Array, ""]]


def price(log_price: Float[Array, ""]) -> Float[Array, ""]:
    """lam."""
    return jnp.clip(jnp.exp(log_price), 0.0, 1e3)


@register(
    "cors-dice",
    CORSDICEConfig,
    **DECLARED | {"value": lambda state: state.base.value.params},
    columns={"cost": "cost_limit"},
    when_diverged=("raise", "alpha"),
)
def cors_dice(cfg: CORSDICEConfig, spec: Spec) -> Algo:
    """CORSDICE: semi-gradient DICE with corrected estimates of return and cost, and a limit on the cost."""
    base = implicit(cfg, semi_losses(cfg, linear=cfg.policy_weight == "linear"), spec)
    visits, price_learner = correction(cfg, spec), Learner(cfg.cost_lr)

    def init(key) -> State:
        key_base, key_visits = jax.random.split(key)
        return State(base.init(key_base), visits.init(key_visits), price_learner.init(jnp.zeros(())))

    def update(state: State, batch: Batch, key) -> tuple[State, Metrics]:
        key_base, key_visits = jax.random.split(key)
        lam, cost = price(state.log_price.params), jnp.zeros_like(batch.reward)
        priced = batch
        if cfg.cost_limit is not None:
            cost = batch.column("cost")
            priced = batch._replace(reward=batch.reward - lam * cost)
        inner, metrics = base.update(state.base, priced, key_base)

        on_actions = action_ratio(cfg, inner.target, inner.value.params, batch)
        learned, error = visits.step(state.visits, on_actions, batch, key_visits)
        on_states = visits.ratio(learned, batch.obs)
        weight = on_states * on_actions
        metrics |= {
            "flow_loss": error,
            "state_weight_mean": jnp.mean(on_states),
            "ratio_mean": jnp.mean(weight),
            "ratio_ess": effective_sample_size(weight),
            "reward_estimate": jnp.mean(weight * batch.reward),
            "reward_uncorrected": jnp.mean(on_actions * batch.reward),
        }

        log_price, limit = state.log_price, cfg.cost_limit
        if limit is not None:
            estimate = jnp.mean(weight * cost)
            rise = lambda log_lam: price(log_lam) * (limit - estimate)
            log_price = price_learner.step(log_price, jax.grad(rise)(log_price.params))
            metrics |= {
                "cost_estimate": estimate,
                "cost_uncorrected": jnp.mean(on_actions * cost),
                "cost_of_data": jnp.mean(cost),
                "price": lam,
            }
        return State(inner, learned, log_price), metrics

    return Algo(init, update, lambda state: state.base.policy.params, initial_states=True)
