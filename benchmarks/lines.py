"""How long the file of each algorithm is, and how much of it is code: a table in Markdown.

python benchmarks/lines.py
"""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterator
from pathlib import Path

from odice.algos import algorithms, registry


def file_lines() -> Iterator[str]:
    """Of each file of `odice/algos` that registers algorithms, and of what they share: lines, and lines that are code.

    The rest is the equations, what each setting means, comments and blank lines.
    """
    names: dict[Path, list[str]] = {}
    for name, algorithm in algorithms().items():
        names.setdefault(Path(inspect.getfile(algorithm.factory)), []).append(name)
    shared = {"union.py", "implicit_q.py", "inverse_q.py", "semi_dice.py", "td3.py"}
    names |= {Path(registry.__file__).parent / name: [] for name in sorted(shared)}
    yield "| file | algorithms | lines | of them code |\n|---|---|---|---|"
    for path, registered in names.items():
        text = path.read_text()
        prose = {line for node in ast.walk(ast.parse(text)) for line in _prose_lines(node)}
        code = [line for i, line in enumerate(text.splitlines(), 1) if line.strip() and i not in prose]
        code = [line for line in code if not line.lstrip().startswith("#")]
        yield f"| {path.name} | {', '.join(registered)} | {len(text.splitlines())} | {len(code)} |"


def _prose_lines(node: ast.AST) -> range:
    """The lines of a string that stands by itself: a docstring, or what a setting means."""
    if not (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)):
        return range(0)
    return range(node.lineno, (node.end_lineno or node.lineno) + 1)


if __name__ == "__main__":
    print("\n".join(file_lines()))
