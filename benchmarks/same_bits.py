"""Does a change of the code change a number? A short run of every algorithm under every preset, as hashes.

    python benchmarks/same_bits.py make before.json         # in the old checkout
    python benchmarks/same_bits.py make after.json          # in the new one: same machine and versions
    python benchmarks/same_bits.py compare before.json after.json

A row is a whole run of `odice.train`: the settings, the data as prepared, the batches, the updates. Hashed are each
metric over the run and the policy's tensors, and for every preset its settings for each data set of D4RL. `compare`
lists what differs by name, and what only one side has. Only the public API is used, so that one script reads both
checkouts (PYTHONPATH says which).

XLA compiles for the number of cores that a process may use, and two threads add numbers in another order than one. So
the runs use one core and one thread, whatever the shell allows. `make` keeps what its file has already; `--only` limits
it to some names.
"""

from __future__ import annotations

import os

os.environ["XLA_FLAGS"] = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"
os.environ["JAX_PLATFORMS"] = "cpu"
if hasattr(os, "sched_setaffinity"):
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})

import argparse
import hashlib
import json
import sys
import tempfile
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import load_file

import odice

STEPS = 30
HOPPER = "bundled/hopper-replay"
PRESETS = ("paper", "reference", "corl")
ONLINE = ("dual-sac", "sac")
UNION = ("demo-dice", "lobs-dice", "rgm", "smodice")
"""They learn from demonstrations and other data."""
DEMONSTRATION = {"imitation": True, "episode": (5, 300), "batch_size": 64}
DATA = [
    *(f"{robot}-{kind}-v2" for robot, kind in product(("hopper", "halfcheetah", "walker2d"), ("medium", "expert"))),
    *(f"{robot}-medium-{kind}-v2" for robot, kind in product(("hopper", "walker2d"), ("replay", "expert"))),
    *(f"antmaze-{maze}-v2" for maze in ("umaze", "umaze-diverse", "medium-play", "large-diverse")),
    *("pen-human-v1", "kitchen-partial-v0"),
]


def runs(discrete: str, costs: str) -> dict[str, dict[str, Any]]:
    """The arguments of `odice.train` for each named run; the files have discrete actions, and costs."""
    rows: dict[str, dict[str, Any]] = {}
    for name, entry in odice.algorithms().items():
        if name in ONLINE:
            continue
        data = costs if name == "copti-dice" else HOPPER
        if name not in UNION:
            rows[name] = {"data": data, "algo": name}
            if entry.discrete:
                rows[f"{name}, discrete"] = {"data": discrete, "algo": name}
        for preset in PRESETS:
            if settings(preset, name):
                rows[f"{name}, {preset}"] = {"data": data, "algo": name, "preset": preset}
                if entry.discrete:
                    rows[f"{name}, {preset}, discrete"] = {"data": discrete, "algo": name, "preset": preset}
        if entry.imitates:
            for preset in (None, "paper", "reference"):
                if preset is None or settings(preset, name, imitation=True):
                    more = {"suboptimal": HOPPER} if name in UNION else {}
                    rows[f"{name}, imitation, {preset}"] = {
                        "data": HOPPER, "algo": name, "preset": preset, **DEMONSTRATION, **more
                    }  # fmt: skip
    paper = {"data": HOPPER, "algo": "odice", "preset": "paper"}
    rows["odice, paper, diagnostics"] = {**paper, "diagnostics": True}
    rows["odice, paper, two seeds"] = {**paper, "seeds": 2, "parallel": "vmap"}
    return rows


def settings(preset: str, algo: str, data: str | None = None, *, imitation: bool = False) -> dict[str, Any]:
    """What a preset sets; nothing where it has no settings for the algorithm."""
    try:
        made = odice.preset(preset, algo, data, imitation=imitation)
    except odice.OdiceError:
        return {}
    return {**made.values(), **made.protocol._replace(source="")._asdict()}


def write(path: Path, *, discrete: bool) -> str:
    """Random numbers, with costs."""
    rng, size = np.random.default_rng(0), 2000
    np.savez(
        path,
        observations=rng.normal(size=(size, 4)).astype(np.float32),
        actions=rng.integers(0, 3, size) if discrete else rng.uniform(-1, 1, (size, 2)).astype(np.float32),
        rewards=rng.normal(size=size).astype(np.float32),
        terminals=np.arange(size) % 20 == 19,
        timeouts=np.zeros(size, bool),
        costs=rng.uniform(size=size).astype(np.float32),
    )
    return str(path)


def digest(given: dict[str, Any], folder: Path) -> dict[str, str]:
    """The hash of each metric of a run, and of its policies."""
    odice.train(**given, env="none", steps=STEPS, out=str(folder), quiet=True)
    columns: dict[str, list] = {}
    for path in sorted(folder.rglob("metrics.jsonl")):
        for line in path.read_text().splitlines():
            for name, value in json.loads(line).items():
                columns.setdefault(name, []).append(value)
    parts = {name: repr(values).encode() for name, values in columns.items()}
    tensors = [load_file(path) for path in sorted(folder.rglob("policy/last/policy.safetensors"))]
    parts["policy"] = b"".join(each[name].tobytes() for each in tensors for name in sorted(each))
    return {name: hashlib.sha256(part).hexdigest()[:12] for name, part in parts.items()}


def make(out: Path, only: str | None) -> None:
    rows = json.loads(out.read_text()) if out.exists() else {}
    for preset, algo, imitation in product(PRESETS, odice.algorithms(), (False, True)):
        each = {str(data): settings(preset, algo, data, imitation=imitation) for data in (None, *DATA)}
        if each["None"]:
            rows[f"settings of {algo}, {preset}{', imitation' * imitation}"] = {
                data: repr(sorted(values.items())) for data, values in each.items()
            }
    with tempfile.TemporaryDirectory() as folder:
        discrete = write(Path(folder) / "discrete.npz", discrete=True)
        costs = write(Path(folder) / "costs.npz", discrete=False)
        for name, given in runs(discrete, costs).items():
            if (only and only not in name) or (name in rows and "failed" not in rows[name]):
                continue
            try:
                rows[name] = digest(given, Path(folder) / name)
            except odice.OdiceError as error:
                rows[name] = {"failed": str(error)}
            print(f"{name:<40}{rows[name].get('policy', rows[name])}", flush=True)
            out.write_text(json.dumps(rows, indent=1) + "\n")


def compare(before: Path, after: Path) -> int:
    """Print what differs; 1 if anything that both sides have does."""
    old, new = (json.loads(path.read_text()) for path in (before, after))
    both = [name for name in old if name in new]
    differing = 0
    for name in both:
        shared = [part for part in old[name] if part in new[name]]
        other = [part for part in shared if old[name][part] != new[name][part]]
        failed = "failed" in old[name] or "failed" in new[name]
        alone = sorted(set(old[name]) ^ set(new[name]))
        if other or failed:
            print(f"{name}: {', '.join(other) or 'a run failed'} differ")
        differing += bool(other or failed)
        if alone:
            print(f"{name}: only one side has {', '.join(alone)}")
    print(f"only before: {sorted(set(old) - set(new))}\nonly after: {sorted(set(new) - set(old))}")
    print(f"{len(both) - differing} of {len(both)} rows have the same bits")
    return 1 if differing else 0


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", choices=("make", "compare"))
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("--only", help="make only the runs whose name holds this")
    args = parser.parse_args()
    sys.exit(make(args.files[0], args.only) if args.command == "make" else compare(*args.files))
