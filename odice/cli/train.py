"""`odice train`: learn a policy from a data set.

The algorithm is read from the arguments first, because its settings are flags too. What a preset or a config file
says is shown as the flags' defaults, so `odice train --preset paper --data D --help-all` shows what would be used.
"""

from __future__ import annotations

import argparse
import dataclasses
import textwrap
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import tyro

from odice.cli.help import Group, arguments, field_notes, help_text, names_of
from odice.data.schema import TableFlags
from odice.errors import OdiceError
from odice.training.options import RunFlags
from odice.training.settings import Settings, resolve

FIRST = ("data", "schema", "algo", "preset", "steps", "seeds", "out", "env", "config", "dry_run")
"""The options that `--help` shows; `--help-all` shows every one."""

TITLES = {
    "data": ("data_dir", "format", "schema", "obs_keys", "stream", "allow", "holdout"),
    "preprocessing": ("reward", "reward_scale", "reward_shift", "normalize_obs", "clip_actions", "convention"),
    "evaluation": ("env", "eval_every", "eval_episodes", "eval_seconds", "patience"),
    "imitation": ("imitation", "episode", "suboptimal", "absorbing", "final_obs"),
    "seeds and devices": ("seed", "seeds", "parallel", "devices", "coordinator", "process"),
    "files and logs": ("out", "resume", "checkpoint_every", "keep", "log", "diagnostics", "quiet"),
}
"""The titles of `--help-all`, and the options of the run below each."""

LONG_SOURCE = 60
"""Characters of a setting's source from which on its reason is printed once, below the settings."""

ABOUT = "Learn a policy from a data set. Run the same command again to continue an interrupted run."


@dataclass(frozen=True)
class CommandFlags:
    """The command itself."""

    dry_run: bool = False
    """Read the data and print every setting and where it comes from, with an estimate of the time and the disk; train
    nothing, write nothing."""


def parse(argv: list[str], prog: str = "odice train", about: str = ABOUT, **given: Any) -> tuple[Settings, bool]:
    """The settings that the arguments ask for, and whether to print them only.

    Args:
        argv: The arguments.
        prog: The command's name, for --help.
        about: What it does, for --help.
        **given: Options that the command itself decides.
    """
    peek = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    for name in ("algo", "preset", "config", "data"):
        peek.add_argument(f"--{name}", nargs="?")  # one without a value is refused below
    peek.add_argument("--imitation", action="store_true", default=None)
    peek.add_argument("--plugin", nargs="*")
    first = vars(peek.parse_known_args(argv)[0])
    shown = resolve(first.pop("data") or tyro.MISSING, **{**first, **given})

    def part(kind: type) -> Any:
        return kind(**{item.name: getattr(shown.options, item.name) for item in dataclasses.fields(kind)})

    if "--help-all" in argv:
        print(help_text(prog, about, all_groups(shown), needs="--data LOG"))
        raise SystemExit(0)
    if {"-h", "--help"} & set(argv):
        print(short_help(prog, about, shown, (*FIRST[:1], "episode", *FIRST[1:]) if given.get("imitation") else FIRST))
        raise SystemExit(0)

    parts = {"run": part(RunFlags), "table": part(TableFlags), "algo": shown.config, "command": CommandFlags()}
    flags = dataclasses.make_dataclass(
        "Flags", [(name, tyro.conf.OmitArgPrefixes[type(part)]) for name, part in parts.items()]
    )
    parsed: Any = arguments(flags, prog, argv, default=flags(*parts.values()))
    values = {name: value for part in vars(parsed).values() for name, value in vars(part).items()}
    typed = {word.partition("=")[0][2:].replace("-", "_") for word in argv if word.startswith("--")}
    typed |= {name.removeprefix("no_") for name in typed}
    dry_run = values.pop("dry_run")
    chosen = {name: value for name, value in values.items() if name in typed}
    return resolve(**{"data": values["data"], **chosen, **given}), dry_run


def all_groups(shown: Settings) -> list[Group]:
    """Every flag, under titles; what no title lists comes with the first."""
    listed = {name for names in TITLES.values() for name in names}
    rest = tuple(field.name for field in dataclasses.fields(RunFlags) if field.name not in listed)
    groups = [Group("run", RunFlags, shown.options, rest), Group("run", CommandFlags, CommandFlags())]
    groups += [Group(title, RunFlags, shown.options, names) for title, names in TITLES.items()]
    groups.append(Group("columns of a table (docs/reference/tables.md)", TableFlags, shown.options))
    return [*groups, Group(f"settings of {shown.options.algo}", type(shown.config), shown.config)]


def short_help(prog: str, about: str, shown: Settings, names: Sequence[str]) -> str:
    """The options that matter most."""
    count = sum(len(names_of(group)) for group in all_groups(shown)) - len(names)
    kinds = {name: kind for kind in (CommandFlags, RunFlags) for name in field_notes(kind)}
    first = [Group("", kinds[name], shown.options, (name,)) for name in names]
    end = (
        f"`{prog} --help-all` shows {count} more: columns of tables, rewards, evaluation, checkpoints, and the "
        "settings of the algorithm that --algo names."
    )
    return help_text(prog, about, first, needs="--data LOG", end=end)


def show(settings: Settings) -> int:
    """Print every setting and where it comes from, those of the log too."""
    from odice.algos.validation import settings_dict
    from odice.training.forecast import forecast_prepared, total
    from odice.training.prepare import prepare
    from odice.training.train import folder_of, in_processes

    began = time.perf_counter()
    prepared = prepare(_without_store(settings))
    reading = time.perf_counter() - began
    settings, facts = prepared.settings, prepared.about.facts
    if prepared.about.evaluator:
        prepared.about.evaluator.close()
    print(f"data   {facts['source']}: {facts['episodes']:,} episodes, {facts['transitions']:,} transitions")
    print(f"out    {folder_of(settings)}\n")
    values = {item.name: getattr(settings.options, item.name) for item in dataclasses.fields(settings.options)}
    values = {name: values[name] for name in values if name in settings.sources}
    reasons: list[str] = []
    for title, group in (("run", values), (settings.options.algo, settings_dict(settings.config))):
        print(title)
        for name, value in group.items():
            text = ",".join(map(str, value)) if isinstance(value, tuple | list) else str(value)
            if value not in (None, (), ""):
                print(f"  {name:<24}{text:<20}  {_with_footnote(settings.sources.get(name, ''), reasons)}".rstrip())
    for number, reason in enumerate(reasons, 1):
        print(textwrap.fill(f"[{number}] {reason}", 100, initial_indent="  ", subsequent_indent="      "))
    for note in prepared.about.notes:
        print(f"note: {note}")
    cost, seeds = forecast_prepared(prepared, reading), settings.options.seeds or 1
    workers = None if in_processes(settings.options.parallel) else seeds
    print(f"\ncost   {cost}" if seeds == 1 else f"\ncost   {total([cost] * seeds, workers)}", flush=True)
    print("       (a few updates were timed on this machine; evaluations run in a process of their own)")
    return 0


def _with_footnote(source: str, reasons: list[str]) -> str:
    """A source whose reason is long, with the number of the reason in its place."""
    title, opened, reason = source.partition(" (")
    if len(source) <= LONG_SOURCE or not opened:
        return source
    reason = reason.removesuffix(")")
    if reason not in reasons:
        reasons.append(reason)
    return f"{title} [{reasons.index(reason) + 1}]"


def _without_store(settings: Settings) -> Settings:
    """With --stream a log is first copied to a store; until that is there, nothing can be said without writing it."""
    from odice.data.store.make import store_of

    options = settings.options
    if options.stream and isinstance(options.data, str):
        place = store_of(options.data, format=options.format, data_dir=options.data_dir)
        if not place.exists():
            raise OdiceError(
                f"--stream copies {options.data} to {place} first, and --dry-run writes nothing; make the store with "
                f"`odice data convert {options.data} --out {place}` (--dry-run there says how large it is), or leave "
                "--stream out here."
            )
    return settings


def main(argv: list[str], prog: str = "odice train", about: str = ABOUT, **given: Any) -> int:
    """Train, or print the settings; several seeds end with a table of them. The arguments are those of `parse`."""
    settings, dry_run = parse(argv, prog, about, **given)
    if dry_run:
        return show(settings)
    from odice.training.train import train_settings

    run = train_settings(settings)
    if run.seeds and not settings.options.quiet:
        from odice.cli.report import show as show_report
        from odice.reports.compare import compare

        show_report(compare([run]))
    return 0
