"""The one sentence that `odice.load` says about a file, a folder or a name that it cannot take."""

import io
import zipfile
from pathlib import Path

import h5py
import numpy as np
import pytest

import odice
from odice.errors import OdiceError
from tests.data.test_load import ARRAYS, N, hdf5


def without(key):
    return {name: value for name, value in ARRAYS.items() if name != key}


def truncated_hdf5(path: Path):
    hdf5(path, {**ARRAYS, "observations": np.zeros((N, 500))})
    path.write_bytes(path.read_bytes()[:9000])


def unfilled_hdf5(path: Path):
    with h5py.File(path, "w") as file:
        for name, value in without("observations").items():
            file[name] = value
        file.create_dataset("observations", (10**12, 17), np.float32, chunks=(1000, 17))


def foreign_hdf5(path: Path):
    hdf5(path, without("rewards"))
    hdf5(path.with_name("secret.h5"))
    with h5py.File(path, "a") as file:
        file["rewards"] = h5py.ExternalLink("secret.h5", "/rewards")


def virtual_hdf5(path: Path):
    hdf5(path.with_name("secret.h5"))
    layout = h5py.VirtualLayout((N,), np.float64)
    layout[:] = h5py.VirtualSource(str(path.with_name("secret.h5")), "rewards", (N,))
    hdf5(path, without("rewards"))
    with h5py.File(path, "a") as file:
        file.create_virtual_dataset("rewards", layout)


def group_hdf5(path: Path):
    hdf5(path, {**without("rewards"), "rewards/inner": np.zeros(3)})


def minari_hdf5(path: Path):
    hdf5(path, {"episode_0/rewards": np.zeros(3)})


HDF5 = {
    "truncated": (truncated_hdf5, "not a readable HDF5 file"),
    "not hdf5": (lambda p: p.write_bytes(b"hello"), "not a readable HDF5 file"),
    "empty": (lambda p: p.write_bytes(b""), "the file is empty"),
    "declares a terabyte": (unfilled_hdf5, r"declares shape \(1000000000000, 17\)"),
    "external link": (foreign_hdf5, "points elsewhere"),
    "virtual": (virtual_hdf5, "points elsewhere"),
    "a group": (group_hdf5, "'rewards' is not an array"),
    "minari": (minari_hdf5, "belongs to a Minari data set"),
    "no rewards": (lambda p: hdf5(p, without("rewards")), "no array for rewards; found actions, observations"),
    "no ends": (
        lambda p: hdf5(p, {k: ARRAYS[k] for k in ("observations", "actions", "rewards")}),
        "where episodes end",
    ),
    "text": (lambda p: hdf5(p, {**ARRAYS, "actions": np.array([b"x"] * N)}), "only real numbers"),
    "lengths": (lambda p: hdf5(p, {**ARRAYS, "actions": np.zeros((3, 1))}), "'actions' has 3 rows"),
    "0 steps": (lambda p: hdf5(p, {k: v[:0] for k, v in ARRAYS.items()}), "0 steps"),
    "scalar": (lambda p: hdf5(p, {**ARRAYS, "rewards": 3.0}), "single number"),
    "flags": (lambda p: hdf5(p, {**ARRAYS, "terminals": np.arange(N)}), "other than 0 and 1"),
    "int64 actions": (lambda p: hdf5(p, {**ARRAYS, "actions": np.full(N, 2**60)}), "holds 1152921504606846976"),
    "broken description": (lambda p: hdf5(p, odice="{"), "'odice' is not a JSON object"),
}


def check_sentence(path, make, message):
    """Loading the file that `make` writes gives one sentence with its path."""
    make(path)
    with pytest.raises(OdiceError, match=message) as caught:
        odice.load(path)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("case", HDF5)
def test_bad_hdf5_gets_one_sentence(tmp_path, case):
    check_sentence(tmp_path / "a.hdf5", *HDF5[case])


def npz(path, arrays):
    np.savez(path, **arrays)


def huge_header(path):
    """A few bytes that claim to be an array of 80 TB."""
    buffer = io.BytesIO()
    np.lib.format.write_array_header_1_0(buffer, {"descr": "<f8", "fortran_order": False, "shape": (10**13,)})
    npz(path, without("rewards"))
    with zipfile.ZipFile(path, "a") as file:
        file.writestr("rewards.npy", buffer.getvalue())


def bomb(path):
    """A small file that unpacks to far more: 200 MB of zeros, declared to be more than the machine has."""
    npz(path, without("rewards"))
    with zipfile.ZipFile(path, "a", zipfile.ZIP_DEFLATED) as file:
        file.writestr("rewards.npy", b"\x93NUMPY\x01\x00" + b"\x00" * 1000)


NPZ = {
    "truncated": (lambda p: (npz(p, ARRAYS), p.write_bytes(p.read_bytes()[:700])), "not a readable NPZ"),
    "not a zip": (lambda p: p.write_bytes(b"PK hello"), "not a readable NPZ"),
    "pickled": (lambda p: npz(p, {**ARRAYS, "rewards": np.array([{}] * N, object)}), "pickled Python objects"),
    "header": (huge_header, "declares shape"),
    "damaged array": (bomb, "cannot be read"),
    "empty zip": (
        lambda p: zipfile.ZipFile(p, "w").close(),
        "no array for observations, actions, rewards; found nothing",
    ),
    "lengths": (lambda p: npz(p, {**ARRAYS, "rewards": np.zeros(4)}), "'rewards' has 4 rows"),
}


@pytest.mark.parametrize("case", NPZ)
def test_bad_npz_gets_one_sentence(tmp_path, case):
    check_sentence(tmp_path / "a.npz", *NPZ[case])


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("missing.hdf5", "no such file or folder"),
        ("some text", "no such file or folder"),
        ("hopper-medium-v2 ", "no such file or folder"),
    ],
)
def test_what_is_not_there(name, message):
    with pytest.raises(OdiceError, match=message):
        odice.load(name)


def test_folders_without_one_kind_of_data(tmp_path):
    with pytest.raises(OdiceError, match="holds no data files"):
        odice.load(tmp_path)
    hdf5(tmp_path / "a.hdf5")
    npz(tmp_path / "a.npz", ARRAYS)
    with pytest.raises(OdiceError, match=r"several readers \(arrays, d4rl\)"):
        odice.load(tmp_path)


def test_unknown_suffixes_formats_options_and_objects(tmp_path):
    (tmp_path / "a.xyz").write_text("x")
    with pytest.raises(OdiceError, match=r"unknown kind of file '\.xyz'"):
        odice.load(tmp_path / "a.xyz")
    with pytest.raises(OdiceError, match="Unknown data format 'd4rll'"):
        odice.load(hdf5(tmp_path / "a.hdf5"), format="d4rll")
    with pytest.raises(
        OdiceError, match=r"Unknown option of the d4rl reader 'max_steps'\. Did you mean 'max_episode_steps'"
    ):
        odice.load(tmp_path / "a.hdf5", max_steps=3)
    with pytest.raises(OdiceError, match="Cannot load a int"):
        odice.load(3)


def test_an_npz_of_a_zip_version_that_nobody_has(tmp_path):
    np.savez(tmp_path / "a.npz", **ARRAYS)
    raw = bytearray((tmp_path / "a.npz").read_bytes())
    raw[raw.index(b"PK\x01\x02") + 6] = 255  # the version needed to extract, in the table of contents
    (tmp_path / "a.npz").write_bytes(raw)
    with pytest.raises(OdiceError, match=r"a\.npz: not a readable NPZ file \(zip file version 25\.5\)"):
        odice.load(tmp_path / "a.npz")
