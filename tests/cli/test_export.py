"""`odice export`."""

import jax
import numpy as np
import pytest

from odice import Policy
from odice.cli.main import main
from odice.core.policies import CategoricalPolicy
from odice.types import Spec

onnxruntime = pytest.importorskip("onnxruntime")


@pytest.fixture
def run(tmp_path):
    network = CategoricalPolicy(jax.random.key(0), Spec(3, 4, True), (8,)).deterministic()
    Policy.from_network(network).save(tmp_path / "run" / "policy" / "last")
    return tmp_path / "run"


def test_export(run, tmp_path, capsys):
    out = tmp_path / "new" / "policy.onnx"
    assert main(["export", str(run), "--onnx", str(out)]) == 0
    assert "on 10,000 observations" in capsys.readouterr().out
    given = onnxruntime.InferenceSession(out).run(None, {"observation": np.zeros((2, 3), np.float32)})[0]
    assert given.tolist() == Policy.load(run / "policy" / "last")(np.zeros((2, 3))).tolist()


def test_refusals(run, tmp_path, capsys):
    out = tmp_path / "policy.onnx"
    assert main(["export", str(run), "--which", "best", "--onnx", str(out)]) == 2
    assert "no 'best' policy" in capsys.readouterr().err
    (run / "policy" / "last" / "policy.safetensors").write_bytes(b"")
    assert main(["export", str(run), "--onnx", str(out)]) == 2
    assert "was refused" in capsys.readouterr().err
    assert not out.exists()


def test_a_sampler_is_compared_on_fewer_observations(tmp_path, monkeypatch, capsys):
    from odice.policy import onnx
    from tests.policy.test_sampler import network

    def export(policy, path, *, numbers):
        path.write_bytes(b"graph")
        return onnx.Parity(0.0, 0.0)

    Policy.from_network(network().deterministic()).save(tmp_path / "policy")
    monkeypatch.setattr(onnx, "export_onnx", export)
    assert main(["export", str(tmp_path / "policy"), "--onnx", str(tmp_path / "policy.onnx")]) == 0
    assert "on 1,000 observations" in capsys.readouterr().out
