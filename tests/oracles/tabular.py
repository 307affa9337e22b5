"""Small finite MDPs, solved exactly: what the tests compare learned values with.

Plain numpy in float64, derivatives by hand, nothing shared with the code that trains. Two problems are solved here, and
they are not the same one:

    regularized dual   min_V  (1-gamma) E_mu[V(s)] + alpha E_{s,a ~ dD} f*((r + gamma E_{s'}[m V(s')] - V(s)) / alpha)
    sample loss        min_V  E_{(s,a,s') ~ D}[(1-lam) V(s) + lam f*(r + gamma m V(s') - V(s))]

The dual is the textbook problem: it takes the mean over s' *inside* f*, and its solution gives the visitation d = w dD
that maximizes E_d[r] - alpha D_f(d || dD) among all that obey the Bellman flow (strong duality). The sample loss is
what V-DICE minimizes: one s' per transition, so f* is convex around the noise of s' and the loss overstates every
stochastic action. The two agree in their Bellman term only when transitions are deterministic. `m` is 0 where s' is
terminal.

Both have the shape  c.V + sum_i p_i alpha f*((r_i + M_i V) / alpha), which `minimize` solves by Newton's method.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from odice.errors import OdiceError, unknown_name

Vector = np.ndarray
Matrix = np.ndarray


class TabularMDP(NamedTuple):
    """A finite MDP. Entering a terminal state ends the episode: its value counts as 0 and its rows are never used."""

    transition: np.ndarray
    """P(s' | s, a), indexed [s, a, s']."""
    reward: Matrix
    """r(s, a)."""
    initial: Vector
    """mu(s): where episodes start; terminal states have none of it."""
    terminal: np.ndarray
    """True where an episode ends."""
    discount: float

    @property
    def states(self) -> int:
        return self.reward.shape[0]

    @property
    def actions(self) -> int:
        return self.reward.shape[1]

    @property
    def onward(self) -> np.ndarray:
        """P with the way into terminal states cut: what a discounted sum over the future runs through."""
        return self.transition * ~self.terminal


def random_mdp(
    rng: np.random.Generator,
    states: int = 8,
    actions: int = 3,
    *,
    terminals: int = 1,
    branching: int = 3,
    discount: float = 0.9,
) -> TabularMDP:
    """A random MDP whose last `terminals` states are terminal. `branching` = 1 makes every transition deterministic."""
    if not 0 <= terminals < states or not 1 <= branching <= states:
        raise OdiceError(
            f"A random MDP with {states} states takes 0 to {states - 1} terminals and a branching of 1 to {states}; "
            f"got {terminals} and {branching}."
        )
    transition = np.zeros((states, actions, states))
    for s in range(states):
        for a in range(actions):
            successors = rng.choice(states, branching, replace=False)
            transition[s, a, successors] = rng.dirichlet(np.ones(branching))
    terminal = np.arange(states) >= states - terminals
    initial = np.where(terminal, 0.0, rng.dirichlet(np.ones(states)))
    return TabularMDP(transition, rng.normal(size=(states, actions)), initial / initial.sum(), terminal, discount)


def evaluate(mdp: TabularMDP, policy: Matrix) -> Vector:
    """V^pi by one linear solve; 0 at terminal states. `policy` is pi(a | s)."""
    onward = np.einsum("sa,sat->st", policy, mdp.onward)
    value = np.linalg.solve(np.eye(mdp.states) - mdp.discount * onward, np.sum(policy * mdp.reward, axis=1))
    return np.where(mdp.terminal, 0.0, value)


def visitation(mdp: TabularMDP, policy: Matrix) -> Matrix:
    """d^pi(s, a) = (1 - gamma) sum_t gamma^t P(s_t = s, a_t = a) over the steps before the end; sums to 1 without
    terminals."""
    onward = np.einsum("sa,sat->st", policy, mdp.onward)
    states = np.linalg.solve(np.eye(mdp.states) - mdp.discount * onward.T, (1 - mdp.discount) * mdp.initial)
    return states[:, None] * policy


def flow_residual(mdp: TabularMDP, d: Matrix) -> Vector:
    """By how much d(s, a) breaks the Bellman flow  sum_a d(s, a) = (1 - gamma) mu(s) + gamma sum P(s | s', a') d(s',
    a')."""
    inflow = (1 - mdp.discount) * mdp.initial + mdp.discount * np.einsum("sa,sat->t", d, mdp.onward)
    return np.where(mdp.terminal, 0.0, d.sum(axis=1) - inflow)


class Log(NamedTuple):
    """Transitions as (s, a, s') with the share of the data each has; shares sum to 1."""

    state: Vector
    action: Vector
    next_state: Vector
    share: Vector


def exact_log(mdp: TabularMDP, policy: Matrix) -> Log:
    """The data distribution without sampling: dD(s, a) of a behavior policy, normalized, times P(s' | s, a)."""
    d = visitation(mdp, policy)
    share = d[:, :, None] / d.sum() * mdp.transition
    state, action, next_state = np.nonzero(share)
    return Log(state, action, next_state, share[state, action, next_state])


def sample_log(mdp: TabularMDP, policy: Matrix, rng: np.random.Generator, size: int) -> Log:
    """`size` transitions drawn from the same distribution, each with share 1/size: a data set as an algorithm meets
    it."""
    exact = exact_log(mdp, policy)
    rows = rng.choice(exact.share.size, size, p=exact.share / exact.share.sum())
    return Log(exact.state[rows], exact.action[rows], exact.next_state[rows], np.full(size, 1 / size))


class Curves(NamedTuple):
    """f, its conjugate over x >= 0, and that conjugate's first and second derivative, in numpy."""

    f: Callable[[Vector], Vector]
    conjugate: Callable[[Vector], Vector]
    weight: Callable[[Vector], Vector]
    curvature: Callable[[Vector], Vector]


def _chi_square(scale: float) -> Curves:
    """f(x) = (x - 1)^2 / scale: Pearson at 1, half Pearson at 2. Its conjugate has a corner in w at y = -2 / scale."""
    weight = lambda y: np.maximum(0.0, 1 + scale * y / 2)
    return Curves(
        f=lambda x: (x - 1) ** 2 / scale,
        conjugate=lambda y: (weight(y) ** 2 - 1) / scale,
        weight=weight,
        curvature=lambda y: np.where(weight(y) > 0, scale / 2, 0.0),
    )


def _xlogx(x: Vector) -> Vector:
    return np.where(x > 0, x * np.log(np.where(x > 0, x, 1.0)), 0.0)


CURVES: dict[str, Curves] = {
    "pearson": _chi_square(1.0),
    "half-pearson": _chi_square(2.0),
    "soft-chi2": Curves(
        f=lambda x: np.where(x < 1, _xlogx(x) - x + 1, (x - 1) ** 2 / 2),
        conjugate=lambda y: np.where(y < 0, np.expm1(np.minimum(y, 0)), y + y**2 / 2),
        weight=lambda y: np.where(y < 0, np.exp(np.minimum(y, 0)), 1 + y),
        curvature=lambda y: np.exp(np.minimum(y, 0)),
    ),
    "kl": Curves(_xlogx, *[lambda y: np.exp(y - 1)] * 3),
}


class Problem(NamedTuple):
    """c.V + sum_i p_i alpha f*((r_i + M_i V) / alpha) over the non-terminal states."""

    linear: Vector
    share: Vector
    reward: Vector
    matrix: Matrix
    alpha: float
    curves: Curves

    def residual(self, value: Vector) -> Vector:
        return (self.reward + self.matrix @ value) / self.alpha

    def loss(self, value: Vector) -> float:
        with np.errstate(over="ignore"):  # a trial step may be absurdly long; an infinite loss rejects it
            return float(self.linear @ value + self.alpha * self.share @ self.curves.conjugate(self.residual(value)))

    def gradient(self, value: Vector) -> Vector:
        return self.linear + self.matrix.T @ (self.share * self.curves.weight(self.residual(value)))

    def hessian(self, value: Vector) -> Matrix:
        scale = self.share * self.curves.curvature(self.residual(value)) / self.alpha
        return self.matrix.T @ (scale[:, None] * self.matrix)


def minimize(problem: Problem, *, start: Vector | None = None, tolerance: float = 1e-12, steps: int = 500) -> Vector:
    """The minimizing V, by Newton's method with backtracking; every entry of the gradient ends below `tolerance`.

    Chi-square conjugates are flat below a point, so the Hessian may be singular far from the solution: a ridge as large
    as the gradient keeps the step a descent direction there and vanishes at the end, which keeps Newton's quadratic
    speed.
    """
    value = np.zeros_like(problem.linear) if start is None else start
    for _ in range(steps):
        gradient = problem.gradient(value)
        size = np.max(np.abs(gradient))
        if size < tolerance:
            return value
        direction = -np.linalg.solve(problem.hessian(value) + min(size, 1e-2) * np.eye(value.size), gradient)
        loss, slope, rate = problem.loss(value), gradient @ direction, 1.0
        # Near the end the decrease drowns in rounding; there the full step is right and the gradient is the judge.
        while rate > 1e-10 and problem.loss(value + rate * direction) > loss + 1e-4 * rate * slope + 1e-13 * abs(loss):
            rate /= 2
        value = value + rate * direction
    raise OdiceError(
        f"Newton's method left a gradient of {size:.1e} after {steps} steps: the problem may have no minimum, "
        "as when the data enters a state that it never leaves."
    )


def _curves(name: str) -> Curves:
    if name not in CURVES:
        raise unknown_name("tabular divergence", name, CURVES)
    return CURVES[name]


def _selector(states: Vector, count: int) -> Matrix:
    """One row per entry, with a 1 in that state's column."""
    return np.eye(count)[states]


def regularized_dual(mdp: TabularMDP, data: Matrix, *, alpha: float = 1.0, divergence: str = "pearson") -> Problem:
    """The dual of max_d E_d[r] - alpha D_f(d || dD) under the Bellman flow; `data` is dD(s, a), s' is integrated
    exactly."""
    alive = ~mdp.terminal
    state, action = np.nonzero(data * alive[:, None])
    matrix = mdp.discount * mdp.onward[state, action] - _selector(state, mdp.states)
    return Problem(
        (1 - mdp.discount) * mdp.initial[alive],
        data[state, action],
        mdp.reward[state, action],
        matrix[:, alive],
        alpha,
        _curves(divergence),
    )


def sample_loss(mdp: TabularMDP, log: Log, *, lam: float, divergence: str = "pearson") -> Problem:
    """What V-DICE with the true gradient minimizes on a log: f* of each transition's own residual."""
    alive = ~mdp.terminal
    onward = _selector(log.next_state, mdp.states) * alive
    matrix = mdp.discount * onward - _selector(log.state, mdp.states)
    linear = (1 - lam) * np.bincount(log.state, log.share, mdp.states)
    reward = mdp.reward[log.state, log.action]
    return Problem(linear[alive], lam * log.share, reward, matrix[:, alive], 1.0, _curves(divergence))


class Pairs(NamedTuple):
    """The pairs (s, a) that a log has."""

    state: Vector
    action: Vector
    row: Vector
    """Of each row of the log, its pair."""


def pairs(log: Log) -> Pairs:
    """Each pair once, in the order of states, then actions."""
    unique_pairs, row = np.unique(np.stack([log.state, log.action]), axis=1, return_inverse=True)
    return Pairs(unique_pairs[0], unique_pairs[1], row.ravel())


def expected_loss(mdp: TabularMDP, log: Log, *, lam: float, divergence: str = "pearson") -> Problem:
    """The sample loss without its bias: one residual for each pair (s, a), averaged over the next states that the log
    has after it, *inside* f*."""
    problem, result = sample_loss(mdp, log, lam=lam, divergence=divergence), pairs(log)
    member = result.row[None] == np.arange(result.state.size)[:, None]
    share = member @ problem.share
    average = (member * problem.share[None]) / share[:, None]
    return problem._replace(share=share, reward=average @ problem.reward, matrix=average @ problem.matrix)


def semi_fixed_point(
    mdp: TabularMDP,
    log: Log,
    *,
    lam: float,
    divergence: str = "pearson",
    tolerance: float = 1e-11,
    averaged: bool = False,
) -> Vector:
    """S-DICE's fixed point: the V that minimizes the sample loss while V(s') stands still at V itself.

    One minimization maps the frozen V to the next; the map contracts by gamma, as a Bellman operator does. `averaged`
    takes the loss without its bias.
    """
    problem = (expected_loss if averaged else sample_loss)(mdp, log, lam=lam, divergence=divergence)
    alive = ~mdp.terminal
    here = -_selector(pairs(log).state if averaged else log.state, mdp.states)[:, alive]
    ahead = problem.matrix - here
    value = np.zeros(alive.sum())
    while True:
        frozen = problem._replace(reward=problem.reward + ahead @ value, matrix=here)
        following = minimize(frozen, start=value)
        if np.max(np.abs(following - value)) < tolerance:
            return following
        value = following


class Solution(NamedTuple):
    """A solved regularized dual and what duality makes of it."""

    value: Vector
    """V(s), 0 at terminal states."""
    visitation: Matrix
    """d(s, a) = w(s, a) dD(s, a)."""
    dual: float
    primal: float
    """E_d[r] - alpha D_f(d || dD); equal to `dual` at the solution."""

    @property
    def policy(self) -> Matrix:
        """pi(a | s) in proportion to d(s, a); uniform where d never goes."""
        mass = self.visitation.sum(axis=1, keepdims=True)
        uniform = np.full_like(self.visitation, 1 / self.visitation.shape[1])
        return np.where(mass > 0, self.visitation / np.where(mass > 0, mass, 1.0), uniform)


def primal_value(mdp: TabularMDP, d: Matrix, data: Matrix, *, alpha: float, divergence: str) -> float:
    """E_d[r] - alpha E_dD[f(d / dD)] for any d inside the support of dD."""
    inside = data > 0
    penalty = np.sum(data[inside] * _curves(divergence).f(d[inside] / data[inside]))
    return float(np.sum(d * mdp.reward) - alpha * penalty)


def solve_dual(mdp: TabularMDP, data: Matrix, *, alpha: float = 1.0, divergence: str = "pearson") -> Solution:
    """Solves the regularized dual exactly and recovers the primal solution from it."""
    data = np.where(mdp.terminal[:, None], 0.0, data)
    problem = regularized_dual(mdp, data, alpha=alpha, divergence=divergence)
    alive_value = minimize(problem)
    value = np.zeros(mdp.states)
    value[~mdp.terminal] = alive_value
    d = np.zeros_like(data)
    d[np.nonzero(data)] = problem.share * problem.curves.weight(problem.residual(alive_value))
    return Solution(value, d, problem.loss(alive_value), primal_value(mdp, d, data, alpha=alpha, divergence=divergence))


class SemiSolution(NamedTuple):
    """The fixed point of semi-gradient DICE in the alpha form, with next states averaged."""

    value: Vector
    ratio: Matrix
    """w(a|s): the mean over the data's actions is 1 in every state that has data."""
    policy: Matrix
    """w(a|s) times the data's policy."""


def solve_semi(
    mdp: TabularMDP, data: Matrix, *, alpha: float = 1.0, divergence: str = "pearson", tolerance: float = 1e-11
) -> SemiSolution:
    """V(s) minimizes  V(s) + alpha E_{a ~ D}[f*((Q(s, a) - V(s)) / alpha)]  with Q = r + gamma P V held; repeated."""
    alive = ~mdp.terminal
    data = np.where(mdp.terminal[:, None], 0.0, data)
    state, action = np.nonzero(data)
    here = -_selector(state, mdp.states)[:, alive]
    ahead = mdp.discount * mdp.onward[state, action][:, alive]
    share, reward = data[state, action], mdp.reward[state, action]
    value = np.zeros(alive.sum())
    while True:
        problem = Problem(data.sum(1)[alive], share, reward + ahead @ value, here, alpha, _curves(divergence))
        following = minimize(problem, start=value)
        if np.max(np.abs(following - value)) < tolerance:
            break
        value = following
    ratio, full = np.zeros_like(data), np.zeros(mdp.states)
    ratio[state, action], full[alive] = problem.curves.weight(problem.residual(following)), following
    behavior = data / np.where(data.sum(1, keepdims=True) > 0, data.sum(1, keepdims=True), 1.0)
    return SemiSolution(full, ratio, ratio * behavior)
