"""Serve an exported policy with numpy and onnxruntime alone; odice is not needed where this runs.

    odice export runs/hopper --onnx policy.onnx
    echo '[0.1, 0.2, ...]' | python serve_onnx.py policy.onnx

Reads one observation (a JSON list) or a batch (a list of lists) per line, and answers with one line: {"action": ...},
or {"error": ...} for a line it cannot use. Where the policy has a guard, "novelty" says how unlike its training data
the observation is: above 1, tell a person; above "fall_back", do something else. Normalizer, clipping and action bounds
are inside the graph.
"""

import json
import sys

import numpy as np
import onnxruntime


def load(path: str) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1  # small matrices: a second thread costs more than it brings
    return onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])


def act(session: onnxruntime.InferenceSession, observation: np.ndarray) -> dict[str, list]:
    """The outputs for one observation `(obs,)` or for a batch `(batch, obs)`: the action, and its novelty."""
    width = session.get_inputs()[0].shape[1]
    if observation.ndim not in (1, 2) or observation.shape[-1] != width or not np.isfinite(observation).all():
        raise ValueError(f"expected {width} finite numbers per observation, got an array of shape {observation.shape}")
    names = [output.name for output in session.get_outputs()]
    found = zip(names, session.run(names, {"observation": np.atleast_2d(observation)}), strict=True)
    return {name: np.asarray(array)[slice(None) if observation.ndim == 2 else 0].tolist() for name, array in found}


def main() -> None:
    if len(sys.argv) != 2:
        sys.exit("usage: python serve_onnx.py policy.onnx < observations.jsonl")
    session = load(sys.argv[1])
    known = session.get_modelmeta().custom_metadata_map
    limit = {"fall_back": float(known["fall_back"])} if "fall_back" in known else {}
    for line in sys.stdin:
        try:
            answer = act(session, np.asarray(json.loads(line), np.float32)) | limit
        except (ValueError, TypeError) as error:
            answer = {"error": str(error)}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
