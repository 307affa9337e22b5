"""Rewards as arithmetic of columns: the right numbers, one sentence for everything else, and nothing is run."""

import numpy as np
import polars as pl
import pytest

import odice
from odice.data.expression import parse
from odice.errors import OdiceError

TABLE = pl.DataFrame({"a": [1, 2], "b": [0.5, -4.0], "net result": [10, 20], "died": [False, True]})


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("a - 0.1 * b", [0.95, 2.4]),
        ("-(a + b) / 2", [-0.75, 1.0]),
        ("`net result` - 2", [8, 18]),
        ("10 - 100 * died", [10, -90]),
        ("max(a, b, 1.5) + abs(b)", [2.0, 6.0]),
        ("min(a, `net result`)", [1, 2]),
        ("a - b - 1", [-0.5, 5.0]),
    ],
)
def test_the_numbers_are_those_of_the_arithmetic(text, values):
    result = TABLE.select(parse(text, TABLE.columns, "x").alias("r"))["r"]
    assert result.dtype == pl.Float64
    np.testing.assert_allclose(result.to_numpy(), values)


@pytest.mark.parametrize(
    "text",
    [
        "a.b",
        "__import__('os').system('true')",
        "a ** 9999999",
        "a if b else a",
        "[a]",
        "'a' + b",
        "a < b",
        "lambda: a",
        "abs(a, b)",
        "max(*a)",
        "min()",
        "a; b",
        "a +",
        "`missing` + a",
        "c * 2",
        "(" * 300 + "a" + ")" * 300,
        "a + " * 200 + "a",
        "True + a",
        "a\x00 + b",
        "`a",
    ],
)
def test_everything_else_is_one_sentence(text):
    with pytest.raises(OdiceError) as caught:
        parse(text, TABLE.columns, "log.csv")
    assert "\n" not in str(caught.value)
    assert str(caught.value).startswith("log.csv")


def test_a_schema_takes_an_expression_for_the_reward(tmp_path):
    log = tmp_path / "log.csv"
    log.write_text("x,action,recovered,cost,terminated\n1,0,5,10,0\n2,1,7,0,1\n")
    data = odice.load(log, observation="x", reward="recovered - 0.1 * cost", cost="2 * cost")
    np.testing.assert_allclose(data.rewards, [4, 7])
    np.testing.assert_allclose(data.costs, [20, 0])
    with pytest.raises(OdiceError, match=r"`reward`.*Did you mean"):
        odice.load(log, observation="x", reward="recoverd - 0.1 * cost")
