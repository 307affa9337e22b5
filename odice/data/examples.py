"""Small made-up logs with the columns that people have: `odice data example NAME` writes one as a CSV file.

The worlds are simple, so that it is known what a good policy does: it is in each function's docstring.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import date, timedelta

import numpy as np
import polars as pl

from odice.errors import OdiceError, unknown_name


def one_step(rows: int, seed: int = 0) -> pl.DataFrame:
    """Loan reminders: one decision per case. A call pays with large debts, a letter with small ones."""
    rng = np.random.default_rng(seed)
    debt, age = rng.gamma(2.0, 150.0, rows).round(), rng.integers(18, 80, rows)
    large = debt > 300
    called = rng.random(rows) < np.where(large, 0.4, 0.5)
    paid = rng.random(rows) < np.where(called == large, 0.55, 0.35)
    return pl.DataFrame(
        {
            "case_no": [f"K{i:06d}" for i in range(rows)],
            "debt": debt,
            "age": age,
            "contact": np.where(called, "call", "letter"),
            "recovered": np.where(paid, debt, 0.0) - np.where(called, 8.0, 1.0),
        }
    )


def randomized(rows: int, seed: int = 0) -> pl.DataFrame:
    """An offer drawn with known probabilities. Lapsed customers want a discount, loyal ones an e-mail."""
    rng = np.random.default_rng(seed)
    offers, chance = np.array(["none", "email", "discount"]), np.array([0.5, 0.3, 0.2])
    segment = rng.choice(["new", "loyal", "lapsed"], rows, p=[0.4, 0.4, 0.2])
    offer = rng.choice(3, rows, p=chance)
    lift = np.where((segment == "loyal") & (offer == 1), 0.15, 0.0)
    lift += np.where((segment == "lapsed") & (offer == 2), 0.25, 0.0)
    bought = rng.random(rows) < 0.1 + lift
    return pl.DataFrame(
        {
            "customer_id": [f"C{i:06d}" for i in range(rows)],
            "segment": segment,
            "age": rng.integers(18, 80, rows),
            "visits": rng.poisson(3.0, rows),
            "offer": offers[offer],
            "probability": chance[offer],
            "revenue": np.where(bought, rng.gamma(4.0, 10.0, rows), 0.0).round(2),
        }
    )


def outcomes(rows: int, seed: int = 0) -> pl.DataFrame:
    """Stays in a hospital. More drug than the pain needs does no good, costs more and makes people dizzy."""
    rng = np.random.default_rng(seed)
    out: list[tuple] = []
    stay = 0
    while len(out) < rows:
        stay += 1
        pain, age = rng.uniform(2, 9), int(rng.integers(20, 90))
        for hour in range(0, 4 * int(rng.integers(2, 7)), 4):
            seen = round(pain, 1)
            dose = float(np.clip(round(rng.normal(5, 2)), 0, 10))
            relief = min(dose, pain) * 0.5
            pain = float(np.clip(pain - relief + rng.normal(1.2, 0.5), 0, 10))
            dizzy = int(rng.random() < 0.06 * max(0.0, dose - seen) + 0.01 * (age > 70))
            out.append((7000 + stay, hour, age, seen, dose, round(relief, 2), dizzy, 3.0 * dose))
    names = ["stay_id", "hour", "age", "pain", "dose", "relief", "dizzy", "drug_cost"]
    return pl.DataFrame(out, schema=names, orient="row")


def panel(rows: int, seed: int = 0) -> pl.DataFrame:
    """Stores by week, some weeks missing. A coupon sells more, unless the store had one in the last weeks."""
    rng = np.random.default_rng(seed)
    weeks, out = 26, []
    for store in range(max(2, round(rows / (0.92 * weeks)))):
        size, tired = rng.normal(20, 4), 0.0
        for week in range(weeks):
            coupon = rng.random() < 0.4
            sales = size + (8 - 12 * tired) * coupon + rng.normal(0, 3)
            if rng.random() > 0.08:  # a week in twelve was never reported
                day = date(2024, 1, 1) + timedelta(weeks=week)
                usual, pressure = round(size + rng.normal(0, 1), 1), round(tired, 2)
                action = "coupon" if coupon else "none"
                out.append((f"store_{store:03d}", str(day), usual, pressure, action, round(max(sales, 0.0), 2)))
            tired = 0.6 * tired + 0.6 * coupon
    names = ["store", "week", "usual_sales", "pressure", "promotion", "sales"]
    table = pl.DataFrame(out, schema=names, orient="row").with_columns(
        (pl.col("promotion") == "coupon").cast(pl.Float64).mul(3.0).alias("promo_cost")
    )
    return table.sort("week", "store")


EXAMPLES: dict[str, tuple[Callable[..., pl.DataFrame], int]] = {
    "one-step": (one_step, 4_000),
    "randomized": (randomized, 8_000),
    "outcomes": (outcomes, 6_000),
    "panel": (panel, 8_000),
}
"""Name -> the function that makes it, and how many rows it has by default."""


def example(name: str, rows: int | None = None, seed: int = 0) -> pl.DataFrame:
    """Make an example by its name.

    Args:
        name: A name of `EXAMPLES`.
        rows: About how many rows; each has its own default.
        seed: The same seed gives the same log.
    """
    if name not in EXAMPLES:
        raise unknown_name("example", name, EXAMPLES)
    if seed < 0 or (rows is not None and rows < 1):
        raise OdiceError(f"An example has at least 1 row, and a seed of at least 0; got {rows} and {seed}.")
    make, usual = EXAMPLES[name]
    return make(usual if rows is None else rows, seed)
