"""ONNX for a table: named columns in, the name of the choice out, checked row by row against the numpy policy."""

import dataclasses

import jax
import numpy as np
import pytest

from odice import Policy
from odice.core.policies import CategoricalPolicy, GaussianPolicy
from odice.data.preprocess import Fitted
from odice.encoding import encode, size
from odice.errors import OdiceError
from odice.policy import onnx as export
from odice.policy.guard import fit_guard
from odice.policy.onnx_table import feeds, random_rows
from odice.types import Spec

pytest.importorskip("onnx")
onnxruntime = pytest.importorskip("onnxruntime")

COLUMNS = (
    {"name": "age (years)"},
    {"name": "zero", "fill": 1.5, "indicator": True},
    {"name": "ward", "values": ["north", "süd"]},
    {"name": "center", "values": ["yes", "no", "maybe"], "indicator": True},
    {"name": "ecg", "width": 3, "fill": 0.0, "indicator": True},
    {"name": "one", "width": 1},
)
WORDS = ("wait", "treat", "discharge")


@pytest.fixture(scope="module", params=["choices", "numbers"])
def policy(request) -> Policy:
    """One with every kind of column, a normalizer and a guard."""
    wide = sum(map(size, COLUMNS))
    log = np.random.default_rng(0).normal(size=(600, wide)).astype(np.float32)
    guard = fit_guard(log[:300], log[300:])
    means = {"obs_mean": tuple(0.1 * i for i in range(wide)), "obs_scale": tuple(1.0 + 0.1 * i for i in range(wide))}
    if request.param == "choices":
        network = CategoricalPolicy(jax.random.key(0), Spec(wide, 3, True), (32,))
        made = Policy.from_network(network.deterministic(), Fitted(**means), guard=guard)
        words = {"choices": list(WORDS)}
    else:
        network = GaussianPolicy(jax.random.key(0), Spec(wide, 2), (32,))
        bounds = {"action_low": (-2.0, 0.0), "action_high": (2.0, 5.0)}
        made, words = Policy.from_network(network.deterministic(), Fitted(**means, **bounds), guard=guard), {}
    return dataclasses.replace(made, about={**made.about, "preprocess": {"columns": list(COLUMNS), **words}})


def test_a_thousand_rows_give_what_the_policy_gives(policy, tmp_path):
    """The comparison is made here again, by hand: rows that the policy refuses get no action."""
    export.export_onnx(policy, tmp_path / "policy.onnx")
    session = onnxruntime.InferenceSession(tmp_path / "policy.onnx")
    assert [each.name for each in session.get_inputs()] == [column["name"] for column in COLUMNS]
    obs = np.random.default_rng(5).normal(size=(1000, policy.obs_dim)).astype(np.float32)
    rows = random_rows(COLUMNS, obs, seed=3)
    names = [each.name for each in session.get_outputs()]
    outputs = dict(zip(names, session.run(None, feeds(COLUMNS, rows)), strict=True))
    refused, chosen = 0, set()
    for i, row in enumerate(rows):
        try:
            given = policy.guarded(row)
        except OdiceError:
            refused += 1
            assert outputs["action"][i] == -1 if policy.discrete else np.isnan(outputs["action"][i]).all()
            assert np.isinf(outputs["novelty"][i])
            assert outputs["decision"][i] == "fall back"
            assert not policy.discrete or outputs["choice"][i] == ""
            continue
        np.testing.assert_allclose(outputs["action"][i], given.action, rtol=1e-4, atol=1e-4)
        assert outputs["novelty"][i] == pytest.approx(given.score, rel=1e-3, abs=1e-3)
        if abs(given.score - 1) > 1e-3 and abs(given.score - policy.guard.fall_back) > 1e-3:
            assert outputs["decision"][i] == given.decision
        if policy.discrete:
            assert outputs["choice"][i] == WORDS[given.action]
            chosen.add(outputs["choice"][i])
    assert 50 < refused < 300  # an unknown word, a missing age or ward
    assert not policy.discrete or len(chosen) > 1


def test_a_graph_that_differs_on_rows_is_not_written(policy, tmp_path, monkeypatch):
    monkeypatch.setattr(export, "encode", lambda columns, row: encode(columns, {**row, "zero": 3.0}))
    with pytest.raises(OdiceError, match="differs from the policy on rows"):
        export.export_onnx(policy, tmp_path / "policy.onnx")
    assert not (tmp_path / "policy.onnx").exists()


def test_encoded_observations_on_request(policy, tmp_path):
    export.export_onnx(policy, tmp_path / "policy.onnx", numbers=True)
    session = onnxruntime.InferenceSession(tmp_path / "policy.onnx")
    assert [each.name for each in session.get_inputs()] == ["observation"]


def test_a_column_with_the_name_of_an_output_is_refused(policy, tmp_path):
    about = {**policy.about, "preprocess": {"columns": [{"name": "action"}, *COLUMNS[1:]]}}
    with pytest.raises(OdiceError, match="'action' has the name of an output"):
        export.export_onnx(dataclasses.replace(policy, about=about), tmp_path / "policy.onnx")
