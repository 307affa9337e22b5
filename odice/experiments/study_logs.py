"""The logs of a study: D4RL's files in a folder, the local suite's, or a user's own.

Logs of the local suite have `-local` in their names, and no published number belongs to them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from odice.d4rl import REFERENCES, address, file_names
from odice.errors import OdiceError, unknown_name
from odice.experiments.studies import Study
from odice.experiments.suite import SUFFIX, SUITE, Choices, SuiteFolder
from odice.experiments.suite import chosen as suite_names
from odice.presets.imitation import TRAJECTORIES

LOCAL_EXPERTS = {"hopper-expert": "Hopper-v5", "walker2d-expert": "Walker2d-v5", "halfcheetah-expert": "HalfCheetah-v5"}
"""Experts' logs in the folder of the local suite, and their environments."""
LIKE = {
    **{f"{robot}-{kind}": f"{robot}-medium-replay-v2"
       for robot in ("hopper", "halfcheetah", "walker2d") for kind in ("medium-replay", "full-replay")},
    **{f"{robot}-{size}-diverse": f"antmaze-{size}-diverse-v2"
       for robot in ("pointmaze", "antmaze") for size in ("umaze", "medium", "large")},
    "antmaze-umaze": "antmaze-umaze-v2",
    "antmaze-medium-play": "antmaze-medium-play-v2",
}  # fmt: skip
"""Log of the suite -> the D4RL data set whose published settings it gets. The others get a preset's general ones."""


class StudyLog(NamedTuple):
    """One log of a study."""

    name: str
    """Its folder's name, and what tables call it."""
    data: str
    """What `odice train --data` takes."""
    like: str | None
    """The D4RL data set whose row of a preset holds."""
    options: Mapping[str, Any] = {}
    local: bool = False
    discrete: bool = False


def d4rl_sources(study: Study, names: Sequence[str], folder: str | Path | None) -> tuple[list[StudyLog], list[str]]:
    """The data sets of a study that are in the folder, and a sentence for each that is missing."""
    logs, missing = [], []
    for name in names or study.data:
        if name not in REFERENCES:
            raise unknown_name("D4RL data set", name, study.data)
        path = next(
            (p for each in file_names(name) if folder and (p := Path(folder).expanduser() / each).is_file()), None
        )
        if path is None:
            missing.append(how_to_get(name, folder))
        elif made := _made_here(path):
            missing.append(f"{name}: {path} is not D4RL's file but {made}; put D4RL's there")
        elif study.imitation:
            logs += [
                StudyLog(f"{name}-traj-{i + 1}", name, name, {"data_dir": str(folder), "episode": (episode,)})
                for i, episode in enumerate(TRAJECTORIES)
            ]
        else:
            logs.append(StudyLog(name, name, name, {"data_dir": str(folder)}))
    return logs, missing


def how_to_get(name: str, folder: str | Path | None) -> str:
    """Say where to download a D4RL file, and where to put it."""
    return f"{name}: download {address(name) or file_names(name)[-1]} into {folder or 'a folder (--data-dir)'}"


def _made_here(path: Path) -> str | None:
    """The history of a file that odice collected itself; None for any other file."""
    import h5py

    try:
        with h5py.File(path, "r") as file:
            attributes = json.loads(str(file.attrs.get("odice", "{}")))
    except (OSError, ValueError):
        return None  # the reader will say what is wrong with it
    history = attributes.get("history") if isinstance(attributes, dict) else None
    first = str(history[0]) if isinstance(history, list) and history else ""
    return first[:200] if first.startswith("collected in") else None


def own_log(text: str) -> tuple[str, str] | None:
    """`NAME=PATH` as the name of a log and its file; None for the name of one of the suite."""
    name, given, path = text.partition("=")
    if not given:
        return None
    if not name or not path or "/" in name:
        raise OdiceError(f"--logs takes names, or NAME=PATH for a log of yours; got {text!r}.")
    file = Path(path).expanduser()
    if not file.is_file():
        raise OdiceError(f"--logs {text}: there is no file {file}.")
    return name.removesuffix(SUFFIX), str(file)


def local_sources(names: Sequence[str], folder: Path) -> tuple[list[StudyLog], list[str]]:
    """The logs of the suite that are made, and how to make the others. A log of the user's own gets the settings of the
    D4RL data set that has its name, if there is one."""
    logs, missing = [], []
    place = SuiteFolder(folder)
    own = [log for log in map(own_log, names) if log]
    for name, path in own:
        like = f"{name}-v2" if f"{name}-v2" in REFERENCES else LIKE.get(name)
        logs.append(StudyLog(f"{name}{SUFFIX}", path, like, local=True))
    if names and len(own) == len(names):
        return logs, missing
    for name in suite_names([name for name in names if "=" not in name]):
        if place.facts(name) is None:
            missing.append(f"{name}{SUFFIX}: odice suite make {name} --out {folder}")
            continue
        discrete = isinstance(SUITE[name].recipe, Choices)
        logs.append(StudyLog(f"{name}{SUFFIX}", str(place.file(name)), LIKE.get(name), local=True, discrete=discrete))
    return logs, missing


def local_experts(names: Sequence[str], folder: Path) -> tuple[list[StudyLog], list[str]]:
    """Four trajectories of each expert's log in the suite's folder, and how to make the logs that are not there."""
    logs, missing = [], []
    for text in names or LOCAL_EXPERTS:
        name, path = own_log(text) or (text.removesuffix(SUFFIX), None)
        if path is None and name not in LOCAL_EXPERTS:
            raise unknown_name("expert's log", name, LOCAL_EXPERTS)
        file = Path(path) if path else SuiteFolder(folder).file(name)
        if file.is_file():
            logs += [
                StudyLog(f"{name}{SUFFIX}-traj-{i + 1}", str(file), f"{name}-v2", {"episode": (episode,)}, local=True)
                for i, episode in enumerate(TRAJECTORIES)
            ]
        else:
            make = f"odice data collect --env {LOCAL_EXPERTS[name]} --recipe expert --out {file}"
            missing.append(f"{name}{SUFFIX}: {make}, or put an expert's log there")
    return logs, missing
