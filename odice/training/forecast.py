"""What a run would cost, measured before it starts: a few of its own updates are timed, and forgotten.

The estimate is of this machine as busy as it is now. It counts the updates and the start; evaluations run in a process
of their own.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterable
from typing import Any, NamedTuple

import jax

from odice.data.store import Streamed
from odice.machine import cores
from odice.training.compilation import use_cache
from odice.training.devices import choose_devices, put
from odice.training.loop import first_state, make_chunk
from odice.training.prepare import Prepared, prepare
from odice.training.progress import duration
from odice.training.settings import Settings
from odice.training.stream import StreamedChunk
from odice.types import Algo, Transitions

PROBE_SECONDS = 1.0
"""How long updates are timed."""
PROBE_UPDATES = 50
"""Updates of one timed call: as in a run, whose compiled program this one is."""
ROW_BYTES = 600
"""Of a row of metrics in its two files, about."""


class Forecast(NamedTuple):
    """The cost of a run."""

    steps: int
    rate: float
    """Updates per second."""
    start: float
    """Seconds until the first update: reading, measuring the log, compiling."""
    disk: int
    """Bytes of its folder at the end, about."""

    @property
    def seconds(self) -> float:
        return self.start + self.steps / self.rate

    def __str__(self) -> str:
        return (
            f"about {duration(self.seconds)} ({self.rate:,.0f} updates/s, start {duration(self.start)}), "
            f"{size(self.disk)} of disk"
        )


def forecast(settings: Settings) -> Forecast:
    """Prepare the data, time a few updates, write nothing."""
    began = time.perf_counter()
    prepared = prepare(settings)
    if prepared.about.evaluator:
        prepared.about.evaluator.close()
    return forecast_prepared(prepared, time.perf_counter() - began)


def forecast_prepared(prepared: Prepared, reading: float = 0.0) -> Forecast:
    """Time a few updates of a run whose data are prepared; that took `reading` seconds."""
    settings = prepared.settings
    algo = settings.algorithm.build(settings.config, prepared.spec, again=True)
    batch, length = settings.config.batch_size, settings.chunk_steps
    timed = time_updates(algo, prepared.source, batch, settings.options.devices, length)
    return Forecast(settings.options.steps or 0, timed.rate, reading + timed.start, disk(settings, timed.state))


class Timed(NamedTuple):
    """A few updates."""

    rate: float
    """Updates per second."""
    start: float
    """Seconds until the first ones were done: most of it compiles."""
    state: int
    """Bytes of the algorithm's state."""


def time_updates(
    algo: Algo,
    source: Transitions | Streamed,
    batch_size: int,
    on: int | str | None = None,
    length: int = PROBE_UPDATES,
) -> Timed:
    """Time some updates, whose results are dropped.

    Args:
        algo: The algorithm.
        source: What batches are made of.
        batch_size: Transitions per update.
        on: The devices, as `--devices` names them.
        length: Updates per compiled call.
    """
    use_cache()
    began, devices = time.perf_counter(), choose_devices(on, batch_size)
    streamed = isinstance(source, Streamed)
    chunk: Any = (StreamedChunk if streamed else make_chunk)(algo, batch_size, length, devices=devices)
    data = source if streamed else put(source, devices and devices.everywhere)
    where = devices.state(False) if devices else None
    state, step = first_state(algo, False, where)(0), 0
    kept = sum(leaf.nbytes for leaf in jax.tree.leaves(state))
    compiled, until, times = 0.0, math.inf, []
    while len(times) < 2 or time.perf_counter() < until:
        call = time.perf_counter()
        state, _ = chunk(state, data, 0, step)
        jax.block_until_ready(state)
        times.append(time.perf_counter() - call)
        if len(times) == 1:  # the first call compiles
            compiled, until = time.perf_counter() - began, time.perf_counter() + PROBE_SECONDS
        step += length
    if streamed:
        chunk.close()
    return Timed(length * (len(times) - 1) / sum(times[1:]), compiled, kept)


def disk(settings: Settings, state: int) -> int:
    """Bytes of a run's folder whose state has so many: checkpoints, policies, rows of metrics."""
    options = settings.options
    steps = options.steps or 0
    checkpoints = min(options.keep + 1, max(1, math.ceil(steps / options.checkpoint_every)))
    return checkpoints * state + 2 * state // 3 + ROW_BYTES * (steps // settings.row_steps)


def total(each: Iterable[Forecast], workers: int | None = None) -> str:
    """Several runs, so many at a time, in a sentence."""
    runs = list(each)
    workers = min(workers or cores(), max(1, len(runs)))
    seconds = max(sum(run.seconds for run in runs) / workers, max((run.seconds for run in runs), default=0.0))
    return f"about {duration(seconds)}, {workers} at a time; {size(sum(run.disk for run in runs))} of disk"


def size(count: float) -> str:
    """Bytes in words."""
    for unit, one in (("GB", 1e9), ("MB", 1e6)):
        if count >= one:
            return f"{count / one:.3g} {unit}"
    return f"{count / 1e3:.0f} kB"
