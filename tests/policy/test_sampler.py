"""Policies that make their action from noise: numpy beside JAX, files, damage, ONNX, the guard and the card."""

import json

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from odice import Policy
from odice.core.critics import Critic
from odice.core.diffusion import DiffusionPolicy, TimeMLP
from odice.data.preprocess import Fitted
from odice.errors import OdiceError
from odice.files import sealed
from odice.policy.guard import fit_guard
from odice.policy.sampler import Sampler
from odice.types import Spec

SPEC = Spec(4, 2)
FITTED = Fitted(
    obs_mean=(1.0, 0.0, -1.0, 2.0), obs_scale=(2.0, 1.0, 0.5, 1.0), action_low=(0.0, -2.0), action_high=(5.0, 3.0)
)
KINDS = {"all": (1.5, 6, 3), "no guidance": (0.0, 6, 1), "one candidate": (1.5, 1, 1), "a clone": (0.0, 1, 1)}


def network(kind="all", spec=SPEC) -> DiffusionPolicy:
    scale, candidates, heads = KINDS[kind]
    keys = jax.random.split(jax.random.key(0), 4)
    return DiffusionPolicy(
        TimeMLP(keys[0], spec, (24, 16), spec.action_dim),
        TimeMLP(keys[1], spec, (16, 24, 8), 1),
        Critic(keys[2], spec, (16, 8), heads=heads),
        jax.random.normal(keys[3], (candidates, spec.action_dim)),
        scale,
        9,
    )


def observations(n=300):
    return (2 * np.random.default_rng(0).normal(size=(n, 4)) + 1).astype(np.float32)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("fitted", [Fitted(), FITTED])
def test_numpy_equals_jax(kind, fitted):
    acts, obs = network(kind), observations()
    policy = Policy.from_network(acts.deterministic(), fitted)
    expected = fitted.act(np.asarray(eqx.filter_jit(acts.mode)(jnp.asarray(fitted.observe(obs)))))
    assert policy(obs).dtype == np.float32
    np.testing.assert_allclose(policy(obs), expected, atol=2e-5)
    np.testing.assert_allclose(policy(obs[0]), expected[0], atol=2e-5)
    np.testing.assert_allclose(policy(obs.reshape(10, 30, 4)), expected.reshape(10, 30, 2), atol=2e-5)
    assert policy(np.zeros((0, 4))).shape == (0, 2)


def test_one_observation_gets_one_action_whatever_stands_beside_it():
    policy, obs = Policy.from_network(network().deterministic()), observations(5000)  # more than one piece of rows
    np.testing.assert_allclose(policy(obs)[4321], policy(obs[4321]), atol=1e-5)
    np.testing.assert_array_equal(policy(obs), policy(obs))


@pytest.mark.slow
def test_the_indicator_of_an_absorbing_state_is_left_out():
    wide = network(spec=Spec(5, 2))
    policy = Policy.from_network(wide.deterministic(), Fitted(absorbing=True))
    obs = observations(20)
    seen = np.concatenate([obs, np.zeros((20, 1), np.float32)], axis=1)
    np.testing.assert_allclose(policy(obs), wide.mode(jnp.asarray(seen)), atol=2e-5)
    assert policy.obs_dim == 4


@pytest.fixture
def saved(tmp_path):
    rng = np.random.default_rng(0)
    guard = fit_guard(rng.normal(size=(200, 4)), rng.normal(size=(100, 4)))
    policy = Policy.from_network(network().deterministic(), FITTED, algorithm="diffusion-dice", step=7, guard=guard)
    policy.save(tmp_path / "policy")
    return tmp_path / "policy"


def test_a_file_holds_it_and_the_card_says_what_it_is(saved):
    policy = Policy.load(saved)
    assert isinstance(policy.layout, Sampler)
    assert repr(policy) == "Policy(diffusion-dice, 4 -> 2, step 7)"
    np.testing.assert_array_equal(
        policy(observations()), Policy.from_network(network().deterministic(), FITTED)(observations())
    )
    content = json.loads((saved / "policy.json").read_text())
    assert (content["version"], content["network"]["kind"]) == (3, "sampler")
    card = (saved / "README.md").read_text()
    assert "diffusion: 9 steps with a score network of 24 - 16, guided by a network of 16 - 24 - 8" in card
    assert "of 6 candidates the one with the largest Q" in card


def test_the_guard_acts_with_it(saved):
    policy = Policy.load(saved)
    answer = policy.guarded(np.full(4, 50.0), fall_back=[1.0, 0.0])
    assert (answer.decision, answer.action.tolist()) == ("fall back", [1.0, 0.0])
    np.testing.assert_allclose(policy.guarded(np.zeros(4)).action, policy(np.zeros(4)))
    with pytest.raises(OdiceError, match=r"observation\[1\] is nan"):
        policy([0.0, np.nan, 0.0, 0.0])


def test_one_network_is_written_as_before(tmp_path):
    from odice.core.policies import TanhPolicy

    Policy.from_network(TanhPolicy(jax.random.key(0), SPEC, (8,)).deterministic()).save(tmp_path / "policy")
    content = json.loads((tmp_path / "policy" / "policy.json").read_text())
    assert content["version"] == 2  # an older odice reads it
    assert "kind" not in content["network"]


def changed(saved, **network):
    path = saved / "policy.json"
    content = json.loads(path.read_text())
    content.pop("sha256")
    content["version"] = network.pop("version", 3)
    content["network"] |= network
    path.write_text(json.dumps(sealed(content)))


HOSTILE = {
    "`network.steps` must be a whole number from 1 to 1000": {"steps": 10**9},
    "`network.candidates` must be": {"candidates": 0},
    "`network.heads` must be": {"heads": True},
    "`network.score` must be a list of 1 to 64 widths": {"score": []},
    "`network.guidance` must be whole numbers": {"guidance": [8, -1]},
    "more than": {"score": [1 << 20, 1 << 20]},
    "there is one where there are several": {"critic": []},
    "`network.kind` is not one that format version 2 has": {"version": 2},
    "`network.kind` is not one that format version 3 has": {"kind": "pickle"},
    "the first difference is": {"guidance": []},
    "must be float32 of shape (8, 2)": {"candidates": 8},
}


@pytest.mark.parametrize("says", HOSTILE)
def test_hostile_descriptions_are_refused(saved, says):
    changed(saved, **HOSTILE[says])
    with pytest.raises(OdiceError) as caught:
        Policy.load(saved)
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_network_that_no_file_can_hold_is_refused():
    keys = jax.random.split(jax.random.key(0), 2)
    acts = network()
    flat = DiffusionPolicy(TimeMLP(keys[0], SPEC, (), 2), acts.guidance, acts.critic, acts.noise, 1.0, 5)
    with pytest.raises(OdiceError, match="cannot hold this score network"):
        Policy.from_network(flat.deterministic())


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_the_graph_acts_like_the_policy(kind, tmp_path):
    pytest.importorskip("onnx")
    runtime = pytest.importorskip("onnxruntime")
    from odice.policy.onnx import export_onnx

    rng = np.random.default_rng(0)
    guard = fit_guard(rng.normal(size=(200, 4)), rng.normal(size=(100, 4))) if kind == "all" else None
    policy = Policy.from_network(network(kind).deterministic(), FITTED, guard=guard)
    result = export_onnx(policy, tmp_path / "policy.onnx")
    assert result.difference <= result.allowed < 1e-3
    session = runtime.InferenceSession(str(tmp_path / "policy.onnx"), providers=["CPUExecutionProvider"])
    obs = observations(50)
    np.testing.assert_allclose(session.run(None, {"observation": obs})[0], policy(obs), atol=1e-4)
    broken = session.run(None, {"observation": np.full((1, 4), np.nan, np.float32)})
    assert np.isnan(broken[0]).all()


@pytest.mark.slow
def test_a_graph_of_another_policy_is_noticed():
    pytest.importorskip("onnxruntime")
    from odice.policy.onnx import onnx_model, parity

    ours = Policy.from_network(network().deterministic())
    noise = {**ours.tensors, "noise": ours.tensors["noise"] + 0.1}
    result = parity(ours, onnx_model(Policy(ours.layout, noise)))
    assert result.difference > 10 * result.allowed
