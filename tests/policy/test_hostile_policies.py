"""Files of policies that were damaged or made to harm: refused in one sentence, before anything of them is used."""

import dataclasses
import json
import os
import pickle
import struct
import time

import numpy as np
import pytest

from odice import Policy
from odice.errors import OdiceError
from tests.policy.support import description, save_policy


@pytest.fixture
def saved(tmp_path):
    return save_policy(tmp_path / "policy")


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
