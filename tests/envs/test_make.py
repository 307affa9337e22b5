"""Names and the environments they stand for."""

import sys
from importlib.util import find_spec

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from odice.d4rl import REFERENCES
from odice.envs.make import make, resolve
from odice.envs.mazes import make_maze, maze_of
from odice.errors import OdiceError

HAS_MAZES = find_spec("gymnasium_robotics") is not None


@pytest.mark.parametrize(
    ("name", "env_id", "reference"),
    [
        ("hopper-medium-v2", "Hopper-v4", (-20.272305, 3234.3)),
        ("halfcheetah-medium-expert-v2", "HalfCheetah-v4", (-280.178953, 12135.0)),
        ("walker2d-medium-replay-v2", "Walker2d-v4", (1.629008, 4592.3)),
        ("ant-random-v2", "Ant-v4", (-325.6, 3879.7)),
        ("Hopper-v2", "Hopper-v4", (-20.272305, 3234.3)),
        ("Walker2d-v3", "Walker2d-v4", (1.629008, 4592.3)),
        ("Hopper-v5", "Hopper-v5", (-20.272305, 3234.3)),
        ("Ant-v5", "Ant-v5", None),
        ("CartPole-v1", "CartPole-v1", None),
        ("antmaze-large-play-v2", "odice/AntMaze-large-v2", (0.0, 1.0)),
        ("pointmaze-umaze", "PointMaze_UMaze-v3", (0.0, 1.0)),
        ("AntMaze_Medium-v4", "AntMaze_Medium-v4", (0.0, 1.0)),
    ],
)
def test_what_names_stand_for(name, env_id, reference):
    task = resolve(name)
    assert (task.name, task.env_id, task.reference) == (name, env_id, reference)
    assert (task.note is not None) == (reference is not None)  # whoever shows a score says what it is


def test_every_d4rl_name_resolves_or_says_that_it_cannot():
    for name in REFERENCES:
        try:
            resolve(name)
        except OdiceError as error:
            assert "no counterpart in Gymnasium" in str(error)  # noqa: PT017
            assert name.split("-")[0] in ("pen", "hammer", "door", "relocate", "kitchen", "maze2d")


@pytest.mark.parametrize("name", ["Hopper-v4", "Hopper-v5", "hopper-medium-v2", "CartPole-v1", "Pendulum-v1"])
def test_makes(name):
    env = make(name, max_steps=5)
    obs, _ = env.reset(seed=0)
    assert obs.shape == env.observation_space.shape
    for _ in range(5):
        *_, truncated, _ = env.step(env.action_space.sample())
    assert truncated
    env.close()


def test_legacy_ant_has_its_silent_contact_forces():
    env = make("ant-medium-v2")
    obs, _ = env.reset(seed=0)
    plain, _ = make("Ant-v4").reset(seed=0)
    assert obs.shape == env.observation_space.shape == (111,)
    np.testing.assert_array_equal(obs, np.concatenate([plain, np.zeros(84)]))


def test_mujoco_leaves_no_log_behind(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    make("HalfCheetah-v4").close()  # its model makes MuJoCo warn
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("Hoper-v4", "Unknown environment 'Hoper-v4'. Did you mean 'Hopper-v4'?"),
        ("hoper-medium-v2", "Did you mean 'hopper-medium-v2'?"),
        ("Hopper-v9", "Did you mean 'Hopper-v"),
        ("no such thing", "cannot make 'no such thing'"),
        ("Blackjack-v1", "observations of type Tuple"),
        ("FrozenLake-v1", "observations of type Discrete"),
        ("pen-human-v1", "no counterpart in Gymnasium"),
        ("os:Env-v0", "would import a Python module"),
    ],
)
def test_refusals(name, says):
    with pytest.raises(OdiceError) as caught:
        make(name)
    assert says in str(caught.value)


def test_an_environment_that_cannot_be_built(monkeypatch):
    def broken():
        raise RuntimeError("no licence")

    monkeypatch.setitem(gymnasium.registry, "Broken-v0", gymnasium.envs.registration.EnvSpec("Broken-v0", broken))
    with pytest.raises(OdiceError, match="cannot make 'Broken-v0': RuntimeError: no licence"):
        make("Broken-v0")


def test_a_typed_import_is_done(monkeypatch, tmp_path):
    (tmp_path / "my_plant.py").write_text(
        "import gymnasium\ngymnasium.register('Plant-v0', 'gymnasium.envs.classic_control:PendulumEnv')\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(OdiceError, match="would import"):
        make("my_plant:Plant-v0")
    assert make("my_plant:Plant-v0", allow_import=True, max_steps=3).reset(seed=0)[0].shape == (3,)


def test_grids_become_vectors(monkeypatch):
    class Grid(gymnasium.Env):
        observation_space = spaces.Box(0, 1, (2, 3))
        action_space = spaces.Discrete(2)

        def reset(self, *, seed=None, options=None):
            return np.arange(6, dtype=np.float32).reshape(2, 3), {}

    monkeypatch.setitem(gymnasium.registry, "Grid-v0", gymnasium.envs.registration.EnvSpec("Grid-v0", Grid))
    assert make("Grid-v0").reset()[0].tolist() == [0, 1, 2, 3, 4, 5]


@pytest.mark.parametrize(
    ("name", "robot", "size"),
    [("antmaze-umaze-diverse-v0", "ant", "umaze"), ("PointMaze_Large-v3", "point", "large")],
)
def test_names_of_mazes(name, robot, size):
    maze = maze_of(name)
    assert maze is not None
    assert (maze.robot, maze.size) == (robot, size)
    assert maze_of("antmaze-huge-v2") is None


def test_mazes_need_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "gymnasium_robotics", None)  # importing it fails, installed or not
    with pytest.raises(OdiceError, match=r"pip install 'odice\[mazes\]'"):
        make("AntMaze_UMaze-v5")


@pytest.mark.skipif(not HAS_MAZES, reason="needs gymnasium-robotics")
@pytest.mark.parametrize(
    ("name", "width", "goal"),
    [
        ("AntMaze_UMaze-v5", 29, (-4, -4)),
        ("AntMaze_Large-v5", 29, (14, -12)),
        ("pointmaze-medium", 4, (2.5, -2.5)),
    ],
)
def test_mazes(name, width, goal):
    env = make_maze(name)
    starts = []
    for seed in range(3):
        obs, _ = env.reset(seed=seed)
        assert obs.shape == (width,)
        np.testing.assert_allclose(env.unwrapped.goal, goal)  # the noise on it is undone
        starts.append(obs[:2])
    assert not np.array_equal(starts[0], starts[1])  # the start keeps its own
    _, reward, terminated, _, _ = env.step(env.action_space.sample())
    assert (reward, terminated) == (0.0, False)
    world = env.unwrapped
    body = world.ant_env if hasattr(world, "ant_env") else world.point_env
    qpos = body.data.qpos.copy()
    qpos[:2] = goal
    body.set_state(qpos, body.data.qvel * 0)
    _, reward, terminated, _, _ = env.step(np.zeros(env.action_space.shape, np.float32))
    assert (reward, terminated) == (1.0, True)
    env.close()


def test_an_action_that_is_no_vector_is_refused(monkeypatch):
    class Knob(gymnasium.Env):
        observation_space = spaces.Box(0, 1, (2,))
        action_space = spaces.Box(-1, 1, ())

    monkeypatch.setitem(gymnasium.registry, "Knob-v0", gymnasium.envs.registration.EnvSpec("Knob-v0", Knob))
    with pytest.raises(OdiceError, match=r"odice needs a vector \(Box\) or a choice"):
        make("Knob-v0")
