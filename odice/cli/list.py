"""`odice list`: the algorithms, presets, divergences and gradient rules."""

from __future__ import annotations

from dataclasses import dataclass

from odice.cli.help import parse


@dataclass(frozen=True)
class Args:
    """Show the algorithms, presets, divergences and gradient rules."""


def listing() -> None:
    """Print the tables."""
    from rich.console import Console
    from rich.table import Table

    from odice.algos import algorithms
    from odice.core.divergences import DIVERGENCES
    from odice.core.gradients import RULES
    from odice.presets import PRESETS

    console = Console()
    sections = {
        "algorithms": {name: entry.summary for name, entry in algorithms().items()},
        "presets": PRESETS,
    }
    for title, rows in sections.items():
        table = Table(title=title, title_justify="left", box=None, show_header=False, padding=(0, 2, 0, 2))
        for name, text in rows.items():
            table.add_row(f"[bold]{name}[/bold]", text)
        console.print(table)
        console.print()
    console.print(f"[italic]divergences[/italic]\n  {', '.join(DIVERGENCES)}, alpha(A)\n")
    console.print(f"[italic]gradient rules[/italic]\n  {', '.join(RULES)}")


def main(argv: list[str]) -> int:
    parse(Args, "odice list", argv)
    listing()
    return 0
