"""Does a change of the code change a number? One short run of every algorithm, as hashes of its metrics and its policy.

    python benchmarks/same_bits.py make before.json         # in the old checkout
    python benchmarks/same_bits.py make after.json          # in the new one: same machine, versions and cores
    python benchmarks/same_bits.py compare before.json after.json

Hashed are the values of `metrics.jsonl` (sorted within a row, so that a metric may be renamed) and the tensors of the
policy. Each run is a process of its own, pinned to one core.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

STEPS = 60
HOPPER = "bundled/hopper-replay"
REWARD = ("odice", "sdice", "vdice-true", "optidice", "fdvl", "sql", "eql", "iql", "cql", "td3-bc", "bc", "bc-10")
DISCRETE = ("odice", "iql", "sql", "eql", "cql", "bc")
DEMONSTRATIONS = ("odice", "bc", "value-dice", "iq-learn", "oq-dice")
MIXED = ("demo-dice", "smodice")


def runs(discrete: str) -> dict[str, list[str]]:
    """Name of a run -> its command, without `odice`."""
    train = lambda data, algo: ["train", "--data", data, "--algo", algo, "--env", "none"]
    imitate = lambda algo: [
        "imitate",
        "--data",
        HOPPER,
        "--algo",
        algo,
        "--env",
        "none",
        "--episode",
        "5",
        "300",
        "--batch-size",
        "64",
    ]
    found = {f"{algo}": train(HOPPER, algo) for algo in REWARD}
    found |= {f"{algo}, reference": [*train(HOPPER, algo), "--preset", "reference"] for algo in ("odice", "iql")}
    found |= {f"{algo}, discrete": train(discrete, algo) for algo in DISCRETE}
    found |= {f"{algo}, imitation": imitate(algo) for algo in DEMONSTRATIONS}
    found |= {f"{algo}, imitation": [*imitate(algo), suboptimal(), HOPPER] for algo in MIXED}
    return found


def suboptimal() -> str:
    return os.environ.get("SUBOPTIMAL", "--suboptimal")


def write_discrete(path: Path) -> str:
    rng = np.random.default_rng(0)
    n = 2000
    np.savez(
        path,
        observations=rng.normal(size=(n, 4)).astype(np.float32),
        actions=rng.integers(0, 3, n),
        rewards=rng.normal(size=n).astype(np.float32),
        terminals=np.arange(n) % 20 == 19,
        timeouts=np.zeros(n, bool),
    )
    return str(path)


def digest(run: Path) -> str:
    from safetensors.numpy import load_file

    found = hashlib.sha256()
    for line in (run / "metrics.jsonl").read_text().splitlines():
        found.update(json.dumps(sorted(str(value) for value in json.loads(line).values())).encode())
    for name, tensor in sorted(load_file(run / "policy" / "last" / "policy.safetensors").items()):
        found.update(name.encode() + tensor.tobytes())
    return found.hexdigest()[:16]


def make(out: Path, core: int) -> None:
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        for name, command in runs(write_discrete(Path(folder) / "discrete.npz")).items():
            run = Path(folder) / name
            command += ["--steps", str(STEPS), "--out", str(run), "--quiet"]
            done = subprocess.run(
                ["taskset", "-c", str(core), sys.executable, "-m", "odice.cli.main", *command],
                capture_output=True,
                text=True,
            )
            found[name] = digest(run) if done.returncode == 0 else f"failed: {done.stderr.strip()[-200:]}"
            print(f"{name:<24}{found[name]}", flush=True)
    out.write_text(json.dumps(found, indent=1) + "\n")


def compare(before: Path, after: Path) -> int:
    old, new = (json.loads(path.read_text()) for path in (before, after))
    other = [name for name in old if old[name] != new.get(name)]
    for name in other:
        print(f"{name}: {old[name]} before, {new.get(name)} after")
    print(f"{len(old) - len(other)} of {len(old)} runs have the same bits")
    return 1 if other else 0


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", choices=("make", "compare"))
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("--core", type=int, default=0, help="the core that the runs are pinned to")
    args = parser.parse_args()
    sys.exit(make(args.files[0], args.core) if args.command == "make" else compare(*args.files))
