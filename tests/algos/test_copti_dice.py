"""CoptiDICE: a whole update against numpy, the price of the cost, and a limit that is kept."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from odice.algos import make
from odice.algos.copti_dice import CoptiDICEConfig, cost_bound
from odice.core.learner import Learned
from odice.errors import OdiceError
from tests.algos.support import (
    SPEC,
    adam,
    arrays,
    assert_a_limit_moves_the_policy,
    close,
    flatten,
    gaussian,
    heads,
    make_batch,
    slope,
    warm,
)

GAMMA, LR, ALPHA, LIMIT, EPS = 0.9, 0.02, 0.7, 0.2, 0.05
LINEAR = {"value_hidden": (), "policy_hidden": (), "discount": GAMMA, "alpha": ALPHA, "layer_norm": False}
LINEAR |= {"value_lr": LR, "policy_lr": LR, "cost_limit": LIMIT, "bound_radius": EPS, "gradient_penalty": 0.3}
KEY = jax.random.key(9)
COSTLY = {"initial": True, "cost": True}


def begun(steps=3, **more):
    algo, state = warm("copti-dice", LINEAR | more, steps=steps, **COSTLY)
    return algo.update, state


def numpy_losses(theta, frozen, batch):
    """V's 4 numbers, chi's 4, log lam, log tau; `frozen` are the values where no gradient goes."""
    s, _, r, s2, m = arrays(batch)
    c, s0 = (np.asarray(x, np.float64) for x in (batch.columns["cost"], batch.initial_obs))
    v_of = lambda p, x: heads(p, x, 1)[0]
    lam = np.exp(frozen[8])

    def weights(p):
        x = (r - lam * c + GAMMA * m * v_of(p[:4], s2) - v_of(p[:4], s)) / ALPHA
        return x, np.where(x < 0, np.exp(np.minimum(x, 0)), 1 + x)

    x, w = weights(theta)
    f = np.where(w < 1, w * np.log(w) - w + 1, (w - 1) ** 2 / 2)
    dual = (1 - GAMMA) * v_of(theta[:4], s0).mean() + ALPHA * (x * w - f).mean()
    w = weights(frozen)[1]

    def bound(p, tau):
        ell = (1 - GAMMA) * v_of(p, s0) + w * (c + GAMMA * m * v_of(p, s2) - v_of(p, s))
        q = np.exp(ell / tau) / np.mean(np.exp(ell / tau))
        return (q * ell).mean(), (q * w * c).mean(), (q * np.log(q) - q + 1).mean()

    tau = np.exp(frozen[9]) + 1e-6
    _, cost, kl = bound(frozen[4:8], tau)
    steep = sum(0.3 * max(0, np.linalg.norm(p[:3]) - 5) ** 2 for p in (theta[:4], theta[4:8]))
    multipliers = -np.exp(theta[8]) * (cost - LIMIT) - np.exp(theta[9]) * (kl - EPS)
    return dual + bound(theta[4:8], tau)[0] + multipliers + steep, w, cost


def test_one_update_equals_numpy():
    update, state = begun()
    steep = jax.tree.map(lambda x: 12 * x, state.dual.params.value)  # so that the penalty on slopes counts
    dual = Learned(state.dual.params._replace(value=steep), state.dual.opt_state)
    state = state._replace(dual=dual)
    batch = make_batch(**COSTLY)
    before = flatten(state.dual.params)
    after, metrics = update(state, batch, KEY)
    gradient = slope(lambda theta: numpy_losses(theta, before, batch)[0], before)
    close(after.dual.params, adam(before, gradient, state.dual.opt_state, LR), rtol=2e-3, atol=2e-4)
    _, w, cost = numpy_losses(before, before, batch)
    np.testing.assert_allclose(metrics["cost_bound"], cost, rtol=1e-4)
    s, a = arrays(batch)[:2]
    own = flatten(state.policy.params)
    gradient = slope(lambda theta: -np.mean(w * gaussian(theta, s, a, tanh=True)), own)
    close(after.policy.params, adam(own, gradient, state.policy.opt_state, LR), rtol=2e-3, atol=2e-4)


def test_the_bound_is_above_the_estimate_and_grows_with_its_radius():
    _, state = begun()
    batch, weight = make_batch(**COSTLY), jnp.linspace(0.2, 2.0, 16)
    at = lambda tau, **more: cost_bound(CoptiDICEConfig(**(LINEAR | more)), state.dual.params.chi, tau, weight, batch)
    plain = at(1.0, bound_radius=0.0)
    np.testing.assert_allclose(plain.cost, np.mean(np.asarray(weight) * np.asarray(batch.columns["cost"])), rtol=1e-5)
    far, near = at(0.1), at(10.0)
    assert far.divergence > near.divergence > 0  # a lower temperature goes further


def test_the_price_rises_while_the_cost_is_above_its_limit():
    for limit, way in ((-10.0, 1), (10.0, -1)):
        update, state = begun(cost_limit=limit, steps=0)
        after, _ = update(state, make_batch(**COSTLY), KEY)
        assert np.sign(float(after.dual.params.log_lam)) == way


def test_data_without_costs_are_refused_in_words():
    algo = make("copti-dice", SPEC, **LINEAR)
    with pytest.raises(OdiceError, match="no column 'cost'"):
        algo.update(algo.init(KEY), make_batch(initial=True), KEY)


SMALL = {"value_hidden": (32, 32), "policy_hidden": (32,), "alpha": 0.3, "discount": 0.8}
SMALL |= {"value_lr": 3e-3, "policy_lr": 3e-3, "init": "torch"}


@pytest.mark.long  # tests/algos/test_cors_dice.py holds the same of CORSDICE
def test_a_limit_moves_the_policy():
    assert_a_limit_moves_the_policy("copti-dice", **SMALL)


@pytest.mark.fast
@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"cost_limit": float("nan")}, "cost_limit"),
        ({"bound_radius": -0.1}, "bound_radius"),
        ({"alpha": 0.0}, "alpha must be a positive"),
        ({"divergence": "chi"}, "Valid: half-pearson, kl, soft-chi2"),
    ],
)
def test_bad_settings_are_refused(settings, message):
    with pytest.raises(OdiceError, match=message):
        CoptiDICEConfig(**settings)
