"""How long a data set takes to load from each format, and how much memory that takes, against plain reads by h5py.

    python benchmarks/load.py --steps 1000000

A synthetic data set of Hopper's dimensions is written in every format (HDF5 as D4RL writes it, compressed); each is
loaded in a process of its own, after the imports. `plain h5py` reads the same HDF5 bytes into arrays and does nothing
else. Peak memory is what the process held at most (VmHWM) beyond what it held before loading, as a multiple of the
data's float32 size: observations, actions and rewards, each stored once.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

OBS, ACT, EPISODE = 11, 3, 1000
FORMATS = ("plain h5py", "hdf5", "npz", "parquet", "csv", "minari", "store")


def write(folder: Path, steps: int) -> None:
    import polars as pl

    from odice.data.build import from_steps
    from odice.data.meta import Meta
    from odice.data.store import write_store

    rng = np.random.default_rng(0)
    arrays = {
        "observations": rng.standard_normal((steps, OBS), np.float32),
        "actions": rng.uniform(-1, 1, (steps, ACT)).astype(np.float32),
        "rewards": rng.standard_normal(steps, np.float32),
        "terminals": np.arange(steps) % EPISODE == EPISODE // 2,
        "timeouts": np.arange(steps) % EPISODE == EPISODE - 1,
    }
    data = from_steps(
        *(arrays[name] for name in ("observations", "actions", "rewards")),
        terminated=arrays["terminals"],
        truncated=arrays["timeouts"],
        meta=Meta(source="synthetic"),
    )
    data.save(folder / "data.hdf5")
    data.save(folder / "data.parquet")
    data.save(folder / "data-v0", "minari")
    np.savez(folder / "data.npz", **arrays)
    pl.read_parquet(folder / "data.parquet").write_csv(folder / "data.csv")
    write_store(data, folder / "data.store")


def memory(field: str) -> int:
    status = Path("/proc/self/status").read_text()
    return 1024 * int(next(line for line in status.splitlines() if line.startswith(field)).split()[1])


def measure(format: str, folder: Path) -> dict:
    import h5py
    import minari  # noqa: F401
    import polars  # noqa: F401

    import odice
    import odice.data.readers.d4rl
    import odice.data.readers.minari
    import odice.data.readers.table
    import odice.data.store

    names = {"minari": "data-v0", "plain h5py": "data.hdf5"}
    path = folder / names.get(format, f"data.{format}")
    before = memory("VmRSS")
    start = time.perf_counter()
    if format == "plain h5py":
        with h5py.File(path) as file:
            held = [file[name][:] for name in ("observations", "actions", "rewards", "terminals", "timeouts")]
        size = sum(array.nbytes for array in held[:3])
    else:
        data = odice.load(path)
        size = 4 * data.n_steps * (OBS + ACT + 1)
    seconds = time.perf_counter() - start
    return {"seconds": seconds, "peak": (memory("VmHWM") - before) / size}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=1_000_000)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--worker", nargs=2, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.worker:
        print(json.dumps(measure(args.worker[0], Path(args.worker[1]))))
        return 0
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write(folder, args.steps)
        print(f"{args.steps:,} steps, {4 * args.steps * (OBS + ACT + 1) / 1e6:.0f} MB; best of {args.repeat}")
        for format in FORMATS:
            command = [sys.executable, __file__, "--worker", format, name]
            runs = [
                json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)
                for _ in range(args.repeat)
            ]
            best = min(runs, key=lambda run: run["seconds"])
            size = sum(f.stat().st_size for f in _files(folder, format)) / 1e6
            print(f"{format:>11}: {best['seconds']:6.2f} s, peak {best['peak']:.2f} x the data, {size:6.0f} MB on disk")
    return 0


def _files(folder: Path, format: str) -> list[Path]:
    names = {"minari": "data-v0", "plain h5py": "data.hdf5"}
    path = folder / names.get(format, f"data.{format}")
    return [Path(root, name) for root, _, names in os.walk(path) for name in names] if path.is_dir() else [path]


if __name__ == "__main__":
    sys.exit(main())
