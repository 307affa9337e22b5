"""`odice theory`: the paper's lemmas and theorems, measured."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro

from odice.cli.help import parse
from odice.errors import OdiceError
from odice.files import complete_file

if TYPE_CHECKING:
    from odice.experiments.check import ClaimCheck


@dataclass(frozen=True)
class Args:
    """Check the paper's Lemmas 1-2 and Theorems 1-4 numerically; exits with 1 if a claim fails.

    `odice theory visitation --out DIR` compares the weights of each gradient rule with visitation ratios.
    """

    seed: int = 0
    """Seed of the random networks and states."""
    json: Annotated[Path | None, tyro.conf.arg(metavar="FILE")] = None
    """Also write the results to this file."""


def _print(checks: list[ClaimCheck]) -> None:
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    table = Table("source", "claim", "measured", "verdict", show_lines=True)
    for check in checks:
        table.add_row(
            check.source,
            escape(check.claim),
            escape(check.measured),
            "[green]holds" if check.passed else "[bold red]FAILS",
        )
    Console().print(table)


def _write(path: Path, seed: int, checks: list[ClaimCheck]) -> None:
    text = json.dumps({"seed": seed, "checks": [check._asdict() for check in checks]}, indent=2)
    try:
        with complete_file(path) as unfinished:
            unfinished.write_text(text + "\n")
    except OSError as error:
        raise OdiceError(f"--json: cannot write {path}: {error.strerror}. Choose another file.") from None


def main(argv: list[str]) -> int:
    if argv and argv[0] == "visitation":
        from odice.cli import theory_visitation

        return theory_visitation.main(argv[1:])
    args = parse(Args, "odice theory", argv)
    if args.seed < 0:
        raise OdiceError(f"--seed must be at least 0, got {args.seed}.")
    if args.json is not None and args.json.is_dir():
        raise OdiceError(f"--json: {args.json} is a folder; name a file.")

    from odice.experiments.theory import checks

    results = checks(args.seed)
    _print(results)
    if args.json is not None:
        _write(args.json, args.seed, results)
    return 0 if all(check.passed for check in results) else 1
