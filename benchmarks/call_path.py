"""How `odice train` gets to the saved policy: the chains of calls from `main`, in a run of 50 updates.

    python benchmarks/call_path.py                       # who calls whom on the way to each landmark
    python benchmarks/call_path.py --all --algo bc       # and every function that ran; other arguments go to the run

A landmark is where something happens: the settings are decided, the log is read, the first state is made, an update is
traced, a checkpoint and the policy are written. Counted are the functions of odice that are on the main thread's stack
when a landmark is reached, the landmark itself among them: what a person who follows the run from `main` has to read.
Comprehensions, lambdas, class bodies, and functions that run while modules are imported do not count.
"""

from __future__ import annotations

import inspect
import sys
import tempfile
from collections import defaultdict
from pathlib import Path
from types import FrameType
from typing import Any

import odice
from odice.cli.main import main

ROOT = str(Path(odice.__file__).parent) + "/"
DEFAULTS = ["--data", "bundled/hopper-replay", "--steps", "50", "--env", "none"]
LANDMARKS = {
    "settings": ("training/settings.py", "resolve"),
    "log": ("data/load.py", "load"),
    "first state": ("algos/", "init"),
    "update": ("algos/", "update"),
    "checkpoint": ("training/checkpoint.py", "Checkpoints.save"),
    "policy": ("policy/file.py", "write"),
}
"""What happens -> the start of the file, and the end of the name of the function that does it."""
Function = tuple[str, str]
"""A file and a qualified name."""


def named(frame: FrameType) -> Function | None:
    """The function of odice that a frame runs; None for anything else."""
    code = frame.f_code
    function = code.co_flags & inspect.CO_NEWLOCALS and code.co_flags & inspect.CO_OPTIMIZED
    if not function or not code.co_filename.startswith(ROOT) or code.co_name.startswith("<"):
        return None
    return code.co_filename[len(ROOT) :], code.co_qualname


def chain_to(frame: FrameType | None) -> list[Function] | None:
    """The functions of odice on the stack, `main` first; None while a module is imported."""
    chain = []
    while frame is not None:
        if frame.f_code.co_name == "<module>" and frame.f_code.co_filename.startswith(ROOT):
            return None
        if function := named(frame):
            chain.append(function)
        frame = frame.f_back
    return chain[::-1]


def landmark(function: Function) -> str | None:
    """What a function does, if it is a landmark."""
    file, name = function
    matches = lambda start, end: file.startswith(start) and (name == end or name.endswith(f".{end}"))
    return next((what for what, (start, end) in LANDMARKS.items() if matches(start, end)), None)


def trace(arguments: list[str]) -> tuple[dict[str, list[Function]], list[Function]]:
    """The first chain to each landmark, and every function that was called."""
    chains: dict[str, list[Function]] = {}
    calls: dict[Function, None] = {}

    def profile(frame: FrameType, event: str, _: Any) -> None:
        if event != "call" or (function := named(frame)) is None or function in calls:
            return
        if (chain := chain_to(frame)) is None:
            return
        calls[function] = None
        if what := landmark(function):
            chains.setdefault(what, chain)

    with tempfile.TemporaryDirectory() as folder:
        sys.setprofile(profile)
        code = main(["train", *DEFAULTS, *arguments, "--out", f"{folder}/run", "--quiet"])
        sys.setprofile(None)
    if code:
        raise SystemExit(code)
    return chains, list(calls)


def show_all(calls: list[Function]) -> None:
    packages: dict[str, list[Function]] = defaultdict(list)
    for file, name in calls:
        packages[file.split("/")[0]].append((file, name))
    for package, functions in packages.items():
        print(f"{package:<16}{len(functions):>5} functions {len({file for file, _ in functions}):>4} files")
        for file, name in functions:
            print(f"    {file}  {name}")
    print(f"{'all':<16}{len(calls):>5} functions\n")


if __name__ == "__main__":
    chains, calls = trace([word for word in sys.argv[1:] if word != "--all"])
    if "--all" in sys.argv:
        show_all(calls)
    for what, chain in chains.items():
        print(f"{what}: {len(chain)} functions deep")
        for depth, (file, name) in enumerate(chain):
            print(f"    {'  ' * depth}{file}  {name}")
    path = {function for chain in chains.values() for function in chain}
    print(f"all chains: {len(path)} functions in {len({file for file, _ in path})} files; {len(calls)} ran in all")
