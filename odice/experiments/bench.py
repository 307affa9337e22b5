"""`odice bench`: the speed of odice on this machine, as ratios that can be reproduced.

Every number comes from processes of their own: a core is chosen before JAX counts the cores, memory is a process's own,
and a start is a real start. Rates are medians over turns; quantities that are compared are measured in turns.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from odice.errors import OdiceError
from odice.machine import cores, memory

SECTIONS = {
    "updates": "updates/s and share of the matrix-multiply rate, on one core and on all",
    "seeds": "1, 2 and 5 seeds at a time, a process each",
    "start": "an `odice train` of 50 updates in a fresh process, with an empty and with a filled program cache",
    "overhead": "what logging, checkpoints and evaluations add to the updates of a run",
    "data": "10,000 to 10,000,000 transitions in memory",
    "devices": "batches divided over 1 to 8 simulated devices of one processor, and the bytes they exchange",
}
PROCESSES = {"updates": 2, "seeds": 3, "start": 3, "overhead": 1, "data": 4, "devices": 4}
"""How many each section starts, one after the other."""
ROWS = 100_000
ROW_BYTES = 4 * (17 + 6 + 1 + 1) + 9  # of `speed.made_up`
SEEDS = (1, 2, 5)
DEVICES = (1, 2, 4, 8)
SIZES = (10_000, 100_000, 1_000_000, 10_000_000)


class Measurement(NamedTuple):
    """One line of the result. `spread` is the lowest and the highest turn."""

    section: str
    what: str
    value: float
    unit: str
    spread: tuple[float, float] | None = None
    facts: dict[str, float] = {}


class Budget(NamedTuple):
    """How long each measurement may take."""

    seconds: float = 6.0
    """Of turns, per measurement."""
    length: int = 25
    """Updates per turn."""
    steps: int = 2_000
    """Updates of a run whose overhead is measured."""


def bench(
    algos: list[str], preset: str | None, sections: list[str], budget: Budget, sizes: tuple[int, ...] = SIZES
) -> Iterator[Measurement]:
    """The rows of all sections, as they come."""
    for algo in algos:
        job = {"algo": algo, "preset": preset, "rows": ROWS, "length": budget.length, "seconds": budget.seconds}
        if "updates" in sections:
            yield from updates(job)
        if "seeds" in sections:
            yield from seeds(job)
        if "data" in sections:
            yield from data(job, sizes)
        if "devices" in sections:
            yield from devices(job)
        if "overhead" in sections:
            yield from overhead(algo, preset, budget)
        if "start" in sections:
            yield from start(algo, preset)


# --- sections -------------------------------------------------------------------------------------------------------


def updates(job: dict[str, Any]) -> Iterator[Measurement]:
    """The rate of updates, on one core and on all, with its share of the matrix-multiply rate."""
    for name, core in (("one core", 0), (f"all {cores()} cores", None)):
        (result,) = measure([{**job, "core": core}])
        facts = {
            "share": _share(result),
            "MFLOP": result["operations"] / 1e6,
            "matmul GFLOP/s": statistics.median(result["matmul"]) / 1e9,
            "peak MB": result["peak"] / 1e6,
        }
        yield _row("updates", f"{job['algo']}, {name}", result["rates"], facts)


def seeds(job: dict[str, Any]) -> Iterator[Measurement]:
    """The rate of several seeds at a time, a process and a core for each."""
    first = None
    for count in SEEDS:
        results = measure([{**job, "core": number, "alone": True} for number in range(count)])
        total = [sum(rates, start=0.0) for rates in zip(*(each["rates"] for each in results), strict=False)]
        first = first or statistics.median(total)
        facts = {
            "times one seed": statistics.median(total) / first,
            "peak MB": sum(each["peak"] for each in results) / 1e6,
        }
        yield _row("seeds", f"{job['algo']}, {count} at a time", total, facts)


def data(job: dict[str, Any], sizes: tuple[int, ...]) -> Iterator[Measurement]:
    """Sizes are compared by their shares, not by their rates: they cannot take turns, for lack of memory."""
    first = None
    for rows in sizes:
        if 3 * rows * ROW_BYTES > (memory() or 8e9):
            continue  # the data, and a copy while they are made
        (result,) = measure([{**job, "core": 0, "rows": rows}])
        share = _share(result)
        first = first or share
        facts = {"share": share, "of the smallest": share / first, "peak MB": result["peak"] / 1e6}
        yield _row("data", f"{job['algo']}, {rows:,} transitions", result["rates"], facts)


def devices(job: dict[str, Any]) -> Iterator[Measurement]:
    """Simulated devices share the cores, so a division can only cost here: how much is the measurement."""
    first = None
    for count in DEVICES:
        (result,) = measure([{**job, "core": None, "alone": True, "devices": count}])
        first = first or statistics.median(result["rates"])
        facts = {
            "of one device": statistics.median(result["rates"]) / first,
            "rows each": result["batch"] / count,
            "exchanged kB": result["exchanged"] / 1e3,
            "MFLOP each": result["operations"] / count / 1e6,
        }
        yield _row("devices", f"{job['algo']}, {count} simulated", result["rates"], facts)


def overhead(algo: str, preset: str | None, budget: Budget) -> Iterator[Measurement]:
    """The time of logging, checkpoints and evaluations, relative to that of the updates between two of them."""
    (result,) = measure([{"kind": "run", "algo": algo, "preset": preset, "core": 0, "steps": budget.steps}])
    bare = result["bare"]
    yield Measurement("overhead", f"{algo}, the bare loop", 1 / bare, "updates/s")
    for what, key, every in (("a row of metrics", "row", result["row_steps"]), ("a checkpoint", "save", 10_000)):
        share = result[key] / every / bare
        yield Measurement(
            "overhead", f"{algo}, {what} every {every:,}", 100 * share, "%", None, {"seconds each": result[key]}
        )
    share = result["evaluation"] / result["eval_every"] / bare
    facts = {"seconds each": result["evaluation"]}
    what = f"{algo}, ten episodes of Hopper every {result['eval_every']:,}, on a core of their own"
    yield Measurement("overhead", what, 100 * share, "% of that core", None, facts)


def start(algo: str, preset: str | None) -> Iterator[Measurement]:
    """Seconds of an `odice train` of 50 updates, with an empty and with a filled program cache."""
    with tempfile.TemporaryDirectory() as folder:
        for what in ("empty", "filled", "filled"):
            out = Path(folder) / f"run-{time.monotonic_ns()}"
            options = ["--data", "bundled/hopper-replay", "--algo", algo, "--env", "none", "--steps", "50", "--quiet"]
            options += ["--preset", preset] if preset else []
            own = {
                "JAX_COMPILATION_CACHE_DIR": f"{folder}/programs",
                "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
            }
            command = [sys.executable, "-m", "odice.cli.main", "train", *options, "--out", str(out)]
            began = time.perf_counter()
            done = subprocess.run(command, env={**os.environ, **own}, capture_output=True, text=True)
            seconds = time.perf_counter() - began
            if done.returncode:
                raise OdiceError(f"`odice train` failed inside the benchmark: {done.stderr.strip()[-300:]}")
            yield Measurement("start", f"{algo}, cache {what}", seconds, "s")


def _share(result: dict[str, Any]) -> float:
    """Operations per second of the updates over those of plain matrix products: the median of the turns."""
    turns = zip(result["rates"], result["matmul"], strict=True)
    return statistics.median(rate * result["operations"] / matmul for rate, matmul in turns)


def _row(section: str, what: str, rates: list[float], facts: dict[str, float]) -> Measurement:
    return Measurement(section, what, statistics.median(rates), "updates/s", (min(rates), max(rates)), facts)


# --- processes ------------------------------------------------------------------------------------------------------


def measure(jobs: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Run jobs in one process each; all start to measure when the last one has compiled."""
    command = [sys.executable, "-m", "odice.experiments.bench_worker"]
    workers = [
        subprocess.Popen(
            [*command, json.dumps(job)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for job in jobs
    ]
    try:
        for worker in workers:
            _line(worker)
        for worker in workers:
            assert worker.stdin is not None
            worker.stdin.write("go\n")
            worker.stdin.flush()
        return [json.loads(_line(worker)) for worker in workers]
    finally:
        for worker in workers:
            worker.kill()
            worker.communicate()


def _line(worker: subprocess.Popen[str]) -> str:
    assert worker.stdout is not None
    assert worker.stderr is not None
    line = worker.stdout.readline()
    if not line:
        raise OdiceError(f"a process of the benchmark ended early: {worker.stderr.read().strip()[-300:]}")
    return line
