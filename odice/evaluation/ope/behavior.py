"""The behavior that made the log: how likely it was to do what it did, and where the policy does something else.

If the log says with which probability each action was chosen (`propensity`), that is used. Otherwise a network is
cloned from the log, cross-fitted: the episodes are cut into five parts, and the probabilities in each part come from a
network that was trained on the four others. The number of updates is the one that predicts the parts left out best; if
nothing predicts them better than the actions' overall frequencies, those are used.

| actions    | weight pi(a|s) / b(a|s)                       | the policy is outside the data where              |
|------------|-----------------------------------------------|---------------------------------------------------|
| discrete   | pi(a|s) / b(a|s)                              | b(pi(s)|s) is below half of uniform, 1 / (2 A)    |
| continuous | N(a; pi(s), sigma_b) / N(a; mu_b(s), sigma_b) | nobody did so in similar states (`support`)       |

A deterministic policy has no density: for continuous actions the weights are those of the policy with the behavior's
own noise.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float

from odice.core.networks import MLP
from odice.core.optim import adam, opt_init, step
from odice.core.sampling import sample_rows, seed_keys, step_keys
from odice.evaluation.ope.episodes import CHUNK, Episodes
from odice.evaluation.ope.padding import pad, padded_size
from odice.evaluation.ope.support import share_outside

LEVELS = (0.5, 0.8, 0.95)
"""Of the central intervals of a Gaussian whose coverage is compared."""
Z = (0.6744898, 1.2815516, 1.9599640)
RARE = 0.5
"""An action is rare if its probability is below this share of uniform."""
LEAST_PROBABILITY = 0.01
"""Estimated probabilities count as at least this: a network's tails are not to be trusted further."""
BINS = 10
LEAST_SPREAD = 1e-3
"""Of actions in [-1, 1]: a behavior without noise has no importance weights."""
CHECKED = 2048
"""Rows of each part that is left out by which the number of updates is chosen."""


@dataclass(frozen=True)
class CloneConfig:
    hidden: tuple[int, ...] = (64, 64)
    updates: int = 100
    """Between two comparisons with the parts left out."""
    rounds: int = 12
    patience: int = 2
    """Rounds in a row without an improvement after which training ends."""
    batch_size: int = 256
    learning_rate: float = 2e-3
    folds: int = 5


class Behavior(NamedTuple):
    """The behavior at every step of the log, and the policy in comparison."""

    log_ratio: Float[np.ndarray, " steps"]
    """log pi(a|s) / b(a|s); minus infinity where a discrete policy never does that."""
    known: bool
    """Whether the log itself gives the probabilities."""
    calibration: float
    """Mean absolute difference between predicted and observed frequency, on episodes that were left out."""
    outside: float
    """Share of the log's states in which the policy does what the behavior hardly ever did."""
    agreement: float
    """Discrete: mean probability of the logged action under the policy. Continuous: root mean square distance to it,
    actions in [-1, 1]."""
    spread: np.ndarray | None = None
    """(act,) of continuous actions, the standard deviation of the behavior around its mean."""


def clone(log: Episodes, config: CloneConfig | None = None, seed: int = 0) -> Behavior:
    """Estimate the behavior, or take its known probabilities, and compare the policy with it."""
    config = config or CloneConfig()
    fold = np.random.default_rng(seed).permutation(log.n_episodes) % min(config.folds, log.n_episodes)
    predicted = _cross_fit(log, fold[log.episode], config, seed)
    return _discrete(predicted, log) if log.spec.discrete else _continuous(predicted, log)


# --- fitting ----------------------------------------------------------------------------------------------------------


class Data(NamedTuple):
    states: Float[Array, "n obs"]
    target: Array
    """Choices, or continuous actions."""
    rows: Any
    """(folds, n) rows to train on, and how many of them count."""
    size: Any


def _cross_fit(log: Episodes, fold: np.ndarray, config: CloneConfig, seed: int) -> np.ndarray:
    """(steps, actions) probabilities or mean actions, of networks that were not trained on the step's episode."""
    folds = int(fold.max()) + 1
    states, discrete = log.states[log.index], log.spec.discrete
    rng = np.random.default_rng(seed)
    train = [np.flatnonzero(fold != k) for k in range(folds)]
    check = [rng.permutation(np.flatnonzero(fold == k))[:CHECKED] for k in range(folds)]
    width = padded_size(log.steps)
    rows = np.stack([np.pad(part, (0, width - len(part))) for part in train]).astype(np.int32)
    arrays = Data(pad(states), pad(log.action), rows, np.array([len(part) for part in train], np.int32))
    data = jax.device_put(arrays)
    init_key, loop_key = seed_keys(seed)
    sizes = (log.spec.obs_dim, *config.hidden, log.spec.action_dim)
    networks = jax.vmap(lambda key: MLP(key, sizes))(jax.random.split(init_key, folds))
    optimizer = adam(config.learning_rate)
    state = jax.vmap(partial(opt_init, optimizer))(networks)
    keys = jax.random.split(loop_key, folds)

    constant = np.stack([_constant(log.action[part], log.spec) for part in train])
    best = _losses(constant[fold], log, check)
    chosen, worse = None, 0
    for number in range(config.rounds):
        networks, state = _advance(networks, state, data, keys, number * config.updates, config, discrete)
        loss = _losses(_predict(networks, states, fold, discrete, check), log, check)
        if loss < best - 1e-4 * abs(best):
            best, chosen, worse = loss, networks, 0
        elif (worse := worse + 1) > config.patience:
            break
    return constant[fold] if chosen is None else _predict(chosen, states, fold, discrete)


@partial(jax.jit, static_argnames=("config", "discrete"))
def _advance(networks, state, data: Data, keys, first, config: CloneConfig, discrete: bool):
    optimizer = adam(config.learning_rate)

    def loss(network, chosen):
        out = network(data.states[chosen])
        if discrete:
            return optax.softmax_cross_entropy_with_integer_labels(out, data.target[chosen]).mean()
        return jnp.mean(jnp.square(out - data.target[chosen]))

    def one_fold(network, state, rows, size, key):
        def one(carry, number):
            network, state = carry
            chosen = rows[sample_rows(step_keys(key, number)[0], config.batch_size, size)]
            return step(optimizer, jax.grad(loss)(network, chosen), state, network), None

        return jax.lax.scan(one, (network, state), first + jnp.arange(config.updates))[0]

    return jax.vmap(one_fold)(networks, state, data.rows, data.size, keys)


@partial(jax.jit, static_argnames="discrete")
def _call(networks, number, states, discrete: bool):
    out = jax.tree.map(lambda leaf: leaf[number], networks)(states)
    return jax.nn.softmax(out, axis=-1) if discrete else out


def _predict(
    networks, states: np.ndarray, fold: np.ndarray, discrete: bool, only: list[np.ndarray] | None = None
) -> np.ndarray:
    """For every step (or only for some, by fold) what the network says that did not see it."""
    rows = [np.flatnonzero(fold == k) for k in range(int(fold.max()) + 1)] if only is None else only
    out: np.ndarray | None = None
    for k, part in enumerate(rows):
        for piece in (part[i : i + CHUNK] for i in range(0, len(part), CHUNK)):
            found = np.asarray(_call(networks, k, pad(states[piece]), discrete), np.float64)[: len(piece)]
            out = np.zeros((len(states), found.shape[1])) if out is None else out
            out[piece] = found
    assert out is not None
    return out


def _constant(action: np.ndarray, spec) -> np.ndarray:
    """How often each action occurs (none never), or the mean action."""
    if spec.discrete:
        count = np.bincount(action, minlength=spec.action_dim) + 0.5
        return count / count.sum()
    return action.mean(axis=0, dtype=np.float64)


def _losses(predicted: np.ndarray, log: Episodes, check: list[np.ndarray]) -> float:
    """The mean loss of predictions over the steps that are compared."""
    rows = np.concatenate(check)
    if log.spec.discrete:
        return float(-np.mean(np.log(np.maximum(predicted[rows, log.action[rows]], 1e-6))))
    return float(np.mean(np.square(predicted[rows] - log.action[rows])))


# --- comparing --------------------------------------------------------------------------------------------------------


def _discrete(p: np.ndarray, log: Episodes) -> Behavior:
    assert log.decisions.prob is not None
    policy = log.decisions.prob[log.index].astype(np.float64)
    steps = np.arange(log.steps)
    own = policy[steps, log.action]
    known = log.propensity is not None
    taken = log.propensity if log.propensity is not None else np.maximum(p[steps, log.action], LEAST_PROBABILITY)
    with np.errstate(divide="ignore"):
        log_ratio = np.log(own) - np.log(taken)
    happened = (np.arange(p.shape[1])[None] == log.action[:, None]).ravel()
    rare = p < RARE / log.spec.action_dim
    outside = float(np.mean(np.sum(policy * rare, axis=1)))
    return Behavior(log_ratio, known, _calibration_error(p.ravel(), happened), outside, float(own.mean()))


def _calibration_error(predicted: np.ndarray, happened: np.ndarray) -> float:
    """Mean over ten bins of equal size of |mean prediction - frequency|."""
    order = np.argsort(predicted)
    parts = [part for part in np.array_split(order, BINS) if part.size]
    return float(np.mean([abs(predicted[part].mean() - happened[part].mean()) for part in parts]))


def _continuous(center: np.ndarray, log: Episodes) -> Behavior:
    spread = np.maximum(np.sqrt(np.mean(np.square(log.action - center), axis=0)), LEAST_SPREAD)
    own = log.decisions.continuous[log.index]
    z, z_own = (log.action - center) / spread, (log.action - own) / spread
    log_ratio = 0.5 * np.sum(z**2 - z_own**2, axis=-1)  # the spreads are the same, so the constants cancel
    covered = [np.mean(np.abs(z) < limit) for limit in Z]
    error = float(np.mean([abs(c - level) for c, level in zip(covered, LEVELS, strict=True)]))
    distance = math.sqrt(float(np.mean((log.action - own) ** 2)))
    return Behavior(log_ratio, False, error, share_outside(log), distance, spread)
