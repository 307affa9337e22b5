"""Minari's dict observations: data are recorded in the environment itself, and the environment is rebuilt from them."""

import json
from pathlib import Path

import h5py
import numpy as np
import pytest

import odice
from odice.envs.make import make, resolve
from odice.envs.options import join, plain, split
from odice.errors import OdiceError
from odice.evaluation.simulator.evaluate import Evaluator
from tests.d4rl_files import write

pytest.importorskip("gymnasium_robotics")


def record(folder: Path, env_id: str, episodes: int = 3, steps: int = 20, **kwargs) -> Path:
    """A Minari folder with random episodes of an environment, as Minari writes them."""
    import gymnasium
    from minari.serialization import serialize_space

    from odice.envs import robotics

    robotics.register(env_id)
    env = gymnasium.make(env_id, disable_env_checker=True, max_episode_steps=steps, **kwargs)
    robotics.remove_model_file(env)
    data = folder / "data"
    data.mkdir(parents=True)
    described = {
        "dataset_id": f"test/{env_id}",
        "data_format": "hdf5",
        "total_episodes": episodes,
        "total_steps": episodes * steps,
        "env_spec": json.dumps({"id": env_id, "kwargs": {**kwargs, "xml_file": "/etc/passwd"}}),
        "observation_space": serialize_space(env.observation_space),
        "action_space": serialize_space(env.action_space),
    }
    (data / "metadata.json").write_text(json.dumps(described))
    with h5py.File(data / "main_data.hdf5", "w") as file:
        for episode in range(episodes):
            obs, _ = env.reset(seed=episode)
            seen, actions, rewards = [obs], [], []
            for _ in range(steps):
                actions.append(env.action_space.sample())
                obs, reward, *_ = env.step(actions[-1])
                seen.append(obs)
                rewards.append(reward)
            group = file.create_group(f"episode_{episode}")
            _store(group, "observations", seen)
            group["actions"], group["rewards"] = np.array(actions), np.array(rewards, float)
            group["terminations"] = np.zeros(steps, bool)
            group["truncations"] = np.arange(steps) == steps - 1
    env.close()
    return folder


def _store(group, name, values):
    if isinstance(values[0], dict):
        inner = group.create_group(name)
        for key in values[0]:
            _store(inner, key, [value[key] for value in values])
    else:
        group[name] = np.array(values)


MAP = [[1, 1, 1, 1, 1], [1, "r", 0, 0, 1], [1, 1, 1, 0, 1], [1, "g", 0, 0, 1], [1, 1, 1, 1, 1]]


@pytest.fixture(scope="module")
def maze(tmp_path_factory):
    folder = tmp_path_factory.mktemp("maze") / "set"
    return record(folder, "PointMaze_UMaze-v3", maze_map=MAP, continuing_task=True)


def test_the_environment_is_built_as_its_data(maze):
    data = odice.load(maze)
    assert data.meta.obs_layout == (("achieved_goal", 2), ("desired_goal", 2), ("observation", 4))
    env_id, options = split(data.meta.env_id)
    assert env_id == "PointMaze_UMaze-v3"
    assert options == {
        "obs": ("achieved_goal", "desired_goal", "observation"),
        "maze_map": MAP,
        "continuing_task": True,
    }  # a path in the description is no option
    env = make(data.meta.env_id)
    for episode in range(3):
        obs, _ = env.reset(seed=episode)
        np.testing.assert_allclose(obs, data.observations[data.starts[episode] + episode], atol=1e-6)
        for t in range(5):
            obs, *_ = env.step(data.actions[data.starts[episode] + t])
            np.testing.assert_allclose(obs, data.observations[data.starts[episode] + episode + t + 1], atol=1e-5)
    env.close()


def test_chosen_parts_in_their_order(maze):
    data = odice.load(maze, obs_keys=["observation", "desired_goal"])
    assert split(data.meta.env_id)[1]["obs"] == ("observation", "desired_goal")
    obs, _ = make(data.meta.env_id).reset(seed=0)
    np.testing.assert_allclose(obs, data.observations[0], atol=1e-6)
    with Evaluator(data.meta.env_id) as evaluator:
        evaluator.check(*data.spec)
        result = evaluator(lambda obs: np.zeros((len(obs), 2)), episodes=2)
    assert result.lengths.tolist() == [300, 300]


@pytest.mark.slow
def test_training_on_a_maze_evaluates_in_it(maze, tmp_path):
    small = {
        "steps": 10,
        "eval_every": 10,
        "eval_episodes": 1,
        "policy_hidden": (8,),
        "quiet": True,
        "allow": ("zero-rewards",),
    }
    run = odice.train(maze, algo="bc", obs_keys=("observation", "desired_goal"), out=tmp_path / "run", **small)
    rows = [json.loads(line) for line in (Path(run.path) / "evaluations.jsonl").read_text().splitlines()]
    assert rows[-1]["env_id"].startswith("PointMaze_UMaze-v3?obs=observation,desired_goal&")


@pytest.mark.parametrize(
    ("env_id", "layout"),
    [("AntMaze_UMaze-v4", (2, 2, 27)), ("FrankaKitchen-v1", None), ("AdroitHandDoor-v1", None)],
)
def test_other_sets_of_minari_evaluate(tmp_path, env_id, layout):
    """Mazes and the kitchen have dict observations, the kitchen's are nested; a hand's are one vector."""
    data = odice.load(record(tmp_path / "set", env_id, episodes=1, steps=3))
    if layout:
        assert tuple(size for _, size in data.meta.obs_layout) == layout
    with Evaluator(data.meta.env_id, max_steps=5) as evaluator:
        evaluator.check(*data.spec)
        result = evaluator(lambda obs: np.zeros((len(obs), data.spec.action_dim)), episodes=1)
    assert result.lengths.tolist() == [5]


def test_options_of_an_environment():
    name = join("Ant-v5", {"reset_noise_scale": 0.2, "words": "a b"}, ["x", "y/z"])
    assert split(name) == ("Ant-v5", {"obs": ("x", "y/z"), "reset_noise_scale": 0.2, "words": "a b"})
    assert resolve(name).env_id == "Ant-v5"
    assert plain({"xml_file": "x.xml", "map": [[1, "r"]], "a": "../b", "render_mode": "human", "n": 3}) == {
        "map": [[1, "r"]],
        "n": 3,
    }
    with pytest.raises(OdiceError, match="a file may not choose these options"):
        make("Ant-v5?xml_file=/tmp/x.xml")
    with pytest.raises(OdiceError, match=r"written NAME\?key=value"):
        make("Ant-v5?nonsense")
    with pytest.raises(OdiceError, match=r"--env 'PointMaze_UMaze-v3\?obs=.*achieved_goal"):
        make("PointMaze_UMaze-v3?reward_type=sparse")
    with pytest.raises(OdiceError, match="has no observation 'goal'; there are: achieved_goal, desired_goal"):
        make("PointMaze_UMaze-v3?obs=goal")


def test_a_d4rl_file_by_its_path_is_the_same_as_by_its_name(tmp_path):
    for name in ("hopper-medium-v2", "antmaze-large-diverse-v2"):
        path = write(tmp_path, name)
        by_path, by_name = odice.load(path), odice.load(name, data_dir=tmp_path)
        assert by_path.fingerprint == by_name.fingerprint
        assert by_path.meta == by_name.meta
        assert by_path.meta.env_id == name
    other = tmp_path / "mine.hdf5"
    path.rename(other)
    assert odice.load(other).meta.env_id is None


@pytest.mark.parametrize(
    ("space", "says"),
    [
        ({"type": "Box", "shape": [8, 8, 3], "dtype": "uint8"}, r"is an image of shape \[8, 8, 3\].*--obs-keys"),
        ({"type": "MultiDiscrete", "nvec": [2, 3]}, "several choices at once"),
        ({"type": "Text"}, "is text"),
    ],
)
def test_what_is_no_vector_is_refused_with_the_reason(tmp_path, space, says):
    data = tmp_path / "data"
    data.mkdir()
    box = {"type": "Box", "shape": [2], "dtype": "float32"}
    described = {
        "total_episodes": 1,
        "observation_space": json.dumps({"type": "Dict", "subspaces": {"image": space, "state": box}}),
        "action_space": json.dumps({"type": "Discrete", "n": 2}),
    }
    (data / "metadata.json").write_text(json.dumps(described))
    stored = {"Box": np.zeros((4, 8, 8, 3), np.uint8), "MultiDiscrete": np.zeros((4, 2), np.int64)}
    with h5py.File(data / "main_data.hdf5", "w") as file:
        group = file.create_group("episode_0")
        group["observations/image"] = stored.get(space["type"], np.array([b"a"] * 4))
        group["observations/state"] = np.zeros((4, 2))
        group["actions"], group["rewards"] = np.zeros(3, np.int64), np.arange(3.0)
        group["terminations"], group["truncations"] = np.zeros(3, bool), np.arange(3) == 2
    with pytest.raises(OdiceError, match=says):
        odice.load(tmp_path)
    assert odice.load(tmp_path, obs_keys=["state"]).spec.obs_dim == 2


def test_images_and_dicts_in_memory_are_refused_with_the_reason():
    episode = {"actions": np.zeros((4, 2)), "rewards": np.zeros(4), "terminated": True}
    images = np.zeros((5, 8, 8, 3), np.uint8)
    with pytest.raises(OdiceError, match=r"'observations' are images of shape \[8, 8, 3\].*encode them"):
        odice.load([{**episode, "observations": images}])
    with pytest.raises(OdiceError, match="is a dict of image, state; join the parts that are vectors"):
        odice.load([{**episode, "observations": {"image": images, "state": np.zeros((5, 3))}}])
    assert odice.load([{**episode, "observations": images[:, 0, 0]}]).spec.obs_dim == 3  # a vector of bytes is none
    assert odice.load([{**episode, "observations": np.zeros((5, 2, 3))}]).spec.obs_dim == 6
