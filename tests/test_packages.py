"""The rooms of the house: who imports whom, read from the code (imports inside functions count too). And its lines."""

import ast
import subprocess
import sys
from graphlib import CycleError, TopologicalSorter
from itertools import pairwise
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "odice"
LEVELS = [
    {path.stem for path in PACKAGE.glob("*.py")},
    {"core", "data", "envs", "policy"},
    {"algos"},
    {"presets"},
    {"evaluation"},
    {"training"},
    {"sweeps", "collection", "reports"},
    {"experiments"},
    {"cli"},
]
"""A room imports from lower levels, and within its own level without cycles. The modules beside the rooms are the
leaves."""
LEVEL = {room: level for level, rooms in enumerate(LEVELS) for room in rooms} | {"__main__": len(LEVELS)}


def imports(path: Path) -> list[tuple[int, str]]:
    """The line and the full name of everything that a file imports, also by `import_module("...")`."""
    found = []
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            found += [(node.lineno, alias.name) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno}: import by the full name, not relative to this file"
            found += [(node.lineno, f"{node.module}.{alias.name}") for alias in node.names]
        elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith("import_module"):
            found += [(node.lineno, arg.value) for arg in node.args[:1] if isinstance(arg, ast.Constant)]
    return found


def room(path: Path) -> str:
    return path.relative_to(PACKAGE).with_suffix("").parts[0]


FILES = sorted(PACKAGE.rglob("*.py"))
EDGES = [  # (from, to, where)
    (room(path), name.split(".")[1], f"{path.relative_to(ROOT)}:{line}")
    for path in FILES
    for line, name in imports(path)
    if name.startswith("odice.") and name.split(".")[1] in LEVEL
]


def test_every_folder_is_a_room():
    folders = {path.parent.name for path in PACKAGE.glob("*/__init__.py")}
    assert folders == set().union(*LEVELS[1:]), "a new room gets its place in LEVELS, and in CONTRIBUTING.md"


def test_a_room_imports_from_below():
    wrong = [
        f"{where}: {own} imports {other}, which stands above it"
        for own, other, where in EDGES
        if LEVEL[other] > LEVEL[own]
    ]
    assert not wrong, "\n".join(["", *wrong, "Move what is needed down, or the caller up; the order is in LEVELS."])


def test_there_are_no_cycles():
    graph: dict[str, set[str]] = {}
    for own, other, _ in EDGES:
        if own != other:
            graph.setdefault(own, set()).add(other)
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        cycle = error.args[1][::-1]
        steps = [f"{a} -> {b}: {where}" for a, b, where in EDGES if (a, b) in set(pairwise(cycle))]
        pytest.fail("\n".join([f"a cycle: {' -> '.join(cycle)}", *steps]))


def modules(folder: Path) -> list[str]:
    return [".".join(path.relative_to(ROOT).with_suffix("").parts) for path in sorted(folder.glob("[!_]*.py"))]


@pytest.mark.parametrize("names", [["odice"], modules(PACKAGE / "policy")], ids=["odice", "policy"])
def test_what_a_deployment_imports_does_not_load_jax(names):
    code = f"import sys, {', '.join(names)}; print(*sorted({{'jax', 'jaxlib', 'equinox', 'optax'}} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == [], f"importing {' and '.join(names)} loads {done.stdout}"


def test_a_policy_needs_numpy_and_the_leaves_alone():
    """Not even inside a function does it import jax, or a room that may."""
    wrong = [
        f"{path.relative_to(ROOT)}:{line} imports {name}"
        for path in (PACKAGE / "policy").rglob("*.py")
        for line, name in imports(path)
        if name.split(".")[0] in {"jax", "jaxlib", "equinox", "optax"}
    ]
    wrong += [
        f"{where} imports {other}" for own, other, where in EDGES if own == "policy" and LEVEL[other] and other != own
    ]
    assert not wrong, "\n".join(["", *wrong])


def test_prose_has_lines_of_at_most_120_columns():
    """As the code has, by ruff. Tables, headings and commands are as wide as they are."""
    pages = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *PACKAGE.rglob("*.md"), *ROOT.glob("examples/**/*.md")]
    wide = []
    for page in pages:
        fenced = False
        for number, line in enumerate(page.read_text("utf-8").splitlines(), 1):
            fenced ^= line.lstrip().startswith("```")
            prose = not fenced and not line.startswith(("    ", "#")) and not line.lstrip().startswith(("|", "!["))
            if prose and len(line) > 120:
                wide.append(f"{page.relative_to(ROOT)}:{number} has {len(line)} columns")
    assert not wide, "\n".join(["", *wide])
