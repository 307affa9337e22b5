"""One seed of several, in a process of its own: `python -m odice.training.worker SETTINGS`."""

from __future__ import annotations

import json
import signal
import sys
import traceback

from odice.errors import exit_code
from odice.training.hosts import is_child, leave
from odice.training.processes import worker_settings
from odice.training.train import train_settings


def main(argument: str) -> int:
    """Train what `worker_command` described."""

    def work() -> None:
        train_settings(worker_settings(json.loads(argument)))

    try:
        code = exit_code(work)
    except Exception:
        traceback.print_exc()
        code = 1
    if code and is_child():
        leave(code)
    return code


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # until the run listens itself, there is nothing to save
    sys.exit(main(sys.argv[1]))
