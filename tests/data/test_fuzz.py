"""Whatever the bytes: a Dataset or an OdiceError. Never another exception, never a hang.

Valid small files of every kind are damaged (cut, bits flipped, pieces overwritten, removed, repeated, spliced with
another kind) or replaced by random bytes, and read. What can still be read goes through the doctor, too.
`pytest -m long -s tests/data/test_fuzz.py` tries many more and prints how many.
"""

import faulthandler
import gzip
import io
import json
import pickle
import signal
import warnings
import zipfile
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


# --- Minari folders ----------------------------------------------------------------------------------------------


def _minari_hdf5(nested):
    file = io.BytesIO()
    with h5py.File(file, "w") as out:
        for e in range(2):
            one = out.create_group(f"episode_{e}")
            if nested:
                one["observations/position"], one["observations/room"] = np.ones((5, 2)), np.arange(5) % 3
                one["observations/pair/_index_0"], one["observations/pair/_index_1"] = (
                    np.zeros((5, 1)),
                    np.ones(5, bool),
                )
            else:
                one["observations"] = np.ones((5, 3))
            one["actions"] = np.arange(4) % 3 if nested else np.zeros((4, 2))
            one["rewards"] = np.arange(4.0)
            one["terminations"], one["truncations"] = np.arange(4) == 3, np.zeros(4, bool)
    return file.getvalue()


def _box(*shape):
    bounds = {"low": np.full(shape, -1.0).tolist(), "high": np.full(shape, np.inf).tolist()}
    return {"type": "Box", "dtype": "float64", "shape": list(shape), **bounds}


def _described(observation, action, **more):
    """A description whose spaces are still objects, so that they can be damaged inside, too."""
    facts = {"dataset_id": "a/b-v0", "minari_version": "0.5.3", "data_format": "hdf5", "total_episodes": 2}
    env = {"id": "Pendulum-v1", "entry_point": "os:getcwd", "kwargs": {}, "additional_wrappers": []}
    return {**facts, "observation_space": observation, "action_space": action, "env_spec": env, **more}


def _as_text(described):
    texts = {
        key: json.dumps(described[key]) for key in ("observation_space", "action_space", "env_spec") if key in described
    }
    return json.dumps(described | texts)


_ROOM = {"type": "Discrete", "n": 3, "start": 0, "dtype": "int64"}
_PAIR = {"type": "Tuple", "subspaces": [_box(1), {"type": "MultiBinary", "n": 1}]}
_MAZE = {"type": "Dict", "subspaces": {"room": _ROOM, "pair": _PAIR, "position": _box(2)}}
_SAVED = {"odice": {"env_id": "Pendulum-v1", "history": ["a"], "obs_layout": [["x", 3]]}, "odice_final_unknown": [1]}
DESCRIBED = {
    "plain": _described(_box(3), _box(2), ref_min_score=1.0, ref_max_score=None),
    "nested": _described(_MAZE, _ROOM),
    "saved": _described(_box(3), _box(2), **_SAVED),
}
MINARI = {f"{name}/data/metadata.json": _as_text(value).encode() for name, value in DESCRIBED.items()}
MINARI |= {f"{name}/data/main_data.hdf5": _minari_hdf5(name == "nested") for name in DESCRIBED}


def _minari_folders(folder):
    for name, data in MINARI.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)


def _attempt_minari(folder, name, data):
    attempt(folder, name, data, source=folder / name.split("/")[0])
    (folder / name).write_bytes(MINARI[name])


def _places(value, path=()):
    """Every place inside a nested value."""
    yield path
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in inner:
        yield from _places(item, (*path, key))


def _replaced(value, path, new):
    """A copy with another value at this place; an Ellipsis takes it out."""
    if not path:
        return {} if new is ... else new
    copy = value.copy()
    copy[path[0]] = _replaced(copy[path[0]], path[1:], new)
    if new is ... and len(path) == 1:
        del copy[path[0]]
    return copy


_plausible = st.sampled_from(
    [
        ...,
        -1,
        0,
        1,
        2,
        3,
        1e10,
        10**12,
        True,
        "hdf5",
        "arrow",
        "",
        "3",
        [],
        {},
        [[]],
        [1, "a"],
        [0.5, 1],
        [float("nan")] * 2,
    ]
    + [{"type": kind} for kind in ("Box", "Dict", "Tuple", "Discrete", "MultiDiscrete", "Text", "Graph", "")]
    + [_box(2), _box(3), _ROOM, _PAIR, _MAZE, "Box", "Dict", "Tuple", "Discrete", "a\nb", "../x", "\ud800", "\x00"]
)


@st.composite
def misdescribed(draw, name):
    """A description with one to three values taken out or replaced, at any depth."""
    value = DESCRIBED[name]
    for _ in range(draw(st.integers(1, 3))):
        place = draw(st.sampled_from(list(_places(value))[1:] or [()]))
        value = _replaced(value, place, draw(st.one_of(_plausible, values)))
        if not isinstance(value, dict):
            break
    return value


def _fuzz_minari(tmp_path_factory, name, examples):
    folder = tmp_path_factory.mktemp("fuzz")
    _minari_folders(folder)
    bytewise = name in MINARI

    @settings(max_examples=examples, database=None, derandomize=True, suppress_health_check=list(HealthCheck))
    @given(damaged(name, MINARI) if bytewise else misdescribed(name).map(lambda value: _as_text(value).encode()))
    def tries(data):
        _attempt_minari(folder, name if bytewise else f"{name}/data/metadata.json", data)

    tries()


@pytest.mark.parametrize("name", MINARI)
def test_valid_minari_folders_are_read(tmp_path, name):
    _minari_folders(tmp_path)
    before = OUTCOMES[name, "read"]
    _attempt_minari(tmp_path, name, MINARI[name])
    assert OUTCOMES[name, "read"] == before + 1


@pytest.mark.slow
@pytest.mark.parametrize("name", [*MINARI, *DESCRIBED])
def test_damaged_minari_folders(tmp_path_factory, name):
    _fuzz_minari(tmp_path_factory, name, 60)


@pytest.mark.long
@pytest.mark.parametrize("name", [*MINARI, *DESCRIBED])
def test_many_damaged_minari_folders(tmp_path_factory, name):
    before = sum(OUTCOMES.values())
    _fuzz_minari(tmp_path_factory, name, 4000)
    print(f"\n{name}: {sum(OUTCOMES.values()) - before} inputs")


# --- files made to harm ------------------------------------------------------------------------------------------


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
