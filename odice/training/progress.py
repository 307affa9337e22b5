"""The progress of a run: one live line in a terminal or a notebook, plain lines everywhere else."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from odice.d4rl import brief
from odice.errors import OdiceError
from odice.files import regular_file

if TYPE_CHECKING:
    from rich.live import Live

PLAIN_SECONDS = 10.0
"""Time between two plain lines."""
NOTEBOOK_SECONDS = 0.5
"""Time between two states of the line in a notebook."""
SHOWN = ("value_loss", "critic_loss", "policy_loss")


class Display:
    """Progress of one run (or of several seeds in one `vmap`, which show their first)."""

    def __init__(self, steps: int, *, quiet: bool = False):
        self._steps, self._quiet = steps, quiet
        self._opened = time.monotonic()
        self._began: tuple[float, int] | None = None
        self._printed = -PLAIN_SECONDS
        self._step, self._text, self._scores = 0, "", ""
        self._live: Live | None = None
        self._rewritten = 0
        """Length of the line that a notebook shows now."""

    def __enter__(self) -> Display:
        if not self._quiet and sys.stdout.isatty():
            self._live = live(self._line)
            self._live.__enter__()
        return self

    def __exit__(self, *exception: Any) -> None:
        if self._live is not None:
            self._live.__exit__(*exception)
            self._live = None
        self._clear()

    @property
    def rate(self) -> float:
        """Updates per second since the first chunk was done, so without compilation."""
        seconds, step = self._began or (time.monotonic(), self._step)
        return (self._step - step) / max(time.monotonic() - seconds, 1e-9)

    def tick(self, step: int) -> None:
        """Show that the run has come to this step."""
        self._step = step
        self._began = self._began or (time.monotonic(), step)
        pause = NOTEBOOK_SECONDS if (notebook := in_notebook()) else PLAIN_SECONDS
        if self._quiet or self._live is not None or time.monotonic() - self._printed < pause:
            return
        self._printed = time.monotonic()
        line = self._line()
        print(f"\r{line:<{self._rewritten}}" if notebook else line, end="" if notebook else "\n", flush=True)
        self._rewritten = len(line) if notebook else 0

    def update(self, metrics: Mapping[str, float]) -> None:
        """Show a row of metrics."""
        shown = {name: metrics[name] for name in SHOWN if name in metrics} or dict(list(metrics.items())[:2])
        self._text = "  ".join(f"{name} {value:.4g}" for name, value in shown.items())

    def scored(self, last: str, best: str) -> None:
        """Show the last and the best evaluation."""
        self._scores = f"{last} (best {best})"

    def note(self, text: str) -> None:
        """Print a sentence that stays on the screen."""
        if self._quiet:
            return
        if self._live is not None:
            self._live.console.print(text, markup=False, highlight=False)
        else:
            self._clear()
            print(text, flush=True)

    def warn(self, text: str) -> None:
        """Print a sentence that stays on the screen, also with --quiet."""
        if self._quiet:
            print(text, file=sys.stderr, flush=True)
        else:
            self.note(text)

    def _line(self) -> str:
        if self._began is None:
            return f"reading the data, compiling ... {duration(time.monotonic() - self._opened)}"
        seconds, first = self._began
        if self._step == first:  # nothing to tell a rate from yet
            speed = f"ready after {duration(seconds - self._opened)}"
        else:
            speed = f"{self.rate:,.0f} updates/s  {duration((self._steps - self._step) / self.rate)} left"
        head = f"step {self._step:,}/{self._steps:,}  {speed}"
        return "  ".join(part for part in (head, self._scores, self._text) if part)

    def _clear(self) -> None:
        """Take back the line of a notebook, so that what is printed next stands alone."""
        if self._rewritten:
            print("\r" + " " * self._rewritten + "\r", end="", flush=True)
            self._rewritten = 0


def in_notebook() -> bool:
    """Whether this process is a Jupyter kernel, whose cells can rewrite a line."""
    return "ipykernel" in sys.modules


def live(line: Callable[[], str]) -> Live:
    """A line at the bottom of the terminal, made anew four times a second; what is printed stands above it."""
    from rich.console import Console
    from rich.live import Live
    from rich.text import Text

    render = lambda: Text(line(), no_wrap=True, overflow="ellipsis")
    # Its own console: rich's shared one keeps what it thought of the output when it was first used.
    return Live(get_renderable=render, console=Console(), refresh_per_second=4, transient=True)


def seeds_line(folders: Sequence[Path], steps: int) -> str:
    """How far the seeds are that other processes train, as their folders tell."""
    parts = []
    for folder in folders:
        step = last_row(folder / "metrics.jsonl").get("step")
        done = "done" if (folder / "result.json").exists() else f"{step:,}/{steps:,}" if step else "starting"
        row = last_row(folder / "evaluations.jsonl")
        kind, score = ("return", row.get("mean")) if row.get("score") is None else ("score", row["score"])
        parts.append(f"{folder.name} {done}" + (f" {kind} {brief(score)}" if isinstance(score, float) else ""))
    return "   ".join(parts)


def last_row(file: Path, tail: int = 1 << 16) -> dict[str, Any]:
    """The last complete row of a JSONL file that may be growing; empty if there is none."""
    try:
        with regular_file(file, links=False) as handle:  # a pipe would stop the display
            handle.seek(max(0, handle.seek(0, os.SEEK_END) - tail))
            lines = handle.read().split(b"\n")[:-1]
            row = json.loads(lines[-1]) if lines else {}
    except (OdiceError, OSError, ValueError, RecursionError):
        return {}
    return row if isinstance(row, dict) else {}


def duration(seconds: float) -> str:
    """A time as text, such as 3m07s or 2h15m."""
    minutes, second = divmod(int(seconds), 60)
    hours, minute = divmod(minutes, 60)
    return f"{hours}h{minute:02d}m" if hours else f"{minute}m{second:02d}s"
