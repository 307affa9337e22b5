"""One whole V-DICE update against a numpy implementation on linear networks, and the identities of the family."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from odice.algos import make
from odice.algos.vdice import ODICEConfig, VDICEConfig, _vdice
from odice.core.gradients import orthogonal, true
from odice.errors import OdiceError
from odice.types import Batch, Spec

GAMMA, LAM, ETA, TAU, LR, DECAY, CLAMP = 0.9, 0.55, 0.7, 0.1, 0.05, 0.3, 0.8
SPEC = Spec(3, 2)
LINEAR = {
    "value_hidden": (),
    "policy_hidden": (),
    "discount": GAMMA,
    "lam": LAM,
    "polyak": TAU,
    "value_lr": LR,
    "policy_lr": LR,
    "policy_weight_decay": DECAY,
    "weight_clamp": CLAMP,
}


def make_batch(seed=0, n=16, discrete=False, outcome=False):
    rng = np.random.default_rng(seed)
    obs, next_obs = rng.normal(size=(2, n, 3)).astype(np.float32)
    action = rng.integers(0, 2, n).astype(np.int32) if discrete else rng.uniform(-1, 1, (n, 2)).astype(np.float32)
    terminated = np.arange(n) % 5 == 0
    batch = Batch(*map(jnp.asarray, (obs, action, rng.normal(size=n).astype(np.float32), next_obs, terminated)))
    return batch._replace(outcome=jnp.asarray(rng.normal(size=n), jnp.float32)) if outcome else batch


def algo_state(name, batch, steps_before=3, **settings):
    """A state a few updates old, so that the target network is not the online one."""
    algo = make(name, SPEC, **(LINEAR | settings))
    state = algo.init(jax.random.key(1))
    for i in range(steps_before):
        state, _ = algo.update(state, make_batch(seed=10 + i, outcome="policy_outcome" in settings), jax.random.key(0))
    return algo, state


# --- the same update in numpy, float64, gradients by hand -----------------------------------------------------------


def numpy_adam(theta, g, adam_state):
    """One Adam step from optax's moments."""
    t = int(adam_state.count) + 1
    flat = lambda tree: np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(tree)]).astype(np.float64)
    m = 0.9 * flat(adam_state.mu) + 0.1 * g
    v = 0.999 * flat(adam_state.nu) + 0.001 * g**2
    return theta - LR * (m / (1 - 0.9**t)) / (np.sqrt(v / (1 - 0.999**t)) + 1e-8)


def flatten(tree):
    return np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(tree)]).astype(np.float64)


def numpy_update(name, state, batch, eta, start=0.0, averaged="off"):
    """Sections 4.2 to 4.5 of the facts sheet, for V(s) = s w + c per head and a Gaussian with mean s W + b.

    With a temperature T in the state V's residuals count in units of it, with a choice the policy's above its
    threshold. `averaged` says whose weights the critic makes (`double_sampling`).
    """
    temperature = 1.0 if state.log_temperature is None else float(np.exp(state.log_temperature))
    s, a, r, s2, d = (np.asarray(x, np.float64) for x in batch[:5])
    m, n = 1 - d, len(r)
    w, c = (
        np.asarray(x, np.float64) for x in (state.value.heads.weights[0][..., 0], state.value.heads.biases[0][:, 0])
    )
    wt, ct = (
        np.asarray(x, np.float64) for x in (state.target.heads.weights[0][..., 0], state.target.heads.biases[0][:, 0])
    )
    heads = len(c)
    v, v2 = w @ s.T + c[:, None], w @ s2.T + c[:, None]
    if name == "vdice-true":
        vbar, v2bar = v, v2
    else:
        vbar, v2bar = (wt @ s.T + ct[:, None]).min(0), (wt @ s2.T + ct[:, None]).min(0)
    v, v2, vbar, v2bar = (x + start for x in (v, v2, vbar, v2bar))
    r_f, r_b = r + GAMMA * m * v2bar - v, r + GAMMA * m * v2 - vbar
    slope = lambda y: np.maximum(0, 1 + y / temperature / 2)  # derivative of Pearson's conjugate
    k = 1 / (heads * n)
    q = None if averaged == "off" else critic_values(state, s, a) + start
    slope_f, slope_b = (slope(q - v), slope(q - v)) if averaged == "both" else (slope(r_f), slope(r_b))
    sent = slope_b if state.log_temperature is None else slope_b - 1  # adaptive: the excess alone
    d_f, d_b, d_lin = -LAM * slope_f * k, LAM * sent * GAMMA * m * k, np.full((heads, n), (1 - LAM) * k)
    # the parameter order of the pytree: weights of all heads, then biases of all heads
    gradient = lambda dv, x: np.concatenate([(dv @ x).ravel(), dv.sum(1)])
    F, B, L = gradient(d_f, s), gradient(d_b, s2), gradient(d_lin, s)
    combined = {
        "vdice-true": F + B,
        "sdice": F,
        "odice": F + eta * (B - F @ B / max(F @ F, 1e-10) * F),
    }[name]
    value = numpy_adam(np.concatenate([w.ravel(), c]), combined + L, state.value_opt[0])
    target = TAU * value + (1 - TAU) * np.concatenate([wt.ravel(), ct])

    worth = r_f if q is None else q - v
    weight = np.minimum(np.maximum(worth, 0), CLAMP).mean(0)
    if state.choice is not None:
        threshold, spread = (float(x) for x in state.choice)
        worth = beside_outcome(worth, batch)
        explained = 0.0 if state.baseline is None else baseline_values(state, s)
        above = np.maximum(worth.mean(0) - explained - threshold * spread, 0)
        weight = np.minimum(above / above.mean(), CLAMP)
    W, b, log_std = (
        np.asarray(x, np.float64)
        for x in (state.policy.mean.weights[0], state.policy.mean.biases[0], state.policy.log_std)
    )
    z = (a - (s @ W + b)) / np.exp(log_std)
    d_mean = -(weight[:, None] * z / np.exp(log_std)) / n
    d_log_std = -(weight[:, None] * (z**2 - 1)).sum(0) / n
    theta = np.concatenate([W.ravel(), b, log_std])
    g = np.concatenate([(s.T @ d_mean).ravel(), d_mean.sum(0), d_log_std]) + DECAY * theta
    policy = numpy_adam(theta, g, state.policy_opt[1][0])
    return value, target, policy


def beside_outcome(worth, batch):
    """The residual and the log's return, each in its own standard deviations, where the batch brings the latter."""
    if batch.outcome is None:
        return worth
    return worth / worth.std() + OUTCOME * np.asarray(batch.outcome, np.float64)


def baseline_values(state, s):
    """What a linear baseline says of the residual."""
    net = state.baseline.heads
    return s @ np.asarray(net.weights[0], np.float64)[0, :, 0] + float(net.biases[0][0, 0])


def critic_values(state, s, a):
    """Q(s, a) of linear heads."""
    net = state.critic.heads
    w, c = (np.asarray(x, np.float64)[..., 0] for x in (net.weights[0], net.biases[0]))
    return w @ np.concatenate([s, a], 1).T + c[:, None]


def numpy_critic(name, state, batch, start=0.0):
    """The critic after one step towards r + gamma m V(s'), which two linear heads share."""
    s, a, r, s2, d = (np.asarray(x, np.float64) for x in batch[:5])
    net = (state.value if name == "vdice-true" else state.target).heads
    there = np.asarray(net.weights[0], np.float64)[..., 0] @ s2.T + np.asarray(net.biases[0], np.float64)
    backup = r + GAMMA * (1 - d) * ((there if name == "vdice-true" else there.min(0)) + start) - start
    error = 2 * (critic_values(state, s, a) - backup) / (2 * len(r))  # two heads, one mean
    gradient = np.concatenate([(error @ np.concatenate([s, a], 1)).ravel(), error.sum(1)])
    return numpy_adam(flatten(state.critic), gradient, state.critic_opt[0])


@pytest.mark.parametrize("name", ["odice", "sdice", "vdice-true"])
@pytest.mark.parametrize(("averaged", "adaptive"), [("policy", False), ("both", False), ("both", True)])
def test_one_update_with_a_critic_equals_numpy(name, averaged, adaptive):
    more = {"double_sampling": averaged, "twin": True} | ({"eta": ETA} if name == "odice" else {})
    more |= ADAPTIVE if adaptive else {}
    batch, start = make_batch(), more.get("value_start", 0.0)
    algo, state = algo_state(name, batch, **more)
    value, target, policy = numpy_update(name, state, batch, ETA, start, averaged)
    after, _ = algo.update(state, batch, jax.random.key(0))
    np.testing.assert_allclose(flatten(after.value), value, rtol=2e-4, atol=2e-5)
    np.testing.assert_allclose(flatten(after.target), target, rtol=2e-4, atol=2e-5)
    np.testing.assert_allclose(flatten(after.policy), policy, rtol=2e-4, atol=2e-5)
    critic = numpy_critic(name, state, batch, start)
    np.testing.assert_allclose(flatten(after.critic), critic, rtol=2e-4, atol=2e-5)


@pytest.mark.parametrize("twin", [False, True])
@pytest.mark.parametrize("name", ["odice", "sdice", "vdice-true"])
def test_one_update_equals_numpy(name, twin):
    batch = make_batch()
    settings = {"twin": twin} | ({"eta": ETA} if name == "odice" else {})
    algo, state = algo_state(name, batch, **settings)
    value, target, policy = numpy_update(name, state, batch, ETA)
    after, _ = algo.update(state, batch, jax.random.key(0))
    np.testing.assert_allclose(flatten(after.value), value, rtol=2e-4, atol=2e-5)
    np.testing.assert_allclose(flatten(after.target), target, rtol=2e-4, atol=2e-5)
    np.testing.assert_allclose(flatten(after.policy), policy, rtol=2e-4, atol=2e-5)
    assert after.step == state.step + 1


OUTCOME = 0.7
ADAPTIVE = {"value_sample": 0.8, "policy_sample": 0.3, "value_start": 1.5}


@pytest.mark.parametrize("name", ["odice", "sdice"])
def test_one_adaptive_update_equals_numpy(name):
    batch = make_batch()
    algo, state = algo_state(name, batch, twin=True, **ADAPTIVE, **({"eta": ETA} if name == "odice" else {}))
    value, target, policy = numpy_update(name, state, batch, ETA, start=ADAPTIVE["value_start"])
    after, metrics = algo.update(state, batch, jax.random.key(0))
    np.testing.assert_allclose(flatten(after.value), value, rtol=2e-4, atol=2e-5)
    np.testing.assert_allclose(flatten(after.target), target, rtol=2e-4, atol=2e-5)
    np.testing.assert_allclose(flatten(after.policy), policy, rtol=2e-4, atol=2e-5)
    assert after.log_temperature != state.log_temperature
    np.testing.assert_allclose(metrics["temperature"], np.exp(after.log_temperature), rtol=1e-6)


@pytest.mark.parametrize("outcome", [False, True])
@pytest.mark.parametrize("averaged", ["off", "policy"])
def test_one_update_with_a_baseline_equals_numpy(averaged, outcome):
    more = {"policy_baseline": True, "double_sampling": averaged, "eta": ETA, "twin": True}
    more |= {"policy_outcome": OUTCOME} if outcome else {}
    batch, start = make_batch(outcome=outcome), ADAPTIVE["value_start"]
    algo, state = algo_state("odice", batch, **ADAPTIVE, **more)
    value, _, policy = numpy_update("odice", state, batch, ETA, start, averaged)
    after, _ = algo.update(state, batch, jax.random.key(0))
    np.testing.assert_allclose(flatten(after.value), value, rtol=2e-4, atol=2e-5)
    np.testing.assert_allclose(flatten(after.policy), policy, rtol=2e-4, atol=2e-5)
    s, a, r, _, d = (np.asarray(x, np.float64) for x in batch[:5])
    there, v = (np.asarray(net(obs), np.float64) for net, obs in
                ((state.target, batch.next_obs), (state.value, batch.obs)))  # fmt: skip
    worth = r + GAMMA * (1 - d) * (there.min(0) + start) - v - start
    if averaged == "policy":
        worth = critic_values(state, s, a) - v
    worth = beside_outcome(worth, batch)
    error = 2 * (baseline_values(state, s) - worth.mean(0)) / len(r)
    baseline = numpy_adam(flatten(state.baseline), np.concatenate([error @ s, [error.sum()]]), state.baseline_opt[0])
    np.testing.assert_allclose(flatten(after.baseline), baseline, rtol=2e-4, atol=2e-5)


def test_without_adaptive_settings_nothing_is_adapted():
    state = make("odice", SPEC).init(jax.random.key(0))
    assert state.log_temperature is None
    assert state.choice is None


def test_rates_fall_to_zero():
    algo = make("odice", SPEC, **LINEAR, cosine_steps=3)
    states = [algo.init(jax.random.key(1))]
    for i in range(5):
        states.append(algo.update(states[-1], make_batch(seed=i), jax.random.key(0))[0])
    moved = [np.abs(flatten(b.policy) - flatten(a.policy)).max() for a, b in itertools.pairwise(states)]
    assert moved[0] > moved[1] > moved[2] > 0
    assert moved[3] == moved[4] == 0


def test_the_policy_is_the_average_of_its_weights():
    algo = make("odice", SPEC, **LINEAR, average=2.0)
    state, mean = algo.init(jax.random.key(1)), None
    for i in range(6):
        state, _ = algo.update(state, make_batch(seed=i), jax.random.key(0))
        share = min(1.0, 2.0 / (i + 1))
        mean = flatten(state.policy) if mean is None else mean + share * (flatten(state.policy) - mean)
    np.testing.assert_allclose(flatten(algo.policy(state)), mean, rtol=1e-5, atol=1e-6)
    assert np.abs(mean - flatten(state.policy)).max() > 1e-3


# --- identities -----------------------------------------------------------------------------------------------------


def states_equal(a, b, **tolerance):
    np.testing.assert_allclose(flatten(a.value), flatten(b.value), **tolerance)
    np.testing.assert_allclose(flatten(a.policy), flatten(b.policy), **tolerance)


def test_eta_zero_is_the_semi_gradient():
    batch = make_batch()
    algo, state = algo_state("odice", batch, eta=0.0, twin=True)
    semi_algo, semi_state = algo_state("sdice", batch, twin=True)
    states_equal(algo.update(state, batch, None)[0], semi_algo.update(semi_state, batch, None)[0], rtol=1e-6)


def test_without_projection_and_target_lag_it_is_the_true_gradient():
    """Projection off, eta = 1, and a target that is the online network (fresh state): the true gradient."""
    cfg = VDICEConfig(value_hidden=(8,), policy_hidden=(4,))
    batch = make_batch()
    unprojected = _vdice(cfg, orthogonal(1.0)._replace(project=False), SPEC)
    exact = _vdice(cfg, true, SPEC)
    state = unprojected.init(jax.random.key(0))
    states_equal(unprojected.update(state, batch, None)[0], exact.update(state, batch, None)[0], rtol=1e-5, atol=1e-7)
    projected = _vdice(cfg, orthogonal(1.0), SPEC)
    with pytest.raises(AssertionError):  # and the projection does change it
        states_equal(projected.update(state, batch, None)[0], exact.update(state, batch, None)[0], rtol=1e-5)


@pytest.mark.parametrize("name", ["odice", "sdice", "vdice-true"])
def test_next_observation_of_a_terminal_is_never_used(name):
    batch = make_batch()
    algo, state = algo_state(name, batch, twin=True)
    garbage = jnp.where(batch.terminated[:, None], 77.0, batch.next_obs)
    clean, dirty = (algo.update(state, b, None) for b in (batch, batch._replace(next_obs=garbage)))
    states_equal(clean[0], dirty[0], rtol=1e-6)
    moved = batch._replace(terminated=jnp.zeros_like(batch.terminated), next_obs=garbage)
    with pytest.raises(AssertionError):
        states_equal(clean[0], algo.update(state, moved, None)[0], rtol=1e-2)


def test_policy_weight_is_taken_before_the_value_update():
    batch = make_batch()
    algo, state = algo_state("odice", batch)
    frantic = make("odice", SPEC, **(LINEAR | {"value_lr": 1e3}))
    calm_policy = algo.update(state, batch, None)[0].policy
    np.testing.assert_array_equal(flatten(frantic.update(state, batch, None)[0].policy), flatten(calm_policy))


@pytest.mark.slow
def test_discrete_actions_and_other_divergences_give_finite_updates():
    spec = Spec(3, 2, discrete=True)
    batch = make_batch(discrete=True)
    for name in ("kl", "hellinger", "kl-dv", "alpha(1.5)"):
        algo = make("odice", spec, divergence=name, policy_weight="ratio", twin=True, layer_norm=True, diagnose=True)
        state, metrics = algo.update(algo.init(jax.random.key(0)), batch, None)
        assert np.isfinite(flatten(state.value)).all()
        assert all(np.isfinite(v) and v.shape == () for v in metrics.values())
        action = algo.act(state, batch.obs)
        assert action.shape == (16,)
        assert action.dtype.kind == "i"


def test_act_handles_one_observation_and_a_batch():
    algo, state = algo_state("odice", make_batch())
    batch = algo.act(state, make_batch().obs)
    single = algo.act(state, make_batch().obs[3])
    assert batch.shape == (16, 2)
    np.testing.assert_allclose(batch[3], single, rtol=1e-5)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"lam": 0.0}, "lam must lie strictly between 0 and 1"),
        ({"lam": 1.0}, "lam must lie"),
        ({"lam": float("nan")}, "lam must lie"),
        ({"eta": -0.5}, "eta must be at least 0"),
        ({"discount": 1.5}, "discount"),
        ({"polyak": 0.0}, "polyak"),
        ({"batch_size": 0}, "batch_size"),
        ({"value_lr": -1.0}, "value_lr"),
        ({"weight_clamp": 0.0}, "weight_clamp"),
        ({"value_sample": -0.1}, "value_sample must lie between 0 and 1"),
        ({"policy_sample": 1.0}, "policy_sample must lie"),
        ({"cosine_steps": -1}, "cosine_steps"),
        ({"divergence": "hellingr"}, "Did you mean 'hellinger'"),
        ({"policy_weight": "resid"}, "Did you mean 'residual'"),
        ({"init": "torchy"}, "Did you mean 'torch'"),
    ],
)
def test_bad_settings_are_refused(settings, message):
    with pytest.raises(OdiceError, match=message):
        ODICEConfig(**settings)
