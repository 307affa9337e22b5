"""What is known about OGBench's single-task data: names, files and environments."""

from __future__ import annotations

import re
from typing import NamedTuple

HOST = "https://rail.eecs.berkeley.edu/datasets/ogbench"
_NAME = re.compile(r"([a-z0-9-]+)-([a-z]+)-(singletask(?:-task[1-5])?)-(v\d+)")
_ENV = re.compile(r"[a-z0-9-]+-singletask(-task[1-5])?-v\d+")


class Names(NamedTuple):
    """What the name of a data set stands for."""

    file: str
    env_id: str


def names_of(name: str) -> Names | None:
    """The file and the environment of a data set; None for any other name."""
    match = _NAME.fullmatch(name)
    if match is None:
        return None
    env, kind, task, version = match.groups()
    return Names(f"{env}-{kind}-{version}.npz", f"{env}-{task}-{version}")


def is_task(name: str) -> bool:
    """Whether a name is that of a single-task environment."""
    return _ENV.fullmatch(name) is not None
