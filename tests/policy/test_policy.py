"""The artifact: acts like the jax network, survives a trip through its files, and refuses what is not exactly right."""

import dataclasses
import json
import os
import pickle
import struct
import subprocess
import sys
import time

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from odice import Policy
from odice.core.networks import MLP
from odice.core.policies import CategoricalPolicy, Deterministic, GaussianPolicy
from odice.data.preprocess import Fitted
from odice.errors import OdiceError
from odice.files import recover, sealed
from odice.policy import file as policy_file
from odice.policy.policy import open_policy
from odice.types import Spec

FITTED = Fitted(
    obs_mean=(1.0, -2.0, 3.0, 0.5),
    obs_scale=(0.5, 2.0, 10.0, 1.0),
    action_low=(-2.0, 0.0),
    action_high=(2.0, 5.0),
    reward_scale=3.0,
)


def observations(n: int = 1000, width: int = 4) -> np.ndarray:
    return (np.random.default_rng(0).normal(size=(n, width)) * 3).astype(np.float32)


def gaussian(**options) -> GaussianPolicy:
    return GaussianPolicy(jax.random.key(0), Spec(4, 2), (32, 32), **options)


@pytest.fixture
def saved(tmp_path):
    about = {"algorithm": "odice", "config": {"lam": 0.6, "clamp": float("inf")}, "data": {"fingerprint": "abc"}}
    policy = Policy.from_network(
        gaussian().deterministic(), FITTED, env_id="Hopper-v4", reference=(0, 10), scores={"mean": 1.5}, step=7, **about
    )
    policy.save(tmp_path / "policy")
    return tmp_path / "policy"


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


# --- hostile files ----------------------------------------------------------------------------------------------------


class Bomb:
    def __reduce__(self):
        return os.system, ("touch bomb-went-off",)


def tensor_file(header: bytes, data: bytes = b"", length: int | None = None) -> bytes:
    return struct.pack("<Q", len(header) if length is None else length) + header + data


def split(folder) -> tuple[dict, bytes]:
    raw = (folder / "policy.safetensors").read_bytes()
    size = int.from_bytes(raw[:8], "little")
    return json.loads(raw[8 : 8 + size]), raw[8 + size :]


def weights(change):
    """A change of the tensors' header and data, packed again."""

    def apply(folder):
        header, data = split(folder)
        header, data = change(header, data)
        (folder / "policy.safetensors").write_bytes(tensor_file(json.dumps(header).encode(), data))

    return apply


def description(change):
    def apply(folder):
        content = json.loads((folder / "policy.json").read_text())
        change(content)
        (folder / "policy.json").write_text(json.dumps(sealed(content)))  # as somebody would who means it

    return apply


def raw_weights(content: bytes):
    return lambda folder: (folder / "policy.safetensors").write_bytes(content)


def raw_description(content: bytes):
    return lambda folder: (folder / "policy.json").write_bytes(content)


def link(folder):
    (folder.parent / "elsewhere").write_bytes((folder / "policy.safetensors").read_bytes())
    (folder / "policy.safetensors").unlink()
    (folder / "policy.safetensors").symlink_to(folder.parent / "elsewhere")


def pipe(folder):
    (folder / "policy.json").unlink()
    os.mkfifo(folder / "policy.json")


def endless(folder):
    (folder / "policy.json").unlink()
    (folder / "policy.json").symlink_to("/dev/zero")


def sparse(folder):
    with open(folder / "policy.safetensors", "r+b") as file:
        file.truncate(1 << 40)


def overlap(header, data):
    header["layers.1.bias"]["data_offsets"] = header["layers.0.bias"]["data_offsets"]
    return header, data


def with_tensor(header, data):
    return header | {"extra": {"dtype": "F32", "shape": [1], "data_offsets": [len(data), len(data) + 4]}}, data + bytes(
        4
    )


def without_tensor(header, data):
    header.pop("layers.0.bias")
    return header, data


def other_type(header, data):
    header["layers.0.bias"]["dtype"] = "I32"
    return header, data


def other_shape(header, data):
    header["layers.0.bias"]["shape"] = [16, 2]
    return header, data


def not_finite(header, data):
    return header, np.float32(np.nan).tobytes() + data[4:]


HOSTILE = {
    "pickle for weights": raw_weights(pickle.dumps(Bomb())),
    "pickle for json": raw_description(pickle.dumps(Bomb())),
    "no weights": lambda folder: (folder / "policy.safetensors").unlink(),
    "no json": lambda folder: (folder / "policy.json").unlink(),
    "empty weights": raw_weights(b""),
    "empty json": raw_description(b""),
    "header longer than the file": raw_weights(tensor_file(b"{}", length=2**63)),
    "header of 100 MB": raw_weights(tensor_file(b" " * 100_000_000)),
    "header is deep": raw_weights(tensor_file(b"[" * 3000)),
    "header is a list": raw_weights(tensor_file(b"[]")),
    "header repeats a key": raw_weights(tensor_file(b'{"a": 1, "a": 2}')),
    "offsets overlap": weights(overlap),
    "one tensor more": weights(with_tensor),
    "one tensor less": weights(without_tensor),
    "integers": weights(other_type),
    "another shape": weights(other_shape),
    "weights are not finite": weights(not_finite),
    "too few bytes": weights(lambda header, data: (header, data[:-4])),
    "too many bytes": weights(lambda header, data: (header, data + bytes(4))),
    "other weights": weights(lambda header, data: (header, data[:-4] + bytes(4))),
    "a terabyte": sparse,
    "weights are a link": link,
    "json is a pipe": pipe,
    "json is endless": endless,
    "json of 100 MB": raw_description(b'{"a": "' + b"x" * 100_000_000 + b'"}'),
    "json is deep": raw_description(b'{"a":' * 100_000),
    "json with NaN": raw_description(b'{"format": NaN}'),
    "json with a huge number": raw_description(b'{"format": ' + b"9" * 10_000 + b"}"),
    "json is not text": raw_description(b"\xff\xfe\x00"),
    "another format": description(lambda d: d.update(format="torch")),
    "another version": description(lambda d: d.update(version=99)),
    "sizes are huge": description(lambda d: d["network"].update(sizes=[2**19, 2**19])),
    "sizes are negative": description(lambda d: d["network"].update(sizes=[4, -1, 2])),
    "sizes are floats": description(lambda d: d["network"].update(sizes=[4.0, 2.0])),
    "sizes are true": description(lambda d: d["network"].update(sizes=[True, 2])),
    "sizes are other ones": description(lambda d: d["network"].update(sizes=[4, 32, 64, 2])),
    "a million layers": description(lambda d: d["network"].update(sizes=[1] * 1_000_000)),
    "unknown activation": description(lambda d: d["network"].update(activation="__import__")),
    "activation is a list": description(lambda d: d["network"].update(activation=["relu"])),
    "unknown output": description(lambda d: d["network"].update(output="exec")),
    "mean too short": description(lambda d: d["observation"].update(mean=[0.0])),
    "mean too large": description(lambda d: d["observation"].update(mean=[1e300] * 4)),
    "mean beyond float": description(lambda d: d["observation"].update(mean=[10**400] * 4)),
    "mean of words": description(lambda d: d["observation"].update(mean=["0"] * 4)),
    "mean infinite": lambda folder: (folder / "policy.json").write_text(
        (folder / "policy.json").read_text().replace('"mean": [\n   1.0', '"mean": [\n   1e999')
    ),
    "mean without scale": description(lambda d: d["observation"].update(scale=None)),
    "scale of zero": description(lambda d: d["observation"].update(scale=[0.0] * 4)),
    "bounds swapped": description(lambda d: d["action"].update(low=[9.0, 9.0])),
    "reference beyond float": description(lambda d: d.update(reference=[0, 10**400])),
    "reference of words": description(lambda d: d.update(reference=["a", "b"])),
    "config is a list": description(lambda d: d.update(config=[1])),
    "env_id is a path": description(lambda d: d.update(env_id="../../etc/passwd")),
    "env_id is an object": description(lambda d: d.update(env_id={"a": 1})),
    "env_id with an escape": description(lambda d: d.update(env_id="\x1b[2J")),
}


# Changes of the weights that the digest would notice anyway: each must be refused for its own reason.
REASONS = {
    "pickle for weights": "impossible length",
    "empty weights": "impossible length",
    "header longer than the file": "impossible length",
    "header of 100 MB": "bytes where at most",
    "header is deep": "nests too deeply",
    "header is a list": "not an object",
    "header repeats a key": "a key appears twice",
    "offsets overlap": "header is damaged",
    "one tensor more": "the first difference is 'extra'",
    "one tensor less": "the first difference is 'layers.0.bias'",
    "integers": "must be float32 of shape (32,)",
    "another shape": "must be float32 of shape (32,)",
    "weights are not finite": "not finite",
    "too few bytes": "bytes of weights",
    "too many bytes": "bytes of weights",
    "other weights": "SHA-256",
    "a terabyte": "bytes where at most",
    "weights are a link": "is a link",
    "json is deep": "nests too deeply",
    "json with NaN": "NaN is not a JSON number",
    "sizes are huge": "more than",
    "mean infinite": "SHA-256",
    "reference beyond float": "two numbers",
    "scale of zero": "must be positive",
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_files_are_refused(name, saved, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    HOSTILE[name](saved)
    began = time.perf_counter()
    with pytest.raises(OdiceError) as caught:
        Policy.load(saved)
    assert time.perf_counter() - began < 2
    message = str(caught.value)
    assert REASONS.get(name, "") in message
    assert "\n" not in message
    assert len(message) < 500
    assert not (tmp_path / "bomb-went-off").exists()


def acted(folder):
    """All that a policy does and says: its actions, and what its description claims."""
    policy = Policy.load(folder)
    observations = np.random.default_rng(0).normal(size=(32, policy.obs_dim))
    return policy(observations).tobytes(), policy.outputs(observations).tobytes(), json.dumps(dict(policy.about))


@pytest.mark.parametrize("name", ["policy.json", "policy.safetensors"])
def test_a_thousand_flipped_bits(saved, name):
    """Each is refused, or changes nothing that the policy does or says (a space for a line break, for example)."""
    before, whole, rng = acted(saved), (saved / name).read_bytes(), np.random.default_rng(1)
    refused = 0
    for at, bit in zip(rng.integers(0, len(whole), 1000).tolist(), rng.integers(0, 8, 1000).tolist(), strict=True):
        data = bytearray(whole)
        data[at] ^= 1 << bit
        (saved / name).write_bytes(data)
        try:
            assert acted(saved) == before, (at, bit)
        except OdiceError:
            refused += 1
    assert refused > 500


def test_a_description_needs_its_checksum_and_its_version(saved):
    path = saved / "policy.json"
    content = json.loads(path.read_text())
    del content["sha256"]
    path.write_text(json.dumps(content))
    with pytest.raises(OdiceError, match="SHA-256"):
        Policy.load(saved)
    for version in (1, True, 1.0, "2", None):
        path.write_text(json.dumps({**content, "version": version}))
        with pytest.raises(OdiceError, match="format version"):
            Policy.load(saved)


def test_a_folder_that_is_a_file(tmp_path):
    (tmp_path / "policy").write_bytes(pickle.dumps(Bomb()))
    with pytest.raises(OdiceError, match="is not a folder"):
        Policy.load(tmp_path / "policy")


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


def test_the_card_shows_a_strangers_text_as_text(saved):
    """Others render it: no tags, no images, no rows or headings of a stranger's."""
    hostile = "<script>x</script>![a](http://h/p.png) | b\n# head `c` [l](javascript:1) \ud800"
    policy = Policy.load(saved)
    policy = dataclasses.replace(policy, about={**policy.about, "data": {hostile: hostile}, "scores": {hostile: 1.0}})
    policy.with_health({"says": hostile, "measures": {hostile: 1}}).save(saved)
    card = (saved / "README.md").read_text().split("```json")[0]
    assert "<script" not in card
    assert "![" not in card
    assert "](" not in card
    assert not [line for line in card.splitlines() if line.lstrip().startswith("# head")]
    assert "&lt;script&gt;" in card
    Policy.load(saved)


@pytest.mark.parametrize(
    "preprocess",
    [
        {"choices": 5},
        {"choices": ["a", 1]},
        {"choices": ["a", "b"]},
        {"columns": {}},
        {"columns": [{"name": "x"}]},
        {"columns": [{"name": "x", "values": ["a", "a"], "width": 4}]},
    ],
)
def test_words_and_columns_of_a_damaged_file_are_refused(saved, preprocess):
    description(lambda about: about.update(preprocess=preprocess))(saved)
    with pytest.raises(OdiceError, match=r"policy\.json was refused: `preprocess\.(choices|columns)`"):
        Policy.load(saved)
