"""`odice reproduce`: the paper's tables and figures by one command."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import tyro

from odice.cli.help import changed_flags, parse
from odice.cli.workers import WorkerFlags
from odice.errors import OdiceError

if TYPE_CHECKING:
    from odice.experiments.reproduce import StudyRun
    from odice.experiments.study_logs import StudyLog
    from odice.reports.compare import Comparison
    from odice.reports.tables import ReportTable
    from odice.sweeps.runs import SweepRun

ABOUT = (
    "Train what a table or figure of the paper needs, and write it. Run the same command again to continue: what is "
    "finished is not done twice."
)
NOT_D4RL = "Local suite: these logs were made here and are not D4RL's; no published number belongs to them."
D4RL = "D4RL's data, evaluated on today's MuJoCo (Gymnasium's v4 robots, D4RL's AntMaze rebuilt), not on mujoco-py."
TITLES = {
    "table1": "Table 1 of the O-DICE paper",
    "table2": "Table 2 of the O-DICE paper",
    "figure3": "Figure 3 of the O-DICE paper",
    "curves": "Learning curves of the O-DICE paper's comparison",
    "sensitivity": "How much lambda and eta matter",
}
NOT_OF_THE_TOY = ("--logs", "--algos", "--eval-every", "--eval-episodes", "--set", "--report-only")
OWN_FIGURES = ("figure3", "sensitivity")
"""Studies with a figure of their own; the others' are learning curves, which every page has."""


@dataclass(frozen=True)
class ReproduceFlags:
    """Which table or figure, on which data."""

    study: Annotated[
        tyro.conf.Positional[Literal["table1", "table2", "figure2", "figure3", "curves", "sensitivity"]],
        tyro.conf.arg(metavar="WHAT"),
    ]
    """table1 (D4RL), table2 (imitation), figure2 (the toy world), figure3 (worst episode, feature product), curves, or
    sensitivity (lambda and eta)."""
    data_dir: Path | None = None
    """Folder with D4RL's files; else the variable ODICE_DATA."""
    suite: Literal["local"] | None = None
    """Use the local suite (`odice suite make`) instead of D4RL's files."""
    suite_dir: Path = Path("runs", "suite")
    """The folder of the local suite."""
    logs: tuple[str, ...] = ()
    """Only these data sets. On the local suite also NAME=PATH, a log of yours, which gets the settings of the D4RL data
    set of that name."""
    algos: tuple[str, ...] = ()
    """These algorithms instead of the study's."""
    preset: Literal["paper", "reference", "corl", "own"] = "paper"
    """Published settings; an algorithm without them gets the next that has some. `own` are odice's defaults."""
    steps: int | None = None
    """Updates of every run; by default as many as published, and 100,000 on the local suite."""
    seeds: int | None = None
    """Seeds; by default the paper's five, for table2 the released script's (0, 10, 100), on the local suite three."""
    seed: int | None = None
    """The first seed, instead of the published ones."""
    eval_every: int | None = None
    """Updates between two evaluations; by default as published, at most a twentieth of a shorter run."""
    eval_episodes: int | None = None
    """Episodes per evaluation; by default as published, on the local suite 10, in its mazes 20, in its hospital 100."""
    last: int = 10
    """Evaluations at the end of a run whose mean is the run's score; the paper has ten."""
    set: tuple[str, ...] = ()
    """NAME=VALUE: a setting or option for all runs; NAME=VALUE,VALUE...: a run for each."""
    out: Path | None = None
    """Folder for runs, tables and figures (default: runs/reproduce/d4rl or runs/reproduce/local)."""
    at: tyro.conf.OmitArgPrefixes[WorkerFlags] = field(default_factory=WorkerFlags)
    dry_run: bool = False
    """List the runs with their lengths, and which are finished, and estimate time and disk; train nothing, write
    nothing."""
    report_only: bool = False
    """Train nothing: write what the finished runs give."""
    quiet: bool = False
    """Print nothing but the tables, warnings and errors."""

    def __post_init__(self):
        for name, least in {"steps": 1, "seeds": 1, "seed": 0, "last": 1}.items():
            value = getattr(self, name)
            if value is not None and value < least:
                raise OdiceError(f"--{name} must be at least {least}, got {value}.")


def main(argv: list[str]) -> int:
    flags = parse(ReproduceFlags, "odice reproduce", argv, ABOUT, pairs=False)
    out = flags.out or Path("runs", "reproduce", flags.suite or "d4rl")
    return _toy(flags, out) if flags.study == "figure2" else _study(flags, out)


def _toy(flags: ReproduceFlags, out: Path) -> int:
    """Figure 2 is the toy world."""
    from odice.cli import toy

    for flag in changed_flags(flags):
        if flag in NOT_OF_THE_TOY:
            raise OdiceError(f"{flag} has no effect on figure2, the toy world; leave it out.")
    chosen = {"--steps": flags.steps, "--seed": flags.seed, "--seeds": flags.seeds}
    given = [word for name, value in chosen.items() if value is not None for word in (name, str(value))]
    given += ["--dry-run"] if flags.dry_run else []
    return toy.main(["--out", str(out / "figure2"), *given])


def _study(flags: ReproduceFlags, out: Path) -> int:
    from odice.sweeps.execute import check_outcomes, listing, run_sweep

    sources, missing = _sources(flags)
    for sentence in missing:
        print(f"missing: {sentence}", flush=True)
    if not sources:
        raise OdiceError(f"None of the data sets of {flags.study} is there; see above how to get them{_hint(flags)}.")
    backend = flags.at.backend()
    out = backend.folder(out)
    runs, places = _runs(flags, sources, out)
    if flags.dry_run:
        from odice.sweeps.forecast import forecast_runs

        print(listing(runs), flush=True)
        print(forecast_runs(runs, flags.at.workers))
        return 0
    outcomes = {} if flags.report_only else run_sweep(out / "runs", runs, backend, flags.at.retries, flags.quiet)
    if any((run.path / "config.json").exists() for run in runs):
        _report(flags, runs, places, missing, out)
    elif flags.report_only:
        raise OdiceError(f"No run of {flags.study} has begun in {out / 'runs'}; leave --report-only out.")
    check_outcomes(out / "runs", outcomes)
    return 0


def _hint(flags: ReproduceFlags) -> str:
    """Say what may help where no data were found."""
    folder = flags.suite_dir if flags.suite else flags.data_dir
    wrong = f" (there is no folder {folder})" if folder and not folder.expanduser().is_dir() else ""
    return wrong if flags.suite else f"{wrong}, or say --suite local for logs made here"


def _sources(flags: ReproduceFlags) -> tuple[list[StudyLog], list[str]]:
    import os

    from odice.experiments.studies import STUDIES
    from odice.experiments.study_logs import d4rl_sources, local_experts, local_sources

    study = STUDIES[flags.study]
    if flags.suite is None:
        return d4rl_sources(study, flags.logs, flags.data_dir or os.environ.get("ODICE_DATA"))
    return (local_experts if study.imitation else local_sources)(flags.logs, flags.suite_dir)


def _runs(flags: ReproduceFlags, sources: list[StudyLog], out: Path) -> tuple[list[SweepRun], list[StudyRun]]:
    from odice.cli.sweep import axes
    from odice.experiments.reproduce import StudyOptions, study_runs
    from odice.experiments.studies import STUDIES

    given = axes(flags.set)
    chosen = StudyOptions(
        flags.preset,
        flags.steps,
        flags.seeds,
        flags.seed,
        flags.eval_every,
        flags.eval_episodes,
        {name: values for name, values in given.items() if len(values) > 1},
        {name: values[0] for name, values in given.items() if len(values) == 1},
    )
    runs, places, notes = study_runs(STUDIES[flags.study], sources, flags.algos, chosen, out / "runs")
    for note in notes:
        print(f"left out: {note}", flush=True)
    return sorted(runs, key=lambda run: run.settings.options.seed), places  # one seed of everything first


# --- what comes out ---------------------------------------------------------------------------------------------------


def _report(flags: ReproduceFlags, runs: list[SweepRun], places: list[StudyRun], missing: list[str], out: Path) -> None:
    from dataclasses import replace

    from odice.experiments import reproduction
    from odice.reports import html
    from odice.reports.pages import run_page

    comparison = reproduction.gather(places, flags.last)
    notes = tuple(f"missing: {sentence}" for sentence in missing)
    comparison = replace(comparison, notes=notes)
    about = _about(flags, runs)
    tables = _tables(flags.study, comparison, about)
    _show(tables)
    files = _texts(tables, comparison, out / flags.study)
    files += [out / f"{flags.study}.html"]
    figures = _figures(flags.study, comparison, about, out)
    shown = [path for path in figures if path.suffix == ".png" and flags.study in OWN_FIGURES]
    images = [path.read_bytes() for path in shown]
    title = f"{TITLES[flags.study]}{', on the local suite' if flags.suite else ''}"
    parts = [part for table in tables for part in _parts(table)]
    html.write(files[-1], run_page(reproduction.labelled(comparison), title, about, parts, images))
    for path in [*files, *figures]:
        print(f"{path}: written")


def _about(flags: ReproduceFlags, runs: list[SweepRun]) -> str:
    steps = sorted({run.steps for run in runs})
    updates = f"{steps[0]:,}" if len(steps) == 1 else f"{steps[0]:,} to {steps[-1]:,}"
    seeds = len({run.settings.options.seed for run in runs})
    where = NOT_D4RL if flags.suite else D4RL
    settings = "odice's own settings" if flags.preset == "own" else f"settings of the preset {flags.preset}"
    more = f", {' '.join(flags.set)}" if flags.set else ""
    done = sum((run.path / "result.json").exists() for run in runs)
    state = f"{len(runs):,} runs" if done == len(runs) else f"{done:,} of {len(runs):,} runs are finished"
    return f"{where} {updates} updates, {seeds} seed{'s' * (seeds != 1)}, {settings}{more}. {state}."


def _tables(study: str, comparison: Comparison, about: str) -> list[ReportTable]:
    from odice.experiments import reproduction

    if study == "figure3":
        return [reproduction.robustness_table(comparison, about), reproduction.score_table(comparison, "Scores", about)]
    if study == "sensitivity":
        return [reproduction.sensitivity_table(comparison, about), reproduction.settings_table(comparison, about)]
    titles = {"table1": "Table 1", "table2": "Table 2: imitation of one trajectory", "curves": "Scores"}
    return [reproduction.score_table(comparison, titles[study], about)]


def _figures(study: str, comparison: Comparison, about: str, out: Path) -> list[Path]:
    from odice.experiments import reproduction
    from odice.reports.curves import comparison_figure
    from odice.reports.figures import save

    if not any(run.evaluations for group in comparison.groups for run in group.runs):
        return []
    title = about.split(". ")[0].split(";")[0]  # one line above a figure
    own = {"figure3": reproduction.figure3, "sensitivity": reproduction.sensitivity_figure}
    made = own[study](comparison, title) if study in own else comparison_figure(reproduction.labelled(comparison))
    return [save(made, out / f"{study}{suffix}") for suffix in (".png", ".pdf")]


def _texts(tables: list[ReportTable], comparison: Comparison, stem: Path) -> list[Path]:
    from odice.reports import html
    from odice.reports import tables as writers

    texts = {
        ".md": "\n".join(map(writers.table_markdown, tables)),
        ".tex": writers.LATEX_HEAD + "\n".join(map(writers.table_latex, tables)),
        ".csv": writers.table_csv(tables[0]),
        "-runs.csv": writers.comma_separated(comparison),
    }
    return [html.write(stem.with_name(f"{stem.name}{suffix}"), text) for suffix, text in texts.items()]


PRINTED_COLUMNS = 8
"""Columns of numbers that fit next to the names of data sets in a terminal and on a page."""


def _show(tables: list[ReportTable]) -> None:
    from rich.console import Console

    from odice.reports.tables import for_terminal

    console = Console()
    if not console.is_terminal:
        console.width = 170  # a file or a pipe has no width; the tables have one
    for table in tables:
        for part in _parts(table):
            console.print(for_terminal(part))


def _parts(table: ReportTable) -> list[ReportTable]:
    """A wide table as several, each with the names at the left; the note stands below the last."""
    first, width = table.words, len(table.head)
    starts = range(first, width, PRINTED_COLUMNS)
    if len(starts) <= 1:
        return [table]
    cut = lambda row, start: [*row[:first], *row[start : start + PRINTED_COLUMNS]]
    return [
        table._replace(
            title=f"{table.title}, columns {start} to {min(start + PRINTED_COLUMNS, width) - 1} of {width - 1}",
            head=cut(table.head, start),
            rows=[cut(row, start) for row in table.rows],
            note=table.note if start == starts[-1] else "",
        )
        for start in starts
    ]
