"""Serve an exported policy with numpy and onnxruntime alone; odice is not needed where this runs.

    odice export runs/hopper --onnx policy.onnx
    echo '[0.1, 0.2, ...]' | python serve_onnx.py policy.onnx

Reads one observation (a JSON list) or a batch (a list of lists) per line, and answers with one line: {"action": ...},
or {"error": ...} for a line it cannot use. Normaliser, clipping and action bounds are inside the graph.
"""

import json
import sys

import numpy as np
import onnxruntime


def load(path: str) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1  # small matrices: a second thread costs more than it brings
    return onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])


def act(session: onnxruntime.InferenceSession, observation: np.ndarray) -> np.ndarray:
    """The action for one observation `(obs,)`, or the actions for a batch `(batch, obs)`."""
    width = session.get_inputs()[0].shape[1]
    if observation.ndim not in (1, 2) or observation.shape[-1] != width or not np.isfinite(observation).all():
        raise ValueError(f"expected {width} finite numbers per observation, got an array of shape {observation.shape}")
    actions = session.run(["action"], {"observation": np.atleast_2d(observation)})[0]
    return actions if observation.ndim == 2 else actions[0]


def main() -> None:
    if len(sys.argv) != 2:
        sys.exit("usage: python serve_onnx.py policy.onnx < observations.jsonl")
    session = load(sys.argv[1])
    for line in sys.stdin:
        try:
            answer = {"action": act(session, np.asarray(json.loads(line), np.float32)).tolist()}
        except (ValueError, TypeError) as error:
            answer = {"error": str(error)}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
