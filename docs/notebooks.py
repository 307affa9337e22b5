"""Tutorials as executed notebooks: the Markdown page is the source, the notebook beside it keeps what it printed.

    python docs/notebooks.py docs/tutorials/robot.md      # run it, write docs/tutorials/robot.ipynb

tests/test_docs.py runs every page and compares the notebook's source with the page; docs/hooks.py shows the outputs.
"""

from __future__ import annotations

import ast
import base64
import contextlib
import io
import json
import os
import re
import shlex
import sys
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).parents[1]
PROGRESS = re.compile(r"^(?:step [\d,]+/|\d+ of \d+ runs finished, \d+ running).*\n", re.MULTILINE)
"""Lines of progress, one per ten seconds: they say how busy the machine was. A notebook shows one line that changes."""
BLOCK = re.compile(r"```(python|sh)\n(.*?)```\n?", re.DOTALL)


class Cell(NamedTuple):
    kind: str
    """markdown, python or sh."""
    source: str


def cells(markdown: str) -> list[Cell]:
    """The prose and the code blocks of a page, in order."""
    found, start = [], 0
    for block in BLOCK.finditer(markdown):
        found += [Cell("markdown", markdown[start : block.start()].strip()), Cell(block[1], block[2].strip())]
        start = block.end()
    found.append(Cell("markdown", markdown[start:].strip()))
    return [cell for cell in found if cell.source]


def shown(value: Any) -> dict[str, str]:
    """A value as a notebook shows it, by MIME type."""
    if hasattr(value, "savefig"):
        image = io.BytesIO()
        value.savefig(image, format="png", dpi=72, bbox_inches="tight", metadata={"Software": None})
        return {"image/png": base64.b64encode(image.getvalue()).decode(), "text/plain": "<Figure>"}
    as_html = getattr(value, "_repr_html_", None)
    return {"text/plain": repr(value)} | ({"text/html": as_html()} if as_html else {})


def run_python(source: str, names: dict[str, Any]) -> dict[str, str]:
    """Execute a block; the value of its last expression as a notebook shows it."""
    tree = ast.parse(source)
    last = tree.body[-1]
    if not isinstance(last, ast.Expr):
        exec(compile(tree, "<tutorial>", "exec"), names)
        return {}
    exec(compile(ast.Module(tree.body[:-1], []), "<tutorial>", "exec"), names)
    value = eval(compile(ast.Expression(last.value), "<tutorial>", "eval"), names)
    return {} if value is None else shown(value)


def run_sh(source: str) -> None:
    """Run the `odice` commands of a block in this process."""
    from odice.cli.main import main

    for line in source.replace("\\\n", " ").splitlines():
        words = shlex.split(line, comments=True)
        if words[0] != "odice":
            raise ValueError(f"only odice commands can be run here, not {line!r}")
        if code := main(words[1:]):
            raise RuntimeError(f"exit code {code}: {line}")


def execute(page: list[Cell]) -> list[list[dict[str, Any]]]:
    """Run a page from top to bottom in the current folder; the outputs of every cell."""
    names: dict[str, Any] = {"__name__": "__main__"}
    outputs = []
    for cell in page:
        printed, value = io.StringIO(), {}
        with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
            if cell.kind == "python":
                value = run_python(cell.source, names)
            elif cell.kind == "sh":
                run_sh(cell.source)
        text = PROGRESS.sub("", printed.getvalue())
        outputs.append([{"output_type": "stream", "name": "stdout", "text": lines(text)}] if text else [])
        if value:
            outputs[-1].append({"output_type": "display_data", "data": value, "metadata": {}})
    return outputs


def lines(text: str) -> list[str]:
    return text.strip("\n").splitlines(keepends=True)


def notebook(page: list[Cell], outputs: list[list[dict[str, Any]]]) -> dict[str, Any]:
    """A notebook in format 4.5; commands become cells of `%%sh`, which has no terminal to draw progress bars in."""
    made = []
    for number, (cell, found) in enumerate(zip(page, outputs, strict=True)):
        one: dict[str, Any] = {"id": f"cell-{number}", "metadata": {}}
        if cell.kind == "markdown":
            made.append(one | {"cell_type": "markdown", "source": lines(cell.source)})
        else:
            source = f"%%sh\n{cell.source}" if cell.kind == "sh" else cell.source
            one |= {"cell_type": "code", "execution_count": None, "source": lines(source), "outputs": found}
            made.append(one)
    kernel = {"name": "python3", "display_name": "Python 3", "language": "python"}
    return {"cells": made, "metadata": {"kernelspec": kernel}, "nbformat": 4, "nbformat_minor": 5}


def sources(book: dict[str, Any]) -> list[list[str]]:
    return [cell["source"] for cell in book["cells"]]


def with_outputs(markdown: str, book: dict[str, Any]) -> str:
    """The page with the outputs of its notebook below each block."""
    code = iter([cell["outputs"] for cell in book["cells"] if cell["cell_type"] == "code"])
    return BLOCK.sub(lambda block: block[0].rstrip("\n") + "\n" + "".join(map(as_markdown, next(code))), markdown)


def as_markdown(output: dict[str, Any]) -> str:
    if output["output_type"] == "stream":
        text = "".join(output["text"])
        wrapped = "" if re.search("[│█]", text) else " .wrapped"
        return f"\n```{{.text .output{wrapped}}}\n{text}\n```\n"
    data = output["data"]
    if "image/png" in data:
        return f'\n<img class="output" alt="output" src="data:image/png;base64,{data["image/png"]}">\n'
    if "text/html" in data:
        return f'\n<div class="output">{data["text/html"]}</div>\n'
    return f"\n```{{.text .output}}\n{data['text/plain']}\n```\n"


def main(paths: list[str]) -> None:
    for path in map(Path, paths):
        page, folder = cells(path.read_text("utf-8")), Path.cwd()
        with tempfile.TemporaryDirectory() as scratch:
            os.chdir(scratch)
            try:
                book = notebook(page, execute(page))
            finally:
                os.chdir(folder)
        text = json.dumps(book, indent=1, ensure_ascii=False).replace(f"{ROOT}/", "")  # no paths of this machine
        path.with_suffix(".ipynb").write_text(text + "\n", "utf-8")
        print(path.with_suffix(".ipynb"))


if __name__ == "__main__":
    main(sys.argv[1:])
