"""Behavior cloning against numpy, and the choice of episodes for percentage BC."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from odice.algos.bc import BCConfig, PercentBCConfig, cloning_loss
from odice.errors import OdiceError
from odice.types import Spec
from tests.algos.support import SPEC, adam, arrays, close, flatten, gaussian, learn, linear, make_batch, slope, warm

LINEAR = {"policy_hidden": (), "policy_lr": 0.05}


@pytest.mark.parametrize("policy", ["deterministic", "gaussian"])
def test_one_update_equals_numpy(policy):
    batch = make_batch()
    algo, state = warm("bc", LINEAR | {"policy": policy})
    s, a, *_ = arrays(batch)
    loss = {
        "deterministic": lambda theta: np.mean((np.tanh(linear(theta, s, 2)) - a) ** 2),
        "gaussian": lambda theta: -np.mean(gaussian(theta, s, a, tanh=True)),
    }[policy]
    theta = flatten(state.policy.params)
    np.testing.assert_allclose(cloning_loss(state.policy.params, batch), loss(theta), rtol=1e-5)
    after, metrics = algo.update(state, batch, None)
    close(after.policy.params, adam(theta, slope(loss, theta), state.policy.opt_state, 0.05))
    assert after.step == 4
    np.testing.assert_allclose(metrics["policy_loss"], loss(theta), rtol=1e-5)
    error = np.sqrt(np.mean((np.tanh(linear(theta, s, 2)) - a) ** 2))
    np.testing.assert_allclose(metrics["action_error"], error, rtol=1e-4)


def test_discrete_actions_are_cloned_by_cross_entropy():
    batch = make_batch(discrete=True)
    algo, state = warm("bc", LINEAR, Spec(3, 2, discrete=True))
    s, a, *_ = arrays(batch)
    logits = linear(flatten(state.policy.params), s, 2)
    picked = logits[np.arange(16), a.astype(int)] - np.log(np.exp(logits).sum(1))
    metrics = algo.update(state, batch, None)[1]
    np.testing.assert_allclose(metrics["policy_loss"], -picked.mean(), rtol=1e-5)
    np.testing.assert_allclose(metrics["action_error"], np.mean(logits.argmax(1) != a), rtol=1e-5)
    assert algo.act(state, batch.obs).dtype.kind == "i"


def test_cloning_finds_the_mean_of_the_data_and_nothing_else():
    action, metrics = learn("bc", steps=400, policy_hidden=(16,), policy_lr=1e-2)
    np.testing.assert_allclose(action, [0.0], atol=0.1)
    np.testing.assert_allclose(metrics["policy_loss"], 1 / 3, atol=0.03)  # the variance of uniform actions


@pytest.mark.parametrize("policy", ["deterministic", "gaussian"])
def test_the_deterministic_part_of_the_policy_is_what_acts(policy):
    algo, state = warm("bc", {"policy_hidden": (8,), "policy": policy})
    network, output = state.policy.params.deterministic()
    obs = make_batch().obs
    assert output == "tanh"
    np.testing.assert_allclose(algo.act(state, obs), jnp.tanh(network(obs)), rtol=1e-6)
    assert algo.act(state, obs[0]).shape == (SPEC.action_dim,)


def test_percentage_bc_declares_its_episodes():
    assert PercentBCConfig().top_returns == 0.1
    assert BCConfig().top_returns == 1.0
    for share in (0.0, 1.5, float("nan")):
        with pytest.raises(OdiceError, match="top_returns"):
            PercentBCConfig(top_returns=share)


def test_the_run_learns_from_the_best_episodes_only():
    """Ten episodes that always do their own number; the best of them is cloned."""
    from odice.data.build import from_steps
    from odice.training.prepare import prepare
    from odice.training.settings import resolve

    n, length = 10, 6
    rng = np.random.default_rng(0)
    level = np.repeat(np.arange(n), length)
    dataset = from_steps(
        observations=rng.normal(size=(n * length, 3)).astype(np.float32),
        actions=(level[:, None] / n * np.ones((1, 2))).astype(np.float32),
        rewards=level.astype(np.float32),
        terminated=np.zeros(n * length, bool),
        truncated=np.tile(np.arange(length) == length - 1, n),
        episode=level,
    )
    sizes = {}
    for algo in ("bc", "bc-10"):
        prepared = prepare(resolve(dataset, algo=algo, env="none", allow=("all",)))
        sizes[algo] = prepared.about.facts["episodes"]
        least = float(np.min(jax.device_get(prepared.source.action)))
        assert least == pytest.approx(0.0 if algo == "bc" else 0.9)
    assert sizes == {"bc": 10, "bc-10": 1}


@pytest.mark.fast
@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"policy_lr": float("inf")}, "policy_lr"),
        ({"policy_hidden": (0,)}, "policy_hidden"),
        ({"policy": "gausian"}, "Did you mean 'gaussian'"),
        ({"batch_size": 0}, "batch_size"),
        ({"init": "torchy"}, "Did you mean 'torch'"),
    ],
)
def test_bad_settings_are_refused(settings, message):
    with pytest.raises(OdiceError, match=message):
        BCConfig(**settings)
