"""A sampler (`policy.sampler`) as nodes of an ONNX graph: every step written out."""

from __future__ import annotations

from typing import Any

import numpy as np

from odice.policy.policy import Policy
from odice.policy.sampler import SOLVER, Sampler


def sampler_nodes(policy: Policy, onnx: Any, observation: str) -> tuple[list[Any], dict[str, np.ndarray], str]:
    """The nodes, their constants, and the name of the action (batch, action) that they make of an observation."""
    layout = policy.layout
    assert isinstance(layout, Sampler)
    graph = _Steps(policy, layout, onnx)
    return graph.nodes, graph.constants, graph.action(observation)


class _Steps:
    """The steps of a `Sampler` as nodes in order, and the constants they use.

    Candidates are (batch, candidates, action).
    """

    def __init__(self, policy: Policy, layout: Sampler, onnx: Any):
        self.nodes: list[Any] = []
        self.constants: dict[str, np.ndarray] = {}
        self.layout, self.tensors, self._onnx = layout, policy.tensors, onnx

    def node(self, kind: str, *given: str, **attributes: Any) -> str:
        """Add a node, and return the name of its output."""
        made = f"made_{len(self.nodes)}"
        self.nodes.append(self._onnx.helper.make_node(kind, list(given), [made], **attributes))
        return made

    def constant(self, name: str, value: Any, dtype: Any = np.float32) -> str:
        """Add a constant, and return its name; the same name always has the same value."""
        self.constants[name] = np.asarray(value, dtype)
        return name

    def tensor(self, name: str) -> str:
        return self.constant(name, self.tensors[name])

    def scaled(self, x: str, name: str, k: int) -> str:
        """x times a number of the solver's table."""
        return self.node("Mul", x, self.constant(f"{name}_{k}", self.tensors["solver"][k][SOLVER.index(name)]))

    def action(self, observation: str) -> str:
        candidates = self.candidates(observation)
        if not self.layout.critic:
            return self.node("Squeeze", candidates, self.constant("candidate_axis", [1], np.int64))
        best = self.node("ArgMax", self.values(observation, candidates), axis=1, keepdims=1)
        return self.node("GatherND", candidates, best, batch_dims=1)

    def candidates(self, observation: str) -> str:
        networks = ("score", "guidance") if self.layout.guidance else ("score",)
        seen = {name: self.seen(name, observation) for name in networks}
        nothing = self.node("Mul", self.zeros(observation), self.tensor("noise"))
        x = self.node("Add", nothing, "noise")
        before = d_before = nothing
        for k in range(self.layout.steps):
            noise = self.scaled(self.forward("score", seen["score"], x, k)[-1], "sigma", k)
            d = self.node("Sub", self.scaled(x, "alpha", k), noise)
            if self.layout.guidance:
                d = self.node("Add", d, self.scaled(self.slope(seen["guidance"], x, k), "guide", k))
            kept = self.node("Add", self.scaled(x, "keep", k), self.scaled(before, "keep_before", k))
            came = self.node("Add", self.scaled(d, "new", k), self.scaled(d_before, "old", k))
            x, before, d_before = self.node("Add", kept, came), x, d
        return self.node("Clip", x, self.constant("minus_one", -1), self.constant("plus_one", 1))

    def zeros(self, observation: str) -> str:
        """(batch, 1, 1): what gives a constant the axis of the batch."""
        first = self.node("Gather", observation, self.constant("first_column", [0], np.int64), axis=1)
        zero = self.node("Sub", first, first)
        return self.node("Unsqueeze", zero, self.constant("candidate_axis", [1], np.int64))

    def seen(self, name: str, observation: str) -> str:
        """(batch, 1, width): what the first layer of a network makes of the observation."""
        product = self.node("MatMul", observation, self.tensor(f"{name}.observation"))
        return self.node("Unsqueeze", product, self.constant("candidate_axis", [1], np.int64))

    def forward(self, name: str, seen: str, x: str, k: int) -> list[str]:
        """What each layer gives before its SiLU, the output last."""
        bias = self.constant(f"{name}.layers.0.bias_{k}", self.tensors[f"{name}.layers.0.bias"][k])
        product = self.node("MatMul", x, self.tensor(f"{name}.layers.0.weight"))
        layers = [self.node("Add", product, self.node("Add", seen, bias))]
        for i in range(1, len(getattr(self.layout, name)) + 1):
            active = self.node("Mul", layers[-1], self.node("Sigmoid", layers[-1]))
            product = self.node("MatMul", active, self.tensor(f"{name}.layers.{i}.weight"))
            layers.append(self.node("Add", product, self.tensor(f"{name}.layers.{i}.bias")))
        return layers

    def slope(self, seen: str, x: str, k: int) -> str:
        """The gradient of W by the action."""
        depth, one = len(self.layout.guidance), self.constant("plus_one", 1)
        hidden = self.forward("guidance", seen, x, k)
        slope = self.constant("guidance.last", self.tensors[f"guidance.layers.{depth}.weight"][:, 0])
        for i in reversed(range(depth)):
            share = self.node("Sigmoid", hidden[i])
            bend = self.node("Mul", hidden[i], self.node("Sub", one, share))
            slope = self.node("Mul", slope, self.node("Mul", share, self.node("Add", one, bend)))
            back = self.constant(
                f"guidance.layers.{i}.back", np.ascontiguousarray(self.tensors[f"guidance.layers.{i}.weight"].T)
            )
            slope = self.node("MatMul", slope, back)
        return slope

    def values(self, observation: str, candidates: str) -> str:
        """(batch, candidates) mean Q; the networks' axis comes first on the way."""
        seen = self.node("MatMul", observation, self.tensor("critic.observation"))  # (heads, batch, width)
        seen = self.node("Unsqueeze", seen, self.constant("third_axis", [2], np.int64))
        rows = self.node("Unsqueeze", candidates, self.constant("first_axis", [0], np.int64))
        x = self.node("Add", self.node("MatMul", rows, self.stacked("critic.layers.0.weight")), seen)
        x = self.node("Add", x, self.stacked("critic.layers.0.bias"))
        for i in range(1, len(self.layout.critic) + 1):
            x = self.node("MatMul", self.node("Relu", x), self.stacked(f"critic.layers.{i}.weight"))
            x = self.node("Add", x, self.stacked(f"critic.layers.{i}.bias"))
        return self.node("ReduceMean", x, axes=[0, 3], keepdims=0)

    def stacked(self, name: str) -> str:
        """A tensor (heads, ...) of Q with an axis for the batch."""
        return self.constant(name, self.tensors[name][:, None])
