"""RGM: a whole update against numpy, an exact answer in a table, and rewards with the wrong sign."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import odice
from odice.algos import make
from odice.algos.rgm import RGMConfig
from odice.core.critics import Critic
from odice.core.learner import Learned
from odice.data.transitions import to_transitions
from odice.errors import OdiceError
from odice.training.loop import initial_state, make_chunk
from odice.types import Batch, Spec
from tests.algos.support import SPEC, adam, arrays, close, flatten, part, slope
from tests.algos.test_contract import earned, pushes
from tests.algos.test_union import (
    begin_with,
    net,
    numpy_discriminator_loss,
    numpy_residual,
    squashed_log_prob,
    union_batch,
)
from tests.oracles.tabular import random_mdp, visitation

ALPHA, SCALE, LR, DECAY = 0.7, 2.0, 0.02, 0.1
LINEAR = {f"{part}_hidden": () for part in ("discriminator", "value", "policy", "correction")}
LINEAR |= {f"{part}_lr": LR for part in ("discriminator", "value", "policy", "correction")}
LINEAR |= {"discount": 0.9, "alpha": ALPHA, "correction_scale": SCALE, "correction_weight_decay": DECAY}
LINEAR |= {"value_weight_decay": 0.0, "entropy": False, "discriminator_steps": 1, "cosine_steps": 0}
LINEAR |= {"discriminator_penalty": 0.3}
FORMS = {
    "kl": {},
    "official": {"normalize": False},
    "half-pearson": {"divergence": "half-pearson"},
}


def correction(theta, batch):
    s, a, r = arrays(batch)[:3]
    return SCALE * np.tanh(net(theta, np.concatenate([s, r[:, None], a], -1)))


def ratio(form, x):
    """w of the lower level."""
    return np.maximum(0, 1 + x) if form == "half-pearson" else np.exp(x) / np.mean(np.exp(x))


def above(form, theta, value, log_expert, batch):
    """The upper level's loss."""
    x = numpy_residual(value, arrays(batch)[2] + correction(theta, batch), batch) / ALPHA
    if form == "half-pearson":
        w = ratio(form, x) * np.exp(-log_expert)
        return np.mean(np.exp(log_expert) * (w - 1) ** 2 / 2)
    w = np.exp(np.minimum(x, 10)) if form == "official" else ratio(form, x)
    return np.mean(w * (np.log(w) - log_expert))


def numpy_update(form, state, batch):
    """New correction, value and policy, by the equations."""
    parts = ("discriminator", "value", "correction")
    (c, v, theta), both = (flatten(part(state, name)) for name in parts), flatten(state.actor.params)
    pi = both[:-1]
    s, a, r = arrays(batch)[:3]
    log_expert = net(c, np.concatenate([s, a], -1))
    gradient = slope(lambda x: above(form, x, v, log_expert, batch), theta) + DECAY * theta
    theta = adam(theta, gradient, state.correction.opt_state, LR)
    reward = r + correction(theta, batch)

    def value_loss(at):
        x = numpy_residual(at, reward, batch) / ALPHA
        start = (1 - 0.9) * net(at, np.asarray(batch.initial_obs, np.float64)).mean()
        if form == "half-pearson":
            return start + ALPHA * np.mean((np.maximum(0, 1 + x) ** 2 - 1) / 2)
        return start + ALPHA * np.log(np.mean(np.exp(x)))

    weight = ratio(form, numpy_residual(v, reward, batch) / ALPHA)
    value = adam(v, slope(value_loss, v), state.value.opt_state, LR)
    cloning = slope(lambda at: -np.mean(weight * squashed_log_prob(at, batch)), pi)
    # The weight of the entropy, which does not learn here, is the optimizer's last number.
    return {
        "correction": theta,
        "value": value,
        "actor": adam(both, np.append(cloning, 0.0), state.actor.opt_state, LR),
    }


@pytest.mark.parametrize("form", FORMS)
def test_one_update_equals_numpy(form):
    update, state = begin_with("rgm", LINEAR | FORMS[form])
    batch = union_batch(0)
    after, metrics = update(state, batch, jax.random.key(9))
    for name, expected in numpy_update(form, state, batch).items():
        close(part(after, name), expected)
    assert all(np.isfinite(value) for value in metrics.values())


def test_while_the_discriminator_learns_nothing_else_does():
    update, state = begin_with("rgm", LINEAR, steps=0)
    batch, key, theta = union_batch(0), jax.random.key(0), flatten(state.discriminator.params)
    after, _ = update(state, batch, key)
    loss = lambda at: numpy_discriminator_loss("rgm", at, batch, jax.random.split(key)[0])
    close(after.discriminator.params, adam(theta, slope(loss, theta), state.discriminator.opt_state, LR))
    for name in ("correction", "value", "actor"):
        np.testing.assert_array_equal(flatten(part(after, name)), flatten(part(state, name)))


def test_the_corrected_problem_has_the_experts_visitation():
    """In a table, with the exact log ratio in the place of the discriminator: whatever the rewards say, w d_U becomes
    d_expert. Transitions are deterministic, so one next state is enough."""
    rng = np.random.default_rng(3)
    mdp = random_mdp(rng, 5, 2, terminals=0, branching=1, discount=0.8)
    mdp = mdp._replace(initial=np.full(5, 0.2))
    expert = visitation(mdp, rng.dirichlet(np.ones(2), size=5))
    state, action = (x.ravel() for x in np.indices((5, 2)))  # the union: every pair once
    batch = Batch(
        obs=jnp.eye(5)[state],
        action=jnp.asarray(action),
        reward=jnp.asarray(mdp.reward[state, action], jnp.float32),
        next_obs=jnp.eye(5)[mdp.transition[state, action].argmax(-1)],
        terminated=jnp.zeros(10, bool),
        initial_obs=jnp.eye(5)[np.repeat(np.arange(5), 2)],
    )
    batch = batch._replace(expert=batch)  # which the discriminator has learned from before
    settings = LINEAR | {"correction_weight_decay": 0.0, "value_lr": 0.02, "correction_lr": 0.004, "alpha": 1.0}
    algo = make("rgm", Spec(5, 2, discrete=True), **(settings | {"discount": 0.8, "correction_scale": 10.0}))
    begin = algo.init(jax.random.key(0))
    table = jnp.asarray(np.log(expert * 10), jnp.float32)[None]
    discriminator = jax.tree.map(jnp.zeros_like, begin.discriminator.params)
    discriminator = jax.tree.map(lambda leaf: table if leaf.shape == table.shape else leaf, discriminator)
    assert isinstance(discriminator, Critic)
    begin = begin._replace(
        discriminator=Learned(discriminator, begin.discriminator.opt_state), step=jnp.asarray(1, jnp.int32)
    )
    np.testing.assert_allclose(discriminator(batch.obs, batch.action)[0], np.log(expert.ravel() * 10), rtol=1e-5)
    loop = lambda n: jax.jit(
        lambda state: jax.lax.fori_loop(0, n, lambda _, x: algo.update(x, batch, jax.random.key(0))[0], state)
    )
    after = loop(8000)(begin)

    def weighed(state):
        value = lambda obs: np.asarray(state.value.params(obs)[0], np.float64)
        seen = jnp.concatenate([batch.obs, batch.reward[:, None]], axis=-1)
        added = 10 * np.tanh(np.asarray(state.correction.params(seen, batch.action)[0], np.float64))
        x = np.asarray(batch.reward) + added + 0.8 * value(batch.next_obs) - value(batch.obs)
        return np.exp(x) / np.sum(np.exp(x))

    assert np.abs(weighed(begin) - expert.ravel()).max() > 0.1
    np.testing.assert_allclose(weighed(after), expert.ravel(), atol=5e-3)


SMALL = {f"{part}_hidden": (32,) for part in ("discriminator", "value", "policy", "correction")}
SMALL |= {f"{part}_lr": 3e-3 for part in ("discriminator", "value", "policy")}
SMALL |= {"discount": 0.5, "discriminator_steps": 200, "discriminator_penalty": 0.1, "entropy": False}


@pytest.mark.slow
def test_corrects_rewards_of_the_wrong_sign():
    """Every reward of the log says the opposite of what is meant; 200 demonstrations show what is. Three seeds."""
    demonstrated, log = pushes(200, seed=1, good=1.0), pushes()
    union = {name: np.concatenate([demonstrated[name], log[name]]) for name in log}
    union["rewards"] = -union["rewards"]
    data = jax.device_put(to_transitions(odice.load(union))._replace(expert=np.arange(200, dtype=np.int32)))
    algo = make("rgm", SPEC, **SMALL, cosine_steps=0, correction_lr=1e-3)
    begin, chunk = jax.jit(lambda seed: initial_state(algo, seed)), make_chunk(algo, 64, 800)
    for seed in range(3):
        state, _ = chunk(begin(seed), data, seed, 0)
        score = earned(lambda obs, state=state: algo.act(state, jnp.asarray(obs)))
        assert score > 0.4, (seed, score)  # the log's own rewards lead below 0, cloning all of it to 0.25


@pytest.mark.fast
def test_settings_are_checked():
    for settings, message in [({"alpha": 0.0}, "alpha"), ({"discriminator_steps": 0}, "discriminator_steps")]:
        with pytest.raises(OdiceError, match=message):
            RGMConfig(**settings)
    state = jax.eval_shape(make("rgm", SPEC, deterministic=True).init, jax.random.key(0))
    assert type(state.actor.params.policy).__name__ == "TanhPolicy"
