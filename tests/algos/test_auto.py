"""The default: one whole update of each of its parts against numpy on linear networks."""

import itertools

import jax
import numpy as np
import pytest

from odice.algos.auto import AutoConfig, derived
from odice.core.learner import Learned
from odice.errors import OdiceError
from tests.algos import numpy_vdice as vdice
from tests.algos.numpy_vdice import CLAMP, GAMMA, GRADIENT, LINEAR, LR, NAMES, OFF, make_batch
from tests.algos.support import adam, arrays, close, compiled, flatten, heads, linear

CREDIT = 0.7
ADAPTED = OFF | {"value_ess": 0.8, "policy_ess": 0.3, "value_start": 1.5}


def algo_state(name="odice", steps_before=3, **settings):
    """A state a few updates old, so that the target network is not the online one."""
    algo = compiled("auto", **(LINEAR | OFF | vdice.eta_of(name) | {"gradient": GRADIENT[name]} | settings))
    state = algo.init(jax.random.key(1))
    for i in range(steps_before):
        batch = make_batch(seed=10 + i, credit=bool(settings.get("credit_weight")))
        state, _ = algo.update(state, batch, jax.random.key(0))
    return algo, state


def critic_values(state, s, a):
    return heads(flatten(state.next_state.params), np.concatenate([s, a], 1), 2)


def baseline_values(baseline: Learned, s):
    return linear(flatten(baseline.params), s)[:, 0]


def advantage(state, batch, residual, credit):
    """The residual and the credit, each in its own standard deviations, without what the baseline explains."""
    s, *_ = arrays(batch)
    if credit:
        residual = residual / residual.std() + CREDIT * np.asarray(batch.columns["credit"], np.float64)
    return residual.mean(0) - baseline_values(state.extraction.baseline, s), residual.mean(0)


def numpy_update(name, state, batch, start=0.0, averaged="off", credit=False):
    """The new value, target, policy, and what the policy's residual was."""
    s, a, *_ = arrays(batch)
    r_f, r_b, v = vdice.residuals(name, state, batch, start)
    temperature = 1.0 if state.temperature is None else float(np.exp(state.temperature))
    mean = r_f if averaged == "off" else critic_values(state, s, a) + start - v
    slope_f, slope_b = (vdice.slope(mean if averaged == "both" else r, temperature) for r in (r_f, r_b))
    excess = slope_b if state.temperature is None else slope_b - 1
    value, target = vdice.value_step(name, state, batch, slope_f, excess)
    weight = vdice.paper_weight(mean)
    if state.extraction is not None:
        level, spread = (float(x) for x in state.extraction.threshold)
        above = np.maximum(advantage(state, batch, mean, credit)[0] - level * spread, 0)
        weight = np.minimum(above / above.mean(), CLAMP)
    return value, target, vdice.policy_step(state, batch, weight), mean


def numpy_critic(name, state, batch, start=0.0):
    """The critic after one step towards r + gamma m V(s'), which is R_f + V(s) without where both start."""
    s, a, *_ = arrays(batch)
    r_f, _, v = vdice.residuals(name, state, batch, start)
    error = 2 * (critic_values(state, s, a) - (r_f + v - start)) / r_f.size
    gradient = np.concatenate([(error @ np.concatenate([s, a], 1)).ravel(), error.sum(1)])
    return vdice.adam(flatten(state.next_state.params), gradient, state.next_state.opt_state, LR)


def check_networks(after, expected, **tolerance):
    for part, numbers in zip((after.value.params, after.target, after.policy.params), expected, strict=False):
        close(part, numbers, **({"rtol": 2e-4, "atol": 2e-5} | tolerance))


@pytest.mark.parametrize("name", NAMES)
def test_with_every_part_off_it_is_the_papers(name):
    batch = make_batch()
    algo, state = algo_state(name, twin=True)
    paper = compiled(name, **LINEAR, **vdice.eta_of(name), twin=True)
    same = paper.init(jax.random.key(1))
    for i in range(3):
        same, _ = paper.update(same, make_batch(seed=10 + i), jax.random.key(0))
    for after in (algo.update(state, batch, None), paper.update(same, batch, None)):
        check_networks(after[0], vdice.numpy_update(name, state, batch))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(("averaged", "adapted"), [("policy", False), ("both", False), ("both", True)])
def test_one_update_with_a_critic_equals_numpy(name, averaged, adapted):
    settings = ADAPTED if adapted else OFF
    batch, start = make_batch(), settings["value_start"]
    algo, state = algo_state(name, **settings | {"double_sampling": averaged, "twin": True})
    expected = numpy_update(name, state, batch, start, averaged)
    after, _ = algo.update(state, batch, jax.random.key(0))
    check_networks(after, expected)
    close(after.next_state.params, numpy_critic(name, state, batch, start), rtol=2e-4, atol=2e-5)


@pytest.mark.parametrize("name", ["odice", "sdice"])
def test_one_adapted_update_equals_numpy(name):
    batch = make_batch()
    algo, state = algo_state(name, twin=True, **ADAPTED)
    expected = numpy_update(name, state, batch, ADAPTED["value_start"])
    after, metrics = algo.update(state, batch, jax.random.key(0))
    check_networks(after, expected)
    assert after.temperature != state.temperature
    np.testing.assert_allclose(metrics["temperature"], np.exp(after.temperature), rtol=1e-6)


@pytest.mark.parametrize("credit", [False, True])
@pytest.mark.parametrize("averaged", ["off", "policy"])
def test_one_update_with_a_baseline_equals_numpy(averaged, credit):
    more = {"double_sampling": averaged, "twin": True}
    more |= {"credit_weight": CREDIT} if credit else {}
    batch, start = make_batch(credit=credit), ADAPTED["value_start"]
    algo, state = algo_state("odice", **(ADAPTED | more))
    *expected, mean = numpy_update("odice", state, batch, start, averaged, credit)
    after, _ = algo.update(state, batch, jax.random.key(0))
    check_networks(after, expected)
    (s, *_), before = arrays(batch), state.extraction.baseline
    error = 2 * (baseline_values(before, s) - advantage(state, batch, mean, credit)[1]) / len(s)
    baseline = adam(flatten(before.params), np.concatenate([error @ s, [error.sum()]]), before.opt_state, LR)
    close(after.extraction.baseline.params, baseline, rtol=2e-4, atol=2e-5)


def test_the_policy_learns_from_the_chosen_rows_and_values_from_all():
    more = {"double_sampling": "policy", "twin": True}
    algo, state = algo_state("odice", **(ADAPTED | more))
    batch, chosen, start = make_batch(), make_batch(seed=77), ADAPTED["value_start"]
    value, target, *_ = numpy_update("odice", state, batch, start, "policy")
    policy = numpy_update("odice", state, chosen, start, "policy")[2]
    after, _ = algo.update(state, batch._replace(chosen=chosen), jax.random.key(0))
    check_networks(after, (value, target, policy))
    close(after.next_state.params, numpy_critic("odice", state, batch, start), rtol=2e-4, atol=2e-5)


def test_the_share_of_the_episodes_follows_from_the_distance():
    assert derived(AutoConfig(distance="far"))["chosen_share"] == (0.1, "distance far")
    assert derived(AutoConfig(chosen_share=0.7)) == {}
    assert derived(AutoConfig(double_sampling="off"))["chosen_share"][0] == 1.0


def test_a_batch_without_credit_is_refused():
    algo, state = algo_state(steps_before=0, **(ADAPTED | {"credit_weight": 1.0}))
    with pytest.raises(OdiceError, match="no column 'credit'"):
        algo.update(state, make_batch(), jax.random.key(0))


def test_rates_fall_to_zero():
    algo, state = algo_state(steps_before=0, cosine_steps=3)
    states = [state]
    for i in range(5):
        states.append(algo.update(states[-1], make_batch(seed=i), jax.random.key(0))[0])
    moved = [np.abs(flatten(b.policy.params) - flatten(a.policy.params)).max() for a, b in itertools.pairwise(states)]
    assert moved[0] > moved[1] > moved[2] > 0
    assert moved[3] == moved[4] == 0


def test_the_policy_is_the_average_of_its_weights():
    algo, state = algo_state(steps_before=0, average=2.0)
    mean = None
    for i in range(6):
        state, _ = algo.update(state, make_batch(seed=i), jax.random.key(0))
        latest, share = flatten(state.policy.params), min(1.0, 2.0 / (i + 1))
        mean = latest if mean is None else mean + share * (latest - mean)
    np.testing.assert_allclose(flatten(algo.policy(state)), mean, rtol=1e-5, atol=1e-6)
    assert np.abs(mean - flatten(state.policy.params)).max() > 1e-3


@pytest.mark.fast
@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"value_ess": -0.1}, "value_ess must lie between 0 and 1"),
        ({"policy_ess": 1.0}, "policy_ess must lie"),
        ({"chosen_share": 0.0}, "chosen_share must lie above 0"),
        ({"balance": -0.1}, "balance must not be negative"),
        ({"credit_weight": -1.0}, "credit_weight must not be negative"),
        ({"average": 0.5}, "average must be 0 or at least 1"),
        ({"cosine_steps": -1}, "cosine_steps"),
        ({"gradient": "orthogonl"}, "Did you mean 'orthogonal'"),
        ({"eta": -0.5}, "eta must be at least 0"),
    ],
)
def test_bad_settings_are_refused(settings, message):
    with pytest.raises(OdiceError, match=message):
        AutoConfig(**settings)


def test_one_constant_added_to_every_value_start_moves_nothing_but_values():
    """`value_start` enters V(s) and V(s') alike: R falls by (1 - gamma m) of it."""
    batch = make_batch()
    low, high = (algo_state(steps_before=0, value_start=start) for start in (0.0, 2.0))
    _, a = low[0].update(low[1], batch, None)
    _, b = high[0].update(high[1], batch, None)
    *_, mask = arrays(batch)
    np.testing.assert_allclose(b["value_mean"] - a["value_mean"], 2.0, rtol=1e-5)
    np.testing.assert_allclose(a["residual_mean"] - b["residual_mean"], 2.0 * (1 - GAMMA * mask.mean()), rtol=1e-4)
