"""Whatever the bytes: a Dataset or an OdiceError. Never another exception, never a hang.

Valid small files of every kind are damaged (cut, bits flipped, pieces overwritten, removed, repeated, spliced with
another kind) or replaced by random bytes, and read. What can still be read goes through the doctor, too.
`pytest -m long -s tests/data/test_fuzz.py` tries many more and prints how many.
"""

import faulthandler
import gzip
import io
import json
import signal
import warnings
from collections import Counter

import h5py
import numpy as np
import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import odice
from odice.data.dataset import Dataset
from odice.data.doctor import inspect
from odice.errors import OdiceError

SECONDS = 30  # an input that takes longer counts as a hang
OUTCOMES: Counter = Counter()


# --- valid files -------------------------------------------------------------------------------------------------


def _arrays(discrete=False):
    rng = np.random.default_rng(3)
    n = 24
    return {
        "observations": rng.normal(size=(n, 3)).astype("f4"),
        "actions": rng.integers(0, 3, n) if discrete else rng.uniform(-1, 1, (n, 2)).astype("f4"),
        "rewards": rng.normal(size=n).astype("f4"),
        "terminals": np.arange(n) % 8 == 7,
        "timeouts": np.arange(n) % 12 == 11,
    }


def _hdf5(arrays, **options):
    file = io.BytesIO()
    with h5py.File(file, "w") as out:
        for name, value in arrays.items():
            out.create_dataset(name, data=value, **options)
        out.attrs["env"] = "Hopper-v5"
        out.attrs["odice"] = json.dumps({"env_id": "Hopper-v5", "ref_min": 0.0, "ref_max": 1.0})
    return file.getvalue()


def _npz(arrays, save=np.savez):
    file = io.BytesIO()
    save(file, **arrays)
    return file.getvalue()


def _frame(discrete=False):
    a = _arrays(discrete)
    columns = {f"obs_{i}": a["observations"][:, i] for i in range(3)}
    columns |= {"action": a["actions"]} if discrete else {f"action_{i}": a["actions"][:, i] for i in range(2)}
    rest = {"reward": a["rewards"], "terminated": a["terminals"], "truncated": a["timeouts"]}
    return pl.DataFrame(columns | rest | {"episode": np.arange(24) // 8, "step": np.arange(24) % 8})


def _parquet(frame, **options):
    file = io.BytesIO()
    frame.write_parquet(file, **options)
    return file.getvalue()


def _lists():
    a = _arrays()
    return pl.DataFrame(
        {
            "observation": a["observations"].tolist(),
            "action": a["actions"].tolist(),
            "reward": a["rewards"],
            "is_last": a["terminals"],
            "terminated": a["terminals"],
        }
    )


META = {
    "odice": json.dumps(
        {"source": "x", "n_actions": 3, "history": ["a"], "evidence": {"unfinished": {"count": 1, "tail": True}}}
    )
}
SEEDS = {
    "d4rl.hdf5": _hdf5(_arrays()),
    "chunked.hdf5": _hdf5(_arrays(), compression="gzip", shuffle=True),
    "episodes.h5": _hdf5({**_arrays(True), "episode": np.arange(24) // 8}),
    "plain.npz": _npz(_arrays()),
    "packed.npz": _npz(_arrays(True), np.savez_compressed),
    "floats.csv": _frame().write_csv().encode(),
    "choices.csv": _frame(True).write_csv().encode(),
    "packed.csv.gz": gzip.compress(_frame().write_csv().encode(), mtime=0),
    "plain.parquet": _parquet(_frame(), compression="uncompressed"),
    "saved.parquet": _parquet(_frame(True), metadata=META),
    "lists.parquet": _parquet(_lists()),
}
SCHEMAS = {
    "schema.toml": b'observation = ["obs_0", "obs_1"]\naction = "action_*"\nreward = "reward"\nterminated = "terminated"\naction_low = [-1, -1.0]\n',
    "schema.json": b'{"observation": "obs_*", "action": ["action_0"], "reward": "reward", "discrete": false, "action_high": 1.5, "env_id": "A-v0"}',
}


def attempt(folder, name, data, source=None, **options):
    """Read these bytes under this name. Counts the outcome; anything but a Dataset or one sentence fails.

    `source` is what to load, where the bytes are one file of several.
    """
    path = folder / name
    path.write_bytes(data)
    faulthandler.dump_traceback_later(2 * SECONDS, exit=True)  # for hangs inside C, which no signal interrupts
    before = signal.signal(signal.SIGALRM, _hang)
    signal.setitimer(signal.ITIMER_REAL, SECONDS)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            dataset = odice.load(source or path, **options)
            assert isinstance(dataset, Dataset)
            said = repr(inspect(dataset).summary["fingerprint"])
        OUTCOMES[name, "read"] += 1
    except OdiceError as error:
        said = str(error)
        OUTCOMES[name, "refused"] += 1
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        faulthandler.cancel_dump_traceback_later()
    assert said
    assert "\n" not in said


def _hang(*_):
    raise AssertionError(f"reading took longer than {SECONDS} s")


# --- damage ------------------------------------------------------------------------------------------------------


@st.composite
def damaged(draw, name, seeds=SEEDS):
    """The bytes of a valid file after one to four accidents."""
    data = bytearray(seeds[name])
    for _ in range(draw(st.integers(1, 4))):
        kind = draw(st.sampled_from(["cut", "flip", "overwrite", "remove", "repeat", "splice", "number", "random"]))
        at = draw(st.integers(0, max(len(data) - 1, 0)))
        span = draw(st.integers(1, 64))
        if kind == "cut":
            del data[at:]
        elif kind == "flip" and data:
            data[at] ^= 1 << draw(st.integers(0, 7))
        elif kind == "overwrite":
            data[at : at + span] = draw(st.binary(min_size=1, max_size=span))
        elif kind == "remove":
            del data[at : at + span]
        elif kind == "repeat":
            data[at:at] = data[at : at + span] * draw(st.integers(1, 20))
        elif kind == "splice":
            other = seeds[draw(st.sampled_from(sorted(seeds)))]
            data[at:] = other[min(at, len(other)) :]
        elif kind == "number":  # sizes, counts and offsets live in such words
            word = draw(
                st.sampled_from(
                    [
                        b"\xff" * 8,
                        b"\xff\xff\xff\x7f",
                        b"\x00" * 8,
                        b"\x00\x00\x00\x80",
                        b"\x01" + b"\x00" * 7,
                        b"\xff" * 4,
                    ]
                )
            )
            data[at : at + len(word)] = word
        elif kind == "random":
            data[:] = draw(st.binary(max_size=256))
    return bytes(data)


def _fuzz(tmp_path_factory, name, examples, seeds=SEEDS):
    folder = tmp_path_factory.mktemp("fuzz")

    @settings(max_examples=examples, database=None, derandomize=True, suppress_health_check=list(HealthCheck))
    @given(damaged(name, seeds))
    def tries(data):
        if seeds is SCHEMAS:
            (folder / name).write_bytes(data)
            attempt(folder, "floats.csv", SEEDS["floats.csv"], schema=folder / name)
        else:
            attempt(folder, name, data)

    tries()


@pytest.mark.parametrize("name", SEEDS)
def test_valid_files_are_read(tmp_path, name):
    before = OUTCOMES[name, "read"]
    attempt(tmp_path, name, SEEDS[name])
    assert OUTCOMES[name, "read"] == before + 1


@pytest.mark.parametrize("name", list(SEEDS))
def test_damaged_files(tmp_path_factory, name):
    _fuzz(tmp_path_factory, name, 60)


@pytest.mark.parametrize("name", SCHEMAS)
def test_damaged_schema_files(tmp_path_factory, name):
    _fuzz(tmp_path_factory, name, 60, SCHEMAS)


@pytest.mark.long
@pytest.mark.parametrize("name", [*SEEDS, *SCHEMAS])
def test_many_damaged_files(tmp_path_factory, name):
    before = sum(OUTCOMES.values())
    _fuzz(tmp_path_factory, name, 4000, SCHEMAS if name in SCHEMAS else SEEDS)
    print(f"\n{name}: {sum(OUTCOMES.values()) - before} inputs")


# --- random tables and metadata ----------------------------------------------------------------------------------

cells = st.one_of(
    st.integers(-(10**30), 10**30).map(str),
    st.floats().map(str),
    st.sampled_from(
        ["", " ", "nan", "inf", "-inf", "1e400", "true", "False", '"', "'", ",", "\x00", "é", "0x10", "1_000", "NULL"]
    ),
    st.text(max_size=6),
)
HEAD = [
    "obs_0",
    "obs_1",
    "action",
    "reward",
    "terminated",
    "truncated",
    "episode",
    "t",
    "next_obs_0",
    "next_obs_1",
    "done",
    "",
    "é",
]


@given(
    st.lists(st.sampled_from(HEAD), max_size=10),
    st.lists(st.lists(cells, max_size=11), max_size=8),
    st.sampled_from(",;\t|\n"),
)
def test_random_csv(tmp_path_factory, head, rows, separator):
    text = "\n".join(separator.join(line) for line in [head, *rows])
    attempt(tmp_path_factory.getbasetemp(), "random.csv", text.encode("utf-8", "surrogatepass"))


values = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-(2**70), 2**70), st.floats(), st.text(max_size=5)),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=5), inner, max_size=3)),
    max_leaves=6,
)
fields = st.sampled_from(
    [
        "source",
        "env_id",
        "action_low",
        "action_high",
        "n_actions",
        "ref_min",
        "ref_max",
        "obs_layout",
        "history",
        "evidence",
        "x",
    ]
)
evidence = st.dictionaries(
    st.sampled_from(["next_mismatch", "unfinished", "flags_inside_episode", "y"]), values, max_size=2
)


@given(
    st.one_of(values, st.dictionaries(fields, values, max_size=4), evidence.map(lambda e: {"evidence": e})),
    st.booleans(),
)
def test_hostile_metadata(tmp_path_factory, meta, discrete):
    text = json.dumps(meta)
    folder = tmp_path_factory.getbasetemp()
    attempt(folder, "meta.parquet", _parquet(_frame(discrete), metadata={"odice": text}))
    file = io.BytesIO(SEEDS["d4rl.hdf5"])
    with h5py.File(file, "r+") as out:
        out.attrs["odice"] = text
    attempt(folder, "meta.hdf5", file.getvalue())


@given(
    st.dictionaries(
        st.sampled_from(
            [
                "observation",
                "action",
                "reward",
                "terminated",
                "episode",
                "discrete",
                "n_actions",
                "action_low",
                "ref_min",
                "zzz",
            ]
        ),
        values,
    )
)
def test_random_schemas(tmp_path_factory, schema):
    folder = tmp_path_factory.getbasetemp()
    (folder / "random.json").write_text(json.dumps(schema))
    attempt(folder, "floats.csv", SEEDS["floats.csv"], schema=folder / "random.json")
