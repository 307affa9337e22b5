"""`odice decide`: from a raw log to a page that says whether to act differently."""

from __future__ import annotations

import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from odice.cli.help import parse
from odice.data.schema import TableFlags
from odice.errors import OdiceError, printable

if TYPE_CHECKING:
    from odice.data.proposal import Proposal, Question


@dataclass(frozen=True)
class Args:
    """Decide from a log whether to act differently: roles of columns, checks, candidates, estimates, and one page."""

    log: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="LOG")]
    """A Parquet or CSV file, or any other data set that `odice train` takes."""
    schema: Path | None = None
    """A TOML or JSON file that says what the columns mean; without one the roles are proposed."""
    out: Path = Path("decision")
    """Folder for the candidates and the page; the same command continues in it."""
    steps: int = 10_000
    """Updates of each candidate."""
    holdout: float = 0.3
    """Share of the episodes that are held out of training, to judge the candidates."""
    cost_limit: float | None = None
    """The most that an episode may cost on average; by default the schema's `cost_limit`."""
    seed: int = 0
    """Seed of training and of the estimators."""
    workers: int | None = None
    """Candidates that are trained at a time, each on a core of its own; by default one on each core."""
    yes: bool = False
    """Take the proposed roles without asking (for scripts)."""
    allow: tuple[str, ...] = ()
    """Findings of the data doctor to accept; `all` accepts everything."""
    dry_run: bool = False
    """Read and check the log, list what would be trained, and estimate time and disk; train nothing, write nothing."""
    table: tyro.conf.OmitArgPrefixes[TableFlags] = field(default_factory=TableFlags)


def run(args: Args) -> int:
    from odice.decision.decide import decide

    if args.dry_run:
        return plan(args)
    decision = decide(
        args.log,
        schema=args.table.table(args.schema).get("schema"),
        out=args.out,
        steps=args.steps,
        seed=args.seed,
        holdout=args.holdout,
        cost_limit=args.cost_limit,
        allow=args.allow,
        workers=args.workers,
        ask=None if args.yes else _ask,
        say=lambda text: print(printable(text), flush=True),
    )
    return 0 if decision.page.exists() else 1


def plan(args: Args) -> int:
    """Say what `decide` would do: the columns, the checks, the candidates and their cost."""
    from odice.data.load import load
    from odice.data.schema import Schema
    from odice.decision.candidates import usual_candidates
    from odice.decision.decide import CHECKPOINT, Task
    from odice.decision.read import checked, is_table, proposed_schema
    from odice.training.forecast import Forecast, forecast, total
    from odice.training.settings import resolve

    with tempfile.TemporaryDirectory(prefix="odice-plan-") as folder:
        schema, kept = args.table.table(args.schema).get("schema"), args.out / "schema.toml"
        say = lambda text: None if folder in text else print(printable(text), flush=True)
        if schema is None and is_table(args.log):
            place = kept if kept.exists() else Path(folder, "schema.toml")
            where = f"{kept}, which the command without --dry-run writes"
            schema = proposed_schema(Path(args.log), place, None if args.yes else _ask, say, args.cost_limit, where)
        reading: dict[str, Any] = {} if schema is None else {"schema": schema}
        data = load(args.log, **reading)
    checked(data, args.allow, say)
    Task(args.log, data, Schema.parse(data.meta.schema or {}, data.meta.source), args.cost_limit, args.seed).check(
        say, args.holdout
    )
    shared = {"env": "none", "steps": args.steps, "holdout": args.holdout, "allow": args.allow, "quiet": True}
    costs: dict[str, Forecast] = {}
    wanted = usual_candidates(int((1 - args.holdout) * data.n_steps))
    for name, options in wanted.items():
        if (algo := options["algo"]) not in costs:
            costs[algo] = forecast(resolve(data, checkpoint_every=CHECKPOINT, **shared, **options))
        print(f"  {name:<24}{args.steps:,} updates, {costs[algo]}", flush=True)
    of_candidates = [costs[options["algo"]] for options in wanted.values()]
    print(f"{args.out}: {total(of_candidates, args.workers)}, and a page. Judging the policies comes on top.")
    return 0


def _ask(question: Question, proposal: Proposal) -> str:
    """Ask a person in a terminal; a script has to say --yes."""
    if not sys.stdin.isatty():
        raise OdiceError(
            f"In doubt: {question.text} Run it in a terminal to answer, give a --schema, or add --yes to take it so."
        )
    print(f"\n{printable(question.text)}")
    what = f"{question.about}, {' or '.join(question.options)}" if question.options else question.about
    if not question.options:
        print(printable(f"  columns: {', '.join(item.column for item in proposal.roles)}"))
    while True:
        try:
            answer = input(printable(f"{what} [{question.default or 'no proposal'}]: ")).strip()
        except EOFError:
            raise OdiceError("No answer was given; run it again, or add --yes.") from None
        if answer or question.default:
            return "" if answer == question.default else answer


def main(argv: list[str]) -> int:
    return run(parse(Args, "odice decide", argv))
