"""ONNX: the whole policy as one graph, from raw observations to the environment's actions.

Normalizer, network, squashing, clipping and action bounds are all inside, so a server needs onnxruntime alone. So is
the guard: a second output says how unlike the training data each observation is, and an observation that is not finite
gives no action. A policy that was learned from a table takes the table's columns (`policy.onnx_table`). The graph is
compared with the policy on 10,000 observations (1,000 where the policy makes its action from noise), and on 1,000 rows
of a table, before the file appears.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from odice.action_map import half_range
from odice.encoding import encode
from odice.errors import OdiceError
from odice.files import complete_file
from odice.policy.guard import LARGE, Guard
from odice.policy.layout import LAYER_NORM_EPS, Layout, Tensors
from odice.policy.onnx_sampler import sampler_nodes
from odice.policy.onnx_table import Graph, feeds, random_rows
from odice.policy.policy import Policy
from odice.policy.sampler import Sampler

OPSET, ML_OPSET, IR_VERSION = 17, 3, 8  # the first with LayerNormalization; read by every onnxruntime since 1.12
CHECKED, CHECKED_ROWS = 10_000, 1_000
"""Observations and rows of a table that a graph is compared on."""
TOLERANCE, ROW_TOLERANCE, NOVELTY_TOLERANCE = 1e-5, 1e-4, 1e-3
_ONNX_ACTIVATION = {"relu": "Relu", "tanh": "Tanh", "elu": "Elu"}


class Parity(NamedTuple):
    """How far a graph is from its policy, in units of half the action's range."""

    difference: float
    """Largest difference between the graph's and the policy's actions."""
    rounding: float
    """Largest difference between the policy's actions in single and in double precision."""
    novelty: float = 0.0
    """Largest difference between the graph's and the guard's scores s, relative to 1 + s."""

    @property
    def allowed(self) -> float:
        """1e-5, or what single precision itself loses: a network that saturates its tanh a hundredfold loses more."""
        return max(TOLERANCE, self.rounding)


def export_onnx(policy: Policy, path: str | Path, *, numbers: bool = False) -> Parity:
    """Write the policy as an ONNX file, after comparing the graph with the policy.

    The input is `observation`, float32 (batch, obs). The output `action` is float32 (batch, act), or int64 (batch,) for
    choices; NaN, or -1, where the observation is not finite. Where the policy has a guard, the output `novelty` is
    float32 (batch,): act up to 1, fall back above the number `fall_back` of the model's metadata.

    A policy that was learned from a table takes an input per column instead, float32 or string (batch,), and also gives
    `choice`, the name of the action, and `decision` (`act`, `warn`, `fall back`).

    Args:
        policy: The policy.
        path: The file to write.
        numbers: Take `observation` also where the policy was learned from a table.

    Returns:
        How far the graph is from the policy.
    """
    model = onnx_model(policy)
    result = parity(policy, model)
    if policy.columns and not numbers:
        model = onnx_model(policy, table=True)
        if wrong := rows_apart(policy, model):
            raise OdiceError(f"The ONNX graph differs from the policy on rows ({wrong}), so {path} was not written.")
    if not result.novelty <= NOVELTY_TOLERANCE:
        raise OdiceError(
            f"The ONNX graph's novelty differs from the guard's by {result.novelty:.2g}, so {path} was not written."
        )
    if not result.difference <= result.allowed:
        raise OdiceError(
            f"The ONNX graph differs from the policy by up to {result.difference:.2g} on {compared(policy)} "
            f"observations (allowed: {result.allowed:.2g}), so {path} was not written."
        )
    try:
        with complete_file(path) as temporary:
            temporary.write_bytes(model)
    except OSError as error:
        raise OdiceError(f"{path} cannot be written: {error.strerror or error}.") from None
    return result


def onnx_model(policy: Policy, *, table: bool = False) -> bytes:
    """The policy as a serialized ONNX model, unchecked; with `table` one that takes the columns of a table."""
    onnx = _optional("onnx")
    helper, proto = onnx.helper, onnx.TensorProto
    nodes, constants = _graph(policy, onnx)
    outputs = [helper.make_tensor_value_info("novelty", proto.FLOAT, ["batch"])] if policy.guard else []
    action = (
        helper.make_tensor_value_info("action", proto.INT64, ["batch"])
        if policy.discrete
        else helper.make_tensor_value_info("action", proto.FLOAT, ["batch", policy.action_dim])
    )
    inputs = [helper.make_tensor_value_info("observation", proto.FLOAT, ["batch", policy.obs_dim])]
    domains = [helper.make_opsetid("", OPSET)]
    if table:
        nodes, constants, inputs, words = _with_columns(policy, onnx, nodes, constants)
        outputs += [helper.make_tensor_value_info(name, proto.STRING, ["batch"]) for name in words]
        domains.append(helper.make_opsetid("ai.onnx.ml", ML_OPSET))
    graph = helper.make_graph(
        nodes,
        "policy",
        inputs,
        [action, *outputs],
        [onnx.numpy_helper.from_array(array, name) for name, array in constants.items()],
    )
    model = helper.make_model(graph, opset_imports=domains, ir_version=IR_VERSION, producer_name="odice")
    known = {key: policy.about.get(key) for key in ("algorithm", "env_id")}
    known["data_fingerprint"] = (policy.about.get("data") or {}).get("fingerprint")
    if policy.guard is not None:
        known |= {"fall_back": repr(policy.guard.fall_back), "columns": ", ".join(policy.guard.names)}
    helper.set_model_props(model, {key: str(value) for key, value in known.items() if value})
    onnx.checker.check_model(model, full_check=True)
    return model.SerializeToString()


def _with_columns(policy: Policy, onnx: Any, nodes: list[Any], constants: dict[str, np.ndarray]) -> Any:
    """The graph behind columns instead of an observation, and the names of its outputs that are words.

    Its inner names get a `/` before them, so that a column may be called `zero` or `center`.
    """
    inner = {name for node in nodes for name in (*node.input, *node.output)} - {"action", "novelty"}
    for node in nodes:
        for names in (node.input, node.output):
            names[:] = [f"/{name}" if name in inner else name for name in names]
    graph = Graph(onnx)
    graph.observation(policy.columns, "/observation")
    graph.nodes += nodes
    words = []
    if policy.choices:
        graph.choice("action", policy.choices)
        words.append("choice")
    if policy.guard is not None:
        graph.decision("novelty", policy.guard)
        words.append("decision")
    constants = {f"/{name}": array for name, array in constants.items()} | graph.constants
    return graph.nodes, constants, graph.inputs, words


def _graph(policy: Policy, onnx: Any) -> tuple[list[Any], dict[str, np.ndarray]]:
    """Nodes in order, each taking what the one before gave; and the constants they use."""
    nodes: list[Any] = []
    constants: dict[str, np.ndarray] = {}
    value = "observation"

    def add(kind: str, constant: dict[str, np.ndarray] | None = None, **attributes: Any) -> None:
        nonlocal value
        constants.update(constant or {})
        made = f"{kind.lower()}_{len(nodes)}"
        nodes.append(onnx.helper.make_node(kind, [value, *(constant or {})], [made], **attributes))
        value = made

    if policy.obs_mean is not None and policy.obs_scale is not None:
        add("Sub", {"obs_mean": policy.obs_mean})
        add("Div", {"obs_scale": policy.obs_scale})
    if isinstance(policy.layout, Sampler):
        made, own, value = sampler_nodes(policy, onnx, value)
        nodes, constants = nodes + made, constants | own
    else:
        for kind, constant, attributes in _layers(policy.layout, policy.tensors):
            add(kind, constant, **attributes)
    if policy.layout.output == "argmax":
        add("ArgMax", axis=-1, keepdims=0)
    elif policy.layout.output == "tanh":
        add("Tanh")
    else:
        add("Clip", {"minus_one": np.array(-1, np.float32), "plus_one": np.array(1, np.float32)})
    if policy.action_low is not None and policy.action_high is not None:
        low, high = policy.action_low, policy.action_high
        add("Add", {"one": np.array(1, np.float32)})
        add("Mul", {"half_range": half_range(low, high)})
        add("Add", {"action_low": low})
        add("Max", {"action_floor": low})
        add("Min", {"action_ceiling": high})
    refused = np.array(-1) if policy.discrete else np.array(np.nan, np.float32)
    constants |= {"nothing": refused, "zero": np.array(0, np.float32), "last": np.array([-1])}
    broken = "broken_rows" if policy.discrete else "broken"
    checks = [
        ("IsNaN", ["observation"], "is_nan"),
        ("IsInf", ["observation"], "is_inf"),
        ("Or", ["is_nan", "is_inf"], "not_finite"),
        ("Cast", ["not_finite"], "not_finite_number"),
        ("ReduceMax", ["not_finite_number"], "any_broken"),
        ("Greater", ["any_broken", "zero"], "broken"),
        ("Squeeze", ["broken", "last"], "broken_rows"),
        ("Where", [broken, "nothing", value], "action"),
    ]
    if policy.guard is not None:
        more, own = _novelty(policy.guard)
        checks, constants = checks + more, constants | own
    nodes += [onnx.helper.make_node(kind, given, [made], **_ATTRIBUTES.get(kind, {})) for kind, given, made in checks]
    return nodes, constants


def _layers(layout: Layout, tensors: Tensors) -> Iterator[tuple[str, dict[str, np.ndarray], dict[str, Any]]]:
    """The kind, the constants and the attributes of each node of one network."""
    last = len(layout.sizes) - 2
    for i in range(last + 1):
        named = lambda *keys, i=i: {f"layers.{i}.{key}": tensors[f"layers.{i}.{key}"] for key in keys}
        yield "Gemm", named("weight", "bias"), {}
        if i < last and layout.layer_norm:
            yield "LayerNormalization", named("scale", "shift"), {"axis": -1, "epsilon": float(LAYER_NORM_EPS)}
        if i < last:
            yield _ONNX_ACTIVATION[layout.activation], {}, {}


_ATTRIBUTES: dict[str, dict[str, Any]] = {
    "Cast": {"to": 1},  # float32
    "ReduceMax": {"axes": [-1], "keepdims": 1},
    "ReduceSum": {"keepdims": 1},
    "ReduceMin": {"axes": [-1], "keepdims": 0},
}


def _novelty(guard: Guard) -> tuple[list[tuple[str, list[str], str]], dict[str, np.ndarray]]:
    """The guard's score (`policy.guard`), step by step."""
    constants = {
        "center": guard.center,
        "scale": guard.scale,
        "whiten": guard.whiten,
        "twice_states": np.ascontiguousarray(2 * guard.states.T),
        "lengths": guard.lengths,
        "large": LARGE,
        "minus_large": -LARGE,
        "warn": np.array(guard.warn, np.float32),
        "infinite": np.array(np.inf, np.float32),
    }
    steps = [
        ("Where", ["broken", "center", "observation"], "finite"),
        ("Sub", ["finite", "center"], "centered"),
        ("Div", ["centered", "scale"], "standardized"),
        ("Clip", ["standardized", "minus_large", "large"], "cut"),
        ("MatMul", ["cut", "whiten"], "white"),
        ("Mul", ["white", "white"], "white_squares"),
        ("ReduceSum", ["white_squares", "last"], "white_length"),
        ("MatMul", ["white", "twice_states"], "products"),
        ("Sub", ["white_length", "products"], "partial"),
        ("Add", ["partial", "lengths"], "squares"),
        ("ReduceMin", ["squares"], "nearest_square"),
        ("Max", ["nearest_square", "zero"], "nearest_above_0"),
        ("Sqrt", ["nearest_above_0"], "distance"),
        ("Div", ["distance", "warn"], "score"),
        ("Where", ["broken_rows", "infinite", "score"], "novelty"),
    ]
    return steps, {name: np.asarray(array, np.float32) for name, array in constants.items()}


def rows_apart(policy: Policy, model: bytes) -> str:
    """What differs between the graph of a table and the policy on 1,000 rows; nothing if they agree.

    Where the policy refuses a row the graph must give no action.
    """
    rows = random_rows(policy.columns, _observations(policy)[:CHECKED_ROWS])
    session = _session(model)
    names = [output.name for output in session.get_outputs()]
    outputs = dict(zip(names, session.run(names, feeds(policy.columns, rows)), strict=True))
    for i, row in enumerate(rows):
        try:
            obs = encode(policy.columns, row)
            policy(obs)
        except OdiceError:
            given = outputs["action"][i]
            if not (given == -1 if policy.discrete else np.isnan(given).all()):
                return f"row {i} is refused by the policy and not by the graph"
            continue
        if policy.discrete:
            values = policy.outputs(obs)
            if values.max() - values[outputs["action"][i]] > TOLERANCE:
                return f"another choice in row {i}"
            if policy.choices and outputs["choice"][i] != policy.choices[outputs["action"][i]]:
                return f"another name of the choice in row {i}"
        elif _differ(policy, obs[None], outputs["action"][i : i + 1])[0] > ROW_TOLERANCE:
            return f"another action in row {i}"
        if policy.guard is not None:
            score = policy.guard.score(obs)
            if abs(outputs["novelty"][i] - score) > NOVELTY_TOLERANCE * (1 + score):
                return f"another novelty in row {i}"
            if outputs["decision"][i] != policy.guard.decide(outputs["novelty"][i]):
                return f"another decision in row {i}"
    return ""


def _session(model: bytes) -> Any:
    runtime = _optional("onnxruntime")
    options = runtime.SessionOptions()
    options.intra_op_num_threads = 1
    return runtime.InferenceSession(model, options, providers=["CPUExecutionProvider"])


def parity(policy: Policy, model: bytes) -> Parity:
    """Compare a graph with its policy on random observations in the units of the policy's normalizer.

    For choices the difference is how much less the policy's network gives the graph's choice than its own.
    """
    session = _session(model)
    obs, exact = _observations(policy), policy.in_double()
    outputs = ["action"] if policy.guard is None else ["action", "novelty"]
    graph_action, *novelty = session.run(outputs, {"observation": obs})
    apart = 0.0
    if policy.guard is not None:
        score = policy.guard.score(obs)
        apart = _largest((novelty[0] - score) / (1 + score))
    if policy.discrete:
        values = policy.outputs(obs)
        chosen = np.take_along_axis(values, graph_action[:, None], axis=-1)[:, 0]
        return Parity(_largest(values.max(axis=-1) - chosen), _largest(values - exact.outputs(obs)), apart)
    return Parity(_largest(_differ(policy, obs, graph_action)), _largest(_differ(policy, obs, exact(obs))), apart)


def _differ(policy: Policy, obs: np.ndarray, given: np.ndarray) -> np.ndarray:
    """How far continuous actions are from the policy's, row by row, in units of half the action's range.

    Where a policy selects among candidates, rounding may select another one that is as good. Then it counts how far the
    action is from the nearest candidate, and how much less its Q is than the largest.
    """
    low, high = policy.action_low, policy.action_high
    scale = 1.0 if low is None or high is None else half_range(low, high)
    differs = np.abs((given - policy(obs)) / scale).max(axis=-1)
    rows, layout = differs > TOLERANCE, policy.layout
    if isinstance(layout, Sampler) and layout.critic and rows.any():
        seen = policy.normalized(obs[rows])
        candidates = layout.candidates_for(seen, policy.tensors)
        q = layout.values(seen, candidates, policy.tensors)
        away = np.abs((given[rows][:, None] - policy.action(candidates)) / scale).max(axis=-1)
        nearest = away.argmin(axis=1)[:, None]
        worse = q.max(axis=1) - np.take_along_axis(q, nearest, axis=1)[:, 0]
        differs[rows] = np.maximum(away.min(axis=1), worse / (1 + np.abs(q).max(axis=1)))
    return differs


def _largest(array: np.ndarray) -> float:
    return float(np.abs(array).max())


def compared(policy: Policy) -> int:
    """Return on how many observations a graph of this policy is compared with it."""
    return CHECKED_ROWS if isinstance(policy.layout, Sampler) else CHECKED  # a sampler calls its networks many times


def _observations(policy: Policy) -> np.ndarray:
    """Standard normal numbers, half of them three times as wide, around the normalizer's mean where there is one."""
    count = compared(policy)
    obs = np.random.default_rng(0).standard_normal((count, policy.obs_dim), dtype=np.float32)
    obs[count // 2 :] *= 3
    if policy.obs_mean is not None and policy.obs_scale is not None:
        obs = obs * policy.obs_scale + policy.obs_mean
    return obs


def _optional(name: str) -> Any:
    from importlib import import_module

    try:
        return import_module(name)
    except ImportError:
        raise OdiceError(f"Export needs the package {name}; install it with: pip install 'odice[onnx]'") from None
