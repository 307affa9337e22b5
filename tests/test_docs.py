"""What the README and docs/ tell people to type is there: links, names, commands with their flags. The README's example
is run."""

import ast
import contextlib
import functools
import io
import re
import runpy
from pathlib import Path

import numpy as np
import pytest

import odice
from odice.cli.main import COMMANDS, main

ROOT = Path(__file__).parents[1]
PAGES = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), ROOT / "odice/data/bundled/README.md"]
TEXT = {page.relative_to(ROOT).as_posix(): page.read_text("utf-8") for page in PAGES}
COMMAND = re.compile(rf"(?:^ *|`)odice ((?:{'|'.join(COMMANDS)})\b[^`#\n]*)", re.MULTILINE)


def blocks(name: str) -> list[str]:
    return re.findall(r"```python\n(.*?)```", TEXT[name], re.DOTALL)


def commands(name: str) -> list[list[str]]:
    joined = TEXT[name].replace("\\\n", " ")
    return [re.sub(r"[\[\]|]", " ", found).split() for found in COMMAND.findall(joined)]


@functools.cache
def flags(*command: str) -> set[str]:
    """The flags that a command's help names."""
    with contextlib.redirect_stdout(io.StringIO()) as said, pytest.raises(SystemExit):
        main([*command, "--help"])
    return set(re.findall(r"--[a-z0-9-]+", said.getvalue()))


@pytest.mark.parametrize("name", [name for name in TEXT if commands(name)])
def test_commands_have_the_flags_they_are_shown_with(name):
    for words in commands(name):
        asked = {word.split("=")[0] for word in words if word.startswith("--")}
        command = words[:2] if words[0] in ("data", "suite") else words[:1]
        if "--algo" in words and not words[words.index("--algo") + 1].startswith(("$", "...", "NAME")):
            command = [*command, "--algo", words[words.index("--algo") + 1]]
        if asked:
            assert asked <= flags(*command), " ".join(words)


@pytest.mark.parametrize("name", [name for name in TEXT if blocks(name)])
def test_python_names_what_odice_has(name):
    for code in blocks(name):
        for node in ast.walk(ast.parse(code)):
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "odice":
                assert hasattr(odice, node.attr), node.attr


def test_the_site_has_every_page():
    listed = set(re.findall(r"([\w/-]+\.md)$", (ROOT / "mkdocs.yml").read_text("utf-8"), re.MULTILINE))
    pages = {page.relative_to(ROOT / "docs").as_posix() for page in (ROOT / "docs").rglob("*.md")}
    assert listed - {"reference/commands.md", "reference/python.md"} == pages  # those two are made from the code


def test_links_lead_somewhere():
    links = [(name, link) for name, text in TEXT.items() for link in re.findall(r"\]\(([^)#\s]+)", text)]
    assert links
    assert not [
        (name, link) for name, link in links if "://" not in link and not (ROOT / name).parent.joinpath(link).exists()
    ]


@pytest.mark.slow
def test_the_readme_example_runs(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (code,) = blocks("README.md")
    Path("example.py").write_text(code)
    found = runpy.run_path("example.py")
    assert np.shape(found["policy"](found["obs"])) == (1000, 1)
    assert "[[" in capsys.readouterr().out
