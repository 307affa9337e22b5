"""`odice data`: check a data set, write a schema for a table, convert it, or collect one (`cli.collect`)."""

from __future__ import annotations

import json
import time
import warnings
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from odice.cli.help import parse_subcommand
from odice.data.schema import TableFlags
from odice.errors import OdiceError, printable
from odice.files import complete_file

if TYPE_CHECKING:
    from collections.abc import Callable

    from odice.data.doctor import Report

EXIT_FINDINGS = 1


@dataclass(frozen=True)
class SourceArgs:
    """Where the data are."""

    source: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="SOURCE")]
    """A file or folder (Parquet, CSV, HDF5, NPZ), a D4RL name, or a Minari id."""
    data_dir: Path | None = None
    """Folder with D4RL files, for D4RL names (default: the variable ODICE_DATA)."""
    format: str | None = None
    """Reader to use if the name and the content do not show the format: d4rl, minari, arrays, table."""
    obs_keys: tuple[str, ...] = ()
    """Minari: the parts of a dict observation to use, in this order; by default all of them."""
    schema: Path | None = None
    """A TOML or JSON file that says what the columns of a table mean (`odice data schema LOG` writes one)."""
    table: tyro.conf.OmitArgPrefixes[TableFlags] = field(default_factory=TableFlags)
    env_id: str | None = None
    """Environment that the data come from."""
    ref_min: float | None = None
    """Return that counts as score 0."""
    ref_max: float | None = None
    """Return that counts as score 100."""

    def load(self, read: Callable[..., Any] | None = None) -> Any:
        """The data set; `read` does in the place of `odice.load`."""
        from odice.data.load import load

        about = {"env_id": self.env_id, "ref_min": self.ref_min, "ref_max": self.ref_max}
        options = {**self.table.table(self.schema), **{key: value for key, value in about.items() if value is not None}}
        options |= {"obs_keys": self.obs_keys} if self.obs_keys else {}
        with warnings.catch_warnings():
            warnings.simplefilter("always")
            return (read or load)(self.source, format=self.format, data_dir=self.data_dir, **options)


@dataclass(frozen=True)
class Inspect:
    """Show what a data set contains and what is wrong with it. Exit code 1 if there are errors."""

    source: tyro.conf.OmitArgPrefixes[SourceArgs]
    json: bool = False
    """Print the report as JSON."""
    html: Path | None = None
    """Write the report as one self-contained page."""
    allow: tuple[str, ...] = ()
    """Codes of errors to accept, or `all`."""

    def run(self) -> int:
        from odice.data.doctor import CODES, inspect
        from odice.errors import unknown_name

        for code in set(self.allow) - {"all"} - set(CODES):
            raise unknown_name("finding to allow", code, [*CODES, "all"])
        report = inspect(self.source.load())
        if self.html is not None:
            from odice.reports.data import data_page
            from odice.reports.html import write

            write(self.html, data_page(report))
        if self.json:
            print(json.dumps(report.to_dict(), indent=1, allow_nan=False))
        else:
            show(report)
        serious = [f for f in report.errors if f.code not in self.allow and "all" not in self.allow]
        return EXIT_FINDINGS if serious else 0


@dataclass(frozen=True)
class Convert:
    """Write a data set in another layout: D4RL HDF5 (.hdf5), Parquet (.parquet), Minari (an id or a folder), or a store
    for training from disk (.store), which may be larger than memory."""

    source: tyro.conf.OmitArgPrefixes[SourceArgs]
    out: Path
    """Where to write; the suffix decides the format."""
    to: str | None = None
    """The format, if the suffix of OUT does not show it: d4rl, parquet or minari."""
    ray: str | None = None
    """Address of a Ray cluster (`auto`, HOST:PORT): its nodes read the files of 'logs/*.parquet' or s3://bucket/logs,
    this machine writes the store."""
    dry_run: bool = False
    """Say how much there is to read and to write, and about how long it takes; write nothing."""

    def run(self) -> int:
        from odice.data.store import make_store
        from odice.data.writers import save

        if self.out.exists():
            raise OdiceError(f"--out {self.out} exists already; choose another name.")
        if self.dry_run:
            return self._plan()
        if self.out.suffix == ".store" and self.to is None:
            dataset = self.source.load(lambda source, **options: make_store(source, self.out, ray=self.ray, **options))
            print(f"{self.out}: {dataset.n_episodes:,} episodes, {dataset.n_steps:,} steps")
            return 0
        if self.ray is not None:
            raise OdiceError("--ray is for many Parquet files that become a store: --out NAME.store.")
        dataset = self.source.load()
        place = save(dataset, str(self.out), self.to)
        print(f"{place}: {dataset.n_episodes:,} episodes, {dataset.n_steps:,} steps, SHA-256 {dataset.fingerprint}")
        return 0

    def _plan(self) -> int:
        """Say what would be done."""
        from odice.data.readers.files import is_many
        from odice.data.writers import format_of
        from odice.training.forecast import size
        from odice.training.progress import duration

        store = self.out.suffix == ".store" and self.to is None
        if store and is_many(self.source.source):
            from odice.data.store.many import forecast_store

            cost = self.source.load(
                lambda source, format=None, data_dir=None, **options: forecast_store(source, **options)
            )
            print(f"{self.source.source}: {cost.files:,} files, about {cost.rows:,} rows")
            print(
                f"{self.out}: about {size(cost.disk)}, {duration(cost.seconds)} (the first rows were copied and timed)"
            )
            return 0
        kind = "store" if store else format_of(str(self.out), self.to)
        began = time.perf_counter()
        dataset = self.source.load()
        print(
            f"{self.source.source}: {dataset.n_episodes:,} episodes, {dataset.n_steps:,} steps, read in "
            f"{duration(time.perf_counter() - began)}; {size(dataset.nbytes)} in memory"
        )
        print(f"{self.out}: would be written as {kind}; writing takes about as long as reading")
        return 0


@dataclass(frozen=True)
class WriteSchema:
    """Propose a schema for a table: a role for each column, to be corrected by hand and given as `--schema`."""

    log: tyro.conf.Positional[Path]
    """A Parquet or CSV file, or a folder of them."""
    out: Path | None = None
    """Where to write; by default the log's name with .toml."""

    def run(self) -> int:
        from odice.data.readers.draft import draft

        out = self.out or self.log.with_name(f"{self.log.name.split('.')[0]}.toml")
        if out.exists():
            raise OdiceError(f"{out} exists already; choose another name with --out.")
        text, questions = draft(self.log, out)
        try:
            with complete_file(out) as temporary:
                temporary.write_text(text, "utf-8")
        except OSError as error:
            raise OdiceError(f"{out} cannot be written: {error.strerror or error}.") from None
        print(f"{out}: " + ("please check these" if questions else "complete"))
        for question in questions:
            print(f"  {printable(question)}")
        return 0


def show(report: Report) -> None:
    """The report for a terminal."""
    from rich.console import Console
    from rich.padding import Padding
    from rich.table import Table
    from rich.text import Text

    from odice.reports.data import verdict

    console = Console(highlight=False)
    s = report.summary
    console.print(Text(s["source"], style="bold"))
    facts = Table(box=None, show_header=False, padding=(0, 2, 0, 2))
    facts.add_column(style="dim")
    facts.add_column(overflow="fold")
    for name, value in _facts(s):
        facts.add_row(name, Text(printable(value)))
    console.print(facts)
    for name, spread in (("returns", s["returns"]), ("lengths", s["lengths"])):
        console.print()
        console.print(Text(f"  {name}", style="dim"))
        for line in _bars(spread["histogram"]):
            console.print(Text(f"    {line}"))
    console.print()
    colors = {"error": "bold red", "warning": "yellow", "note": "green"}
    for finding in report.findings:
        console.print(Text.assemble((finding.severity, colors[finding.severity]), " ", (finding.code, "dim")))
        console.print(Padding(Text(printable(finding.message)), (0, 0, 0, 2)))
        console.print(Padding(Text(finding.advice, style="italic"), (0, 0, 0, 2)))
    console.print(Text(verdict(report), style="bold"))


def _facts(s: dict[str, Any]):
    from odice.reports.html import number

    yield "episodes", f"{s['episodes']:,} ({s['terminated']:,} terminated, {s['truncated']:,} truncated)"
    yield "steps", f"{s['steps']:,} ({s['bytes'] / 1e6:,.1f} MB in memory)"
    least, _, median, _, most = (number(q) for q in s["returns"]["quartiles"])
    yield (
        "return",
        f"{number(s['returns']['mean'])} ± {number(s['returns']['std'], 3)} ({least} to {most}, median {median})",
    )
    if s["score"] is not None:
        yield (
            "score",
            f"{s['score']:.1f} on average, where {number(s['reference'][0])} is 0 and "
            f"{number(s['reference'][1])} is 100",
        )
    least, _, median, _, most = (number(q) for q in s["lengths"]["quartiles"])
    yield "length", f"{least} to {most}, median {median}"
    yield (
        "reward",
        f"{number(s['reward']['min'])} to {number(s['reward']['max'])}, {s['reward']['nonzero']:.1%} not zero",
    )
    yield "observation", f"{s['obs_dim']} numbers; the final one is known for {s['final_observations']:,} episodes"
    if s["discrete"]:
        fractions = sorted(one["share"] for one in s["actions"])
        yield (
            "action",
            f"{s['action_dim']} choices, the rarest taken {fractions[0]:.1%}, "
            f"the commonest {fractions[-1]:.1%} of the time",
        )
    else:
        worst = max(s["actions"], key=lambda a: a["saturation"])
        ranges = [f"{a['name']} from {number(a['min'] or 0)} to {number(a['max'] or 0)}" for a in s["actions"][:4]]
        more = f" and {len(s['actions']) - 4} more" if len(s["actions"]) > 4 else ""
        yield (
            "action",
            f"{', '.join(ranges)}{more}; {worst['name']} is at its bound {worst['saturation']:.1%} of the time",
        )
    if s["env"]:
        yield "environment", s["env"]
    yield "fingerprint", s["fingerprint"]


def _bars(histogram: dict[str, Any], width: int = 40):
    """A histogram in characters, ten rows."""
    from odice.reports.html import number

    counts, edges = histogram["counts"], histogram["edges"]
    if not counts:
        return
    if len(counts) > 10:  # merge neighboring bins: a terminal has fewer rows than a page
        counts = [a + b for a, b in zip(counts[::2], counts[1::2], strict=True)]
        edges = edges[::2]
    most = max(counts)
    labels = [number(edge, 3) for edge in edges[:-1]]
    room = max(map(len, labels))
    for label, count in zip(labels, counts, strict=True):
        filled = width * count / most
        bar = "█" * int(filled) + ("▌" if filled % 1 >= 0.5 else "")
        yield f"{label:>{room}} {bar or ('▏' if count else '')} {count or ''}".rstrip()


@dataclass(frozen=True)
class Example:
    """Write a small made-up log as a CSV file: one-step, randomized, outcomes or panel."""

    name: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="NAME")]
    """Which one: one-step, randomized, outcomes or panel."""
    out: Path | None = None
    """Where to write; by default NAME.csv."""
    rows: int | None = None
    """About how many rows."""
    seed: int = 0
    """The same seed gives the same log."""

    def run(self) -> int:
        from odice.data.examples import example

        table = example(self.name, self.rows, self.seed)
        out = self.out or Path(f"{self.name}.csv")
        if out.exists():
            raise OdiceError(f"{out} exists already; choose another --out.")
        try:
            with complete_file(out) as temporary:
                table.write_csv(temporary)
        except OSError as error:
            raise OdiceError(f"{out}: cannot be written ({error.strerror or error}); choose another --out.") from error
        print(f"{out}: {table.height:,} rows of {', '.join(table.columns)}")
        return 0


def main(argv: list[str]) -> int:
    commands: dict[str, Any] = {"inspect": Inspect, "schema": WriteSchema, "convert": Convert, "example": Example}
    # The flags of `collect` know SAC's settings, and those jax: not for the others to wait for.
    if not argv or argv[0] not in commands:
        from odice.cli.collect import Collect

        commands["collect"] = Collect
    if len(argv) > 1 and "--data" in argv[1:]:  # as `odice train` says it
        argv = [word for i, word in enumerate(argv) if word != "--data" or i == 0]
    about = "Check a data set, write a schema for a table, convert data to another format, or make data."
    return parse_subcommand(commands, "odice data", argv, about).run()
