"""Stopping in an orderly way: the first signal asks the loop to checkpoint and leave, a second one leaves at once."""

from __future__ import annotations

import os
import signal
import threading
from types import FrameType
from typing import Any

PARENT = "ODICE_PARENT"
"""Set for the workers of several seeds: a worker whose parent is gone stops as if it got a signal."""


class Stop:
    """Handles SIGTERM, SIGHUP (the terminal is gone) and Ctrl-C while a run works. Outside of the main thread, where
    Python has no signals, it only notices that its parent is gone."""

    def __init__(self):
        self.signal: int = 0
        self._before: dict[int, Any] = {}
        self._parent = int(os.environ.get(PARENT, 0))

    @property
    def requested(self) -> bool:
        """Whether the run should stop."""
        if self._parent and os.getppid() != self._parent:
            self.signal = self.signal or signal.SIGTERM
        return bool(self.signal)

    def _receive(self, number: int, frame: FrameType | None) -> None:
        if self.signal:
            raise KeyboardInterrupt
        self.signal = number

    def __enter__(self) -> Stop:
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
                if signal.getsignal(number) != signal.SIG_IGN:  # as under `nohup`
                    self._before[number] = signal.signal(number, self._receive)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
            outer = getattr(handler, "__self__", None)
            if self.signal and isinstance(outer, Stop):  # the run was over first: pass the signal on
                outer.signal = outer.signal or self.signal
