"""Propensities: read from a table, kept by every change and file, refused where they cannot be probabilities."""

import numpy as np
import pytest

from odice.data.build import from_steps
from odice.data.join import concatenate
from odice.data.load import load
from odice.data.transitions import to_transitions
from odice.errors import OdiceError


def clicks(n=60, **more):
    rng = np.random.default_rng(0)
    fields = {"propensities": rng.uniform(0.1, 1.0, n), "episode": np.arange(n), **more}
    return from_steps(rng.normal(size=(n, 2)), rng.integers(0, 3, n), rng.random(n), **fields)


def test_they_travel_with_the_steps(tmp_path):
    data = clicks()
    some = data.select([5, 3])
    assert some.propensities.tolist() == data.propensities[[5, 3]].tolist()
    assert data.first(7).propensities.tolist() == data.propensities[:7].tolist()
    both = concatenate([data, some])
    assert both.propensities.tolist() == [*data.propensities, *some.propensities]
    assert concatenate([data, clicks(propensities=None)]).propensities is None
    for name in ("log.hdf5", "log.parquet"):
        again = load(data.save(tmp_path / name))
        assert again.fingerprint == data.fingerprint
    assert data.fingerprint != clicks(propensities=None).fingerprint


def test_a_column_of_a_table(tmp_path):
    lines = [f"{i},{i % 3 / 7:.4f},{i % 2},{i % 5},0.25" for i in range(40)]
    (tmp_path / "clicks.csv").write_text("\n".join(["user,age,shown,paid,pscore", *lines]))
    roles = {"observation": "age", "action": "shown", "reward": "paid", "episode": "user"}
    data = load(tmp_path / "clicks.csv", **roles)
    assert np.allclose(data.propensities, 0.25)  # by its name
    assert np.allclose(load(tmp_path / "clicks.csv", **roles, propensity="pscore").propensities, 0.25)


@pytest.mark.parametrize("wrong", [0.0, -0.1, 1.5, np.nan])
def test_what_is_no_probability_is_refused(wrong):
    chance = np.full(60, 0.5)
    chance[4] = wrong
    with pytest.raises(OdiceError, match=r"propensity of step 5 is .*; it is the probability"):
        clicks(propensities=chance)


def test_a_log_of_single_decisions_can_be_learned_from():
    """Nothing follows: without a flag every step is the end, and every step is a transition."""
    data = clicks()
    assert data.terminated.all()
    rows = to_transitions(data, "bootstrap")
    assert rows.size == 60
    assert rows.terminated.all()
    cut = clicks(truncated=np.ones(60, bool))
    with pytest.raises(OdiceError, match="mark them as terminated"):
        to_transitions(cut, "bootstrap")
