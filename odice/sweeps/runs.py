"""The runs of a sweep: every combination of data, algorithm, settings and seed, each in a run directory.

A sweep needs no bookkeeping but the runs themselves: one is finished when its `result.json` is there and its
`config.json` is the one of this sweep. So the driver and its workers may be killed anywhere; the same command leaves
finished runs alone and continues the others from their checkpoints.

    OUT/sweep.json                        which runs there are, and with what configuration
    OUT/DATA/ALGO[-settings]/seed-N       the run directory
    OUT/DATA/ALGO[-settings]/seed-N.log   what its processes printed
"""

from __future__ import annotations

import dataclasses
import fcntl
import hashlib
import itertools
import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from odice import __version__
from odice.algos import entry
from odice.errors import OdiceError, unknown_name
from odice.files import regular_file
from odice.jsonable import jsonable
from odice.plugins import load_plugins
from odice.training.directory import RunDirectory, differences, read_record
from odice.training.options import RunOptions
from odice.training.settings import Settings, resolve

NAME_LENGTH = 120
"""Longer folder names than this end in a hash instead: systems stop at 255 bytes."""
NOT_VARIED = ("data", "algo", "seed", "seeds", "out", "config", "resume", "parallel", "quiet", "plugin")
"""Options that the sweep itself decides, or that do not belong to one run."""
OPTIONS = {field.name for field in dataclasses.fields(RunOptions)} - set(NOT_VARIED)
"""Options of a run that may differ between the runs of a sweep."""


class SweepRun(NamedTuple):
    """One run of a sweep."""

    name: str
    """Its folder below OUT: DATA/ALGO[-settings]/seed-N."""
    settings: Settings

    @property
    def path(self) -> Path:
        """Its folder."""
        return Path(self.settings.options.out or "")

    @property
    def log(self) -> Path:
        """The file with what its process prints."""
        return self.path.with_name(f"{self.path.name}.log")

    @property
    def group(self) -> str:
        """The name without the seed."""
        return self.name.rpartition("/")[0]

    @property
    def steps(self) -> int:
        return self.settings.options.steps or 0

    @property
    def identity(self) -> dict[str, Any]:
        """The configuration as far as it is known before the data are read; None where the data decide."""
        env = self.settings.options.env
        known = {**self.settings.identity(), **({} if env is None else {"env": None if env == "none" else env})}
        if self.settings.derives_chosen_share:
            known["settings"][str(self.settings.algorithm.chosen_share)] = None
        return json.loads(json.dumps(jsonable(known, words=True)))


# --- which runs -------------------------------------------------------------------------------------------------------


def make_runs(
    out: str | Path,
    data: Sequence[str],
    algos: Sequence[str],
    seeds: int = 1,
    first_seed: int = 0,
    axes: Mapping[str, Sequence[Any]] | None = None,
    **shared: Any,
) -> list[SweepRun]:
    """Every combination, with everything decided and checked.

    Args:
        out: The folder of the sweep.
        data: Names or paths, or NAME=PATH to choose the folder's name.
        algos: Names of algorithms.
        seeds: How many seeds of every combination, from `first_seed` on.
        first_seed: The first seed.
        axes: Values of run options and of settings; a setting varies the algorithms that have it.
        **shared: Run options of every run.
    """
    if not data or not algos:
        raise OdiceError("A sweep needs at least one data set (--data) and one algorithm (--algo).")
    axes = dict(axes or {})
    load_plugins(shared.get("plugin") or ())
    _check_axes(axes, algos)
    runs: dict[str, SweepRun] = {}
    for (folder, source), algo in itertools.product(map(_named, data), algos):
        own = [name for name in axes if name in OPTIONS or name in setting_names(algo)]
        for values in itertools.product(*(axes[name] for name in own)):
            chosen = dict(zip(own, values, strict=True))
            settings = resolve(source, algo=algo, **{**shared, **chosen})
            for seed in range(first_seed, first_seed + seeds):
                name = f"{folder}/{_folder(algo, chosen)}/seed-{seed}"
                options = dataclasses.replace(settings.options, seed=seed, seeds=None, out=str(Path(out) / name))
                run = SweepRun(name, settings._replace(options=options))
                other = runs.setdefault(name, run)
                if (other.settings.options.data, other.identity) != (source, run.identity):
                    raise OdiceError(
                        f"{other.settings.options.data} and {source} would share the folder {Path(out) / folder}; give "
                        f"one of them another name: --data NAME={source}."
                    )
    return list(runs.values())


def _check_axes(axes: Mapping[str, Sequence[Any]], algos: Sequence[str]) -> None:
    for name in axes:
        if name in NOT_VARIED:
            raise OdiceError(f"--set cannot vary {name!r}: the sweep itself decides it, or it has a flag of its own.")
        valid = OPTIONS.union(*(setting_names(algo) for algo in algos))
        if name not in valid:
            raise unknown_name(f"setting of {', '.join(algos)}", name, valid)


def setting_names(algo: str) -> set[str]:
    """Return the names of an algorithm's settings."""
    return {field.name for field in dataclasses.fields(entry(algo).config)}


def _named(data: str) -> tuple[str, str]:
    """The folder's name and the source. An id with slashes (Minari) is no path, and keeps all of its parts."""
    name, given, source = data.partition("=")
    if given and name and "/" not in name and not Path(data).exists():
        return name, source
    path = Path(data)
    if path.suffix or path.exists():
        return path.stem, data
    return "-".join(part for part in path.parts if part.strip("./")), data


def _folder(algo: str, chosen: Mapping[str, Any]) -> str:
    name = "-".join([algo, *(f"{name}={_short(value)}" for name, value in chosen.items())])
    if len(name.encode()) <= NAME_LENGTH:
        return name
    return f"{algo}-{hashlib.sha256(name.encode()).hexdigest()[:12]}"


def _short(value: Any) -> str:
    if isinstance(value, list | tuple):
        return "x".join(map(_short, value))
    return str(value).replace("/", "_")


# --- what is there ----------------------------------------------------------------------------------------------------


def record(folder: RunDirectory, runs: Sequence[SweepRun]) -> str | None:
    """Write the runs to `sweep.json`, or check them against those there.

    Returns:
        A note where the command and the file have different runs.
    """
    file = folder.path / "sweep.json"
    if (folder.path / "config.json").exists():
        raise OdiceError(f"{folder.path} is a run itself; choose another folder with --out.")
    wanted = {run.name: {"data": str(run.settings.options.data), **run.identity} for run in runs}
    if not file.exists():
        folder.write("sweep.json", {"odice": __version__, "runs": wanted})
        return None
    before = read_record(file)
    there: dict[str, Any] = before.get("runs", {})
    for name in wanted.keys() & there.keys():
        known = {**there[name], "steps": max(there[name]["steps"], wanted[name]["steps"])}  # a run may become longer
        if changes := differences(known, wanted[name]):
            raise OdiceError(
                f"{file} records {name} with another configuration ({'; '.join(changes[:6])}); use the same settings "
                "to continue, or choose another folder with --out."
            )
    new, rest = wanted.keys() - there.keys(), there.keys() - wanted.keys()
    if there | wanted != there:
        folder.write("sweep.json", {**before, "runs": there | wanted})
    notes = [f"{len(new)} runs are new in {folder.path}"] if new else []
    notes += [f"{len(rest)} runs there are not part of this command and stay as they are"] if rest else []
    return "; ".join(notes) or None


def result(run: SweepRun) -> dict[str, Any] | None:
    """What a run ended with, if it is finished and has this configuration; its worker says what is wrong with it."""
    if not (run.path / "result.json").exists():
        return None
    try:
        config = read_record(run.path / "config.json")["config"]
    except (OdiceError, KeyError):
        return None
    return RunDirectory(run.path).result if agrees(config, run.identity) else None


def agrees(config: Any, wanted: Any) -> bool:
    """Return whether a configuration has the values of another; a value of None agrees with anything."""
    if isinstance(wanted, dict):
        return isinstance(config, dict) and all(agrees(config.get(name), value) for name, value in wanted.items())
    return wanted is None or config == wanted


def busy(run: SweepRun) -> bool:
    """Return whether a process works on the run; a killed driver may leave one behind, which saves before it ends."""
    try:
        lock = os.open(run.path / ".lock", os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return False
    except OSError:
        return True
    finally:
        os.close(lock)


def step(run: SweepRun) -> int:
    """The last step in the run's metrics."""
    try:
        with regular_file(run.path / "metrics.jsonl", links=False) as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - 65536))
            return int(json.loads(file.read().split(b"\n")[-2])["step"])
    except (OdiceError, OSError, ValueError, LookupError, TypeError):
        return 0
