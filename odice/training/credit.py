"""Credit: what each step of a log did for the return, without luck.

The return of a step holds the worth of its action, the skill of whoever went on from there, and luck. Choosing steps by
it is choosing lottery tickets where the world is random. With values V of the log's own behavior,

    delta = r + gamma m V(s') - V(s)          what one step brought
    A     = E[delta | s, a]                   its credit: the part that state and action decide
    luck  = delta - A                         the rest

The skill of those who went on is a matter of many steps (`training.skill`).

Every prediction is made for episodes that the predicting network has not seen (two halves of the log, each predicted
from the other): a network that has seen a lucky draw would remember it and call it skill. E[delta | s, a] is learned as
r^ + gamma m^ V(s^') - V(s) with predicted reward, ending and next state, plus a correction learned by least squares:
the first is good where the world is smooth and certain (a robot), the second makes it right where it is not. Networks
stop at the snapshot that is best on the other half, and an output that is not predicted better than by its mean is its
mean.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from odice.core.networks import MLP, each_head, head
from odice.data.dataset import Dataset
from odice.data.to_go import continued_returns, standardized_returns
from odice.data.transitions import Convention, rows_of
from odice.training.skill import Skill, skill_of

WIDTH = 64
"""Of both hidden layers."""
UPDATES = 1600
FEW = 10_000
"""Where there are more rows, networks of twice the width are trained too, and those that explain more are kept."""
MANY, MOST = 50_000, 4
"""Wide networks get more updates where there are more than `MANY` rows, in proportion, up to `MOST` times as many."""
BATCH = 256
RATE = 1e-3
SNAPSHOTS = 8
ROWS = 200_000
"""Networks learn from at most this many rows."""
VALIDATION = 4096
"""Rows by which a snapshot is chosen, at most."""
BLOCK = 1 << 16
"""Steps whose credit is computed at a time."""
TINY = 1e-9
QUICK = {"xla_backend_optimization_level": 0 if jax.config.read("jax_disable_most_optimizations") else 1}
"""Options of XLA for programs that run for a second: at its usual level they take longer to compile and run no faster.
The numbers are the same."""
NEGLIGIBLE = 1e-5
"""Advantages that differ by less than this share of the returns' standard deviation are all the same."""


class Credit(NamedTuple):
    """What each step of a log is owed."""

    advantage: np.ndarray
    """A of each step, (steps,) float32, with mean 0 and standard deviation 1."""
    skill: Skill
    """What the agents did for their returns."""


def credit(dataset: Dataset, discount: float, convention: Convention = "bootstrap", *, seed: int = 0) -> Credit:
    """The credit of every step of a data set, as the algorithm sees it.

    Args:
        dataset: The log.
        discount: gamma.
        convention: Which steps are transitions. The others have a credit too, but no network learns from them.
        seed: Of the networks, the halves and the batches.
    """
    if not standardized_returns(dataset, discount).any():  # all returns are alike, and so is all credit
        none = np.zeros(dataset.n_steps, np.float32)
        return Credit(none, Skill(none, np.zeros(dataset.n_episodes), 1.0, 1.0))
    rows = _sample(dataset, convention, seed)
    log = _Log(dataset, discount, rows, seed)
    seen = log.take(rows)
    learned = [_learn(seen, discount, seed, *size) for size in _sizes(len(rows))]
    networks = max(learned, key=lambda each: each.explained(seen))

    advantage, change, worth = np.empty((3, dataset.n_steps))
    for begin in range(0, dataset.n_steps, BLOCK):
        block = slice(begin, min(begin + BLOCK, dataset.n_steps))
        steps = log.take(np.arange(block.start, block.stop))
        advantage[block], change[block] = networks.advantage(steps), networks.change(steps)
        worth[block] = networks.worth(steps.observations, steps.fold)
    begun, luck = worth[dataset.starts], change - advantage
    skill = skill_of(dataset.returns / log.unit, begun, change, luck, dataset.lengths, discount)
    return Credit(_standard(advantage), skill)


class _Networks(NamedTuple):
    """What was learned of a log's behavior: V, the world, and what the world's model misses."""

    value: _Halves
    model: _Halves
    correction: _Halves | None
    discount: float

    def worth(self, observations: np.ndarray, fold: np.ndarray) -> np.ndarray:
        """V(s)."""
        return self.value(observations, fold)[:, 0]

    def change(self, steps: _Steps) -> np.ndarray:
        """delta = r + gamma m V(s') - V(s)."""
        following = ~steps.over * self.worth(steps.following, steps.fold)
        return steps.rewards + self.discount * following - self.worth(steps.observations, steps.fold)

    def advantage(self, steps: _Steps) -> np.ndarray:
        """E[delta | s, a]."""
        guess = self.model(steps.both, steps.fold)
        moved, reward, over = steps.observations + guess[:, :-2], guess[:, -2], np.clip(guess[:, -1], 0.0, 1.0)
        following = (1.0 - over) * self.worth(moved, steps.fold)
        by_model = reward + self.discount * following - self.worth(steps.observations, steps.fold)
        return by_model if self.correction is None else by_model + self.correction(steps.both, steps.fold)[:, 0]

    def explained(self, steps: _Steps) -> float:
        """The share of delta's variance that state and action explain."""
        change = self.change(steps)
        return 1.0 - float(np.var(change - self.advantage(steps)) / max(np.var(change), TINY))


def _sizes(rows: int) -> list[tuple[int, int]]:
    """The width and the number of updates of the networks to choose from."""
    wide = (2 * WIDTH, UPDATES * min(max(1, round(rows / MANY)), MOST))
    return [(WIDTH, UPDATES), wide] if rows > FEW else [(WIDTH, UPDATES)]


def _learn(steps: _Steps, discount: float, seed: int, width: int, updates: int) -> _Networks:
    observation, both = steps.observations.shape[1], steps.both.shape[1]
    hidden = (width, width)
    shapes = (
        ((observation, *hidden, 1), (both, *hidden, observation + 2)),
        ((both, *hidden, 1),),
    )
    first, second = _starts(jax.random.PRNGKey(seed), shapes, len(steps.fold), updates)
    moves = np.where(steps.over[:, None], 0.0, steps.following - steps.observations)
    world = np.concatenate([moves, steps.rewards[:, None], steps.over[:, None]], axis=1)
    inputs, targets = [steps.observations, steps.both], [steps.returns[:, None], world]
    value, model = _crossfit(first, inputs, targets, steps.fold)
    networks = _Networks(value, model, None, discount)
    missed = networks.change(steps) - networks.advantage(steps)
    return networks._replace(correction=_crossfit(second, [steps.both], [missed[:, None]], steps.fold)[0])


def _standard(values: np.ndarray) -> np.ndarray:
    """Mean 0 and standard deviation 1; all 0 where the values differ by rounding only."""
    values = values - values.mean()
    deviation = values.std()
    return (values / deviation if deviation > NEGLIGIBLE else np.zeros_like(values)).astype(np.float32)


class _Steps(NamedTuple):
    """Steps of a log; observations standardized, rewards and returns in standard deviations of the returns."""

    observations: np.ndarray
    following: np.ndarray
    both: np.ndarray
    """Observation and action, side by side; discrete actions one-hot."""
    rewards: np.ndarray
    returns: np.ndarray
    over: np.ndarray
    """Whether the step terminated its episode."""
    fold: np.ndarray
    """Which half of the episodes it belongs to."""


class _Log:
    """Any steps of a data set, without a copy of all of it."""

    def __init__(self, dataset: Dataset, discount: float, rows: np.ndarray, seed: int):
        self._data = dataset
        self._half = np.random.default_rng(seed).permutation(dataset.n_episodes) % 2
        self._returns = continued_returns(dataset, discount)
        self.unit = max(float(self._returns.std()), TINY)
        sample = dataset.observations[rows + self._owner(rows)].astype(np.float64)
        self._center, self._scale = sample.mean(axis=0), np.maximum(sample.std(axis=0), 1e-6)
        self._bound = 1.0 if dataset.discrete else max(1.0, float(np.abs(dataset.actions[rows]).max()))

    def _owner(self, steps: np.ndarray) -> np.ndarray:
        return np.searchsorted(self._data.starts, steps, side="right") - 1

    def _observe(self, at: np.ndarray) -> np.ndarray:
        return ((self._data.observations[at] - self._center) / self._scale).astype(np.float32)

    def take(self, steps: np.ndarray) -> _Steps:
        data, owner = self._data, self._owner(steps)
        actions = data.actions[steps]
        actions = np.eye(data.spec.action_dim)[actions] if data.discrete else actions / self._bound
        observations = self._observe(steps + owner)
        return _Steps(
            observations=observations,
            following=self._observe(steps + owner + 1),
            both=np.concatenate([observations, actions], axis=1, dtype=np.float32),
            rewards=data.rewards[steps] / self.unit,
            returns=self._returns[steps] / self.unit,
            over=data.terminated[owner] & (steps == data.ends[owner]),
            fold=self._half[owner],
        )


def _sample(dataset: Dataset, convention: Convention, seed: int) -> np.ndarray:
    """The steps that networks learn from: transitions, at most `ROWS` of them."""
    kept = rows_of(dataset, convention)
    steps = kept.locate(np.arange(kept.size))[0]
    if len(steps) <= ROWS:
        return steps
    return np.sort(np.random.default_rng(seed).choice(steps, ROWS, replace=False))


class _Halves(NamedTuple):
    """Two networks; a row is given to the one that has not seen its half of the episodes."""

    networks: tuple[MLP, MLP]
    center: np.ndarray | float = 0.0
    scale: np.ndarray | float = 1.0
    """0 for an output that is not predicted better than by its mean."""

    def __call__(self, inputs: np.ndarray, fold: np.ndarray) -> np.ndarray:
        out = np.empty((len(inputs), len(self.networks[0].biases[-1])))
        for half, network in enumerate(self.networks):
            mine = fold == half
            out[mine] = _forward(network, inputs[mine])
        return out * self.scale + self.center


def _forward(network: MLP, x: np.ndarray) -> np.ndarray:
    """The network's output, in numpy: the number of rows differs from call to call."""
    last = len(network.weights) - 1
    for i, (weight, bias) in enumerate(zip(network.weights, network.biases, strict=True)):
        x = x @ np.asarray(weight) + np.asarray(bias)
        if i < last:
            x = np.maximum(x, 0.0)
    return x


def _crossfit(start: _Start, inputs: Sequence[np.ndarray], targets: Sequence[np.ndarray], fold) -> list[_Halves]:
    """Regress each of `targets` on its `inputs`, all in one pass: the network of half k learns from the other half."""
    centers = [target.mean(axis=0) for target in targets]
    scales = [np.maximum(target.std(axis=0), TINY) for target in targets]
    standard = [(target - center) / scale for target, center, scale in zip(targets, centers, scales, strict=True)]
    narrow = lambda arrays: tuple(np.asarray(array, np.float32) for array in arrays)
    trained = jax.device_get(_fit(start, narrow(inputs), narrow(standard), fold))
    check = np.unique(np.linspace(0, len(fold) - 1, min(len(fold), VALIDATION)).astype(int))
    result = []
    for snapshots, x, y, center, scale in zip(trained, inputs, standard, centers, scales, strict=True):
        pairs = [
            _Halves((head(pair, 0), head(pair, 1))) for pair in map(partial(head, snapshots), range(SNAPSHOTS + 1))
        ]
        errors = [np.square(pair(x[check], fold[check]) - y[check]).mean(axis=0) for pair in pairs]
        best = np.argmin(np.fmin(errors, 1.0).sum(axis=1))  # an output worse than its mean will be its mean
        result.append(_Halves(pairs[best].networks, center, np.where(errors[best] < 1.0, scale, 0.0)))
    return result


class _Start(NamedTuple):
    """What one pass of training begins with."""

    networks: tuple[MLP, ...]
    """Pairs of networks."""
    batches: jax.Array
    """Rows of every update, (updates, batch)."""


@partial(jax.jit, static_argnums=(1, 2, 3), compiler_options=QUICK)
def _starts(key: jax.Array, shapes: tuple[tuple[tuple[int, ...], ...], ...], rows: int, updates: int) -> list[_Start]:
    """The start of each pass.

    Args:
        key: Of everything that is drawn.
        shapes: For each pass, the widths of each of its pairs, inputs and outputs included.
        rows: Number of rows that batches are drawn from.
        updates: Of each pass.
    """
    keys = jax.random.split(key, len(shapes))
    draw = lambda key, step: jax.random.randint(jax.random.fold_in(key, step), (BATCH,), 0, rows)
    batches = jax.vmap(lambda key: jax.vmap(partial(draw, key))(jnp.arange(updates)))(keys)
    pair = lambda key, shape: jax.vmap(lambda k: MLP(k, shape))(jax.random.split(key, 2))
    networks = [
        tuple(map(pair, jax.random.split(key, len(pairs)), pairs)) for key, pairs in zip(keys, shapes, strict=True)
    ]
    return list(map(_Start, networks, batches))


@partial(jax.jit, compiler_options=QUICK)
def _fit(start: _Start, inputs, targets, fold):
    """Snapshots of every pair, the first before all training.

    Args:
        start: The pairs (of each, network k learns from the rows of the other fold) and the batches.
        inputs: Of each pair, (rows, inputs).
        targets: Of each pair, (rows, outputs).
        fold: Of each row.
    """
    optimizer = optax.adam(optax.cosine_decay_schedule(RATE, len(start.batches)))

    def loss(nets, rows):
        learns = jnp.stack([fold[rows] != 0, fold[rows] != 1]).astype(jnp.float32)[..., None]
        errors = [
            jnp.sum(learns * jnp.square(each_head(net, 2, lambda net, x=x: net(x[rows])) - y[rows][None])) / len(rows)
            for net, x, y in zip(nets, inputs, targets, strict=True)
        ]
        return sum(errors)

    def update(carry, rows):
        nets, state = carry
        changes, state = optimizer.update(jax.grad(loss)(nets, rows), state, nets)
        return (optax.apply_updates(nets, changes), state), None

    def part(carry: Any, rows: Any):  # optax types parameters as a single array
        return jax.lax.scan(update, carry, rows)[0], carry[0]

    first: Any = start.networks
    parts = start.batches.reshape(SNAPSHOTS, -1, BATCH)
    (last, _), snapshots = jax.lax.scan(part, (first, optimizer.init(first)), parts)
    return jax.tree.map(lambda old, new: jnp.concatenate([old, new[None]]), snapshots, last)
