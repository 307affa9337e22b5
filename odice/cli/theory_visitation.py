"""`odice theory visitation`: are the weights of each gradient rule visitation ratios?"""

from __future__ import annotations

import json
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

from odice.cli.help import parse
from odice.errors import OdiceError
from odice.files import complete_file

COLUMNS = {"optimum": "to d*", "correlation": "corr.", "own": "to own", "discount": "discount", "score": "score"}
"""Measure -> its heading in the printed table."""
ROUNDS = {"pairs": "pairs left", "optimum": "to best d*", "correlation": "corr.", "score": "score"}
"""The same for IDRL's rounds."""


@dataclass(frozen=True)
class Args:
    """Compare the weights of each gradient rule with the optimal visitation ratio in finite worlds, exactly."""

    out: Path
    """Folder for visitation.json and the figures; made if it is not there."""
    seeds: int = 3
    """Worlds of each kind."""


def _print(rows: list[dict], what: str, columns: dict[str, str]) -> None:
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table

    groups = defaultdict(list)
    for row in rows:
        groups[row["method"] + (f", eta {row['eta']:g}" if row["method"] == "orthogonal" else "")].append(row)
    table = Table(box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    table.add_column(f"means over {what}", no_wrap=True)
    for heading in columns.values():
        table.add_column(heading, justify="right", no_wrap=True)
    for method, group in groups.items():
        table.add_row(method, *(f"{fmean(row[name] for row in group) + 0.0:.3f}" for name in columns))
    Console().print(table)


def main(argv: list[str]) -> int:
    args = parse(Args, "odice theory visitation", argv)
    if args.seeds < 1:
        raise OdiceError(f"--seeds must be at least 1, got {args.seeds}.")

    from rich.progress import Progress

    from odice.experiments import visitation_figures as figures
    from odice.experiments import visitation_study as study
    from odice.experiments.visitation_rounds import run_rounds
    from odice.reports.figures import save

    try:
        args.out.mkdir(parents=True, exist_ok=True)
        (args.out / "visitation.json").touch()
    except OSError as error:
        raise OdiceError(f"--out: cannot write to {args.out} ({error.strerror}); name another folder.") from None
    with Progress() as progress:
        task = progress.add_task("worlds", total=len(study.WORLDS) * args.seeds)
        measured = study.run(args.seeds, lambda name: progress.advance(task))
    pruned = run_rounds(args.seeds)
    with complete_file(args.out / "visitation.json") as unfinished:
        rows = {"seeds": args.seeds, **measured._asdict(), "rounds": pruned}
        unfinished.write_text(json.dumps(rows, indent=1) + "\n")
    save(figures.maps_figure(), args.out / "visitation-states.png")
    save(figures.eta_figure(measured.tables), args.out / "visitation-eta.png")
    save(figures.features_figure(measured.features), args.out / "visitation-features.png")
    _print(measured.tables, "worlds, divergences, lambda", COLUMNS)
    _print(pruned, "worlds, alpha", ROUNDS)
    print(f"rows and figures: {args.out}")
    return 0
