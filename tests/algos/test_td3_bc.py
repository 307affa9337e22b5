"""TD3+BC against numpy: the critics, the delayed policy and targets, the noise, and cloning as its limit."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from odice.algos import make
from odice.algos.td3_bc import TD3BCConfig, policy_loss, td_target
from odice.errors import OdiceError
from odice.types import Spec
from tests.algos.support import (
    adam,
    arrays,
    close,
    flatten,
    learn,
    linear,
    make_batch,
    same,
    slope,
    twin,
    warm,
    zero,
)

GAMMA, TAU, LR, ALPHA, SIGMA, CLIP = 0.9, 0.1, 0.05, 1.7, 0.8, 0.5
LINEAR = {"critic_hidden": (), "policy_hidden": (), "discount": GAMMA, "polyak": TAU, "critic_lr": LR, "policy_lr": LR}
LINEAR |= {"alpha": ALPHA, "target_noise": SIGMA, "noise_clip": CLIP}
KEY = jax.random.key(9)
td_target = jax.jit(td_target, static_argnums=0)


def numpy_goal(state, batch):
    _, _, r, s2, m = arrays(batch)
    noise = np.clip(SIGMA * np.asarray(jax.random.normal(KEY, (16, 2)), np.float64), -CLIP, CLIP)
    action = np.clip(np.tanh(linear(flatten(state.policy_target), s2, 2)) + noise, -1, 1)
    return r + GAMMA * m * twin(flatten(state.critic_target), s2, action).min(0)


def numpy_update(state, batch, due):
    s, a, *_ = arrays(batch)
    goal, critic = numpy_goal(state, batch), flatten(state.critic.params)
    critic = adam(
        critic, slope(lambda theta: ((twin(theta, s, a) - goal) ** 2).mean(1).sum(), critic), state.critic.opt_state, LR
    )
    policy, targets = flatten(state.policy.params), (flatten(state.policy_target), flatten(state.critic_target))
    if not due:
        return critic, policy, *targets
    act = lambda theta: np.tanh(linear(theta, s, 2))
    k = ALPHA / np.abs(twin(critic, s, act(policy))[0]).mean()
    loss = lambda theta: -k * twin(critic, s, act(theta))[0].mean() + ((act(theta) - a) ** 2).mean()
    policy = adam(policy, slope(loss, policy), state.policy.opt_state, LR)
    mixed = [TAU * new + (1 - TAU) * old for new, old in zip((policy, critic), targets, strict=True)]
    return critic, policy, *mixed


@pytest.mark.parametrize("due", [False, True])
def test_one_update_equals_numpy(due):
    """The policy and all targets move at every second update, after the critics."""
    algo, state = warm("td3-bc", LINEAR, steps=3 if due else 4)
    batch = make_batch()
    expected = numpy_update(state, batch, due)
    after, metrics = algo.update(state, batch, KEY)
    for tree, numbers in zip(
        (after.critic.params, after.policy.params, after.policy_target, after.critic_target), expected, strict=True
    ):
        close(tree, numbers)
    assert after.step == state.step + 1
    moved = flatten(after.policy.params) != flatten(state.policy.params)
    assert moved.all() if due else not moved.any()
    assert all(np.isfinite(x) and x.shape == () for x in metrics.values())


@pytest.mark.parametrize("gradient", ["orthogonal", "true"])
def test_other_gradients_of_the_critics_equal_numpy(gradient):
    algo, state = warm("td3-bc", LINEAR | {"gradient": gradient, "eta": 0.6}, steps=4)
    batch = make_batch()
    s, a, r, s2, m = arrays(batch)
    noise = np.clip(SIGMA * np.asarray(jax.random.normal(KEY, (16, 2)), np.float64), -CLIP, CLIP)
    a2 = np.clip(np.tanh(linear(flatten(state.policy_target), s2, 2)) + noise, -1, 1)
    theta, slow = flatten(state.critic.params), flatten(state.critic_target)
    loss = lambda q, q_next: ((r + GAMMA * m * q_next - q) ** 2).mean(1).sum()
    if gradient == "true":
        combined = slope(lambda x: loss(twin(x, s, a), twin(x, s2, a2)), theta)
    else:
        f = slope(lambda x: loss(twin(x, s, a), twin(slow, s2, a2).min(0)), theta)
        b = slope(lambda x: loss(twin(slow, s, a).min(0), twin(x, s2, a2)), theta)
        combined = f + 0.6 * (b - f @ b / (f @ f) * f)
    after, _ = algo.update(state, batch, KEY)
    close(after.critic.params, adam(theta, combined, state.critic.opt_state, LR))


def test_a_delay_of_three():
    algo, state = warm("td3-bc", LINEAR | {"policy_delay": 3}, steps=0)
    moves = []
    for i in range(6):
        before = state
        state, _ = algo.update(state, make_batch(i), KEY)
        moves.append(not np.array_equal(flatten(state.policy.params), flatten(before.policy.params)))
    assert moves == [False, False, True, False, False, True]


def test_gradients_stop_where_they_should():
    batch = make_batch()
    _, state = warm("td3-bc", LINEAR)
    cfg = TD3BCConfig(**LINEAR)
    # the normalizer k is a constant: scaling the critic's output leaves the policy's gradient unchanged
    gradient = jax.jit(lambda critic: jax.grad(lambda p: policy_loss(p, critic, batch, ALPHA)[0])(state.policy.params))
    doubled = jax.tree.map(lambda leaf: 2 * leaf, state.critic.params)
    same(gradient(state.critic.params), gradient(doubled), rtol=1e-4, atol=1e-6)
    # the target depends on target networks only, and not on what follows a terminal
    online = lambda networks: jnp.sum(
        td_target(cfg, state._replace(policy=networks[0], critic=networks[1]), batch, KEY)
    )
    assert zero(jax.jit(jax.grad(online))((state.policy.params, state.critic.params)))
    garbage = batch._replace(next_obs=jnp.where(batch.terminated[:, None], 77.0, batch.next_obs))
    np.testing.assert_array_equal(td_target(cfg, state, batch, KEY), td_target(cfg, state, garbage, KEY))
    np.testing.assert_allclose(td_target(cfg, state, batch, KEY), numpy_goal(state, batch), rtol=1e-4, atol=1e-5)


def test_alpha_zero_is_behaviour_cloning():
    batch = make_batch()
    algo, state = warm("td3-bc", LINEAR | {"alpha": 0.0})
    cloning, clone = warm("bc", {"policy_hidden": (), "policy_lr": LR}, steps=0)
    clone = clone._replace(policy=state.policy)
    same(algo.update(state, batch, KEY)[0].policy.params, cloning.update(clone, batch, None)[0].policy.params)
    loss, measured = jax.jit(policy_loss)(state.policy.params, state.critic.params, batch, 0.0)
    assert loss == measured.cloning_loss


@pytest.mark.slow
def test_it_finds_the_best_first_action():
    action, _ = learn(
        "td3-bc",
        steps=1000,
        critic_hidden=(32, 32),
        policy_hidden=(32,),
        critic_lr=3e-3,
        policy_lr=3e-3,
        polyak=0.05,
        alpha=20.0,
    )
    np.testing.assert_allclose(action, [0.5], atol=0.15)


@pytest.mark.fast
@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"alpha": -1.0}, "alpha"),
        ({"alpha": float("nan")}, "alpha"),
        ({"policy_delay": 0}, "policy_delay"),
        ({"noise_clip": -0.1}, "noise_clip"),
        ({"critic_lr": -1.0}, "critic_lr"),
    ],
)
def test_bad_settings_are_refused(settings, message):
    with pytest.raises(OdiceError, match=message):
        TD3BCConfig(**settings)


def test_discrete_actions_are_refused():
    with pytest.raises(OdiceError, match="needs continuous actions"):
        make("td3-bc", Spec(3, 4, discrete=True))
