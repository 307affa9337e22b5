"""The artifact: acts like the jax network, survives a trip through its files, and refuses what is not exactly right."""

import os
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from odice import Policy
from odice.core.networks import MLP
from odice.core.policies import CategoricalPolicy, Deterministic
from odice.data.preprocess import Fitted
from odice.errors import OdiceError
from odice.files import recover
from odice.policy import file as policy_file
from odice.policy.policy import open_policy
from odice.types import Spec
from tests.policy.support import FITTED, description, gaussian, save_policy


def observations(n: int = 1000, width: int = 4) -> np.ndarray:
    return (np.random.default_rng(0).normal(size=(n, width)) * 3).astype(np.float32)


@pytest.fixture
def saved(tmp_path):
    return save_policy(tmp_path / "policy")


# --- acting -----------------------------------------------------------------------------------------------------------


def test_acts_by_hand():
    """One layer, numbers small enough to do on paper."""
    network = Deterministic(MLP(jax.random.key(0), (2, 1)), "clip")
    network.network.weights[0] = jnp.array([[0.5], [-0.25]])
    network.network.biases[0] = jnp.array([0.1])
    fitted = Fitted(obs_mean=(1.0, 2.0), obs_scale=(2.0, 4.0), action_low=(0.0,), action_high=(10.0,))
    policy = Policy.from_network(network, fitted)
    # (3-1)/2 = 1, (0-2)/4 = -0.5: 0.5 + 0.125 + 0.1 = 0.725 -> 0 + 1.725 * 5
    np.testing.assert_allclose(policy([3.0, 0.0]), [8.625], rtol=1e-6)
    # far outside: clipped to 1, then mapped to the upper bound
    assert policy([[99.0, 0.0]]).tolist() == [[10.0]]


@pytest.mark.parametrize("tanh_mean", [False, True])
@pytest.mark.parametrize("fitted", [Fitted(), FITTED])
def test_equals_the_jax_policy(tanh_mean, fitted):
    network = gaussian(tanh_mean=tanh_mean)
    policy = Policy.from_network(network.deterministic(), fitted)
    obs = observations()
    expected = fitted.act(np.asarray(network.mode(jnp.asarray(fitted.observe(obs)))))
    assert policy(obs).dtype == np.float32
    np.testing.assert_allclose(policy(obs), expected, atol=1e-5)
    np.testing.assert_allclose(policy(obs[0]), expected[0], atol=1e-5)
    np.testing.assert_allclose(policy(obs.reshape(10, 100, 4)), expected.reshape(10, 100, 2), atol=1e-5)


def test_equals_the_jax_policy_discrete():
    network = CategoricalPolicy(jax.random.key(0), Spec(4, 5, True), (32,))
    policy = Policy.from_network(network.deterministic())
    obs = observations()
    assert policy.discrete
    np.testing.assert_array_equal(policy(obs), np.asarray(network.mode(jnp.asarray(obs))))
    assert policy(obs[0]).shape == ()


@pytest.mark.parametrize("activation", [jax.nn.relu, jax.nn.tanh, jax.nn.elu])
def test_layer_norm_and_activations_equal_jax(activation):
    network = MLP(jax.random.key(0), (4, 16, 16, 3), layer_norm=True, activation=activation)
    network.scales[0], network.shifts[1] = jnp.linspace(0.5, 2, 16), jnp.linspace(-1, 1, 16)
    policy = Policy.from_network(Deterministic(network, "clip"))
    obs = observations()
    np.testing.assert_allclose(policy.outputs(obs), np.asarray(network(jnp.asarray(obs))), atol=1e-5)


def test_needs_no_jax(saved):
    code = f"""
import sys, numpy, odice
policy = odice.Policy.load({str(saved)!r})
assert policy(numpy.zeros(4)).shape == (2,)
assert not [name for name in ("jax", "equinox", "gymnasium", "onnx") if name in sys.modules]
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def test_wrong_observation_is_refused(saved):
    with pytest.raises(OdiceError, match="4 numbers, got an array of shape"):
        Policy.load(saved)(np.zeros(5))
    with pytest.raises(OdiceError, match="got an array of shape"):
        Policy.load(saved)(1.0)


def test_unknown_activation_is_refused():
    network = MLP(jax.random.key(0), (4, 8, 3), activation=jax.nn.silu)
    with pytest.raises(OdiceError, match="silu"):
        Policy.from_network(Deterministic(network, "clip"))


# --- files ------------------------------------------------------------------------------------------------------------


def test_round_trip(saved):
    policy = Policy.load(saved)
    original = Policy.from_network(gaussian().deterministic(), FITTED)
    np.testing.assert_array_equal(policy(observations()), original(observations()))
    assert (policy.env_id, policy.reference, policy.discrete) == ("Hopper-v4", (0.0, 10.0), False)
    assert policy.about["config"] == {"lam": 0.6, "clamp": "inf"}
    assert policy.about["preprocess"] == {"reward_scale": 3.0}
    assert policy.with_scores({"mean": np.float32(2)}).about["scores"] == {"mean": 2.0}
    assert sorted(os.listdir(saved)) == ["README.md", "policy.json", "policy.safetensors"]
    card = (saved / "README.md").read_text()
    assert "odice for Hopper-v4" in card
    assert "| mean | 1.5 |" in card
    assert "data fingerprint | abc" in card


def test_a_policy_says_briefly_what_it_is(saved):
    assert repr(Policy.load(saved)) == "Policy(odice, 4 -> 2, step 7)"
    assert repr(Policy.from_network(gaussian().deterministic(), step=20_000)) == "Policy(4 -> 2, step 20,000)"
    choices = CategoricalPolicy(jax.random.key(0), Spec(4, 3, discrete=True), (8,))
    assert repr(Policy.from_network(choices.deterministic(), algorithm="bc")) == "Policy(bc, 4 -> 3 choices)"


@pytest.mark.parametrize("step", ["many", [1], -1, 10**300, 1.5, True])
def test_a_step_is_a_whole_number(saved, step):
    description(lambda about: about.update(step=step))(saved)
    with pytest.raises(OdiceError, match="`step` must be a whole number"):
        Policy.load(saved)


def test_save_replaces_and_leaves_nothing_behind(saved):
    other = Policy.from_network(gaussian(tanh_mean=True).deterministic(), step=8)
    other.save(saved)
    assert Policy.load(saved).about["step"] == 8
    assert os.listdir(saved.parent) == ["policy"]


def test_killed_between_the_renames(saved):
    """The moment in which the old folder stepped aside and the new one is not there yet."""
    os.replace(saved, saved.with_name(".policy.old"))
    (saved.parent / ".policy.0123abcd.tmp").mkdir()
    recover(saved)
    assert os.listdir(saved.parent) == ["policy"]
    assert Policy.load(saved).about["step"] == 7


def test_failed_save_keeps_the_old_policy(saved, monkeypatch):
    monkeypatch.setattr("odice.policy.card.model_card", lambda policy: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        Policy.from_network(gaussian().deterministic(), step=9).save(saved)
    assert Policy.load(saved).about["step"] == 7
    assert os.listdir(saved.parent) == ["policy"]


def test_never_writes_a_broken_policy(tmp_path):
    network = gaussian()
    network.mean.biases[0] = network.mean.biases[0].at[3].set(jnp.nan)
    with pytest.raises(OdiceError, match=r"layers\.0\.bias.*not finite"):
        Policy.from_network(network.deterministic()).save(tmp_path / "policy")
    assert os.listdir(tmp_path) == []


def test_save_does_not_replace_a_strangers_folder(tmp_path):
    (tmp_path / "thesis.txt").write_text("important")
    with pytest.raises(OdiceError, match="is not a policy"):
        Policy.from_network(gaussian().deterministic()).save(tmp_path)
    assert (tmp_path / "thesis.txt").read_text() == "important"


def test_a_full_disk_keeps_the_old_policy(saved, monkeypatch):
    def full(self, *arguments):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("pathlib.Path.write_text", full)
    with pytest.raises(OdiceError, match="policy cannot be written: No space left on device"):
        Policy.from_network(gaussian().deterministic(), step=9).save(saved)
    assert Policy.load(saved).about["step"] == 7
    assert os.listdir(saved.parent) == ["policy"]


def test_open_policy(saved, tmp_path):
    run = tmp_path / "run"
    Policy.load(saved).save(run / "policy" / "last")
    assert open_policy(run).about["step"] == 7
    assert open_policy(saved).about["step"] == 7
    with pytest.raises(OdiceError, match="no 'best' policy; it has last"):
        open_policy(run, "best")
    with pytest.raises(OdiceError, match="does not exist"):
        open_policy(tmp_path / "nowhere")
    Policy.load(saved).save(tmp_path / "many" / "seed-0" / "policy" / "last")
    with pytest.raises(OdiceError, match="holds 1 runs; name one of them"):
        open_policy(tmp_path / "many")


def test_names():
    options = 'Maze-v3?obs=observation,goal/x&maze_map=[[1,"r"],[0,1]]&scale=-0.5'
    for good in ("odice", "Hopper-v4", "D4RL/hopper/medium-v2", "package.envs:Mine-v0", options):
        assert policy_file.is_name(good)
    for bad in (
        "",
        "a b",
        "../a",
        "a/../b",
        "/etc",
        "a:b:c",
        "x" * 201,
        "a\n",
        None,
        3,
        "a?",
        "a?b",
        "a?b=<i>",
        "a?b=../c",
    ):
        assert not policy_file.is_name(bad)
