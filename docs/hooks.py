"""Hooks of the documentation site (`mkdocs.yml`): pages made from the code, and links to files outside of docs/."""

import contextlib
import io
import os
import re

from mkdocs.structure.files import File

import odice
from odice.cli.main import COMMANDS, main

SUBCOMMANDS = {"data": ("inspect", "schema", "convert", "collect"), "suite": ("make", "list")}


def on_files(files, config):
    """Add the reference of commands and of the Python API."""
    for name, content in (("commands", commands()), ("python", python())):
        files.append(File.generated(config, f"reference/{name}.md", content=content))
    return files


def on_page_markdown(markdown, page, **_):
    """Links to files of the repository outside of docs/ become their paths: the site does not hold them."""
    depth = page.file.src_uri.count("/")
    outside = re.compile(rf"\[([^\]]+)\]\((?:\.\./){{{depth + 1}}}([^)#\s]+)(?:#[^)\s]*)?\)")
    return outside.sub(
        lambda match: match[1] if match[1].strip("`") == match[2] else f"{match[1]} (`{match[2]}`)", markdown
    )


def commands() -> str:
    """Every command's own help."""
    os.environ["COLUMNS"] = "100"
    lines = ["# Commands", "", "The help of every command, as `odice COMMAND --help` prints it."]
    for name, summary in COMMANDS.items():
        lines += ["", f"## odice {name}", "", f"{summary[0].upper()}{summary[1:]}.", ""]
        for words in [[name, sub] for sub in SUBCOMMANDS.get(name, ())] or [[name]]:
            lines += [f"### odice {' '.join(words)}", ""] if len(words) > 1 else []
            lines += ["```text", help_of(words), "```", ""]
    return "\n".join(lines)


def help_of(words: list[str]) -> str:
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed), contextlib.suppress(SystemExit):
        main([*words, "--help"])
    return re.sub(r"\x1b\[[0-9;]*m", "", printed.getvalue()).strip()


def python() -> str:
    """The public names of the package, from their docstrings."""
    lines = ["# Python", "", "What `import odice` offers."]
    for name, module in sorted(odice._PUBLIC.items(), key=lambda item: (item[0][0].isupper(), item[0])):
        lines += ["", f"::: {module}.{name}"]
    return "\n".join(lines)
