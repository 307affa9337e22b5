"""Networks as pytrees: every leaf is a parameter, so a network can be handed to an optimizer, averaged or stacked as it
is."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise
from typing import Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.custom_batching import sequential_vmap
from jaxtyping import Array, Float, PRNGKeyArray

from odice.core.dense import dense
from odice.types import Spec

Init = Literal["torch", "orthogonal", "orthonormal", "glorot", "he"]
"""`torch`: weights and biases U(-1/sqrt(fan_in), 1/sqrt(fan_in)). `orthogonal`: gain sqrt(2) in every layer, zero
biases. `orthonormal`: the same with gain 1, as Keras has it. `glorot`: U(-sqrt(6/(fan_in + fan_out)), ...), zero
biases. `he`: a normal distribution of variance 2/fan_in, cut at two deviations as Keras has it, zero biases."""

_GAINS = {"orthogonal": math.sqrt(2), "orthonormal": 1.0}
_SCALED = {"glorot": jax.nn.initializers.glorot_uniform, "he": jax.nn.initializers.he_normal}

LAYER_NORM_EPS = 1e-5  # torch's; flax would use 1e-6


def _layers(keys: Array, sizes: Sequence[int], init: Init) -> list[tuple[Array, Array]]:
    """Weights and biases of each layer, with a key for each."""
    ends = tuple(pairwise(sizes))
    if init == "torch":
        return _uniform_layers(keys, ends)
    draw = orthogonal(_GAINS[init]) if init in _GAINS else _SCALED[init]()
    return [(draw(key, end, jnp.float32), jnp.zeros(end[1])) for key, end in zip(keys, ends, strict=True)]


@partial(jax.jit, static_argnums=1)
def _uniform_layers(keys: Array, ends: tuple[tuple[int, int], ...]) -> list[tuple[Array, Array]]:
    """Weights and biases U(-1/sqrt(fan_in), 1/sqrt(fan_in)): the numbers of a `jax.random.uniform` for each.

    All are drawn at once: to compile the generator again for each array was most of the time of a run's first state.
    JAX numbers the draws of a key (`jax_threefry_partitionable`), so a small array is the beginning of a large one.
    """
    keys = jax.vmap(jax.random.split)(keys)
    largest = max(max(fan_in, 1) * fan_out for fan_in, fan_out in ends)
    draws = jax.vmap(jax.vmap(lambda key: jax.random.uniform(key, (largest,))))(keys)

    def part(draw: Array, shape: tuple[int, ...], bound: float) -> Array:
        between = draw[: math.prod(shape)].reshape(shape) * (2 * bound) - bound
        return jnp.maximum(between, -bound)  # rounding can lead below

    layers = []
    for (weight, bias), (fan_in, fan_out) in zip(draws, ends, strict=True):
        bound = 1 / math.sqrt(fan_in)
        layers.append((part(weight, (fan_in, fan_out), bound), part(bias, (fan_out,), bound)))
    return layers


def orthogonal(gain: float) -> Callable[..., Array]:
    """An initializer: `gain` times a random orthogonal matrix.

    Under `vmap` the matrices come one by one. LAPACK's QR of a batch waits, inside XLA's thread pool, for that same
    pool: two of them at once (twin critics) stop a process for ever where the pool has two threads (jaxlib 0.10, CPU).
    """
    draw = jax.nn.initializers.orthogonal(gain)
    return lambda key, shape, dtype=jnp.float32: sequential_vmap(lambda key: draw(key, shape, dtype))(key)


def symmetric(bound: float) -> Callable[..., Array]:
    """An initializer: uniform between -bound and bound."""
    return lambda key, shape, dtype=jnp.float32: jax.random.uniform(key, shape, dtype, -bound, bound)


class MLP(eqx.Module):
    """Linear layers with an optional LayerNorm between each hidden linear map and its ReLU."""

    weights: list[Float[Array, "fan_in fan_out"]]
    biases: list[Float[Array, " fan_out"]]
    scales: list[Float[Array, " hidden"]]
    shifts: list[Float[Array, " hidden"]]
    activation: Callable[[Array], Array] = eqx.field(static=True)

    def __init__(
        self,
        key: PRNGKeyArray,
        sizes: Sequence[int],
        *,
        layer_norm: bool = False,
        init: Init = "torch",
        last: Callable[..., Array] | None = None,
        last_bias: bool = True,
        activation: Callable[[Array], Array] = jax.nn.relu,
    ):
        """`last` initializes the output layer's weights (its biases are then 0) where `init` is too coarse for it.

        Without `last_bias` the output layer has no biases.
        """
        keys = jax.random.split(key, len(sizes) - 1)
        layers = _layers(keys, sizes, init)
        if last is not None:
            layers[-1] = last(keys[-1], tuple(sizes[-2:]), jnp.float32), jnp.zeros(sizes[-1])
        self.weights = [w for w, _ in layers]
        self.biases = [b for _, b in (layers if last_bias else layers[:-1])]
        hidden = sizes[1:-1] if layer_norm else ()
        self.scales = [jnp.ones(n) for n in hidden]
        self.shifts = [jnp.zeros(n) for n in hidden]
        self.activation = activation

    def __call__(self, x: Float[Array, "*b fan_in"]) -> Float[Array, "*b fan_out"]:
        last = len(self.weights) - 1
        for i, weight in enumerate(self.weights):
            x = dense(x, weight)
            if i < len(self.biases):
                x = _add(x, self.biases[i])
            if i < last:
                if self.scales:
                    x = _layer_norm(x, self.scales[i], self.shifts[i])
                x = self.activation(x)
        return x


def along_last(vector: Array | np.ndarray, x: Array) -> Array | np.ndarray:
    """A per-feature vector, reshaped to the rank of `x`: implicit rank promotion is an error in the tests."""
    return vector.reshape((1,) * (x.ndim - 1) + vector.shape)


def _add(x: Array, bias: Array | np.ndarray) -> Array:
    return x + along_last(bias, x)


def _layer_norm(x: Array, scale: Array | np.ndarray, shift: Array | np.ndarray) -> Array:
    return _add(standardized(x) * along_last(scale, x), shift)


def standardized(x: Array, axis: int = -1) -> Array:
    """Mean 0 and variance 1 along the features: LayerNorm before its scale and shift."""
    centred = x - jnp.mean(x, axis=axis, keepdims=True)
    return centred * jax.lax.rsqrt(jnp.mean(centred * centred, axis=axis, keepdims=True) + LAYER_NORM_EPS)


def head(heads: MLP, i: int) -> MLP:
    """One network of a stack."""
    return jax.tree.map(lambda leaf: leaf[i], heads)


def each_head(heads: MLP, size: int, call: Callable[[MLP], Array]) -> Array:
    """`call` on every network of a stack, its results stacked.

    Written out and not a `vmap`: products of single matrices run faster on a CPU than a batch of them, and their
    gradients come out in the parameters' own layout.
    """
    return jnp.stack([call(head(heads, i)) for i in range(size)])


class Ensemble(eqx.Module):
    """Independent scalar networks with stacked parameters; called on a batch it gives one row per head."""

    heads: MLP
    size: int = eqx.field(static=True)

    def __init__(self, key: PRNGKeyArray, size: int, sizes: Sequence[int], **options):
        self.heads = jax.vmap(lambda k: MLP(k, sizes, **options))(jax.random.split(key, size))
        self.size = size

    def __call__(self, x: Float[Array, "b n"]) -> Float[Array, "heads b"]:
        return each_head(self.heads, self.size, lambda head: head(x)[..., 0])


def value_network(key: PRNGKeyArray, spec: Spec, hidden: Sequence[int], *, heads: int, **options) -> Ensemble:
    """V(s), with one head or several."""
    return Ensemble(key, heads, (spec.obs_dim, *hidden, 1), **options)
