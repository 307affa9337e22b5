"""Packages and layers: which package may import which, read from the code; and no cycles between modules.

Imports inside functions count too.
"""

import ast
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from graphlib import CycleError, TopologicalSorter
from itertools import pairwise
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "odice"
LAYERS = [
    {path.stem for path in PACKAGE.glob("*.py")},
    {"core", "data", "envs", "policy"},
    {"algos"},
    {"building"},
    {"presets"},
    {"evaluation"},
    {"training"},
    {"sweeps", "collection", "reports"},
    {"decision"},
    {"experiments"},
    {"cli"},
]
"""Layers, lowest first; the lowest are the modules outside of any package. A package imports from lower layers, and
within its own layer without cycles."""
LAYER = {package: layer for layer, packages in enumerate(LAYERS) for package in packages} | {"__main__": len(LAYERS)}


@cache
def imports(path: Path) -> list[tuple[int, str]]:
    """The line and the full name of everything that a file imports, also by `import_module("...")`."""
    names = []
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            names += [(node.lineno, alias.name) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno}: import by the full name, not relative to this file"
            names += [(node.lineno, f"{node.module}.{alias.name}") for alias in node.names]
        elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith("import_module"):
            names += [(node.lineno, arg.value) for arg in node.args[:1] if isinstance(arg, ast.Constant)]
    return names


def package(path: Path) -> str:
    return path.relative_to(PACKAGE).with_suffix("").parts[0]


FILES = sorted(PACKAGE.rglob("*.py"))


@cache
def edges() -> list[tuple[str, str, str]]:
    """Importing package, imported package and place of every import within odice."""
    return [
        (package(path), name.split(".")[1], f"{path.relative_to(ROOT)}:{line}")
        for path in FILES
        for line, name in imports(path)
        if name.startswith("odice.") and name.split(".")[1] in LAYER
    ]


def test_every_package_has_a_layer():
    folders = {path.parent.name for path in PACKAGE.glob("*/__init__.py")}
    assert folders == set().union(*LAYERS[1:]), "a new package gets its place in LAYERS, and in CONTRIBUTING.md"


def test_a_package_imports_from_lower_layers():
    wrong = [
        f"{where}: {own} imports {other}, which is in a higher layer"
        for own, other, where in edges()
        if LAYER[other] > LAYER[own]
    ]
    assert not wrong, "\n".join(
        ["", *wrong, "Move the code that is needed down, or the caller up; the order is in LAYERS."]
    )


def test_packages_have_no_cycles():
    graph: dict[str, set[str]] = {}
    for own, other, _ in edges():
        if own != other:
            graph.setdefault(own, set()).add(other)
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        cycle = error.args[1][::-1]
        steps = [f"{a} -> {b}: {where}" for a, b, where in edges() if (a, b) in set(pairwise(cycle))]
        pytest.fail("\n".join([f"a cycle: {' -> '.join(cycle)}", *steps]))


MODULES = {".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): path for path in FILES}


def test_modules_have_no_cycles():
    graph = {name: set(_imported_modules(name, path)) for name, path in MODULES.items()}
    reach = {name: _reachable(graph, name) for name in graph}
    cycles = {frozenset(b for b in reach[a] if a in reach[b]) for a in graph if a in reach[a]}
    named = [" <-> ".join(sorted(cycle)) for cycle in cycles]
    assert not named, "\n".join(["", *named, "Move what both need to a module of its own."])


def _imported_modules(name: str, path: Path) -> Iterator[str]:
    """The modules that a module imports when it runs: not those for annotations only."""
    blocks = [node for node in ast.parse(path.read_text("utf-8")).body if isinstance(node, ast.If)]
    typing = [(b.lineno, b.end_lineno or 0) for b in blocks if "TYPE_CHECKING" in ast.unparse(b.test)]
    for line, imported in imports(path):
        target = imported if imported in MODULES else imported.rpartition(".")[0]
        if target in MODULES and target != name and not any(first < line <= last for first, last in typing):
            yield target


def _reachable(graph: dict[str, set[str]], start: str) -> set[str]:
    reached, waiting = set(), list(graph[start])
    while waiting:
        name = waiting.pop()
        if name not in reached:
            reached.add(name)
            waiting += graph[name]
    return reached


def modules(folder: Path) -> list[str]:
    return [".".join(path.relative_to(ROOT).with_suffix("").parts) for path in sorted(folder.glob("[!_]*.py"))]


@pytest.mark.parametrize("names", [["odice"], modules(PACKAGE / "policy")], ids=["odice", "policy"])
def test_what_a_deployment_imports_does_not_load_jax(names):
    code = f"import sys, {', '.join(names)}; print(*sorted({{'jax', 'jaxlib', 'equinox', 'optax'}} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == [], f"importing {' and '.join(names)} loads {done.stdout}"


def test_a_policy_imports_numpy_and_the_lowest_layer_only():
    """Not even a function of it imports jax, or a package that does."""
    wrong = [
        f"{path.relative_to(ROOT)}:{line} imports {name}"
        for path in (PACKAGE / "policy").rglob("*.py")
        for line, name in imports(path)
        if name.split(".")[0] in {"jax", "jaxlib", "equinox", "optax"}
    ]
    wrong += [
        f"{where} imports {other}" for own, other, where in edges() if own == "policy" and LAYER[other] and other != own
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
