"""`odice bench`: how fast odice is on this machine."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Literal

import tyro

from odice.cli.help import parse

if TYPE_CHECKING:
    from odice.experiments.bench import Measurement

Section = Literal["updates", "seeds", "start", "overhead", "data", "devices"]


@dataclass(frozen=True)
class Args:
    """Measure updates per second, relative to the rate at which this machine multiplies matrices.

    The default takes about a minute: one algorithm on one core and on all, and what a start costs. Other sections:
    `seeds` (1, 2 and 5 at a time), `overhead` (logging, checkpoints, evaluations), `data` (10,000 to 10,000,000
    transitions), `devices` (1 to 8 simulated ones: the shape of the curve, not a speed). Run it on a machine that does
    nothing else.
    """

    algo: Annotated[tuple[str, ...], tyro.conf.arg(metavar="NAME...")] = ("odice",)
    """Algorithms (`odice list` names them)."""
    preset: Literal["paper", "reference", "corl"] | None = None
    """Published settings; by default the algorithm's own defaults."""
    section: tuple[Section, ...] = ("updates", "start")
    """What to measure."""
    seconds: float = 6.0
    """Seconds per measurement, without compilation."""
    json: bool = False
    """Print one JSON object per line instead of a table."""
    dry_run: bool = False
    """List the measurements and about how long they take; measure nothing."""


def main(argv: list[str]) -> int:
    args = parse(Args, "odice bench", argv)

    from odice.algos import entry
    from odice.errors import OdiceError
    from odice.experiments.bench import Budget, bench
    from odice.presets import preset

    if not args.seconds > 0:
        raise OdiceError(f"--seconds must be more than 0, got {args.seconds}.")
    for name in args.algo:
        entry(name)
        if args.preset:
            preset(args.preset, name)
    if args.dry_run:
        from odice.experiments.bench import PROCESSES, SECTIONS
        from odice.training.progress import duration

        for name in args.section:
            print(f"{name:<10}{SECTIONS[name]}")
        count = len(args.algo) * sum(PROCESSES[name] for name in args.section)
        low, high = (duration(count * (args.seconds + start)) for start in (3, 20))
        print(f"{count} processes, one after the other: {low} to {high}; nothing is kept on disk")
        return 0
    rows = bench(list(args.algo), args.preset, list(args.section), Budget(seconds=args.seconds))
    for row in rows:
        print(json.dumps(row._asdict()) if args.json else line(row), flush=True)
    return 0


def line(row: Measurement) -> str:
    """One row in words."""
    spread = "" if row.spread is None else f" ({row.spread[0]:,.4g} to {row.spread[1]:,.4g})"
    short = lambda value: f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
    facts = "".join(f"  {name} {short(value)}" for name, value in row.facts.items())
    return f"{row.section:<10}{row.what:<44}{row.value:>9,.4g} {row.unit}{spread}{facts}"
