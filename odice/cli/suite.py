"""`odice suite`: make the logs of the local suite, or list them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import tyro

from odice.cli.help import parse_subcommand


@dataclass(frozen=True)
class Make:
    """Make logs of the suite, all that are missing by default. Run it again to continue."""

    names: Annotated[tyro.conf.Positional[tuple[str, ...]], tyro.conf.arg(metavar="LOG...")] = ()
    """Which logs (`odice suite list` names them)."""
    out: Path = Path("runs", "suite")
    """The folder of the suite."""
    workers: int | None = None
    """Learners at a time; by default as many as there are cores."""
    dry_run: bool = False
    """List the logs that are missing and what they cost; make nothing."""
    quiet: bool = False
    """Print nothing but the logs, warnings and errors."""

    def run(self) -> int:
        from odice.experiments.suite import SUITE, SuiteFolder, chosen, make_suite

        place = SuiteFolder(self.out, self.quiet)
        if self.dry_run:
            missing = [name for name in chosen(self.names) if place.facts(name) is None]
            for name in missing:
                print(f"{name:<32}{SUITE[name].minutes:>6g} core minutes")
            total = sum(SUITE[name].minutes for name in missing)
            print(f"{len(missing)} logs are missing in {self.out}: {total:g} core minutes at most")
            return 0
        made = make_suite(self.names, place, self.workers)
        print(f"{len(made)} logs made in {self.out}" if made else f"{self.out} has them all already")
        return 0


@dataclass(frozen=True)
class List:
    """Show the logs of the suite: what each is, what it costs, and which are made."""

    out: Path = Path("runs", "suite")
    """The folder of the suite."""

    def run(self) -> int:
        from rich.console import Console
        from rich.table import Table

        from odice.experiments.suite import SUITE, SuiteFolder

        place = SuiteFolder(self.out)
        table = Table(title=f"The local suite in {self.out}", title_justify="left", box=None, padding=(0, 2, 0, 0))
        for head in ("log", "core minutes", "what it is, and what is in the folder"):
            table.add_column(head, justify="right" if head.startswith("core") else "left")
        for name, log in SUITE.items():
            cost = f"{log.minutes:g}" if log.minutes >= 1 else "< 1"
            table.add_row(name, cost, f"{log.about}\n[dim]{facts_line(place.facts(name))}[/dim]")
        console = Console()
        if not console.is_terminal:
            console.width = 140  # a file or a pipe has no width; the table has one
        console.print(table)
        console.print(
            "None of it is D4RL's data: files end in -local, and scores are not comparable with published ones."
        )
        return 0


def facts_line(facts: dict[str, Any] | None) -> str:
    """Describe a log of the suite in a line."""
    if facts is None:
        return "not made yet"
    returns = facts["returns"]
    return (
        f"{facts['steps']:,} steps, {facts['episodes']:,} episodes, return {returns['mean']:.4g} "
        f"(best {returns['best']:.4g}), {facts['bytes'] / 1e6:.1f} MB, content {facts['fingerprint'][:12]}"
    )


def main(argv: list[str]) -> int:
    commands: dict[str, Any] = {"make": Make, "list": List}
    return parse_subcommand(commands, "odice suite", argv, "Named logs, made on your machine without a download.").run()
