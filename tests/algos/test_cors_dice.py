"""CORSDICE: a whole update against numpy, estimates beside exact ones, the price of the cost, and a limit that is
kept."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from odice.algos import entry, make
from odice.algos.cors_dice import CORSDICEConfig
from odice.errors import OdiceError
from odice.training.loop import initial_state, make_chunk
from odice.types import Spec, Transitions
from tests.algos.support import (
    SPEC,
    adam,
    arrays,
    assert_a_limit_moves_the_policy,
    close,
    flatten,
    gaussian,
    heads,
    make_batch,
    part,
    slope,
    twin,
    warm,
)
from tests.oracles import tabular

GAMMA, TAU, LR, STATE_LR, ALPHA, LIMIT = 0.9, 0.1, 0.02, 0.03, 0.7, 0.2
LINEAR = {
    "value_hidden": (),
    "critic_hidden": (),
    "policy_hidden": (),
    "discount": GAMMA,
    "alpha": ALPHA,
    "polyak": TAU,
}
LINEAR |= {"value_lr": LR, "critic_lr": LR, "policy_lr": LR, "cost_lr": LR, "state_lr": STATE_LR, "layer_norm": False}
LINEAR |= {"cost_limit": LIMIT, "gradient_penalty": 0.3, "cosine_steps": 0}
KEY = jax.random.key(9)
COSTLY = {"initial": True, "cost": True}
V_OF = lambda p, x: heads(p, x, 1)[0]


def begun(steps=3, **more):
    algo, state = warm("cors-dice", LINEAR | more, steps=steps, **COSTLY)
    return algo.update, state


def soft_weight(x):
    return np.where(x < 0, np.exp(np.minimum(x, 0)), 1 + x)


WEIGHTS = {"ratio": soft_weight, "linear": lambda x: np.maximum(1 + x, 0)}
"""What clones, by the setting `policy_weight`."""


def soft_conjugate(x):
    w = soft_weight(x)
    return x * w - np.where(w < 1, w * np.log(w) - w + 1, (w - 1) ** 2 / 2)


def numpy_semi(state, batch, reward, weight=soft_weight):
    """V, Q, its target and the policy after one update with these rewards."""
    s, a, _, s2, m = arrays(batch)
    value, critic, target, policy = (flatten(part(state, name)) for name in ("value", "critic", "target", "policy"))
    q = twin(target, s, a).min(0)
    loss = lambda v: np.mean(V_OF(v, s) + ALPHA * soft_conjugate((q - V_OF(v, s)) / ALPHA))
    value = adam(value, slope(loss, value), state.value.opt_state, LR)
    w = np.minimum(weight((q - V_OF(value, s)) / ALPHA), 100)
    cloning = lambda p: -np.mean(w * gaussian(p, s, a, tanh=True))
    policy = adam(policy, slope(cloning, policy), state.policy.opt_state, LR)
    goal = reward + GAMMA * m * V_OF(value, s2)
    critic = adam(
        critic, slope(lambda p: ((goal - twin(p, s, a)) ** 2).mean(1).sum(), critic), state.critic.opt_state, LR
    )
    return {"value": value, "critic": critic, "target": TAU * critic + (1 - TAU) * target, "policy": policy}


def numpy_visits(visits, batch, on_actions):
    """nu and e after one update, and w(s)."""
    s, _, _, s2, m = arrays(batch)
    s0 = np.asarray(batch.initial_obs, np.float64)
    nu, flow = (flatten(part(visits, name)) for name in ("nu", "flow"))
    moved = lambda p: GAMMA * m * V_OF(p, s2) - V_OF(p, s)
    error = lambda p: np.mean((on_actions * moved(nu) - V_OF(p, s)) ** 2)
    flow = adam(flow, slope(error, flow), visits.flow.opt_state, LR)
    on_states = soft_weight(V_OF(flow, s))
    steep = lambda p: 0.3 * max(0, np.linalg.norm(p[:3]) - 5) ** 2
    dual = lambda p: (1 - GAMMA) * V_OF(p, s0).mean() + np.mean(on_states * on_actions * moved(p)) + steep(p)
    return {"nu": adam(nu, slope(dual, nu), visits.nu.opt_state, STATE_LR), "flow": flow}, on_states


def numpy_update(state, batch, weight=soft_weight):
    s, a, r, _, _ = arrays(batch)
    c = np.asarray(batch.columns["cost"], np.float64)
    log_lam = flatten(state.log_price.params)
    base = numpy_semi(state.base, batch, r - np.exp(log_lam) * c, weight)
    on_actions = soft_weight((twin(base["target"], s, a).min(0) - V_OF(base["value"], s)) / ALPHA)
    visits, on_states = numpy_visits(state.visits, batch, on_actions)
    rise = np.exp(log_lam) * (LIMIT - np.mean(on_states * on_actions * c))
    expected = {f"base.{name}": x for name, x in base.items()} | {f"visits.{name}": x for name, x in visits.items()}
    return expected | {"log_price": adam(log_lam, rise, state.log_price.opt_state, LR)}


@pytest.mark.parametrize("weight", WEIGHTS)
def test_one_update_equals_numpy(weight):
    update, state = begun(policy_weight=weight)
    steep = jax.tree.map(lambda x: 12 * x, state.visits.nu.params)  # so that the penalty on slopes counts
    nu = state.visits.nu.__class__(steep, state.visits.nu.opt_state)
    state, batch = state._replace(visits=state.visits._replace(nu=nu)), make_batch(**COSTLY)
    after, metrics = update(state, batch, KEY)
    for name, expected in numpy_update(state, batch, WEIGHTS[weight]).items():
        close(part(after, name), expected, rtol=2e-3, atol=2e-4)
    assert all(np.isfinite(value) for value in metrics.values())


def test_next_observation_of_a_terminal_is_never_used():
    update, state = begun()
    batch = make_batch(**COSTLY)
    dirty = batch._replace(next_obs=jnp.where(batch.terminated[:, None], 77.0, batch.next_obs))
    np.testing.assert_allclose(flatten(update(state, dirty, KEY)[0]), flatten(update(state, batch, KEY)[0]), rtol=1e-6)


# --- estimates on a table -------------------------------------------------------------------------------------------


def table(terminals=0, seed=0):
    """A stochastic world with costs, the visits of a random behavior, and semi-gradient DICE's exact solution."""
    rng = np.random.default_rng(seed)
    mdp = tabular.random_mdp(rng, 6, 3, terminals=terminals)
    data = tabular.visitation(mdp, rng.dirichlet(np.ones(3), size=6))
    return mdp, rng.random((6, 3)), data / data.sum(), rng


def truth(mdp, cost, policy):
    """Reward and cost per step of a policy's discounted visits."""
    d = tabular.visitation(mdp, policy)
    return np.array([np.sum(d * mdp.reward), np.sum(d * cost)])


def estimates(weight, data, mdp, cost):
    return np.array([np.sum(weight * data * x) for x in (mdp.reward, cost)])


@pytest.mark.parametrize("terminals", [0, 1])
@pytest.mark.parametrize("seed", range(3))
def test_the_ratio_of_actions_estimates_wrongly_and_the_ratio_of_visits_exactly(seed, terminals):
    mdp, cost, data, _ = table(terminals, seed)
    semi = tabular.solve_semi(mdp, data, alpha=0.3, divergence="soft-chi2")
    np.testing.assert_allclose(np.sum(semi.policy, 1)[~mdp.terminal], 1.0, atol=1e-9)
    right = truth(mdp, cost, semi.policy)
    states = tabular.visitation(mdp, semi.policy).sum(1) / np.where(data.sum(1) > 0, data.sum(1), 1.0)
    np.testing.assert_allclose(estimates(states[:, None] * semi.ratio, data, mdp, cost), right, atol=1e-9)
    assert np.max(np.abs(estimates(semi.ratio, data, mdp, cost) - right)) > 0.01


def as_transitions(mdp, cost, data, rng, rows=8192):
    """The data's distribution as rows, each pair of states as often as its share says."""
    share = (data[:, :, None] * mdp.transition).ravel()
    edges = np.cumsum(share / share.sum())
    chosen = np.minimum(np.searchsorted(edges, (np.arange(rows) + 0.5) / rows), share.size - 1)
    s, a, t = np.unravel_index(chosen, mdp.transition.shape)
    return Transitions(
        obs=jnp.eye(mdp.states),
        index=jnp.asarray(s),
        next_index=jnp.asarray(t),
        action=jnp.asarray(a, jnp.int32),
        reward=jnp.asarray(mdp.reward[s, a], jnp.float32),
        terminated=jnp.asarray(mdp.terminal[t]),
        initial=jnp.asarray(rng.choice(mdp.states, 4096, p=mdp.initial)),
        columns={"cost": jnp.asarray(cost[s, a], jnp.float32)},
    )


TABLE = {"value_hidden": (), "critic_hidden": (), "policy_hidden": (), "layer_norm": False, "gradient_penalty": 0.0}
TABLE |= {"discount": 0.9, "alpha": 0.3, "cosine_steps": 0, "policy_lr": 3e-3, "value_lr": 1e-3, "critic_lr": 1e-3}
TABLE |= {"state_lr": 1e-3, "cost_lr": 1e-3, "polyak": 0.02}


def learned(data, states, **more):
    """The metrics of the last quarter of training, and the policy, of tables in the place of networks."""
    algo = make("cors-dice", Spec(states, 3, discrete=True), **(TABLE | more))
    state, chunk = jax.jit(lambda seed: initial_state(algo, seed))(0), make_chunk(algo, 512, 2000)
    for first in range(0, 12000, 2000):
        state, metrics = chunk(state, data, 0, first)
    logits = algo.policy(state).logits(jnp.eye(states))
    return {k: float(v) for k, v in metrics.items()}, np.asarray(jax.nn.softmax(logits, -1), np.float64)


@pytest.mark.slow
def test_the_learned_estimates_are_right_where_the_uncorrected_are_wrong():
    mdp, cost, data, rng = table()
    semi = tabular.solve_semi(mdp, data, alpha=0.3, divergence="soft-chi2")
    metrics, policy = learned(as_transitions(mdp, cost, data, rng), mdp.states, cost_limit=10.0)
    right, plain = truth(mdp, cost, semi.policy), estimates(semi.ratio, data, mdp, cost)
    corrected = [metrics["reward_estimate"], metrics["cost_estimate"]]
    uncorrected = [metrics["reward_uncorrected"], metrics["cost_uncorrected"]]
    np.testing.assert_allclose(policy, semi.policy, atol=0.05)
    np.testing.assert_allclose(corrected, right, atol=0.02)
    np.testing.assert_allclose(uncorrected, plain, atol=0.02)
    assert np.max(np.abs(plain - right)) > 0.09
    assert metrics["ratio_mean"] == pytest.approx(1.0, abs=0.03)


def test_the_price_rises_while_the_cost_is_above_its_limit():
    for limit, way in ((1e-6, 1), (10.0, -1)):
        update, state = begun(cost_limit=limit, steps=0)
        after, _ = update(state, make_batch(**COSTLY), KEY)
        assert np.sign(float(after.log_price.params)) == way


def test_costs_are_read_only_where_there_is_a_limit():
    algo = make("cors-dice", SPEC, **LINEAR)
    with pytest.raises(OdiceError, match="no column 'cost'"):
        algo.update(algo.init(KEY), make_batch(initial=True), KEY)
    free, algorithm = CORSDICEConfig(), entry("cors-dice")
    assert algorithm.reads(free) == ()
    assert algorithm.reads(CORSDICEConfig(cost_limit=0.1)) == ("cost",)
    algo = make("cors-dice", SPEC, **(LINEAR | {"cost_limit": None}))
    _, metrics = jax.jit(algo.update)(algo.init(KEY), make_batch(initial=True), KEY)
    assert "cost_estimate" not in metrics
    assert np.isfinite(metrics["reward_estimate"])


SMALL = {"value_hidden": (32,), "critic_hidden": (32,), "policy_hidden": (32,), "alpha": 0.3, "discount": 0.8}
SMALL |= {"value_lr": 3e-3, "critic_lr": 3e-3, "policy_lr": 3e-3, "state_lr": 3e-3, "cost_lr": 3e-3, "polyak": 0.05}


@pytest.mark.slow
def test_a_limit_moves_the_policy():
    assert_a_limit_moves_the_policy("cors-dice", **SMALL)


@pytest.mark.fast
@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"cost_limit": 0.0}, "cost_limit"),
        ({"cost_limit": float("nan")}, "cost_limit"),
        ({"gradient_penalty": -1.0}, "gradient_penalty"),
        ({"alpha": 0.0}, "alpha must be a positive"),
        ({"divergence": "kl"}, "Valid: half-pearson, soft-chi2"),
    ],
)
def test_bad_settings_are_refused(settings, message):
    with pytest.raises(OdiceError, match=message):
        CORSDICEConfig(**settings)
