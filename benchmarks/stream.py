"""Training from disk against training in memory: updates per second, and how much memory each process held.

    python benchmarks/stream.py --gb 5 --limit-gb 1.5 --dir /tmp/odice-stream

Makes a synthetic data set of that size (HalfCheetah's dimensions) as a store, then trains O-DICE on it in two processes:
once with all data in memory, once streamed. Memory is the peak resident size of the process (VmHWM), which counts the
pages of mapped files too. The first chunk, which compiles, is not timed. Both end with the same networks, bit for bit.
"""

import argparse
import hashlib
import json
import shutil
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

OBS, ACT, EPISODE, SHARD = 17, 6, 1000, 250_000
ROW_BYTES = 4 * (OBS + ACT + 1)


def shard(seed: int):
    from odice.data.build import from_steps
    from odice.data.episodes import Meta

    rng = np.random.default_rng(seed)
    last = np.arange(SHARD) % EPISODE == EPISODE - 1
    return from_steps(
        rng.standard_normal((SHARD, OBS), np.float32),
        rng.uniform(-1, 1, (SHARD, ACT)).astype(np.float32),
        rng.standard_normal(SHARD, np.float32),
        truncated=last,
        meta=Meta(source="synthetic"),
    )


def peak_resident() -> int:
    status = Path("/proc/self/status").read_text()
    return 1024 * int(next(line for line in status.splitlines() if line.startswith("VmHWM")).split()[1])


def train(mode: str, store: Path, chunks: int, length: int, batch: int) -> dict:
    import jax

    from odice.algos import make
    from odice.data.stream import Streamed, read
    from odice.data.transitions import to_transitions
    from odice.run.loop import initial_state, make_chunk
    from odice.run.stream import StreamedChunk

    data = read(store)
    algo = make("odice", data.spec)
    if mode == "memory":
        source = jax.device_put(to_transitions(data))
        chunk = make_chunk(algo, batch, length)
    else:
        source = Streamed(data)
        chunk = StreamedChunk(algo, batch, length)
    state = initial_state(algo, data.spec, 0)
    state, _ = jax.block_until_ready(chunk(state, source, 0, 0))
    start = time.perf_counter()
    for i in range(1, chunks + 1):
        state, _ = chunk(state, source, 0, i * length)
    jax.block_until_ready(state)
    seconds = time.perf_counter() - start
    digest = hashlib.sha256(b"".join(np.asarray(leaf).tobytes() for leaf in jax.tree.leaves(state)))
    return {"updates_per_second": chunks * length / seconds, "peak": peak_resident(), "state": digest.hexdigest()}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gb", type=float, default=5.0)
    parser.add_argument("--limit-gb", type=float, default=1.5)
    parser.add_argument("--dir", type=Path, default=Path("stream-benchmark"))
    parser.add_argument("--chunks", type=int, default=20)
    parser.add_argument("--length", type=int, default=100)
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--worker", choices=("memory", "disk"), help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.worker:
        print(json.dumps(train(args.worker, args.dir / "store", args.chunks, args.length, args.batch)))
        return 0

    from odice.data.stream import write_store

    args.dir.mkdir(parents=True)
    try:
        start = time.perf_counter()
        shards = max(1, round(args.gb * 1e9 / ROW_BYTES / SHARD))
        data = write_store((shard(i) for i in range(shards)), args.dir / "store")
        print(f"{data.n_steps:,} steps, {data.nbytes / 1e9:.2f} GB, written in {time.perf_counter() - start:.0f} s")
        found = {}
        for mode in ("memory", "disk"):
            out = subprocess.run(
                [sys.executable, __file__, *sys.argv[1:], "--worker", mode], check=True, stdout=subprocess.PIPE
            )
            found[mode] = json.loads(out.stdout)
            rate, peak = found[mode]["updates_per_second"], found[mode]["peak"]
            print(
                f"{mode:>6}: {rate:7.1f} updates/s, peak resident {peak / 1e9:.2f} GB ({peak / data.nbytes:.2f} x the data)"
            )
        ratio = found["disk"]["updates_per_second"] / found["memory"]["updates_per_second"]
        same = found["disk"]["state"] == found["memory"]["state"]
        fits = found["disk"]["peak"] <= args.limit_gb * 1e9
        print(f"ratio {ratio:.2f}; same result: {same}; under {args.limit_gb} GB: {fits}")
        return 0 if same and fits and ratio >= 0.8 else 1
    finally:
        shutil.rmtree(args.dir)


if __name__ == "__main__":
    sys.exit(main())
