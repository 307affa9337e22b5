"""The exact solver against textbook facts, then V-DICE against the exact solver."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from odice.algos import make
from odice.core import vdice
from odice.errors import OdiceError
from odice.training.loop import initial_state, make_chunk
from odice.types import Spec, Transitions
from tests.algos.numpy_vdice import GRADIENT, OFF
from tests.oracles.tabular import (
    CURVES,
    TabularMDP,
    evaluate,
    exact_log,
    expected_loss,
    flow_residual,
    minimize,
    primal_value,
    random_mdp,
    regularized_dual,
    sample_log,
    sample_loss,
    semi_fixed_point,
    solve_dual,
    visitation,
)

STATES, ACTIONS = 8, 3


def world(seed: int, **options):
    """A random MDP and a behavior policy that tries every action."""
    rng = np.random.default_rng(seed)
    mdp = random_mdp(rng, STATES, ACTIONS, **options)
    return mdp, rng.dirichlet(np.ones(ACTIONS), size=STATES), rng


def data_distribution(mdp, policy):
    d = visitation(mdp, policy)
    return d / d.sum()


# --- the MDP itself ---


def test_evaluation_and_visitation_of_a_hand_made_chain():
    # 0 -> 1 -> end; rewards 2 then 3. V(1) = 3, V(0) = 2 + 0.5 * 3; half the discounted time in 0, a quarter in 1.
    transition = np.zeros((3, 1, 3))
    transition[0, 0, 1] = transition[1, 0, 2] = transition[2, 0, 2] = 1
    mdp = TabularMDP(transition, np.array([[2.0], [3.0], [99.0]]), np.array([1.0, 0, 0]), np.array([0, 0, 1]) == 1, 0.5)
    policy = np.ones((3, 1))
    np.testing.assert_allclose(evaluate(mdp, policy), [3.5, 3.0, 0.0])
    np.testing.assert_allclose(visitation(mdp, policy)[:, 0], [0.5, 0.25, 0.0])


@pytest.mark.parametrize("terminals", [0, 2])
def test_visitation_prices_a_policy_as_its_value_does(terminals):
    mdp, policy, _ = world(0, terminals=terminals)
    d = visitation(mdp, policy)
    np.testing.assert_allclose(np.sum(d * mdp.reward), (1 - mdp.discount) * mdp.initial @ evaluate(mdp, policy))
    np.testing.assert_allclose(flow_residual(mdp, d), 0, atol=1e-15)
    if terminals == 0:
        np.testing.assert_allclose(d.sum(), 1)


def test_log_shares():
    mdp, policy, rng = world(1)
    exact = exact_log(mdp, policy)
    np.testing.assert_allclose(exact.share.sum(), 1)
    assert not np.any(mdp.terminal[exact.state]), "nobody acts after the end"
    sampled = sample_log(mdp, policy, rng, 50_000)
    state_share = lambda log: np.bincount(log.state, log.share, STATES)
    np.testing.assert_allclose(state_share(sampled), state_share(exact), atol=0.01)


def test_random_mdp_refuses_the_impossible():
    with pytest.raises(OdiceError, match="branching of 1 to 3"):
        random_mdp(np.random.default_rng(0), 3, branching=4)


# --- the solver ---


@pytest.mark.parametrize("name", CURVES)
def test_curves_are_a_conjugate_and_its_derivatives(name):
    c, y, h = CURVES[name], np.linspace(-3.05, 3.05, 62), 1e-6
    x = np.linspace(0, 15, 15_001)
    supremum = [np.max(x * value - c.f(x)) for value in y]
    np.testing.assert_allclose(c.conjugate(y), supremum, atol=1e-5)
    np.testing.assert_allclose(c.weight(y), (c.conjugate(y + h) - c.conjugate(y - h)) / (2 * h), atol=1e-7)
    np.testing.assert_allclose(c.curvature(y), (c.weight(y + h) - c.weight(y - h)) / (2 * h), atol=1e-7)


@pytest.mark.parametrize("name", CURVES)
@pytest.mark.parametrize(("branching", "terminals"), [(1, 0), (3, 0), (3, 2)])
@pytest.mark.parametrize("alpha", [1.0, 0.05])
def test_strong_duality(name, branching, terminals, alpha):
    mdp, behavior, _ = world(2, branching=branching, terminals=terminals)
    data = data_distribution(mdp, behavior)
    solution = solve_dual(mdp, data, alpha=alpha, divergence=name)
    np.testing.assert_allclose(solution.primal, solution.dual, atol=1e-8)
    np.testing.assert_allclose(flow_residual(mdp, solution.visitation), 0, atol=1e-9)
    np.testing.assert_allclose(visitation(mdp, solution.policy), solution.visitation, atol=1e-8)


@pytest.mark.parametrize("name", CURVES)
def test_no_other_policy_beats_the_primal_solution(name):
    mdp, behavior, rng = world(3)
    data = data_distribution(mdp, behavior)
    best = solve_dual(mdp, data, alpha=0.5, divergence=name)
    price = lambda policy: primal_value(mdp, visitation(mdp, policy), data, alpha=0.5, divergence=name)
    rivals = [
        best.policy * (1 - mix) + mix * rng.dirichlet(np.ones(ACTIONS), size=STATES) for mix in (0.01, 0.1, 1.0) * 10
    ]
    assert max(map(price, rivals)) < best.primal


def test_a_weak_penalty_gives_the_optimal_policy():
    mdp, behavior, _ = world(4)
    value = np.zeros(STATES)
    for _ in range(500):  # value iteration
        value = np.where(mdp.terminal, 0, np.max(mdp.reward + mdp.discount * mdp.onward @ value, axis=1))
    solution = solve_dual(mdp, data_distribution(mdp, behavior), alpha=1e-4)
    np.testing.assert_allclose(mdp.initial @ evaluate(mdp, solution.policy), mdp.initial @ value, atol=1e-3)


def test_a_problem_without_minimum_is_refused():
    # state 1 is entered but never left: V(1) -> -inf makes the residual of 0 -> 1 ever better
    transition = np.zeros((2, 1, 2))
    transition[:, 0, 1] = 1
    mdp = TabularMDP(transition, np.ones((2, 1)), np.array([1.0, 0]), np.zeros(2, bool), 0.9)
    problem = regularized_dual(mdp, np.array([[1.0], [0.0]]), divergence="kl")
    with pytest.raises(OdiceError, match="never leaves"):
        minimize(problem, steps=50)


def test_the_sample_loss_is_the_dual_only_for_deterministic_transitions():
    """Jensen: with noise in s' the mean of f* is above f* of the mean."""
    for branching, equal in [(1, True), (3, False)]:
        mdp, behavior, _ = world(5, branching=branching, terminals=0)
        log = exact_log(mdp, behavior)
        exact = regularized_dual(mdp, data_distribution(mdp, behavior))
        sampled = sample_loss(mdp, log, lam=0.5)._replace(linear=exact.linear, share=log.share)
        gap = np.max(np.abs(minimize(exact) - minimize(sampled)))
        assert (gap < 1e-8) if equal else (gap > 0.05), (branching, gap)


def test_the_lam_that_makes_the_true_gradient_a_density_ratio():
    """Shifting V by a constant shows E_D[w] = (1 - lam) / (lam (1 - gamma)): 1 only at lam = 1 / (2 - gamma)."""
    mdp, behavior, _ = world(6, terminals=0)
    log = exact_log(mdp, behavior)
    for lam in (0.5, 0.8, 1 / (2 - mdp.discount)):
        problem = sample_loss(mdp, log, lam=lam)
        weight = problem.curves.weight(problem.residual(minimize(problem)))
        np.testing.assert_allclose(log.share @ weight, (1 - lam) / (lam * (1 - mdp.discount)), rtol=1e-8)


# --- V-DICE against the oracle ---

SETTINGS = {"value_hidden": (), "policy_hidden": (), "discount": 0.8}
"""A linear network on one-hot states: V is a table."""


def tabular_data(seed: int, size: int = 600):
    """A sampled log, as transitions and for the oracle. A terminated row names a living next state: it must not be
    read."""
    mdp, behavior, rng = world(seed, discount=0.8, terminals=2)
    log = sample_log(mdp, behavior, rng, size)
    assert np.all(np.bincount(log.state, minlength=STATES)[~mdp.terminal] > 0)
    terminated = mdp.terminal[log.next_state]
    transitions = Transitions(
        obs=jnp.eye(STATES),
        index=jnp.asarray(log.state),
        next_index=jnp.asarray(np.where(terminated, 0, log.next_state)),
        action=jnp.asarray(log.action),
        reward=jnp.asarray(mdp.reward[log.state, log.action], jnp.float32),
        terminated=jnp.asarray(terminated),
    )
    return mdp, log, transitions


def train_full_batch(name: str, transitions: Transitions, steps: int = 6000, **settings) -> np.ndarray:
    """V after many updates on the whole data set at once: nothing random is left."""
    spec = Spec(STATES, ACTIONS, discrete=True)
    algo = make(name, spec, value_lr=0.02, polyak=0.1, **SETTINGS, **settings)
    batch = transitions.batch(jnp.arange(transitions.size))
    update = lambda _, state: algo.update(state, batch, jax.random.key(0))[0]
    state = jax.jit(lambda state: jax.lax.fori_loop(0, steps, update, state))(initial_state(algo, 0))
    return np.asarray(state.value.params(transitions.obs)[0])


ORACLES = {
    "vdice-true": lambda mdp, log, **options: minimize(sample_loss(mdp, log, **options)),
    "sdice": semi_fixed_point,
}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "divergence", "lam"),
    [
        ("vdice-true", "pearson", 0.8),
        ("vdice-true", "kl", 0.7),
        ("sdice", "pearson", 0.8),
        ("sdice", "soft-chi2", 0.5),
    ],
)
def test_training_converges_to_the_exact_solution(name, divergence, lam):
    mdp, log, transitions = tabular_data(7)
    value = train_full_batch(name, transitions, divergence=divergence, lam=lam)
    exact = ORACLES[name](mdp, log, lam=lam, divergence=divergence)
    np.testing.assert_allclose(value[~mdp.terminal], exact, atol=2e-3, rtol=1e-3)


UNBIASED = {
    "vdice-true": lambda mdp, log, **options: minimize(expected_loss(mdp, log, **options)),
    "sdice": lambda mdp, log, **options: semi_fixed_point(mdp, log, averaged=True, **options),
}


@pytest.mark.slow
@pytest.mark.parametrize(("name", "divergence", "lam"), [("vdice-true", "soft-chi2", 0.5), ("sdice", "pearson", 0.8)])
def test_a_critic_removes_the_bias_of_one_next_state(name, divergence, lam):
    """Double sampling: the exact answer has the mean over next states inside f*."""
    mdp, log, transitions = tabular_data(7)
    exact = UNBIASED[name](mdp, log, lam=lam, divergence=divergence)
    options = OFF | {"gradient": GRADIENT[name], "divergence": divergence, "lam": lam}
    off, policy, both = (
        train_full_batch("auto", transitions, **{**options, "double_sampling": how})[~mdp.terminal]
        for how in ("off", "policy", "both")
    )
    assert np.max(np.abs(off - exact)) > 1
    np.testing.assert_array_equal(policy, off)
    np.testing.assert_allclose(both, exact, atol=2e-3, rtol=1e-3)


MISTAKES = {
    "no terminal mask": lambda v, v_next, reward, mask, discount: reward[None] + discount * v_next - v,
    "sign of V(s')": lambda v, v_next, reward, mask, discount: reward[None] - discount * mask[None] * v_next - v,
    "sign of r": lambda v, v_next, reward, mask, discount: -reward[None] + discount * mask[None] * v_next - v,
}


@pytest.mark.parametrize(
    ("name", "mistake"),
    [
        ("vdice-true", "no terminal mask"),
        ("vdice-true", "sign of V(s')"),
        ("sdice", "no terminal mask"),
        ("sdice", "sign of r"),
    ],
)
def test_the_comparison_would_catch_a_mistake(monkeypatch, name, mistake):
    monkeypatch.setattr(vdice, "residual", MISTAKES[mistake])
    mdp, log, transitions = tabular_data(7)
    value = train_full_batch(name, transitions, lam=0.8)
    exact = ORACLES[name](mdp, log, lam=0.8)
    assert np.max(np.abs(value[~mdp.terminal] - exact)) > 0.2


def test_the_two_oracles_differ():
    """Or else the tests above could not tell a semi-gradient from a true one."""
    mdp, log, _ = tabular_data(7)
    true, semi = (oracle(mdp, log, lam=0.8) for oracle in ORACLES.values())
    assert np.max(np.abs(true - semi)) > 1


@pytest.mark.slow
@pytest.mark.parametrize("name", ORACLES)
def test_the_sampling_loop_reaches_the_exact_solution(name):
    """The same through `run.loop`: batches drawn with replacement, so V wanders a little around the solution."""
    mdp, log, transitions = tabular_data(8)
    spec = Spec(STATES, ACTIONS, discrete=True)
    algo = make(name, spec, value_lr=0.01, polyak=0.1, lam=0.8, **SETTINGS)
    state, _ = make_chunk(algo, 2048, 3000)(initial_state(algo, 0), transitions, 0, 0)
    value = np.asarray(state.value.params(transitions.obs)[0])[~mdp.terminal]
    np.testing.assert_allclose(value, ORACLES[name](mdp, log, lam=0.8), atol=0.1)
