"""IDRL: a whole update against numpy, what is removed, and rounds on a table beside the exact optimum."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from odice.algos.idrl import IDRLConfig, kept, resampled
from odice.errors import OdiceError
from tests.algos.support import (
    adam,
    arrays,
    assert_best,
    close,
    flatten,
    gaussian,
    heads,
    learn,
    make_batch,
    part,
    slope,
    twin,
    warm,
)

GAMMA, TAU, LR, ALPHA, THRESHOLD = 0.9, 0.1, 0.02, 0.7, 0.2
LINEAR = {
    "value_hidden": (),
    "critic_hidden": (),
    "policy_hidden": (),
    "discount": GAMMA,
    "alpha": ALPHA,
    "polyak": TAU,
}
LINEAR |= {"value_lr": LR, "critic_lr": LR, "policy_lr": LR, "state_lr": LR, "layer_norm": False, "cosine_steps": 0}
LINEAR |= {"gradient_penalty": 0.0, "total_steps": 6, "rounds": 2, "threshold": THRESHOLD}
KEY = jax.random.key(9)
V_OF = lambda p, x: heads(p, x, 1)[0]
relu = lambda x: np.maximum(x, 0.0)
soft = lambda x: np.where(x < 0, np.exp(np.minimum(x, 0)), 1 + x)


def begun(steps):
    algo, state = warm("idrl", LINEAR, steps=steps, initial=True)
    return algo.update, state


def numpy_ratio(judge, s, a):
    """w(s, a) from Q, V and e."""
    critic, value, flow = judge
    x = (twin(critic, s, a).min(0) - V_OF(value, s)) / ALPHA
    return soft(V_OF(flow, s)) * relu(1 + x)


def numpy_update(state, batch, key=KEY, length=LINEAR["total_steps"] // 2):
    """One update of rounds of this length; the rows of the second are those that the judge of the first keeps."""
    key_rows = jax.random.split(key, 3)[0]
    if int(state.step) >= length:
        left = numpy_ratio(map(flatten, state.judges), *arrays(batch)[:2]) > THRESHOLD
        batch = resampled(batch, jnp.asarray(left), key_rows)
    s, a, r, s2, m = arrays(batch)
    s0 = np.asarray(batch.initial_obs, np.float64)
    at = lambda name: flatten(part(state, name))
    step = lambda name, loss: adam(at(name), slope(loss, at(name)), opt(state, name), LR)
    q = twin(at("values.target"), s, a).min(0)
    conjugate = lambda x: (relu(1 + x) ** 2 - 1) / 2
    value = step("values.value", lambda p: np.mean(V_OF(p, s) + ALPHA * conjugate((q - V_OF(p, s)) / ALPHA)))
    goal = r + GAMMA * m * V_OF(value, s2)
    critic = step("values.critic", lambda p: ((goal - twin(p, s, a)) ** 2).mean(1).sum())
    slow = TAU * critic + (1 - TAU) * at("values.target")
    on_actions = relu(1 + (twin(slow, s, a).min(0) - V_OF(value, s)) / ALPHA)
    moved = lambda p: GAMMA * m * V_OF(p, s2) - V_OF(p, s)
    nu = at("visits.nu")
    flow = step("visits.flow", lambda p: np.mean((on_actions * moved(nu) - V_OF(p, s)) ** 2))
    w = soft(V_OF(flow, s)) * on_actions
    judge = {"judges": np.concatenate([slow, value, flow])} if int(state.step) + 1 == length else {}
    return judge | {
        "values.value": value,
        "values.critic": critic,
        "values.target": slow,
        "visits.flow": flow,
        "visits.nu": step("visits.nu", lambda p: (1 - GAMMA) * V_OF(p, s0).mean() + np.mean(w * moved(p))),
        "policy": step("policy", lambda p: -np.mean(np.minimum(w, 100) * gaussian(p, s, a, tanh=True))),
    }


def opt(state, name):
    """The optimizer's state of a part."""
    for each in name.split("."):
        state = getattr(state, each)
    return state.opt_state


@pytest.mark.parametrize("steps", [1, 2, 4])
def test_one_update_equals_numpy(steps):
    """In the first round, at its end, and in the second, on rows that are left."""
    update, state = begun(steps)
    batch = make_batch(initial=True)
    after, metrics = update(state, batch, KEY)
    assert metrics["round"] == (1 if steps < 3 else 2)
    for name, expected in numpy_update(state, batch).items():
        close(part(after, name), expected, rtol=2e-3, atol=2e-4)
    assert all(np.isfinite(value) for value in metrics.values())


def test_a_round_ends_with_the_networks_that_judge_the_next():
    update, state = begun(2)
    before = flatten(state.judges)
    state, _ = update(state, make_batch(initial=True), KEY)
    at_end = np.concatenate([flatten(part(state, name)) for name in ("values.target", "values.value", "visits.flow")])
    np.testing.assert_array_equal(flatten(state.judges), at_end)
    assert not np.array_equal(flatten(state.judges), before)
    later, _ = update(state, make_batch(1, initial=True), KEY)
    np.testing.assert_array_equal(flatten(later.judges), at_end)


def test_what_has_no_weight_is_removed():
    _, state = begun(3)
    cfg, batch = IDRLConfig(**LINEAR), make_batch(3, n=64)
    left = np.asarray(kept(cfg, state.judges, jnp.asarray(1), batch))
    w = numpy_ratio(map(flatten, state.judges), *arrays(batch)[:2])
    assert 0 < np.mean(w > THRESHOLD) < 1
    np.testing.assert_array_equal(left, w > THRESHOLD)
    assert np.all(kept(cfg, state.judges, jnp.asarray(0), batch))


@pytest.mark.fast
def test_a_batch_of_what_is_left():
    batch = make_batch(n=8, initial=True)
    left = jnp.asarray([True, False, True, True, False, False, False, False])
    drawn = resampled(batch, left, KEY)
    np.testing.assert_array_equal(drawn.obs[left], batch.obs[left])
    rows = {tuple(row) for row in np.asarray(batch.obs[left])}
    assert {tuple(row) for row in np.asarray(drawn.obs)} == rows
    np.testing.assert_array_equal(drawn.initial_obs, batch.initial_obs)
    nothing = resampled(batch, jnp.zeros(8, bool), KEY)
    np.testing.assert_array_equal(nothing.obs, batch.obs)


@pytest.mark.slow
@pytest.mark.parametrize("discrete", [False, pytest.param(True, marks=pytest.mark.long)])
def test_it_finds_the_best_first_action(discrete):
    nets = {"value_hidden": (32,), "critic_hidden": (32,), "policy_hidden": (32,), "alpha": 0.3, "discount": 0.8}
    nets |= {"value_lr": 3e-3, "critic_lr": 3e-3, "policy_lr": 3e-3, "state_lr": 3e-3, "polyak": 0.05}
    action, metrics = learn("idrl", steps=1600, discrete=discrete, total_steps=1600, **nets)
    assert metrics["round"] == 2
    assert 0.05 < metrics["kept"] < 0.9
    assert_best(action, discrete)


@pytest.mark.fast
@pytest.mark.parametrize(
    ("settings", "message"),
    [({"rounds": 0}, "rounds"), ({"total_steps": 1}, "total_steps"), ({"threshold": 1.0}, "threshold")],
)
def test_bad_settings_are_refused(settings, message):
    with pytest.raises(OdiceError, match=message):
        IDRLConfig(**settings)
