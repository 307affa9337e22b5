"""Pages that mkdocs makes from the code: commands, algorithms, presets, Python API, schema entries."""

from __future__ import annotations

import contextlib
import dataclasses
import io
import json
import logging
import os
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

from mkdocs.structure.files import File, Files

import odice
from odice.algos import algorithms
from odice.algos.registry import Entry
from odice.cli.help import field_notes
from odice.cli.main import COMMANDS, main
from odice.data.names import ALIASES
from odice.data.schema import FLAGS, HELP
from odice.presets import PRESETS, preset
from odice.training.options import RunOptions
from odice.types import Spec

sys.path.insert(0, str(Path(__file__).parent))
from notebooks import with_outputs


def help_text(*command: str) -> str:
    """What `odice COMMAND --help` prints; of `train` and `imitate` what `--help-all` does."""
    os.environ["COLUMNS"] = "80"
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed), contextlib.suppress(SystemExit):
        main([*command, "--help-all" if command[0] in ("train", "imitate") else "--help"])
    return re.sub(r"\x1b\[[0-9;]*m", "", printed.getvalue()).strip()


def subcommands(text: str) -> list[str]:
    """The names that a help lists under `commands:`."""
    return re.findall(r"^  ([a-z]\S*)", text.partition("\ncommands:\n")[2], re.MULTILINE)


def commands_page() -> str:
    lines = ["# Commands", "", "What every command prints with `--help`.", ""]
    for command, summary in COMMANDS.items():
        text = help_text(command)
        lines += [f"## odice {command}", "", f"{summary[0].upper()}{summary[1:]}.", "", "```text", text, "```", ""]
        for name in subcommands(text):
            lines += [f"### odice {command} {name}", "", "```text", help_text(command, name), "```", ""]
    return "\n".join(lines)


def page_of(name: str, pages: set[str]) -> str | None:
    """The page of an algorithm: the one whose title names it."""
    family = {"odice": "vdice", "sdice": "vdice", "vdice-true": "vdice", "bc-10": "bc", "eql": "sql", "crr": "awac"}
    page = f"algorithms/{family.get(name, name).replace('-', '_')}.md"
    return page if page in pages else None


PURPOSES = {
    "rewards": "rewards (`odice train`)",
    "costs": "rewards, with a cost below a limit (`odice train --cost-limit`)",
    "demonstrations": "demonstrations alone (`odice imitate`)",
    "both": "demonstrations and other data (`odice imitate --suboptimal`)",
}


def purposes(name: str, entry: Entry) -> list[str]:
    """What an algorithm learns from, by keys of `PURPOSES`."""
    if entry.build(entry.config(), Spec(3, 2)).expert:
        return ["both"]
    kinds = ["rewards"] if not entry.imitates or any(presets_of(name)) else []  # pure imitators have no such preset
    if "cost" in entry.columns:
        kinds = ["costs"] if entry.columns["cost"] is None else [*kinds, "costs"]  # None: it always reads costs
    return [*kinds, "demonstrations"] if entry.imitates else kinds


def purposes_table(link: Callable[[str], str]) -> list[str]:
    """What there is for what."""
    lines = ["| learns from | continuous and discrete actions | continuous actions only |", "|---|---|---|"]
    for key, title in PURPOSES.items():
        fits = {name: entry for name, entry in algorithms().items() if key in purposes(name, entry)}
        columns = [
            ", ".join(link(name) for name, entry in fits.items() if entry.discrete is can) for can in (True, False)
        ]
        lines.append(f"| {title} | {' | '.join(column or '-' for column in columns)} |")
    return lines


def algorithms_page(pages: set[str], folder: str) -> str:
    def link(name: str) -> str:
        target = page_of(name, pages)
        return f"[`{name}`]({os.path.relpath(target, folder)})" if target else f"`{name}`"

    lines = ["# Algorithms", "", *purposes_table(link), ""]
    lines += [
        "| name | what it is | presets |",
        "|---|---|---|",
    ]
    for name, entry in algorithms().items():
        lines.append(f"| {link(name)} | {entry.summary} | {all_presets(name) or '-'} |")
    lines += ["", "## Settings", ""]
    for name, entry in algorithms().items():
        lines += [f"### {name} settings", "", "| setting | default | meaning |", "|---|---|---|"]
        notes = field_notes(entry.config)
        for field in dataclasses.fields(entry.config):
            default = "" if field.default is dataclasses.MISSING else f"`{field.default!r}`"
            lines.append(f"| `{field.name}` | {escape(default)} | {escape(notes.get(field.name, ''))} |")
        lines.append("")
    return "\n".join(lines)


def escape(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def presets_of(algo: str, imitation: bool = False) -> Iterator[str]:
    for name in PRESETS:
        with contextlib.suppress(odice.OdiceError):
            preset(name, algo, imitation=imitation)
            yield name


def all_presets(algo: str) -> str:
    return ", ".join(name for name in PRESETS if name in {*presets_of(algo), *presets_of(algo, imitation=True)})


def presets_page() -> str:
    lines = ["# Presets", "", "Published settings, each with its source. `odice train --preset NAME`.", ""]
    lines += [f"- `{name}`: {text}" for name, text in PRESETS.items()] + [""]
    for algo in algorithms():
        for name, imitation in [*((n, False) for n in presets_of(algo)), *((n, True) for n in presets_of(algo, True))]:
            found = preset(name, algo, imitation=imitation)
            protocol = found.protocol
            lines += [
                f"## {algo}: {name}{', imitation' if imitation else ''}",
                "",
                f"{protocol.steps:,} updates; rewards `{protocol.reward}`; transitions `{protocol.convention}`; "
                f"{protocol.eval_episodes} episodes every {protocol.eval_every:,} updates"
                f"{'; observations normalized' if protocol.normalize_obs else ''}. {protocol.source}",
                "",
                "| setting | value | source |",
                "|---|---|---|",
            ]
            lines += [
                f"| `{key}` | `{escape(repr(setting.value))}` | {escape(setting.source)} |"
                for key, setting in found.settings.items()
            ]
            lines.append("")
    return "\n".join(lines)


API = {
    "Train and imitate": ["train", "imitate", "Run", "batches", "trial"],
    "Data": ["load", "Dataset", "collect", "register_reader", "register_reward_map"],
    "Policies and evaluation": ["Policy", "evaluate", "Evaluation", "estimate", "report"],
    "Algorithms": ["algorithms", "make", "preset", "register", "Algo", "Spec", "Batch"],
    "Divergences": ["divergence", "Divergence", "register_divergence"],
    "Errors": ["OdiceError"],
}


def api_page() -> str:
    """Every public name under one of the headings; a name that has none goes to the last."""
    listed = {name for names in API.values() for name in names}
    groups = {heading: [name for name in names if name in odice._PUBLIC] for heading, names in API.items()}
    groups["More"] = [name for name in odice._PUBLIC if name not in listed]
    lines = ["# Python", "", "Everything here is `odice.NAME`.", ""]
    for heading, names in groups.items():
        if names:
            lines += [f"## {heading}", ""]
        for name in names:
            lines += [f"::: {odice._PUBLIC[name]}.{name}", "    options:", f"      heading: odice.{name}", ""]
    lines += ["## Options of odice.train", "", "| option | default | meaning |", "|---|---|---|"]
    notes = field_notes(RunOptions)
    for field in dataclasses.fields(RunOptions):
        default = "" if field.default in (dataclasses.MISSING, None, ()) else f"`{field.default!r}`"
        lines.append(f"| `{field.name}` | {default} | {escape(notes.get(field.name, ''))} |")
    return "\n".join(lines)


def schema_page() -> str:
    """The entries of a schema: one row for each field of `Schema`."""
    lines = [
        "# Schema entries",
        "",
        "What a schema file may say about a table. [Tables](tables.md) explains it.",
        "",
    ]
    lines += ["| entry | flag | meaning | usual names |", "|---|---|---|---|"]
    for entry, meaning in HELP.items():
        flag = f"`--{FLAGS[entry].replace('_', '-')}`" if entry in FLAGS else ""
        names = ", ".join(f"`{name}`" for name in ALIASES.get(entry, ()))
        lines.append(f"| `{entry}` | {flag} | {escape(meaning)} | {names} |")
    return "\n".join(lines)


def on_files(files: Files, config) -> Files:
    pages = {file.src_uri for file in files}
    made = {
        "reference/commands.md": commands_page(),
        "reference/algorithms.md": algorithms_page(pages, "reference"),
        "reference/presets.md": presets_page(),
        "reference/python.md": api_page(),
        "reference/schema.md": schema_page(),
    }
    for uri, content in made.items():
        files.append(File.generated(config, uri, content=content))
    return files


def on_page_markdown(markdown: str, page, config, files) -> str:
    """Tutorials get their notebooks' outputs; links to files outside docs/ become plain text."""
    path = Path(config.docs_dir, page.file.src_uri)
    book = path.with_suffix(".ipynb")
    if book.exists():
        title, _, rest = with_outputs(markdown, json.loads(book.read_text("utf-8"))).partition("\n")
        markdown = f"{title}\n\n[Download as a notebook]({book.name}){{ .notebook download }}\n{rest}"

    def plain(match: re.Match) -> str:
        target = (path.parent / match[2].partition("#")[0]).resolve()
        if target.is_relative_to(config.docs_dir):
            return match[0]
        if not target.exists():
            logging.getLogger("mkdocs.hooks").warning(f"{page.file.src_uri} links to {match[2]}, which does not exist")
        return match[1]

    return re.sub(r"(?<!!)\[([^\]]+)\]\((\.\./[^)\s]+)\)", plain, markdown)
