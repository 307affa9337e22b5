"""Fixed points of gradient rules in finite worlds: are their weights visitation ratios?

V is linear in features (one-hot features are a table), the gradients are means over all data, and targets equal the
online values: the fixed points of training. `docs/explanation/visitation.md` has the proofs and results.
"""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float
from numpy import ndarray as Arr

from odice.core import divergences
from odice.core.gradients import FORWARD_FLOOR
from odice.experiments.tabular import Policy, TabularWorld, Visits

Theta = Float[Arr, " features"]


class WeightedRows(NamedTuple):
    """Data as rows (s, a) with a mean over next states, or (s, a, s') one by one, in features of V."""

    state: Arr
    action: Arr
    share: Float[Arr, " rows"]
    reward: Float[Arr, " rows"]
    here: Float[Arr, "rows features"]
    """phi(s)."""
    ahead: Float[Arr, "rows features"]
    """gamma E[phi(s')], 0 where s' is terminal."""


def expected_rows(world: TabularWorld, data: Visits, features: Arr) -> WeightedRows:
    """One row per pair: the mean over next states is taken inside the residual."""
    state, action = np.nonzero(data)
    ahead = world.discount * world.onward[state, action] @ features
    return WeightedRows(state, action, data[state, action], world.reward[state, action], features[state], ahead)


def sampled_rows(world: TabularWorld, data: Visits, features: Arr) -> WeightedRows:
    """One row per transition, as training sees them: each next state has a residual of its own."""
    joint = data[:, :, None] * world.transition
    state, action, following = np.nonzero(joint)
    ahead = world.discount * features[following] * ~world.terminal[following, None]
    return WeightedRows(
        state, action, joint[state, action, following], world.reward[state, action], features[state], ahead
    )


class BackwardRule(NamedTuple):
    """What becomes of the backward gradient: how much of it, and which part along the forward one is removed."""

    name: str
    eta: float
    projection: str = "none"
    """`none`, `batch` (one projection of the mean gradients, as Algorithm 1) or `sample` (each transition's own)."""


TRUE, SEMI = BackwardRule("true", 1.0), BackwardRule("semi", 0.0)


def orthogonal(eta: float, projection: str = "batch") -> BackwardRule:
    return BackwardRule("orthogonal", eta, projection)


class Problem(NamedTuple):
    """linear . theta + share . scale f*((r + (ahead - here) theta) / scale), and the rule that takes its gradient."""

    rows: WeightedRows
    linear: Theta
    strength: float
    """Factor of the nonlinear term: lambda, or 1 in the alpha form."""
    divergence: str
    rule: BackwardRule
    scale: float = 1.0
    """alpha."""


def lam_problem(rows: WeightedRows, lam: float, divergence: str, rule: BackwardRule) -> Problem:
    """(1 - lam) E_D[V(s)] + lam E_D[f*(R)]: every state of the data is a start, as in the paper's Algorithm 1."""
    return Problem(rows, (1 - lam) * rows.share @ rows.here, lam, divergence, rule)


def alpha_problem(rows: WeightedRows, start: Theta, discount: float, alpha: float, divergence: str) -> Problem:
    """(1 - gamma) E_start[V(s)] + alpha E_D[f*(R / alpha)] with its true gradient: the textbook dual, OptiDICE's."""
    return Problem(rows, (1 - discount) * start, 1.0, divergence, TRUE, alpha)


@cache
def _curves(name: str):
    weight = divergences.divergence(name).weight
    return jax.jit(lambda y: jax.jvp(weight, (y,), (jnp.ones_like(y),)))


def residual(problem: Problem, theta: Theta) -> Float[Arr, " rows"]:
    rows = problem.rows
    return (rows.reward + (rows.ahead - rows.here) @ theta) / problem.scale


def weights(problem: Problem, theta: Theta) -> Float[Arr, " rows"]:
    """(f')^-1 of each row's residual, at least 0."""
    return np.asarray(_curves(problem.divergence)(residual(problem, theta))[0])


def field(problem: Problem, theta: Theta) -> tuple[Theta, Float[Arr, "features features"]]:
    """The rule's gradient at theta, and its Jacobian."""
    rows, (_, eta, projection) = problem.rows, problem.rule
    weight, slope = map(np.asarray, _curves(problem.divergence)(residual(problem, theta)))
    move = (rows.share * slope / problem.scale)[:, None] * (rows.ahead - rows.here)
    mass = rows.share * weight
    if projection == "sample":
        keep = 1 + eta * np.sum(rows.here * rows.ahead, 1) / np.sum(rows.here**2, 1)
        pull = eta * rows.ahead - keep[:, None] * rows.here
        return problem.linear + problem.strength * pull.T @ mass, problem.strength * pull.T @ move
    out, into = rows.here.T @ mass, rows.ahead.T @ mass  # minus the forward gradient, and the backward one
    d_out, d_into = rows.here.T @ move, rows.ahead.T @ move
    if projection == "none":
        gradient, jacobian = eta * into - out, eta * d_into - d_out
    else:
        size = max(out @ out, FORWARD_FLOOR)
        overlap = out @ into / size
        d_overlap = (d_out.T @ into + d_into.T @ out - 2 * overlap * d_out.T @ out) / size
        gradient = eta * into - (1 + eta * overlap) * out
        jacobian = eta * d_into - (1 + eta * overlap) * d_out - eta * np.outer(out, d_overlap)
    return problem.linear + problem.strength * gradient, problem.strength * jacobian


def overlap(problem: Problem, theta: Theta) -> float:
    """gamma rho: the share of the forward gradient in the backward one, -<F, B> / <F, F>."""
    weight = problem.rows.share * weights(problem, theta)
    out, into = problem.rows.here.T @ weight, problem.rows.ahead.T @ weight
    return float(out @ into / max(out @ out, FORWARD_FLOOR))


class Solution(NamedTuple):
    """A rule's fixed point."""

    theta: Theta
    size: float
    """Largest entry of the gradient that is left."""
    least: float
    """Least real part of the Jacobian's eigenvalues: positive where gradient descent is attracted."""

    @property
    def reached(self) -> bool:
        return self.size < 1e-9


def solve(problem: Problem, start: Theta | None = None, steps: int = 400) -> Solution:
    """The fixed point of gradient descent with the rule.

    Implicit Euler steps on theta' = -gradient(theta), longer the smaller the gradient: far away they follow descent,
    so that repelling points are not found, near the end they are Newton's. `reached` says whether it came to rest.
    """
    if start is None and problem.rule.projection == "batch":
        start = solve(problem._replace(rule=SEMI)).theta  # far from it all weights may vanish, and F with them
    theta = np.zeros(problem.linear.size) if start is None else start
    gradient, jacobian = field(problem, theta)
    first = size = np.max(np.abs(gradient))
    pace = 10.0 / np.max(problem.linear)
    for _ in range(steps):
        if size < 1e-12:
            break
        length = pace * first / size
        trial, new_gradient, new_jacobian, new = theta, gradient, jacobian, size
        for _ in range(30):
            trial = theta - np.linalg.solve(jacobian + np.eye(theta.size) / length, gradient)
            new_gradient, new_jacobian = field(problem, trial)
            new = np.max(np.abs(new_gradient))
            if new < 2 * size:
                break
            length /= 4
        theta, gradient, jacobian, size = trial, new_gradient, new_jacobian, new
    return Solution(theta, float(size), float(np.min(np.linalg.eigvals(jacobian).real)))


def mass(problem: Problem, theta: Theta, shape: tuple[int, ...]) -> Visits:
    """w(s, a) dD(s, a): the weights' own distribution, not normalized; rows of one pair are added."""
    total = np.zeros(shape)
    np.add.at(total, (problem.rows.state, problem.rows.action), problem.rows.share * weights(problem, theta))
    return total


def cloned(distribution: Visits, data: Visits) -> Policy:
    """Weighted cloning by a table: the weights' share of each action; the behavior's where a state has no weight."""
    total, logged = distribution.sum(1, keepdims=True), data.sum(1, keepdims=True)
    behavior = np.where(logged > 0, data / np.where(logged > 0, logged, 1), 1 / data.shape[1])
    return np.where(total > 0, distribution / np.where(total > 0, total, 1), behavior)
