"""Files made to harm a reader: each is refused in one sentence, or holds numbers after all."""

import io
import pickle
import zipfile

import h5py
import numpy as np
import polars as pl
import pytest

from tests.data.test_fuzz import OUTCOMES, SEEDS, _arrays, _frame, _npz, _parquet, attempt


def _npy(header, body=b""):
    head = header.encode() + b"\n"
    return b"\x93NUMPY\x01\x00" + len(head).to_bytes(2, "little") + head + body


def _zip(**members):
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as out:
        for name, data in members.items():
            out.writestr(f"{name}.npy", data)
    return file.getvalue()


def _hostile_npz():
    huge = _npy("{'descr': '<f4', 'fortran_order': False, 'shape': (1000000000000, 17), }")
    rest = {k: _npz_member(v) for k, v in _arrays().items()}
    objects = np.array([{"a": 1}, None], dtype=object)
    yield "huge-header", _zip(**(rest | {"observations": huge}))
    yield (
        "negative-shape",
        _zip(**(rest | {"observations": _npy("{'descr': '<f4', 'fortran_order': False, 'shape': (-5, 3), }")})),
    )
    yield (
        "code-in-header",
        _zip(
            **(
                rest
                | {
                    "observations": _npy(
                        "{'descr': '<f4', 'fortran_order': False, 'shape': (__import__('os').system('true'),), }"
                    )
                }
            )
        ),
    )
    yield (
        "bad-dtype",
        _zip(**(rest | {"observations": _npy("{'descr': 'zz', 'fortran_order': False, 'shape': (3,), }")})),
    )
    yield "deep-header", _zip(**(rest | {"observations": _npy("(" * 5000 + ")" * 5000)}))
    yield "pickled", _npz({**_arrays(), "observations": objects})
    yield "bare-pickle", pickle.dumps(_arrays())
    yield "strings", _npz({**_arrays(), "rewards": np.array(["a"] * 24)})
    yield "complex", _npz({**_arrays(), "rewards": np.zeros(24, complex)})
    yield "structured", _npz({**_arrays(), "rewards": np.zeros(24, [("a", "f4")])})
    yield "dates", _npz({**_arrays(), "rewards": np.zeros(24, "M8[s]")})
    yield "no-steps", _npz({k: v[:0] for k, v in _arrays().items()})
    yield "scalars", _npz({k: v.flat[0] for k, v in _arrays().items()})
    yield "ragged", _npz({**_arrays(), "rewards": np.zeros(23)})
    yield "wide", _npz({**_arrays(), "observations": np.zeros((24, 0), "f4")})
    yield "out-of-range", _npz({**_arrays(), "actions": np.full(24, 2**62)})
    yield "half", _npz({**_arrays(), "observations": np.zeros((24, 3), "f2")})
    yield "empty-zip", _zip()


def _npz_member(value):
    file = io.BytesIO()
    np.save(file, value)
    return file.getvalue()


def _hostile_hdf5():
    def made(build):
        file = io.BytesIO()
        with h5py.File(file, "w") as out:
            for name, value in _arrays().items():
                out[name] = value
            build(out)
        return file.getvalue()

    def swap(name, **options):
        def build(out):
            del out[name]
            out.create_dataset(name, **options)

        return build

    def link(name, target):
        def build(out):
            del out[name]
            out[name] = target

        return build

    yield "huge-shape", made(swap("observations", shape=(10**13, 17), dtype="f4", chunks=(1000, 17)))
    yield "huge-rewards", made(swap("rewards", shape=(10**13,), dtype="f4", chunks=(1000,)))
    yield "empty", made(swap("observations", shape=(0, 3), dtype="f4"))
    yield "scalar", made(swap("rewards", data=1.0))
    yield "null", made(swap("rewards", data=h5py.Empty("f4")))
    yield "text", made(swap("rewards", data=["a"] * 24))
    yield "compound", made(swap("rewards", data=np.zeros(24, [("a", "f4")])))
    yield "lists", made(swap("rewards", shape=(24,), dtype=h5py.vlen_dtype(np.float32)))
    yield "references", made(swap("rewards", shape=(24,), dtype=h5py.ref_dtype))
    yield "enum", made(swap("terminals", shape=(24,), dtype=h5py.enum_dtype({"a": 0, "b": 3})))
    yield "broken-link", made(link("rewards", h5py.SoftLink("/nowhere")))
    yield "loop", made(link("rewards", h5py.SoftLink("/rewards")))
    yield "external", made(link("rewards", h5py.ExternalLink("other.hdf5", "/rewards")))
    yield "group", made(lambda out: (out.__delitem__("rewards"), out.create_group("rewards")))
    yield "flags", made(swap("terminals", data=np.full(24, 7)))
    yield "attributes", made(lambda out: out.attrs.update(env=np.zeros(5), odice=np.zeros(3), max_episode_steps="many"))
    yield "no-arrays", made(lambda out: [out.__delitem__(k) for k in list(out)])
    yield "doubles", made(swap("observations", data=np.full((24, 3), 1e300)))
    yield "endless-heap", _endless_heap(SEEDS["d4rl.hdf5"])


def _endless_heap(data):
    """A free block of size 0 in the heap of texts: the HDF5 library itself never gets past it."""
    heap = data.index(b"GCOL")
    at = heap + 16
    while int.from_bytes(data[at : at + 2], "little"):
        at += 16 + (int.from_bytes(data[at + 8 : at + 16], "little") + 7) // 8 * 8
    return data[: at + 8] + bytes(8) + data[at + 16 :]


def _hostile_tables():
    text = SEEDS["floats.csv"].decode()
    yield "one-line.csv", b"obs_0," * 300_000
    yield "long-cell.csv", (text + "9" * 2_000_000).encode()
    yield "quote.csv", ('obs_0,"action\n' + text).encode()
    yield "nul.csv", text.replace(",", "\x00,").encode()
    yield "latin.csv", text.replace("reward", "r\xe9ward").encode("latin-1")
    yield "utf16.csv", text.encode("utf-16")
    yield "only-newlines.csv", b"\n" * 1000
    yield "header-only.csv", text.split("\n")[0].encode()
    yield "carriage.csv", text.replace("\n", "\r").encode()
    yield "binary.csv", SEEDS["d4rl.hdf5"]
    yield "no-gzip.csv.gz", text.encode()
    yield "twice.csv.gz", SEEDS["packed.csv.gz"] * 2
    yield "trailing.csv.gz", SEEDS["packed.csv.gz"] + b"garbage"
    yield "no-rows.parquet", _parquet(_frame().clear())
    yield "no-columns.parquet", _parquet(pl.DataFrame())
    yield "nulls.parquet", _parquet(_frame().with_columns(reward=pl.lit(None, pl.Float32)))
    yield "decimal.parquet", _parquet(_frame().with_columns(reward=pl.lit("1.5").cast(pl.Decimal(20, 2))))
    yield "int128.parquet", _parquet(_frame().with_columns(action_0=pl.lit(2**100, pl.Int128)))
    yield "dates.parquet", _parquet(_frame().with_columns(obs_0=pl.lit(0).cast(pl.Datetime)))
    yield "categories.parquet", _parquet(_frame().with_columns(obs_0=pl.lit("a").cast(pl.Categorical)))
    yield "empty-lists.parquet", _parquet(_frame().with_columns(obs_0=pl.lit([], pl.List(pl.Float32))))
    yield "nested.parquet", _parquet(_frame().with_columns(obs_0=pl.lit([[1.0]], pl.List(pl.List(pl.Float32)))))
    yield "doubles.parquet", _parquet(_frame().with_columns(obs_0=pl.lit(1e300)))
    yield "nan-ids.parquet", _parquet(_frame().with_columns(episode=pl.lit(float("nan"))))
    yield "bytes.parquet", b"PAR1" * 100


HOSTILE = {
    **{f"{name}.npz": data for name, data in _hostile_npz()},
    **{f"{name}.hdf5": data for name, data in _hostile_hdf5()},
    **dict(_hostile_tables()),
}
# These hold numbers after all, so they may be read.
READABLE = {
    "half.npz",
    "doubles.hdf5",
    "doubles.parquet",
    "decimal.parquet",
    "categories.parquet",
    "twice.csv.gz",
    "nan-ids.parquet",
    "enum.hdf5",
    "attributes.hdf5",
}


@pytest.mark.parametrize("name", list(HOSTILE))
def test_files_made_to_harm(tmp_path, name):
    before = OUTCOMES[name, "refused"]
    attempt(tmp_path, name, HOSTILE[name])
    if name not in READABLE:
        assert OUTCOMES[name, "refused"] == before + 1
