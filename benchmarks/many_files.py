"""Many Parquet files to a store: time and peak memory, on files made here whose episodes span them.

    python benchmarks/many_files.py FOLDER [--files 100] [--rows 1000000]

Makes FOLDER/log/part-N.parquet (what is there is kept) and converts them to FOLDER/log.store. Interrupt it and run it
again: it goes on.
"""

from __future__ import annotations

import argparse
import resource
import time
import warnings
from pathlib import Path

import numpy as np
import polars as pl

KNOWN = {"observation": ("x0", "x1", "x2"), "action": "action", "reward": "reward", "episode": "episode"}
KNOWN |= {"step": "step", "terminated": "terminated", "discrete": True}
LENGTH = 97
"""Steps of an episode: no number of rows per file is a multiple of it."""


def make(folder: Path, files: int, rows: int) -> None:
    """Files of so many rows; row i of the whole log is step i mod 97 of episode i div 97."""
    folder.mkdir(parents=True, exist_ok=True)
    for number in range(files):
        place = folder / f"part-{number}.parquet"
        if place.exists():
            continue
        rng, row = np.random.default_rng(number), np.arange(number * rows, (number + 1) * rows)
        x, action = rng.standard_normal((3, rows), dtype=np.float32), rng.integers(0, 3, rows).astype(np.int8)
        columns = {"episode": (row // LENGTH).astype(np.int32), "step": (row % LENGTH).astype(np.int16)}
        columns |= {f"x{i}": x[i] for i in range(3)} | {"action": action, "reward": x[0] * (action - 1)}
        pl.DataFrame({**columns, "terminated": row % LENGTH == LENGTH - 1}).write_parquet(place)


def main() -> None:
    from odice.data.store import make_store

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--files", type=int, default=100)
    parser.add_argument("--rows", type=int, default=1_000_000)
    args = parser.parse_args()
    make(args.folder / "log", args.files, args.rows)
    warnings.simplefilter("ignore")  # the last episode is cut by the end of the log
    wall, processor = time.perf_counter(), time.process_time()
    store = make_store(str(args.folder / "log/*.parquet"), args.folder / "log.store", **KNOWN)
    seconds = f"{time.perf_counter() - wall:.0f} s, processor {time.process_time() - processor:.0f} s"
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3
    print(f"{store.n_steps:,} rows, {store.n_episodes:,} episodes: {seconds}, peak {peak:,.0f} MB")


if __name__ == "__main__":
    main()
