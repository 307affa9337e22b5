"""A whole update of ValueDICE against numpy on linear networks, its penalties, and its invariances."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from odice.algos import make
from odice.algos.value_dice import ValueDICEConfig, orthogonal_penalty, penalty_points
from odice.core.networks import MLP
from odice.core.qdice import draw_both
from odice.errors import OdiceError
from odice.types import Spec
from tests.algos.support import adam, arrays, close, flatten, make_batch, same, slope, warm
from tests.algos.test_inverse import noise, squashed

GAMMA, LR, PENALTY, APART = 0.9, 0.05, 3.0, 0.2
LINEAR = {
    "critic_hidden": (),
    "policy_hidden": (),
    "discount": GAMMA,
    "critic_lr": LR,
    "policy_lr": LR,
    "gradient_penalty": PENALTY,
    "orthogonal_penalty": APART,
}
KEY = jax.random.key(7)


def numpy_update(state, batch):
    """ValueDICE's loss for nu = -Q, Q = (s, a) w without bias, whose gradient is w everywhere."""
    s, a, _, s2, m = arrays(batch)
    key_draw, _ = jax.random.split(KEY)
    here, there = (noise(k) for k in jax.random.split(key_draw))
    theta, pi = flatten(state.critic.params), flatten(state.policy.params)
    nu = lambda x, s, a: -np.concatenate([s, a], -1) @ x

    def dual(x, p):
        diff = nu(x, s, a) - GAMMA * m * nu(x, s2, squashed(p, s2, there)[0])
        start = (1 - GAMMA) * np.mean(nu(x, s, squashed(p, s, here)[0]))
        return diff.max() + np.log(np.mean(np.exp(diff - diff.max()))) - start

    def offdiagonal(p):
        weight = p[:12].reshape(3, 4)
        product = weight.T @ weight
        return np.sum((product - np.diag(np.diag(product))) ** 2)

    critic = slope(lambda x: dual(x, pi) + PENALTY * (np.linalg.norm(x) - 1) ** 2, theta)
    policy = slope(lambda p: -dual(theta, p) + APART * offdiagonal(p), pi)
    return (
        adam(theta, critic, state.critic.opt_state, LR),
        adam(pi, policy, state.policy.opt_state, LR),
        dual(theta, pi),
    )


def test_one_update_equals_numpy():
    algo, state = warm("value-dice", LINEAR)
    batch = make_batch()
    critic, policy, dual = numpy_update(state, batch)
    after, metrics = algo.update(state, batch, KEY)
    close(after.critic.params, critic)
    close(after.policy.params, policy, rtol=2e-3, atol=2e-4)
    np.testing.assert_allclose(metrics["dual"], dual, rtol=1e-3, atol=1e-5)
    assert after.step == state.step + 1


def test_rewards_and_terminal_next_observations_are_never_used():
    algo, state = warm("value-dice", LINEAR)
    batch = make_batch()
    clean, _ = algo.update(state, batch, KEY)
    garbage = jnp.where(batch.terminated[:, None], 77.0, batch.next_obs)
    same(algo.update(state, batch._replace(next_obs=garbage, reward=batch.reward + 1), KEY)[0], clean)


def test_the_penalty_is_taken_between_expert_and_policy():
    """Every point is on a line from (s, a) of its row to some (s', a'); the one of a terminated row is replaced."""
    _, state = warm("value-dice", LINEAR)
    batch = make_batch()._replace(next_obs=jnp.full((16, 3), 50.0))
    drawn = draw_both(state.policy.params, KEY, batch)
    obs, _ = penalty_points(batch, drawn, KEY)
    lengths = np.ptp((np.asarray(obs) - batch.obs) / (50.0 - np.asarray(batch.obs)), axis=1)
    assert np.sum(lengths < 1e-4) == 16 - int(batch.terminated.sum())


def test_orthogonal_penalty_by_hand():
    network = MLP(jax.random.key(0), (2, 2, 2))
    network.weights[0] = jnp.asarray([[1.0, 2.0], [3.0, 4.0]])  # W'W off the diagonal: 1*2 + 3*4 = 14, twice
    network.weights[1] = jnp.asarray([[1.0, 1.0], [-1.0, 1.0]])  # orthogonal columns
    np.testing.assert_allclose(orthogonal_penalty(network), 2 * 14**2)


def test_the_last_layer_of_the_critic_has_no_bias():
    _, state = warm("value-dice", LINEAR)
    assert state.critic.params.heads.biases == []
    assert [w.shape for w in state.critic.params.heads.weights] == [(1, 5, 1)]


@pytest.mark.fast
@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"gradient_penalty": -1.0}, "gradient_penalty must be a finite number of at least 0"),
        ({"orthogonal_penalty": float("nan")}, "orthogonal_penalty"),
        ({"discount": 1.5}, "discount"),
        ({"critic_lr": -1.0}, "critic_lr"),
    ],
)
def test_bad_settings_are_refused(settings, message):
    with pytest.raises(OdiceError, match=message):
        ValueDICEConfig(**settings)
    with pytest.raises(OdiceError, match="continuous"):
        make("value-dice", Spec(3, 4, discrete=True))
