"""The progress of a sweep: a live table in a terminal, plain lines everywhere else, and a summary at the end."""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from odice.d4rl import brief
from odice.sweeps.driver import Attempt, Outcome, Watcher
from odice.sweeps.runs import SweepRun, result, step
from odice.training.progress import duration

REFRESH_SECONDS = 1.0
"""Time between two updates of the table."""
PLAIN_SECONDS = 30.0
"""Time between two plain lines."""


class Board(Watcher):
    """Prints what the driver does. In a terminal finished runs are only counted; failures stay on the screen."""

    def __init__(self, quiet: bool = False):
        self._quiet, self._live = quiet, None
        self._refreshed = self._printed = time.monotonic()
        self._runs: Sequence[SweepRun] = ()
        self._outcomes: Mapping[str, Outcome] = {}
        self._workers = 1
        self._speed = Speed()

    def __enter__(self) -> Board:
        if not self._quiet and sys.stdout.isatty():
            from rich.console import Console
            from rich.live import Live

            # Its own console: rich's shared one keeps what it thought of the output when it was first used.
            self._live = Live(console=Console(), refresh_per_second=2, transient=True)
            self._live.__enter__()
        return self

    def __exit__(self, *exception: Any) -> None:
        if self._live is not None:
            self._live.__exit__(*exception)
            self._live = None

    def note(self, text: str) -> None:
        """A sentence that stays on the screen."""
        if self._live is not None:
            self._live.console.print(text, markup=False, highlight=False)
        elif not self._quiet:
            print(text, flush=True)

    # --- events of the driver -----------------------------------------------------------------------------------------

    def begin(self, runs: Sequence[SweepRun], workers: int, outcomes: Mapping[str, Outcome]) -> None:
        self._runs, self._workers, self._outcomes = runs, workers, outcomes
        done = f", {len(outcomes)} of them finished already" if outcomes else ""
        self.note(f"{len(runs)} runs{done}; {workers} at a time")

    def started(self, attempt: Attempt) -> None:
        if self._live is None:
            there = f", from step {attempt.first_step:,} or before" if attempt.first_step else ""
            self.note(f"started   {attempt.run.name}{there}")

    def ended(self, attempt: Attempt, outcome: Outcome, again: bool) -> None:
        self._speed.add(attempt, time.monotonic())
        name = attempt.run.name
        if outcome.ending == "finished":
            if self._live is None:
                self.note(f"finished  {name} ({len(self._outcomes)} of {len(self._runs)})")
            return
        tail = "".join(f"\n    {line}" for line in outcome.tail.splitlines())
        self.note(f"{outcome.ending:<9} {name} ({_exit(outcome.code)}){', to be tried again' if again else ''}{tail}")

    def progress(self, running: Collection[Attempt]) -> None:
        now = time.monotonic()
        if self._quiet or now - self._refreshed < REFRESH_SECONDS:
            return
        self._refreshed = now
        if self._live is not None:
            self._live.update(self._table(running, now))
        elif now - self._printed >= PLAIN_SECONDS:
            self._printed = now
            print(self._line(running, now), flush=True)

    # --- the text -------------------------------------------------------------------------------------------------

    def _line(self, running: Collection[Attempt], now: float) -> str:
        ended = [outcome.ending for outcome in self._outcomes.values()]
        parts = [f"{ended.count('finished')} of {len(self._runs)} runs finished", f"{len(running)} running"]
        parts += [f"{ended.count(kind)} {kind}" for kind in ("diverged", "failed") if kind in ended]
        return ", ".join([*parts, f"{self._left(running, now)} left"])

    def _left(self, running: Collection[Attempt], now: float) -> str:
        open_runs = [run for run in self._runs if run.name not in self._outcomes]
        seconds = self._speed.left(open_runs, running, self._workers, now)
        return "?" if seconds is None else duration(seconds)

    def _table(self, running: Collection[Attempt], now: float) -> Any:
        from rich.console import Group
        from rich.table import Table
        from rich.text import Text

        table = Table(box=None)
        table.add_column("run", no_wrap=True, overflow="ellipsis")
        for column in ("step", "of", "updates/s"):
            table.add_column(column, justify="right", no_wrap=True)
        for attempt in running:
            at = step(attempt.run)
            rate = max(at - attempt.first_step, 0) / max(now - attempt.began, 1e-9)
            table.add_row(Text(attempt.run.name), f"{at:,}", f"{attempt.run.steps:,}", f"{rate:,.0f}" if at else "...")
        return Group(self._line(running, now), table)


def _exit(code: int) -> str:
    return f"killed by signal {-code}" if code < 0 else f"exit code {code}"


class Speed:
    """Updates per second so far, start-up included, and the time that the rest will take at that rate."""

    def __init__(self):
        self._known: dict[str, tuple[int, float]] = {}

    def add(self, attempt: Attempt, now: float) -> None:
        """Add the updates and the seconds of an attempt."""
        self._known[attempt.run.group] = _counted(self._known, attempt, now)

    def left(self, runs: Sequence[SweepRun], running: Collection[Attempt], workers: int, now: float) -> float | None:
        """Seconds until all are finished; None as long as no rate is known.

        Args:
            runs: All that are not finished. A group that has not run yet is taken to be as fast as the others.
            running: Those that are being trained.
            workers: How many at a time.
            now: The time, as `time.monotonic` tells it.
        """
        known = dict(self._known)
        for attempt in running:
            known[attempt.run.group] = _counted(known, attempt, now)
        rates = {group: updates / seconds for group, (updates, seconds) in known.items() if updates}
        if not rates:
            return None
        mean = statistics.fmean(rates.values())
        each = [(run.steps - step(run)) / rates.get(run.group, mean) for run in runs]
        return max(sum(each) / workers, max(each, default=0.0))


def _counted(known: Mapping[str, tuple[int, float]], attempt: Attempt, now: float) -> tuple[int, float]:
    updates, seconds = known.get(attempt.run.group, (0, 0.0))
    return updates + max(step(attempt.run) - attempt.first_step, 0), seconds + now - attempt.began


def summary(runs: Sequence[SweepRun]) -> str:
    """The final evaluation of every group, as the mean over the seeds that are finished."""
    lines = [("runs", "seeds", "last return", "score")]
    groups: dict[str, list[dict[str, Any] | None]] = {}
    for run in runs:
        groups.setdefault(run.group, []).append(result(run))
    for group, results in groups.items():
        done = [each for each in results if each]
        seeds = f"{len(done)}" if len(done) == len(results) else f"{len(done)} of {len(results)}"
        last = [each["last"] for each in done if each["last"]]
        returns = _mean([each["mean"] for each in last]) if last or not done else "no environment"
        lines.append((group, seeds, returns, _mean([each["score"] for each in last if "score" in each])))
    widths = [max(len(line[i]) for line in lines) for i in range(4)]
    return "\n".join(
        "  ".join(text.ljust(width) for text, width in zip(line, widths, strict=True)).rstrip() for line in lines
    )


def _mean(values: Sequence[float]) -> str:
    if not values:
        return "-"
    spread = f" ± {brief(statistics.stdev(values))}" if len(values) > 1 else ""
    return f"{brief(statistics.fmean(values))}{spread}"
