"""A sweep says before it starts which of its data name no environment."""

import numpy as np
import pytest

from odice.data.load import names_environment
from odice.sweeps.execute import unevaluated
from odice.sweeps.runs import make_runs
from tests.d4rl_files import write

pytestmark = pytest.mark.fast


def test_data_without_an_environment_are_named(tmp_path):
    known = write(tmp_path, "hopper-medium-v2")
    renamed = known.with_name("mine.hdf5")
    renamed.write_bytes(known.read_bytes())
    n = 40
    rows = {"observations": np.random.default_rng(0).normal(size=(n, 3)), "actions": np.zeros((n, 1))}
    np.savez(tmp_path / "plain.npz", **rows, rewards=np.arange(n), terminals=np.arange(n) % 10 == 9)
    data = [str(known), str(renamed), str(tmp_path / "plain.npz")]
    said = unevaluated(make_runs(tmp_path / "out", data, ["bc"], seeds=2))
    assert [sentence.split(":")[0] for sentence in said] == data[1:]
    assert "are not evaluated (name one: --set env=NAME)" in said[0]
    assert unevaluated(make_runs(tmp_path / "out", data, ["bc"], env="none")) == []
    assert names_environment("hopper-medium-v2", data_dir=tmp_path)
