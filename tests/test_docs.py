"""What the README and docs/ tell people to type is there: links, names, commands with their flags. The README's example
and the tutorials are run."""

import ast
import contextlib
import functools
import io
import os
import re
import runpy
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import odice
from odice.cli.main import COMMANDS, main

ROOT = Path(__file__).parents[1]
PAGES = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), ROOT / "odice/data/bundled/README.md"]
TEXT = {page.relative_to(ROOT).as_posix(): page.read_text("utf-8") for page in PAGES}
COMMAND = re.compile(rf"(?:^ *|`)odice ((?:{'|'.join(COMMANDS)})\b[^`#\n]*)", re.MULTILINE)

GENERATED = {f"reference/{page}.md" for page in ("commands", "python", "algorithms", "presets")}
"""Pages that docs/hooks.py makes from the code."""
PLACEHOLDER = re.compile(r"\$|\.\.\.|NAME")


def blocks(name: str) -> list[str]:
    return re.findall(r"```python\n(.*?)```", TEXT[name], re.DOTALL)


def commands(name: str) -> list[list[str]]:
    joined = TEXT[name].replace("\\\n", " ")
    return [re.sub(r"[\[\]|]", " ", result).split() for result in COMMAND.findall(joined)]


@functools.cache
def flags(*command: str) -> set[str]:
    """The flags that a command's help names."""
    with contextlib.redirect_stdout(io.StringIO()) as said, pytest.raises(SystemExit):
        main([*command, "--help-all" if command[0] in ("train", "imitate") else "--help"])
    return set(re.findall(r"--[a-z0-9-]+", said.getvalue()))


@pytest.mark.parametrize("name", [name for name in TEXT if commands(name)])
def test_commands_have_the_flags_they_are_shown_with(name):
    for words in commands(name):
        options = {word.split("=")[0] for word in words if word.startswith("--")} - {"--help-all"}
        command = words[:2] if words[0] in ("data", "suite") or words[1:2] == ["visitation"] else words[:1]
        if "--algo" in words and "--plugin" not in words and not PLACEHOLDER.match(words[words.index("--algo") + 1]):
            command = [*command, "--algo", words[words.index("--algo") + 1]]
        if options:
            assert options <= flags(*command), " ".join(words)


@pytest.mark.parametrize("name", [name for name in TEXT if blocks(name)])
def test_python_names_what_odice_has(name):
    for code in blocks(name):
        for node in ast.walk(ast.parse(code)):
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "odice":
                assert hasattr(odice, node.attr), node.attr


def test_the_site_has_every_page():
    listed = set(re.findall(r"([\w/-]+\.md)$", (ROOT / "mkdocs.yml").read_text("utf-8"), re.MULTILINE))
    pages = {page.relative_to(ROOT / "docs").as_posix() for page in (ROOT / "docs").rglob("*.md")}
    assert listed - GENERATED == pages


def test_the_table_of_purposes_has_every_algorithm_where_it_belongs():
    pytest.importorskip("mkdocs")
    page = runpy.run_path(str(ROOT / "docs/hooks.py"))
    rewards, costs, alone, both = page["purposes_table"](lambda name: name)[2:]
    named = {name for row in (rewards, costs, alone, both) for name in re.findall(r"[a-z0-9-]+", row)}
    assert set(odice.algorithms()) <= named
    cells = lambda row: [cell.split(", ") for cell in row.strip("| ").split(" | ")[1:]]
    assert {"copti-dice", "cors-dice"} == set(cells(costs)[0])
    assert "cors-dice" in cells(rewards)[0]
    assert "copti-dice" not in cells(rewards)[0]
    assert cells(alone)[1] == ["value-dice"]
    assert {"demo-dice", "rgm"} <= set(cells(both)[0])


def test_links_lead_somewhere():
    links = [(name, link) for name, text in TEXT.items() for link in re.findall(r"\]\(([^)#\s]+)", text)]
    assert links
    made = {ROOT / "docs" / page for page in GENERATED}
    there = lambda path: path.exists() or path.resolve() in made
    assert not [(name, link) for name, link in links if "://" not in link and not there((ROOT / name).parent / link)]


@pytest.mark.slow
def test_the_readme_example_runs(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (code,) = blocks("README.md")
    Path("example.py").write_text(code)
    result = runpy.run_path("example.py")
    assert np.shape(result["policy"](result["obs"])) == (1000, 1)
    assert "[[" in capsys.readouterr().out


RUN_PAGE = """
import re, shlex, sys
from odice.cli.main import main
names = {}
for kind, block in re.findall(r"```(python|sh)\\n(.*?)```", open(sys.argv[1]).read(), re.DOTALL):
    if kind == "python":
        exec(compile(block, sys.argv[1], "exec"), names)
    else:
        for line in block.splitlines():
            words = shlex.split(line, comments=True)
            assert words[0] == "odice", line
            code = main(words[1:])
            assert code == 0, (code, line)
"""
"""Runs the Python and shell blocks of a page from top to bottom, in one process."""


@pytest.mark.slow
@pytest.mark.parametrize("name", [n for n in TEXT if n.startswith("docs/tutorials/") or n.endswith("/quickstart.md")])
def test_tutorials_run(name, tmp_path):
    if not re.search(r"```(python|sh)\n", TEXT[name]):
        pytest.skip("a page without code")
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "MPLBACKEND": "agg"}
    done = subprocess.run(
        [sys.executable, "-c", RUN_PAGE, str(ROOT / name)],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
