"""`odice sweep`: many runs, every combination of data, algorithm, settings and seed."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field, fields
from typing import Any, Literal

import tyro

from odice.cli.help import parse
from odice.cli.workers import WorkerFlags
from odice.errors import OdiceError

ABOUT = (
    "Train every combination of data, algorithm, settings and seed, one process per core. "
    "Run the same command again to continue: what is finished is not done twice."
)


ITEM = r"(?:\[[^\]]*\]|[^,\[])+"
"""One of the values of `--set`: a list in brackets, or a word without a comma."""


@dataclass(frozen=True)
class SweepFlags:
    """Which runs, and what they share."""

    data: tuple[str, ...]
    """What to learn from, as in `odice train`; NAME=PATH chooses the name of its folder."""
    algo: tuple[str, ...] = ("auto",)
    """The algorithms (`odice list` names them)."""
    seeds: int = 1
    """Seeds per combination, counted up from --seed."""
    seed: int = 0
    """The first seed."""
    set: tuple[str, ...] = ()
    """NAME=VALUE,VALUE...: values of a setting or option of `odice train`; each value is a run, for the algorithms that
    have the setting. Lists in brackets: value_hidden=[256,256],[64,64]."""
    out: str = "runs/sweep"
    """The folder of the runs: OUT/DATA/ALGO[-settings]/seed-N."""
    at: tyro.conf.OmitArgPrefixes[WorkerFlags] = field(default_factory=WorkerFlags)
    part: str | None = None
    """I/N: make only the I-th of N parts of the runs, from 1/N to N/N, with the same OUT; for Slurm arrays."""
    dry_run: bool = False
    """List the runs and estimate their time and disk; train nothing, write nothing."""
    quiet: bool = False
    """Print nothing but warnings, errors and the summary."""
    preset: Literal["paper", "reference", "corl"] | None = None
    """Published settings to start from."""
    env: str | None = None
    """Environment to evaluate in; by default the one the data name. `none` trains without evaluation."""
    steps: int | None = None
    """Gradient updates of every run."""
    eval_every: int | None = None
    """Updates between two evaluations."""
    eval_episodes: int | None = None
    """Episodes per evaluation."""
    checkpoint_every: int | None = None
    """Updates between two checkpoints; at most this many are lost when a process is killed."""
    allow: tuple[str, ...] | None = None
    """Findings of the data doctor to accept; `all` accepts everything."""
    data_dir: str | None = None
    """Folder with the files of D4RL names; else the variable ODICE_DATA."""
    plugin: tuple[str, ...] | None = None
    """Python modules to import first, which register algorithms, divergences, readers or environments of your own."""

    def __post_init__(self):
        least = {"seeds": 1, "seed": 0}
        for name, value in ((name, getattr(self, name)) for name in least):
            if value < least[name]:
                raise OdiceError(f"{name} must be at least {least[name]}, got {value}.")

    @property
    def shared(self) -> dict[str, Any]:
        """The options that all runs have."""
        names = [field.name for field in fields(self)]
        names = names[names.index("preset") :]
        return {name: value for name in names if (value := getattr(self, name)) is not None}


def axes(given: tuple[str, ...]) -> dict[str, list[Any]]:
    """`lam=0.5,0.7` as {"lam": [0.5, 0.7]}. A value is JSON where it can be, and text otherwise."""
    values_of: dict[str, list[Any]] = {}
    for text in given:
        name, _, values = text.partition("=")
        name = name.strip().replace("-", "_")
        parts = [part.strip() for part in re.findall(ITEM, values)]
        if not name or not all(parts) or not re.fullmatch(f"{ITEM}(,{ITEM})*", values):
            raise OdiceError(f"--set takes NAME=VALUE,VALUE..., as in lam=0.5,0.7; got {text!r}.")
        if name in values_of:
            raise OdiceError(f"--set names {name!r} twice; put all of its values into one, separated by commas.")
        values_of[name] = [_value(part) for part in parts]
    return values_of


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


def main(argv: list[str]) -> int:
    flags = parse(SweepFlags, "odice sweep", argv, ABOUT)
    from odice.sweeps.board import summary
    from odice.sweeps.execute import Part, check_outcomes, listing, run_sweep
    from odice.sweeps.forecast import forecast_runs
    from odice.sweeps.runs import make_runs

    backend, part = flags.at.backend(), None if flags.part is None else Part.parse(flags.part)
    out = backend.folder(flags.out)
    runs = make_runs(out, flags.data, flags.algo, flags.seeds, flags.seed, axes(flags.set), **flags.shared)
    chosen = runs if part is None else part.choose(runs)
    if flags.dry_run:
        print(listing(chosen), flush=True)
        print(forecast_runs(chosen, flags.at.workers))
        return 0
    outcomes = run_sweep(out, runs, backend, flags.at.retries, flags.quiet, part)
    print(summary(chosen), flush=True)
    check_outcomes(flags.out, outcomes)
    return 0
