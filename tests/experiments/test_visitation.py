"""Fixed points of the gradient rules: the gradients against autodiff, the solutions against the oracles, against
training, and against what the proofs of docs/explanation/visitation.md say."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from odice.algos import make
from odice.core import divergences, gradients
from odice.experiments import visitation as v
from odice.experiments import visitation_rounds
from odice.experiments import visitation_study as study
from odice.experiments.tabular import TabularWorld, best_policy, mean_return, random_world, step_matrix, visits
from odice.training.loop import initial_state
from odice.types import Spec, Transitions
from tests.oracles import tabular as oracle

GAMMA = 0.95


@pytest.fixture(autouse=True)
def _float64():
    with jax.enable_x64(True):
        yield


def as_oracle(world: TabularWorld) -> oracle.TabularMDP:
    return oracle.TabularMDP(world.transition, world.reward, world.initial, world.terminal, world.discount)


def log(case: study.Case) -> oracle.Log:
    return oracle.exact_log(as_oracle(case.world), case.behavior)


def rows(case: study.Case) -> v.WeightedRows:
    return v.expected_rows(case.world, case.data, case.table)


@pytest.fixture(scope="module", params=list(study.WORLDS))
def case(request) -> study.Case:
    return study.make_case(request.param, 0)


# --- worlds ---


def test_visits_and_returns_are_the_oracles(case):
    mdp = as_oracle(case.world)
    counted = visits(case.world, case.behavior, case.world.initial, GAMMA)
    np.testing.assert_allclose((1 - GAMMA) * counted, oracle.visitation(mdp, case.behavior), atol=1e-14)
    value = oracle.evaluate(mdp, case.behavior)
    np.testing.assert_allclose(mean_return(case.world, case.behavior), case.world.initial @ value)


def test_best_policy_is_value_iterations(case):
    world, value = case.world, np.zeros(len(case.data))
    for _ in range(2000):
        value = np.max(world.reward + world.discount * world.onward @ value, axis=1) * ~world.terminal
    best = best_policy(world, np.ones(world.reward.shape, bool))
    np.testing.assert_allclose(mean_return(world, best), world.initial @ value, atol=1e-9)


# --- gradients ---

RULES = [v.TRUE, v.SEMI, v.orthogonal(0.7), v.orthogonal(5.0)]


def autodiff(problem: v.Problem, theta) -> np.ndarray:
    """The rule's gradient from the losses themselves, by jax, combined by training's own function."""
    r, f = problem.rows, divergences.divergence(problem.divergence).conjugate
    total = lambda here, ahead: problem.strength * jnp.sum(r.share * f(r.reward + r.ahead @ ahead - r.here @ here))
    forward, backward = jax.grad(total, (0, 1))(jnp.asarray(theta), jnp.asarray(theta))
    rule = {"none": {1.0: gradients.true, 0.0: gradients.semi}.get(problem.rule.eta)}.get(problem.rule.projection)
    combined, _ = gradients.combine(rule or gradients.orthogonal(problem.rule.eta), forward, backward)
    return np.asarray(combined) + problem.linear


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("divergence", study.DIVERGENCES)
def test_gradient_is_that_of_training(case, rule, divergence):
    rng = np.random.default_rng(0)
    features = rng.normal(size=(len(case.data), 7)) * ~case.world.terminal[:, None]
    problem = v.lam_problem(v.sampled_rows(case.world, case.data, features), 0.6, divergence, rule)
    theta = rng.normal(size=7) / 3
    np.testing.assert_allclose(v.field(problem, theta)[0], autodiff(problem, theta), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("rule", [*RULES, v.orthogonal(0.7, "sample")])
def test_jacobian_is_the_gradients_difference(case, rule):
    problem = v.lam_problem(rows(case), 0.6, "kl", rule)
    theta, h = np.random.default_rng(1).normal(size=problem.linear.size) / 3, 1e-6
    steps = h * np.eye(theta.size)
    numeric = np.stack([(v.field(problem, theta + s)[0] - v.field(problem, theta - s)[0]) / (2 * h) for s in steps], 1)
    np.testing.assert_allclose(v.field(problem, theta)[1], numeric, atol=1e-7)


def test_the_projection_per_sample_acts_on_each_row():
    case = study.make_case("grid, deterministic", 0)
    problem = v.lam_problem(rows(case), 0.6, "kl", v.orthogonal(0.7, "sample"))
    theta = np.random.default_rng(2).normal(size=problem.linear.size) / 3
    one = lambda i: problem._replace(
        rows=v.WeightedRows(*(column[i : i + 1] for column in problem.rows)),
        linear=np.zeros_like(theta),
        rule=v.orthogonal(0.7),
    )
    total = sum(v.field(one(i), theta)[0] for i in range(len(problem.rows.share))) + problem.linear
    # training's guard against a vanishing forward gradient would touch rows of tiny share, so compare loosely
    np.testing.assert_allclose(v.field(problem, theta)[0], total, atol=1e-8)


# --- where the rules come to rest ---


@pytest.mark.parametrize("divergence", study.DIVERGENCES)
def test_true_and_semi_gradient_rest_where_the_oracle_says(case, divergence):
    mdp, seen = as_oracle(case.world), case.states[~case.world.terminal] > 0
    if not seen.all():
        pytest.skip("the oracle has a value for every state")
    sampled = v.sampled_rows(case.world, case.data, case.table)
    for rule, exact in [
        (v.TRUE, oracle.minimize(oracle.sample_loss(mdp, log(case), lam=0.6, divergence=divergence))),
        (v.SEMI, oracle.semi_fixed_point(mdp, log(case), lam=0.6, divergence=divergence)),
    ]:
        solution = v.solve(v.lam_problem(sampled, 0.6, divergence, rule))
        assert solution.reached
        np.testing.assert_allclose(solution.theta, exact, atol=1e-5)


def test_optidice_is_the_regularized_optimum(case):
    solution = oracle.solve_dual(as_oracle(case.world), case.data, alpha=0.3, divergence="pearson")
    problem = v.alpha_problem(rows(case), case.world.initial @ case.table, GAMMA, 0.3, "pearson")
    d = v.mass(problem, v.solve(problem).theta, case.data.shape)
    np.testing.assert_allclose(d, solution.visitation, atol=1e-8)


@pytest.mark.parametrize("divergence", study.DIVERGENCES)
@pytest.mark.parametrize("eta", [0.2, 1.0, 5.0])
def test_orthogonal_weights_are_a_visitation_with_a_shorter_discount(case, divergence, eta):
    """Proposition 3: discount eta gamma / (1 + eta gamma rho), total weight c / (1 - eta gamma (stay - rho))."""
    lam = 0.6
    problem = v.lam_problem(rows(case), lam, divergence, v.orthogonal(eta))
    solution = v.solve(problem)
    assert solution.reached
    assert solution.least > 0, "descent is attracted"
    d = v.mass(problem, solution.theta, case.data.shape)
    policy = v.cloned(d, case.data)
    n = d.sum(1)
    inflow = step_matrix(case.world, policy).T @ n
    rho = n @ inflow / (n @ n)
    short = eta * GAMMA / (1 + eta * GAMMA * rho)
    expected = (1 - lam) / lam / (1 + eta * GAMMA * rho) * visits(case.world, policy, case.states, short)
    np.testing.assert_allclose(d, expected, atol=1e-9)
    np.testing.assert_allclose(study.implied_discount(case.world, d, case.states), short, atol=1e-5)
    stay = inflow.sum() / n.sum()
    np.testing.assert_allclose(n.sum(), (1 - lam) / lam / (1 - eta * GAMMA * (stay - rho)), rtol=1e-7)
    assert study.distance(d, visits(case.world, policy, case.states, GAMMA)) > 0.005, "and not with gamma"


@pytest.mark.parametrize("divergence", study.DIVERGENCES)
def test_at_the_matched_eta_the_rule_is_the_true_gradient_with_another_lambda(case, divergence):
    """Corollary: eta = 1 / (1 - gamma rho) and (1 - lam') / lam' = (1 - lam) / (lam eta)."""
    lam = 0.6
    eta = study.matched_eta(rows(case), lam, divergence, GAMMA)
    d, rest = study.at_rest(v.lam_problem(rows(case), lam, divergence, v.orthogonal(eta)), case)
    assert rest
    other = 1 / (1 + (1 - lam) / lam / eta)
    optimum, _ = study.at_rest(v.lam_problem(rows(case), other, divergence, v.TRUE), case)
    np.testing.assert_allclose(d, optimum, atol=1e-7)


def test_without_self_loops_the_projection_per_sample_is_the_true_gradient_in_a_table():
    world = random_world(np.random.default_rng(3), states=12, branching=1)
    ring = np.roll(np.eye(12), 1, axis=1)  # a transition into the same state goes to the next one instead
    loops = np.einsum("sas->sa", world.transition) > 0
    world = world._replace(transition=np.where(loops[:, :, None], ring[:, None], world.transition))
    behavior = np.full(world.reward.shape, 1 / 3)
    data = visits(world, behavior, world.initial, GAMMA)
    features = np.eye(12)[:, data.sum(1) > 0]
    both = [
        v.lam_problem(v.expected_rows(world, data / data.sum(), features), 0.6, "kl", rule)
        for rule in (v.TRUE, v.orthogonal(1.0, "sample"))
    ]
    np.testing.assert_allclose(v.solve(both[0]).theta, v.solve(both[1]).theta, atol=1e-7)


def test_two_stages_give_the_visitation_of_the_semi_gradients_policy(case):
    semi, _ = study.at_rest(v.lam_problem(rows(case), 0.6, "pearson", v.SEMI), case)
    d = study.two_stages(case, rows(case), 0.6, "pearson", case.table)
    expected = visits(case.world, v.cloned(semi, case.data), case.states, GAMMA)
    np.testing.assert_allclose(d, (1 - GAMMA) * expected, atol=1e-7)


def trained_value(sampled: oracle.Log, mdp: oracle.TabularMDP, **settings) -> np.ndarray:
    """V of O-DICE as it ships, trained on all data at once with one-hot states."""
    ended = mdp.terminal[sampled.next_state]
    data = Transitions(
        obs=jnp.eye(mdp.states),
        index=jnp.asarray(sampled.state),
        next_index=jnp.asarray(np.where(ended, 0, sampled.next_state)),
        action=jnp.asarray(sampled.action),
        reward=jnp.asarray(mdp.reward[sampled.state, sampled.action], jnp.float32),
        terminated=jnp.asarray(ended),
    )
    algo = make(
        "odice",
        Spec(mdp.states, mdp.actions, discrete=True),
        value_hidden=(),
        policy_hidden=(),
        value_lr=0.02,
        polyak=0.1,
        discount=mdp.discount,
        **settings,
    )
    batch = data.batch(jnp.arange(data.size))
    update = lambda _, state: algo.update(state, batch, jax.random.key(0))[0]
    state = jax.jit(lambda s: jax.lax.fori_loop(0, 6000, update, s))(initial_state(algo, 0))
    return np.asarray(state.value.params(data.obs)[0])[~mdp.terminal]


@pytest.mark.parametrize("eta", [1.0, 4.0])
def test_training_rests_where_the_solver_says(eta):
    mdp = oracle.random_mdp(np.random.default_rng(7), terminals=2, discount=0.8)
    rng = np.random.default_rng(8)
    sampled = oracle.sample_log(mdp, rng.dirichlet(np.ones(3), size=8), rng, 600)
    table = np.eye(8)[:, ~mdp.terminal]
    biased = np.concatenate([table, ~mdp.terminal[:, None]], axis=1)  # a layer without hidden units has a bias
    reward = mdp.reward[sampled.state, sampled.action]

    def exact(features) -> np.ndarray:
        here, ahead = features[sampled.state], 0.8 * features[sampled.next_state]
        data = v.WeightedRows(sampled.state, sampled.action, sampled.share, reward, here, ahead)
        solution = v.solve(v.lam_problem(data, 0.5, "soft-chi2", v.orthogonal(eta)))
        assert solution.reached
        return (features @ solution.theta)[~mdp.terminal]

    with jax.enable_x64(False):
        value = trained_value(sampled, mdp, eta=eta, divergence="soft-chi2", lam=0.5)
    np.testing.assert_allclose(value, exact(biased), atol=3e-3, rtol=1e-3)
    assert np.max(np.abs(exact(table) - exact(biased))) > 0.01, "the rule depends on how V is parametrized"


# --- measures ---


def test_measures_of_known_distributions(case):
    optimum, _ = study.at_rest(v.lam_problem(rows(case), 0.6, "kl", v.TRUE), case)
    same = study.measures(case, 7 * optimum, optimum)
    assert same["optimum"] < 1e-12
    assert same["states"] < 1e-12
    assert same["own"] < 1e-7
    np.testing.assert_allclose([same["correlation"], same["discount"]], [1, GAMMA], atol=1e-5)
    behavior = study.measures(case, case.data, optimum)
    assert abs(behavior["score"]) < 1e-9
    best = visits(case.world, best_policy(case.world, case.data > 0), case.states, GAMMA)
    np.testing.assert_allclose(study.measures(case, best, optimum)["score"], 1, atol=1e-7)


def test_distance_and_correlation():
    data = np.array([[0.25, 0.25], [0.5, 0.0]])
    assert study.distance(np.array([1.0, 0]), np.array([0, 5.0])) == 1
    assert study.distance(np.array([1.0, 1]), np.array([3.0, 1])) == 0.25
    assert study.distance(np.zeros(2), np.ones(2)) == 1
    d = data * np.array([[1.0, 2], [3, 9]])
    opposite = data * np.array([[3.0, 2], [1, 9]])
    np.testing.assert_allclose(study.correlation(d, opposite, data), -1)


def test_descent_on_large_batches_has_the_shorter_discount():
    case = study.make_case("random, deterministic", 0)
    large = study.descend(case, 1024, eta=1.0, lam=0.5, divergence="pearson", steps=4000)
    assert 0.45 < study.implied_discount(case.world, large, case.states) < 0.55


# --- rounds ---


@pytest.mark.parametrize("alpha", [0.1, 1.0])
def test_a_round_is_the_oracles_semi_gradient_and_the_visits_of_its_policy(case, alpha):
    mdp = as_oracle(case.world)
    semi = oracle.solve_semi(mdp, case.data, alpha=alpha, divergence="half-pearson")
    first, second = visitation_rounds.rounds(case, alpha, 2)
    seen = case.states > 0
    np.testing.assert_allclose(first.action, semi.ratio * case.data, atol=1e-8)
    np.testing.assert_allclose(first.policy[seen], semi.policy[seen], atol=1e-7)
    np.testing.assert_allclose((1 - GAMMA) * first.visits[seen], oracle.visitation(mdp, first.policy)[seen], atol=1e-12)
    np.testing.assert_array_equal(second.data > 0, (first.visits > 0) & (case.data > 0))
    ratio = second.data[second.data > 0] / case.data[second.data > 0]
    np.testing.assert_allclose(ratio, ratio[0])


def test_the_second_round_is_nearer_to_the_best_policy_and_no_round_loses_much():
    """Not every round earns more: the visits that it prunes to are those of a regularized policy."""
    rows = visitation_rounds.run_rounds(1)
    at = lambda number, key: np.array(
        [row[key] for row in rows if row["method"] == f"round {number}, visitation ratio"]
    )
    assert at(2, "score").mean() > at(1, "score").mean() + 0.01
    assert at(2, "correlation").mean() > at(1, "correlation").mean() + 0.02
    steps = np.diff([at(number, "score") for number in range(1, 5)], axis=0)
    assert -0.03 < steps.min() < -0.005
