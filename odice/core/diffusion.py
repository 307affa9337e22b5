"""Diffusion of actions: the noise schedule, the networks that predict the noise, and a solver that removes it.

With the variance-preserving schedule, for t from 0 to 1, b0 = 0.1 and b1 = 20,

    a_t = alpha_t a + sigma_t e,    e ~ N(0, I)
    log alpha_t = -(b1 - b0) t^2 / 4 - b0 t / 2,    sigma_t^2 = 1 - alpha_t^2

A network that predicts e from (s, a_t, t) knows the score of what is noised: grad log p(a_t | s) = -E[e | a_t, s] /
sigma_t. Ours gives v, and the noise is e = sigma_t a_t + alpha_t v, which is almost right at t = 1 whatever v is. From
the score the probability-flow equation leads back from noise to an action. Its solver here is DPM-Solver++ of second
order in its single-step form (Lu et al., 2022): with D = (x - sigma_t e) / alpha_t = alpha_t x - sigma_t v, the action
that the noised one x seems to come from, every step is a combination of what is there already,

    x <- keep x + keep_before x_before + new D + old D_before

so a table of numbers describes it (`solver_table`), whatever the schedule and the order.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from odice.core.critics import Critic
from odice.core.networks import MLP, Init
from odice.types import Spec

BETA = 0.1, 20.0
T_MIN = 1e-3
"""Where the solver ends, and the least noise that a network sees: at t = 0 there is no score."""
FREQUENCIES = 2.0 ** np.linspace(-2, 5, 16)
"""Of the sines and cosines that tell a network the time."""
SOLVER_COLUMNS = ("alpha", "sigma", "keep", "keep_before", "new", "old")


def log_signal(t: Any) -> Any:
    """log alpha_t."""
    return -0.25 * (BETA[1] - BETA[0]) * t * t - 0.5 * BETA[0] * t


def signal_and_noise(t: Array) -> tuple[Array, Array]:
    """alpha_t and sigma_t."""
    log_alpha = log_signal(t)
    return jnp.exp(log_alpha), jnp.sqrt(-jnp.expm1(2 * log_alpha))


def time_features(t: Any) -> Array:
    """Sines and cosines of a time, in a new last axis."""
    angle = (
        2
        * np.pi
        * jnp.asarray(t)[..., None]
        * jnp.asarray(FREQUENCIES, jnp.float32).reshape((1,) * jnp.ndim(t) + (-1,))
    )
    return jnp.concatenate([jnp.sin(angle), jnp.cos(angle)], axis=-1)


class TimeMLP(eqx.Module):
    """A network of an observation, a noised action and a time."""

    network: MLP

    def __init__(self, key: PRNGKeyArray, spec: Spec, hidden: Sequence[int], outputs: int, init: Init = "torch"):
        inputs = spec.obs_dim + spec.action_dim + 2 * len(FREQUENCIES)
        self.network = MLP(key, (inputs, *hidden, outputs), activation=jax.nn.silu, init=init)

    def __call__(
        self, obs: Float[Array, "*b obs"], action: Float[Array, "*b act"], t: Float[Array, "*b"]
    ) -> Float[Array, "*b out"]:
        return self.network(jnp.concatenate([obs, action, time_features(t)], axis=-1))


class Noised(NamedTuple):
    """Noised actions, with the time and the noise of each."""

    action: Float[Array, "*b act"]
    time: Float[Array, "*b"]
    noise: Float[Array, "*b act"]


def noised(key: PRNGKeyArray, action: Float[Array, "b act"], copies: int) -> Noised:
    """`copies` noised copies of each action, in a leading axis; those of one action have one time."""
    key_time, key_noise = jax.random.split(key)
    time = jax.random.uniform(key_time, action.shape[:1], minval=T_MIN, maxval=1.0)
    time = jnp.broadcast_to(time[None], (copies, *time.shape))
    noise = jax.random.normal(key_noise, (copies, *action.shape))
    alpha, sigma = signal_and_noise(time)
    return Noised(alpha[..., None] * action[None] + sigma[..., None] * noise, time, noise)


def predicted_noise(velocity: Float[Array, "*b act"], action: Float[Array, "*b act"], t: Float[Array, "*b"]) -> Array:
    """e from the network's v and the noised action."""
    alpha, sigma = signal_and_noise(t)
    return sigma[..., None] * action + alpha[..., None] * velocity


def solver_table(steps: int) -> tuple[np.ndarray, np.ndarray]:
    """The times at which the networks are called, and for each the numbers of `SOLVER_COLUMNS`.

    Two calls make a step of second order; the last call, or the last two, make steps of first order.
    """
    t = np.linspace(1.0, T_MIN, steps + 1)
    alpha = np.exp(log_signal(t))
    sigma = np.sqrt(-np.expm1(2 * log_signal(t)))
    lam = np.log(alpha / sigma)
    table = np.zeros((steps, len(SOLVER_COLUMNS)))
    table[:, 0], table[:, 1] = alpha[:-1], sigma[:-1]
    for i in range(steps):
        first, pair = i - i % 2, i < 2 * ((steps - 1) // 2)
        if not pair or i == first:
            table[i, 2:] = sigma[i + 1] / sigma[i], 0.0, -alpha[i + 1] * np.expm1(lam[i] - lam[i + 1]), 0.0
        else:
            whole = lam[i + 1] - lam[first]
            share = 0.5 * whole / (lam[i] - lam[first])
            gain = -alpha[i + 1] * np.expm1(-whole)
            table[i, 2:] = 0.0, sigma[i + 1] / sigma[first], share * gain, (1 - share) * gain
    return t[:-1], table


def solve(noise: Float[Array, "*b act"], steps: int, clean: Any) -> Float[Array, "*b act"]:
    """Turn noise into actions. `clean(x, t, alpha, sigma)` is D, the estimate of the action without noise."""
    times, table = solver_table(steps)
    rows = jnp.asarray(np.column_stack([times, table]), noise.dtype)

    def step(carry, row):
        x, x_before, d_before = carry
        t, alpha, sigma, keep, keep_before, new, old = row
        d = clean(x, t, alpha, sigma)
        return (keep * x + keep_before * x_before + new * d + old * d_before, x, d), None

    zero = jnp.zeros_like(noise)
    return jax.lax.scan(step, (noise, zero, zero), rows)[0][0]


class Sampler(NamedTuple):
    """The networks and tables that acting by diffusion needs: what a policy file stores."""

    score: MLP
    guidance: MLP | None
    critic: MLP | None
    """Stacked networks of Q, whose mean selects."""
    noise: Float[Array | np.ndarray, "candidates act"]
    solver: np.ndarray
    """A row for each call: `SOLVER_COLUMNS`."""
    scale: float
    """How strongly the guidance counts."""
    features: np.ndarray
    """The time features of each call."""


class DiffusionPolicy(eqx.Module):
    """Actions made from noise by a score and a guidance, and of several the one with the largest Q.

    The noise is drawn once and kept: the same for every observation, so that an action is a function of it.
    """

    score: TimeMLP
    guidance: TimeMLP
    critic: Critic
    noise: Float[Array | np.ndarray, "candidates act"]
    scale: float = eqx.field(static=True)
    steps: int = eqx.field(static=True)

    def clean(
        self, obs: Float[Array, "*b obs"], x: Float[Array, "*b act"], t: Array, alpha: Array, sigma: Array
    ) -> Float[Array, "*b act"]:
        """D, with the guidance: (x - sigma e) / alpha for e less scale sigma grad W."""
        time = jnp.broadcast_to(t, x.shape[:-1])
        d = alpha * x - sigma * self.score(obs, x, time)
        if self.scale == 0:
            return d
        slope = jax.grad(lambda x: jnp.sum(self.guidance(obs, x, time)))(x)
        return d + self.scale * sigma * sigma / alpha * slope

    def candidates(self, obs: Float[Array, "*b obs"]) -> Float[Array, "*b candidates act"]:
        """One action for each row of the noise, inside the action box."""
        shape = (*obs.shape[:-1], *self.noise.shape)
        start = jnp.broadcast_to(self.noise.reshape((1,) * (obs.ndim - 1) + self.noise.shape), shape)
        seen = jnp.broadcast_to(obs[..., None, :], (*shape[:-1], obs.shape[-1]))
        actions = solve(start, self.steps, lambda x, *at: self.clean(seen, x, *at))
        return jnp.clip(actions, -1.0, 1.0)

    def mode(self, obs: Float[Array, "*b obs"]) -> Float[Array, "*b act"]:
        """The candidate with the largest mean Q."""
        actions = self.candidates(obs)
        if len(self.noise) == 1:
            return actions[..., 0, :]
        seen = jnp.broadcast_to(obs[..., None, :], (*actions.shape[:-1], obs.shape[-1]))
        best = jnp.argmax(jnp.mean(self.critic(seen, actions), axis=0), axis=-1)
        return jnp.take_along_axis(actions, best[..., None, None], axis=-2)[..., 0, :]

    def center(self, obs: Float[Array, "*b obs"]) -> Float[Array, "*b act"]:
        """The mean of the candidates: the middle of what it draws from."""
        return jnp.mean(self.candidates(obs), axis=-2)

    def deterministic(self) -> Sampler:
        """The networks and tables behind `mode`: what a policy file stores."""
        times, table = solver_table(self.steps)
        return Sampler(
            score=self.score.network,
            guidance=None if self.scale == 0 else self.guidance.network,
            critic=None if len(self.noise) == 1 else self.critic.heads,
            noise=self.noise,
            solver=table,
            scale=self.scale,
            features=np.asarray(time_features(jnp.asarray(times, jnp.float32))),
        )
