"""Diffusion-DICE: a whole update against numpy, what reads what, and a task with a known answer."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from odice.algos import make
from odice.algos.diffusion_dice import DiffusionDICEConfig
from odice.core.diffusion import noised
from odice.errors import OdiceError
from tests.algos.support import SPEC, adam, arrays, close, flatten, learn, make_batch, part, same, slope, warm

GAMMA, TAU, LR, DECAY, ALPHA = 0.9, 0.1, 0.02, 0.05, 0.7
TINY = {"value_hidden": (), "critic_hidden": (3,), "score_hidden": (3,), "guidance_hidden": (4,), "layer_norm": False}
TINY |= {"discount": GAMMA, "polyak": TAU, "alpha": ALPHA, "weight_decay": DECAY, "noised_copies": 2, "candidates": 3}
TINY |= {"value_lr": LR, "critic_lr": LR, "score_lr": LR, "guidance_lr": LR, "cosine_steps": 0, "critic_ensemble": 2}
KEY = jax.random.key(5)


def begun(**more):
    algo, state = warm("diffusion-dice", TINY | more)
    return algo.update, state


def perceptron(like, activate):
    """A numpy function of (flat parameters, inputs) for networks of the shape of `like`, stacked or not."""
    leaves, shape = jax.tree.flatten(like)
    cuts = np.cumsum([leaf.size for leaf in leaves])[:-1]

    def call(theta, x):
        parts = [p.reshape(leaf.shape) for p, leaf in zip(np.split(theta, cuts), leaves, strict=True)]
        net = jax.tree.unflatten(shape, parts)
        net = getattr(net, "network", getattr(net, "heads", net))
        for i, (w, b) in enumerate(zip(net.weights, net.biases, strict=True)):
            x = x @ w + (b[:, None] if b.ndim == 2 else b)
            x = activate(x) if i < len(net.weights) - 1 else x
        return x[..., 0] if x.shape[-1] == 1 else x

    return call


RELU = lambda x: np.maximum(x, 0)
SILU = lambda x: x / (1 + np.exp(-x))


def features(t):
    angle = 2 * np.pi * t[..., None] * 2 ** np.linspace(-2, 5, 16)
    return np.concatenate([np.sin(angle), np.cos(angle)], -1)


def conjugate(x):
    """g of the released code."""
    return np.where(x >= 0, x**2 / 4 + x, np.exp(np.minimum(x, 1)) - 1)


def ratio(x):
    return np.where(x >= 0, x / 2 + 1, np.exp(np.minimum(x, 0)))


def adamw(theta, gradient, opt_state):
    return adam(theta, gradient, opt_state, LR) - LR * DECAY * theta


def numpy_update(state, batch, key):
    s, a, r, s2, m = arrays(batch)
    _, key_guidance, key_score = jax.random.split(key, 3)
    names = ("values.value", "values.critic", "values.target", "ensemble", "score", "guidance")
    value, critic, target, ensemble, score, guide = (flatten(part(state, name)) for name in names)
    v_of = perceptron(state.values.value.params, RELU)
    q_of = perceptron(state.values.critic.params, RELU)
    many = perceptron(state.ensemble.params, RELU)
    e_of, w_of = (perceptron(getattr(state, name).params, SILU) for name in ("score", "guidance"))
    sa = np.concatenate([s, a], -1)

    q = q_of(target, sa).min(0)
    loss = lambda p: np.mean(conjugate((q - v_of(p, s)[0]) / ALPHA) + v_of(p, s)[0] / ALPHA)
    value = adamw(value, slope(loss, value), state.values.value.opt_state)
    goal = r + GAMMA * m * v_of(value, s2)[0]
    errors = lambda p: ((goal - q_of(p, sa)) ** 2).mean(1).sum()
    critic = adamw(critic, slope(errors, critic), state.values.critic.opt_state)
    mean_error = lambda p: ((goal - many(p, sa)) ** 2).mean()
    ensemble = adamw(ensemble, slope(mean_error, ensemble), state.ensemble.opt_state)
    target = TAU * critic + (1 - TAU) * target

    w = np.minimum(ratio((q_of(target, sa).min(0) - v_of(value, s)[0]) / ALPHA), 100)
    a_t, t, _ = (np.asarray(x, np.float64) for x in noised(key_guidance, batch.action, 2))
    inputs = np.concatenate([np.broadcast_to(s, (2, *s.shape)), a_t, features(t)], -1)
    largest = max(np.max(-w_of(guide, inputs)), -1)
    dual = lambda p: np.exp(-largest) * np.mean(w * np.exp(-w_of(p, inputs)) + w_of(p, inputs))
    guide = adamw(guide, slope(dual, guide), state.guidance.opt_state)
    a_t, t, e = (np.asarray(x, np.float64)[0] for x in noised(key_score, batch.action, 1))
    log_alpha = (-19.9 * t**2 / 4 - 0.05 * t)[:, None]
    inputs, noise = np.concatenate([s, a_t, features(t)], -1), np.sqrt(1 - np.exp(2 * log_alpha)) * a_t
    denoise = lambda p: ((noise + np.exp(log_alpha) * e_of(p, inputs) - e) ** 2).sum(-1).mean()
    score = adam(score, slope(denoise, score), state.score.opt_state, LR)
    return dict(zip(names, (value, critic, target, ensemble, score, guide), strict=True)), w


def test_one_update_equals_numpy():
    update, state = begun()
    after, metrics = update(state, make_batch(), KEY)
    expected, w = numpy_update(state, make_batch(), KEY)
    for name, theta in expected.items():
        close(part(after, name), theta, rtol=2e-3, atol=3e-4)
    np.testing.assert_array_equal(after.noise, state.noise)
    assert (not np.any(state.noise[0]), np.abs(state.noise[1:]).min() > 0) == (True, True)
    np.testing.assert_allclose(metrics["weight_mean"], w.mean(), rtol=1e-3)
    assert all(np.isfinite(value) for value in metrics.values())


def test_next_observation_of_a_terminal_is_never_used():
    update, state = begun()
    batch = make_batch()
    dirty = batch._replace(next_obs=jnp.where(batch.terminated[:, None], 77.0, batch.next_obs))
    same(update(state, dirty, KEY)[0], update(state, batch, KEY)[0])


def test_the_behavior_does_not_read_rewards_and_the_values_do_not_read_the_behavior():
    update, state = begun()
    batch = make_batch()
    after, other = update(state, batch, KEY)[0], update(state, batch._replace(reward=-batch.reward), KEY)[0]
    same(after.score, other.score)
    assert np.abs(flatten(after.guidance.params) - flatten(other.guidance.params)).max() > 1e-4
    moved = state._replace(score=jax.tree.map(lambda leaf: leaf + 1 if leaf.ndim else leaf, state.score))
    same(update(moved, batch, KEY)[0].values, after.values)


def test_selection_is_by_the_ensemble_or_the_first_slow_q():
    algo = make("diffusion-dice", SPEC, **TINY)
    state = begun()[1]
    same(algo.policy(state).critic, state.ensemble.params)
    algo, (_, state) = make("diffusion-dice", SPEC, **TINY | {"critic_ensemble": 0}), begun(critic_ensemble=0)
    assert state.ensemble is None
    same(algo.policy(state).critic, jax.tree.map(lambda leaf: leaf[:1], state.values.target))


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"alpha": 0.0}, "alpha must be a positive number"),
        ({"guidance": -1.0}, "guidance must be a finite number of at least 0"),
        ({"candidates": 0}, "candidates must lie between 1 and 1024"),
        ({"solver_steps": 0}, "solver_steps must lie between 1 and 200"),
        ({"critic_ensemble": -1}, "critic_ensemble must be"),
        ({"score_hidden": ()}, "score_hidden must have a layer"),
        ({"weight_decay": float("nan")}, "weight_decay must be"),
    ],
)
def test_wrong_settings_are_refused(settings, says):
    with pytest.raises(OdiceError, match=says):
        DiffusionDICEConfig(**settings)


@pytest.mark.slow
def test_finds_the_best_first_action():
    """Guided and selected it goes to 1/2, where the log's mean is 0."""
    small = {"value_hidden": (64,), "critic_hidden": (64,), "score_hidden": (64, 64), "guidance_hidden": (64, 64)}
    rates = {"value_lr": 3e-3, "critic_lr": 3e-3, "score_lr": 3e-3, "guidance_lr": 3e-3, "cosine_steps": 1500}
    action, metrics = learn("diffusion-dice", steps=1500, alpha=0.3, guidance=2.0, polyak=0.02, **small, **rates)
    assert action.shape == (1,)
    assert abs(action[0] - 0.5) < 0.2
    assert metrics["score_loss"] < 0.7  # of uniform actions: 1 is knowing nothing
