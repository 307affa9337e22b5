"""Policies: a distribution over actions from a network, its deterministic action, and expectations over it.

| policy              | actions    | distribution                                                     |
|---------------------|------------|------------------------------------------------------------------|
| `GaussianPolicy`    | continuous | diagonal Gaussian, one spread for all states                     |
| `TanhPolicy`        | continuous | none: one action per state                                       |
| `SquashedPolicy`    | continuous | tanh of a diagonal Gaussian, mean and spread from one network    |
| `SquashedMixture`   | continuous | tanh of a mixture of Gaussians: a model of the data's own policy |
| `CategoricalPolicy` | discrete   | softmax                                                          |

For u ~ N(mean, std^2) and a = tanh(u):    log p(a) = log N(u) - sum log(1 - tanh(u)^2)
and log(1 - tanh(u)^2) = 2 (log 2 - u - softplus(-2u)), which does not cancel for large |u|.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Literal, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray

from odice.core.networks import MLP, Init, along_last, symmetric
from odice.types import Spec

LOG_STD_MIN, LOG_STD_MAX = -5.0, 2.0
EDGE = 1 - 1e-6
"""Logged actions are moved this far inside the box before atanh."""


class Deterministic(NamedTuple):
    """All that is needed to act: an MLP and what is done to its output. What a policy file stores."""

    network: MLP
    output: Literal["clip", "tanh", "argmax"]


class GaussianPolicy(eqx.Module):
    """Diagonal Gaussian around an MLP's mean; one log standard deviation per action dimension, for all states.

    With `tanh_mean` the mean is squashed into (-1, 1); the distribution itself is not a squashed one.
    """

    mean: MLP
    log_std: Float[Array, " act"]
    tanh_mean: bool = eqx.field(static=True)
    log_std_min: float = eqx.field(static=True)

    def __init__(
        self,
        key,
        spec: Spec,
        hidden: Sequence[int],
        *,
        tanh_mean: bool = False,
        log_std_min: float = LOG_STD_MIN,
        **options,
    ):
        self.mean = MLP(key, (spec.obs_dim, *hidden, spec.action_dim), **options)
        self.log_std = jnp.zeros(spec.action_dim)
        self.tanh_mean = tanh_mean
        self.log_std_min = log_std_min

    def location(self, obs: Float[Array, "*b obs"]) -> Float[Array, "*b act"]:
        mean = self.mean(obs)
        return jnp.tanh(mean) if self.tanh_mean else mean

    def log_prob(self, obs: Float[Array, "b obs"], action: Float[Array, "b act"]) -> Float[Array, " b"]:
        log_std = along_last(jnp.clip(self.log_std, self.log_std_min, LOG_STD_MAX), action)
        z = (action - self.location(obs)) * jnp.exp(-log_std)
        return jnp.sum(-0.5 * z * z - log_std - 0.5 * math.log(2 * math.pi), axis=-1)

    def sample(self, key: PRNGKeyArray, obs: Float[Array, "b obs"], count: int) -> Sample:
        """`count` actions per state in a leading axis, clipped to the action box."""
        log_std = jnp.clip(self.log_std, self.log_std_min, LOG_STD_MAX)[None, None]
        mean = self.location(obs)[None]
        raw = mean + jnp.exp(log_std) * jax.random.normal(key, (count, *mean.shape[1:]))
        log_prob = normal_log_prob(raw, mean, log_std)
        return Sample(jnp.clip(raw, -1.0, 1.0), log_prob, raw, log_prob)

    def mode(self, obs: Float[Array, "*b obs"]) -> Float[Array, "*b act"]:
        """The deterministic action, inside the action box."""
        return jnp.clip(self.location(obs), -1.0, 1.0)

    def deterministic(self) -> Deterministic:
        return Deterministic(self.mean, "tanh" if self.tanh_mean else "clip")


class CategoricalPolicy(eqx.Module):
    """A softmax over a finite set of actions."""

    logits: MLP

    def __init__(self, key, spec: Spec, hidden: Sequence[int], **options):
        self.logits = MLP(key, (spec.obs_dim, *hidden, spec.action_dim), **options)

    def log_prob(self, obs: Float[Array, "b obs"], action: Int[Array, " b"]) -> Float[Array, " b"]:
        log_p = jax.nn.log_softmax(self.logits(obs), axis=-1)
        return jnp.take_along_axis(log_p, action[:, None], axis=-1)[:, 0]

    def mode(self, obs: Float[Array, "*b obs"]) -> Int[Array, "*b"]:
        return jnp.argmax(self.logits(obs), axis=-1)

    def deterministic(self) -> Deterministic:
        return Deterministic(self.logits, "argmax")


class TanhPolicy(eqx.Module):
    """One action per state, tanh of an MLP."""

    network: MLP

    def __init__(self, key, spec: Spec, hidden: Sequence[int], **options):
        self.network = MLP(key, (spec.obs_dim, *hidden, spec.action_dim), **options)

    def log_prob(self, obs: Float[Array, "b obs"], action: Float[Array, "b act"]) -> Float[Array, " b"]:
        """Minus the squared distance: the log density, up to a constant, of a Gaussian with variance 1/2 around the
        action.

        So a deterministic policy is cloned with the same losses as a stochastic one.
        """
        return -jnp.sum(jnp.square(self.mode(obs) - action), axis=-1)

    def mode(self, obs: Float[Array, "*b obs"]) -> Float[Array, "*b act"]:
        return jnp.tanh(self.network(obs))

    def deterministic(self) -> Deterministic:
        return Deterministic(self.network, "tanh")


Policy = GaussianPolicy | CategoricalPolicy | TanhPolicy


def policy_network(
    key: PRNGKeyArray,
    spec: Spec,
    hidden: Sequence[int],
    *,
    tanh_mean: bool = False,
    log_std_min: float = LOG_STD_MIN,
    deterministic: bool = False,
    init: Init = "torch",
) -> Policy:
    """The policy for an action space; for continuous actions a Gaussian, unless `deterministic`."""
    if spec.discrete:
        return CategoricalPolicy(key, spec, hidden, init=init)
    if deterministic:
        return TanhPolicy(key, spec, hidden, init=init)
    return GaussianPolicy(key, spec, hidden, tanh_mean=tanh_mean, log_std_min=log_std_min, init=init)


# --- inside the action box ---------------------------------------------------------------------------------------


class Sample(NamedTuple):
    """Actions of a policy, with gradients through the noise (reparameterised)."""

    action: Float[Array, "*n b act"]
    log_prob: Float[Array, "*n b"]
    raw: Float[Array, "*n b act"]
    """Before the tanh, or before clipping."""
    raw_log_prob: Float[Array, "*n b"]
    """Its log density."""


def normal_log_prob(u: Array, mean: Array, log_std: Array) -> Array:
    """log N(u; mean, diag(exp(log_std))^2), summed over the last axis."""
    z = (u - mean) * jnp.exp(-log_std)
    return jnp.sum(-0.5 * z * z - log_std - 0.5 * math.log(2 * math.pi), axis=-1)


def log_det_jacobian(u: Array) -> Array:
    """sum log(1 - tanh(u)^2) over the last axis: what tanh does to a volume."""
    return jnp.sum(2 * (math.log(2) - u - jax.nn.softplus(-2 * u)), axis=-1)


def unsquash(action: Array) -> Array:
    """atanh of a logged action, kept finite."""
    return jnp.arctanh(jnp.clip(action, -EDGE, EDGE))


class SquashedPolicy(eqx.Module):
    """tanh of a diagonal Gaussian whose mean and spread come from one network.

    log std is `affine[0]` * output + `affine[1]`, two learnt numbers, where `affine` is given (CQL); else the output
    itself. It stays between `log_std_min` and 2 because it is clipped there (`spread="clip"`), or because a tanh maps
    every number into that interval ("tanh", ValueDICE and IQ-Learn), which leaves a gradient everywhere.
    """

    network: MLP
    affine: Float[Array, " two"] | None
    log_std_min: float = eqx.field(static=True)
    spread: Literal["clip", "tanh"] = eqx.field(static=True)

    def __init__(
        self,
        key: PRNGKeyArray,
        spec: Spec,
        hidden: Sequence[int],
        *,
        affine: tuple[float, float] | None = None,
        log_std_min: float = LOG_STD_MIN,
        spread: Literal["clip", "tanh"] = "clip",
        **options,
    ):
        self.network = MLP(key, (spec.obs_dim, *hidden, 2 * spec.action_dim), **options)
        self.affine = None if affine is None else jnp.asarray(affine)
        self.log_std_min = log_std_min
        self.spread = spread

    def parameters(self, obs: Float[Array, "*b obs"]) -> tuple[Float[Array, "*b act"], Float[Array, "*b act"]]:
        """Mean and log standard deviation before the tanh."""
        mean, log_std = jnp.split(self.network(obs), 2, axis=-1)
        if self.affine is not None:
            log_std = self.affine[0] * log_std + self.affine[1]
        if self.spread == "tanh":
            return mean, self.log_std_min + 0.5 * (LOG_STD_MAX - self.log_std_min) * (jnp.tanh(log_std) + 1)
        return mean, jnp.clip(log_std, self.log_std_min, LOG_STD_MAX)

    def sample(self, key: PRNGKeyArray, obs: Float[Array, "b obs"], count: int | None = None) -> Sample:
        """One action per state, or `count` of them in a leading axis."""
        mean, log_std = self.parameters(obs)
        if count is not None:
            mean, log_std = mean[None], log_std[None]
        shape = mean.shape if count is None else (count, *mean.shape[1:])
        raw = mean + jnp.exp(log_std) * jax.random.normal(key, shape)
        raw_log_prob = normal_log_prob(raw, mean, log_std)
        return Sample(jnp.tanh(raw), raw_log_prob - log_det_jacobian(raw), raw, raw_log_prob)

    def log_prob(self, obs: Float[Array, "b obs"], action: Float[Array, "b act"]) -> Float[Array, " b"]:
        raw = unsquash(action)
        return normal_log_prob(raw, *self.parameters(obs)) - log_det_jacobian(raw)

    def mode(self, obs: Float[Array, "*b obs"]) -> Float[Array, "*b act"]:
        """tanh of the mean."""
        return jnp.tanh(jnp.split(self.network(obs), 2, axis=-1)[0])

    def deterministic(self) -> Deterministic:
        """The network without the outputs of the spread."""
        size = self.network.biases[-1].shape[0] // 2
        last = lambda net: (net.weights[-1], net.biases[-1])
        means = self.network.weights[-1][:, :size], self.network.biases[-1][:size]
        return Deterministic(eqx.tree_at(last, self.network, means), "tanh")


def mixture_head(components: int) -> Callable[..., Array]:
    """An initializer of a mixture's output layer: Glorot for shares and means, so that the components start apart;
    small spreads."""

    def init(key: PRNGKeyArray, shape: tuple[int, int], dtype=jnp.float32) -> Array:
        fan_in, size = shape[0], (shape[1] // components - 1) // 2
        key_share, key_mean, key_std = jax.random.split(key, 3)
        glorot = jax.nn.initializers.glorot_uniform()
        share = glorot(key_share, (fan_in, components), dtype)
        mean = glorot(key_mean, (fan_in, components * size), dtype).reshape(fan_in, components, size)
        log_std = symmetric(1e-3)(key_std, (fan_in, components, size), dtype)
        return jnp.concatenate([share, jnp.concatenate([mean, log_std], axis=-1).reshape(fan_in, -1)], axis=-1)

    return init


class SquashedMixture(eqx.Module):
    """tanh of a mixture of diagonal Gaussians: a model of the data's own policy."""

    network: MLP
    components: int = eqx.field(static=True)

    def __init__(self, key: PRNGKeyArray, spec: Spec, hidden: Sequence[int], *, components: int = 5, **options):
        outputs = components * (1 + 2 * spec.action_dim)
        self.network = MLP(key, (spec.obs_dim, *hidden, outputs), last=mixture_head(components), **options)
        self.components = components

    def raw_log_prob(self, obs: Float[Array, "b obs"], raw: Float[Array, "b act"]) -> Float[Array, " b"]:
        """Log density before the tanh."""
        k, size = self.components, raw.shape[-1]
        out = self.network(obs)
        log_prob = jax.nn.log_softmax(out[..., :k], axis=-1)
        mean, log_std = jnp.split(out[..., k:].reshape(*out.shape[:-1], k, 2 * size), 2, axis=-1)
        log_std = jnp.clip(log_std, LOG_STD_MIN, LOG_STD_MAX)
        return jax.nn.logsumexp(log_prob + normal_log_prob(raw[..., None, :], mean, log_std), axis=-1)

    def log_prob(self, obs: Float[Array, "b obs"], action: Float[Array, "b act"]) -> Float[Array, " b"]:
        raw = unsquash(action)
        return self.raw_log_prob(obs, raw) - log_det_jacobian(raw)


# --- expectations ------------------------------------------------------------------------------------------------


def target_entropy(given: float | None, spec: Spec) -> float:
    """The entropy at which soft actor-critic holds a policy: `given`, or its usual default for the action space.

    That is minus the action's dimension; for a finite set 0.1 log(number of actions).
    """
    if given is not None:
        return given
    return 0.1 * math.log(spec.action_dim) if spec.discrete else -float(spec.action_dim)


class Draws(NamedTuple):
    """Actions at each state of a batch: samples, or all of a finite set (`action` is then None)."""

    action: Float[Array, "n b act"] | None
    log_prob: Float[Array, "n b"]
    prob: Float[Array, "n b"]
    """Weights whose sum over n is 1: an expectation over pi is sum(prob * g)."""


def draw(policy, key: PRNGKeyArray, obs: Float[Array, "b obs"], count: int) -> Draws:
    """`count` samples with gradients through their noise; of a finite set every action, with gradients through its
    probability."""
    if isinstance(policy, CategoricalPolicy):
        log_prob = jax.nn.log_softmax(policy.logits(obs), axis=-1).T
        return Draws(None, log_prob, jnp.exp(log_prob))
    sample = policy.sample(key, obs, count)
    return Draws(sample.action, sample.log_prob, jnp.full_like(sample.log_prob, 1 / count))
