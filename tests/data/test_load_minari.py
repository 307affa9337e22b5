"""Minari's folders, read without the package and without an environment."""

import json

import h5py
import numpy as np
import pytest

import odice
from odice.errors import OdiceError


@pytest.fixture(autouse=True)
def nowhere(tmp_path, monkeypatch):
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path / "minari"))


def minari_dataset(root, name="maze/test-v0", *, space=None, obs=None, action=None, actions=None, **metadata):
    folder = root / name / "data"
    folder.mkdir(parents=True)
    box = {"type": "Box", "dtype": "float64", "low": [-1.0, -2.0], "high": [1.0, 2.0], "shape": [2]}
    described = {
        "dataset_id": name,
        "minari_version": "0.5.3",
        "data_format": "hdf5",
        "total_episodes": 2,
        "total_steps": 5,
        "env_spec": json.dumps({"id": "AntMaze_UMaze-v5", "entry_point": "nowhere:Nothing"}),
        "action_space": json.dumps(action or box),
        **metadata,
    }
    if space:
        described["observation_space"] = json.dumps(space)
    (folder / "metadata.json").write_text(json.dumps(described))
    with h5py.File(folder / "main_data.hdf5", "w") as file:
        for e, steps in enumerate((3, 2)):
            group = file.create_group(f"episode_{e}")
            plain = {"observations": np.arange(steps + 1.0)[:, None] + 10 * e}
            for key, value in (obs(steps) if obs else plain).items():
                group[key] = value
            group["actions"] = np.zeros((steps, 2)) if actions is None else actions[:steps]
            group["rewards"] = np.arange(steps, dtype=float)
            group["terminations"] = np.arange(steps) == (2 if e == 0 else -1)
            group["truncations"] = np.arange(steps) == (steps - 1 if e == 1 else -1)
    return name


MAZE = {
    "type": "Dict",
    "subspaces": {
        "observation": {"type": "Box", "shape": [3]},
        "achieved_goal": {"type": "Box", "shape": [2]},
        "room": {"type": "Discrete", "n": 3, "start": 1},
    },
}


def maze(steps):
    rows = steps + 1
    return {
        "observations/achieved_goal": np.full((rows, 2), 5.0),
        "observations/observation": np.ones((rows, 3)),
        "observations/room": np.arange(rows) % 3 + 1,
    }


def test_minari_loads_without_an_environment(tmp_path):
    minari_dataset(tmp_path / "minari", ref_min_score=1.0, ref_max_score=9.0)
    data = odice.load("maze/test-v0")
    assert data.observations[:, 0].tolist() == [0, 1, 2, 3, 10, 11, 12]
    assert (data.meta.env_id, data.meta.source) == ("AntMaze_UMaze-v5", "maze/test-v0")
    assert (data.meta.ref_min, data.meta.ref_max) == (1.0, 9.0)
    assert (data.meta.action_low, data.meta.action_high) == ((-1.0, -2.0), (1.0, 2.0))
    assert data.terminated.tolist() == [True, False]
    assert data.truncated.tolist() == [False, True]
    assert data.final_known.all()
    assert odice.load(tmp_path / "minari" / "maze" / "test-v0").fingerprint == data.fingerprint


def test_dict_observations_are_flattened_as_declared(tmp_path):
    minari_dataset(tmp_path / "minari", space=MAZE, obs=maze)
    data = odice.load("maze/test-v0")
    assert data.meta.obs_layout == (("observation", 3), ("achieved_goal", 2), ("room", 3))
    assert data.observations[1].tolist() == [1, 1, 1, 5, 5, 0, 1, 0]
    chosen = odice.load("maze/test-v0", obs_keys=["achieved_goal", "observation"])
    assert chosen.observations[1].tolist() == [5, 5, 1, 1, 1]
    with pytest.raises(OdiceError, match="no observation key 'goal'; there are: observation, achieved_goal, room"):
        odice.load("maze/test-v0", obs_keys=["goal"])


def test_minari_discrete_actions_and_missing_scores(tmp_path):
    space = {"type": "Discrete", "n": 7, "start": 0}
    minari_dataset(tmp_path / "minari", action=space, actions=np.array([0, 4, 2]))
    data = odice.load("maze/test-v0")
    assert tuple(data.spec) == (1, 7, True)
    assert data.meta.ref_min is data.meta.ref_max is None


def test_an_id_that_is_nowhere_names_those_that_are_here(tmp_path):
    minari_dataset(tmp_path / "minari")
    with pytest.raises(
        OdiceError, match=r"mujoco/hopper/medium-v0: not on this machine.*local Minari ids: maze/test-v0"
    ):
        odice.load("mujoco/hopper/medium-v0", download=False)


def test_offline_a_remote_id_is_one_clear_error(tmp_path, monkeypatch):
    from minari.storage import remotes

    def offline():
        raise ConnectionError("no route to host\nmore")

    monkeypatch.setattr(remotes, "get_cloud_storage", offline)
    with pytest.raises(OdiceError, match=r"mujoco/hopper/medium-v0: .*\(no route to host\); local Minari ids: none"):
        odice.load("mujoco/hopper/medium-v0")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"total_episodes": 0}, "0 episodes"),
        ({"total_episodes": 5}, r"'total_episodes' are 5, but main_data\.hdf5 holds 2"),
        ({"action": {"type": "Tuple"}}, "actions are of type 'Tuple'"),
        ({"action": {"type": "Discrete", "n": 2, "start": 5}}, "start at 5"),
        ({"space": {"type": "Text"}}, "is text"),
    ],
)
def test_minari_data_that_cannot_be_used(tmp_path, change, message):
    minari_dataset(tmp_path / "minari", **change)
    with pytest.raises(OdiceError, match=message):
        odice.load("maze/test-v0")


def test_a_broken_minari_description(tmp_path):
    minari_dataset(tmp_path / "minari")
    path = tmp_path / "minari" / "maze" / "test-v0" / "data" / "metadata.json"
    for content in ("{", "[]", ""):
        path.write_text(content)
        with pytest.raises(OdiceError, match=r"metadata\.json"):
            odice.load("maze/test-v0")
