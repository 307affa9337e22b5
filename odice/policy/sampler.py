"""A policy that makes its action from noise (`core.diffusion`), in numpy: several networks and a solver's table.

Candidates start as the draws of noise that are stored, the same for every observation, so that an action is a function
of the observation. In step k

    D = alpha_k x - sigma_k v(s, x) + guide_k grad_x W(s, x)
    x <- keep_k x + keep_before_k x_before + new_k D + old_k D_before

and of the candidates, clipped to the action box, the one with the largest mean Q is taken. What the networks see of the
time is the same for every observation too: it is in the biases of their first layer, a row for each step.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from odice.errors import OdiceError
from odice.policy.layout import MAX_WIDTH, Layout, Refuse, Shapes, Tensors, read_mlp, read_widths

KIND = "sampler"
SOLVER = ("alpha", "sigma", "keep", "keep_before", "new", "old", "guide")
"""The numbers of a step."""
LIMITS = {"observation": MAX_WIDTH, "action": 1 << 12, "steps": 1000, "candidates": 1 << 12, "heads": 1 << 10}
ROWS = 1 << 14
"""Observations times candidates that are computed at a time."""


class Sampler(NamedTuple):
    """The shapes of the networks, and how many steps and candidates there are."""

    observation: int
    action: int
    steps: int
    candidates: int
    heads: int
    """Networks of Q."""
    score: tuple[int, ...]
    """Widths of the hidden layers."""
    guidance: tuple[int, ...]
    """Empty where there is no guidance."""
    critic: tuple[int, ...]
    """Empty where there is one candidate."""

    @property
    def version(self) -> int:
        """The version of the format that describes it."""
        return 3

    @property
    def obs_dim(self) -> int:
        return self.observation

    @property
    def action_dim(self) -> int:
        return self.action

    @property
    def output(self) -> str:
        return "clip"

    @property
    def shapes(self) -> Shapes:
        """The tensors: of a first layer the part that takes the observation, the part that takes the action, and the
        biases."""
        shapes: Shapes = {"noise": (self.candidates, self.action), "solver": (self.steps, len(SOLVER))}
        shapes |= _network("score", self, self.score, self.action, (), (self.steps,))
        if self.guidance:
            shapes |= _network("guidance", self, self.guidance, 1, (), (self.steps,))
        if self.critic:
            shapes |= _network("critic", self, self.critic, 1, (self.heads,), (self.heads, 1))
        return shapes

    @property
    def words(self) -> str:
        """For the model card."""
        width = lambda sizes: " - ".join(map(str, sizes))
        guided = f", guided by a network of {width(self.guidance)}" if self.guidance else ""
        chosen = f"; of {self.candidates} candidates the one with the largest Q" if self.critic else ""
        return (
            f"diffusion: {self.steps} steps with a score network of {width(self.score)}{guided}{chosen}; noise is "
            "stored, so one observation always gets one action"
        )

    def describe(self) -> dict[str, Any]:
        """Return its entry in `policy.json`."""
        lists = {name: list(value) for name, value in self._asdict().items() if isinstance(value, tuple)}
        return {"kind": KIND, **self._asdict(), **lists}

    def outputs(self, x: np.ndarray, tensors: Tensors) -> np.ndarray:
        """The action for observations (..., obs) that are normalized already."""
        rows = x.reshape(-1, x.shape[-1])
        size = max(1, ROWS // self.candidates)
        parts = [self._best(rows[i : i + size], tensors) for i in range(0, len(rows), size)]
        made = np.concatenate(parts) if parts else np.zeros((0, self.action), x.dtype)
        return made.reshape(*x.shape[:-1], self.action)

    def _best(self, obs: np.ndarray, tensors: Tensors) -> np.ndarray:
        actions = self.candidates_for(obs, tensors)
        if not self.critic:
            return actions[:, 0]
        best = self.values(obs, actions, tensors).argmax(axis=1)
        return actions[np.arange(len(obs)), best]

    def candidates_for(self, obs: np.ndarray, tensors: Tensors) -> np.ndarray:
        """Return (n, candidates, action) candidates for observations (n, obs)."""
        x: np.ndarray = np.broadcast_to(tensors["noise"], (len(obs), *tensors["noise"].shape))
        networks = ("score", "guidance") if self.guidance else ("score",)
        seen = {name: (obs @ tensors[f"{name}.observation"])[:, None] for name in networks}
        before = d_before = np.zeros_like(x)
        for k in range(self.steps):
            alpha, sigma, keep, keep_before, new, old, guide = tensors["solver"][k]
            d = alpha * x - sigma * _forward("score", len(self.score), seen["score"], x, k, tensors)[-1]
            if self.guidance:
                d = d + guide * self._slope(seen["guidance"], x, k, tensors)
            x, before, d_before = keep * x + keep_before * before + new * d + old * d_before, x, d
        return np.clip(x, np.float32(-1), np.float32(1))

    def _slope(self, seen: np.ndarray, x: np.ndarray, k: int, tensors: Tensors) -> np.ndarray:
        """grad_x W(s, x), by the chain rule from the last layer to the first."""
        depth = len(self.guidance)
        *hidden, _ = _forward("guidance", depth, seen, x, k, tensors)
        slope = tensors[f"guidance.layers.{depth}.weight"][:, 0]
        for i in reversed(range(depth)):
            share = _sigmoid(hidden[i])
            slope = (slope * share * (1 + hidden[i] * (1 - share))) @ tensors[f"guidance.layers.{i}.weight"].T
        return slope

    def values(self, obs: np.ndarray, actions: np.ndarray, tensors: Tensors) -> np.ndarray:
        """(n, candidates) mean Q of candidates."""
        x = obs @ tensors["critic.observation"]  # (heads, n, width)
        x = x[:, :, None] + (actions.reshape(-1, self.action) @ tensors["critic.layers.0.weight"]).reshape(
            self.heads, *actions.shape[:2], -1
        )
        x = x + tensors["critic.layers.0.bias"][:, :, None]
        for i in range(1, len(self.critic) + 1):
            x = np.maximum(x, np.float32(0)).reshape(self.heads, -1, x.shape[-1])
            x = x @ tensors[f"critic.layers.{i}.weight"] + tensors[f"critic.layers.{i}.bias"]
        return x.reshape(self.heads, *actions.shape[:2]).mean(axis=0)


def _network(name: str, layout: Sampler, hidden: tuple[int, ...], outputs: int, lead: Any, first_bias: Any) -> Shapes:
    """The tensors of a network of an observation and an action; `lead` are axes of stacked networks."""
    sizes = (layout.action, *hidden, outputs)
    shapes: Shapes = {f"{name}.observation": (*lead, layout.observation, sizes[1])}
    for i, (fan_in, fan_out) in enumerate(pairwise(sizes)):
        bias = first_bias if i == 0 else (*lead, 1) if lead else ()
        shapes |= {f"{name}.layers.{i}.weight": (*lead, fan_in, fan_out), f"{name}.layers.{i}.bias": (*bias, fan_out)}
    return shapes


def _sigmoid(x: np.ndarray) -> np.ndarray:
    return np.float32(0.5) * (1 + np.tanh(np.float32(0.5) * x))


def _forward(name: str, depth: int, seen: np.ndarray, x: np.ndarray, k: int, tensors: Tensors) -> list[np.ndarray]:
    """What each layer gives before its SiLU, the output last."""
    layers = [x @ tensors[f"{name}.layers.0.weight"] + (seen + tensors[f"{name}.layers.0.bias"][k])]
    for i in range(1, depth + 1):
        active = layers[-1] * _sigmoid(layers[-1])
        layers.append(active @ tensors[f"{name}.layers.{i}.weight"] + tensors[f"{name}.layers.{i}.bias"])
    return layers


def read_sampler(network: Mapping[str, Any], refuse: Refuse) -> Sampler:
    """Read a `Sampler` from the description in a file; refuse what is malformed or too large."""
    for key, most in LIMITS.items():
        if not (type(network.get(key)) is int and 1 <= network[key] <= most):
            refuse(f"`network.{key}` must be a whole number from 1 to {most}")
    hidden: dict[str, Any] = {key: read_widths(network, key, least, refuse) for key, least in _LEAST.items()}
    if bool(hidden["critic"]) != (network["candidates"] > 1):
        refuse("`network.critic` selects among candidates, so there is one where there are several of them")
    return Sampler(**{key: network[key] for key in LIMITS}, **hidden)


def read_network(network: Mapping[str, Any], refuse: Refuse) -> Layout | Sampler:
    """Either kind of network from its description."""
    return read_sampler(network, refuse) if network.get("kind") == KIND else read_mlp(network, refuse)


_LEAST = {"score": 1, "guidance": 0, "critic": 0}
"""Hidden layers of each network, at least; none means that there is no such network."""


def sampler_tensors(parts: Any, *, absorbing: bool) -> tuple[Sampler, dict[str, np.ndarray]]:
    """The shape and the tensors of a trained `core.diffusion.Sampler`."""
    noise, features = (np.asarray(array, np.float32) for array in (parts.noise, parts.features))
    alpha, sigma = parts.solver[:, 0], parts.solver[:, 1]
    solver = np.column_stack([parts.solver, parts.scale * sigma**2 / alpha]).astype(np.float32)
    tensors, hidden = {"noise": noise, "solver": solver}, dict.fromkeys(_LEAST, ())
    observation = 0
    for name in _LEAST:
        network = getattr(parts, name)
        if network is None:
            continue
        if not network.biases or len(network.weights) < 2 or network.scales:
            raise OdiceError(f"A policy file cannot hold this {name} network; give it a hidden layer and no LayerNorm.")
        weights, biases = (
            [np.asarray(array, np.float32) for array in arrays] for arrays in (network.weights, network.biases)
        )
        hidden[name] = tuple(bias.shape[-1] for bias in biases[:-1])
        times = features.shape[1] if name != "critic" else 0
        seen = weights[0].shape[-2] - times - noise.shape[1]
        observation = seen - absorbing  # its indicator, the last number, is 0 wherever a policy acts
        tensors[f"{name}.observation"] = weights[0][..., :observation, :]
        weights[0], of_time = (
            weights[0][..., seen : seen + noise.shape[1], :],
            weights[0][..., seen + noise.shape[1] :, :],
        )
        if name == "critic":
            biases = [bias[:, None] for bias in biases]
        else:
            biases[0] = features @ of_time + biases[0]
        tensors |= {f"{name}.layers.{i}.weight": weight for i, weight in enumerate(weights)}
        tensors |= {f"{name}.layers.{i}.bias": bias for i, bias in enumerate(biases)}
    heads = len(tensors["critic.observation"]) if hidden["critic"] else 1
    layout = Sampler(observation, noise.shape[1], len(features), len(noise), heads, **hidden)
    return layout, {name: np.ascontiguousarray(array, np.float32) for name, array in tensors.items()}
