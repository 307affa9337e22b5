"""What the README and docs/ tell people to type is there: links, names, commands with their flags. The README's example
and the tutorials are run, with small networks and budgets (those of the pages: `make test-long`, `make notebooks`)."""

import ast
import contextlib
import functools
import importlib
import inspect
import io
import json
import math
import re
import runpy
import subprocess
import sys
import tomllib
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import odice
from odice.algos import registry
from odice.cli.main import COMMANDS, main
from odice.evaluation.simulator import video

ROOT = Path(__file__).parents[1]
notebooks = SimpleNamespace(**runpy.run_path(str(ROOT / "docs/notebooks.py")))
PAGES = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), ROOT / "odice/data/bundled/README.md"]
PAGES += [ROOT / "packaging/description.md", ROOT / "packaging/policy/README.md"]
TEXT = {page.relative_to(ROOT).as_posix(): page.read_text("utf-8") for page in PAGES}
COMMAND = re.compile(rf"(?:^ *|`)odice ((?:{'|'.join(COMMANDS)})\b[^`#\n]*)", re.MULTILINE)

GENERATED = {f"reference/{page}.md" for page in ("commands", "python", "algorithms", "presets", "schema")}
"""Pages that docs/hooks.py makes from the code."""
PLACEHOLDER = re.compile(r"\$|\.\.\.|NAME")


def blocks(name: str) -> list[str]:
    return re.findall(r"```python\n(.*?)```", TEXT[name], re.DOTALL)


def commands(name: str) -> list[list[str]]:
    joined = TEXT[name].replace("\\\n", " ")
    return [re.sub(r"\[(?!\d)|(?<!\d)\]|\|", " ", result).split() for result in COMMAND.findall(joined)]


@functools.cache
def explained(*command: str) -> str:
    """A command's help."""
    with contextlib.redirect_stdout(io.StringIO()) as said, pytest.raises(SystemExit):
        main([*command, "--help-all" if command[0] in ("train", "imitate") else "--help"])
    return said.getvalue()


def flags(*command: str) -> set[str]:
    """The flags that a command's help names."""
    return set(re.findall(r"--[a-z0-9-]+", explained(*command)))


@pytest.mark.parametrize("name", [name for name in TEXT if commands(name)])
def test_commands_have_the_flags_they_are_shown_with(name):
    for words in commands(name):
        options = {word.split("=")[0] for word in words if word.startswith("--")} - {"--help", "--help-all"}
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


@pytest.mark.parametrize("name", [name for name in TEXT if blocks(name)])
def test_python_imports_and_arguments_exist(name):
    for code in blocks(name):
        for node in ast.walk(ast.parse(code)):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("odice"):
                module = importlib.import_module(node.module)
                assert all(hasattr(module, alias.name) for alias in node.names), ast.unparse(node)
            if isinstance(node, ast.Call) and ast.unparse(node.func) in {f"odice.{each}" for each in odice.__all__}:
                parameters = inspect.signature(getattr(odice, ast.unparse(node.func)[6:])).parameters
                if not any(one.kind is one.VAR_KEYWORD for one in parameters.values()):
                    assert {each.arg for each in node.keywords} <= {*parameters, None}, ast.unparse(node)


PRIVATE = re.compile(
    r"\bhouse\b|\brooms\b|\bha(?:s|ve|d) a say\b|\bheard\b|\btold\b(?! from| apart)|\bleaves the (?:data|log)\b"
    r"|one_after_the_other|\bused to be\b|\bany ?more\b|\bcells? (?:trains?|is trained|are trained|that failed)\b",
    re.IGNORECASE,
)
"""Words of our own, and history: pages and help are for those who do not know either."""


def test_pages_help_and_docstrings_have_no_words_of_our_own():
    texts = {name: text for name, text in TEXT.items() if name != "CHANGELOG.md"}
    texts |= {f"odice {name} --help": explained(name) for name in COMMANDS}
    texts |= {f"odice.{name}": inspect.getdoc(getattr(odice, name)) or "" for name in odice.__all__}
    assert not [(name, found[0]) for name, text in texts.items() for found in PRIVATE.finditer(text)]


@pytest.mark.parametrize(
    "text", ["each head has a say", "a cell trains", "the run is told", "it stops no one any more"]
)
def test_private_words_are_found(text):
    assert PRIVATE.search(text)


@pytest.mark.parametrize("text", ["a cell of the maze", "luck has to be told from skill", "many more", "a warehouse"])
def test_the_words_of_others_are_not(text):
    assert not PRIVATE.search(text)


def test_tables_have_one_line_per_row():
    """A tool that wraps prose tears the lines of a table."""
    files = [*PAGES, *(ROOT / "odice").rglob("*.py")]
    lines = [(path.name, line) for path in files for line in path.read_text("utf-8").splitlines()]
    assert not [place for place in lines if re.match(r"\s*\|.*\|", place[1]) and not place[1].rstrip().endswith("|")]
    assert not [name for name, line in lines if line.strip() == "|"]


FILE = re.compile(r"(?<![\w/.-])((?:odice|tests|benchmarks|examples|docs)/[\w/.-]+\.(?:py|md|toml|png|ipynb|json))\b")
NAME = re.compile(r"`(odice(?:\.[a-zA-Z_]\w*)+)")


def test_files_named_in_prose_exist():
    named = {(name, file) for name, text in TEXT.items() for file in FILE.findall(text)}
    assert len(named) > 50
    named = {(name, file) for name, file in named if not Path(file).stem.isupper() or Path(file).suffix == ".md"}
    made = {f"docs/{page}" for page in GENERATED}
    assert not sorted((name, file) for name, file in named if not (ROOT / file).exists() and file not in made)


def test_names_in_prose_exist():
    """`odice.a.b.name` in a page is a module, or a name or attribute of one."""
    named = {match for name, text in TEXT.items() if name != "CHANGELOG.md" for match in NAME.findall(text)}
    assert len(named) > 30
    assert not [name for name in sorted(named) if not resolves(name)]


def resolves(name: str) -> bool:
    words = name.split(".")
    for length in range(len(words), 0, -1):
        try:
            thing = importlib.import_module(".".join(words[:length]))
        except ImportError:
            continue
        for word in words[length:]:
            if not hasattr(thing, word):
                return False
            thing = getattr(thing, word)
        return True
    return False


def test_folders_named_in_prose_exist():
    folder = re.compile(r"`((?:odice|tests|benchmarks|examples|docs|packaging)/[\w/-]+)/?`")
    named = {(name, found) for name, text in TEXT.items() for found in folder.findall(text)}
    assert not sorted((name, found) for name, found in named if not (ROOT / found).exists() and "-v0" not in found)


PARTS = ("The idea", "Settings", "Metrics", "Differences", "Measured")
ALGORITHM_PAGES = [n for n in TEXT if n.startswith("docs/algorithms/") and n != "docs/algorithms/auto.md"]


@pytest.mark.parametrize("name", ALGORITHM_PAGES)
def test_pages_of_algorithms_have_the_same_parts(name):
    headings = re.findall(r"^## (.*)", TEXT[name], re.MULTILINE)
    assert [part for title in headings for part in PARTS if title.startswith(part)] == list(PARTS)


def test_settings_have_the_defaults_of_their_pages():
    """A row of a page's table of settings names fields and defaults; what can be read as a value is compared."""
    compared, wrong = 0, []
    for name in ALGORITHM_PAGES:
        algos = re.findall(r"`([a-z0-9-]+)`", TEXT[name].partition("\n")[0])
        for fields, default in re.findall(
            r"^\| (`[^|]*) \|(?:[^|]*\|)? ([^|]*) \| [^|]*\|$", settings_table(name), re.M
        ):
            names, values = re.findall(r"`(\w+)`", fields), [value_of(text) for text in parted(default)]
            for field, value in zip(names, values * len(names) if len(values) == 1 else values, strict=False):
                config = odice.algorithms()[algos[0]].config()
                if value is not SKIP and len(algos) == 1:
                    compared += 1
                    wrong += [] if getattr(config, field) == value else [(name, field, value, getattr(config, field))]
    assert compared > 100
    assert not wrong


SKIP = object()


def settings_table(name: str) -> str:
    return TEXT[name].partition("\n## Settings\n")[2].partition("\n## ")[0]


def parted(text: str) -> list[str]:
    return re.split(r", (?![^(]*\))", text.strip())


def value_of(text: str):
    """What a page writes for a default: a number, a tuple, `word`, on, off, none; SKIP if it is something else."""
    words = {"on": True, "off": False, "none": None}
    if text in words:
        return words[text]
    if found := re.fullmatch(r"`([\w-]+)`", text):
        return found[1]
    try:
        return ast.literal_eval(
            text.replace("−", "-").replace(",0", "0") if text[:1].isdigit() else text.replace("−", "-")
        )
    except (ValueError, SyntaxError):
        return SKIP


def test_the_text_for_package_indexes_has_no_relative_links():
    """An index shows neither relative pictures nor relative links, so README.md is not that text."""
    readme = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["readme"]
    text = (ROOT / readme).read_text("utf-8")
    assert not [link for link in re.findall(r"\]\(([^)]+)\)", text) if "://" not in link]
    assert "<img" not in text


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


SMALL = {"value_hidden": (64, 64), "policy_hidden": (64, 64), "batch_size": 64}


@pytest.mark.slow
@pytest.mark.parametrize("settings", [SMALL, pytest.param({}, marks=pytest.mark.long)], ids=["small", "as printed"])
def test_the_readme_example_runs(settings, tmp_path, monkeypatch, capsys, request):
    if not settings:
        request.getfixturevalue("full_credit")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(odice, "train", functools.partial(odice.train, **settings))
    (code,) = blocks("README.md")
    Path("example.py").write_text(code)
    result = runpy.run_path("example.py")
    assert np.shape(result["policy"](result["obs"])) == (10_000, 1)
    # the best policy, tanh(obs), agrees with this log by 0.42, which is "watch"; a run on its way there may be "good"
    assert result["run"].result["health"]["verdict"] in ("good", "watch")
    assert "better than the behavior" in capsys.readouterr().out


TUTORIALS = [n for n in TEXT if re.match(r"docs/(tutorials|start)/", n) and re.search(r"```(python|sh)\n", TEXT[n])]


@pytest.mark.parametrize("name", TUTORIALS)
def test_notebooks_have_the_source_of_their_pages(name):
    """If not: `python docs/notebooks.py PAGE`."""
    book = json.loads((ROOT / name).with_suffix(".ipynb").read_text("utf-8"))
    page = notebooks.cells(TEXT[name])
    assert notebooks.sources(book) == notebooks.sources(notebooks.notebook(page, [[] for _ in page]))
    written = json.dumps(book)
    assert len(written) < 200_000
    assert not re.search(r"/(home|root|tmp|work|Users)/", written)


BUDGET = re.compile(r"((?:steps|every|episodes)[= ])(\d+)")


@pytest.fixture(scope="module")
def some_episodes():
    """Every tenth episode of the bundled log."""
    return odice.load("bundled/hopper-replay").select(np.arange(0, 725, 10))


@pytest.mark.slow
@pytest.mark.parametrize("name", TUTORIALS)
def test_tutorials_run(name, tmp_path, monkeypatch, some_episodes):
    """From top to bottom, in this process, with a fiftieth of the updates and a tenth of the episodes.

    A folder stands where pages name the bundled log, with a tenth of it. A video has four frames.
    """
    monkeypatch.chdir(tmp_path)
    if "bundled/" in TEXT[name]:
        Path("bundled/hopper-replay").mkdir(parents=True)
        some_episodes.save("bundled/hopper-replay/part.parquet")
    monkeypatch.setattr(video, "record", functools.partial(video.record, max_frames=4))
    monkeypatch.setenv("MPLBACKEND", "agg")
    odice.algorithms()  # the registry is complete before a page adds to its copy
    monkeypatch.setattr(registry, "_REGISTRY", dict(registry._REGISTRY))
    part = lambda found: math.ceil(int(found[2]) / (10 if "episodes" in found[1] else 50))
    page = notebooks.cells(BUDGET.sub(lambda found: f"{found[1]}{part(found)}", TEXT[name]))
    outputs = notebooks.execute(page)
    assert any(output for cell, output in zip(page, outputs, strict=True) if cell.kind != "markdown")
    json.dumps(notebooks.notebook(page, outputs))


def test_a_page_becomes_a_notebook(tmp_path):
    """`make notebooks`, on a page of two lines."""
    page = tmp_path / "page.md"
    page.write_text("# A sum\n\n```python\nprint(1)\n1 + 1\n```\n", "utf-8")
    done = subprocess.run([sys.executable, str(ROOT / "docs/notebooks.py"), str(page)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    printed, value = json.loads(page.with_suffix(".ipynb").read_text("utf-8"))["cells"][1]["outputs"]
    assert (printed["text"], value["data"]["text/plain"]) == (["1"], "2")
