"""Fitted Q evaluation: the Q function of the policy, learned from the log's transitions.

    minimise over Q   E_D[(Q(s, a, t) - y)^2],     y = r + gamma m V(s', t + 1),   m = 0 at terminal and horizon
    V(s, t) = E_pi[Qbar(s, a, t)],                 estimate = E[V(s0, 0)] over the episodes' first states

Qbar is a slow copy of Q. A step at which the log was merely cut goes on (m = 1). Beyond the textbook:

- Q is fitted first to the returns that followed in the log, which is the Q function of the behavior. What few updates
  leave of the start is then the behavior's value, and the estimate errs towards "no better than the behavior".
- V is clipped to what was ever earned from any step of the log, so extrapolation cannot leave the possible range.
- Every head learns on its own resample of the episodes: the heads are bootstrap replicates (`intervals`), and for each
  episode some heads have never seen it (`out_of_sample`).
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
from odice.evaluation.ope.episodes import CHUNK, Episodes
from odice.evaluation.ope.padding import pad


@dataclass(frozen=True)
class FQEConfig:
    """Small, so that it takes seconds on one core."""

    heads: int = 8
    hidden: tuple[int, ...] = (64, 64)
    updates: int = 1500
    start_updates: int = 300
    """Of the fit to the behavior's returns, before."""
    batch_size: int = 128
    learning_rate: float = 1e-3
    polyak: float = 0.05


class Data(NamedTuple):
    """The log on the device. Arrays are padded: only the first `size` of `rows` count."""

    states: Float[Array, "states obs"]
    decision: Array
    """Probabilities of discrete actions, or continuous actions, in each state."""
    rows: Int[Array, " n"]
    size: Int[Array, ""]
    index: Int[Array, " steps"]  # pyright: ignore[reportIncompatibleMethodOverride]
    action: Array
    reward: Float[Array, " steps"]
    goes_on: Float[Array, " steps"]
    episode: Int[Array, " steps"]
    to_go: Float[Array, " steps"]
    counts: Float[Array, "episodes heads"]
    started: Float[Array, "episodes heads"]
    """The counts, 0 for incomplete episodes."""
    discount: Float[Array, ""]
    shift: Float[Array, ""]
    scale: Float[Array, ""]
    low: Float[Array, ""]
    """The least that was ever earned from a step on, and the most."""
    high: Float[Array, ""]


class FQE(NamedTuple):
    """What was learned."""

    replicates: Float[np.ndarray, " heads"]
    """The estimate of each head, over its own resample of the first states."""
    q: Float[np.ndarray, "heads steps"]
    """Q(s, a, t) at the logged actions."""
    v: Float[np.ndarray, "heads states"]
    """V(s, t) in every state of the log."""
    loss: float
    """Mean squared error of the last updates, in units of the variance of returns."""


def fqe(log: Episodes, discount: float, counts: np.ndarray, config: FQEConfig | None = None, seed: int = 0) -> FQE:
    """Learn Q with the resamples `counts` (heads, episodes), and read the estimates from it."""
    config = config or FQEConfig()
    data = device_data(log, discount, counts)
    init_key, loop_key = seed_keys(seed)
    critic, loss = _run(data, Critic(init_key, log.spec, config.hidden, heads=len(counts)), loop_key, config)
    q = _everywhere(_logged, critic, data, log.states[log.index], log.action)
    v = _everywhere(_policy, critic, data, log.states, np.asarray(_decision(log)))
    first = v[:, log.first + np.arange(log.n_episodes)]
    return FQE(np.sum(first * counts, axis=-1) / counts.sum(-1), q, v, float(loss))


def out_of_sample(values: np.ndarray, heads: np.ndarray, episode: np.ndarray) -> np.ndarray:
    """(steps,) the mean of the values (heads, steps) over the heads that did not learn from the step's episode.

    Where every head has seen the episode (with eight heads, one episode in forty) it is the mean over all.
    """
    unseen = (heads[:, episode] == 0).astype(np.float64)
    weight = np.where(unseen.any(axis=0), unseen, 1.0)
    return np.sum(values * weight, axis=0) / weight.sum(axis=0)


def _decision(log: Episodes) -> np.ndarray:
    return log.decisions.continuous if log.decisions.prob is None else log.decisions.prob


def device_data(log: Episodes, discount: float, counts: np.ndarray) -> Data:
    to_go = log.to_go(discount)
    known = to_go[log.complete[log.episode]]
    rows = np.flatnonzero(log.known_next).astype(np.int32)
    tiled = counts.T.astype(np.float32)
    arrays: dict[str, Any] = {
        "states": pad(log.states),
        "decision": pad(_decision(log)),
        "rows": pad(rows),
        "size": np.int32(len(rows)),
        "index": pad(log.index.astype(np.int32)),
        "action": pad(log.action),
        "reward": pad(log.reward),
        "goes_on": pad(log.goes_on),
        "episode": pad(log.episode.astype(np.int32)),
        "to_go": pad(to_go.astype(np.float32)),
        "counts": pad(tiled),
        "started": pad(tiled * log.complete[:, None].astype(np.float32)),
        "discount": np.float32(discount),
        "shift": np.float32(known.mean()),
        "scale": np.float32(max(float(known.std()), 1e-6 + 1e-3 * float(np.abs(known).max()))),
        "low": np.float32(known.min()),
        "high": np.float32(known.max()),
    }
    return jax.device_put(Data(**arrays))


@partial(jax.jit, static_argnames="config")
def _run(data: Data, critic: Critic, loop_key, config: FQEConfig) -> tuple[Critic, Float[Array, ""]]:
    total = config.start_updates + config.updates
    optimizer = adam(optax.cosine_decay_schedule(config.learning_rate, total, 0.05))

    def one(carry, number):
        critic, target, state = carry
        rows = data.rows[sample_rows(step_keys(loop_key, number)[0], config.batch_size, data.size)]
        starting = number < config.start_updates
        wanted, weight = jax.tree.map(
            lambda start, later: jnp.where(starting, start, later),
            _behavior_target(critic, data, rows),
            _policy_target(target, data, rows),
        )
        value, gradient = jax.value_and_grad(_loss)(critic, data, rows, wanted, weight)
        critic, state = step(optimizer, gradient, state, critic)
        # While Q is fitted to the behavior its copy is Q itself.
        target = polyak(critic, target, jnp.where(starting, 1.0, config.polyak))
        return (critic, target, state), value / critic.size

    (critic, _, _), losses = jax.lax.scan(one, (critic, critic, opt_init(optimizer, critic)), jnp.arange(total))
    return critic, jnp.mean(losses[-max(1, config.updates // 10) :])


def _loss(critic: Critic, data: Data, rows, wanted, weight) -> Float[Array, ""]:
    """Summed over the heads, so that each has a gradient of its own."""
    error = critic(data.states[data.index[rows]], data.action[rows]) - jax.lax.stop_gradient(wanted)
    return jnp.mean(weight * jnp.square(error), axis=-1).sum()


def _behavior_target(critic: Critic, data: Data, rows) -> tuple[Array, Array]:
    wanted = (data.to_go[rows] - data.shift) / data.scale
    return jnp.broadcast_to(wanted[None], (critic.size, len(rows))), data.started[data.episode[rows]].T


def _policy_target(target: Critic, data: Data, rows) -> tuple[Array, Array]:
    following = data.index[rows] + 1
    ahead = _value(target, data.states[following], data.decision[following]) * data.scale + data.shift
    ahead = data.discount * jnp.clip(ahead, data.low, data.high)
    wanted = data.reward[rows][None] + data.goes_on[rows][None] * ahead
    return (wanted - data.shift) / data.scale, data.counts[data.episode[rows]].T


def _value(critic: Critic, states, decision) -> Float[Array, "heads n"]:
    """The expectation of Q over what the policy does."""
    if critic.discrete:
        return jnp.sum(critic.every(states) * decision[None], axis=-1)
    return critic(states, decision)


@jax.jit
def _logged(critic: Critic, data: Data, states, actions):
    return critic(states, actions) * data.scale + data.shift


@jax.jit
def _policy(critic: Critic, data: Data, states, decision):
    return jnp.clip(_value(critic, states, decision) * data.scale + data.shift, data.low, data.high)


def _everywhere(function, critic: Critic, data: Data, states: np.ndarray, actions: np.ndarray) -> np.ndarray:
    """(heads, n) in the units of rewards, in pieces."""
    pieces = []
    for i in range(0, len(states), CHUNK):
        part = states[i : i + CHUNK]
        pieces.append(np.asarray(function(critic, data, pad(part), pad(actions[i : i + CHUNK])))[:, : len(part)])
    return np.concatenate(pieces, axis=-1).astype(np.float64)
