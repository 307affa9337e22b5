"""`odice evaluate`: what a policy earns in its environment, with and without noise; or, with `--data`, by a log
alone."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import tyro

from odice.cli.estimates import LogOptions
from odice.cli.help import changed_flags, parse
from odice.d4rl import brief
from odice.errors import OdiceError

if TYPE_CHECKING:
    from rich.console import Console

    from odice.evaluation.simulator.evaluate import Evaluation


IN_ENVIRONMENT = ("--env", "--episodes", "--noise", "--start-noise", "--reference", "--max-steps", "--max-seconds")
IN_ENVIRONMENT += ("--video",)
"""Flags without an effect on an estimate from a log."""


@dataclass(frozen=True)
class Args:
    """What a policy earns. In its environment: mean, spread, worst episode, normalized score; optionally under noise.
    With --data, from a log alone: several estimates, their intervals, and whether the policy beats what made the
    log."""

    policy: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="RUN|POLICY")]
    """A run directory, or a policy's own folder."""
    which: Literal["last", "best", "selected"] = "last"
    """Of a run: its last policy, the one of its best evaluation (chosen with the environment's help), or, if it was
    trained with --patience, the best by the log alone."""
    env: str | None = None
    """Environment; by default the one in the policy's description."""
    episodes: int = 10
    """Episodes per row of the table."""
    seed: int = 0
    """Seed that the episodes' seeds are drawn from."""
    noise: tuple[float, ...] = (0.0,)
    """Standard deviations of Gaussian noise on the observations; one row each."""
    start_noise: tuple[float, ...] = (0.0,)
    """The same for noise on the first state of an episode; with several of both, every pair is a row."""
    reference: tuple[float, float] | None = None
    """Returns that count as 0 and 100; by default the data's or the task's own."""
    max_steps: int | None = None
    """Time limit of an episode, in steps; by default the environment's own."""
    max_seconds: float = 600.0
    """Time limit for one row of the table, in seconds."""
    video: Annotated[Path | None, tyro.conf.arg(metavar="FILE")] = None
    """Record the first episode (.gif, or .mp4 with imageio-ffmpeg)."""
    json: Annotated[Path | None, tyro.conf.arg(metavar="FILE")] = None
    """Also write the results, with every episode, to this JSON file."""
    page: Annotated[Path | None, tyro.conf.arg(metavar="FILE")] = None
    """With --data: also write a page (HTML) for the person who decides whether to use the policy."""
    log: tyro.conf.OmitArgPrefixes[LogOptions] = field(default_factory=LogOptions)


def run(args: Args) -> int:
    if args.log.data is not None:
        return _from_log(args)
    if args.page is not None:
        raise OdiceError("--page shows what a log says about the policy; name the log with --data.")
    for flag in changed_flags(args.log):
        raise OdiceError(f"{flag} is for an estimate from a log; name the log with --data, or leave {flag} out.")
    return _in_environment(args)


def _from_log(args: Args) -> int:
    from odice.cli.estimates import show, write, write_page
    from odice.evaluation.ope.estimate import estimate
    from odice.policy import open_policy
    from odice.training.run import Run

    for flag in changed_flags(args):
        if flag in IN_ENVIRONMENT:
            raise OdiceError(f"{flag} is for episodes in an environment; leave it out with --data.")
    policy = open_policy(args.policy, args.which)
    settings = {**args.log.settings(), "seed": args.seed, "candidates": _candidates(args)}
    data = args.log.load(policy)
    estimates = estimate(policy, data, **settings)
    show(str(args.policy), estimates)
    if args.which == "last" and (args.policy / "config.json").exists():
        Run.open(args.policy).remember(estimates.summary())
    if args.page is not None:
        write_page(args.page, policy, estimates, data, args.log, place=args.policy)
    if args.json is not None:
        write(args.json, {"policy": str(args.policy), "which": args.which, "seed": args.seed, **estimates.to_dict()})
    return 0


def _candidates(args: Args) -> int:
    """Among how many policies the log has chosen this one: as many as a run with --patience has estimated."""
    from odice.training.loggers import rows

    estimated = args.policy / "estimates.jsonl"
    return max(1, len(rows(estimated))) if args.which == "selected" and estimated.is_file() else 1


def _in_environment(args: Args) -> int:
    from rich.console import Console

    from odice.cli.estimates import write
    from odice.evaluation.simulator.evaluate import Evaluator
    from odice.evaluation.simulator.video import record, writer_for
    from odice.policy import open_policy

    if args.video is not None:
        writer_for(args.video)  # refused before an episode is played
    policy = open_policy(args.policy, args.which)
    env_id = args.env or policy.env_id
    if env_id is None:
        raise OdiceError(f"{args.policy} does not say which environment it is for; name one with --env.")
    if not args.noise or not args.start_noise:
        raise OdiceError("--noise and --start-noise need at least one number.")
    typed = args.env is not None
    reference = args.reference or (None if typed and args.env != policy.env_id else policy.reference)
    console = Console()
    evaluations: list[Evaluation] = []
    with Evaluator(env_id, reference=reference, max_steps=args.max_steps, allow_import=typed) as evaluator:
        evaluator.check(policy.obs_dim, policy.action_dim, policy.discrete)
        if evaluator.task.note:
            console.print(f"note: {evaluator.task.note}", style="dim", markup=False)
        for start_noise in args.start_noise:
            for noise in args.noise:
                options = {"episodes": args.episodes, "seed": args.seed, "max_seconds": args.max_seconds}
                evaluations.append(evaluator(policy, noise=noise, start_noise=start_noise, **options))
    _print(console, args, evaluations)
    if args.json is not None:
        results = [evaluation.to_dict() for evaluation in evaluations]
        head = {"policy": str(args.policy), "which": args.which, "seed": args.seed}
        write(args.json, {**head, "evaluations": results})
    if args.video is not None:
        options = {"noise": args.noise[0], "start_noise": args.start_noise[0], "max_steps": args.max_steps}
        frames = record(policy, env_id, args.video, seed=args.seed, allow_import=typed, **options)
        console.print(f"{args.video}: {frames} frames", markup=False)
    return 0


def _print(console: Console, args: Args, evaluations: list[Evaluation]) -> None:
    from rich.markup import escape
    from rich.table import Table

    of_run = f" ({args.which} policy)" if (args.policy / "policy").is_dir() else ""
    title = f"{args.policy}{of_run} in {evaluations[0].env_id}, {args.episodes} episodes"
    table = Table(title=escape(title), title_justify="left")
    scored = evaluations[0].score is not None
    heads = ["noise", "start\nnoise", *(["score"] if scored else []), "return", "worst", "worst\n- mean", "length"]
    heads += ["cost"] if evaluations[0].cost is not None else []
    for head in heads:
        table.add_column(head, justify="right", no_wrap=True)
    for row in evaluations:
        difference = row.percent_difference
        table.add_row(
            f"{row.noise:g}",
            f"{row.start_noise:g}",
            *([f"{row.score:.1f} ± {row.score_std:.1f}"] if scored else []),
            f"{brief(row.mean)} ± {brief(row.std)}",
            brief(row.worst),
            "-" if difference is None else f"{difference:.1f} %",
            f"{row.lengths.mean():.0f}",
            *([f"{row.cost:.2f}"] if row.cost is not None else []),
        )
    console.print(table)


def main(argv: list[str]) -> int:
    return run(parse(Args, "odice evaluate", argv))
