"""d3rlpy's FQE on the logs and policies of `benchmarks/ope.py`, in an environment of its own that has d3rlpy.

    /path/of/venv/bin/python benchmarks/ope_d3rlpy.py OUT LOG/POLICY LOG/POLICY ... --updates 2000

d3rlpy evaluates its own algorithms only, so one is made whose `predict_best_action` is the policy itself. What it gets:
standardized observations, and networks, learning rate and pace of the target as odice's FQE (64-64, 1e-3, a new target
every 20 updates), because with its own (256-256, 1e-4, 100) few updates leave Q near 0. The batches are drawn once per
log and used in turn, which saves a third of the time.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

import d3rlpy
import numpy as np
import torch

torch.set_num_threads(1)
POOL, BATCH = 500, 100


class Log:
    """The log as d3rlpy wants it, and batches of it."""

    def __init__(self, path: Path):
        arrays = np.load(path)
        self.mean, self.scale = arrays["mean"].astype(np.float32), arrays["scale"].astype(np.float32)
        self.discrete = int(arrays["choices"]) > 0
        standard = ((arrays["observations"] - self.mean) / self.scale).astype(np.float32)
        names = ("actions", "rewards", "terminals", "timeouts")
        kinds = (
            {}
            if not self.discrete
            else {"action_space": d3rlpy.ActionSpace.DISCRETE, "action_size": int(arrays["choices"])}
        )
        self.data = d3rlpy.dataset.MDPDataset(standard, *(arrays[name] for name in names), **kinds)
        self.first = ((arrays["first"] - self.mean) / self.scale).astype(np.float32)
        np.random.seed(0)  # noqa: NPY002  (d3rlpy draws with it)
        self.batches = [self.data.sample_transition_batch(BATCH) for _ in range(POOL)]
        kind = d3rlpy.algos.DQNConfig if self.discrete else d3rlpy.algos.TD3Config
        self.algo = kind().create()
        self.algo.build_with_dataset(self.data)


def policy_of(path: Path, log: Log):
    """The policy's network in torch: standardized observations in, the log's actions out."""
    arrays = np.load(path)
    tensor = lambda name: torch.tensor(np.asarray(arrays[name], np.float32))
    layers = [(tensor(f"w{i}"), tensor(f"b{i}")) for i in range(sum(key.startswith("w") for key in arrays))]
    own_mean, own_scale, low, high = (tensor(name) for name in ("mean", "scale", "low", "high"))
    log_mean, log_scale, output = torch.tensor(log.mean), torch.tensor(log.scale), str(arrays["output"])

    def act(x: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            x = (x * log_scale + log_mean - own_mean) / own_scale
            for weight, bias in layers[:-1]:
                x = torch.relu(x @ weight + bias)
            x = x @ layers[-1][0] + layers[-1][1]
            if output == "argmax":
                return x.argmax(-1)
            x = torch.tanh(x) if output == "tanh" else x.clip(-1, 1)
            return x if not low.numel() else low + (x + 1) / 2 * (high - low)

    return act


def judge(log: Log, act, updates: int) -> float:
    log.algo.impl.predict_best_action = act
    encoder = d3rlpy.models.encoders.VectorEncoderFactory(hidden_units=[64, 64])
    settings = {"learning_rate": 1e-3, "batch_size": BATCH, "target_update_interval": 20, "encoder_factory": encoder}
    kind = d3rlpy.ope.DiscreteFQE if log.discrete else d3rlpy.ope.FQE
    fqe = kind(algo=log.algo, config=d3rlpy.ope.FQEConfig(gamma=0.99, **settings))
    fqe.build_with_dataset(log.data)
    for number in range(updates):
        fqe.update(log.batches[number % POOL])
    action = act(torch.tensor(log.first)).numpy()
    return float(np.mean(fqe.predict_value(log.first, action)))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("out", type=Path)
    parser.add_argument("pairs", nargs="+")
    parser.add_argument("--updates", type=int, required=True)
    args = parser.parse_args()
    logs: dict[str, Log] = {}
    for pair in args.pairs:
        name, label = pair.split("/")
        file = args.out / name / "d3rlpy" / f"{label}.json"
        if file.exists():
            continue
        folder = args.out / name / "arrays"
        if name not in logs:
            logs = {name: Log(folder / "log.npz")}
        began = time.process_time()
        torch.manual_seed(0)
        mean = judge(logs[name], policy_of(folder / f"{label}.npz", logs[name]), args.updates)
        found = {"mean": mean, "updates": args.updates, "seconds": time.process_time() - began}
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(found))
        print(pair, found, flush=True)


if __name__ == "__main__":
    main()
