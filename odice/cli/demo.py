"""`odice demo`: train on the data that come with odice; a curve, a policy, a table, a video."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from odice.cli.help import parse


@dataclass(frozen=True)
class Args:
    """Learn to hop from the log that comes with odice: a learning curve, a policy, an evaluation table, a video."""

    out: Path = Path("demo")
    """Folder for everything; made if it is not there. Run again, an interrupted demo continues."""
    steps: int | None = None
    """Gradient updates; 10,000 by default."""
    seed: int = 0
    """Seed of the networks and of the batches."""
    dry_run: bool = False
    """Say about how long it takes; train nothing, write nothing."""


def run(args: Args) -> int:
    from rich.console import Console
    from rich.table import Table

    from odice.errors import OdiceError
    from odice.experiments.demo import DATA, EPISODES, SETTINGS, STEPS, demo, lines

    steps = STEPS if args.steps is None else args.steps
    if args.dry_run:
        from odice.training.forecast import forecast
        from odice.training.settings import resolve

        print(f"{DATA}: {steps:,} updates of {SETTINGS['algo']}, then {EPISODES} episodes and a video")
        print(f"{args.out}: {forecast(resolve(DATA, steps=steps, seed=args.seed, **SETTINGS))}")
        return 0
    console = Console(highlight=False)
    result = demo(args.out, steps=steps, seed=args.seed)
    table = Table(title=f"Returns in {result.evaluation.env_id}", title_justify="left")
    for head in ("", "episodes", "mean return", "best", "worst"):
        table.add_column(head, justify="right" if head else "left")
    for row in lines(result.data, result.evaluation):
        table.add_row(*row)
    console.print(table)
    video = f"there is none: {result.video}" if isinstance(result.video, OdiceError) else str(result.video)
    policy = result.run.path / "policy" / "last"
    for what, where in (("curve", result.curve), ("table", result.table), ("policy", policy), ("video", video)):
        console.print(f"{what:<8}{where}", markup=False, soft_wrap=True)
    return 0


def main(argv: list[str]) -> int:
    return run(parse(Args, "odice demo", argv))
