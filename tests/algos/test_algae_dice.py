"""AlgaeDICE: whole updates against numpy under each gradient rule, and that it learns."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from odice.algos import make
from odice.algos.algae_dice import AlgaeDICEConfig
from odice.errors import OdiceError
from odice.types import Spec
from tests.algos.support import (
    SPEC,
    adam,
    arrays,
    close,
    flatten,
    learn,
    linear,
    log_slope,
    make_batch,
    slope,
    twin,
    warm,
)

GAMMA, LR, TAU, ALPHA, P, SHARE, ETA = 0.9, 0.02, 0.1, 0.7, 1.5, 0.3, 0.6
LINEAR = {"critic_hidden": (), "policy_hidden": (), "discount": GAMMA, "polyak": TAU, "alpha": ALPHA, "exponent": P}
LINEAR |= {"critic_lr": LR, "policy_lr": LR, "online_share": SHARE, "eta": ETA, "policy_delay": 1}
LINEAR |= {"orthogonal_penalty": 0.05, "init": "torch"}
KEY = jax.random.key(9)


def actions(theta, s, key):
    """One action of the linear tanh-Gaussian per state, drawn as the code draws it, and its log density."""
    eps = np.asarray(jax.random.normal(key, (1, 16, 2)), np.float64)[0]
    mean, raw = np.split(linear(theta, s, 4), 2, -1)
    log_std = -5 + 3.5 * (np.tanh(raw) + 1)
    u = mean + np.exp(log_std) * eps
    normal = (-0.5 * eps**2 - log_std - 0.5 * np.log(2 * np.pi)).sum(-1)
    return np.tanh(u), normal - log_slope(u)


def numpy_critic(gradient, state, batch, temperature):
    s, a, r, s2, m = arrays(batch)
    s0 = np.asarray(batch.initial_obs, np.float64)
    policy, critic, target = map(flatten, (state.policy.params, state.critic.params, state.target))
    key_first, key_there = jax.random.split(jax.random.split(KEY)[0])
    a0, _ = actions(policy, s0, key_first)
    a2, log_pi = actions(policy, s2, key_there)
    after = lambda theta: twin(theta, s2, a2) - temperature * log_pi
    bar = after(target).min(0)
    share = {"true": SHARE, "semi": 0.0, "orthogonal": 0.0}[gradient]
    h = lambda x: np.mean(np.abs(x) ** P / P)
    linear_term = lambda theta: ALPHA * (1 - GAMMA) * twin(theta, s0, a0).mean()
    seen = share * after(critic) + (1 - share) * bar
    forward = slope(lambda theta: h(r + GAMMA * m * seen - twin(theta, s, a)), critic)
    if gradient == "orthogonal":
        bar_here = twin(target, s, a).min(0)
        backward = slope(lambda theta: h(r + GAMMA * m * after(theta) - bar_here), critic)
        combined = forward + ETA * (backward - forward @ backward / (forward @ forward) * forward)
    else:
        here = twin(critic, s, a)
        mix = lambda theta: share * after(theta) + (1 - share) * bar
        combined = forward + slope(lambda theta: h(r + GAMMA * m * mix(theta) - here), critic)
    return adam(critic, combined + slope(linear_term, critic), state.critic.opt_state, LR)


def numpy_policy(gradient, state, critic, batch, temperature):
    """The policy's step with the new critics, and the entropy it saw."""
    s, a, r, s2, m = arrays(batch)
    s0 = np.asarray(batch.initial_obs, np.float64)
    policy, target = flatten(state.policy.params), flatten(state.target)
    key_first, key_there = jax.random.split(jax.random.split(KEY)[1])
    share = SHARE if gradient == "true" else 0.0

    def residual(theta):
        a2, log_pi = actions(theta, s2, key_there)
        bar = (twin(target, s2, a2) - temperature * log_pi).min(0)
        value = share * (twin(critic, s2, a2) - temperature * log_pi) + (1 - share) * bar
        return r + GAMMA * m * value - twin(critic, s, a)

    weight = np.maximum(residual(policy), 0) ** (P - 1)

    def loss(theta):
        a0, _ = actions(theta, s0, key_first)
        product = theta[:12].reshape(3, 4).T @ theta[:12].reshape(3, 4)
        off = ((product - np.diag(np.diag(product))) ** 2).sum()
        dual = (weight * residual(theta)).mean() + ALPHA * (1 - GAMMA) * twin(critic, s0, a0).mean()
        return 0.05 * off - dual

    entropy = -actions(policy, s2, key_there)[1].mean()
    return adam(policy, slope(loss, policy), state.policy.opt_state, LR), entropy


@pytest.mark.parametrize("gradient", ["true", "semi", "orthogonal"])
def test_one_update_equals_numpy(gradient):
    algo, state = warm("algae-dice", LINEAR | {"gradient": gradient}, initial=True)
    batch = make_batch(initial=True)
    temperature = float(np.exp(state.log_temperature.params))
    after, metrics = algo.update(state, batch, KEY)
    critic = numpy_critic(gradient, state, batch, temperature)
    close(after.critic.params, critic)
    close(after.target, TAU * critic + (1 - TAU) * flatten(state.target))
    policy, entropy = numpy_policy(gradient, state, critic, batch, temperature)
    close(after.policy.params, policy)
    climb = np.array([temperature * (entropy + 2)])
    before = state.log_temperature
    close(after.log_temperature.params, adam(flatten(before.params), climb, before.opt_state, LR), rtol=2e-3)
    assert all(np.isfinite(x) and x.shape == () for x in metrics.values())


def test_next_observation_of_a_terminal_does_not_reach_the_critics():
    algo, state = warm("algae-dice", LINEAR, initial=True)
    batch = make_batch(initial=True)
    garbage = batch._replace(next_obs=jnp.where(batch.terminated[:, None], 7.0, batch.next_obs))
    clean, dirty = (algo.update(state, each, KEY)[0] for each in (batch, garbage))
    np.testing.assert_array_equal(flatten(clean.critic.params), flatten(dirty.critic.params))


def test_the_policy_waits_its_turn():
    algo, state = warm("algae-dice", LINEAR | {"policy_delay": 3}, steps=0, initial=True)
    moved = []
    for i in range(6):
        before = flatten((state.policy.params, state.target))
        state, _ = algo.update(state, make_batch(i, initial=True), jax.random.key(i))
        moved.append(bool(np.any(flatten((state.policy.params, state.target)) != before)))
    assert moved == [False, False, True, False, False, True]


SMALL = {"critic_hidden": (32, 32), "policy_hidden": (32,), "critic_lr": 3e-3, "policy_lr": 3e-3, "discount": 0.8}
SMALL |= {"polyak": 0.05, "exponent": 2.0, "target_entropy": -2.0}


@pytest.mark.slow
@pytest.mark.parametrize(
    "gradient", [*(pytest.param(g, marks=pytest.mark.long) for g in ("true", "semi")), "orthogonal"]
)
def test_it_finds_the_best_first_action(gradient):
    action, metrics = learn("algae-dice", steps=3000, gradient=gradient, **SMALL)
    assert all(np.isfinite(x) for x in metrics.values())
    np.testing.assert_allclose(action, [0.5], atol=0.25)


@pytest.mark.slow
def test_it_finds_the_best_choice():
    action, _ = learn("algae-dice", steps=3000, discrete=True, **(SMALL | {"target_entropy": 0.1}))
    assert action == 3


@pytest.mark.fast
@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"exponent": 1.0}, "exponent must be above 1"),
        ({"online_share": 1.1}, "online_share"),
        ({"eta": -1.0}, "eta must be at least 0"),
        ({"gradient": "orthogonl"}, "Did you mean 'orthogonal'"),
        ({"policy_delay": 0}, "policy_delay"),
        ({"init_temperature": 0.0}, "init_temperature"),
    ],
)
def test_bad_settings_are_refused(settings, message):
    with pytest.raises(OdiceError, match=message):
        AlgaeDICEConfig(**settings)


def test_batches_without_first_states_are_refused():
    algo = make("algae-dice", SPEC, **LINEAR)
    with pytest.raises(OdiceError, match="initial states"):
        algo.update(algo.init(KEY), make_batch(), KEY)
    assert make("algae-dice", Spec(3, 4, discrete=True)).initial_states
