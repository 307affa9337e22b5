"""Whole updates of IQ-Learn and OQ-DICE against numpy on linear networks, their identities, and what they learn."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from odice.algos import make
from odice.algos.iq_learn import IQLearnConfig
from odice.algos.oq_dice import OQDICEConfig
from odice.core import qdice
from odice.errors import OdiceError
from odice.types import Spec
from tests.algos.support import (
    SPEC,
    adam,
    arrays,
    close,
    flatten,
    heads,
    linear,
    log_slope,
    make_batch,
    same,
    slope,
    warm,
)

GAMMA, T, ALPHA, TAU, LR, LAM, ETA = 0.9, 0.3, 0.7, 0.1, 0.05, 0.55, 0.7
LINEAR = {
    "critic_hidden": (),
    "policy_hidden": (),
    "discount": GAMMA,
    "temperature": T,
    "alpha": ALPHA,
    "polyak": TAU,
    "critic_lr": LR,
    "policy_lr": LR,
}
CHOICES = Spec(3, 2, discrete=True)
KEY = jax.random.key(7)


# --- numpy ----------------------------------------------------------------------------------------------------------


def squashed(theta, s, noise):
    """Actions and log densities of a linear tanh-Gaussian whose log std is mapped to (-5, 2) by a tanh."""
    mean, out = np.split(linear(theta, s, 4), 2, axis=-1)
    log_std = -5 + 3.5 * (np.tanh(out) + 1)
    u = mean + np.exp(log_std) * noise
    normal = -0.5 * noise**2 - log_std - 0.5 * np.log(2 * np.pi)
    return np.tanh(u), normal.sum(-1) - log_slope(u)


def noise(key, n=16):
    return np.asarray(jax.random.normal(key, (1, n, 2)), np.float64)[0]


def combined(name, f, b, rest):
    """The rule of each algorithm on flat gradients."""
    return {
        "iq-learn": f + rest,
        "iq-learn-true": f + b + rest,
        "oq-dice": f + ETA * (b - f @ b / (f @ f) * f) + rest,
    }[name]


def numpy_update(name, state, batch):
    s, a, _, s2, m = arrays(batch)
    key_draw, _, key_policy = jax.random.split(KEY, 3)
    here, there = (noise(k) for k in jax.random.split(key_draw))
    theta, slow, pi = flatten(state.critic.params), flatten(state.target), flatten(state.policy.params)
    (a0, log_0), (a2, log_2) = squashed(pi, s, here), squashed(pi, s2, there)
    q = lambda x, s=s, a=a: heads(x, np.concatenate([s, a], -1), count=1)
    v, v_next = lambda x: q(x, s, a0) - T * log_0, lambda x: q(x, s2, a2) - T * log_2
    conjugate = lambda y: np.mean(y + y**2 / (4 * ALPHA))
    bar = theta if name == "iq-learn-true" else slow
    lam, scale, telescope = (LAM, 1 - LAM, 0) if name == "oq-dice" else (1, 1, 1)
    f = slope(lambda x: lam * conjugate(GAMMA * m * v_next(bar) - q(x)), theta)
    b = slope(
        lambda x: lam * conjugate(GAMMA * m * v_next(x) - q(bar)) - telescope * np.mean(GAMMA * m * v_next(x)), theta
    )
    gradient = combined(name, f, b, slope(lambda x: scale * np.mean(v(x)), theta))
    critic = adam(theta, gradient, state.critic.opt_state, LR)

    def policy_loss(x):
        action, log_pi = squashed(x, s, noise(key_policy))
        return np.mean(T * log_pi - q(critic, s, action))

    policy = adam(pi, slope(policy_loss, pi), state.policy.opt_state, LR)
    return critic, policy, TAU * critic + (1 - TAU) * slow


@pytest.mark.parametrize("name", ["iq-learn", "iq-learn-true", "oq-dice"])
def test_one_update_equals_numpy(name):
    more = {"iq-learn": {}, "iq-learn-true": {"use_target": False}, "oq-dice": {"lam": LAM, "eta": ETA}}[name]
    algo, state = warm(name.removesuffix("-true"), LINEAR | more)
    batch = make_batch()
    critic, policy, target = numpy_update(name, state, batch)
    after, metrics = algo.update(state, batch, KEY)
    close(after.critic.params, critic)
    close(after.policy.params, policy)
    close(after.target, target)
    assert after.step == state.step + 1
    assert all(np.isfinite(value) and value.shape == () for value in metrics.values())


def test_one_discrete_update_equals_numpy():
    """V = T log sum exp(Q / T) exactly, and the policy is the softmax of the new Q."""
    algo, state = warm("iq-learn", {key: LINEAR[key] for key in LINEAR if key != "policy_lr"}, CHOICES)
    batch = make_batch(discrete=True)
    s, a, _, s2, m = arrays(batch)
    every = lambda x, s: linear(x, s, 2)
    q = lambda x: every(x, s)[np.arange(16), a.astype(int)]
    v = lambda x, s: T * np.log(np.exp(every(x, s) / T).sum(-1))
    theta, slow = flatten(state.critic.params), flatten(state.target)
    y = GAMMA * m * v(slow, s2)
    loss = lambda x: np.mean(-(q(x) - y) + (q(x) - y) ** 2 / (4 * ALPHA) + v(x, s) - y)
    critic = adam(theta, slope(loss, theta), state.critic.opt_state, LR)
    after, _ = algo.update(state, batch, KEY)
    close(after.critic.params, critic)
    close(after.policy, critic / T)
    np.testing.assert_array_equal(algo.act(after, batch.obs), every(critic, s).argmax(-1))


# --- identities -----------------------------------------------------------------------------------------------------


def test_without_its_backward_gradient_oq_dice_is_iq_learn():
    """eta = 0 and lam = 1/2: half of IQ-Learn's loss, which Adam does not notice."""
    iq, _ = warm("iq-learn", LINEAR)
    oq = make("oq-dice", SPEC, **LINEAR, lam=0.5, eta=0.0)
    fresh = iq.init(jax.random.key(1))
    same(
        jax.jit(oq.update)(fresh, make_batch(), KEY)[0].critic.params,
        iq.update(fresh, make_batch(), KEY)[0].critic.params,
        atol=1e-6,
    )


@functools.cache
def stepper(**settings):
    return jax.jit(make("iq-learn", SPEC, **(LINEAR | settings)).update)


@pytest.mark.slow
def test_options_change_the_update():
    _, state = warm("iq-learn", LINEAR)
    batch = make_batch()
    plain = flatten(stepper()(state, batch, KEY)[0].critic.params)
    for settings in ({"loss": "v0"}, {"divergence": "hellinger"}, {"gradient_penalty": 10.0}):
        after, metrics = stepper(**settings)(state, batch, KEY)
        assert np.isfinite(flatten(after.critic.params)).all()
        assert not np.allclose(flatten(after.critic.params), plain, rtol=1e-3)
        assert ("gradient_penalty" in metrics) == ("gradient_penalty" in settings)


def test_rewards_and_terminal_next_observations_are_never_used():
    algo, state = warm("oq-dice", LINEAR | {"lam": LAM, "eta": ETA})
    batch = make_batch()
    clean, _ = algo.update(state, batch, KEY)
    garbage = jnp.where(batch.terminated[:, None], 77.0, batch.next_obs)
    dirty, _ = algo.update(state, batch._replace(next_obs=garbage, reward=batch.reward + 1), KEY)
    same(dirty, clean)


@pytest.mark.fast
@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"temperature": 0.0}, "temperature must be a positive number"),
        ({"alpha": float("nan")}, "alpha"),
        ({"gradient_penalty": -1.0}, "gradient_penalty"),
        ({"divergence": "hellingr"}, "Did you mean 'hellinger'"),
        ({"polyak": 2.0}, "polyak"),
    ],
)
def test_bad_settings_are_refused(settings, message):
    for config in (IQLearnConfig, OQDICEConfig):
        with pytest.raises(OdiceError, match=message):
            config(**settings)


def test_bad_settings_of_one_of_them():
    with pytest.raises(OdiceError, match="Did you mean 'value-expert'"):
        IQLearnConfig(loss="value_expert")  # pyright: ignore[reportArgumentType]
    for bad in (0.0, 1.0, float("nan")):
        with pytest.raises(OdiceError, match="lam must lie"):
            OQDICEConfig(lam=bad)
    with pytest.raises(OdiceError, match="eta must be at least 0"):
        OQDICEConfig(eta=-1.0)
    for settings in ({"twin": True}, {"gradient_penalty": 1.0}):
        with pytest.raises(OdiceError, match="continuous actions only"):
            make("iq-learn", CHOICES, **settings)


@pytest.mark.slow
def test_twin_heads_and_other_divergences_stay_finite():
    algo = make("oq-dice", SPEC, twin=True, divergence="kl-dv", critic_hidden=(8,), policy_hidden=(8,), diagnose=True)
    state, metrics = jax.jit(algo.update)(algo.init(jax.random.key(0)), make_batch(), KEY)
    assert np.isfinite(flatten(state.critic.params)).all()
    assert {"cosine", "projection", "eta_bound"} < set(metrics)
    assert qdice.recovered_reward(
        state.critic.params, state.policy.params, make_batch(), KEY, discount=0.99, temperature=0.01
    ).shape == (16,)
