"""Minari folders that somebody else wrote: none runs code, hangs, fills the memory or gives a traceback."""

import json
import os
import subprocess
import sys
import warnings
from pathlib import Path

import gymnasium
import h5py
import numpy as np
import pytest

import odice
from odice.data.readers import minari as reader
from odice.envs.make import make
from odice.errors import OdiceError
from odice.files import read_text

BOX = {"type": "Box", "dtype": "float64", "shape": [2], "low": [-1.0, -1.0], "high": [1.0, 1.0]}
NAME = "some/log-v0"
LEFT_OUT = object()


@pytest.fixture(autouse=True)
def root(tmp_path, monkeypatch):
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path / "minari"))
    return tmp_path / "minari"


def episode(group, steps=3, observations=None):
    for key, value in (observations or {"observations": np.zeros((steps + 1, 2))}).items():
        group[key] = value
    group["actions"], group["rewards"] = np.zeros((steps, 2)), np.zeros(steps)
    group["terminations"], group["truncations"] = np.arange(steps) == steps - 1, np.zeros(steps, bool)


def folder_of(root, observations=None, **changes):
    """A data set of two episodes under Minari's root, with these changes of its description."""
    data = root / NAME / "data"
    data.mkdir(parents=True)
    described = {
        "dataset_id": NAME,
        "data_format": "hdf5",
        "total_episodes": 2,
        "observation_space": json.dumps(BOX),
        "action_space": json.dumps(BOX),
        "env_spec": json.dumps({"id": "Hopper-v5"}),
        **changes,
    }
    kept = {key: value for key, value in described.items() if value is not LEFT_OUT}
    (data / "metadata.json").write_text(json.dumps(kept))
    with h5py.File(data / "main_data.hdf5", "w") as file:
        for e in range(2):
            episode(file.create_group(f"episode_{e}"), observations=observations)
    return data.parent


# --- code ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("by", ["folder", "id"])
@pytest.mark.parametrize("kind", ["hdf5", "arrow", "parquet", "unknown"])
@pytest.mark.parametrize(
    "missing", [("observation_space",), ("action_space",), ("observation_space", "action_space"), ()]
)
def test_a_description_runs_nothing(tmp_path, root, missing, kind, by):
    marker = tmp_path / "marker"
    spec = {"id": "Trap-v0", "entry_point": "os:system", "kwargs": {"command": f"touch {marker}"}}
    blank = {"reward_threshold": None, "nondeterministic": False, "max_episode_steps": None, "order_enforce": True}
    blank |= {"disable_env_checker": True, "additional_wrappers": [], "vector_entry_point": None}
    changes = {"env_spec": json.dumps(spec | blank), **dict.fromkeys(missing, LEFT_OUT)}
    folder = folder_of(root, data_format=kind, **changes)
    source = folder if by == "folder" else NAME
    if kind == "hdf5":
        assert odice.load(source).meta.env_id == "Trap-v0"
    else:
        with pytest.raises(OdiceError, match=rf"metadata\.json: the 'data_format' is '{kind}'; odice reads 'hdf5'"):
            odice.load(source)
    assert not marker.exists()


def test_a_download_is_only_bytes(tmp_path, root, monkeypatch):
    """Minari's own download would open what came and go on to what that names."""
    from minari.storage import remotes

    calls = []

    class Host:
        def download_dataset(self, name, path):
            calls.append(name)
            if name == NAME:
                folder_of(
                    Path(path), data_format="arrow", observation_space=LEFT_OUT, combined_datasets=["other/log-v0"]
                )

    monkeypatch.setattr(remotes, "get_cloud_storage", Host)
    with pytest.raises(OdiceError, match="'arrow'"):
        odice.load(NAME)
    with pytest.raises(OdiceError, match="the host has no such data set"):
        odice.load("other/thing-v0")
    assert calls == [NAME, "other/thing-v0"]


def test_what_a_program_opened_itself_is_read_in_any_format(root):
    class Storage:
        data_path = folder_of(root, data_format="arrow") / "data"

        def get_episodes(self, indices):
            for _ in indices:
                value = {}
                episode(value)
                yield value

    class Opened:
        storage, episode_indices = Storage(), np.array([1, 0])

    assert reader.read(Opened()).n_episodes == 2


@pytest.mark.parametrize("name", ["Foreign-v0", "Foreign", "space/Foreign-v3"])
def test_a_name_from_a_file_stays_in_known_packages(tmp_path, root, monkeypatch, name):
    (tmp_path / "foreign_plant.py").write_text("class Plant: pass")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "foreign_plant", raising=False)
    full = name if "-v" in name else f"{name}-v7"
    spec = gymnasium.envs.registration.EnvSpec(full, "foreign_plant:Plant")
    monkeypatch.setitem(gymnasium.registry, full, spec)
    env_id = odice.load(folder_of(root, env_spec=json.dumps({"id": name}))).meta.env_id
    assert env_id == name
    with pytest.raises(OdiceError, match=r"belongs to the package 'foreign_plant', .*--env"):
        make(env_id)
    assert "foreign_plant" not in sys.modules
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Gymnasium names the version it chose
        with pytest.raises(OdiceError, match="Gymnasium cannot make"):
            make(env_id, allow_import=True)
    assert "foreign_plant" in sys.modules  # what a person typed is imported


def test_a_module_in_a_name_from_a_file_is_not_imported(root):
    env_id = odice.load(folder_of(root, env_spec=json.dumps({"id": "os:Env-v0"}))).meta.env_id
    with pytest.raises(OdiceError, match="would import a Python module"):
        make(env_id or "")


@pytest.mark.parametrize("name", ["Pendulum-v1", "odice/LQR-v0", "antmaze-umaze-v2", "hopper-medium-v2"])
def test_names_of_known_packages_are_made(name):
    make(name).close()


# --- files that do not end -------------------------------------------------------------------------------------------


def refusal(path):
    """What a process of its own, with little memory and time, says about this folder."""
    code = f"""
import resource
resource.setrlimit(resource.RLIMIT_AS, (4 << 30, 4 << 30))
import odice
from pathlib import Path
from odice.errors import OdiceError
try:
    odice.load(Path({str(path)!r}))
except OdiceError as error:
    print("refused:", error)
"""
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=40)
    assert out.stdout.startswith("refused:"), out.stderr[-500:]
    return out.stdout


@pytest.mark.slow
@pytest.mark.parametrize("name", ["metadata.json", "main_data.hdf5"])
@pytest.mark.parametrize("kind", ["pipe", "endless", "folder"])
def test_only_regular_files_are_opened(root, name, kind):
    folder = folder_of(root)
    path = folder / "data" / name
    path.unlink()
    {"pipe": os.mkfifo, "endless": lambda p: p.symlink_to("/dev/zero"), "folder": os.mkdir}[kind](path)
    assert f"{name}: not a regular file" in refusal(folder)


@pytest.mark.slow
def test_a_number_of_episodes_reserves_nothing(root):
    for total, says in ((10**10, "holds 2"), (1e10, "expected a whole number")):
        folder = folder_of(root / str(total), total_episodes=total)
        assert says in refusal(folder)


def test_a_description_has_a_largest_size(root):
    folder = folder_of(root)
    with (folder / "data" / "metadata.json").open("ab") as file:
        file.truncate(10 << 30)  # sparse
    assert "larger than" in refusal(folder)


def test_text_is_read_within_a_limit(tmp_path):
    path = tmp_path / "text"
    path.write_text("é" * 4)
    assert read_text(path, 8) == "éééé"
    with pytest.raises(OdiceError, match="larger than 7 bytes"):
        read_text(path, 7)
    path.write_bytes(b"ab\xff")
    with pytest.raises(OdiceError, match=r"text: not text in UTF-8 \(byte 2\)"):
        read_text(path, 7)
    with pytest.raises(OdiceError, match=r"nowhere: cannot be opened \(No such file or directory\)"):
        read_text(tmp_path / "nowhere", 7)


# --- wrong values ----------------------------------------------------------------------------------------------------

ROOM = {"type": "Discrete", "n": 3, "start": 0}
NESTED = {"observations/a": np.zeros((4, 2)), "observations/b": np.zeros(4, int)}
PAIR = {"observations/_index_0": np.zeros((4, 2)), "observations/_index_1": np.zeros(4, int)}


def dict_of(**subspaces):
    return {"type": "Dict", "subspaces": subspaces}


def said(folder):
    with pytest.raises(OdiceError) as caught:
        odice.load(folder)
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"dataset_id": 3}, "'dataset_id' is 3; expected a name"),
        ({"dataset_id": "a\nb"}, "expected a name"),
        ({"data_format": ["hdf5"]}, "the 'data_format' is ['hdf5']"),
        ({"data_format": None}, "the 'data_format' is None"),
        ({"total_episodes": "2"}, "'total_episodes' is '2'; expected a whole number"),
        ({"total_episodes": -1}, "expected a whole number"),
        ({"total_episodes": True}, "expected a whole number"),
        ({"total_episodes": 10**30}, "a whole number of 31 digits"),
        ({"env_spec": "{"}, "'env_spec': not a JSON text"),
        ({"env_spec": "[]"}, "'env_spec': expected a JSON object"),
        ({"env_spec": {"id": "A-v0"}}, "expected JSON in a text"),
        ({"env_spec": '{"id": 5}'}, "'id' is 5; expected a name"),
        ({"env_spec": "[" * 100_000}, "nested too deeply"),
        ({"observation_space": "nonsense"}, "'observation_space': not a JSON text"),
        ({"observation_space": "{}"}, "expected the name of a space"),
        ({"observation_space": json.dumps({"type": ["Box"]})}, "expected the name of a space"),
        ({"observation_space": json.dumps(dict_of(a=BOX))}, "is of type 'Dict', which is no vector of numbers"),
        ({"observation_space": json.dumps(BOX | {"shape": [3]})}, "declared with shape [3] but stored with [2]"),
        ({"observation_space": json.dumps(BOX | {"shape": "2"})}, "expected a list of whole numbers"),
        ({"observation_space": json.dumps(ROOM)}, "declared Discrete but stored with shape (4, 2)"),
        ({"action_space": json.dumps({"type": "Discrete"})}, "'n of the action_space' is None"),
        ({"action_space": json.dumps(ROOM | {"n": -3})}, "'n of the action_space' is -3"),
        ({"action_space": json.dumps(ROOM | {"n": "3"})}, "from 1 to 100,000"),
        ({"action_space": json.dumps(ROOM | {"n": 10**12})}, "from 1 to 100,000"),
        ({"action_space": json.dumps(ROOM | {"start": "0"})}, "'start of the action_space' is '0'"),
        ({"action_space": json.dumps(BOX | {"low": ["a", "b"]})}, "'low of the action_space' is ['a', 'b']"),
        ({"action_space": json.dumps(BOX | {"low": ["1", "2"]})}, "expected numbers"),
        ({"action_space": json.dumps(BOX | {"high": [[1], [1, 2]]})}, "expected numbers"),
        ({"action_space": json.dumps(BOX | {"high": [1, float("nan")]})}, "expected numbers"),
        ({"action_space": json.dumps({"type": "Box", "low": [1, 2]})}, "'high of the action_space' is None"),
        ({"action_space": json.dumps(BOX | {"low": [0], "high": [1]})}, "1 bounds for 2 actions"),
        ({"ref_min_score": "low"}, "'ref_min_score' is 'low'; expected a number"),
        ({"odice": [1]}, "metadata.json: The metadata 'odice' is not an object"),
        ({"odice": {"n_actions": "3"}}, "metadata.json: The metadata 'odice' is damaged: 'n_actions'"),
        ({"odice_final_unknown": [[1]]}, "expected a list of episode numbers"),
        ({"odice_final_unknown": 7}, "expected a list of episode numbers"),
    ],
)
def test_wrong_values_in_a_description(root, changes, says):
    message = said(folder_of(root, **changes))
    assert says in message
    assert NAME in message


@pytest.mark.parametrize(
    ("observations", "space", "says"),
    [
        (NESTED, dict_of(a=BOX, c=BOX), "no 'c' in it"),
        (NESTED, {"type": "Dict"}, "expected a Dict with 'subspaces'"),
        (NESTED, {"type": "Dict", "subspaces": [BOX]}, "expected a Dict with 'subspaces'"),
        (NESTED, BOX, "expected a Dict with 'subspaces'"),
        (NESTED, dict_of(a=BOX, b=5), "observation 'b'\" is 5; expected a space"),
        (NESTED, dict_of(a=BOX, b=ROOM | {"n": 10**15}), "from 1 to 100,000"),
        (PAIR, {"type": "Tuple", "subspaces": [BOX]}, "expected a Tuple of 2 'subspaces'"),
        (PAIR, {"type": "Tuple", "subspaces": {"0": BOX}}, "expected a Tuple of 2 'subspaces'"),
    ],
)
def test_spaces_that_do_not_fit_the_data(root, observations, space, says):
    assert says in said(folder_of(root, observations, observation_space=json.dumps(space)))


def test_obs_keys_leave_out_what_cannot_be_flattened(root):
    space = dict_of(a=BOX, b={"type": "Text"})
    folder = folder_of(root, NESTED, observation_space=json.dumps(space))
    assert "is text, and odice learns from vectors of numbers; choose other parts" in said(folder)
    assert odice.load(folder, obs_keys=["a"]).spec.obs_dim == 2


def test_tuples_are_flattened(root):
    space = {"type": "Tuple", "subspaces": [BOX, ROOM]}
    data = odice.load(folder_of(root, PAIR, observation_space=json.dumps(space)))
    assert data.meta.obs_layout == (("0", 2), ("1", 3))
    assert data.observations[0].tolist() == [0, 0, 1, 0, 0]


def test_deep_json(root):
    folder = folder_of(root)
    (folder / "data" / "metadata.json").write_text('{"a":' * 200_000)
    assert "nested too deeply" in said(folder)


def remove(key):
    return lambda file: file.__delitem__(key)


def swap(key, value):
    def change(file):
        del file[key]
        file[key] = value

    return change


def cycle(file):
    del file["episode_0/observations"]
    group = file["episode_0"].create_group("observations")
    for i in range(9):
        group[f"again{i}"] = group


def other_file(file):
    """HDF5 would follow this link in the middle of a path."""
    path = Path(file.filename).with_name("other.hdf5")
    with h5py.File(path, "w") as other:
        other["b"] = np.zeros((4, 2))
    file["episode_0/observations/c"] = h5py.ExternalLink(str(path), "/")


@pytest.mark.parametrize(
    ("observations", "space", "change", "says"),
    [
        (None, None, remove("episode_1"), "'total_episodes' are 2, but main_data.hdf5 holds 1"),
        (None, None, remove("episode_0/rewards"), "no 'rewards' in it"),
        (None, None, remove("episode_0/observations"), "no 'observations' in it"),
        (None, None, swap("episode_0", np.zeros(3)), "'episode_0' is not a group"),
        (None, None, lambda file: file.move("episode_1", "episode_7"), "no 'episode_1' in it"),
        (None, None, swap("episode_1/observations", np.zeros((4, 3))), "another shape or type"),
        (None, None, swap("episode_1/observations", 1.0), "another shape or type"),
        (NESTED, None, swap("episode_1/observations", np.zeros((4, 3))), "another shape or type"),
        (NESTED, None, swap("episode_1/observations/b", np.zeros(3)), "have 3 to 4 rows"),
        (PAIR, None, remove("episode_1/observations/_index_1"), "another shape or type"),
        (None, None, cycle, "more than 1000 parts or 20 levels"),
        (NESTED, dict_of(**{"c/b": BOX}), other_file, "points elsewhere"),
    ],
)
def test_arrays_that_do_not_fit_the_description(root, observations, space, change, says):
    folder = folder_of(root, observations, observation_space=json.dumps(space) if space else LEFT_OUT)
    with h5py.File(folder / "data" / "main_data.hdf5", "r+") as file:
        change(file)
    assert says in said(folder)
