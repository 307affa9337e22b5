"""`odice bench`: how fast odice is on this machine, as ratios that anyone can repeat.

Every number comes from processes of their own: a core is chosen before JAX counts the cores, memory is a process's own,
and a start is a real start. Rates are medians over turns; what is compared takes turns.
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
    "start": "a whole `odice train` of 50 updates in a fresh process, with an empty and with a filled program cache",
    "overhead": "what logging, checkpoints and evaluations add to the updates of a run",
    "data": "10,000 to 10,000,000 transitions in memory",
}
ROWS = 100_000
ROW_BYTES = 4 * (17 + 6 + 1 + 1) + 9  # of `studies.speed.made_up`
SEEDS = (1, 2, 5)
SIZES = (10_000, 100_000, 1_000_000, 10_000_000)


class Row(NamedTuple):
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
) -> Iterator[Row]:
    """The rows of all sections, as they come."""
    for algo in algos:
        job = {"algo": algo, "preset": preset, "rows": ROWS, "length": budget.length, "seconds": budget.seconds}
        if "updates" in sections:
            yield from updates(job)
        if "seeds" in sections:
            yield from seeds(job)
        if "data" in sections:
            yield from data(job, sizes)
        if "overhead" in sections:
            yield from overhead(algo, preset, budget)
        if "start" in sections:
            yield from start(algo, preset)


# --- sections -------------------------------------------------------------------------------------------------------


def updates(job: dict[str, Any]) -> Iterator[Row]:
    for name, core in (("one core", 0), (f"all {cores()} cores", None)):
        (found,) = measure([{**job, "core": core}])
        facts = {
            "share": _share(found),
            "MFLOP": found["operations"] / 1e6,
            "matmul GFLOP/s": statistics.median(found["matmul"]) / 1e9,
            "peak MB": found["peak"] / 1e6,
        }
        yield _row("updates", f"{job['algo']}, {name}", found["rates"], facts)


def seeds(job: dict[str, Any]) -> Iterator[Row]:
    first = None
    for count in SEEDS:
        found = measure([{**job, "core": number, "alone": True} for number in range(count)])
        total = [sum(rates, start=0.0) for rates in zip(*(each["rates"] for each in found), strict=False)]
        first = first or statistics.median(total)
        facts = {
            "times one seed": statistics.median(total) / first,
            "peak MB": sum(each["peak"] for each in found) / 1e6,
        }
        yield _row("seeds", f"{job['algo']}, {count} at a time", total, facts)


def data(job: dict[str, Any], sizes: tuple[int, ...]) -> Iterator[Row]:
    """Sizes are compared by their shares, not by their rates: they cannot take turns, for lack of memory."""
    first = None
    for rows in sizes:
        if 3 * rows * ROW_BYTES > (memory() or 8e9):
            continue  # the data, and a copy while they are made
        (found,) = measure([{**job, "core": 0, "rows": rows}])
        share = _share(found)
        first = first or share
        facts = {"share": share, "of the smallest": share / first, "peak MB": found["peak"] / 1e6}
        yield _row("data", f"{job['algo']}, {rows:,} transitions", found["rates"], facts)


def overhead(algo: str, preset: str | None, budget: Budget) -> Iterator[Row]:
    """What a run does beside its updates, by the time of one, over the time of the updates between two of them."""
    (found,) = measure([{"kind": "run", "algo": algo, "preset": preset, "core": 0, "steps": budget.steps}])
    bare = found["bare"]
    yield Row("overhead", f"{algo}, the bare loop", 1 / bare, "updates/s")
    for what, key, every in (("a row of metrics", "row", found["row_steps"]), ("a checkpoint", "save", 10_000)):
        share = found[key] / every / bare
        yield Row("overhead", f"{algo}, {what} every {every:,}", 100 * share, "%", None, {"seconds each": found[key]})
    share = found["evaluation"] / found["eval_every"] / bare
    facts = {"seconds each": found["evaluation"]}
    what = f"{algo}, ten episodes of Hopper every {found['eval_every']:,}, on a core of their own"
    yield Row("overhead", what, 100 * share, "% of that core", None, facts)


def start(algo: str, preset: str | None) -> Iterator[Row]:
    with tempfile.TemporaryDirectory() as folder:
        for what in ("empty", "filled", "filled"):
            out = Path(folder) / f"run-{time.monotonic_ns()}"
            options = ["--data", "bundled/hopper-replay", "--algo", algo, "--env", "none", "--steps", "50", "--quiet"]
            options += ["--preset", preset] if preset else []
            own = {
                "JAX_COMPILATION_CACHE_DIR": f"{folder}/programs",
                "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0.2",
            }
            command = [sys.executable, "-m", "odice.cli.main", "train", *options, "--out", str(out)]
            began = time.perf_counter()
            done = subprocess.run(command, env={**os.environ, **own}, capture_output=True, text=True)
            seconds = time.perf_counter() - began
            if done.returncode:
                raise OdiceError(f"`odice train` failed inside the benchmark: {done.stderr.strip()[-300:]}")
            yield Row("start", f"{algo}, cache {what}", seconds, "s")


def _share(found: dict[str, Any]) -> float:
    """Operations per second of the updates over those of plain matrix products: the median of the turns."""
    turns = zip(found["rates"], found["matmul"], strict=True)
    return statistics.median(rate * found["operations"] / matmul for rate, matmul in turns)


def _row(section: str, what: str, rates: list[float], facts: dict[str, float]) -> Row:
    return Row(section, what, statistics.median(rates), "updates/s", (min(rates), max(rates)), facts)


# --- processes ------------------------------------------------------------------------------------------------------


def measure(jobs: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """What workers found that started measuring together: each says when it has compiled, and waits for the others."""
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
