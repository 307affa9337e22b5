"""`odice report`: compare runs."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import tyro

from odice.cli.help import parse

if TYPE_CHECKING:
    from odice.reports.compare import Comparison


@dataclass(frozen=True)
class Args:
    """Compare all runs in these folders: seeds, methods and data sets."""

    runs: Annotated[tuple[Path, ...], tyro.conf.Positional, tyro.conf.arg(metavar="RUN...")]
    """Run directories, or folders of them."""
    out: Annotated[tuple[Path, ...], tyro.conf.arg(metavar="FILE...")] = ()
    """Files to write, by their suffix: .html (one page), .md, .tex, .csv, or the curves as .png, .pdf, .svg."""
    format: Literal["table", "markdown", "latex", "csv"] = "table"
    """What to print."""
    last: int = 10
    """Evaluations at the end of a run whose mean is the run's score; ten, as in the paper."""


def run(args: Args) -> int:
    from odice.reports import tables
    from odice.reports.report import check_suffix, report, write

    for out in args.out:
        check_suffix(out)
    comparison = report(args.runs, last=args.last)
    if args.format == "table":
        show(comparison)
    else:
        makers = {"markdown": tables.markdown, "latex": tables.latex, "csv": tables.comma_separated}
        print(makers[args.format](comparison), end="")
    for out in args.out:
        write(comparison, out)
        if args.format == "table":
            print(f"{out}: written")
    return 0


def show(comparison: Comparison) -> None:
    """The tables, for a terminal."""
    from rich.console import Console

    from odice.reports.tables import for_terminal, state, tables

    console = Console()
    if not console.is_terminal:
        console.width = 140  # a file or a pipe has no width; the tables have one
    for table in tables(comparison):
        console.print(for_terminal(table))
    for group in comparison.groups:
        for one in group.runs:
            if not one.finished:
                console.print(f"{group.data}, {group.method}, seed {one.seed}: {state(one)}", markup=False)
    for note in comparison.notes:
        console.print(f"note: {note}", markup=False)


def main(argv: list[str]) -> int:
    return run(parse(Args, "odice report", argv))
