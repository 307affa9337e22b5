"""The part of an ONNX graph that turns the columns of a table into an observation, and a number into a choice's name.

A column is an input of its own name: a number per row, or a word per row. NaN and the empty word are missing values.
What `odice.encoding.encode` refuses (a word that the policy does not know, a missing value where the log had none)
becomes NaN, so the graph gives no action for that row.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from odice.encoding import Column
from odice.errors import OdiceError
from odice.policy.guard import Guard

OUTPUTS = ("action", "choice", "novelty", "decision")
DECISIONS = ("act", "warn", "fall back")
UNKNOWN, MISSING = -1, -2
"""The numbers of a word that the policy does not know, and of no word."""


class Graph:
    """Nodes, constants and inputs, collected in order. Names of its own begin with `/`, so that no column has them."""

    def __init__(self, onnx: Any):
        self.nodes: list[Any] = []
        self.constants: dict[str, np.ndarray] = {}
        self.inputs: list[Any] = []
        self._onnx = onnx

    def node(self, kind: str, given: list[str], made: str = "", domain: str = "", **attributes: Any) -> str:
        """Add a node, and return the name of its output."""
        made = made or f"/{kind}_{len(self.nodes)}"
        self.nodes.append(self._onnx.helper.make_node(kind, given, [made], domain=domain, **attributes))
        return made

    def constant(self, value: Any, dtype: Any = np.float32) -> str:
        name = f"/constant_{len(self.constants)}"
        self.constants[name] = np.asarray(value, dtype)
        return name

    def column(self, column: Column) -> list[str]:
        """Add a column's input, and return the names of its numbers, each (batch, parts)."""
        name, width, proto = column["name"], column.get("width", 1), self._onnx.TensorProto
        if name in OUTPUTS or name.startswith("/"):
            raise OdiceError(f"The column {name!r:.60} has the name of an output; rename it, or export with --numbers.")
        words = column.get("values")
        shape = ["batch"] if words or "width" not in column else ["batch", width]
        kind = proto.STRING if words else proto.FLOAT
        self.inputs.append(self._onnx.helper.make_tensor_value_info(name, kind, shape))
        return self._words(column, name) if words else self._numbers(column, name, len(shape) == 1)

    def _numbers(self, column: Column, name: str, flat: bool) -> list[str]:
        """The number, or what stands for a missing one; and whether it is missing."""
        value = self.node("Unsqueeze", [name, self.constant([1], np.int64)]) if flat else name
        missing = self.node("IsNaN", [value])
        if "fill" in column:
            value = self.node("Where", [missing, self.constant(column["fill"]), value])
        if not column.get("indicator"):
            return [value]
        count = self.node("Cast", [missing], to=self._onnx.TensorProto.FLOAT)
        return [value, self.node("ReduceMin", [count], axes=[1], keepdims=1)]

    def _words(self, column: Column, name: str) -> list[str]:
        """1 for the word that it is and 0 for the others; and whether it is missing."""
        values = list(column["values"])
        number = self.node(
            "LabelEncoder",
            [name],
            domain="ai.onnx.ml",
            keys_strings=["", *values],
            values_int64s=[MISSING, *range(len(values))],
            default_int64=UNKNOWN,
        )
        number = self.node("Unsqueeze", [number, self.constant([1], np.int64)])
        missing = self.node("Equal", [number, self.constant(MISSING, np.int64)])
        refused = self.node("Equal", [number, self.constant(UNKNOWN, np.int64)])
        if not column.get("indicator"):
            refused = self.node("Or", [missing, refused])
        same = self.node("Equal", [number, self.constant(np.arange(len(values)), np.int64)])
        parts = self.node("Cast", [same], to=self._onnx.TensorProto.FLOAT)
        parts = self.node("Where", [refused, self.constant(np.nan), parts])
        if not column.get("indicator"):
            return [parts]
        return [parts, self.node("Cast", [missing], to=self._onnx.TensorProto.FLOAT)]

    def observation(self, columns: tuple[Column, ...], name: str) -> None:
        """Add all columns, and concatenate them as `name`, (batch, obs)."""
        parts = [part for column in columns for part in self.column(column)]
        self.node("Concat", parts, name, axis=1)

    def choice(self, action: str, words: tuple[str, ...]) -> None:
        """Add the output `choice`: the action's name, and no name where there is no action."""
        self.node(
            "LabelEncoder",
            [action],
            "choice",
            domain="ai.onnx.ml",
            keys_int64s=list(range(len(words))),
            values_strings=list(words),
            default_string="",
        )

    def decision(self, novelty: str, guard: Guard) -> None:
        """Add the output `decision`: `act`, `warn` or `fall back`."""
        above = [self.node("Greater", [novelty, self.constant(limit)]) for limit in (1.0, guard.fall_back)]
        warn, fall_back = (self.node("Cast", [each], to=self._onnx.TensorProto.INT64) for each in above)
        two = self.node("Mul", [fall_back, self.constant(2, np.int64)])
        number = self.node("Max", [warn, two])
        self.node(
            "LabelEncoder",
            [number],
            "decision",
            domain="ai.onnx.ml",
            keys_int64s=[0, 1, 2],
            values_strings=list(DECISIONS),
            default_string=DECISIONS[2],
        )


def random_rows(columns: tuple[Column, ...], observations: np.ndarray, seed: int = 0) -> list[dict[str, Any]]:
    """Rows to compare by: numbers as in these encoded observations, every word, and missing values; some of them are
    refused."""
    rng, rows, start = np.random.default_rng(seed), [{} for _ in observations], 0
    for column in columns:
        words, width, name = column.get("values"), column.get("width", 1), column["name"]
        for row, numbers in zip(rows, observations[:, start:], strict=True):
            luck = rng.random()
            if words:
                row[name] = None if luck < 0.05 else "?" if luck < 0.06 else str(rng.choice(words))
            elif luck < 0.05:
                row[name] = None
            else:
                row[name] = numbers[:width].tolist() if "width" in column else float(numbers[0])
        start += len(words or range(width)) + bool(column.get("indicator"))
    return rows


def feeds(columns: tuple[Column, ...], rows: list[dict[str, Any]]) -> dict[str, np.ndarray]:
    """Rows of a table as the inputs of the graph."""
    made: dict[str, np.ndarray] = {}
    for column in columns:
        values = [row[column["name"]] for row in rows]
        if column.get("values"):
            made[column["name"]] = np.array(["" if value is None else value for value in values], object)
        else:
            nothing = [np.nan] * column["width"] if "width" in column else np.nan
            made[column["name"]] = np.array([nothing if value is None else value for value in values], np.float32)
    return made
