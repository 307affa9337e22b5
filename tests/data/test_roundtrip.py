"""Saving and loading back gives the identical data set, in every format."""

import numpy as np
import pytest
from hypothesis import given, settings

import odice
from odice.data.build import from_steps
from odice.data.meta import Meta
from odice.data.store import make_store, write_store
from odice.errors import OdiceError
from tests.data.strategies import datasets


@pytest.fixture(autouse=True)
def minari_root(tmp_path, monkeypatch):
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path / "minari"))


def assert_identical(loaded, data):
    for name in ("observations", "actions", "rewards", "lengths", "terminated", "truncated", "final_known"):
        one, two = getattr(loaded, name), getattr(data, name)
        assert one.dtype == two.dtype, name
        assert one.shape == two.shape, name
        assert np.array_equal(np.ascontiguousarray(one).view(np.uint8), np.ascontiguousarray(two).view(np.uint8)), name
    kept, meta = loaded.meta.to_dict(), data.meta.to_dict()
    assert {**kept, "source": None} == {**meta, "source": None}
    assert loaded.fingerprint == data.fingerprint


@pytest.mark.parametrize("name", ["data.hdf5", "data.parquet", "robot/drawn-v0"])
@given(data=datasets())
@settings(max_examples=40)
def test_round_trip(tmp_path_factory, name, data):
    folder = tmp_path_factory.mktemp("saved")
    is_minari = name.endswith("-v0")
    path = data.save(folder / name, "minari" if is_minari else None)
    assert_identical(odice.load(path), data)


@given(data=datasets())
@settings(max_examples=25)
def test_store_round_trip(tmp_path_factory, data):
    folder = tmp_path_factory.mktemp("saved")
    assert_identical(write_store(data, folder / "store"), data)
    assert_identical(odice.load(folder / "store"), data)
    data.save(folder / "a.hdf5")
    assert_identical(make_store(folder / "a.hdf5", folder / "other"), data)


def small(**more):
    return from_steps(np.zeros((4, 2)), np.zeros((4, 1)), np.ones(4), terminated=[0, 1, 0, 1], **more)


def test_d4rl_layout_stays_the_legacy_one_where_nothing_is_lost(tmp_path):
    import h5py

    small(meta=Meta(env_id="Hopper-v5")).save(tmp_path / "a.hdf5")
    with h5py.File(tmp_path / "a.hdf5") as file:
        assert set(file) == {"observations", "actions", "rewards", "terminals", "timeouts"}
        assert file["terminals"][:].tolist() == [False, True, False, True]
        assert file.attrs["env"] == "Hopper-v5"
    small(next_observations=np.ones((4, 2))).save(tmp_path / "b.hdf5")
    with h5py.File(tmp_path / "b.hdf5") as file:
        assert file["next_observations"][:, 0].tolist() == [0, 1, 0, 1]
        assert "next_known" not in file


def test_minari_itself_reads_what_is_saved(tmp_path):
    import minari

    data = small(meta=Meta(env_id="Hopper-v5", ref_min=1.0, ref_max=3.0, action_low=(-2.0,), action_high=(2.0,)))
    data.save("robot/mine-v0", "minari")
    theirs = minari.load_dataset("robot/mine-v0")
    assert theirs.total_steps == 4
    assert theirs.total_episodes == 2
    assert theirs.action_space.high.tolist() == [2.0]
    assert theirs.spec.env_spec.id == "Hopper-v5"
    assert theirs.storage.metadata["ref_max_score"] == 3.0
    assert odice.load(theirs).fingerprint == data.fingerprint
    assert odice.load("robot/mine-v0").fingerprint == data.fingerprint
    assert odice.load(theirs.filter_episodes(lambda e: e.id == 1)).n_episodes == 1
    with pytest.raises(OdiceError, match="exists already"):
        data.save("robot/mine-v0", "minari")


def test_saving_says_what_it_cannot_do(tmp_path):
    with pytest.raises(OdiceError, match="cannot tell the format"):
        small().save(tmp_path / "data.txt")
    with pytest.raises(OdiceError, match="Unknown format to save in 'csvv'"):
        small().save(tmp_path / "data.csv", "csvv")
    assert list(tmp_path.iterdir()) == []


def test_a_failed_save_leaves_nothing(tmp_path, monkeypatch):
    import h5py

    def fail(*_, **__):
        raise RuntimeError("disk full")

    monkeypatch.setattr(h5py.Group, "create_dataset", fail)
    with pytest.raises(RuntimeError, match="disk full"):
        small().save(tmp_path / "a.hdf5")
    assert list(tmp_path.iterdir()) == []
