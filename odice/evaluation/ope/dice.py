"""The DICE estimators: learn the density ratio zeta = d^pi / d^D between the policy's visits and the log's, and weight
rewards with it.

    d^pi(s, a, t) = c gamma^t P_pi(s_t = s, a_t = a),     c = 1 / sum_{t < H} gamma^t      what the policy would visit
    J = E_{d^pi}[r] / c = E_D[zeta r] / (c E_D[zeta]),    E_D[zeta] = 1 if zeta is right

All four are one saddle point, the regularized Lagrangian of the flow:

    d^pi(s', a', t + 1) = gamma pi(a'|s') sum_{s, a} P(s'|s, a) d^pi(s, a, t)

    min_{nu, lam} max_zeta   c E[nu(s0, pi(s0))] + E_D[zeta (k r + gamma m nu(s', pi(s')) - nu(s, a))]
                             + n (lam (1 - E_D[zeta]) + q lam^2 / 2) + P(nu) - E_D[f(zeta)]

| form            | k | n   | q | P(nu)              | f(zeta)    | zeta   |
|-----------------|---|-----|---|--------------------|------------|--------|
| `dual-dice`     | 0 | 0   | - | 0                  | zeta^3 / 3 | free   |
| `gen-dice`      | 0 | 1   | 1 | E_D[zeta nu^2] / 4 | 0          | square |
| `gradient-dice` | 0 | 0.1 | 1 | E_D[nu^2] / 2      | 0          | free   |
| `dice`          | 1 | 1   | 0 | 0                  | zeta^2 / 2 | square |

DualDICE (its f(x) = x^{3/2} / (3/2) has the conjugate zeta^3 / 3), GenDICE with chi-square (nu here is -f there),
GradientDICE, and the member that the paper of the unified form recommends.

The unified form has three estimates: dual (J above), which is what the table of estimates shows; primal E[nu0] + lam /
c; and the Lagrangian itself, with both. Regularizing zeta leaves the dual one exact and shifts the primal one; far
apart means not converged.

An episode that terminates goes on in an absorbing state without reward, so that d^pi has mass 1 and so has the log's.
Steps of the log count with gamma^t, so that D is the behavior's own discounted visitation: a policy that acts as the
behavior did has zeta = 1 everywhere, which is also where zeta starts. Needs a discount below 1 in practice: without one
the flow has to be learned over the whole horizon, so no undiscounted estimate is made.

Continuous actions: a deterministic policy visits a set without volume, so it has no ratio. As for importance weights,
the policy is estimated with the behavior's own noise: wherever pi acts above, it does so with fresh Gaussian noise.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float, Int

from odice.core.critics import Critic
from odice.core.optim import adam, opt_init, polyak, step
from odice.core.sampling import INITIAL, sample_rows, seed_keys, step_keys
from odice.evaluation.ope.episodes import Episodes, total_weight
from odice.types import Spec

TABLE = 1 << 16
"""At most this many rows stand for the log, drawn evenly by their weights gamma^t; a small log needs fewer."""
BLOCK = 1024
"""Rows over which estimates are read at a time; tables are whole blocks."""
NOISE = 99
"""Number of the stream of random numbers that the policy's noise comes from."""
LEAST_MASS = 0.05
"""An estimate is not divided by less than this."""


class Form(NamedTuple):
    """One row of the table above."""

    reward: float
    norm: float
    norm_square: float
    penalty: Literal["none", "ratio", "plain"]
    power: float
    """f(zeta) = |zeta|^power / power; 0 for none."""
    square: bool
    rate: float = 3e-3
    """Learning rate of Adam."""


FORMS = {
    "dual-dice": Form(0.0, 0.0, 0.0, "none", 3.0, False, 1e-3),
    "gen-dice": Form(0.0, 1.0, 1.0, "ratio", 0.0, True, 1e-3),
    "gradient-dice": Form(0.0, 0.1, 1.0, "plain", 0.0, False),
    "dice": Form(1.0, 1.0, 0.0, "none", 2.0, True),
}


@dataclass(frozen=True)
class DICEConfig:
    """How nu and zeta are learned."""

    hidden: tuple[int, ...] = (64, 64)
    """Widths of both networks' hidden layers."""
    updates: int = 3000
    batch_size: int = 128
    average: float = 2e-3
    """Estimates are read from a running average of the parameters, because saddle points are circled, not met."""


class Data(NamedTuple):
    """Rows (s, a, r, s', pi(s')) that stand for D, and the first states."""

    states: Float[Array, "states obs"]
    policy_action: Array
    """What the policy does in each of `states`."""
    here: Int[Array, " n"]
    """The row of `states` that is s."""
    there: Int[Array, " n"]
    """The row of `states` that is s'."""
    action: Array
    reward: Float[Array, " n"]
    goes_on: Float[Array, " n"]
    """0 at the horizon, else 1."""
    episode: Int[Array, " n"]
    first: Int[Array, " episodes"]
    """The row of `states` in which each episode starts."""
    counts: Float[Array, "heads episodes"]
    """How often each head's resample has each episode."""
    noise: Array
    """What is added to the policy's actions, as standard deviations; 0 for a choice."""


class Params(NamedTuple):
    """What the saddle point is found in."""

    nu: Critic
    zeta: Critic
    lam: Float[Array, " heads"]


class DICE(NamedTuple):
    """Estimates of the discounted return, one per head."""

    dual: np.ndarray
    primal: np.ndarray
    """Means something for a form with rewards in it (`dice`)."""
    lagrangian: np.ndarray
    effective: float
    """(sum zeta)^2 / (n sum zeta^2): the share of the log that carries the estimate."""
    mass: float
    """E_D[zeta]: 1 if the flow is met."""


def dice(
    log: Episodes,
    discount: float,
    counts: np.ndarray,
    form: Form,
    config: DICEConfig | None = None,
    seed: int = 0,
    noise: np.ndarray | None = None,
) -> DICE:
    """Learn zeta, and read the estimates from it.

    Args:
        log: The episodes, with what the policy does in them.
        discount: Below 1.
        counts: (heads, episodes) how often the resample of each head has each episode.
        form: Which member of the family: one of `FORMS`.
        config: How it is learned.
        seed: Of the networks, batches and noise.
        noise: (act,) the behavior's standard deviation, for continuous actions.

    Returns:
        The estimates of every head.
    """
    config = config or DICEConfig()
    c = 1 / total_weight(discount, log.horizon)
    scale = max(float(np.abs(log.reward).mean()), 1e-8)
    data, spec = device_data(log, discount, counts, scale, np.random.default_rng(seed), noise)
    keys = jax.random.split(seed_keys(seed)[0])
    nu = Critic(keys[0], spec, config.hidden, heads=len(counts))
    zeta = Critic(keys[1], spec, config.hidden, heads=len(counts), last=jax.nn.initializers.zeros)  # a ratio of 1
    params = _fit(data, Params(nu, zeta, jnp.zeros(len(counts))), seed_keys(seed)[1], discount, c, form, config)
    readings = _read(params, data, discount, c, form)
    dual, primal, lagrangian, effective, mass = (np.asarray(x, np.float64) for x in readings)
    return DICE(
        dual * scale / c, primal * scale / c, lagrangian * scale / c, float(effective.mean()), float(mass.mean())
    )


def device_data(
    log: Episodes,
    discount: float,
    counts: np.ndarray,
    scale: float,
    rng: np.random.Generator,
    noise: np.ndarray | None = None,
) -> tuple[Data, Spec]:
    """The log and its absorbing states, as rows of equal weight. Of the absorbing states only the time is known.

    Args:
        log: The episodes, with what the policy does in them.
        discount: A step at time t has the weight discount^t.
        counts: (heads, episodes) how often the resample of each head has each episode.
        scale: What rewards are divided by.
        rng: Draws the times of absorbing states.
        noise: (act,) standard deviations that are added to the policy's continuous actions.

    Returns:
        The rows on the device, and the shapes of what nu and zeta see.
    """
    clock = np.arange(log.horizon + 1) * (2 / log.horizon) - 1
    absorbing = np.zeros((log.horizon + 1, log.states.shape[1] + 1), np.float32)
    absorbing[:, -2], absorbing[:, -1] = clock, 1.0
    states = np.concatenate([np.column_stack([log.states, np.zeros(len(log.states), np.float32)]), absorbing])
    choice = log.decisions.choice
    nothing = np.zeros((len(absorbing), *choice.shape[1:]), choice.dtype)
    offset = len(log.states)

    last = log.first + log.lengths - 1
    usable = np.flatnonzero(log.known_next)
    mass = discount ** log.time[usable].astype(np.float64)
    ended = np.flatnonzero(log.terminated & (log.lengths < log.horizon))
    tail = discount ** log.lengths[ended].astype(np.float64)
    rest = tail - discount**log.horizon  # sum of gamma^t from the end to the horizon, times (1 - gamma)
    after = rest / (1 - discount)
    # Shares are rounded to whole rows; with many rows that is little.
    table = min(TABLE, BLOCK * -(-16 * log.steps // BLOCK))
    size = round(table * mass.sum() / (mass.sum() + after.sum()))
    steps = usable[_evenly(mass, size)]
    there = log.index + 1
    there[last[log.terminated]] = offset + log.lengths[log.terminated]  # a terminal step leads to the absorbing state
    owner = ended[_evenly(after, table - size)] if size < table else np.zeros(0, int)
    u = rng.random(len(owner))
    first_tail = discount ** log.lengths[owner].astype(np.float64)
    wait = np.log(first_tail - u * (first_tail - discount**log.horizon)) / np.log(discount)
    time = np.clip(np.floor(wait), log.lengths[owner], log.horizon - 1).astype(int)
    both = lambda logged, added: np.concatenate([logged, added])
    arrays: dict[str, Any] = {
        "states": states,
        "policy_action": both(choice, nothing),
        "here": both(log.index[steps], offset + time).astype(np.int32),
        "there": both(there[steps], offset + time + 1).astype(np.int32),
        "action": both(log.action[steps], nothing[time]),
        "reward": both(log.reward[steps] / scale, np.zeros(len(owner))).astype(np.float32),
        "goes_on": (both(log.time[steps], time) + 1 < log.horizon).astype(np.float32),
        "episode": both(log.episode[steps], owner).astype(np.int32),
        "first": (log.first + np.arange(log.n_episodes)).astype(np.int32),
        "counts": (counts / counts.mean(axis=1, keepdims=True)).astype(np.float32),
        "noise": np.zeros((), np.float32) if noise is None else noise.astype(np.float32),
    }
    return jax.device_put(Data(**arrays)), Spec(log.spec.obs_dim + 1, log.spec.action_dim, log.spec.discrete)


def _evenly(mass: np.ndarray, size: int) -> np.ndarray:
    """`size` indices, each as often as its share of the mass says (systematic resampling)."""
    edges = np.cumsum(mass / mass.sum())
    return np.minimum(np.searchsorted(edges, (np.arange(size) + 0.5) / size), len(mass) - 1)


def _ratio(zeta: Critic, form: Form, states, actions) -> Float[Array, "heads n"]:
    """zeta, which is 1 where the network says 0."""
    out = 1.0 + zeta(states, actions)
    return jnp.square(out) if form.square else out


def _nu(params: Params, c: float, states, actions) -> Float[Array, "heads n"]:
    """nu sums ratios over a horizon of 1 / c steps; a network that starts at 1 reaches that faster from half way."""
    return params.nu(states, actions) / c**0.5


def _policy_nu(params: Params, data: Data, c: float, states, key) -> Float[Array, "heads n"]:
    """nu in these states for what the policy does there, with noise where actions are continuous."""
    action = data.policy_action[states]
    if action.ndim > 1:  # in an absorbing state nothing is done
        alive = 1.0 - data.states[states][:, -1:]
        action = action + alive * data.noise[None] * jax.random.normal(key, action.shape)
    return _nu(params, c, data.states[states], action)


def _terms(params: Params, data: Data, rows, starts, discount: float, c: float, form: Form, key):
    """nu at the start; zeta; what zeta multiplies; nu; and the heads' weights of rows and starts."""
    here = data.states[data.here[rows]]
    nu = _nu(params, c, here, data.action[rows])
    ahead = _policy_nu(params, data, c, data.there[rows], jax.random.fold_in(key, 0))
    first = _policy_nu(params, data, c, data.first[starts], jax.random.fold_in(key, 1))
    zeta = _ratio(params.zeta, form, here, data.action[rows])
    flow = (discount * data.goes_on[rows])[None] * ahead - nu
    residual = form.reward * data.reward[rows][None] + flow
    return first, zeta, residual, nu, data.counts[:, data.episode[rows]], data.counts[:, starts]


def lagrangian(
    params: Params, data: Data, rows, starts, discount: float, c: float, form: Form, key
) -> Float[Array, " heads"]:
    """The saddle point's function on a batch, one number per head.

    Args:
        params: nu, zeta and lam.
        data: All rows.
        rows: The batch, as numbers of rows.
        starts: The batch of first states, as numbers of episodes.
        discount: gamma.
        c: 1 / sum_{t < H} gamma^t.
        form: The row of the module's table.
        key: Of the policy's noise.
    """
    first, zeta, residual, nu, weight, start_weight = _terms(params, data, rows, starts, discount, c, form, key)
    mean = lambda x: jnp.mean(weight * x, axis=-1)
    total = c * jnp.mean(start_weight * first, axis=-1) + mean(zeta * residual)
    total += form.norm * (params.lam * (1 - mean(zeta)) + form.norm_square * jnp.square(params.lam) / 2)
    if form.penalty == "ratio":
        total += mean(zeta * jnp.square(nu)) / 4
    elif form.penalty == "plain":
        total += mean(jnp.square(nu)) / 2
    if form.power:
        total -= mean(jnp.abs(zeta) ** form.power) / form.power
    return total


@partial(jax.jit, static_argnames=("discount", "c", "form", "config"))
def _fit(data: Data, params: Params, loop_key, discount: float, c: float, form: Form, config: DICEConfig) -> Params:
    optimizer = adam(optax.cosine_decay_schedule(form.rate, max(1, config.updates), 0.05))

    def one(carry, number):
        params, average, state = carry
        rows_key = step_keys(loop_key, number)[0]
        rows = sample_rows(rows_key, config.batch_size, data.here.shape[0])
        starts = sample_rows(jax.random.fold_in(rows_key, INITIAL), config.batch_size, data.first.shape[0])
        noise_key = jax.random.fold_in(rows_key, NOISE)
        gradient = jax.grad(lambda p: lagrangian(p, data, rows, starts, discount, c, form, noise_key).sum())(params)
        gradient = gradient._replace(zeta=jax.tree.map(jnp.negative, gradient.zeta))  # zeta climbs
        params, state = step(optimizer, gradient, state, params)
        return (params, polyak(params, average, config.average), state), None

    start = params, params, opt_init(optimizer, params)
    return jax.lax.scan(one, start, jnp.arange(config.updates))[0][1]


@partial(jax.jit, static_argnames=("discount", "c", "form"))
def _read(params: Params, data: Data, discount: float, c: float, form: Form):
    """All estimates over all rows, in blocks."""

    key = jax.random.key(0)

    def block(rows):
        zeta = _ratio(params.zeta, form, data.states[data.here[rows]], data.action[rows])
        here = _nu(params, c, data.states[data.here[rows]], data.action[rows])
        ahead = _policy_nu(params, data, c, data.there[rows], jax.random.fold_in(key, rows[0]))
        flow = (discount * data.goes_on[rows])[None] * ahead - here
        weight = data.counts[:, data.episode[rows]]
        mean = lambda x: jnp.mean(weight * x, axis=-1)
        parts = (zeta * data.reward[rows][None], zeta * flow, zeta, jnp.square(zeta), jnp.ones_like(zeta))
        return jnp.stack([mean(part) for part in parts])

    blocks = jax.lax.map(block, jnp.arange(data.here.shape[0]).reshape(-1, BLOCK))
    dual, flow, mass, squares, total = jnp.mean(blocks, axis=0)
    first = _policy_nu(params, data, c, data.first, jax.random.fold_in(key, data.here.shape[0]))
    start = jnp.mean(data.counts * first, axis=-1)
    dual, flow, mass, squares = dual / total, flow / total, mass / total, squares / total
    primal = c * start + params.lam
    both = dual + flow + c * start + params.lam * (1 - mass)
    return dual / jnp.maximum(mass, LEAST_MASS), primal, both, jnp.square(mass) / jnp.maximum(squares, 1e-8), mass
