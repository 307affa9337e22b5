"""ReBRAC: one update against numpy on linear networks, and where its penalties act."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from odice.algos import make
from odice.algos.rebrac import ReBRACConfig, distance, td_target
from odice.errors import OdiceError
from tests.algos.support import SPEC, adam, arrays, close, flatten, linear, make_batch, part, slope, twin

GAMMA, TAU, LR, SIGMA, CLIP, NEAR, NEAR_Q = 0.9, 0.1, 0.02, 0.4, 0.5, 0.3, 0.7
LINEAR = {"critic_hidden": (), "policy_hidden": (), "discount": GAMMA, "polyak": TAU, "critic_lr": LR, "policy_lr": LR}
LINEAR |= {"target_noise": SIGMA, "noise_clip": CLIP, "policy_penalty": NEAR, "critic_penalty": NEAR_Q}
KEY = jax.random.key(9)


def batch_with_next_actions(seed=0):
    """The third row is the last of an episode that was cut: its next action is not known."""
    action = np.random.default_rng(seed + 50).uniform(-0.9, 0.9, (16, 2)).astype(np.float32)
    action[2] = np.nan
    return make_batch(seed)._replace(columns={"next_action": jnp.asarray(action)})


@pytest.fixture(scope="module")
def warmed():
    algo = make("rebrac", SPEC, **LINEAR)
    update, state = jax.jit(algo.update), algo.init(jax.random.key(1))
    for i in range(3):
        state, _ = update(state, batch_with_next_actions(10 + i), jax.random.key(i))
    return update, state


def numpy_target(state, batch):
    _, a, r, s2, m = arrays(batch)
    noise = np.clip(SIGMA * np.asarray(jax.random.normal(KEY, a.shape), np.float64), -CLIP, CLIP)
    action = np.clip(np.tanh(linear(flatten(state.policy_target), s2, 2)) + noise, -1, 1)
    logged = np.asarray(batch.columns["next_action"], np.float64)
    apart = np.array([0.0 if np.isnan(there).any() else ((here - there) ** 2).sum() for here, there in
                      zip(action, logged, strict=True)])  # fmt: skip
    return r + GAMMA * m * (twin(flatten(state.critic_target), s2, action).min(0) - NEAR_Q * apart)


def numpy_update(state, batch, due=True):
    """The critics after an update; where it is the policy's turn, the policy and the targets too."""
    s, a, *_ = arrays(batch)
    goal, critic, policy = numpy_target(state, batch), flatten(state.critic.params), flatten(state.policy.params)
    error = lambda theta: ((twin(theta, s, a) - goal) ** 2).mean(1).sum()
    critic = adam(critic, slope(error, critic), state.critic.opt_state, LR)
    if not due:
        return {"critic": critic}
    value = lambda theta: twin(critic, s, np.tanh(linear(theta, s, 2))).min(0)
    scale = np.abs(value(policy)).mean()
    loss = lambda theta: NEAR * ((np.tanh(linear(theta, s, 2)) - a) ** 2).sum(1).mean() - value(theta).mean() / scale
    new = adam(policy, slope(loss, policy), state.policy.opt_state, LR)
    mixed = lambda online, name: TAU * online + (1 - TAU) * flatten(getattr(state, name))
    targets = {"policy_target": mixed(new, "policy_target"), "critic_target": mixed(critic, "critic_target")}
    return {"critic": critic, "policy": new, **targets}


def test_one_update_equals_numpy(warmed):
    update, state = warmed
    batch = batch_with_next_actions()
    after, metrics = update(state, batch, KEY)  # the fourth update: the policy's turn
    for name, expected in numpy_update(state, batch).items():
        close(part(after, name), expected)
    assert all(np.isfinite(value) for value in metrics.values())


def test_between_policy_steps_only_the_critics_move(warmed):
    update, state = warmed
    even, _ = update(state, batch_with_next_actions(), KEY)
    odd, _ = update(even, batch_with_next_actions(1), KEY)
    for name in ("policy", "policy_target", "critic_target"):
        np.testing.assert_array_equal(flatten(part(odd, name)), flatten(part(even, name)))
    assert np.any(flatten(odd.critic.params) != flatten(even.critic.params))


def test_terminal_rows_read_neither_the_next_state_nor_the_next_action(warmed):
    update, state = warmed
    batch = batch_with_next_actions()
    ended = batch.terminated[:, None]
    dirty = batch._replace(
        next_obs=jnp.where(ended, 77.0, batch.next_obs),
        columns={"next_action": jnp.where(ended, 5.0, batch.columns["next_action"])},
    )
    np.testing.assert_allclose(flatten(update(state, dirty, KEY)[0]), flatten(update(state, batch, KEY)[0]), rtol=1e-6)


def test_without_a_penalty_the_target_is_td3s(warmed):
    _, state = warmed
    batch = batch_with_next_actions()
    free = td_target(ReBRACConfig(**(LINEAR | {"critic_penalty": 0.0})), state, batch, KEY)
    held = td_target(ReBRACConfig(**LINEAR), state, batch, KEY)
    assert np.all(np.asarray(held) <= np.asarray(free) + 1e-6)
    cut = ~np.asarray(batch.terminated)
    cut[[2]] = False
    assert np.all(np.asarray(held)[cut] < np.asarray(free)[cut])
    np.testing.assert_allclose(held[2], free[2], rtol=1e-6)  # whose next action is not known


def test_distance():
    here, there = jnp.asarray([[1.0, 2.0], [0.0, 0.0]]), jnp.asarray([[0.0, 0.0], [jnp.nan, jnp.nan]])
    np.testing.assert_allclose(distance(here, there), [5.0, 0.0])


@pytest.mark.parametrize("name", ["policy_penalty", "critic_penalty", "target_noise", "noise_clip"])
def test_bad_settings_are_refused(name):
    with pytest.raises(OdiceError, match=name):
        ReBRACConfig(**{name: -0.1})
