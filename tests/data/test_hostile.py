"""Files that reach for other files, wait for ever, or stop the whole process: each gets one sentence, before it is
read."""

import os
import shutil
import subprocess
import sys

import h5py
import numpy as np
import polars as pl
import pytest

import odice
from odice.data.meta import Meta
from odice.data.readers.pages import column_bytes
from odice.errors import OdiceError
from odice.files import read_json
from tests.scripts import load_script

N = 12
ARRAYS = {
    "observations": np.arange(2 * N, dtype=np.float64).reshape(N, 2),
    "actions": np.zeros((N, 1)),
    "rewards": np.ones(N),
    "terminals": np.arange(N) % 6 == 5,
    "timeouts": np.zeros(N, bool),
}


def write(path, arrays=ARRAYS, without=()):
    with h5py.File(path, "w") as file:
        for name, value in arrays.items():
            if name not in without:
                file[name] = value
    return path


# --- HDF5 that points elsewhere -----------------------------------------------------------------------------------


def external_storage(file, name, secret, size=8 * N):
    file.create_dataset(name, (N,), np.float64, external=[(str(secret), 0, size)])


def virtual(file, name, source, filename="."):
    layout = h5py.VirtualLayout((N,), np.float64)
    layout[:] = h5py.VirtualSource(filename, source, (N,))
    file.create_virtual_dataset(name, layout)


@pytest.mark.parametrize("hops", ["external storage", "one", "two", "three", "link", "loop"])
def test_nothing_of_another_file_comes_out(tmp_path, hops):
    """A virtual data set onto this very file was followed to wherever its source pointed."""
    secret = tmp_path / "secret.txt"
    secret.write_bytes(b"root:x:0:0:root:/root:/bin/bash\n" * 8)
    other = write(tmp_path / "other.h5")
    path = write(tmp_path / "log.h5", without=("rewards",))
    with h5py.File(path, "a") as file:
        if hops == "external storage":
            external_storage(file, "rewards", secret)
        elif hops == "one":
            virtual(file, "rewards", "rewards", str(other))
        elif hops == "two":
            external_storage(file, "inner", secret)
            virtual(file, "rewards", "inner")
        elif hops == "three":
            external_storage(file, "inner", secret)
            virtual(file, "middle", "inner")
            virtual(file, "rewards", "middle")
        elif hops == "link":
            file["inner"] = h5py.ExternalLink(str(other), "/rewards")
            virtual(file, "rewards", "inner")
        else:
            virtual(file, "rewards", "rewards")
    with pytest.raises(OdiceError, match="'rewards' points elsewhere; put the data themselves there"):
        odice.load(path)


def doubling(path, levels):
    """Groups whose two items are the same next group: 2 ** levels leaves in a small file."""
    with h5py.File(path, "w") as file:
        below = file.create_group("g0")
        below["_index_0"] = below["_index_1"] = np.zeros(3)
        for i in range(1, levels):
            group = file.create_group(f"g{i}")
            group["_index_0"] = group["_index_1"] = below
            below = group
        file["top"] = below


def test_a_tree_of_links_is_opened_one_step_at_a_time(tmp_path):
    from odice.data.readers import hdf5

    doubling(tmp_path / "a.h5", 40)
    with hdf5.opened(tmp_path / "a.h5") as file:
        result = hdf5.Tree(file, "a.h5")["top"]
        assert len(result) == 2
        for _ in range(39):
            result = result[1]
        assert result[1].shape == (3,)
        with pytest.raises(IndexError):
            result[2]


# --- files that are not files -------------------------------------------------------------------------------------


PIPES = {"a.hdf5": "d4rl", "a.npz": "arrays", "a.parquet": "table", "a.csv": "table", "a.csv.gz": "table"}


@pytest.mark.slow
def test_pipes_are_refused_at_once(tmp_path):
    """In a process of its own, because a reader that waits would wait for ever."""
    from odice.data.store import write_store

    calls = {}
    for name, reader in PIPES.items():
        os.mkfifo(tmp_path / name)
        calls[f"{reader}.read({str(tmp_path / name)!r})"] = "not a regular file"
        calls[f"odice.load({str(tmp_path / name)!r})"] = "the file is empty"
    write_store(odice.load(write(tmp_path / "log.h5")), tmp_path / "store")
    for name in ("records.npy", "lengths.npy", "store.json"):
        store = tmp_path / f"{name}.store"
        shutil.copytree(tmp_path / "store", store)
        (store / name).unlink()
        os.mkfifo(store / name)
        calls[f"odice.load({str(store)!r})"] = "not a regular file"
    lines = ["import odice", "from odice.data.readers import arrays, d4rl, table"]
    for call in calls:
        lines += [f"try: {call}", "except odice.OdiceError as e: print(str(e).replace(chr(10), ' '), flush=True)"]
    done = subprocess.run([sys.executable, "-c", "\n".join(lines)], capture_output=True, text=True, timeout=60)
    said = done.stdout.splitlines()
    assert len(said) == len(calls), said + done.stderr.splitlines()
    for (call, message), sentence in zip(calls.items(), said, strict=True):
        assert message in sentence, call


@pytest.mark.parametrize(
    ("text", "message"), [("[" * 100_000, "nested too deeply"), ("{", "not a JSON text"), ("9" * 5000, "not a JSON")]
)
def test_json_of_a_stranger(tmp_path, text, message):
    (tmp_path / "a.json").write_text(text)
    with pytest.raises(OdiceError, match=message):
        read_json(tmp_path / "a.json", 1 << 20)


# --- what a reader must not trip over ------------------------------------------------------------------------------


@pytest.mark.parametrize("without", [(), ("timeouts",)])
@pytest.mark.parametrize("which", ["observations", "actions", "rewards", "terminals"])
def test_scalars_in_hdf5(tmp_path, which, without):
    path = write(tmp_path / "a.h5", {**ARRAYS, which: 3.0}, without)
    with pytest.raises(OdiceError, match="is a single number; expected one row per step"):
        odice.load(path)


def test_numbers_that_no_float_holds():
    with pytest.raises(OdiceError, match="'action_low' is"):
        Meta.from_dict({"action_low": [10**400]})
    with pytest.raises(OdiceError, match="'ref_max' is"):
        Meta.from_dict({"ref_max": -(10**400)})
    assert Meta.from_dict({"action_low": [-(10**3)], "ref_min": 0}).action_low == (-1000,)


@pytest.mark.parametrize("header", ["((((", "(" * 5000, "{'descr': [[[['f4'", "lambda: 1", "{1: 2}", "\x00"])
def test_an_npz_header_that_is_no_header(tmp_path, header):
    import io
    import zipfile

    body = header.encode().ljust(118, b" ") + b"\n"
    file = io.BytesIO()
    np.save(file, np.zeros(3))
    raw = b"\x93NUMPY\x01\x00" + len(body).to_bytes(2, "little") + body + bytes(24)
    np.savez(tmp_path / "a.npz", **{name: value for name, value in ARRAYS.items() if name != "rewards"})
    with zipfile.ZipFile(tmp_path / "a.npz", "a") as out:
        out.writestr("rewards.npy", raw)
    with pytest.raises(OdiceError, match="'rewards' cannot be read"):
        odice.load(tmp_path / "a.npz")


# --- Parquet that stops the process --------------------------------------------------------------------------------


def table(**more):
    rest = {"action": [0.5] * N, "reward": [1.0 * i for i in range(N)], "terminated": [i % 6 == 5 for i in range(N)]}
    return pl.DataFrame({"obs_0": [0.25 * i for i in range(N)], **rest, **more})


def test_records_in_parquet_are_refused_by_their_type(tmp_path):
    rows = [{"a": [0.5 * i, 1.0, 2.0], "b": i} for i in range(N)]
    table(observation=rows).drop("obs_0").write_parquet(tmp_path / "a.parquet")
    with pytest.raises(OdiceError, match=r"column 'observation' has type Struct.*a column of its own"):
        odice.load(tmp_path / "a.parquet")


@pytest.mark.parametrize("compression", ["uncompressed", "zstd"])
def test_a_page_with_a_negative_number_of_values_is_refused(tmp_path, compression):
    """One bit makes 12 values (zigzag 24) -13; polars asked for 2^61 bytes and the process was aborted."""
    table().write_parquet(tmp_path / "a.parquet", compression=compression)
    data = bytearray((tmp_path / "a.parquet").read_bytes())
    at = data.index(bytes([0x2C, 0x15, 2 * N]))
    data[at + 2] ^= 1
    (tmp_path / "a.parquet").write_bytes(data)
    with pytest.raises(OdiceError, match=r"a\.parquet: damaged inside \(the page at byte 4\); copy or download"):
        odice.load(tmp_path / "a.parquet")


def test_pages_of_every_kind_are_walked(tmp_path):
    """Several row groups and pages, lists, nulls, texts, metadata, categories: none is taken for damaged."""
    more = {"note": [None if i % 3 else "x" * i for i in range(N)], "kind": ["a", "b"] * (N // 2), "l": [[1, 2]] * N}
    frame = pl.concat([table(**more).with_columns(pl.col("kind").cast(pl.Categorical))] * 50)
    for options in (
        {"row_group_size": 100},
        {"data_page_size": 256},
        {"compression": "snappy"},
        {"statistics": "full"},
    ):
        frame.write_parquet(tmp_path / "a.parquet", metadata={"a": "b"}, **options)
        column_bytes(tmp_path / "a.parquet")
    assert odice.load(tmp_path / "a.parquet", observation="obs_0").n_steps == 50 * N


@pytest.mark.slow
def test_damaged_parquet_does_not_stop_the_process():
    """In a process of its own, because polars may abort it."""
    kinds = load_script("parquet_damage").count_kinds(40)
    assert not [outcome for counts in kinds.values() for outcome in counts if outcome not in ("read", "refused")]
    assert all(counts["refused"] > 10 for counts in kinds.values())
