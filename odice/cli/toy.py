"""`odice toy`: the paper's grid world under three gradient rules; a figure, the numbers, a table."""

from __future__ import annotations

import json
import statistics
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path

from odice.cli.help import parse
from odice.errors import OdiceError
from odice.files import complete_file

# options that every rule shares
SHARED = ("seed", "seeds", "steps", "encoding", "batch_size", "discount", "reward_scale")


@dataclass(frozen=True)
class Options:
    """The paper's 30 x 30 grid world: train V-DICE with three gradient rules, draw V and measure it."""

    out: Path
    """Folder for toy.png and toy.json; made if it is not there."""
    seed: int = 0
    """Seed of the log and of the networks."""
    seeds: int = 1
    """How many seeds, counted up from --seed; the figure shows the first."""
    rules: tuple[str, ...] = ("true", "semi", "orthogonal")
    """Gradient rules to train, in this order."""
    lam: float | None = None
    """lambda, strictly between 0 and 1, for all rules (default: the searched value of each rule)."""
    eta: float | None = None
    """Strength of the projected backward gradient, at least 0; orthogonal only (default: the searched value)."""
    steps: int = 10_000
    """Gradient updates per rule and seed."""
    encoding: str = "raw"
    """What the network sees of a cell: raw, unit, symmetric, fourier, one-hot-xy, one-hot."""
    batch_size: int = 256
    """Transitions per update; the paper does not say."""
    discount: float = 0.99
    """gamma, in [0, 1]."""
    goal_reward: float = 10.0
    """Reward of the move that reaches a goal; the paper only says that it is positive."""
    reward_scale: float = 1.0
    """Multiply all rewards in training by this; the printed return is not scaled."""
    dry_run: bool = False
    """Say about how long it takes; train nothing, write nothing."""


def writable(folder: Path) -> Path:
    """Make the folder; where nothing can be written there, say so before any work is done."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise OdiceError(
            f"Cannot write to --out {folder} ({error.strerror}): name a folder you may write to."
        ) from None
    return folder


def summarize(outcomes: list) -> dict[str, dict]:
    """Per rule the mean over seeds of every measure (of a yes-or-no one: the share of yes)."""
    by_rule: dict[str, list[dict]] = {}
    for outcome in outcomes:
        by_rule.setdefault(outcome.rule, []).append(outcome.measures)
    return {
        rule: {name: statistics.fmean(float(m[name]) for m in measures) for name in measures[0]}
        for rule, measures in by_rule.items()
    }


def write_json(path: Path, content: dict) -> Path:
    with complete_file(path) as temporary:
        temporary.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
    return path


def train(config, console) -> list:
    """Train with a progress bar per rule."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    from odice.experiments import toy

    columns = (TextColumn("{task.description:>10}"), BarColumn(), MofNCompleteColumn(), TextColumn("updates"))
    with Progress(*columns, TimeRemainingColumn(), console=console) as progress:
        bars = {rule: progress.add_task(rule, total=config.steps * config.seeds) for rule in config.rules}
        return toy.run(config, lambda rule, updates: progress.advance(bars[rule], updates))


def plan(config, out: Path) -> int:
    """Say what would be trained, by timing a few updates of every rule."""
    from odice.experiments import gridworld
    from odice.experiments.toy import transitions
    from odice.machine import cores
    from odice.training.forecast import time_updates
    from odice.training.progress import duration

    data, seconds = transitions(config, gridworld.collect(config.world, config.transitions, config.seed)), 0.0
    for rule in config.rules:
        timed = time_updates(config.algorithm(rule), data, config.batch_size)
        seconds += timed.start + config.seeds * config.steps / timed.rate
        print(f"{rule:<12}{config.seeds} x {config.steps:,} updates, {timed.rate:,.0f} updates/s")
    at_once = min(cores(), len(config.rules))
    print(f"about {duration(seconds / at_once)}, {at_once} rules at a time; {out}/toy.png and toy.json, below 1 MB")
    return 0


def figure(config, outcomes: list):
    """The figure of the first seed."""
    from odice.experiments import gridworld
    from odice.reports.figures import toy_figure

    world = config.world
    seen = gridworld.support(world, gridworld.collect(world, config.transitions, config.seed))
    panels = []
    for outcome in outcomes:
        if outcome.seed == config.seed:
            verdict = "finds a goal" if outcome.measures["reached_goal"] else "finds no goal"
            results = f"{verdict}, AUC {outcome.measures['auc']:.2f}"
            panels.append(
                (f"{outcome.rule.capitalize()}-gradient V", outcome.value, world.cells[outcome.path], results)
            )
    return toy_figure(world.rewards(), seen, panels, world.goal_reward)


def print_table(config, summary: dict[str, dict], console) -> None:
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    seeds = f"means over {config.seeds} seeds" if config.seeds > 1 else f"seed {config.seed}"
    table = Table(title=f"Greedy walks on V, {seeds}", title_justify="left", box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    table.add_column("rule", no_wrap=True)
    for column in ("lam", "eta", "goal", "return", "V in", "V out", "AUC", "near", "match", "back"):
        table.add_column(column, justify="right", no_wrap=True)
    for rule, m in summary.items():
        settings = config.settings(rule)
        eta = f"{settings['eta']:g}" if "eta" in settings else "-"
        values = (f"{m[name]:.1f}" for name in ("return", "value_inside", "value_outside"))
        aucs = (f"{m[name]:.2f}" for name in ("auc", "auc_near", "auc_matched"))
        table.add_row(
            rule, f"{settings['lam']:g}", eta, f"{m['reached_goal']:.0%}", *values, *aucs, f"{m['back_to_support']:.0%}"
        )
    console.print(table)
    console.print(
        "goal    share of seeds whose walk from (0, 0) reaches a goal, and its return\n"
        "V       mean over the cells in the data and out of it\n"
        "AUC     how often V is higher in a cell of the data than out of it (0.5: chance)\n"
        "near    the same against cells at most 3 moves away from the data\n"
        "match   the same between cells equally far from a goal\n"
        "back    share of the cells outside from which the walk comes back to the data\n",
        highlight=False,
    )


def main(argv: list[str]) -> int:
    options = parse(Options, "odice toy", argv)

    from rich.console import Console

    from odice.experiments.gridworld import GridWorld
    from odice.experiments.toy import ToyConfig
    from odice.reports.figures import save

    config = ToyConfig(
        **{name: getattr(options, name) for name in ("rules", "lam", "eta", *SHARED)},
        world=GridWorld(goal_reward=options.goal_reward),
    )
    if options.dry_run:
        return plan(config, options.out)
    out = writable(options.out)
    console = Console()
    outcomes = train(config, console)
    summary = summarize(outcomes)
    content = {
        "config": {name: getattr(config, name) for name in (*SHARED, "transitions")} | asdict(config.world),
        "settings": {rule: config.settings(rule) for rule in config.rules},
        "runs": [{"rule": outcome.rule, "seed": outcome.seed, **outcome.measures} for outcome in outcomes],
        "summary": summary,
    }
    files = [save(figure(config, outcomes), out / "toy.png"), write_json(out / "toy.json", content)]
    print_table(config, summary, console)
    for file in files:
        console.print(f"wrote {file}", soft_wrap=True, highlight=False)
    return 0
