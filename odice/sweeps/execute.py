"""Run a sweep: on this machine, or on a Ray cluster."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from odice.data.load import names_environment
from odice.errors import Diverged, OdiceError
from odice.machine import cores
from odice.sweeps.board import Board
from odice.sweeps.driver import Driver, Outcome
from odice.sweeps.ray import Resources, run_on_ray
from odice.sweeps.runs import SweepRun, record, result
from odice.training.directory import RunDirectory

LOCK_SECONDS = 60.0
"""How long one part of a sweep waits for the others, which write `sweep.json` too."""


class Backend(NamedTuple):
    """Where the runs of a sweep are trained: on this machine, or on a Ray cluster."""

    workers: int | None = None
    """Processes of this machine; None is one per core."""
    ray: str | None = None
    """The address of a cluster."""
    store: str | None = None
    """Where the nodes of a cluster keep what they do, if they share no disk."""
    resources: Resources = Resources()
    """What each run needs on a cluster."""

    def folder(self, out: str | Path) -> Path:
        """The folder of the runs; the nodes of a cluster have working directories of their own."""
        return Path(out) if self.ray is None else Path(out).resolve()


class Part(NamedTuple):
    """One of several parts of a sweep, each run by a command of its own: the jobs of a Slurm array."""

    number: int
    of: int

    @classmethod
    def parse(cls, text: str) -> Part:
        """`2/8` as the second of eight parts."""
        number, slash, of = text.partition("/")
        if not slash or not number.isdecimal() or not of.isdecimal() or not 1 <= int(number) <= int(of):
            raise OdiceError(f"--part takes I/N, from 1/N to N/N, such as 2/8; got {text!r}.")
        return cls(int(number), int(of))

    def choose(self, runs: Sequence[SweepRun]) -> list[SweepRun]:
        """The runs of this part: every N-th one."""
        return list(runs[self.number - 1 :: self.of])


def run_sweep(
    out: str | Path,
    runs: Sequence[SweepRun],
    backend: Backend,
    retries: int = 1,
    quiet: bool = False,
    part: Part | None = None,
) -> dict[str, Outcome]:
    """Bring every run to its end, and show the progress.

    Args:
        out: The folder of the sweep.
        runs: All its runs.
        backend: Where they run.
        retries: How often a run that fails is tried again.
        quiet: Print nothing.
        part: Take these of the runs only.

    Returns:
        How the runs ended, by their names.
    """
    for sentence in [] if quiet else unevaluated(runs):
        print(sentence, flush=True)
    if backend.ray is not None:
        if part is not None:
            raise OdiceError("--part divides a sweep over machines, which --ray does by itself; leave one of them out.")
        return run_on_ray(out, runs, backend.ray, retries, quiet, backend.store, backend.resources)
    if backend.store is not None:
        raise OdiceError("--store is for runs on a cluster; add --ray, or leave it out.")

    def drive(chosen: Sequence[SweepRun]) -> dict[str, Outcome]:
        return Driver(chosen, min(backend.workers or cores(), max(len(chosen), 1)), retries, board).run()

    with Board(quiet) as board:
        with RunDirectory(out, wait=0.0 if part is None else LOCK_SECONDS) as folder:
            if note := record(folder, runs):
                board.note(note)
            if part is None:
                return drive(runs)
        return drive(part.choose(runs))  # without the folder's lock, which the other parts need too


def unevaluated(runs: Sequence[SweepRun]) -> list[str]:
    """A sentence for each data set that names no environment, so that its runs will have no score."""
    named: dict[str, bool] = {}
    for run in runs:
        options = run.settings.options
        if options.env is None and isinstance(options.data, str) and options.data not in named:
            given = {"format": options.format, "data_dir": options.data_dir, **options.table(options.schema)}
            try:
                named[options.data] = names_environment(options.data, **given)
            except OdiceError:
                named[options.data] = True  # the run itself says what is wrong with its data
    return [
        f"{data}: no environment is known for these data, so their runs are not evaluated (name one: --set env=NAME)"
        for data, known in named.items()
        if not known
    ]


def listing(runs: Sequence[SweepRun]) -> str:
    """The runs of a sweep, with their lengths and whether they are finished."""
    lines = [f"{run.name}  {run.steps:,} updates{'  finished' if result(run) else ''}" for run in runs]
    return "\n".join([*lines, f"{len(runs)} runs, {sum(run.steps for run in runs):,} updates"])


def check_outcomes(out: str | Path, outcomes: Mapping[str, Outcome]) -> None:
    """Raise if a run did not finish: as diverged if that is all, with where to look."""
    bad = {name: outcome for name, outcome in outcomes.items() if outcome.ending != "finished"}
    if bad:
        kind = Diverged if {outcome.ending for outcome in bad.values()} == {"diverged"} else OdiceError
        which = ", ".join(f"{name} {outcome.ending} (see {out}/{name}.log)" for name, outcome in list(bad.items())[:6])
        raise kind(f"{len(bad)} of {len(outcomes)} runs did not finish: {which}{' ...' if len(bad) > 6 else ''}.")
