"""Every estimator against the exact return of a small MDP, and bootstrap intervals against closed forms."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import odice
from odice.evaluation.ope.behavior import clone
from odice.evaluation.ope.dice import FORMS, DICEConfig, dice
from odice.evaluation.ope.doubly_robust import doubly_robust
from odice.evaluation.ope.episodes import make_episodes
from odice.evaluation.ope.fqe import FQE, fqe, out_of_sample
from odice.evaluation.ope.importance import behavior_return, importance
from odice.evaluation.ope.intervals import betting_interval, resample, student
from odice.evaluation.ope.one_step import one_step
from tests.evaluation.ope.support import World, exact_return, tabular, tabular_policy


@pytest.fixture(scope="module")
def world():
    return World()


@pytest.fixture(scope="module")
def log(world):
    return make_episodes(world.policy, world.data)


def everyone(log, heads=1):
    return np.ones((heads, log.n_episodes), int)


# --- the log ---------------------------------------------------------------------------------------------------------


def test_the_log_by_hand():
    policy = tabular_policy([1, 0, 1], 2)
    one = {"observations": np.eye(3, dtype=np.float32)[[0, 1, 2]], "actions": np.array([0, 1]), "rewards": [1.0, 2.0]}
    two = {
        "observations": np.eye(3, dtype=np.float32)[[2, 0, 1, 0]],
        "actions": np.array([1, 0, 1]),
        "rewards": [4.0, 8, 16],
    }
    from odice.data.build import from_episodes

    data = from_episodes(
        [{**one, "terminated": True, "truncated": False}, {**two, "terminated": False, "truncated": True}]
    )
    log = make_episodes(policy, data)
    assert log.horizon == 3
    assert log.decisions.choice.tolist() == [1, 0, 1, 1, 1, 0, 1]
    assert log.goes_on.tolist() == [1, 0, 1, 1, 0]  # a terminal, and the horizon
    assert log.complete.tolist() == [True, True]
    assert log.to_go(0.5).tolist() == [2.0, 2.0, 12.0, 16.0, 16.0]
    assert np.allclose(log.states[:, -1], [-1, -1 / 3, 1 / 3, -1, -1 / 3, 1 / 3, 1])
    longer = make_episodes(
        policy,
        from_episodes(
            [{**one, "terminated": True, "truncated": False}] * 2 + [{**two, "terminated": False, "truncated": True}]
        ),
        5,
    )
    assert longer.complete.tolist() == [True, True, False]
    assert longer.goes_on[-1] == 1  # cut before the horizon: the world goes on
    assert longer.observed.sum(1).tolist() == [5, 5, 3]


# --- sums over episodes ----------------------------------------------------------------------------------------------


def test_the_behaviors_return(world, log):
    estimate = behavior_return(log, world.discount, resample(log.n_episodes, 1000, np.random.default_rng(0)))
    returns = np.add.reduceat(world.data.rewards * world.discount**log.time, world.data.starts)
    assert estimate.value == pytest.approx(returns.mean(), rel=1e-6)
    error = returns.std() / np.sqrt(log.n_episodes)
    assert estimate.replicates.std() == pytest.approx(error, rel=0.1)
    assert abs(estimate.value - world.of_behavior[0]) < 4 * error
    assert estimate.effective == pytest.approx(log.n_episodes)


def test_importance_sampling_with_exact_weights():
    world = World(horizon=4, episodes=4000)
    log = make_episodes(world.policy, world.data)
    counts = resample(log.n_episodes, 500, np.random.default_rng(0))
    for discount, truth, wrong in zip((world.discount, 1.0), world.truth, world.of_behavior, strict=True):
        estimate = importance(log, world.log_ratio(), discount, counts)
        assert abs(estimate.value - truth) < 3 * estimate.replicates.std()
        assert abs(wrong - truth) > 5 * estimate.replicates.std()  # the test would notice weights of 1
        assert estimate.effective < log.n_episodes / 2


def test_one_step_with_exact_weights_is_the_slope_of_the_return():
    """A numerical derivative of the exact return, in a share of the steps that follow the policy."""
    world = World(horizon=4, episodes=20_000)
    log = make_episodes(world.policy, world.data)
    pi, b = np.eye(world.mdp.actions)[world.choice], world.behavior
    mixed = lambda share: exact_return(world.mdp, share * pi + (1 - share) * b, world.horizon, world.discount)
    slope = (mixed(1e-5) - mixed(0.0)) / 1e-5
    estimate = one_step(log, world.log_ratio(), world.discount)
    assert abs(estimate.value - slope) < 3 * estimate.error
    assert abs(slope) > 6 * estimate.error
    nothing = one_step(log, np.zeros(log.steps), world.discount)
    assert nothing.value == pytest.approx(0)
    assert nothing.effective > 0.8 * log.n_episodes


def test_an_episode_that_was_cut_leaves_the_sums():
    """With weights of 1, a reward of 1 per step and no terminal the return is the horizon, however many are cut."""
    from odice.data.build import from_episodes

    one = lambda n: {
        "observations": np.zeros((n + 1, 2)),
        "actions": np.zeros(n, int),
        "rewards": np.ones(n),
        "truncated": True,
    }
    data = from_episodes([one(6), one(6), one(2), one(3)])
    log = make_episodes(tabular_policy([0, 0], 2), data, 6)
    assert behavior_return(log, 1.0, everyone(log)).value == pytest.approx(6.0)


def test_doubly_robust_is_right_if_either_part_is():
    world = World(horizon=4, episodes=4000)
    log = make_episodes(world.policy, world.data)
    right, wrong = world.log_ratio(), np.zeros(log.steps)
    counts = resample(log.n_episodes, 300, np.random.default_rng(0))
    q, v = exact_tables(world)
    states = world.data.observations.argmax(1)
    steps = states[log.index]
    clock = np.rint((log.states[:, -1] + 1) / 2 * log.horizon).astype(int)
    value = lambda scale: FQE(
        np.zeros(1), scale * q[0][log.time, steps, log.action][None], scale * v[0][clock, states][None], 1, 1.0
    )
    for learned, ratio in ((value(1.0), wrong), (value(0.5), right), (value(0.0), right)):
        estimate = doubly_robust(log, learned, everyone(log), ratio, world.discount, counts)
        assert abs(estimate.value - world.truth[0]) < 3 * estimate.replicates.std() + 1e-3
    off = doubly_robust(log, value(0.5), everyone(log), wrong, world.discount, counts)
    assert abs(off.value - world.truth[0]) > 5 * off.replicates.std()


def test_out_of_sample_means_heads_that_did_not_see_the_episode():
    values = np.array([[1.0, 1, 1], [2, 2, 2], [6, 6, 6]])
    heads = np.array([[0, 2], [1, 0], [0, 1]])  # episode 0 is unseen by heads 0 and 2, episode 1 by head 1
    assert out_of_sample(values, heads, np.array([0, 0, 1])).tolist() == [3.5, 3.5, 2.0]
    assert out_of_sample(values, np.ones((3, 2)), np.array([0, 0, 1])).tolist() == [3.0, 3.0, 3.0]


def exact_tables(world):
    """Q and V of the policy at each time, for both discounts; V has one row more, for the end."""
    mdp, pi = world.mdp, np.eye(world.mdp.actions)[world.choice]
    q, v = [], []
    for gamma in (world.discount, 1.0):
        values, tables = [np.zeros(mdp.states)], []
        for _ in range(world.horizon):
            ahead = np.einsum("sat,t->sa", mdp.transition, np.where(mdp.terminal, 0.0, values[0]))
            tables.insert(0, mdp.reward + gamma * ahead)
            values.insert(0, np.sum(pi * tables[0], axis=1))
        q.append(np.array(tables))
        v.append(np.array(values))
    return q, v


# --- what is learned -------------------------------------------------------------------------------------------------


def test_fqe(world, log):
    estimate = fqe(log, world.discount, resample(log.n_episodes, 3, np.random.default_rng(0)))
    away = abs(world.truth[0] - world.of_behavior[0])
    assert away > 1  # so that staying at the start, the behavior, would fail
    assert abs(estimate.replicates.mean() - world.truth[0]) < 0.12 * away


def test_fqe_of_a_policy_that_gives_probabilities(world):
    """Half behavior, half policy: between the two, and neither."""
    pi = np.eye(world.mdp.actions)[world.choice]
    half = 0.5 * pi + 0.5 * world.behavior
    log = make_episodes(lambda seen: half[seen.argmax(axis=1)], world.data)
    truth = exact_return(world.mdp, half, world.horizon, world.discount)
    mean = fqe(log, world.discount, resample(log.n_episodes, 3, np.random.default_rng(0))).replicates.mean()
    gap = abs(world.truth[0] - world.of_behavior[0])
    assert abs(mean - truth) < 0.12 * gap
    assert min(abs(truth - world.truth[0]), abs(truth - world.of_behavior[0])) > 0.2 * gap


def test_fqe_reads_a_cut_as_going_on_and_a_terminal_as_the_end():
    """One state, reward 1, never an end: the log is cut after 5 of 20 steps, except for two episodes that last."""
    from odice.data.build import from_episodes

    rng = np.random.default_rng(0)
    one = lambda n, ended: {
        "observations": np.concatenate([rng.normal(size=(n, 1)), np.zeros((1, 1))]),
        "actions": rng.integers(0, 2, n),
        "rewards": np.ones(n),
        "terminated": ended,
        "truncated": not ended,
    }
    policy = tabular_policy([0], 2)
    for ended, expected in ((False, 20.0), (True, 5.0)):
        log = make_episodes(policy, from_episodes([one(5, ended) for _ in range(40)] + [one(20, False)] * 2), 20)
        log = log._replace(complete=log.terminated | (log.lengths == 20))
        mean = fqe(log, 1.0, np.ones((2, log.n_episodes), int)).replicates.mean()
        assert mean == pytest.approx(expected, rel=0.25)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["gen-dice", "gradient-dice", "dice"])
def test_dice(world, log, name):
    config = DICEConfig(hidden=(32,), updates=2500, batch_size=128)
    estimate = dice(log, world.discount, everyone(log, 2), FORMS[name], config)
    away = abs(world.truth[0] - world.of_behavior[0])
    assert away > 1
    assert abs(estimate.dual.mean() - world.truth[0]) < 0.3 * away
    assert 0.02 < estimate.effective < 0.8
    assert estimate.mass == pytest.approx(1, abs=0.3)


def test_dice_starts_at_the_behavior(world, log):
    """With a ratio of 1 the estimate is the log's own return: its steps count gamma^t, and what ended earns nothing
    more."""
    estimate = dice(log, world.discount, everyone(log, 2), FORMS["dice"], DICEConfig(hidden=(8,), updates=0))
    own = behavior_return(log, world.discount, everyone(log)).value
    assert estimate.dual == pytest.approx(own, rel=0.02, abs=0.02)
    assert estimate.effective == pytest.approx(1)
    assert estimate.mass == pytest.approx(1)


def test_the_lagrangian_of_every_form_is_its_papers(world, log):
    """GenDICE and GradientDICE maximize over f = -nu and u = lam what is minimized here; DualDICE has -nu for nu."""

    from odice.core.critics import Critic
    from odice.evaluation.ope.dice import Params, device_data, lagrangian

    gamma, c = 0.9, 0.2
    data, spec = device_data(log, gamma, everyone(log, 2), 1.0, np.random.default_rng(0))
    nets = [Critic(jax.random.key(k), spec, (8,), heads=2) for k in (0, 1)]
    params = Params(*nets, jnp.array([0.3, -0.2]))
    rows, starts = jnp.arange(0, 4096, 7), jnp.arange(100)
    here, there = data.states[data.here[rows]], data.there[rows]
    first = data.first[starts]
    call = lambda net, s, a: np.asarray(net(s, a), np.float64)
    nu = call(nets[0], here, data.action[rows]) / c**0.5
    ahead = np.asarray(data.goes_on[rows]) * call(nets[0], data.states[there], data.policy_action[there]) / c**0.5
    nu0 = call(nets[0], data.states[first], data.policy_action[first]).mean(-1) / c**0.5
    raw, r, lam = 1 + call(nets[1], here, data.action[rows]), np.asarray(data.reward[rows]), np.array([0.3, -0.2])
    mean = lambda x: x.mean(-1)
    f, f0, f_ahead, u, tau = -nu, -nu0, -ahead, lam, raw**2
    norm = lambda ratio: mean(u[:, None] * ratio) - u - u**2 / 2
    expected = {
        "dual-dice": mean((-f_ahead * gamma + f) * raw) - mean(np.abs(raw) ** 3) / 3 - c * f0,
        "gen-dice": -(c * f0 + gamma * mean(tau * f_ahead) - mean(tau * (f + f**2 / 4)) + norm(tau)),
        "gradient-dice": -(c * f0 + gamma * mean(raw * f_ahead) - mean(raw * f) - mean(f**2) / 2 + 0.1 * norm(raw)),
        "dice": c * nu0 + lam + mean(tau * (r + gamma * ahead - nu - lam[:, None])) - mean(tau**2) / 2,
    }
    for name, value in expected.items():
        result = lagrangian(params, data, rows, starts, gamma, c, FORMS[name], jax.random.key(0))
        assert np.asarray(result) == pytest.approx(value, rel=1e-4, abs=1e-4), name


def with_action_3(data):
    """The same log, in which a fourth action could have been taken."""
    return replace(data, meta=replace(data.meta, n_actions=4))


def test_the_cloned_behavior_is_calibrated(world, log):
    cloned = clone(log)
    same = np.isfinite(world.log_ratio())
    assert np.array_equal(np.isfinite(cloned.log_ratio), same)
    assert np.median(np.abs(cloned.log_ratio[same] - world.log_ratio()[same])) < 0.15
    assert cloned.calibration < 0.06
    assert cloned.agreement == pytest.approx(same.mean())
    assert not cloned.known
    assert cloned.outside == 0  # the rarest action has 13 %
    never = clone(make_episodes(lambda seen: np.full(len(seen), 3), with_action_3(world.data)))
    assert never.outside == 1


# --- intervals -------------------------------------------------------------------------------------------------------


def test_students_interval_agrees_with_scipy():
    stats = pytest.importorskip("scipy.stats")
    x = np.random.default_rng(0).gamma(2.0, size=40)
    error = x.std(ddof=1) / 40**0.5
    own = student(x.mean(), error, 39)
    other = stats.t.interval(0.95, 39, loc=x.mean(), scale=error)
    assert (own.low, own.high) == pytest.approx(other)
    assert own.lower_bound == pytest.approx(stats.t.ppf(0.05, 39, loc=x.mean(), scale=error))
    assert own.clipped(0.0, own.mean).high == own.mean


@pytest.mark.parametrize("chance", [0.02, 0.3])
def test_the_betting_interval_holds_and_shrinks(chance):
    rng = np.random.default_rng(1)
    draws = (rng.random((400, 300)) < chance).astype(float)
    values = [betting_interval(x, 0.0, 1.0) for x in draws]
    assert np.mean([one.lower_bound > chance for one in values]) <= 0.05
    assert np.mean([(one.low > chance) | (one.high < chance) for one in values]) <= 0.05
    wide = np.mean([one.high - one.low for one in values])
    normal = 2 * 1.96 * (chance * (1 - chance) / 300) ** 0.5
    assert normal < wide < 2.5 * normal + 0.02  # exact, and not much wider than it must be
    more = betting_interval((rng.random(30_000) < chance).astype(float), 0.0, 1.0)
    assert more.high - more.low < 0.25 * wide
    shifted = betting_interval(draws[0] * 6 - 2, -2.0, 4.0)
    assert shifted == pytest.approx([6 * end - 2 for end in values[0]], abs=1e-6)


def test_the_oracle_agrees_with_the_stationary_one():
    world = World()
    pi = np.eye(3)[world.choice]
    forever = world.mdp.initial @ tabular.evaluate(world.mdp, pi)
    assert exact_return(world.mdp, pi, 300, world.mdp.discount) == pytest.approx(forever, rel=1e-9)


def test_policies_of_one_log_share_the_fit_of_its_behavior(monkeypatch):
    from odice.evaluation.ope import behavior

    rng = np.random.default_rng(0)
    n = 120
    states, chosen = rng.normal(size=(n, 2)), rng.integers(0, 2, n)
    rows = {"observations": states, "actions": chosen, "rewards": chosen * 1.0, "terminated": np.ones(n, bool)}
    fits, fit = [], behavior._cross_fit
    monkeypatch.setattr(behavior, "_cross_fit", lambda *inputs: fits.append(1) or fit(*inputs))
    monkeypatch.setattr(behavior, "_LAST", {})
    data = odice.load(rows)
    ones = odice.estimate(lambda obs: np.ones(len(obs), int), data)
    odice.estimate(lambda obs: np.zeros(len(obs), int), data)
    assert len(fits) == 1
    odice.estimate(lambda obs: np.ones(len(obs), int), odice.load({**rows, "actions": 1 - chosen}))
    assert len(fits) == 2
    assert odice.estimate(lambda obs: np.ones(len(obs), int), data).to_dict() == ones.to_dict()
