"""What a person sees while a run works: a live line in a terminal, plain lines everywhere else."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from typing import Any

PLAIN_SECONDS = 10.0
"""Time between two plain lines."""
SHOWN = ("value_loss", "critic_loss", "policy_loss")


class Display:
    """Progress of one run (or of several seeds in one `vmap`, which show their first)."""

    def __init__(self, steps: int, *, quiet: bool = False):
        self._steps, self._quiet = steps, quiet
        self._began: tuple[float, int] | None = None
        self._printed = -PLAIN_SECONDS
        self._step, self._text, self._scores = 0, "", ""
        self._live = None

    def __enter__(self) -> Display:
        if not self._quiet and sys.stdout.isatty():
            from rich.live import Live

            self._live = Live(refresh_per_second=4, transient=True)
            self._live.__enter__()
            self._show()
        return self

    def __exit__(self, *exception: Any) -> None:
        if self._live is not None:
            self._live.__exit__(*exception)
            self._live = None

    @property
    def rate(self) -> float:
        """Updates per second since the first chunk was done, so without compilation."""
        seconds, step = self._began or (time.monotonic(), self._step)
        return (self._step - step) / max(time.monotonic() - seconds, 1e-9)

    def tick(self, step: int) -> None:
        """The run has come this far."""
        self._step = step
        self._began = self._began or (time.monotonic(), step)
        self._show()

    def update(self, metrics: Mapping[str, float]) -> None:
        """A row of metrics is complete."""
        shown = {name: metrics[name] for name in SHOWN if name in metrics} or dict(list(metrics.items())[:2])
        self._text = "  ".join(f"{name} {value:.4g}" for name, value in shown.items())

    def scored(self, last: str, best: str) -> None:
        self._scores = f"score {last} (best {best})"

    def note(self, text: str) -> None:
        """A sentence that stays on the screen."""
        if self._quiet:
            return
        if self._live is not None:
            self._live.console.print(text, markup=False, highlight=False)
        else:
            print(text, flush=True)

    def warn(self, text: str) -> None:
        """A sentence that stays on the screen, however quiet the run."""
        if self._quiet:
            print(text, file=sys.stderr, flush=True)
        else:
            self.note(text)

    def _line(self) -> str:
        if self._began is None:
            return "reading the data, compiling ..."
        rate = self.rate
        left = _clock((self._steps - self._step) / rate) if rate > 0 else "?"
        head = f"step {self._step:,}/{self._steps:,}  {rate:,.0f} updates/s  {left} left"
        return "  ".join(part for part in (head, self._scores, self._text) if part)

    def _show(self) -> None:
        if self._quiet:
            return
        if self._live is not None:
            from rich.text import Text

            self._live.update(Text(self._line(), no_wrap=True, overflow="ellipsis"))
        elif self._began and time.monotonic() - self._printed >= PLAIN_SECONDS:
            self._printed = time.monotonic()
            print(self._line(), flush=True)


def _clock(seconds: float) -> str:
    minutes, second = divmod(int(seconds), 60)
    hours, minute = divmod(minutes, 60)
    return f"{hours}h{minute:02d}m" if hours else f"{minute}m{second:02d}s"
