"""Absorbing states: what becomes of the data, and that a policy never needs to know."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import odice
from odice.core.policies import policy_network
from odice.data.preprocess import Fitted, Preprocess, fit
from odice.data.transitions import to_transitions
from odice.policy.policy import Policy
from odice.types import Spec


def log(discrete=False):
    """A terminated episode of two steps, a cut one of two with its end recorded, a terminated one of one."""
    obs = np.array([[0.0, 1.0], [2.0, 3.0], [4.0, 5.0], [6.0, 7.0], [8.0, 9.0]], np.float32)
    after = np.array([[2.0, 3.0], [50.0, 50.0], [6.0, 7.0], [10.0, 11.0], [60.0, 60.0]], np.float32)
    return odice.load(
        {
            "observations": obs,
            "next_observations": after,
            "actions": np.arange(5) % 2 if discrete else np.linspace(-0.5, 0.5, 5, dtype=np.float32)[:, None],
            "rewards": np.ones(5, np.float32),
            "terminals": np.array([False, True, False, False, True]),
            "timeouts": np.array([False, False, False, True, False]),
        }
    )


HOME = [0.0, 0.0, 1.0]


@pytest.mark.parametrize("discrete", [False, True])
def test_terminal_states_lead_into_one_that_stays(discrete):
    data = log(discrete)
    fitted = fit(Preprocess(absorbing=True, reward_scale=0.0), data, "bootstrap")
    rows = to_transitions(fitted.apply(data), "bootstrap")
    batch = rows.batch(np.arange(rows.size))
    s = [[0, 1, 0], [2, 3, 0], HOME, [4, 5, 0], [6, 7, 0], [8, 9, 0], HOME]
    s2 = [[2, 3, 0], HOME, HOME, [6, 7, 0], [10, 11, 0], HOME, HOME]
    np.testing.assert_array_equal(batch.obs, s)
    np.testing.assert_array_equal(batch.next_obs, s2)
    assert not batch.terminated.any()
    np.testing.assert_array_equal(batch.reward, np.zeros(7))
    logged = data.actions.ravel()
    np.testing.assert_array_equal(np.ravel(batch.action), [*logged[:2], 0, *logged[2:], 0])
    assert rows.initial is not None
    np.testing.assert_array_equal(batch.obs[[0, 3, 5]], rows.obs[rows.initial])


def test_observations_are_normalized_without_the_absorbing_state():
    data = log()
    fitted = fit(Preprocess(absorbing=True, normalize_obs=True), data, "bootstrap")
    raw = np.array([[0.0, 1.0], [2.0, 3.0], [4.0, 5.0], [6.0, 7.0], [8.0, 9.0]])
    expected = (raw - raw.mean(0)) / (raw.std(0) + 1e-3)
    seen = fitted.apply(data)
    np.testing.assert_allclose(seen.observations[0, :2], expected[0], rtol=1e-6)
    np.testing.assert_array_equal(seen.observations[2], HOME)
    np.testing.assert_allclose(fitted.observe(raw[3]), [*expected[3], 0.0], rtol=1e-6)
    assert seen.spec == Spec(3, 1)
    assert Fitted.from_dict(fitted.to_dict()) == fitted


def test_data_that_never_terminate_only_get_the_column():
    data = log().select([1])
    seen = fit(Preprocess(absorbing=True), data, "bootstrap").apply(data)
    np.testing.assert_array_equal(seen.observations, [[4, 5, 0], [6, 7, 0], [10, 11, 0]])


def test_the_saved_policy_takes_what_the_environment_shows(tmp_path):
    network = policy_network(jax.random.key(0), Spec(3, 2), (8, 8), tanh_mean=True)
    fitted = Fitted(obs_mean=(0.5, -1.0), obs_scale=(2.0, 0.5), absorbing=True)
    policy = Policy.from_network(network.deterministic(), fitted)
    policy = Policy.load(policy.save(tmp_path / "policy"))
    obs = np.random.default_rng(0).normal(size=(20, 2)).astype(np.float32)
    seen = np.column_stack([(obs - [0.5, -1.0]) / [2.0, 0.5], np.zeros(20)]).astype(np.float32)
    np.testing.assert_allclose(policy(obs), network.mode(jnp.asarray(seen)), atol=1e-6)
    assert policy.obs_dim == 2
