"""Gradients of scalar networks at a batch of points: one backward sweep for any number of gradients.

Reverse mode sends a cotangent c_i for each sample down the network. At a linear layer z = W^T h it has become delta_i,
and the layer's gradient is sum_i h_i delta_i^T. Where the network has one output, delta_i is c_i times the delta of a
cotangent of 1, because no sample meets another one. So the unit deltas are swept once, and each further gradient (a
two-point loss has a forward and a linear term at the same point) costs its sums over the samples alone. `jax.vjp`
would sweep again: it is the oracle of this file in the tests, and does the work everywhere else.

Matrices are (features, samples) here, not (samples, features) as in `networks`. Then only the weights have to be
transposed for XLA's fast products (`core.dense` says why), once for both points.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from odice.core.critics import Critic
from odice.core.networks import MLP, Ensemble, each_head, head, standardized

Columns = Float[Array, "_ b"]
"""(features, samples)."""
Heads = Float[Array, "heads b"]


class Point(NamedTuple):
    """Where scalar networks are evaluated, as a function of the networks: their outputs here, plus `offset`."""

    inputs: Float[Array, "b n"]
    offset: float = 0.0

    def __call__(self, network: Ensemble | Critic) -> Heads:
        return each_head(network.heads, network.size, lambda net: net(self.inputs)[..., 0]) + self.offset


class Layer(NamedTuple):
    """What the gradient of one layer needs: its inputs, and the deltas of unit cotangents."""

    inputs: Columns
    delta: Columns
    """Of the linear map's outputs."""
    standardized: Columns | None = None
    delta_standardized: Columns | None = None
    """Of what LayerNorm's scale and shift make."""


def vjp(point: Point, network: Ensemble | Critic) -> tuple[Heads, Callable[[Heads], tuple[Ensemble | Critic]]]:
    """`jax.vjp(point, network)`."""
    nets = [head(network.heads, i) for i in range(network.size)]
    values, layers = zip(*(sweep(net, point.inputs) for net in nets), strict=True)

    def pull(cotangent: Heads) -> tuple[Ensemble | Critic]:
        each = [gradient(*known, cotangent[i]) for i, known in enumerate(zip(nets, layers, strict=True))]
        stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *each)
        return (eqx.tree_at(lambda network: network.heads, network, stacked),)

    return jnp.stack(values) + point.offset, pull


def sweep(net: MLP, inputs: Float[Array, "b n"]) -> tuple[Float[Array, " b"], list[Layer]]:
    """Evaluate a network, and pull cotangents of 1 back through it."""
    z = x = inputs.T
    known, backs = [], []
    for i, weight in enumerate(net.weights):
        z = jax.lax.optimization_barrier(weight.T) @ x
        z = z + net.biases[i][:, None] if i < len(net.biases) else z
        if i == len(net.weights) - 1:
            break
        normal, back = jax.vjp(lambda z: standardized(z, axis=0), z) if net.scales else (None, None)
        y = z if normal is None else normal * net.scales[i][:, None] + net.shifts[i][:, None]
        known.append((x, normal))
        x, activation_back = jax.vjp(net.activation, y)
        backs.append((activation_back, back))

    delta = jnp.ones_like(z)
    layers = [Layer(x, delta)]
    for i in reversed(range(len(known))):
        activation_back, back = backs[i]
        (delta,) = activation_back(net.weights[i + 1] @ delta)
        x, normal = known[i]
        if back is None:
            layers.append(Layer(x, delta))
        else:
            (below,) = back(delta * net.scales[i][:, None])
            layers.append(Layer(x, below, normal, delta))
            delta = below
    return z[0], layers[::-1]


def gradient(net: MLP, layers: list[Layer], cotangent: Float[Array, " b"]) -> MLP:
    """The gradient of sum_i cotangent_i V(s_i), from the layers of a sweep."""
    weights, biases, scales, shifts = [], [], [], []
    for layer in layers:
        delta = layer.delta * cotangent[None]
        weights.append(_product(layer.inputs, delta))
        biases.append(jnp.sum(delta, axis=1))
        if layer.standardized is not None and layer.delta_standardized is not None:
            delta = layer.delta_standardized * cotangent[None]
            scales.append(jnp.sum(layer.standardized * delta, axis=1))
            shifts.append(jnp.sum(delta, axis=1))
    parts = lambda net: (net.weights, net.biases, net.scales, net.shifts)
    return eqx.tree_at(parts, net, (weights, biases[: len(net.biases)], scales, shifts))


def _product(inputs: Columns, delta: Columns) -> Float[Array, "n m"]:
    """inputs delta^T, with the wider matrix on the left."""
    if inputs.shape[0] < delta.shape[0]:
        return jax.lax.optimization_barrier(delta @ inputs.T).T
    return inputs @ delta.T
