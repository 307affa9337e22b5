"""`odice train`: learn a policy from a data set.

The algorithm is looked for in the arguments first, because its settings are flags too. What a preset or a config file says
becomes the flags' defaults, so `odice train --preset paper --data D --help` shows what would be used.
"""

from __future__ import annotations

import argparse
import dataclasses
import sys
import warnings
from typing import Any

import tyro

from odice.run.settings import Plan, RunOptions, complete, draft

ABOUT = "Learn a policy from a data set. Run the same command again to continue an interrupted run."


def plan_of(argv: list[str], prog: str = "odice train", about: str = ABOUT, **given: Any) -> Plan:
    """The run that the arguments ask for. `given` are options that the command itself decides."""
    peek = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    for name in ("algo", "preset", "config", "data"):
        peek.add_argument(f"--{name}")
    peek.add_argument("--imitation", action="store_true", default=None)
    first = vars(peek.parse_known_args(argv)[0])
    data = first.pop("data")
    base = draft(data or "", **{**first, **given})
    options = base.options if data else dataclasses.replace(base.options, data=tyro.MISSING)
    flags = dataclasses.make_dataclass(
        "Flags",
        [
            ("options", tyro.conf.OmitArgPrefixes[RunOptions]),
            ("settings", tyro.conf.OmitArgPrefixes[type(base.settings)]),
        ],
    )
    parsed: Any = tyro.cli(
        flags,
        prog=prog,
        description=about,
        default=flags(options, base.settings),
        args=argv,
    )
    return complete(Plan(dataclasses.replace(parsed.options, **given), parsed.settings, base.preset))


def run(plan: Plan) -> int:
    """Train, and say in one sentence how it ended if it did not end well."""
    from odice.run.lane import EXIT_DIVERGED, Diverged
    from odice.run.stop import Interrupted
    from odice.run.train import train_plan

    warnings.showwarning = lambda message, *_, **__: print(f"odice: warning: {message}", file=sys.stderr, flush=True)
    try:
        train_plan(plan)
    except Diverged as error:
        print(f"odice: {error}", file=sys.stderr)
        return EXIT_DIVERGED
    except Interrupted as error:
        print(f"odice: {error}", file=sys.stderr)
        return 128 + error.signal
    return 0


def main(argv: list[str]) -> int:
    return run(plan_of(argv))
