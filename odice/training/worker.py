"""One seed of several, in a process of its own: `python -m odice.training.worker SETTINGS`; or small runs, one after
the other, which share the imports and the compiled programs: `... SETTINGS SETTINGS`."""

from __future__ import annotations

import json
import os
import signal
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from odice.errors import exit_code
from odice.files import open_owned
from odice.training.hosts import is_child, leave
from odice.training.processes import worker_settings
from odice.training.train import train_settings


def main(arguments: Sequence[str]) -> int:
    """Train what `worker_command` described; ends with the first run that does not end well."""
    for number, argument in enumerate(arguments):
        known = json.loads(argument)
        if number:
            _say_to(Path(known["log"]))
        if code := _train(known):
            return code
    return 0


def _train(known: dict[str, Any]) -> int:
    def work() -> None:
        train_settings(worker_settings(known))

    try:
        code = exit_code(work)
    except Exception:
        traceback.print_exc()
        code = 1
    if code and is_child():
        leave(code)
    return code


def _say_to(log: Path) -> None:
    """Print to the file of the next run, as the driver made this process print to the first one's."""
    sys.stdout.flush()
    sys.stderr.flush()
    log.parent.mkdir(parents=True, exist_ok=True)
    file = open_owned(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    for stream in (1, 2):
        os.dup2(file, stream)
    os.close(file)


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # until the run listens itself, there is nothing to save
    sys.exit(main(sys.argv[1:]))
