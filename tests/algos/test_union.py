"""DemoDICE, LobsDICE and SMODICE: whole updates against numpy, who learns when, and what the discriminator finds.

The networks have no hidden layers. A linear network's slope is its weights, whatever the point, so V's and SMODICE's
gradient penalties do not depend on how points are mixed. Those on r do: there the mixing weights are drawn as the code
draws them.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from odice.algos import make
from odice.core.discriminator import classification_loss, grad_norm, interpolate, log_odds
from odice.core.learner import Learned
from odice.errors import OdiceError
from odice.types import Spec
from tests.algos.support import SPEC, adam, arrays, close, flatten, linear, make_batch, same, slope

LINEAR = {"discriminator_hidden": (), "value_hidden": (), "policy_hidden": ()}
GAMMA = 0.9
SHARED = {"alpha": 0.5, "discriminator_penalty": 0.3, "value_penalty": 0.2, "discount": GAMMA, **LINEAR}
SETTINGS = {
    "demo-dice": SHARED,
    "lobs-dice": SHARED,
    "smodice": {"discriminator_penalty": 0.3, "value_weight_decay": 0.0, "discount": GAMMA, "entropy": False, **LINEAR},
}


def union_batch(seed=0, discrete=False):
    return make_batch(seed, initial=True, discrete=discrete)._replace(expert=make_batch(seed + 50, discrete=discrete))


@functools.cache
def compiled(name, spec, settings):
    """Most of the time of these tests is spent on compiling, so results are cached."""
    algo = make(name, spec, **dict(settings))
    return jax.jit(algo.update), jax.jit(lambda key: algo.init(key))


def begin(name, spec=SPEC, steps=3, **settings):
    """An algorithm and a state a few updates old, at which everything has learnt."""
    phases = {"discriminator_steps": 2} if name == "smodice" else {}
    return begin_with(name, SETTINGS[name] | phases | settings, spec, steps)


def begin_with(name, settings, spec=SPEC, steps=3):
    """The same, for settings of one's own."""
    update, init = compiled(name, spec, tuple(settings.items()))
    state = init(jax.random.key(1))
    for i in range(steps):
        state, _ = update(state, union_batch(10 + i, spec.discrete), jax.random.key(i))
    return update, state


# --- the pieces in numpy --------------------------------------------------------------------------------------------


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def net(theta, x):
    """A linear network, with a bias if there is one number too many."""
    return x @ theta[: x.shape[-1]] + theta[x.shape[-1] :].sum()


def ends(batch):
    """s', and s again where the episode ended."""
    s, _, _, s2, mask = arrays(batch)
    return np.where(mask[:, None] > 0, s2, s)


LOOK = {
    "demo-dice": lambda batch: np.concatenate(arrays(batch)[:2], -1),
    "lobs-dice": lambda batch: np.concatenate([arrays(batch)[0], ends(batch)], -1),
    "smodice": lambda batch: arrays(batch)[0],
}
LOOK["rgm"] = LOOK["demo-dice"]


def held_back(c):
    return -np.log(1 / (sigmoid(c) + 1e-3) - 1 + 1e-3)


def mixed_points(key, ours, theirs):
    """Between the samples, and between rows of the union: one draw of mixing weights for both."""
    mix = np.asarray(jax.random.uniform(key, (16,)), np.float64)[:, None]
    order = np.asarray(jax.random.permutation(jax.random.fold_in(key, 1), 16))
    return np.concatenate([mix * ours + (1 - mix) * theirs, mix * theirs[order] + (1 - mix) * theirs])


def numpy_discriminator_loss(name, theta, batch, key):
    inputs = [LOOK[name](b) for b in (batch.expert, batch)]
    ours, theirs = (net(theta, x) for x in inputs)
    cross = -np.mean(np.log(sigmoid(ours))) - np.mean(np.log(1 - sigmoid(theirs)))
    weights = np.linalg.norm(theta[: inputs[0].shape[-1]])
    if name in ("smodice", "rgm"):
        return cross + 0.3 * (weights - 1) ** 2
    c = net(theta, mixed_points(key, *inputs))
    slopes = weights * (held_back(c + 1e-5) - held_back(c - 1e-5)) / 2e-5
    return cross + 0.3 * np.mean((slopes - 1) ** 2)


def numpy_residual(theta, reward, batch):
    s, _, _, s2, mask = arrays(batch)
    return reward + GAMMA * mask * net(theta, s2) - net(theta, s)


def squashed_log_prob(theta, batch):
    s, a = arrays(batch)[:2]
    mean, log_std = np.split(linear(theta, s, 4), 2, axis=-1)
    log_std, u = np.clip(log_std, -5, 2), np.arctanh(a)
    normal = -0.5 * ((u - mean) / np.exp(log_std)) ** 2 - log_std - 0.5 * np.log(2 * np.pi)
    return (normal - np.log(1 - a**2)).sum(-1)


CASES = {
    # name: (beta, V's penalty, reward from the logit)
    "demo-dice": (1.5, 0.2, held_back),
    "lobs-dice": (1.5, 0.2, held_back),
    "smodice": (1.0, 0.0, lambda c: c),
}


@pytest.mark.parametrize("name", sorted(CASES))
def test_an_update_of_value_and_policy_is_the_one_of_the_equations(name):
    beta, penalty, reward_of = CASES[name]
    update, state = begin(name)
    batch = union_batch(0)
    new, metrics = update(state, batch, jax.random.key(9))
    reward = reward_of(net(flatten(state.discriminator.params), LOOK[name](batch)))

    def value_loss(theta):
        x = numpy_residual(theta, reward, batch)
        start = (1 - GAMMA) * net(theta, np.asarray(batch.initial_obs, np.float64)).mean()
        return start + beta * np.log(np.mean(np.exp(x / beta))) + penalty * np.sum(theta[:3] ** 2)

    theta = flatten(state.value.params)
    close(new.value.params, adam(theta, slope(value_loss, theta), state.value.opt_state, 3e-4))
    np.testing.assert_allclose(metrics["value_loss"], value_loss(theta), rtol=1e-4)

    x = numpy_residual(theta, reward, batch)
    weight = np.exp(x / beta) / np.mean(np.exp(x / beta))
    both = flatten(state.actor.params)  # the weight of the entropy, which does not learn here, is the last number
    own = both[:-1]
    gradient = slope(lambda theta: -np.mean(weight * squashed_log_prob(theta, batch)), own)
    close(
        new.actor.params,
        adam(both, np.append(gradient, 0.0), state.actor.opt_state, 3e-4),
        rtol=2e-3,
        atol=2e-4,
    )
    np.testing.assert_allclose(metrics["weight_max"], weight.max(), rtol=1e-4)


@pytest.mark.parametrize("name", sorted(CASES))
def test_an_update_of_the_discriminator_is_the_one_of_the_equations(name):
    update, state = begin(name, steps=1)
    batch, key = union_batch(0), jax.random.key(9)
    new, _ = update(state, batch, key)
    theta = flatten(state.discriminator.params)
    own = jax.random.split(key)[0]
    gradient = slope(lambda theta: numpy_discriminator_loss(name, theta, batch, own), theta)
    close(new.discriminator.params, adam(theta, gradient, state.discriminator.opt_state, 3e-4))


def test_half_pearson_takes_the_weights_of_its_conjugate():
    update, state = begin("smodice", divergence="half-pearson")
    batch = union_batch(0)
    new, metrics = update(state, batch, jax.random.key(9))
    reward = net(flatten(state.discriminator.params), arrays(batch)[0])

    def value_loss(theta):
        w = np.maximum(0, 1 + numpy_residual(theta, reward, batch))
        return (1 - GAMMA) * net(theta, np.asarray(batch.initial_obs, np.float64)).mean() + np.mean((w**2 - 1) / 2)

    theta = flatten(state.value.params)
    close(new.value.params, adam(theta, slope(value_loss, theta), state.value.opt_state, 3e-4))
    np.testing.assert_allclose(
        metrics["weight_max"], np.maximum(0, 1 + numpy_residual(theta, reward, batch)).max(), rtol=1e-4
    )


# --- who learns when ------------------------------------------------------------------------------------------------


def test_smodice_learns_its_discriminator_first_and_then_keeps_it():
    update, start = begin("smodice", steps=0)
    first, _ = update(start, union_batch(0), jax.random.key(0))
    same((first.value, first.actor), (start.value, start.actor), rtol=0, atol=0)
    assert np.any(flatten(first.discriminator) != flatten(start.discriminator))
    second, _ = update(first, union_batch(1), jax.random.key(1))
    third, _ = update(second, union_batch(2), jax.random.key(2))
    same(third.discriminator, second.discriminator, rtol=0, atol=0)
    assert np.any(flatten(third.value) != flatten(second.value))
    assert np.any(flatten(third.actor.params.policy) != flatten(second.actor.params.policy))


@pytest.mark.parametrize("name", ["demo-dice", "lobs-dice"])
def test_rewards_and_terminal_observations_are_not_read(name):
    update, state = begin(name)
    batch = union_batch(0)
    ended = batch.terminated[:, None]
    other = batch._replace(reward=batch.reward + 7, next_obs=jnp.where(ended, 1e6, batch.next_obs))
    same(update(state, other, jax.random.key(0))[0], update(state, batch, jax.random.key(0))[0], rtol=0, atol=0)


def test_without_a_mask_terminal_observations_count():
    """As in the official code of DemoDICE: V's loss is then the one of rows that did not end."""
    update, state = begin("demo-dice", bootstrap_terminals=True)
    batch = union_batch(0)
    going_on = batch._replace(terminated=jnp.zeros_like(batch.terminated))
    masked, _ = begin("demo-dice")
    plain, without = (each(state, rows, jax.random.key(0))[0] for each, rows in ((update, batch), (masked, going_on)))
    same(plain.value.params, without.value.params, rtol=1e-5)


def test_networks_start_as_the_official_codes_have_it():
    _, state = begin("demo-dice", steps=0, discriminator_hidden=(400,), value_hidden=(400,))
    for network in (state.discriminator.params.heads, state.value.params.heads):
        assert len(network.biases) == 1  # none at the output
        assert not np.any(network.biases[0])
        fan_in = network.weights[1].shape[-2]
        np.testing.assert_allclose(np.std(network.weights[1]), np.sqrt(2 / fan_in), rtol=0.15)
    _, state = begin("smodice", steps=0, value_hidden=(400,))
    bound = np.sqrt(6 / (3 + 400))
    np.testing.assert_allclose(np.max(np.abs(state.value.params.heads.weights[0])), bound, rtol=0.02)
    assert np.any(state.discriminator.params.heads.biases[-1])  # torch's


@pytest.mark.slow
def test_the_entropy_is_held():
    """Its weight grows while the policy is surer than it should be, and shrinks while it is less sure."""
    for target, way in ((50.0, 1), (-50.0, -1)):
        update, state = begin("smodice", entropy=True, target_entropy=target, steps=2)
        new, metrics = update(state, union_batch(0), jax.random.key(5))
        assert abs(float(metrics["entropy"])) < 50
        assert np.sign(float(new.actor.params.log_entropy) - float(state.actor.params.log_entropy)) == way


def test_large_rewards_do_not_overflow():
    update, state = begin("smodice")
    sure = jax.tree.map(lambda leaf: 1e3 * leaf, state.discriminator.params)
    new, metrics = update(
        state._replace(discriminator=Learned(sure, state.discriminator.opt_state)), union_batch(0), jax.random.key(0)
    )
    assert all(np.isfinite(value) for value in metrics.values())
    assert np.isfinite(flatten(new.actor.params.policy)).all()


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(CASES))
def test_choices_are_learnt_too(name):
    update, state = begin(name, Spec(3, 2, discrete=True), **({"entropy": True} if name == "smodice" else {}))
    new, metrics = update(state, union_batch(0, discrete=True), jax.random.key(0))
    assert np.any(flatten(new.actor.params.policy) != flatten(state.actor.params.policy))
    assert all(np.isfinite(value) for value in metrics.values())


@pytest.mark.parametrize(
    ("name", "settings", "message"),
    [
        ("demo-dice", {"alpha": -0.1}, "alpha must be a finite number of at least 0"),
        ("demo-dice", {"smooth": 1.0}, "smooth must lie in"),
        ("smodice", {"discriminator_steps": 0}, "discriminator_steps must be at least 1"),
        ("smodice", {"discriminator_penalty": float("nan")}, "discriminator_penalty"),
        ("smodice", {"divergence": "kl"}, "Valid: half-pearson, kl-dv"),
    ],
)
def test_wrong_settings_are_one_sentence(name, settings, message):
    with pytest.raises(OdiceError, match=message):
        make(name, SPEC, **settings)


# --- the discriminator ----------------------------------------------------------------------------------------------


def test_log_odds_by_hand():
    logits = jnp.asarray([-50.0, 0.0, 50.0])
    np.testing.assert_array_equal(log_odds(logits, 0.0), logits)
    # p = 0: -log(1000 - 1 + 0.001); p = 1/2: -log(1/0.501 - 0.999); p = 1: -log(1/1.001 - 0.999)
    np.testing.assert_allclose(log_odds(logits, 1e-3), [-6.906756, 0.002995, 13.816511], rtol=0.01)


def test_classification_by_hand():
    loss = classification_loss(jnp.asarray([np.log(3.0)]), jnp.asarray([0.0, np.log(3.0)]))
    assert float(loss) == pytest.approx(np.log(4 / 3) + (np.log(2) + np.log(4)) / 2, rel=1e-5)
    assert float(classification_loss(jnp.asarray([-1e4]), jnp.asarray([-1e4]))) == pytest.approx(1e4)


def test_slopes_by_hand():
    points = (jnp.asarray([[3.0, 0.0], [0.0, 0.0]]), jnp.asarray([[4.0], [0.5]]))
    norm = grad_norm(lambda s, a: 0.5 * (jnp.sum(s * s, -1) + jnp.sum(a * a, -1)), points)
    np.testing.assert_allclose(norm, [5.0, 0.5], rtol=1e-6)
    flat = jax.grad(lambda scale: jnp.sum(grad_norm(lambda s: scale * jnp.sum(s, -1), (points[0],))))(0.0)
    assert np.isfinite(float(flat))


def test_points_between_lie_on_the_line_and_choices_are_one_of_the_two():
    a, b = (jnp.zeros((500, 2)), jnp.zeros(500, jnp.int32)), (jnp.ones((500, 2)), jnp.ones(500, jnp.int32))
    obs, choice = interpolate(jax.random.key(0), a, b)
    np.testing.assert_array_equal(obs[:, 0], obs[:, 1])
    assert float(jnp.min(obs)) < 0.05
    assert float(jnp.max(obs)) > 0.95
    np.testing.assert_array_equal(choice, obs[:, 0] >= 0.5)
