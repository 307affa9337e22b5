"""Read damaged Parquet files in a process of their own, and count how often the decoder takes the process with it.

    python benchmarks/parquet_damage.py --files 3000

One to three bits, words or stretches of a small valid file are damaged, and it is read with `odice.load`. A data set or
one sentence is fine, another exception is a traceback, and a death is a signal inside polars, which nothing in Python
can catch.
"""

from __future__ import annotations

import argparse
import random
import subprocess
import sys
import tempfile
import warnings
from collections import Counter
from pathlib import Path

import numpy as np
import polars as pl

ROWS = 24


def write(folder: Path) -> list[Path]:
    """Valid files of every kind of column that a log may have, and of records, which it may not."""
    rng = np.random.default_rng(0)
    obs, action = rng.normal(size=(ROWS, 3)).astype(np.float32), rng.uniform(-1, 1, ROWS).astype(np.float32)
    rest = {"action": action, "reward": obs[:, 0], "terminated": np.arange(ROWS) % 8 == 7}
    flat = pl.DataFrame({**{f"obs_{i}": obs[:, i] for i in range(3)}, **rest})
    records = [{"a": row.tolist(), "b": i} for i, row in enumerate(obs)]
    frames = {
        "flat": (flat, "zstd"),
        "plain": (flat, "uncompressed"),
        "lists": (pl.DataFrame({"observation": obs.tolist(), **rest}), "zstd"),
        "arrays": (pl.DataFrame({"observation": obs, **rest}), "zstd"),
        "records": (pl.DataFrame({"observation": records, **rest}), "zstd"),
    }
    for name, (frame, compression) in frames.items():
        frame.write_parquet(folder / f"{name}.parquet", compression=compression)
    return [folder / f"{name}.parquet" for name in frames]


def damaged(whole: bytes, seed: int) -> bytes:
    rng, data = random.Random(seed), bytearray(whole)
    for _ in range(rng.randint(1, 3)):
        kind, at = rng.random(), rng.randrange(len(data))
        if kind < 0.6:
            data[at] ^= 1 << rng.randrange(8)
        elif kind < 0.8:
            data[at : at + 4] = rng.choice([b"\xff" * 4, b"\0" * 4, b"\xff\xff\xff\x7f"])
        else:
            del data[at : at + rng.randint(1, 8)]
    return bytes(data)


def work(path: Path, first: int, last: int) -> None:
    """Read the damaged files one after the other; each is announced before it is read."""
    import odice

    warnings.simplefilter("ignore")
    whole, target = path.read_bytes(), path.with_suffix(".damaged.parquet")
    for seed in range(first, last):
        target.write_bytes(damaged(whole, seed))
        print(seed, end=" ", flush=True)
        try:
            odice.load(target)
            print("read", flush=True)
        except odice.OdiceError:
            print("refused", flush=True)
        except Exception:
            print("traceback", flush=True)


def count(path: Path, files: int) -> Counter:
    kinds, first = Counter(), 0
    while first < files:
        command = [sys.executable, __file__, "--work", str(path), str(first), str(files)]
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        lines = done.stdout.splitlines()
        if not lines:
            raise SystemExit(f"{path}: the process could not start")
        kinds.update(
            line.split()[1] if len(line.split()) > 1 else f"death by signal {-done.returncode}" for line in lines
        )
        first = int(lines[-1].split()[0]) + 1
    return kinds


def count_kinds(files: int) -> dict[str, Counter]:
    """Outcomes by the kind of the file."""
    with tempfile.TemporaryDirectory(prefix="odice-parquet-") as folder:
        return {path.stem: count(path, files) for path in write(Path(folder))}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--files", type=int, default=3000, help="damaged files of each kind")
    parser.add_argument("--work", nargs=3, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.work:
        work(Path(arguments.work[0]), int(arguments.work[1]), int(arguments.work[2]))
        return 0
    outcomes = count_kinds(arguments.files)
    for name, counts in outcomes.items():
        print(f"{name:8} {dict(sorted(counts.items()))}")
    return 0 if {outcome for counts in outcomes.values() for outcome in counts} <= {"read", "refused"} else 1


if __name__ == "__main__":
    raise SystemExit(main())
