"""ONNX: the same actions from raw observations, with onnxruntime alone; nothing is written unless it is so."""

import json
import subprocess
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from odice import Policy
from odice.core.networks import MLP
from odice.core.policies import CategoricalPolicy, Deterministic, GaussianPolicy
from odice.data.preprocess import Fitted
from odice.errors import OdiceError
from odice.policy import onnx as export
from odice.types import Spec

pytest.importorskip("onnx")
onnxruntime = pytest.importorskip("onnxruntime")

SERVE = Path(__file__).parents[2] / "examples" / "serve_onnx.py"
FITTED = Fitted(obs_mean=(1.0, -2.0, 3.0), obs_scale=(0.5, 2.0, 10.0), action_low=(-2.0, 0.0), action_high=(2.0, 500.0))
SPEC = Spec(3, 2)


def actions(path, obs):
    return onnxruntime.InferenceSession(path).run(None, {"observation": obs})[0]


def observations(n=10_000):
    return (np.random.default_rng(1).normal(size=(n, 3)) * 2 + 1).astype(np.float32)


@pytest.mark.parametrize("tanh_mean", [False, True])
@pytest.mark.parametrize("fitted", [Fitted(), FITTED])
def test_equals_the_jax_policy(tanh_mean, fitted, tmp_path):
    network = GaussianPolicy(jax.random.key(0), SPEC, (64, 64), tanh_mean=tanh_mean)
    exported = export.export_onnx(Policy.from_network(network.deterministic(), fitted), tmp_path / "policy.onnx")
    assert exported.difference <= 1e-5
    obs = observations()
    expected = fitted.act(np.asarray(network.mode(jnp.asarray(fitted.observe(obs)))))
    half_range = 1.0 if fitted.action_low is None else np.array([2.0, 250.0])
    given = actions(tmp_path / "policy.onnx", obs)
    assert given.dtype == np.float32
    assert np.abs((given - expected) / half_range).max() <= 1e-5


def test_equals_the_jax_policy_discrete(tmp_path):
    network = CategoricalPolicy(jax.random.key(0), Spec(3, 4, True), (64, 64))
    export.export_onnx(Policy.from_network(network.deterministic()), tmp_path / "policy.onnx")
    obs = observations()
    given = actions(tmp_path / "policy.onnx", obs)
    assert (given.dtype, given.shape) == (np.int64, (10_000,))
    logits = np.asarray(network.logits(jnp.asarray(obs)))
    clear = np.diff(np.sort(logits, axis=-1)[:, -2:])[:, 0] > 1e-5  # a tie may go either way
    assert clear.mean() > 0.99
    np.testing.assert_array_equal(given[clear], logits.argmax(axis=-1)[clear])


def test_layer_norm_and_any_batch(tmp_path):
    network = MLP(jax.random.key(0), (3, 16, 16, 2), layer_norm=True, activation=jax.nn.elu)
    network.scales[0], network.shifts[1] = jnp.linspace(0.5, 2, 16), jnp.linspace(-1, 1, 16)
    export.export_onnx(Policy.from_network(Deterministic(network, "clip")), tmp_path / "policy.onnx")
    for n in (1, 7):
        obs = observations(n)
        expected = np.clip(np.asarray(network(jnp.asarray(obs))), -1, 1)
        np.testing.assert_allclose(actions(tmp_path / "policy.onnx", obs), expected, atol=1e-5)


def test_a_graph_that_differs_is_not_written(tmp_path, monkeypatch):
    policy = Policy.from_network(GaussianPolicy(jax.random.key(0), SPEC, (8,)).deterministic())
    wrong = Policy.from_network(GaussianPolicy(jax.random.key(1), SPEC, (8,)).deterministic())
    graph = export.onnx_model(wrong)
    monkeypatch.setattr(export, "onnx_model", lambda policy: graph)
    with pytest.raises(OdiceError, match=r"differs from the policy.*was not written"):
        export.export_onnx(policy, tmp_path / "policy.onnx")
    assert list(tmp_path.iterdir()) == []


def test_a_wrong_choice_is_noticed():
    network = CategoricalPolicy(jax.random.key(0), Spec(3, 4, True), (8,))
    other = CategoricalPolicy(jax.random.key(1), Spec(3, 4, True), (8,))
    policies = [Policy.from_network(each.deterministic()) for each in (network, other)]
    rows = export.parity(policies[0], export.onnx_model(policies[1]))
    assert rows.difference > 1e-2 > rows.allowed


def test_what_single_precision_loses_is_allowed():
    """A saturated network is uncertain in the fifth digit itself; the graph may be as uncertain, not more."""
    network = GaussianPolicy(jax.random.key(0), SPEC, (64, 64), tanh_mean=True)
    network.mean.weights[:] = [weight * 12 for weight in network.mean.weights]
    policy = Policy.from_network(network.deterministic())
    rows = export.parity(policy, export.onnx_model(policy))
    assert rows.rounding > export.TOLERANCE
    assert rows.difference <= 2 * rows.allowed


@pytest.mark.parametrize("missing", ["onnx", "onnxruntime"])
def test_missing_extra(missing, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, missing, None)
    policy = Policy.from_network(GaussianPolicy(jax.random.key(0), SPEC, (8,)).deterministic())
    with pytest.raises(OdiceError, match=rf"needs the package {missing}; .*odice\[onnx\]"):
        export.export_onnx(policy, tmp_path / "policy.onnx")
    assert list(tmp_path.iterdir()) == []


def test_unwritable_place(tmp_path):
    (tmp_path / "file").write_text("")
    policy = Policy.from_network(GaussianPolicy(jax.random.key(0), SPEC, (8,)).deterministic())
    with pytest.raises(OdiceError, match="cannot be written"):
        export.export_onnx(policy, tmp_path / "file" / "policy.onnx")


def test_the_example_serves_without_odice(tmp_path):
    network = GaussianPolicy(jax.random.key(0), SPEC, (8,))
    policy = Policy.from_network(network.deterministic(), FITTED, algorithm="odice")
    export.export_onnx(policy, tmp_path / "policy.onnx")
    obs = "[[1, 2, 3], [0, 0, 0]]\n[0, 0, 0]\nnonsense\n[1, 2]\n"
    served = subprocess.run(
        [sys.executable, "-S", "-c", _without_odice(), str(tmp_path / "policy.onnx")],
        input=obs,
        capture_output=True,
        text=True,
        check=True,
    )
    batch, single, *errors = [json.loads(line) for line in served.stdout.splitlines()]
    np.testing.assert_allclose(batch["action"], policy([[1, 2, 3], [0, 0, 0]]), atol=2e-3)
    np.testing.assert_allclose(single["action"], policy([0, 0, 0]), atol=2e-3)
    assert all("error" in line for line in errors)
    assert len(errors) == 2


def _without_odice() -> str:
    """Run the example with odice, jax and gymnasium out of reach."""
    return f"""
import sys
sys.path[:] = {[path for path in sys.path if path]!r}
for name in ("odice", "jax", "gymnasium", "onnx"):
    sys.modules[name] = None
sys.argv = ["serve_onnx.py", sys.argv[1]]
exec(compile(open({str(SERVE)!r}).read(), "serve_onnx.py", "exec"), {{"__name__": "__main__"}})
"""
