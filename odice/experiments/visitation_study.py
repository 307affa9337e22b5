"""How far the weights of each rule are from the optimal visitation ratio, over worlds, settings and features."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float
from numpy import ndarray as Arr
from threadpoolctl import threadpool_limits

from odice.core import divergences, gradients
from odice.experiments.tabular import (
    Policy,
    TabularWorld,
    Visits,
    best_policy,
    data_distribution,
    grid_world,
    mean_return,
    noisy_policy,
    random_world,
    step_matrix,
    visits,
)
from odice.experiments.visitation import (
    SEMI,
    TRUE,
    Problem,
    Solution,
    WeightedRows,
    alpha_problem,
    cloned,
    expected_rows,
    lam_problem,
    mass,
    orthogonal,
    overlap,
    sampled_rows,
    solve,
    weights,
)

WORLDS: dict[str, Callable[[np.random.Generator], TabularWorld]] = {
    "random, deterministic": partial(random_world, branching=1),
    "random, stochastic": partial(random_world, branching=3),
    "grid, deterministic": lambda rng: grid_world(),
    "grid, stochastic": lambda rng: grid_world(slip=0.2),
}
DIVERGENCES = ("pearson", "soft-chi2", "kl")
LAMS = (0.5, 0.7, 0.9, 0.97, 0.99, 0.997)
ETAS = (0.2, 1.0, 5.0, 20.0)
SHARES = (1.0, 0.75, 0.5, 0.25, 0.1)
"""Features per state."""
BATCHES = (16, 64, 256, 1024)
NOISE = 0.8
"""How often the behavior acts at random."""

Row = dict[str, Any]


class Case(NamedTuple):
    """A world with its data."""

    name: str
    seed: int
    world: TabularWorld
    data: Visits
    behavior: Policy

    @property
    def states(self) -> Float[Arr, " states"]:
        """d_D(s)."""
        return self.data.sum(1)

    @property
    def table(self) -> Float[Arr, "states features"]:
        """One-hot features of the states that have data."""
        return np.eye(len(self.data))[:, self.states > 0]

    @property
    def labels(self) -> Row:
        return {"world": self.name, "seed": self.seed}

    def score(self, policy: Policy) -> float:
        """Return, 0 for the behavior and 1 for the best policy."""
        best = mean_return(self.world, best_policy(self.world, self.data > 0))
        base = mean_return(self.world, self.behavior)
        return (mean_return(self.world, policy) - base) / (best - base)


def make_case(name: str, seed: int) -> Case:
    rng = np.random.default_rng(seed)
    world = WORLDS[name](rng)
    behavior = noisy_policy(world, NOISE, rng)
    return Case(name, seed, world, data_distribution(world, behavior), behavior)


def distance(a: Arr, b: Arr) -> float:
    """Total variation between two distributions given up to a factor; 1 if one of them is empty."""
    if not a.sum() > 0 or not b.sum() > 0:
        return 1.0
    return float(np.abs(a / a.sum() - b / b.sum()).sum() / 2)


def correlation(d: Visits, optimum: Visits, data: Visits) -> float:
    """Correlation over the data of the weights d / d_D and d* / d_D."""
    seen = data > 0
    share, a, b = data[seen], d[seen] / data[seen], optimum[seen] / data[seen]
    a, b = a - share @ a, b - share @ b
    size = np.sqrt((share @ a**2) * (share @ b**2))
    return float(share @ (a * b) / size) if size > 0 else 0.0


def implied_discount(world: TabularWorld, d: Visits, start: Float[Arr, " states"]) -> float:
    """The g with which d(s) is a visitation of its own policy: least squares of d(s) on start(s) and inflow(s)."""
    states = d.sum(1)
    inflow = step_matrix(world, cloned(d, np.ones_like(d))).T @ states
    return float(np.linalg.lstsq(np.stack([start, inflow], 1), states, rcond=None)[0][1])


def measures(case: Case, d: Visits, optimum: Visits, start: Float[Arr, " states"] | None = None) -> Row:
    """Measurements of weights whose distribution is d = w d_D.

    `optimum` and `states` are the distances to d* and to its state marginal, `own` the distance to the visitation of
    the policy that cloning with these weights gives (from the data's states), `score` that policy's return.
    """
    start = case.states if start is None else start
    policy = cloned(d, case.data)
    return {
        "optimum": distance(d, optimum),
        "states": distance(d.sum(1), optimum.sum(1)),
        "correlation": correlation(d, optimum, case.data),
        "own": distance(d, visits(case.world, policy, start, case.world.discount)),
        "discount": implied_discount(case.world, d, start),
        "mass": float(d.sum()),
        "score": case.score(policy),
    }


def at_rest(problem: Problem, case: Case) -> tuple[Visits, bool]:
    """w d_D at the rule's fixed point, and whether it was reached and attracts."""
    solution = solve(problem)
    return mass(problem, solution.theta, case.data.shape), _attracted(solution)


def _attracted(solution: Solution) -> bool:
    return solution.reached and solution.least > -1e-12


def matched_eta(rows: WeightedRows, lam: float, divergence: str, discount: float) -> float:
    """The eta = 1 / (1 - gamma rho) at which the orthogonal rule's flow has the world's discount."""
    theta, eta = solve(lam_problem(rows, lam, divergence, orthogonal(1.0))).theta, 1 / (1 - discount)
    for _ in range(100):
        problem = lam_problem(rows, lam, divergence, orthogonal(eta))
        theta = solve(problem, theta).theta
        new = 1 / (1 - min(overlap(problem, theta), 0.999))
        if abs(new - eta) < 1e-9 * eta:
            break
        eta = new
    return eta


def second_stage(case: Case, rows: WeightedRows, ratio: Float[Arr, " rows"], features: Arr) -> Visits:
    """IDRL's second stage: the state ratio of a policy given by its action ratio w(a|s), from the flow of its visits.

    min over U of (1 - gamma) E_D[U(s)] + E_D(s) f*(E_a[w(a|s) (gamma U(s') - U(s))]); w(s) = f*' there.
    """
    seen = np.flatnonzero(case.states)
    member = (rows.state[None] == seen[:, None]) * (rows.share * ratio)[None] / case.states[seen][:, None]
    states = WeightedRows(
        seen, np.zeros_like(seen), case.states[seen], np.zeros(len(seen)), member @ rows.here, member @ rows.ahead
    )
    problem = alpha_problem(states, case.states @ features, case.world.discount, 1.0, "soft-chi2")
    state_ratio = np.zeros(len(case.data))
    state_ratio[seen] = weights(problem, solve(problem).theta)
    d = np.zeros_like(case.data)
    np.add.at(d, (rows.state, rows.action), rows.share * ratio * state_ratio[rows.state])
    return d


def two_stages(case: Case, rows: WeightedRows, lam: float, divergence: str, features: Arr) -> Visits:
    """IDRL's two stages: semi-gradient weights as w(a|s), then their state ratio."""
    problem = lam_problem(rows, lam, divergence, SEMI)
    ratio = weights(problem, solve(problem).theta) * lam / (1 - lam)  # its mean over actions is 1 in a table
    return second_stage(case, rows, ratio, features)


def lam_methods(
    case: Case, lam: float, divergence: str, features: Arr, etas: tuple[float, ...]
) -> Iterator[tuple[str, float, Visits, bool]]:
    """Every rule with the lambda form: name, eta, w d_D, whether it converged."""
    rows = expected_rows(case.world, case.data, features)
    for rule in (TRUE, SEMI, *map(orthogonal, etas), orthogonal(1.0, "sample")):
        name = "orthogonal, per sample" if rule.projection == "sample" else rule.name
        yield name, rule.eta, *at_rest(lam_problem(rows, lam, divergence, rule), case)
    yield "two stages", 0.0, two_stages(case, rows, lam, divergence, features), True


def single_methods(case: Case, lam: float, divergence: str) -> Iterator[tuple[str, float, Visits, bool]]:
    """The rules with one next state per residual, as they are trained: where next states are random, f* sees noise."""
    rows = sampled_rows(case.world, case.data, case.table)
    for rule in (TRUE, SEMI, orthogonal(1.0)):
        yield f"{rule.name}, single s'", rule.eta, *at_rest(lam_problem(rows, lam, divergence, rule), case)


def table_study(case: Case, divergence: str) -> Iterator[Row]:
    """Every method in a table."""
    rows = expected_rows(case.world, case.data, case.table)
    optima = [at_rest(lam_problem(rows, lam, divergence, TRUE), case)[0] for lam in LAMS]
    for lam, optimum in zip(LAMS, optima, strict=True):
        matched = matched_eta(rows, lam, divergence, case.world.discount)
        methods = list(lam_methods(case, lam, divergence, case.table, ETAS))
        d, rest = at_rest(lam_problem(rows, lam, divergence, orthogonal(matched)), case)
        methods.append(("orthogonal, matched eta", matched, d, rest))
        if not case.world.deterministic:
            methods += single_methods(case, lam, divergence)
        for name, eta, d, rest in methods:
            labels = {**case.labels, "divergence": divergence, "method": name, "lam": lam, "eta": eta, "rest": rest}
            yield {**labels, **measures(case, d, optimum), "nearest": min(distance(d, other) for other in optima)}


def optidice_study(case: Case, divergence: str) -> Iterator[Row]:
    """OptiDICE from the world's own start: with the mean over next states, and as published (V's loss sees single ones,
    the weights their mean)."""
    exact = expected_rows(case.world, case.data, case.table)
    sampled = sampled_rows(case.world, case.data, case.table)
    for alpha in (0.3, 1.0):
        problems = [
            alpha_problem(rows, case.world.initial @ case.table, case.world.discount, alpha, divergence)
            for rows in (exact, sampled)
        ]
        optimum, _ = at_rest(problems[0], case)
        for name, problem in zip(("optidice", "optidice, single s'"), problems, strict=True):
            solution = solve(problem)
            d = mass(problems[0], solution.theta, case.data.shape)
            labels = {**case.labels, "divergence": divergence, "method": name, "alpha": alpha}
            yield {**labels, "rest": _attracted(solution), **measures(case, d, optimum, case.world.initial)}


def coarse_features(case: Case, kind: str, count: int) -> Float[Arr, "states features"]:
    """`random`: Gaussian features and a constant one. `groups`: one bit per group of states, of neighbors in a grid."""
    states = np.flatnonzero(case.states)
    features = np.zeros((len(case.data), count))
    rng = np.random.default_rng(case.seed + 1000)
    if kind == "random":
        features[states] = rng.normal(size=(len(states), count))
        features[states, 0] = 1.0
    else:
        side = round(len(case.data) ** 0.5)
        blocks = max(1, round(count**0.5))
        if case.name.startswith("grid"):
            group = (states // side * blocks // side) * blocks + states % side * blocks // side
        else:
            group = rng.permutation(np.arange(len(states)) % count)
        features = np.zeros((len(case.data), int(group.max()) + 1))
        features[states, group] = 1.0
        features = features[:, features.any(0)]
    return features


def feature_study(case: Case, divergence: str, lam: float = 0.9) -> Iterator[Row]:
    """The rules with ever fewer features; the optimum is still that of the table."""
    optimum, _ = at_rest(lam_problem(expected_rows(case.world, case.data, case.table), lam, divergence, TRUE), case)
    for kind in ("random", "groups"):
        for share in SHARES:
            count = max(2, round(share * np.count_nonzero(case.states)))
            features = case.table if share == 1 else coarse_features(case, kind, count)
            for name, eta, d, rest in lam_methods(case, lam, divergence, features, (0.2, 1.0, 5.0)):
                labels = {"divergence": divergence, "method": name, "lam": lam, "eta": eta, "rest": rest}
                size = {"kind": kind, "share": share, "features": features.shape[1]}
                yield {**case.labels, **labels, **size, **measures(case, d, optimum)}


def descend(case: Case, batch: int, *, eta: float, lam: float, divergence: str, steps: int) -> Visits:
    """w d_D after stochastic gradient descent (rate 0.5) with training's own `combine` on batches drawn from the data;
    the second half of the path is averaged."""
    rows = expected_rows(case.world, case.data, case.table)
    here, ahead, reward, share = map(jnp.asarray, (rows.here, rows.ahead, rows.reward, rows.share))
    curve = divergences.divergence(divergence)
    rule = gradients.orthogonal(eta)

    def update(carry, key):
        theta, total = carry
        index = jax.random.choice(key, len(share), (batch,), p=share)
        weight = curve.weight(reward[index] + (ahead[index] - here[index]) @ theta) * lam / batch
        combined, _ = gradients.combine(rule, -weight @ here[index], weight @ ahead[index])
        theta = theta - 0.5 * (combined + (1 - lam) / batch * here[index].sum(0))
        return (theta, total + theta), None

    def run(theta, key):
        return jax.lax.scan(update, (theta, jnp.zeros_like(theta)), jax.random.split(key, steps // 2))[0]

    run = jax.jit(run)
    first, second = jax.random.split(jax.random.key(case.seed))
    start = solve(lam_problem(rows, lam, divergence, orthogonal(eta))).theta
    theta, _ = run(jnp.asarray(start), first)
    _, total = run(theta, second)
    problem = lam_problem(rows, lam, divergence, orthogonal(eta))
    return mass(problem, np.asarray(total) / (steps // 2), case.data.shape)


class VisitationStudy(NamedTuple):
    """Every row that was measured."""

    tables: list[Row]
    optidice: list[Row]
    features: list[Row]
    batches: list[Row]


def batch_study(case: Case, divergence: str, lam: float = 0.5, eta: float = 1.0, steps: int = 20_000) -> Iterator[Row]:
    """The implied discount when the projection acts on batches of ever more transitions."""
    for batch in BATCHES:
        d = descend(case, batch, eta=eta, lam=lam, divergence=divergence, steps=steps)
        measured = implied_discount(case.world, d, case.states)
        yield {**case.labels, "divergence": divergence, "lam": lam, "eta": eta, "batch": batch, "discount": measured}


def run(seeds: int, advance: Callable[[str], None] = lambda what: None) -> VisitationStudy:
    """The whole study in float64; the process keeps its float32 outside of this call. `advance` is called per world."""
    study = VisitationStudy([], [], [], [])
    with jax.enable_x64(True), threadpool_limits(1):
        for name in WORLDS:
            for seed in range(seeds):
                case = make_case(name, seed)
                for divergence in DIVERGENCES:
                    study.tables.extend(table_study(case, divergence))
                    study.optidice.extend(optidice_study(case, divergence))
                    study.features.extend(feature_study(case, divergence))
                if case.world.deterministic:
                    study.batches.extend(batch_study(case, "pearson"))
                advance(f"{name}, seed {seed}")
    return study
