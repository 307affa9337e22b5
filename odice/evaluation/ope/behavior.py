"""The behavior, estimated: how likely it was to do what it did, and where the policy leaves it.

A network is cloned from four fifths of the episodes (softmax over a finite set of actions, else a Gaussian whose one
spread for all states is that of what the mean leaves over) and its calibration is measured on the others: of what it
gives a probability of 30 %, about 30 % should happen. Importance weights are no better than this.

| actions    | weight pi(a|s) / b(a|s)                       | the policy leaves the data where             |
|------------|-----------------------------------------------|----------------------------------------------|
| discrete   | 1{a = pi(s)} / b(a|s)                         | b(pi(s)|s) < 5 %                             |
| continuous | N(a; pi(s), sigma_b) / N(a; mu_b(s), sigma_b) | no such action in similar states: `support`  |

A deterministic policy has no density: for continuous actions the weights are those of the policy with the behavior's
own noise.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float

from odice.core.optim import adam, opt_init, step
from odice.core.policies import CategoricalPolicy, GaussianPolicy
from odice.core.sampling import sample_rows, seed_keys, step_keys
from odice.evaluation.ope.log import CHUNK, Log
from odice.evaluation.ope.support import share_outside

LEVELS = (0.5, 0.8, 0.95)
"""Of the central intervals of a Gaussian whose coverage is compared."""
Z = (0.6744898, 1.2815516, 1.9599640)
RARE = 0.05
BINS = 10
LEAST_SPREAD = 1e-3
"""Of actions in [-1, 1]: a behavior without noise has no importance weights."""


@dataclass(frozen=True)
class CloneConfig:
    hidden: tuple[int, ...] = (64, 64)
    updates: int = 2000
    batch_size: int = 256
    learning_rate: float = 1e-3
    held_out: int = 5
    """Every so many-th episode is kept for the calibration."""


class Behavior(NamedTuple):
    """The clone, read off at every step of the log."""

    log_ratio: Float[np.ndarray, " steps"]
    """log pi(a|s) / b(a|s); minus infinity where a discrete policy does something else."""
    calibration: float
    """Mean absolute difference between predicted and found frequency, on episodes that were held out."""
    outside: float
    """Share of the log's states in which the policy does what the behavior hardly ever did (continuous: `support`)."""
    agreement: float
    """Discrete: share of steps with the logged action. Continuous: root mean square distance to it, actions in [-1,
    1]."""
    spread: np.ndarray | None = None
    """(act,) of continuous actions, the standard deviation of the behavior around its mean."""


def clone(log: Log, config: CloneConfig | None = None, seed: int = 0) -> Behavior:
    """Estimate the behavior and compare the policy with it."""
    config = config or CloneConfig()
    init_key, loop_key = seed_keys(seed)
    kind = CategoricalPolicy if log.spec.discrete else GaussianPolicy
    held_out = log.episode % config.held_out == config.held_out - 1
    if not held_out.any():  # too few episodes: the calibration is then that of the training data
        held_out = np.ones(log.steps, bool)
        rows = np.arange(log.steps)
    else:
        rows = np.flatnonzero(~held_out)
    arrays = (log.states, log.index.astype(np.int32), log.action, rows.astype(np.int32))
    network = _fit(kind(init_key, log.spec, config.hidden), jax.device_put(arrays), loop_key, config)
    return (_discrete if log.spec.discrete else _continuous)(network, log, held_out)


@partial(jax.jit, static_argnames="config")
def _fit(network, arrays, loop_key, config: CloneConfig):
    states, index, action, rows = arrays
    optimizer = adam(optax.cosine_decay_schedule(config.learning_rate, config.updates, 0.05))

    def loss(network, chosen):
        return -jnp.mean(network.log_prob(states[index[chosen]], action[chosen]))

    def one(carry, number):
        network, state = carry
        chosen = rows[sample_rows(step_keys(loop_key, number)[0], config.batch_size, rows.shape[0])]
        return step(optimizer, jax.grad(loss)(network, chosen), state, network), None

    (network, _), _ = jax.lax.scan(one, (network, opt_init(optimizer, network)), jnp.arange(config.updates))
    return network


def _everywhere(function, network, states: np.ndarray) -> np.ndarray:
    pieces = [function(network, states[i : i + CHUNK]) for i in range(0, len(states), CHUNK)]
    return np.concatenate(pieces).astype(np.float64)


@jax.jit
def _probabilities(network: CategoricalPolicy, states) -> Float[Array, "n actions"]:
    return jax.nn.softmax(network.logits(states), axis=-1)


@jax.jit
def _location(network: GaussianPolicy, states) -> Float[Array, "n act"]:
    return network.location(states)


def _discrete(network: CategoricalPolicy, log: Log, held_out: np.ndarray) -> Behavior:
    p = _everywhere(_probabilities, network, log.states[log.index])
    chosen = log.policy_action[log.index]
    steps = np.arange(log.steps)
    same = log.action == chosen
    log_ratio = np.where(same, -np.log(np.maximum(p[steps, log.action], 1e-8)), -np.inf)
    happened = (np.arange(p.shape[1])[None] == log.action[:, None])[held_out].ravel()
    outside = float(np.mean(p[steps, chosen] < RARE))
    return Behavior(log_ratio, _calibration_error(p[held_out].ravel(), happened), outside, float(same.mean()))


def _calibration_error(predicted: np.ndarray, happened: np.ndarray) -> float:
    """Mean over ten bins of equal size of |mean prediction - frequency|."""
    order = np.argsort(predicted)
    parts = [part for part in np.array_split(order, BINS) if part.size]
    return float(np.mean([abs(predicted[part].mean() - happened[part].mean()) for part in parts]))


def _continuous(network: GaussianPolicy, log: Log, held_out: np.ndarray) -> Behavior:
    center = _everywhere(_location, network, log.states[log.index])
    # The likeliest spread for this mean, in closed form: a learned one needs many updates to become small.
    trained = held_out if held_out.all() else ~held_out
    spread = np.maximum(np.sqrt(np.mean(np.square(log.action - center)[trained], axis=0)), LEAST_SPREAD)
    own = log.policy_action[log.index]
    z, z_own = (log.action - center) / spread, (log.action - own) / spread
    log_ratio = 0.5 * np.sum(z**2 - z_own**2, axis=-1)  # the spreads are the same, so the constants cancel
    covered = [np.mean(np.abs(z[held_out]) < limit) for limit in Z]
    error = float(np.mean([abs(c - level) for c, level in zip(covered, LEVELS, strict=True)]))
    distance = math.sqrt(float(np.mean((log.action - own) ** 2)))
    return Behavior(log_ratio, error, share_outside(log), distance, spread)
