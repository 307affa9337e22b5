"""`odice export`: a policy as an ONNX file."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro

from odice.cli.help import parse


@dataclass(frozen=True)
class Args:
    """Write a policy as one ONNX graph, from raw observations to actions, checked against the policy first."""

    policy: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="RUN|POLICY")]
    """A run directory, or a policy's own folder."""
    onnx: Annotated[Path, tyro.conf.arg(metavar="FILE")]
    """The file to write."""
    numbers: bool = False
    """Policies of tables: the file takes encoded observations instead of the table's columns."""
    which: Literal["last", "best", "selected"] = "last"
    """Of a run: its last policy, the one of its best evaluation, or (with --patience) the best by the log alone."""


def run(args: Args) -> int:
    from odice.policy import open_policy
    from odice.policy.onnx import compared, export_onnx

    policy = open_policy(args.policy, args.which)
    difference = export_onnx(policy, args.onnx, numbers=args.numbers).difference
    size = args.onnx.stat().st_size
    count = f"{compared(policy):,} observations"
    print(f"{args.onnx}: {size:,} bytes; differs from the policy by at most {difference:.1e} on {count}")
    if policy.columns and not args.numbers:
        print(f"inputs: {', '.join(column['name'] for column in policy.columns)}; NaN or an empty word is missing")
    return 0


def main(argv: list[str]) -> int:
    return run(parse(Args, "odice export", argv))
