"""The readers on data of simulated robots, in D4RL's layout. Skipped without the shared folder beside the project."""

import importlib.util
from pathlib import Path

import h5py
import numpy as np
import pytest

import odice
from odice.data.transitions import to_transitions

ZOO = Path(__file__).parents[3] / "shared" / "zoo" / "make_datasets.py"
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not ZOO.exists(), reason="the shared folder is not there"),
    pytest.mark.filterwarnings("ignore"),
]


@pytest.fixture(scope="module", params=["hopper-replay", "halfcheetah-medium"])
def path(request, tmp_path_factory):
    found = importlib.util.spec_from_file_location("make_datasets", ZOO)
    zoo = importlib.util.module_from_spec(found)
    found.loader.exec_module(zoo)
    zoo.STEPS = dict.fromkeys(zoo.STEPS, 3000)
    folder = tmp_path_factory.mktemp("zoo")
    zoo.collect(request.param, folder)
    return folder / f"{request.param}.hdf5"


def test_rows_and_numbers_are_those_of_the_file(path):
    data = odice.load(path)
    with h5py.File(path) as file:
        raw = {name: file[name][:] for name in ("observations", "actions", "rewards", "terminals", "timeouts")}
    assert np.array_equal(data.step_observations(), raw["observations"])
    assert data.terminated.sum() == raw["terminals"].sum()
    assert data.truncated.sum() == raw["timeouts"].sum()
    kept = ~raw["timeouts"]
    kept[-1] = False
    found = to_transitions(data)
    assert found.size == kept.sum()
    assert np.array_equal(found.action, raw["actions"][kept])
    assert np.array_equal(found.reward, raw["rewards"][kept])
    batch = found.batch(np.arange(found.size))
    follows = raw["observations"][np.flatnonzero(kept) + 1]
    alive = ~raw["terminals"][kept]
    assert np.array_equal(batch.next_obs[alive], follows[alive])


def test_every_format_keeps_it(path, tmp_path):
    data = odice.load(path)
    for name in ("copy.hdf5", "copy.parquet"):
        assert odice.load(data.save(tmp_path / name)).fingerprint == data.fingerprint
    assert odice.load(data.save(tmp_path / "copy-v0", "minari")).fingerprint == data.fingerprint
