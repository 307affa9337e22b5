"""The shape of a policy's network, what follows from it for the files, and the network itself in numpy.

There are two kinds: a `Layout` here, one network that is called once, and a `Sampler` (`policy.sampler`), several
networks that take the noise out of draws. `Policy` relies on what both have: the widths of observation and action, the
shapes of the tensors, the outputs, and the words and entries that describe them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, NoReturn

import numpy as np

from odice.errors import OdiceError

Tensors = Mapping[str, np.ndarray]
Shapes = dict[str, tuple[int, ...]]

OUTPUTS = ("clip", "tanh", "argmax")
ACTIVATIONS = ("relu", "tanh", "elu")
MAX_LAYERS = 64
MAX_WIDTH = 1 << 20
LAYER_NORM_EPS = np.float32(1e-5)  # as core.networks, which would import jax

_ACTIVATE = {
    "relu": lambda x: np.maximum(x, np.float32(0)),
    "tanh": np.tanh,
    "elu": lambda x: np.where(x > 0, x, np.expm1(np.minimum(x, np.float32(0)))),
}
_WORDS = {"clip": "mean, clipped to the action box", "tanh": "tanh of the mean", "argmax": "the most likely action"}


class Layout(NamedTuple):
    """The shape of one network."""

    sizes: tuple[int, ...]
    layer_norm: bool
    activation: str
    output: str

    @property
    def version(self) -> int:
        """The version of the format that describes it."""
        return 2

    @property
    def obs_dim(self) -> int:
        return self.sizes[0]

    @property
    def action_dim(self) -> int:
        """Numbers per action, or the number of actions to choose from."""
        return self.sizes[-1]

    @property
    def shapes(self) -> Shapes:
        """The tensors of such a network. A weight is (fan_in, fan_out)."""
        shapes: Shapes = {}
        pairs = list(zip(self.sizes[:-1], self.sizes[1:], strict=True))
        for i, (fan_in, fan_out) in enumerate(pairs):
            shapes |= {f"layers.{i}.weight": (fan_in, fan_out), f"layers.{i}.bias": (fan_out,)}
            if self.layer_norm and i < len(pairs) - 1:
                shapes |= {f"layers.{i}.scale": (fan_out,), f"layers.{i}.shift": (fan_out,)}
        return shapes

    @property
    def words(self) -> str:
        """For the model card."""
        return f"{' - '.join(map(str, self.sizes))}, {self.activation}; {_WORDS[self.output]}"

    def describe(self) -> dict[str, Any]:
        """Return its entry in `policy.json`."""
        return {**self._asdict(), "sizes": list(self.sizes)}

    def outputs(self, x: np.ndarray, tensors: Tensors) -> np.ndarray:
        """The network's numbers for observations (..., obs) that are normalized already."""
        activate, last = _ACTIVATE[self.activation], len(self.sizes) - 2
        for i in range(last + 1):
            x = x @ tensors[f"layers.{i}.weight"] + tensors[f"layers.{i}.bias"]
            if i == last:
                break
            if self.layer_norm:
                x = x - x.mean(axis=-1, keepdims=True)
                variance = np.square(x).mean(axis=-1, keepdims=True)
                x = x / np.sqrt(variance + LAYER_NORM_EPS)
                x = x * tensors[f"layers.{i}.scale"] + tensors[f"layers.{i}.shift"]
            x = activate(x)
        return x


Refuse = Callable[[str], NoReturn]
"""Raises an error that gives a reason."""


def read_mlp(network: Mapping[str, Any], refuse: Refuse) -> Layout:
    """Read a `Layout` from the description in a file; refuse what is malformed or too large."""
    layer_norm = network.get("layer_norm")
    if not isinstance(layer_norm, bool):
        refuse("`network.layer_norm` must be true or false")
    sizes = read_widths(network, "sizes", 2, refuse)
    for key, valid in (("activation", ACTIVATIONS), ("output", OUTPUTS)):
        if network.get(key) not in valid:
            refuse(f"`network.{key}` must be one of {', '.join(valid)}")
    return Layout(sizes, layer_norm, network["activation"], network["output"])


def read_widths(network: Mapping[str, Any], key: str, least: int, refuse: Refuse) -> tuple[int, ...]:
    """Read the widths of layers from a policy's description.

    Args:
        network: The description's `network`.
        key: The name of the widths in it.
        least: How many there must be.
        refuse: Raises an error that gives a reason.
    """
    sizes = network.get(key)
    if not isinstance(sizes, list) or not least <= len(sizes) <= MAX_LAYERS:
        refuse(f"`network.{key}` must be a list of {least} to {MAX_LAYERS} widths")
    if not all(type(size) is int and 1 <= size <= MAX_WIDTH for size in sizes):
        refuse(f"`network.{key}` must be whole numbers from 1 to {MAX_WIDTH}")
    return tuple(sizes)


def mlp_tensors(deterministic: tuple[Any, str], *, absorbing: bool) -> tuple[Layout, dict[str, np.ndarray]]:
    """The shape and the tensors of a trained MLP, a `core.policies.Deterministic`."""
    network, output = deterministic
    weights = [np.asarray(w, np.float32) for w in network.weights]
    if absorbing:  # the indicator of the absorbing state is 0 wherever a policy acts
        weights[0] = weights[0][:-1]
    activation = getattr(network.activation, "__name__", "unknown")
    if activation not in ACTIVATIONS:
        known = ", ".join(ACTIVATIONS)
        raise OdiceError(f"A policy file cannot hold the activation {activation!r}; use one of {known}.")
    sizes = (weights[0].shape[0], *(w.shape[1] for w in weights))
    layers = {"weight": weights, "bias": network.biases, "scale": network.scales, "shift": network.shifts}
    tensors = {
        f"layers.{i}.{key}": np.asarray(array, np.float32)
        for key, arrays in layers.items()
        for i, array in enumerate(arrays)
    }
    return Layout(sizes, bool(network.scales), activation, output), tensors
