"""AWAC and CRR: one update against numpy on linear networks, their weights, and discrete actions."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from odice.algos.awac import AWACConfig, policy_value
from odice.errors import OdiceError
from odice.types import Spec
from tests.algos.support import (
    SPEC,
    adam,
    arrays,
    assert_best,
    close,
    flatten,
    gaussian,
    learn,
    linear,
    make_batch,
    part,
    slope,
    twin,
    warm,
)

GAMMA, TAU, LR, BETA, CLAMP, N = 0.9, 0.1, 0.02, 0.4, 2.5, 3
LINEAR = {"critic_hidden": (), "policy_hidden": (), "discount": GAMMA, "polyak": TAU, "critic_lr": LR, "policy_lr": LR}
LINEAR |= {"beta": BETA, "weight_clamp": CLAMP, "n_actions": N}
CASES = {"awac": {}, "crr": {"filter": "binary"}, "crr, exp": {"filter": "exp"}}
KEY = jax.random.key(9)


def warmed(case, spec=SPEC):
    algo, state = warm(case.split(",")[0], LINEAR | CASES[case], spec)
    return algo.update, state


def sampled(theta, s, key, count):
    """Clipped actions of a linear Gaussian, (count, batch, 2)."""
    noise = np.asarray(jax.random.normal(key, (count, len(s), 2)), np.float64)
    return np.clip(linear(theta, s, 2) + np.exp(theta[-2:]) * noise, -1, 1)


def numpy_update(case, state, batch):
    """The critics, their target and the policy."""
    s, a, r, s2, m = arrays(batch)
    policy, critic, slow = (flatten(part(state, name)) for name in ("policy", "critic", "target"))
    key_next, key_policy = jax.random.split(KEY)
    (action,) = sampled(policy, s2, key_next, 1)
    goal = r + GAMMA * m * twin(slow, s2, action).min(0)
    error = lambda theta: ((twin(theta, s, a) - goal) ** 2).mean(1).sum()
    critic = adam(critic, slope(error, critic), state.critic.opt_state, LR)
    baseline = np.mean([twin(critic, s, each).min(0) for each in sampled(policy, s, key_policy, N)], axis=0)
    advantage = twin(critic, s, a).min(0) - baseline
    weight = np.minimum(np.exp(advantage / BETA), CLAMP)
    if case == "crr":
        weight = (advantage > 0).astype(float)
    new = adam(
        policy, slope(lambda theta: -np.mean(weight * gaussian(theta, s, a)), policy), state.policy.opt_state, LR
    )
    return {"critic": critic, "target": TAU * critic + (1 - TAU) * slow, "policy": new}


@pytest.mark.parametrize("case", CASES)
def test_one_update_equals_numpy(case):
    update, state = warmed(case)
    batch = make_batch()
    after, metrics = update(state, batch, KEY)
    for name, expected in numpy_update(case, state, batch).items():
        close(part(after, name), expected)
    assert all(np.isfinite(value) for value in metrics.values())


def test_next_observation_of_a_terminal_is_never_used():
    update, state = warmed("awac")
    batch = make_batch()
    dirty = batch._replace(next_obs=jnp.where(batch.terminated[:, None], 77.0, batch.next_obs))
    np.testing.assert_allclose(flatten(update(state, dirty, KEY)[0]), flatten(update(state, batch, KEY)[0]), rtol=1e-6)


def test_values_of_choices_are_exact_sums():
    _, state = warmed("crr", Spec(3, 2, discrete=True))
    obs, policy, critic = make_batch(discrete=True).obs, state.policy.params, state.critic.params
    p = np.asarray(jax.nn.softmax(policy.logits(obs), axis=-1), np.float64)
    q = np.asarray(critic.every(obs), np.float64).min(0)
    np.testing.assert_allclose(policy_value(policy, critic, obs, 4, KEY), (p * q).sum(1), rtol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("discrete", [False, pytest.param(True, marks=pytest.mark.long)])
@pytest.mark.parametrize("name", ["awac", "crr"])
def test_it_finds_the_best_first_action(name, discrete):
    nets = {"critic_hidden": (32, 32), "policy_hidden": (32,), "critic_lr": 3e-3, "policy_lr": 3e-3, "polyak": 0.05}
    action, metrics = learn(name, steps=1000, discrete=discrete, **nets, **({"beta": 0.1} if name == "awac" else {}))
    assert all(np.isfinite(x) for x in metrics.values())
    assert_best(action, discrete)


@pytest.mark.parametrize(("settings", "message"), [({"beta": 0.0}, "beta"), ({"n_actions": 0}, "n_actions")])
def test_bad_settings_are_refused(settings, message):
    with pytest.raises(OdiceError, match=message):
        AWACConfig(**settings)
