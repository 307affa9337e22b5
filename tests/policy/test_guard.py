"""The guard: states far from the log are recognized, what is not finite is never acted on, the file carries it all."""

import json

import jax
import numpy as np
import pytest

from odice import Policy
from odice.core.policies import CategoricalPolicy, GaussianPolicy
from odice.data.preprocess import Fitted
from odice.errors import OdiceError
from odice.files import sealed
from odice.policy.guard import Guard, fit_guard
from odice.types import Spec

NAMES = ("speed", "angle", "load")


def log(n: int, seed: int = 0) -> np.ndarray:
    """Three columns of which the third is the sum of the others, and a bit of noise."""
    rng = np.random.default_rng(seed)
    two = rng.normal(size=(n, 2)) * [2.0, 30.0] + [5.0, -100.0]
    return np.column_stack([two, two.sum(axis=1) + rng.normal(size=n)]).astype(np.float32)


@pytest.fixture(scope="module")
def guard() -> Guard:
    return fit_guard(log(4000), log(4000, seed=1), NAMES, ("m/s", "deg", "N"))


def policy(guard: Guard | None, discrete: bool = False) -> Policy:
    if discrete:
        return Policy.from_network(
            CategoricalPolicy(jax.random.key(0), Spec(3, 4, True), (8,)).deterministic(), guard=guard
        )
    fitted = Fitted(action_low=(-2.0, 0.0), action_high=(2.0, 5.0))
    return Policy.from_network(GaussianPolicy(jax.random.key(0), Spec(3, 2), (8,)).deterministic(), fitted, guard=guard)


def test_the_score_is_the_whitened_distance_to_the_nearest_state(guard):
    """Against a loop in double precision."""
    obs = log(20, seed=2).astype(np.float64) * 1.1
    for row, score in zip(obs, guard.score(obs), strict=True):
        white = ((row - guard.center) / guard.scale) @ guard.whiten.astype(np.float64)
        nearest = min(np.linalg.norm(white - state) for state in guard.states)
        assert score == pytest.approx(nearest / guard.warn, rel=1e-3, abs=1e-3)


def test_one_held_out_state_in_a_hundred_is_an_alarm(guard):
    scores = guard.score(log(20_000, seed=3))
    assert 0.006 < (scores > 1).mean() < 0.015  # 1 %: four standard errors of 4,000 and 20,000 draws
    assert (scores > guard.fall_back).mean() < 0.004


def test_the_quantile_is_that_of_the_calibration_states():
    calibration = log(999, seed=1)
    scores = fit_guard(log(2000), calibration).score(calibration)
    assert (scores > 1.00001).sum() == 9  # the 990th of 999 is the limit: (999 + 1) * 0.99


def test_an_unusual_combination_of_usual_columns_is_far(guard):
    obs = log(500, seed=4)
    odd = obs.copy()
    odd[:, 2] = obs[::-1, 2]  # each value is usual by itself
    assert (odd >= guard.low).all()
    assert (odd <= guard.high).all()
    assert np.median(guard.score(odd)) > 5 * np.median(guard.score(obs))


def test_a_column_that_never_changed_may_not_change():
    known = np.column_stack([log(500)[:, 0], np.full(500, 3.0)]).astype(np.float32)
    guard = fit_guard(known[:300], known[300:])
    assert guard.score(known[:50]).max() <= guard.fall_back
    assert guard.decide(guard.score(known[:1] + np.array([0.0, 1.0])))[0] == "fall back"


def test_decides_and_falls_back(guard):
    acting = policy(guard)
    obs = np.stack([guard.center, guard.center + 100 * guard.scale, np.full(3, np.nan)])
    answers = acting.guarded(obs, fall_back=np.array([0.5, 1.0]))
    assert answers.decision.tolist() == ["act", "fall back", "fall back"]
    assert answers.score[2] == np.inf
    np.testing.assert_allclose(answers.action[1:], [[0.5, 1.0]] * 2)
    np.testing.assert_array_equal(answers.action[0], acting(obs[0]))
    one = acting.guarded(obs[1], fall_back=lambda given: given[:2] * 0)
    assert one.decision == "fall back"
    assert one.action.tolist() == [0.0, 0.0]
    own = acting.guarded(obs[1])
    np.testing.assert_array_equal(own.action, acting(obs[1]))
    choice = policy(guard, discrete=True).guarded(obs, fall_back=3)
    assert choice.action[1:].tolist() == [3, 3]


def test_falls_back_to_another_policy_on_the_falling_rows_only(guard):
    acting, seen = policy(guard), []

    def other(obs):
        seen.append(obs)
        return np.ones((len(obs), 2))

    obs = np.stack([guard.center, guard.center + 100 * guard.scale])
    assert acting.guarded(obs, fall_back=other).action[1].tolist() == [1.0, 1.0]
    assert seen[0].shape == (1, 3)


@pytest.mark.parametrize("discrete", [False, True])
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf, 1e300])
def test_not_finite_is_an_error_with_the_columns_name(guard, discrete, bad):
    obs = np.stack([guard.center, guard.center]).astype(np.float64)
    obs[1, 1] = bad
    with pytest.raises(
        OdiceError, match=r"observation\[1\] \(angle\) is -?(nan|inf) in row 1; a policy acts on finite"
    ):
        policy(guard, discrete)(obs)
    with pytest.raises(OdiceError, match=r"observation\[1\] is -?(nan|inf); a policy"):
        policy(None, discrete)(obs[1])
    with pytest.raises(OdiceError, match="finite numbers only"):
        policy(guard, discrete).guarded(obs)


def test_without_a_guard_it_says_so():
    with pytest.raises(OdiceError, match="no guard"):
        policy(None).guarded(np.zeros(3))


def test_says_which_column_is_outside_the_log(guard):
    (sentence,) = guard.explain(guard.center + np.array([0, 1e4, 0]))
    assert sentence.startswith("angle is 9")
    assert " deg; the log has -" in sentence


def test_survives_its_file(guard, tmp_path):
    acting = policy(guard)
    acting.save(tmp_path / "p")
    again = Policy.load(tmp_path / "p")
    assert again.guard is not None
    obs = log(100, seed=5)
    np.testing.assert_array_equal(again.guard.score(obs), guard.score(obs))
    assert (again.guard.names, again.guard.units) == (NAMES, ("m/s", "deg", "N"))
    assert again.guard.fall_back == guard.fall_back
    described = json.loads((tmp_path / "p" / "policy.json").read_text())["observation"]
    np.testing.assert_allclose(described["low"], np.concatenate([log(4000), log(4000, seed=1)]).min(axis=0), rtol=1e-6)
    assert described["quantiles"]["0.5"][0] == pytest.approx(5.0, abs=0.2)
    assert again.guard.states.nbytes < 300_000


def test_a_wide_observation_keeps_the_guard_small():
    wide = np.random.default_rng(0).normal(size=(3000, 120)).astype(np.float32)
    guard = fit_guard(wide[:2000], wide[2000:])
    assert sum(array.nbytes for array in guard.tensors.values()) <= 310_000


@pytest.mark.parametrize(
    ("group", "change", "said"),
    [
        ("guard", {"states": -1}, "whole number from 1"),
        ("guard", {"states": "8"}, "whole number from 1"),
        ("guard", {"states": 5}, "bytes|shape"),
        ("guard", {"warn": 0}, "`guard.warn` must be a positive number"),
        ("guard", {"warn": "x"}, "`guard.warn` must be a positive number"),
        ("guard", {"fall_back": 0.5}, "falls back no earlier than it warns"),
        ("observation", {"names": ["a"]}, "list of 3 words"),
        ("observation", {"low": [1.0]}, "list of 3 numbers"),
        ("observation", {"high": None}, "is missing, and the guard needs it"),
    ],
)
def test_a_damaged_guard_is_refused(guard, tmp_path, group, change, said):
    policy(guard).save(tmp_path / "p")
    path = tmp_path / "p" / "policy.json"
    described = json.loads(path.read_text())
    described[group] |= change
    path.write_text(json.dumps(sealed(described)))
    with pytest.raises(OdiceError, match=said):
        Policy.load(tmp_path / "p")


@pytest.mark.parametrize("discrete", [False, True])
def test_the_onnx_graph_has_the_same_guard(guard, discrete, tmp_path):
    pytest.importorskip("onnx")
    runtime = pytest.importorskip("onnxruntime")
    from odice.policy.onnx import export_onnx

    acting = policy(guard, discrete)
    export_onnx(acting, tmp_path / "p.onnx")
    session = runtime.InferenceSession(tmp_path / "p.onnx")
    obs = np.concatenate([log(50, seed=6), log(3, seed=7)])
    obs[-3:, 1] = np.nan, np.inf, -np.inf
    action, novelty = session.run(None, {"observation": obs})
    np.testing.assert_allclose(novelty[:-3], guard.score(obs[:-3]), rtol=1e-3, atol=1e-3)
    assert (novelty[-3:] == np.inf).all()
    assert (action[-3:] == -1).all() if discrete else np.isnan(action[-3:]).all()
    np.testing.assert_allclose(action[:-3], acting(obs[:-3]), rtol=1e-4, atol=1e-4)
    assert float(session.get_modelmeta().custom_metadata_map["fall_back"]) == guard.fall_back


def test_the_onnx_graph_without_a_guard_refuses_too(tmp_path):
    pytest.importorskip("onnx")
    runtime = pytest.importorskip("onnxruntime")
    from odice.policy.onnx import export_onnx

    export_onnx(policy(None, discrete=True), tmp_path / "p.onnx")
    (action,) = runtime.InferenceSession(tmp_path / "p.onnx").run(
        None, {"observation": np.full((2, 3), np.nan, np.float32)}
    )
    assert action.tolist() == [-1, -1]


# --- what is given is checked at once ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "bad", ["stop", [1.0], [1.0, 2.0, 3.0], [0.0, 9.0], [0.0, np.nan], None, {"a": 1}, [[0.0, 1.0]]]
)
def test_a_fall_back_is_checked_before_it_is_needed(guard, bad):
    """Also where the observation is a usual one and nothing falls back."""
    acts, usual = policy(guard), log(1, seed=5)[0]
    assert acts.guarded(usual, [0.0, 1.0]).decision == "act"
    if bad is None:
        return
    with pytest.raises(OdiceError, match="fall_back"):
        acts.guarded(usual, bad)


@pytest.mark.parametrize("bad", ["b", 4, -1, 1.5, [1, 2], np.nan])
def test_a_fall_back_among_choices_is_one_of_them(guard, bad):
    usual = log(1, seed=5)[0]
    assert policy(guard, discrete=True).guarded(usual, 3).decision == "act"
    with pytest.raises(OdiceError, match="fall_back"):
        policy(guard, discrete=True).guarded(usual, bad)


def test_a_policy_to_fall_back_to_must_fit(guard):
    usual = log(1, seed=5)[0]
    policy(guard).guarded(usual, policy(None))
    with pytest.raises(OdiceError, match="does not fit"):
        policy(guard).guarded(usual, policy(None, discrete=True))


def test_what_a_function_gives_is_checked_too(guard):
    far = np.full(3, 1e6, np.float32)
    assert policy(guard).guarded(far, lambda obs: [0.0, 1.0]).action.tolist() == [0.0, 1.0]
    with pytest.raises(OdiceError, match="`fall_back` gives"):
        policy(guard).guarded(far, lambda obs: "stop")


@pytest.mark.parametrize(
    "bad",
    [
        *("abc", ["1", "2", "3"], [1, 2, 10**400], [[1, 2, 3], [1]], [None, 1, 2], 1j),
        *(np.array(["2025-01-01"] * 3, "M8[D]"), object(), [{}, {}, {}], b"123", {1, 2, 3}),
    ],
)
def test_what_is_no_array_of_numbers_is_one_sentence(guard, bad):
    with pytest.raises(OdiceError, match=r"The observation is .*give an array of numbers"):
        policy(guard)(bad)
    with pytest.raises(OdiceError, match=r"The observation is .*give an array of numbers"):
        policy(guard).guarded(bad)


def test_a_guard_of_one_state():
    guard = fit_guard(np.ones((1, 3), np.float32), np.zeros((0, 3), np.float32))
    assert guard.score(np.ones(3)) == 0
    assert guard.decide(guard.score(np.full(3, 2.0))) == "fall back"
