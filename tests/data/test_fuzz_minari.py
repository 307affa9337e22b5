"""Minari's folders, damaged byte by byte or described wrongly: a Dataset or an OdiceError, as in test_fuzz.py."""

import io
import json

import h5py
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.data.test_fuzz import OUTCOMES, attempt, damaged, values


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
