"""One whole V-DICE update against a numpy implementation on linear networks, and the identities of the family."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from odice.algos.vdice import ODICEConfig, VDICEConfig, vdice
from odice.core.gradients import orthogonal, true
from odice.errors import OdiceError
from odice.types import Spec
from tests.algos.numpy_vdice import LINEAR, NAMES, eta_of, make_batch, numpy_update
from tests.algos.support import SPEC, compiled, flatten


@functools.cache
def algo_state(name, steps_before=3, **settings):
    """A state a few updates old, so that the target network is not the online one."""
    algo = compiled(name, **(LINEAR | settings))
    state = algo.init(jax.random.key(1))
    for i in range(steps_before):
        state, _ = algo.update(state, make_batch(seed=10 + i), jax.random.key(0))
    return algo, state


@pytest.mark.parametrize("twin", [False, True])
@pytest.mark.parametrize("name", NAMES)
def test_one_update_equals_numpy(name, twin):
    batch = make_batch()
    algo, state = algo_state(name, twin=twin, **eta_of(name))
    expected = numpy_update(name, state, batch)
    after, _ = algo.update(state, batch, jax.random.key(0))
    for part, numbers in zip((after.value.params, after.target, after.policy.params), expected, strict=True):
        np.testing.assert_allclose(flatten(part), numbers, rtol=2e-4, atol=2e-5)
    assert after.step == state.step + 1


# --- identities -----------------------------------------------------------------------------------------------------


def states_equal(a, b, **tolerance):
    np.testing.assert_allclose(flatten(a.value.params), flatten(b.value.params), **tolerance)
    np.testing.assert_allclose(flatten(a.policy.params), flatten(b.policy.params), **tolerance)


def test_eta_zero_is_the_semi_gradient():
    batch = make_batch()
    algo, state = algo_state("odice", eta=0.0, twin=True)
    semi_algo, semi_state = algo_state("sdice", twin=True)
    states_equal(algo.update(state, batch, None)[0], semi_algo.update(semi_state, batch, None)[0], rtol=1e-6)


def test_without_projection_and_target_lag_it_is_the_true_gradient():
    """Projection off, eta = 1, and a target that is the online network (fresh state): the true gradient."""
    cfg = VDICEConfig(value_hidden=(8,), policy_hidden=(4,))
    batch = make_batch()
    unprojected = vdice(cfg, orthogonal(1.0)._replace(project=False), SPEC)
    exact = vdice(cfg, true, SPEC)
    state = unprojected.init(jax.random.key(0))
    states_equal(unprojected.update(state, batch, None)[0], exact.update(state, batch, None)[0], rtol=1e-5, atol=1e-7)
    projected = vdice(cfg, orthogonal(1.0), SPEC)
    with pytest.raises(AssertionError):  # and the projection does change it
        states_equal(projected.update(state, batch, None)[0], exact.update(state, batch, None)[0], rtol=1e-5)


@pytest.mark.parametrize("name", NAMES)
def test_next_observation_of_a_terminal_is_never_used(name):
    batch = make_batch()
    algo, state = algo_state(name, twin=True)
    garbage = jnp.where(batch.terminated[:, None], 77.0, batch.next_obs)
    clean, dirty = (algo.update(state, b, None) for b in (batch, batch._replace(next_obs=garbage)))
    states_equal(clean[0], dirty[0], rtol=1e-6)
    moved = batch._replace(terminated=jnp.zeros_like(batch.terminated), next_obs=garbage)
    with pytest.raises(AssertionError):
        states_equal(clean[0], algo.update(state, moved, None)[0], rtol=1e-2)


def test_policy_weight_is_taken_before_the_value_update():
    batch = make_batch()
    algo, state = algo_state("odice")
    frantic = compiled("odice", **(LINEAR | {"value_lr": 1e3}))
    calm_policy, frantic_policy = (each.update(state, batch, None)[0].policy.params for each in (algo, frantic))
    np.testing.assert_array_equal(flatten(frantic_policy), flatten(calm_policy))


@pytest.mark.slow
def test_discrete_actions_and_other_divergences_give_finite_updates():
    spec = Spec(3, 2, discrete=True)
    batch = make_batch(discrete=True)
    for name in ("kl", "hellinger", "kl-dv", "alpha(1.5)"):
        algo = compiled(
            "odice", spec, divergence=name, policy_weight="ratio", twin=True, layer_norm=True, diagnose=True
        )
        state, metrics = algo.update(algo.init(jax.random.key(0)), batch, None)
        assert np.isfinite(flatten(state.value.params)).all()
        assert all(np.isfinite(v) and v.shape == () for v in metrics.values())
        action = algo.act(state, batch.obs)
        assert action.shape == (16,)
        assert action.dtype.kind == "i"


def test_act_handles_one_observation_and_a_batch():
    algo, state = algo_state("odice")
    batch = algo.act(state, make_batch().obs)
    single = algo.act(state, make_batch().obs[3])
    assert batch.shape == (16, 2)
    np.testing.assert_allclose(batch[3], single, rtol=1e-5)


@pytest.mark.fast
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
        ({"divergence": "hellingr"}, "Did you mean 'hellinger'"),
        ({"policy_weight": "resid"}, "Did you mean 'residual'"),
        ({"init": "torchy"}, "Did you mean 'torch'"),
    ],
)
def test_bad_settings_are_refused(settings, message):
    with pytest.raises(OdiceError, match=message):
        ODICEConfig(**settings)
