"""What `odice evaluate --data` and `odice select` share: the options of an estimate, its table, its file."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from odice.data.schema import TableFlags
from odice.errors import OdiceError
from odice.files import complete_file

if TYPE_CHECKING:
    from odice.data.dataset import Dataset
    from odice.evaluation.ope.estimate import Estimate, Estimates
    from odice.evaluation.ope.intervals import Interval
    from odice.policy import Policy


BY_EPISODES = ("importance", "doubly-robust", "one-step", "propensity")


@dataclass(frozen=True)
class LogOptions:
    """An estimate from a log alone."""

    data: Annotated[str | None, tyro.conf.arg(metavar="LOG")] = None
    """Estimate from this log: a file, a Minari id or a D4RL name."""
    discount: float | None = None
    """Discount of the return; by default that of the policy's training, else 0.99. 1 is the undiscounted return."""
    horizon: int | None = None
    """Number of steps of an episode to estimate; by default the longest episode of the log."""
    estimators: tuple[str, ...] | None = None
    """Estimators to show in addition to those of the verdict: dice, dual-dice, gen-dice, gradient-dice."""
    updates: int | None = None
    """Updates of the density ratios of --estimators; 3,000 by default."""
    data_dir: Path | None = None
    """Folder with D4RL files, for D4RL names (default: the variable ODICE_DATA)."""
    format: str | None = None
    """Reader to use if the name and the content do not show the format: d4rl, minari, arrays, table."""
    obs_keys: tuple[str, ...] = ()
    """Minari: the parts of a dict observation to use, in this order; by default all of them."""
    schema: Path | None = None
    """A TOML or JSON file that says what the columns of a table mean (`odice data schema LOG` writes one)."""
    table: tyro.conf.OmitArgPrefixes[TableFlags] = field(default_factory=TableFlags)

    def load(self, *policies: Policy) -> Dataset:
        """Read the log as the policies' own was read, where no schema is given."""
        from odice.evaluation.log import log_for

        options = {**self.table.table(self.schema), **({"obs_keys": self.obs_keys} if self.obs_keys else {})}
        return log_for(policies, self.data, format=self.format, data_dir=self.data_dir, **options)

    def settings(self) -> dict[str, Any]:
        given = {"discount": self.discount, "horizon": self.horizon, "updates": self.updates}
        return given if self.estimators is None else {**given, "estimators": self.estimators}


def show(name: str, estimates: Estimates) -> None:
    """The table, what its numbers rest on, and the verdict last, where the eye ends."""
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    console = Console()
    size = f"{estimates.episodes:,} episodes, {estimates.steps:,} steps"
    title = f"{name} by {estimates.source}: {size}; {_confidence(estimates)} intervals"
    table = Table(title=escape(title), title_justify="left")
    table.add_column(f"within {estimates.horizon} steps,\ndiscount {estimates.discount:g}", no_wrap=True)
    for head in ("return", "more than the behavior", "effective\nsize"):
        table.add_column(head, justify="right")
    table.add_row("behavior", interval(estimates.behavior), "", f"{estimates.episodes} ep.")
    for one in estimates.estimates.values():
        row = (interval(one.value), interval(one.improvement), _size(one))
        table.add_row(one.name + ("*" if one.unusable else ""), *row, style="dim" if one.unusable else None)
    console.print(table)
    for line in lines(estimates):
        console.print(line, markup=False, highlight=False, soft_wrap=True)
    console.print(f"\nverdict: {estimates.verdict}", style="bold", markup=False, highlight=False, soft_wrap=True)


def lines(estimates: Estimates) -> list[str]:
    """What a reader has to know about the numbers."""
    out = [estimates.judged_by]
    out += [f"* {one.name} is not used: {one.unusable}" for one in estimates.estimates.values() if one.unusable]
    how = (
        f"gives the logged action a probability of {estimates.agreement:.0%} on average"
        if estimates.discrete
        else f"is {estimates.agreement:.2g} from the logged action (root mean square; actions in [-1, 1])"
    )
    out.append(f"the policy {how}; in {estimates.outside:.0%} of the states it does what the behavior hardly ever did")
    if estimates.known:
        out.append("the probabilities of the logged actions are those that the log gives")
    else:
        out.append(
            f"the estimated behavior is off by {estimates.calibration:.1%} on episodes it was not fitted to; if it "
            "acted on something that is not in the log, or the world changed meanwhile, every estimate is wrong"
        )
    if estimates.cut:
        out.append(
            f"{estimates.cut} episodes were cut before step {estimates.horizon}: what followed is estimated, not known"
        )
    out.append(
        f"intervals have two sides, {_confidence(estimates)} between them; `at least` is a bound on one side, so it "
        "lies above the lower end"
    )
    out.append("both cover the luck of the log, not states and actions that no episode shows")
    if estimates.verdict.smallest is not None:
        out.append(f"the smallest gain that these episodes could confirm: {estimates.verdict.smallest:.4g}")
    return out


def _confidence(estimates: Estimates) -> str:
    """The confidence of every interval; more than 95 % where the log chose the policy from several."""
    from odice.evaluation.ope.intervals import percent

    return percent(estimates.verdict.confidence).replace("%", " %")


def interval(one: Interval | None) -> str:
    """An interval as text."""
    return "-" if one is None else f"{one.mean:.4g} ({one.low:.4g} to {one.high:.4g})"


def _size(one: Estimate) -> str:
    if one.effective is None:
        return ""
    return f"{one.effective:.1f} ep." if one.name in BY_EPISODES else f"{one.effective:.0%}"


def write_page(
    path: Path, policy: Policy, estimates: Estimates, data: Dataset, log: LogOptions, **details: Any
) -> None:
    """Write the decision page of a policy that was evaluated on a log.

    Args:
        path: The HTML file.
        policy: The policy.
        estimates: What the log says about it.
        data: The log.
        log: How the log was read.
        **details: `bounds`, how many bounds hold at once; `place`, the policy's folder; others of `decision_page`.
    """
    from odice.data.schema import Schema
    from odice.decision.judge import judge
    from odice.decision.page import Paths, decision_page
    from odice.reports import html

    schema = Schema.parse(data.meta.schema or {}, data.meta.source)
    bounds = details.pop("bounds", 1)
    judgment = judge(policy, data, estimates, log=log.data, schema=schema, candidates=bounds)
    paths = Paths(str(log.data), str(log.schema or ""), str(details.pop("place", "")))
    about = {"title": "Should we use this policy?", "health": dict(policy.about.get("health") or {}), "paths": paths}
    html.write(path, decision_page(data, policy, judgment, **about, **details))
    print(f"the page for the person who decides: {path}")


def write(path: Path, content: dict[str, Any]) -> None:
    """A JSON file, complete or not at all."""
    try:
        with complete_file(path) as temporary:
            temporary.write_text(json.dumps(content, indent=1, allow_nan=False) + "\n", "utf-8")
    except OSError as error:
        raise OdiceError(f"{path} cannot be written: {error.strerror or error}.") from None
