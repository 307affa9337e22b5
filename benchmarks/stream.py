"""Training from disk against training in memory: updates per second, and how much memory each process held.

    python benchmarks/stream.py --gb 5 --limit-gb 1.5 --dir SCRATCH

Makes a synthetic data set of that size (HalfCheetah's dimensions) as a store, then trains O-DICE on it in two
processes: one with all data in memory, one streamed. They take turns of one chunk of updates each, so that whatever
else the machine does falls on both; a streamed turn ends when the batches of its next chunk lie ready, so that no work
is hidden between turns. The ratio is the median over turns; processor time (user + system) per update is what a busy
machine changes least.

Memory is the resident size of a process (VmHWM, VmRSS), which counts the pages of mapped files and the libraries too.
What the libraries and the compiled program take is measured by a third process that trains on almost nothing. The first
chunk, which compiles, is not timed. Both end with the same networks, bit for bit.
"""

import argparse
import hashlib
import json
import resource
import shutil
import statistics
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
    from odice.data.meta import Meta

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


def processor_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def in_ram(data):
    """The data set as a reader would have made it: in memory, in arrays that the device can use in place."""
    from odice.data.build import in_memory
    from odice.data.dataset import blocks, release

    copies = {}
    for name in ("observations", "actions", "rewards"):
        array = getattr(data, name)
        copies[name] = in_memory(name, array.shape, array.dtype.type)
        for block in blocks(len(array), array[:1].nbytes):
            copies[name][block] = array[block]
            release(array)
    return replace(data, **copies)


# --- a process that trains on request ---------------------------------------------------------------------------------


def work(mode: str, store: Path, length: int, batch: int) -> None:
    """Answer each line on standard input with one chunk of updates, and the end of it with what it came to."""
    import jax

    from odice.algos import make
    from odice.data.store import Streamed, read
    from odice.data.transitions import to_transitions
    from odice.training.loop import initial_state, make_chunk
    from odice.training.stream import StreamedChunk

    data = read(store)
    spec = data.spec
    algo = make("odice", spec)
    if mode == "disk":
        source, chunk = Streamed(data), StreamedChunk(algo, batch, length)
    else:
        source, chunk = jax.device_put(to_transitions(in_ram(data))), make_chunk(algo, batch, length)
    del data
    state = initial_state(algo, 0)

    def advance(first: int):
        after, _ = jax.block_until_ready(chunk(state, source, 0, first))
        if isinstance(chunk, StreamedChunk):
            chunk.wait()
        return after

    state, step = advance(0), length
    answer({"ready": True})
    for _ in sys.stdin:
        start, used = time.perf_counter(), processor_seconds()
        state, step = advance(step), step + length
        answer({"seconds": time.perf_counter() - start, "processor": processor_seconds() - used})
    digest = hashlib.sha256(b"".join(np.asarray(leaf).tobytes() for leaf in jax.tree.leaves(state)))
    answer({"peak": memory("VmHWM"), "at_end": memory("VmRSS"), "state": digest.hexdigest()})


def answer(facts: dict) -> None:
    print(json.dumps(facts), flush=True)


class Worker:
    def __init__(self, mode: str, store: Path, args: argparse.Namespace):
        sizes = ["--length", str(args.length), "--batch", str(args.batch)]
        self._process = subprocess.Popen(
            [sys.executable, __file__, "--worker", mode, "--dir", str(store), *sizes],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._answer()

    def turn(self) -> dict:
        self._pipe("stdin").write("go\n")
        self._pipe("stdin").flush()
        return self._answer()

    def finish(self) -> dict:
        self._pipe("stdin").close()
        line = self._answer()
        self._process.wait()
        return line

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()

    def _answer(self) -> dict:
        line = self._pipe("stdout").readline()
        if not line:
            raise SystemExit("a worker stopped; its message stands above")
        return json.loads(line)

    def _pipe(self, name: str):
        return getattr(self._process, name)


# --- the comparison ---------------------------------------------------------------------------------------------------


def compare(args: argparse.Namespace) -> bool:
    from odice.data.store import write_store

    start = time.perf_counter()
    shards = max(1, round(args.gb * 1e9 / ROW_BYTES / SHARD))
    size = write_store((shard(i) for i in range(shards)), args.dir / "store").nbytes
    print(f"{shards * SHARD:,} steps, {size / 1e9:.2f} GB, written in {time.perf_counter() - start:.0f} s")
    little = write_store(shard(0).first(EPISODE), args.dir / "little").nbytes
    alone = Worker("memory", args.dir / "little", args).finish()["at_end"] - little

    workers: dict[str, Worker] = {}
    try:
        for mode in ("memory", "disk"):
            workers[mode] = Worker(mode, args.dir / "store", args)
        turns = [{mode: worker.turn() for mode, worker in workers.items()} for _ in range(args.chunks)]
        results = {mode: worker.finish() for mode, worker in workers.items()}
    finally:
        for worker in workers.values():
            worker.kill()
    for mode in workers:
        seconds, processor = (statistics.median(turn[mode][key] for turn in turns) for key in ("seconds", "processor"))
        print(
            f"{mode:>6}: {args.length / seconds:7.1f} updates/s, {1e3 * processor / args.length:.2f} ms of processor "
            "time "
            f"per update, resident at most {results[mode]['peak'] / 1e9:.2f} GB, at the end "
            f"{results[mode]['at_end'] / 1e9:.2f} GB"
        )
    ratios = sorted(turn["memory"]["seconds"] / turn["disk"]["seconds"] for turn in turns)
    ratio, held = statistics.median(ratios), results["memory"]["at_end"]
    print(f"ratio {ratio:.2f}, from {ratios[0]:.2f} to {ratios[-1]:.2f} over {len(turns)} turns")
    print(
        f"memory: {held / size:.2f} x the data in all, {(held - alone) / size:.2f} x without the {alone / 1e9:.2f} GB "
        "that the "
        "libraries and the program take"
    )
    same = results["disk"]["state"] == results["memory"]["state"]
    fits = results["disk"]["peak"] <= args.limit_gb * 1e9
    print(f"same result: {same}; under {args.limit_gb} GB: {fits}")
    return same and fits and ratio >= 0.8


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gb", type=float, default=5.0)
    parser.add_argument("--limit-gb", type=float, default=1.5)
    parser.add_argument("--dir", type=Path, default=Path("stream-benchmark"))
    parser.add_argument("--chunks", type=int, default=20, help="turns of each process")
    parser.add_argument("--length", type=int, default=100, help="updates of a chunk")
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--worker", choices=("memory", "disk"), help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.worker:
        work(args.worker, args.dir, args.length, args.batch)
        return 0
    if args.dir.exists():
        parser.error(f"{args.dir} exists: name a folder that may be made and deleted")
    args.dir.mkdir(parents=True)
    try:
        return 0 if compare(args) else 1
    finally:
        shutil.rmtree(args.dir)


if __name__ == "__main__":
    sys.exit(main())
