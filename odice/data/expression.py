"""Arithmetic of columns, such as `recovered - 0.1 * cost`: parsed into a polars expression, never evaluated as code.

Numbers, column names, `+ - * /`, parentheses, and `abs`, `min`, `max` of them. `last(died)` is the column in the last
row of an episode and 0 in the others, for an outcome that the table repeats in every row. A name that is not a plain
word stands in backquotes: `` `net result` - 2 ``.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Sequence

import polars as pl

from odice.errors import OdiceError, unknown_name

LONGEST = 500
_OPERATORS: dict[type, Callable] = {
    ast.Add: lambda a, b: a + b,
    ast.Sub: lambda a, b: a - b,
    ast.Mult: lambda a, b: a * b,
    ast.Div: lambda a, b: a / b,
}
_FUNCTIONS: dict[str, Callable] = {
    "abs": lambda a: a.abs(),
    "min": lambda *terms: pl.min_horizontal(*terms),
    "max": lambda *terms: pl.max_horizontal(*terms),
}


def is_expression(text: str) -> bool:
    """Whether a text can be arithmetic rather than the name of a column."""
    return bool(re.search(r"[-+*/()`]", text))


def parse(text: str, columns: Sequence[str], where: str, last_row: pl.Expr | None = None) -> pl.Expr:
    """Parse arithmetic of columns.

    Args:
        text: The expression.
        columns: The columns that it may name.
        where: What an error names as the place.
        last_row: Whether a row is the last of its episode; None where no column names episodes.

    Returns:
        A polars expression of 64-bit floats.
    """
    if len(text) > LONGEST:
        raise OdiceError(f"{where}: an expression of {len(text):,} characters; write at most {LONGEST}.")
    quoted: dict[str, str] = {}

    def name(match: re.Match) -> str:
        word = f"quoted_column_{len(quoted)}_"
        quoted[word] = match[1]
        return word

    try:
        tree = ast.parse(re.sub(r"`([^`]*)`", name, text).strip(), mode="eval").body
        return _build(tree, columns, quoted, f"{where}: {text!r}", last_row).cast(pl.Float64)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise OdiceError(
            f"{where}: {text!r} is neither a column nor arithmetic of columns; write it as `a - 0.1 * b`."
        ) from None


def _build(
    node: ast.AST, columns: Sequence[str], quoted: dict[str, str], where: str, last_row: pl.Expr | None
) -> pl.Expr:
    build = lambda part: _build(part, columns, quoted, where, last_row)
    match node:
        case ast.Constant(value=int() | float() as value) if not isinstance(value, bool):
            return pl.lit(float(value))
        case ast.Name(id=word):
            column = quoted.get(word, word)
            if column not in columns:
                raise OdiceError(f"{where}: {unknown_name('column', column, columns)}")
            # polars reads a name between ^ and $ as a pattern
            return pl.col(f"^{re.escape(column)}$" if column.startswith("^") else column).cast(pl.Float64)
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -build(operand)
        case ast.UnaryOp(op=ast.UAdd(), operand=operand):
            return build(operand)
        case ast.BinOp(left=left, op=operator, right=right) if type(operator) in _OPERATORS:
            return _OPERATORS[type(operator)](build(left), build(right))
        case ast.Call(func=ast.Name(id="last"), args=[term], keywords=[]):
            if last_row is None:
                raise OdiceError(f"{where}: last() needs the column that names episodes; name it as `episode`.")
            return pl.when(last_row).then(build(term)).otherwise(0.0)
        case ast.Call(func=ast.Name(id=function), args=[_, *_] as terms, keywords=[]) if function in _FUNCTIONS:
            if function == "abs" and len(terms) > 1:
                raise OdiceError(f"{where}: abs takes one term, got {len(terms)}.")
            return _FUNCTIONS[function](*map(build, terms))
        case _:
            raise OdiceError(
                f"{where}: only numbers, columns, + - * /, parentheses, abs, min, max and last can stand in it."
            )
