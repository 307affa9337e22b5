"""IDRL's rounds in finite worlds, exactly: does pruning bring the weights nearer to the best policy's visits?

One round on data d_k, in a table: semi-gradient values give w(a|s), the visits of w(a|s) pi_k(a|s) from the world's
start follow from one linear solve, and the pairs that they reach are the next data, with their shares of d_k.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import jax
import numpy as np
from threadpoolctl import threadpool_limits

from odice.experiments import visitation_study
from odice.experiments.tabular import Policy, Visits, best_policy, visits
from odice.experiments.visitation import SEMI, Problem, cloned, expected_rows, mass, solve
from odice.experiments.visitation_study import Case, Row, correlation, distance, make_case

ALPHAS = (0.03, 0.1, 0.3, 1.0)
ROUNDS = 4


class Round(NamedTuple):
    """What one round leaves."""

    data: Visits
    """d_k, on which it ran."""
    action: Visits
    """w(a|s) d_k: the semi-gradient's weights."""
    policy: Policy
    visits: Visits
    """w(s, a) d_k: the visits of that policy from the world's start."""


def one_round(case: Case, data: Visits, alpha: float) -> Round:
    """Both stages; half Pearson's divergence, whose weights may be 0."""
    seen = data.sum(1) > 0
    rows = expected_rows(case.world, data, np.eye(len(data))[:, seen])
    problem = Problem(rows, rows.share @ rows.here, 1.0, "half-pearson", SEMI, alpha)
    action = mass(problem, solve(problem).theta, data.shape)
    policy = cloned(action, data)
    reached = visits(case.world, policy, case.world.initial, case.world.discount) * ~case.world.terminal[:, None]
    return Round(data, action, policy, reached)


def rounds(case: Case, alpha: float, count: int = ROUNDS) -> Iterator[Round]:
    """Each on the pairs that the visits of the one before reach."""
    data = case.data
    for _ in range(count):
        done = one_round(case, data, alpha)
        yield done
        data = np.where(done.visits > 0, data, 0.0)
        data = data / data.sum()


def rounds_study(case: Case) -> Iterator[Row]:
    """Weights before and after the correction, round by round, next to d* of the best policy within the data."""
    best = best_policy(case.world, case.data > 0)
    optimum = visits(case.world, best, case.world.initial, case.world.discount) * ~case.world.terminal[:, None]
    for alpha in ALPHAS:
        for number, done in enumerate(rounds(case, alpha), 1):
            for weights, d in (("action ratio", done.action), ("visitation ratio", done.visits)):
                yield {
                    **case.labels,
                    "alpha": alpha,
                    "round": number,
                    "method": f"round {number}, {weights}",
                    "pairs": float(np.mean(done.data[case.data > 0] > 0)),
                    "optimum": distance(d, optimum),
                    "correlation": correlation(d, optimum, case.data),
                    "score": case.score(done.policy),
                }


def run_rounds(seeds: int) -> list[Row]:
    """The rounds in every kind of world, in float64."""
    with jax.enable_x64(True), threadpool_limits(1):
        cases = [make_case(name, seed) for name in visitation_study.WORLDS for seed in range(seeds)]
        return [row for case in cases for row in rounds_study(case)]
