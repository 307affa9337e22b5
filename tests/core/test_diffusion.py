"""Diffusion of actions: schedule and solver beside exact scores, the guidance's optimum by quadrature, what acts."""

from itertools import pairwise
from statistics import NormalDist

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from odice.algos.diffusion_dice import dual_loss, guidance_loss, score_loss
from odice.core.critics import Critic
from odice.core.diffusion import (
    DiffusionPolicy,
    Noised,
    TimeMLP,
    noised,
    predicted_noise,
    signal_and_noise,
    solve,
    solver_table,
    time_features,
)
from odice.core.learner import Learner
from odice.types import Spec

SHARES, MEANS, STD = np.array([0.3, 0.7]), np.array([[-0.6, 0.2], [0.5, -0.4]]), 0.1
SPEC = Spec(3, 2)


def beta(t):
    return 0.1 + t * 19.9


def schedule(t):
    """alpha_t and sigma_t from beta's integral by the midpoint rule, which is exact for a line."""
    grid = (np.arange(8) + 0.5) / 8 * t
    alpha = np.exp(-0.5 * beta(grid).mean() * t)
    return alpha, np.sqrt(1 - alpha**2)


def mixture_noise(x, t):
    """E[e | x] for noised draws of the mixture, by Bayes: -sigma_t times the exact score."""
    alpha, sigma = schedule(float(t))
    variance = (alpha * STD) ** 2 + sigma**2
    away = x[..., None, :] - alpha * MEANS
    log = np.log(SHARES) - 0.5 * (away**2).sum(-1) / variance
    post = np.exp(log - log.max(-1, keepdims=True))
    post /= post.sum(-1, keepdims=True)
    return sigma * (post[..., None] * away).sum(-2) / variance


def probability_flow(x, steps=4000):
    """dx/dt = -beta (x + score) / 2 from 1 to 0.001, by Heun's rule with tiny steps."""
    times = np.linspace(1.0, 1e-3, steps + 1)
    slope = lambda x, t: -0.5 * beta(t) * (x - mixture_noise(x, t) / schedule(t)[1])
    for t, after in pairwise(times):
        first = slope(x, t)
        x = x + 0.5 * (after - t) * (first + slope(x + (after - t) * first, after))
    return x


def solved(x, steps):
    """The solver's answer with exact scores in double precision, step by step as its docstring says."""
    times, table = solver_table(steps)
    before = d_before = np.zeros_like(x)
    for t, (alpha, sigma, keep, keep_before, new, old) in zip(times, table, strict=True):
        d = (x - sigma * mixture_noise(x, t)) / alpha
        x, before, d_before = keep * x + keep_before * before + new * d + old * d_before, x, d
    return x


def test_the_schedule_is_the_integral_of_beta():
    for t in (1e-3, 0.1, 0.5, 1.0):
        np.testing.assert_allclose(signal_and_noise(jnp.asarray(t)), schedule(t), rtol=2e-4)
    assert schedule(1.0)[0] < 0.01


def first_order(x, steps):
    """DDIM: what the solver would be with steps of first order alone."""
    times = np.linspace(1.0, 1e-3, steps + 1)
    for t, after in pairwise(times):
        (alpha, sigma), (alpha_2, sigma_2) = schedule(t), schedule(after)
        e = mixture_noise(x, t)
        x = alpha_2 * (x - sigma * e) / alpha + sigma_2 * e
    return x


def published(x, steps):
    """DPM-Solver++(2S) as its paper writes it, for an odd number of calls: pairs, then a step of first order."""
    times = np.linspace(1.0, 1e-3, steps + 1)
    log_ratio = lambda t: np.log(schedule(t)[0] / schedule(t)[1])
    clean = lambda x, t: (x - schedule(t)[1] * mixture_noise(x, t)) / schedule(t)[0]
    for i in range(0, steps - 1, 2):
        s, between, t = times[i : i + 3]
        h = log_ratio(t) - log_ratio(s)
        r = (log_ratio(between) - log_ratio(s)) / h
        kept = lambda after, x, s=s: schedule(after)[1] / schedule(s)[1] * x
        d = clean(x, s)
        u = kept(between, x) - schedule(between)[0] * np.expm1(-r * h) * d
        x = kept(t, x) - schedule(t)[0] * np.expm1(-h) * (d + (clean(u, between) - d) / (2 * r))
    h = log_ratio(times[-1]) - log_ratio(times[-2])
    return schedule(times[-1])[1] / schedule(times[-2])[1] * x - schedule(times[-1])[0] * np.expm1(-h) * clean(
        x, times[-2]
    )


@pytest.mark.parametrize("steps", [1, 3, 15])
def test_the_table_is_the_published_solver(steps):
    noise = np.random.default_rng(0).normal(size=(64, 2))
    np.testing.assert_allclose(solved(noise, steps), published(noise, steps), atol=1e-9)


SOLVER_ERROR = 0.005
"""Of 161 calls, on average over draws."""


@pytest.mark.slow
def test_the_solver_follows_the_probability_flow_of_a_mixture():
    noise = np.random.default_rng(0).normal(size=(64, 2))
    assert np.abs(solved(noise, 161) - probability_flow(noise, 1500)).mean() < SOLVER_ERROR


@pytest.mark.slow
def test_the_solver_is_of_second_order(monkeypatch):
    """Twice the calls divide the error by 4, and that of first order by 2; order 1.5 is between them. The modes are
    wide: with narrow ones the last steps, long ones where there is hardly any noise, hide the order of the others."""
    monkeypatch.setitem(globals(), "STD", 0.5)
    noise = np.random.default_rng(0).normal(size=(64, 2))
    exact = probability_flow(noise, 1500)
    gain = {
        solver: np.abs(solver(noise, 81) - exact).mean() / np.abs(solver(noise, 161) - exact).mean()
        for solver in (solved, first_order)
    }
    assert gain[first_order] < 2**1.5 < gain[solved]


def test_draws_are_of_the_mixture():
    """Four standard errors of the draws, and the solver's own."""
    made = solved(np.random.default_rng(1).normal(size=(4000, 2)), 161)
    near = ((made[:, None] - MEANS) ** 2).sum(-1).argmin(1)
    counts = np.bincount(near)
    np.testing.assert_allclose(counts / len(made), SHARES, atol=4 * np.sqrt(SHARES.prod() / len(made)))
    for mode, mean in enumerate(MEANS):
        error = STD / np.sqrt(counts[mode])
        np.testing.assert_allclose(made[near == mode].mean(0), mean, atol=4 * error + SOLVER_ERROR)
        np.testing.assert_allclose(made[near == mode].std(0), STD, atol=4 * error / np.sqrt(2) + SOLVER_ERROR)


@pytest.mark.parametrize("steps", [1, 2, 5, 8])
def test_a_single_action_is_solved_exactly(steps):
    """D is then the same everywhere, for which every step is exact: x_t = alpha_t a + (sigma_t / sigma_1) (z - ...)."""
    z, a = np.random.default_rng(2).normal(size=(5, 2)).astype(np.float32), np.array([[0.3, -0.8]], np.float32)
    (alpha, sigma), (alpha_1, sigma_1) = schedule(1e-3), schedule(1.0)
    made = solve(jnp.asarray(z), steps, lambda x, t, alpha, sigma: jnp.broadcast_to(jnp.asarray(a), x.shape))
    np.testing.assert_allclose(made, alpha * a + sigma / sigma_1 * (z - alpha_1 * a), atol=1e-5)


@pytest.mark.slow
def test_noised_actions_have_the_schedules_moments():
    action = jnp.tile(jnp.array([[0.5, -0.5]]), (4000, 1))
    drawn = noised(jax.random.key(0), action, 3)
    assert drawn.action.shape == (3, 4000, 2)
    np.testing.assert_array_equal(drawn.time[0], drawn.time[2])  # copies of one action share their time
    assert float(jnp.abs(drawn.noise[0] - drawn.noise[1]).max()) > 1
    alpha, sigma = signal_and_noise(drawn.time[..., None])
    np.testing.assert_allclose(drawn.action, alpha * action[None] + sigma * drawn.noise, atol=1e-6)
    assert (drawn.time.min() >= 1e-3, abs(float(drawn.time.mean()) - 0.5) < 0.02) == (True, True)


def test_time_features_tell_the_solvers_times_apart():
    features = np.asarray(time_features(jnp.asarray(solver_table(15)[0], jnp.float32)))
    gaps = np.linalg.norm(features[:, None] - features[None], axis=-1) + 9 * np.eye(15)
    assert gaps.min() > 0.5


# --- the guidance: three actions, of which the weights are known ------------------------------------------------------

ACTIONS, WEIGHTS = np.array([-0.6, -0.6, 0.1, 0.7]), np.array([0.2, 0.2, 1.0, 4.0])


def log_mean_weight(x, t):
    """log E[w | a_t = x], by Bayes over the three actions."""
    alpha, sigma = (np.asarray(part, np.float64) for part in signal_and_noise(jnp.asarray(t, jnp.float32)))
    likely = np.exp(-0.5 * ((x[..., None] - alpha[..., None] * ACTIONS) / sigma[..., None]) ** 2)
    return np.log((likely * WEIGHTS).sum(-1) / likely.sum(-1))


def quadrature(t, points=201):
    """Noised copies at the quantiles of the noise: their mean is an integral."""
    e = np.array([NormalDist().inv_cdf((i + 0.5) / points) for i in range(points)])
    time = np.full((points, len(ACTIONS)), t, np.float32)
    alpha, sigma = signal_and_noise(jnp.asarray(time))
    noise = jnp.asarray(np.broadcast_to(e[:, None], time.shape), jnp.float32)
    return Noised(
        (alpha * ACTIONS.astype(np.float32)[None] + sigma * noise)[..., None], jnp.asarray(time), noise[..., None]
    )


@pytest.mark.parametrize("t", [0.05, 0.3, 0.8])
def test_the_guidances_loss_is_least_at_the_log_of_the_mean_weight(t):
    drawn, weight = quadrature(t), jnp.asarray(WEIGHTS, jnp.float32)
    best = jnp.asarray(log_mean_weight(np.asarray(drawn.action[..., 0], np.float64), drawn.time), jnp.float32)

    def slope(center, direction):
        moved = lambda d: dual_loss(center + d * direction, weight)
        return [float(jax.grad(moved)(d)) for d in (0.0, 0.1, -0.1)]

    x = drawn.action[..., 0]
    for direction in (jnp.ones_like(x), x, jnp.sin(3 * x)):
        at, up, down = slope(best, direction)
        assert abs(at) < 2e-3
        assert up > 0 > down
        flat = jnp.full_like(best, np.log(WEIGHTS.mean()))  # the right constant is not the right function
        assert direction is x or abs(slope(flat, x)[0]) > 0.01


@pytest.mark.slow
def test_networks_learn_the_score_and_the_guidance():
    """What both networks learn from draws, beside the exact functions on a grid."""
    key, learner, spec = jax.random.key(0), Learner(3e-3, cosine_steps=3000), Spec(1, 1)
    action = jnp.tile(jnp.asarray(ACTIONS, jnp.float32)[:, None], (32, 1))
    weight, obs = jnp.tile(jnp.asarray(WEIGHTS, jnp.float32), 32), jnp.zeros((128, 1))
    begin = lambda key: learner.init(TimeMLP(key, spec, (64, 64), 1))

    def update(carry, key):
        score, guide = carry
        drawn = noised(key, action, 2)
        score = learner.step(score, jax.grad(lambda p: score_loss(p, obs, drawn))(score.params))
        guide = learner.step(guide, jax.grad(lambda p: guidance_loss(p, weight, obs, drawn)[0])(guide.params))
        return (score, guide), None

    run = jax.jit(lambda carry: jax.lax.scan(update, carry, jax.random.split(key, 3000))[0])
    score, guide = run((begin(jax.random.key(1)), begin(jax.random.key(2))))
    for t in (0.15, 0.4, 0.7):
        x = np.linspace(-1, 1, 41)
        alpha, sigma = schedule(t)
        seen, given, time = jnp.zeros((41, 1)), jnp.asarray(x, jnp.float32)[:, None], jnp.full(41, t)
        likely = np.exp(-0.5 * ((x[:, None] - alpha * ACTIONS) / sigma) ** 2)
        noise = (likely * (x[:, None] - alpha * ACTIONS)).sum(1) / likely.sum(1) / sigma
        density = likely.sum(1) / likely.sum(1).max() > 0.1  # where there are draws
        found = guide.params(seen, given, time)[:, 0] - log_mean_weight(x, np.full(41, t))
        assert np.abs(found)[density].max() < 0.35, t
        said = predicted_noise(score.params(seen, given, time), given, time)[:, 0]
        assert np.abs(said - noise)[density].max() < 0.3, t


# --- what acts --------------------------------------------------------------------------------------------------------


def policy(scale=1.5, candidates=4, heads=2, key=0) -> DiffusionPolicy:
    keys = jax.random.split(jax.random.key(key), 4)
    return DiffusionPolicy(
        TimeMLP(keys[0], SPEC, (16, 8), 2),
        TimeMLP(keys[1], SPEC, (8, 16), 1),
        Critic(keys[2], SPEC, (16, 8), heads=heads),
        jax.random.normal(keys[3], (candidates, 2)),
        scale,
        7,
    )


@pytest.mark.slow
def test_the_candidate_with_the_largest_mean_value_is_taken():
    acts, obs = policy(), jnp.asarray(np.random.default_rng(3).normal(size=(6, 3)), jnp.float32)
    made = acts.candidates(obs)
    assert made.shape == (6, 4, 2)
    for i in range(6):
        q = [float(acts.critic(obs[i : i + 1], made[i, k : k + 1]).mean()) for k in range(4)]
        np.testing.assert_allclose(acts.mode(obs)[i], made[i, int(np.argmax(q))], atol=1e-6)
    np.testing.assert_allclose(acts.mode(obs[0]), acts.mode(obs)[0], atol=1e-6)
    np.testing.assert_allclose(acts.mode(obs.reshape(2, 3, 3)), acts.mode(obs).reshape(2, 3, 2), atol=1e-6)


@pytest.mark.slow
def test_guidance_is_the_slope_of_w():
    """D with guidance is (x - sigma e) / alpha for e less k sigma grad W; the slope here by differences."""
    acts, obs, x = policy(), jnp.ones((1, 3)), jnp.array([[0.2, -0.4]])
    t = jnp.asarray(0.5)
    alpha, sigma = signal_and_noise(t)
    energy = lambda x: float(acts.guidance(obs, x, t[None])[0, 0])
    slope = [(energy(x + e[None]) - energy(x - e[None])) / 2e-2 for e in 1e-2 * np.eye(2, dtype=np.float32)]
    e = predicted_noise(acts.score(obs, x, t[None]), x, t[None]) - 1.5 * sigma * np.array([slope])
    np.testing.assert_allclose(acts.clean(obs, x, t, alpha, sigma), (x - sigma * e) / alpha, atol=5e-3)
