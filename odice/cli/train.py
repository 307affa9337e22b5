"""`odice train`: learn a policy from a data set.

The algorithm is looked for in the arguments first, because its settings are flags too. What a preset or a config file
says becomes the flags' defaults, so `odice train --preset paper --data D --help` shows what would be used.
"""

from __future__ import annotations

import argparse
import dataclasses
from typing import Any

import tyro

from odice.data.schema import TableFlags
from odice.training.options import RunFlags, RunOptions
from odice.training.plan import Plan, complete_plan, draft_plan

ABOUT = "Learn a policy from a data set. Run the same command again to continue an interrupted run."


def plan_of(argv: list[str], prog: str = "odice train", about: str = ABOUT, **given: Any) -> Plan:
    """The run that the arguments ask for. `given` are options that the command itself decides."""
    peek = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    for name in ("algo", "preset", "config", "data", "env"):
        peek.add_argument(f"--{name}")
    peek.add_argument("--imitation", action="store_true", default=None)
    peek.add_argument("--plugin", nargs="*")
    first = vars(peek.parse_known_args(argv)[0])
    data = first.pop("data")
    base = draft_plan(data or "", **{**first, **given})
    options = base.options if data else dataclasses.replace(base.options, data=tyro.MISSING)
    run, table = (_part(options, kind) for kind in (RunFlags, TableFlags))
    algorithm = base.options.algo.replace("-", "_")  # the fields' names are the titles of the groups in --help
    parts = {"run": run, "table": table, algorithm: base.settings}
    flags = dataclasses.make_dataclass(
        "Flags", [(name, tyro.conf.OmitArgPrefixes[type(part)]) for name, part in parts.items()]
    )
    parsed: Any = tyro.cli(
        flags,
        prog=prog,
        description=about,
        default=flags(*parts.values()),
        args=argv,
    )
    chosen = RunOptions(**{**vars(parsed.run), **vars(parsed.table), **given})
    return complete_plan(base._replace(options=chosen, settings=getattr(parsed, algorithm)))


def _part(options: RunOptions, kind: type[Any]) -> Any:
    """The options that belong to one group of flags."""
    return kind(**{item.name: getattr(options, item.name) for item in dataclasses.fields(kind)})


def work(plan: Plan) -> int:
    """Train; several seeds end with a table of them."""
    from odice.training.train import train_plan

    run = train_plan(plan)
    if run.seeds and not plan.options.quiet:
        from odice.cli.report import show
        from odice.reports.compare import compare

        show(compare([run]))
    return 0


def main(argv: list[str]) -> int:
    return work(plan_of(argv))
