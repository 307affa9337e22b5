"""`odice trial`: plan a trial of a policy, and evaluate it while it is running."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro

from odice.cli.help import parse
from odice.data.schema import TableFlags
from odice.errors import OdiceError

if TYPE_CHECKING:
    from odice.data.dataset import Dataset
    from odice.policy import Policy


@dataclass(frozen=True)
class Args:
    """Judge the log of a trial against a control, as often as you like. Without a trial's log: how many episodes the
    trial needs."""

    trial: Annotated[str | None, tyro.conf.Positional, tyro.conf.arg(metavar="[TRIAL]")] = None
    """Log of the episodes in which the policy acted; leave it out to plan the trial."""
    control: Annotated[str | None, tyro.conf.arg(metavar="LOG")] = None
    """Log of episodes without the policy: a group that runs in parallel, or the log from before."""
    policy: Annotated[Path | None, tyro.conf.arg(metavar="RUN|POLICY")] = None
    """The policy that was tried, to show in how many steps the trial followed it."""
    gain: float | None = None
    """The gain per episode that the trial is planned for. Choose it before the trial and keep it."""
    range: tuple[float, float] | None = None
    """The least and the most that an episode can earn; by default the range of the returns in the logs."""
    horizon: int | None = None
    """Number of steps of an episode to count; by default all."""
    alpha: float = 0.05
    """Probability of a wrong "better", and of a wrong "worse", over the trial as a whole."""
    power: float = 0.8
    """When planning: the probability that the trial confirms the gain."""
    parallel: bool = False
    """When planning: the control will be a group of the same size that runs in parallel."""
    json: Annotated[Path | None, tyro.conf.arg(metavar="FILE")] = None
    """Also write the result to this file."""
    format: str | None = None
    """Reader to use if the name and the content do not show the format: d4rl, minari, arrays, table."""
    schema: Path | None = None
    """A TOML or JSON file that says what the columns of a table mean (`odice data schema LOG` writes one)."""
    table: tyro.conf.OmitArgPrefixes[TableFlags] = field(default_factory=TableFlags)

    def load(self, source: str, policy: Policy | None) -> Dataset:
        """Read a log, with the policy's own schema where none is given."""
        from odice.evaluation.log import log_for

        return log_for(policy, source, format=self.format, **self.table.table(self.schema))


def run(args: Args) -> int:
    from odice.cli.estimates import write
    from odice.evaluation.trial import trial
    from odice.policy import open_policy

    if args.control is None:
        raise OdiceError("Name the log to compare with: --control LOG.")
    policy = None if args.policy is None else open_policy(args.policy)
    control = args.load(args.control, policy)
    if args.trial is None:
        return _plan(args, control)
    data = args.load(args.trial, policy)
    options = {"limits": args.range, "alpha": args.alpha, "expected_gain": args.gain, "horizon": args.horizon}
    result = trial(data, control, policy=policy, **options)
    print(f"trial    {args.trial}: {result.episodes:,} episodes, mean return {result.mean:.4g}")
    print(f"control  {args.control}: {result.control_episodes:,} episodes, mean return {result.control_mean:.4g}")
    if result.followed is not None:
        print(f"the policy was followed in {result.followed:.0%} of the trial's steps")
    if args.range is None:
        print(f"range    {result.low:.4g} to {result.high:.4g}, seen in the logs; give the possible one with --range")
    print(f"\n{result}")
    if args.json is not None:
        write(args.json, result.to_dict())
    return 0


def _plan(args: Args, control: Dataset) -> int:
    from odice.cli.estimates import write
    from odice.evaluation.trial import episodes_needed

    if args.gain is None:
        raise OdiceError("Name the trial's log, or give the gain to plan a trial for: --gain NUMBER.")
    options = {"limits": args.range, "power": args.power, "alpha": args.alpha, "parallel": args.parallel}
    episodes = episodes_needed(control.returns_within(args.horizon), args.gain, **options)
    group = "with the policy and as many without it" if args.parallel else "with the policy"
    if episodes is None:
        print(f"More than 20,000 episodes {group} are needed to confirm a gain of {args.gain:g} per episode.")
    else:
        print(
            f"{episodes:,} episodes {group} confirm a gain of {args.gain:g} per episode in {args.power:.0%} of trials; "
            "the trial may be read at any time and stopped when it is decided."
        )
    if args.json is not None:
        write(args.json, {"gain": args.gain, "power": args.power, "alpha": args.alpha, "episodes": episodes})
    return 0


def main(argv: list[str]) -> int:
    return run(parse(Args, "odice trial", argv))
