"""Fitted Q evaluation: the Q function of the policy, learned from the log's transitions.

    minimise over Q   E_D[(Q(s, a, t) - y)^2],     y = r + gamma m Qbar(s', pi(s'), t + 1),   m = 0 at terminal, horizon
    estimate          E[Q(s0, pi(s0), 0)] over the episodes' first states

Qbar is a slow copy of Q. A step at which the log was merely cut goes on (m = 1). Four things beside the textbook:

- Q is fitted first to the returns that followed in the log, which is the Q function of the behavior. What few updates
  leave of the start is then the behavior's value, and the estimate errs towards "no better than the behavior".
- Targets are clipped to what the log's rewards allow in the steps that are left, so extrapolation cannot run away.
- Every head learns on its own resample of the episodes: the heads are bootstrap replicates (`bootstrap`).
- Discounted and undiscounted returns are learned side by side, by one half of the heads each. Without a discount,
  values travel one step per copy of the target: with few updates and long episodes that estimate leans on its start,
  the behavior.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float, Int

from odice.core.critics import Critic
from odice.core.optim import adam, opt_init, polyak, step
from odice.core.sampling import sample_rows, seed_keys, step_keys
from odice.evaluation.ope.log import CHUNK, Log


@dataclass(frozen=True)
class FQEConfig:
    """Small, so that it takes about a minute on one core."""

    heads: int = 5
    """Per discount; each on its own resample of the episodes."""
    hidden: tuple[int, ...] = (64, 64)
    updates: int = 3000
    start_updates: int = 500
    """Of the fit to the behavior's returns, before."""
    batch_size: int = 128
    learning_rate: float = 1e-3
    polyak: float = 0.05


class Data(NamedTuple):
    """The log on the device, as both fits need it; `heads` are all heads, of both discounts."""

    states: Float[Array, "states obs"]
    policy_action: Array
    rows: Int[Array, " n"]
    index: Int[Array, " steps"]  # pyright: ignore[reportIncompatibleMethodOverride]
    action: Array
    reward: Float[Array, " steps"]
    goes_on: Float[Array, " steps"]
    episode: Int[Array, " steps"]
    left: Int[Array, " steps"]
    """Steps left after this one."""
    to_go: Float[Array, "steps heads"]
    counts: Float[Array, "episodes heads"]
    started: Float[Array, "episodes heads"]
    """The counts, 0 for incomplete episodes."""
    discount: Float[Array, " heads"]
    shift: Float[Array, " heads"]
    scale: Float[Array, " heads"]
    low: Float[Array, "horizon_1 heads"]
    """The least value that so many steps can have."""
    high: Float[Array, "horizon_1 heads"]


class FQE(NamedTuple):
    """What was learned. Rows are the discounted and the undiscounted return."""

    replicates: Float[np.ndarray, "2 heads"]
    """The estimate of each head, over its own resample of the first states."""
    q: Float[np.ndarray, "2 steps"]
    """Q(s, a, t) at the logged actions, the mean of the heads."""
    v: Float[np.ndarray, "2 states"]
    """Q(s, pi(s), t) in every state of the log."""
    loss: float
    """Mean squared error of the last updates, in units of the variance of returns."""


def fqe(log: Log, discount: float, counts: np.ndarray, config: FQEConfig | None = None, seed: int = 0) -> FQE:
    """Learn Q with the resamples `counts` (heads, episodes), and read the estimates from it."""
    config = config or FQEConfig()
    data = device_data(log, (discount, 1.0), counts)
    critic, loss = _fit(data, log, config, seed)
    both = lambda x: np.asarray(x, np.float64).reshape(2, len(counts), -1)
    q = both(_values(critic, data, log.states[log.index], log.action))
    v = both(_values(critic, data, log.states, log.policy_action))
    first = v[:, :, log.first + np.arange(log.episodes)]
    replicates = np.sum(first * counts[None], axis=-1) / counts.sum(-1)[None]
    return FQE(replicates, q.mean(1), v.mean(1), float(loss))


def device_data(log: Log, discounts: tuple[float, ...], counts: np.ndarray) -> Data:
    """Heads in the order of the discounts, each discount with all resamples."""
    heads = len(counts)
    spread = lambda columns: np.repeat(np.stack(columns, axis=-1), heads, axis=-1).astype(np.float32)
    to_go = [log.to_go(discount) for discount in discounts]
    whole = log.complete[log.episode]
    most = [np.concatenate([[0.0], np.cumsum(discount ** np.arange(log.horizon))]) for discount in discounts]
    worst, best = float(log.reward.min()), float(log.reward.max())
    if log.terminated.any():  # after the end nothing is earned
        worst, best = min(worst, 0.0), max(best, 0.0)
    tiled = np.tile(counts.T, (1, len(discounts))).astype(np.float32)
    shift = np.array([values[whole].mean() for values in to_go])
    arrays: dict[str, Any] = {
        "states": log.states,
        "policy_action": log.policy_action,
        "rows": np.flatnonzero(log.known_next).astype(np.int32),
        "index": log.index.astype(np.int32),
        "action": log.action,
        "reward": log.reward,
        "goes_on": log.goes_on,
        "episode": log.episode.astype(np.int32),
        "left": (log.horizon - 1 - log.time).astype(np.int32),
        "to_go": spread(to_go),
        "counts": tiled,
        "started": tiled * log.complete[:, None].astype(np.float32),
        "discount": np.repeat(np.asarray(discounts, np.float32), heads),
        "shift": np.repeat(shift, heads).astype(np.float32),
        "scale": np.repeat([max(float(v[whole].std()), 1e-6 + 1e-3 * abs(v).max()) for v in to_go], heads).astype(
            np.float32
        ),
        "low": spread([worst * m for m in most]),
        "high": spread([best * m for m in most]),
    }
    return jax.device_put(Data(**arrays))


def _fit(data: Data, log: Log, config: FQEConfig, seed: int) -> tuple[Critic, Float[Array, ""]]:
    init_key, loop_key = seed_keys(seed)
    return _run(data, Critic(init_key, log.spec, config.hidden, heads=data.discount.shape[0]), loop_key, config)


@partial(jax.jit, static_argnames="config")
def _run(data: Data, critic: Critic, loop_key, config: FQEConfig) -> tuple[Critic, Float[Array, ""]]:
    total = config.start_updates + config.updates
    optimizer = adam(optax.cosine_decay_schedule(config.learning_rate, total, 0.05))

    def update(make_target):
        def one(carry, number):
            critic, target, state = carry
            rows = data.rows[sample_rows(step_keys(loop_key, number)[0], config.batch_size, data.rows.shape[0])]
            value, gradient = jax.value_and_grad(_loss)(critic, data, rows, *make_target(target, data, rows))
            critic, state = step(optimizer, gradient, state, critic)
            return (critic, polyak(critic, target, config.polyak), state), value / critic.size

        return one

    start = critic, critic, opt_init(optimizer, critic)
    (critic, _, state), _ = jax.lax.scan(update(_behavior_target), start, jnp.arange(config.start_updates))
    steps = jnp.arange(config.start_updates, total)
    (critic, _, _), losses = jax.lax.scan(update(_policy_target), (critic, critic, state), steps)
    return critic, jnp.mean(losses[-max(1, config.updates // 10) :])


def _loss(critic: Critic, data: Data, rows, wanted, weight) -> Float[Array, ""]:
    """Summed over the heads, so that each has a gradient of its own."""
    error = critic(data.states[data.index[rows]], data.action[rows]) - jax.lax.stop_gradient(wanted)
    return jnp.mean(weight * jnp.square(error), axis=-1).sum()


def _behavior_target(_, data: Data, rows) -> tuple[Array, Array]:
    wanted = (data.to_go[rows] - data.shift[None]) / data.scale[None]
    return wanted.T, data.started[data.episode[rows]].T


def _policy_target(target: Critic, data: Data, rows) -> tuple[Array, Array]:
    following, left = data.index[rows] + 1, data.left[rows]
    ahead = target(data.states[following], data.policy_action[following]).T * data.scale[None] + data.shift[None]
    ahead = data.discount[None] * jnp.clip(ahead, data.low[left], data.high[left])
    wanted = data.reward[rows][:, None] + data.goes_on[rows][:, None] * ahead
    return ((wanted - data.shift[None]) / data.scale[None]).T, data.counts[data.episode[rows]].T


@jax.jit
def _call(critic: Critic, data: Data, states, actions):
    return critic(states, actions) * data.scale[:, None] + data.shift[:, None]


def _values(critic: Critic, data: Data, states: np.ndarray, actions: np.ndarray) -> Float[np.ndarray, "heads n"]:
    """Q of every head in the units of rewards, in pieces."""
    pieces = [_call(critic, data, states[i : i + CHUNK], actions[i : i + CHUNK]) for i in range(0, len(states), CHUNK)]
    return np.concatenate(pieces, axis=-1)
