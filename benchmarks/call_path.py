"""Which functions of odice run between `odice train` and the saved policy: counted in a run of 50 updates.

    python benchmarks/call_path.py                       # packages, functions and files
    python benchmarks/call_path.py --list --algo bc      # every function too; other arguments go to `odice train`

Functions that are only called while modules of odice are imported, class bodies, comprehensions and lambdas do not
count.
"""

from __future__ import annotations

import inspect
import sys
import tempfile
import threading
from collections import defaultdict
from pathlib import Path
from types import FrameType
from typing import Any

import odice
from odice.cli.main import main

ROOT = str(Path(odice.__file__).parent) + "/"
DEFAULTS = ["--data", "bundled/hopper-replay", "--steps", "50", "--env", "none"]


def count(arguments: list[str]) -> dict[str, list[tuple[str, str]]]:
    """The file and the name of every function that was called, by package."""
    calls: dict[tuple[str, str], None] = {}

    def profile(frame: FrameType, event: str, _: Any) -> None:
        code = frame.f_code
        if (code.co_filename[len(ROOT) :], code.co_qualname) in calls:
            return
        function = code.co_flags & inspect.CO_NEWLOCALS and code.co_flags & inspect.CO_OPTIMIZED
        if event == "call" and function and code.co_filename.startswith(ROOT) and not code.co_name.startswith("<"):
            outer = frame.f_back
            while outer is not None:
                if outer.f_code.co_name == "<module>" and outer.f_code.co_filename.startswith(ROOT):
                    return
                outer = outer.f_back
            calls.setdefault((code.co_filename[len(ROOT) :], code.co_qualname))

    with tempfile.TemporaryDirectory() as folder:
        threading.setprofile(profile)
        sys.setprofile(profile)
        code = main(["train", *DEFAULTS, *arguments, "--out", f"{folder}/run", "--quiet"])
        sys.setprofile(None)
    if code:
        raise SystemExit(code)
    packages: dict[str, list[tuple[str, str]]] = defaultdict(list)
    for file, name in calls:
        packages[file.split("/")[0]].append((file, name))
    return packages


if __name__ == "__main__":
    listed = "--list" in sys.argv
    packages = count([word for word in sys.argv[1:] if word != "--list"])
    for package, functions in packages.items():
        print(f"{package:<16}{len(functions):>5} functions {len({file for file, _ in functions}):>4} files")
        for file, name in functions if listed else ():
            print(f"    {file}  {name}")
    print(f"{'all':<16}{sum(map(len, packages.values())):>5} functions")
