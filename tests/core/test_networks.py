"""Networks, heads and targets against numpy."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from odice.core.divergences import divergence
from odice.core.extraction import effective_sample_size, residual_weight, weighted_cloning
from odice.core.networks import MLP, Ensemble, orthogonal
from odice.core.optim import adam, polyak, step
from odice.core.policies import CategoricalPolicy, GaussianPolicy, policy_network
from odice.types import Spec

KEY = jax.random.key(0)
X = np.random.default_rng(0).normal(size=(5, 3)).astype(np.float32)


def numpy_mlp(net: MLP, x, head=None):
    pick = (lambda leaf: np.asarray(leaf)) if head is None else (lambda leaf: np.asarray(leaf[head]))
    for i, (w, b) in enumerate(zip(net.weights, net.biases, strict=True)):
        x = x @ pick(w) + pick(b)
        if i < len(net.weights) - 1:
            if net.scales:
                x = (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-5)
                x = x * pick(net.scales[i]) + pick(net.shifts[i])
            x = np.maximum(x, 0)
    return x


@pytest.mark.parametrize("layer_norm", [False, True])
@pytest.mark.parametrize("hidden", [(), (8,), (8, 16)])
def test_mlp(layer_norm, hidden):
    net = MLP(KEY, (3, *hidden, 2), layer_norm=layer_norm)
    np.testing.assert_allclose(net(jnp.asarray(X)), numpy_mlp(net, X), atol=1e-5)


def test_torch_init_is_uniform_in_fan_in():
    net = MLP(KEY, (400, 300, 1))
    for w, b in zip(net.weights, net.biases, strict=True):
        bound = 1 / np.sqrt(w.shape[0])
        assert np.abs(w).max() <= bound
        assert np.abs(b).max() <= bound
        if w.size > 1000:
            np.testing.assert_allclose(np.std(w), bound / np.sqrt(3), rtol=0.02)


def test_torch_init_has_the_numbers_of_a_draw_for_each_array():
    """Although all are drawn at once (see `_uniform_layers`)."""
    sizes = (3, 4, 2)
    net, keys = MLP(KEY, sizes), jax.random.split(KEY, 2)
    for i, key in enumerate(keys):
        bound = 1 / np.sqrt(sizes[i])
        arrays = (net.weights[i], net.biases[i])
        for array, own in zip(arrays, jax.random.split(key), strict=True):
            expected = jax.random.uniform(own, array.shape, minval=-bound, maxval=bound)
            np.testing.assert_allclose(array, expected, rtol=1e-6, atol=1e-7)


def test_orthogonal_init_has_gain_sqrt2_and_zero_bias():
    net = MLP(KEY, (16, 16, 4), init="orthogonal")
    w = np.asarray(net.weights[0])
    np.testing.assert_allclose(w.T @ w, 2 * np.eye(16), atol=1e-4)
    assert not np.any(net.biases[1])


def test_orthogonal_matrices_are_factorised_one_by_one():
    """QR of a batch can stop a process for ever (see `orthogonal`); what comes out is what each key gives alone."""
    keys = jax.random.split(KEY, 3)

    def factorised(initializer) -> list[str]:
        program = str(jax.make_jaxpr(jax.vmap(lambda key: initializer(key, (5, 4))))(keys))
        return re.findall(r"f32\[([\d,]+)\] \S+ = qr\[", program)

    assert factorised(jax.nn.initializers.orthogonal()) == ["3,5,4"]
    assert factorised(orthogonal(2.0)) == ["5,4"]
    draw = lambda key: orthogonal(2.0)(key, (5, 4))
    np.testing.assert_array_equal(jax.vmap(draw)(keys), jnp.stack([draw(key) for key in keys]))


def test_ensemble_heads_are_independent_and_keep_their_axis():
    twin = Ensemble(KEY, 2, (3, 8, 1), layer_norm=True)
    values = twin(jnp.asarray(X))
    assert values.shape == (2, 5)
    for head in range(2):
        np.testing.assert_allclose(values[head], numpy_mlp(twin.heads, X, head)[:, 0], atol=1e-5)
    assert not np.allclose(values[0], values[1])


@pytest.mark.parametrize("tanh_mean", [False, True])
def test_gaussian_log_prob(tanh_mean):
    policy = GaussianPolicy(KEY, Spec(3, 2), (8,), tanh_mean=tanh_mean)
    policy = jax.tree.map(lambda leaf: leaf, policy)
    object.__setattr__(policy, "log_std", jnp.asarray([-9.0, 0.5]))  # the first is clamped to -5
    action = np.random.default_rng(1).uniform(-1, 1, (5, 2)).astype(np.float32)
    mean = numpy_mlp(policy.mean, X)
    mean = np.tanh(mean) if tanh_mean else mean
    std = np.exp(np.array([-5.0, 0.5]))
    expected = np.sum(-0.5 * ((action - mean) / std) ** 2 - np.log(std) - 0.5 * np.log(2 * np.pi), axis=1)
    np.testing.assert_allclose(policy.log_prob(jnp.asarray(X), jnp.asarray(action)), expected, rtol=1e-4)


def test_gaussian_mode_is_clipped_to_the_box():
    policy = GaussianPolicy(KEY, Spec(3, 2), (8,))
    mode = policy.mode(jnp.asarray(100 * X))
    assert np.abs(mode).max() == 1.0


def test_categorical():
    policy = CategoricalPolicy(KEY, Spec(3, 4, discrete=True), (8,))
    logits = numpy_mlp(policy.logits, X).astype(np.float64)
    action = np.array([0, 3, 1, 2, 2])
    expected = logits[np.arange(5), action] - np.log(np.exp(logits).sum(1))
    np.testing.assert_allclose(policy.log_prob(jnp.asarray(X), jnp.asarray(action)), expected, rtol=1e-4)
    np.testing.assert_array_equal(policy.mode(jnp.asarray(X)), logits.argmax(1))


def test_policy_head_follows_the_action_space():
    assert isinstance(policy_network(KEY, Spec(3, 4, discrete=True), (8,)), CategoricalPolicy)
    assert isinstance(policy_network(KEY, Spec(3, 4), (8,)), GaussianPolicy)


@pytest.mark.parametrize(
    "policy",
    [
        GaussianPolicy(KEY, Spec(3, 2), (8,)),
        GaussianPolicy(KEY, Spec(3, 2), (8,), tanh_mean=True),
        CategoricalPolicy(KEY, Spec(3, 4, discrete=True), (8,)),
    ],
)
def test_deterministic_part_gives_the_mode(policy):
    network, output = policy.deterministic()
    out = numpy_mlp(network, 5 * X)
    act = {"clip": lambda y: np.clip(y, -1, 1), "tanh": np.tanh, "argmax": lambda y: y.argmax(-1)}[output]
    np.testing.assert_allclose(policy.mode(jnp.asarray(5 * X)), act(out), atol=1e-5)


def test_polyak():
    mixed = polyak({"a": jnp.asarray([2.0])}, {"a": jnp.asarray([10.0])}, 0.25)
    np.testing.assert_allclose(mixed["a"], [8.0])


def test_weight_decay_is_coupled_like_torch():
    """Two steps of torch's Adam(weight_decay=wd), by hand."""
    lr, wd, theta, g = 0.1, 0.5, np.float64(2.0), np.float64(0.3)
    m = v = 0.0
    expected = theta
    for t in (1, 2):
        grad = g + wd * expected
        m, v = 0.9 * m + 0.1 * grad, 0.999 * v + 0.001 * grad**2
        expected -= lr * (m / (1 - 0.9**t)) / (np.sqrt(v / (1 - 0.999**t)) + 1e-8)

    def two_steps(optimizer):
        params = jnp.asarray([theta], jnp.float32)
        opt_state = optimizer.init(params)
        for _ in range(2):
            params, opt_state = step(optimizer, jnp.asarray([g], jnp.float32), opt_state, params)
        return params

    np.testing.assert_allclose(two_steps(adam(lr, wd)), [expected], rtol=1e-5)
    decoupled = two_steps(optax.adamw(lr, weight_decay=wd))  # would be another algorithm
    assert abs(float(decoupled[0]) - expected) > 1e-2


@pytest.mark.parametrize(
    ("form", "expected"),
    [("residual", [0, 0, 1, 4, 7]), ("ratio", [0, 0.5, 1.5, 3, 7]), ("excess", [0, 0, 0.5, 2, 7])],
)
def test_residual_weights_for_pearson(form, expected):
    residual = jnp.asarray([-4.0, -1.0, 1.0, 4.0, 1000.0])
    np.testing.assert_allclose(residual_weight(residual, divergence("pearson"), form, clamp=7.0), expected)


@pytest.mark.parametrize("form", ["residual", "ratio"])
def test_with_kl_the_weight_is_the_ratio(form):
    """The released code takes e^(R - 1) then, and so does the `reference` preset, whose form is `residual`."""
    residual = np.array([-4.0, 0.0, 1.0, 2.0, 6.0])
    weight = residual_weight(jnp.asarray(residual, jnp.float32), divergence("kl"), form, clamp=100.0)
    np.testing.assert_allclose(weight, np.minimum(np.exp(residual - 1), 100), rtol=1e-6)


def test_weighted_cloning_and_its_shape():
    policy = CategoricalPolicy(KEY, Spec(3, 4, discrete=True), (8,))
    action, weight = jnp.asarray([0, 3, 1, 2, 2]), jnp.arange(5.0)
    log_p = np.asarray(policy.log_prob(jnp.asarray(X), action))
    np.testing.assert_allclose(
        weighted_cloning(policy, weight, jnp.asarray(X), action), -np.mean(np.arange(5) * log_p), rtol=1e-5
    )
    with pytest.raises(TypeError, match="weight"):  # twin weights (2, b) must not broadcast silently
        weighted_cloning(policy, jnp.ones((2, 5)), jnp.asarray(X), action)


def test_effective_sample_size():
    assert effective_sample_size(jnp.ones(8)) == 1
    np.testing.assert_allclose(effective_sample_size(jnp.asarray([0.0, 0, 0, 5])), 0.25)
    assert effective_sample_size(jnp.zeros(4)) == 0
