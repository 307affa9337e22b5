"""Where a matrix runs: on this machine, or on a Ray cluster."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from odice.data.load import names_environment
from odice.errors import Diverged, OdiceError
from odice.machine import cores
from odice.sweeps.board import Board
from odice.sweeps.matrix import Cell, Driver, Outcome, record
from odice.sweeps.ray import Resources, run_on_ray
from odice.training.directory import RunDirectory


class Where(NamedTuple):
    """A machine's workers, or a cluster's address."""

    workers: int | None = None
    ray: str | None = None
    store: str | None = None
    resources: Resources = Resources()

    def folder(self, out: str | Path) -> Path:
        """The folder of the runs; the nodes of a cluster have working directories of their own."""
        return Path(out) if self.ray is None else Path(out).resolve()


def run_matrix(
    out: str | Path, cells: Sequence[Cell], where: Where, retries: int = 1, quiet: bool = False
) -> dict[str, Outcome]:
    """Bring every cell to its end, with a board for a person to look at."""
    for sentence in [] if quiet else unevaluated(cells):
        print(sentence, flush=True)
    if where.ray is not None:
        return run_on_ray(out, cells, where.ray, retries, quiet, where.store, where.resources)
    if where.store is not None:
        raise OdiceError("--store is for runs on a cluster; add --ray, or leave it out.")
    with RunDirectory(out) as folder, Board(quiet) as board:
        if said := record(folder, cells):
            board.note(said)
        return Driver(cells, min(where.workers or cores(), len(cells)), retries, board).run()


def unevaluated(cells: Sequence[Cell]) -> list[str]:
    """A sentence for each data set that names no environment, so that its runs will have no score."""
    named: dict[str, bool] = {}
    for cell in cells:
        options = cell.settings.options
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


def check_outcomes(out: str | Path, outcomes: Mapping[str, Outcome]) -> None:
    """Raise if a cell did not finish: as diverged if that is all, with where to look."""
    bad = {name: outcome for name, outcome in outcomes.items() if outcome.ending != "finished"}
    if bad:
        kind = Diverged if {outcome.ending for outcome in bad.values()} == {"diverged"} else OdiceError
        told = ", ".join(f"{name} {outcome.ending} (see {out}/{name}.log)" for name, outcome in list(bad.items())[:6])
        raise kind(f"{len(bad)} of {len(outcomes)} cells did not finish: {told}{' ...' if len(bad) > 6 else ''}.")
