"""`odice select`: which of several policies to take, by a log alone."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro

from odice.cli.estimates import LogOptions
from odice.cli.help import parse
from odice.errors import OdiceError

if TYPE_CHECKING:
    from odice.evaluation.ope.select import Selection
    from odice.policy import Policy


@dataclass(frozen=True)
class Args:
    """Rank runs, checkpoints and settings by a lower bound on what they earn more than the log's behavior, and say when
    to clone it instead."""

    policies: Annotated[tuple[Path, ...], tyro.conf.Positional, tyro.conf.arg(metavar="RUN|POLICY")]
    """Run directories (of one seed or several) or policies' own folders; of a run its last, its best and those of its
    checkpoints (`odice train --checkpoint-every --keep`) are ranked."""
    seed: int = 0
    """Seed of the estimators."""
    json: Annotated[Path | None, tyro.conf.arg(metavar="FILE")] = None
    """Also write the results to this JSON file."""
    page: Annotated[Path | None, tyro.conf.arg(metavar="FILE")] = None
    """Also write a page (HTML) about the best policy, for the person who decides whether to use it."""
    log: tyro.conf.OmitArgPrefixes[LogOptions] = field(default_factory=LogOptions)


def run(args: Args) -> int:
    from odice.cli.estimates import write, write_page
    from odice.decision.page import candidate_row
    from odice.evaluation.ope.select import select

    if args.log.data is None:
        raise OdiceError("Name the log to estimate from with --data.")
    policies = find_policies(args.policies)
    data = args.log.load(*policies.values())
    selection = select(policies, data, seed=args.seed, **args.log.settings())
    _print(selection)
    if args.page is not None:
        best, rows = selection.ranked[0], [candidate_row(item) for item in selection.ranked]
        details = {"place": best.name, "candidates": rows, "bounds": len(rows)}
        write_page(args.page, policies[best.name], best.estimates, data, args.log, **details)
    if args.json is not None:
        write(args.json, selection.to_dict())
    return 0


def find_policies(paths: tuple[Path, ...]) -> dict[str, Policy]:
    """Every policy below the paths, by the path of its folder."""
    from odice.policy import open_policy
    from odice.policy.file import DESCRIPTION

    policies: dict[str, Policy] = {}
    for path in paths:
        folders = [inner.parent for inner in sorted(path.glob(f"**/policy/*/{DESCRIPTION}"))]
        if (path / DESCRIPTION).exists() or not folders:
            policies[str(path)] = open_policy(path)  # which says what is wrong if there is none
        policies |= _of_runs(folders)
    if not policies:
        raise OdiceError("Name at least one run or policy.")
    return policies


def _of_runs(folders: list[Path]) -> dict[str, Policy]:
    """Each policy once: `last` is also the newest checkpoint's."""
    from odice.policy import Policy

    policies, seen = {}, set()
    for folder in folders:
        policy = Policy.load(folder)
        step = folder.parent, policy.about.get("step")
        if step[1] is None or step not in seen:
            policies[str(folder)] = policy
        seen.add(step)
    return policies


def _print(selection: Selection) -> None:
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    from odice.cli.estimates import interval
    from odice.evaluation.ope.intervals import percent

    first = selection.ranked[0].estimates
    table = Table(title=escape(f"by {first.source}, discount {first.discount:g}, best first"), title_justify="left")
    for head in ("policy", "more by\nat least", "more (fqe)", "outside\nthe data", "health", "verdict"):
        table.add_column(head, justify="left" if head in ("policy", "health", "verdict") else "right")
    for one in selection.ranked:
        bound = "-" if one.verdict.lower_bound is None else f"{one.verdict.lower_bound:.4g}"
        fqe = interval(one.estimates.estimates["fqe"].improvement)
        cells = (bound, fqe, f"{one.estimates.outside:.0%}", one.health or "-", one.verdict.answer)
        table.add_row(escape(one.name), *cells)
    console = Console()
    console.print(table)
    console.print(first.judged_by, markup=False, highlight=False)
    if (k := len(selection.ranked)) > 1:
        console.print(
            f"the {k} bounds hold at once with 95 % confidence (each is stated at {percent(first.verdict.confidence)})"
        )
    console.print(f"\n{selection.advice}", style="bold", markup=False, highlight=False)


def main(argv: list[str]) -> int:
    return run(parse(Args, "odice select", argv))
