"""Training from disk against training in memory: updates per second, and how much memory each process held.

    python benchmarks/stream.py --gb 5 --limit-gb 1.5 --dir SCRATCH

Makes a synthetic data set of that size (HalfCheetah's dimensions) as a store, then trains O-DICE on it in two processes:
once with all data in memory, once streamed. Memory is the resident size of the process (VmHWM, VmRSS), which counts the
pages of mapped files and about 0.4 GB of libraries too. The first chunk, which compiles, is not timed. Both end with the same networks, bit for bit.
"""

import argparse
import hashlib
import json
import shutil
import subprocess
import sys
import time
from dataclasses import replace
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


def memory(field: str) -> int:
    status = Path("/proc/self/status").read_text()
    return 1024 * int(next(line for line in status.splitlines() if line.startswith(field)).split()[1])


def in_ram(data):
    """The data set as a reader would have made it: in memory, in arrays that the device can use in place."""
    from odice.data.build import in_memory
    from odice.data.episodes import blocks, release
    from odice.data.stream import LARGE

    copies = {}
    for name in LARGE:
        array = getattr(data, name)
        copies[name] = in_memory(name, array.shape, array.dtype.type)
        for block in blocks(len(array), array[:1].nbytes):
            copies[name][block] = array[block]
            release(array)
    return replace(data, **copies)


def train(mode: str, store: Path, chunks: int, length: int, batch: int) -> dict:
    import jax

    from odice.algos import make
    from odice.data.stream import Streamed, read
    from odice.data.transitions import to_transitions
    from odice.run.loop import initial_state, make_chunk
    from odice.run.stream import StreamedChunk

    data = read(store)
    spec = data.spec
    algo = make("odice", spec)
    if mode == "memory":
        data = in_ram(data)
        source = jax.device_put(to_transitions(data))
        del data
        chunk = make_chunk(algo, batch, length)
    else:
        source = Streamed(data)
        chunk = StreamedChunk(algo, batch, length)
    state = initial_state(algo, spec, 0)
    state, _ = jax.block_until_ready(chunk(state, source, 0, 0))
    start = time.perf_counter()
    for i in range(1, chunks + 1):
        state, _ = chunk(state, source, 0, i * length)
    jax.block_until_ready(state)
    seconds = time.perf_counter() - start
    digest = hashlib.sha256(b"".join(np.asarray(leaf).tobytes() for leaf in jax.tree.leaves(state)))
    rate = chunks * length / seconds
    return {"rate": rate, "peak": memory("VmHWM"), "at_end": memory("VmRSS"), "state": digest.hexdigest()}


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
            rate, peak, end = (found[mode][key] for key in ("rate", "peak", "at_end"))
            print(
                f"{mode:>6}: {rate:7.1f} updates/s, resident at most {peak / 1e9:.2f} GB, at the end {end / 1e9:.2f} GB "
                f"({end / data.nbytes:.2f} x the data)"
            )
        ratio = found["disk"]["rate"] / found["memory"]["rate"]
        same = found["disk"]["state"] == found["memory"]["state"]
        fits = found["disk"]["peak"] <= args.limit_gb * 1e9
        print(f"ratio {ratio:.2f}; same result: {same}; under {args.limit_gb} GB: {fits}")
        return 0 if same and fits and ratio >= 0.8 else 1
    finally:
        shutil.rmtree(args.dir)


if __name__ == "__main__":
    sys.exit(main())
