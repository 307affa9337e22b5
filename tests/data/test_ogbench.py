"""OGBench's files: rows by hand, and against the package's own reading where it is installed."""

import numpy as np
import pytest

import odice
from odice.data.doctor import inspect
from odice.envs import ogbench as envs
from odice.envs.make import make, resolve
from odice.errors import OdiceError
from odice.ogbench import names_of

NAME = "antmaze-medium-navigate-singletask-task1-v0"


def write(
    folder, name="antmaze-medium-navigate-v0", trajectories=3, length=5, width=29, actions=8, positions=15, **more
):
    """Trajectories of `length` rows, the last of which is marked; positions walk along x, one meter per row."""
    n = trajectories * length
    step = np.tile(np.arange(length), trajectories)
    rng = np.random.default_rng(0)
    qpos = rng.normal(size=(n, positions))
    qpos[:, 0], qpos[:, 1] = step, 0.0
    path = folder / f"{name}.npz"
    arrays = {
        "observations": rng.normal(size=(n, width)).astype(np.float32),
        "actions": rng.uniform(-1, 1, (n, actions)).astype(np.float32),
        "terminals": (step == length - 1).astype(np.float32),
        "qpos": qpos,
        "qvel": rng.normal(size=(n, 14)),
    }
    np.savez(path, **{**arrays, **more})
    return path


@pytest.fixture
def goal(monkeypatch):
    """A goal at x = 2 with radius 0.5: reached in the third row of each trajectory."""
    place = envs.Place(0, np.array([2.0, 0.0]), 0.5)
    monkeypatch.setattr(envs, "task_goals", lambda env_id: envs.Goals(place=place))


def test_rows_by_hand(tmp_path, goal):
    path = write(tmp_path)
    data = odice.load(NAME, data_dir=tmp_path)
    stored = np.load(path)
    assert data.n_steps == 3 * 4  # the last row of a trajectory is where its last action led
    assert data.rewards.tolist() == [-1, -1, 0, -1] * 3
    assert data.terminated.tolist() == [True, False] * 3  # a trajectory goes on after its goal
    assert data.truncated.tolist() == [False, True] * 3
    assert data.lengths.tolist() == [3, 1] * 3
    np.testing.assert_array_equal(data.actions[:4], stored["actions"][:4])
    np.testing.assert_array_equal(data.observations[:4], stored["observations"][:4])  # and after the third, the fourth
    np.testing.assert_array_equal(data.observations[5], stored["observations"][4])
    assert data.meta.env_id == "antmaze-medium-singletask-task1-v0"
    assert not inspect(data).errors  # in particular, D4RL's maze of that name is another one


def test_names():
    assert names_of("cube-double-play-singletask-v0") == ("cube-double-play-v0.npz", "cube-double-singletask-v0")
    assert names_of("antmaze-large-navigate-v0") is None
    assert resolve("puzzle-3x3-singletask-task4-v0").reference == (0.0, 1.0)


def test_refusals(tmp_path, goal):
    with pytest.raises(OdiceError, match=r"download https://rail.*/antmaze-medium-navigate-v0.npz there"):
        odice.load(NAME, data_dir=tmp_path)
    with pytest.raises(OdiceError, match="not the name of OGBench's single-task data"):
        odice.load(write(tmp_path), format="ogbench", name="antmaze-medium-navigate-v0")
    write(tmp_path, observations=np.zeros((15, 8, 8, 3), np.uint8))
    with pytest.raises(OdiceError, match="no networks for images"):
        odice.load(NAME, data_dir=tmp_path)
    write(tmp_path, terminals=np.zeros(15))
    with pytest.raises(OdiceError, match="the last row ends no trajectory"):
        odice.load(NAME, data_dir=tmp_path)


def test_without_the_extra(monkeypatch):
    import sys

    monkeypatch.setitem(sys.modules, "ogbench", None)
    with pytest.raises(OdiceError, match=r"pip install 'odice\[ogbench\]'"):
        make("cube-single-singletask-v0")


@pytest.mark.filterwarnings("ignore:.*precision lowered.*")
@pytest.mark.parametrize(
    ("name", "shape"),
    [
        ("antmaze-medium-navigate-singletask-task1-v0", {}),
        ("cube-single-play-singletask-task2-v0", {"width": 28, "actions": 5, "positions": 21}),
        ("scene-play-singletask-v0", {"width": 40, "actions": 5, "positions": 25}),
        ("puzzle-3x3-play-singletask-v0", {"width": 55, "actions": 5, "positions": 23}),
    ],
)
def test_rewards_and_ends_are_the_packages_own(tmp_path, name, shape):
    ogbench = pytest.importorskip("ogbench")
    names = names_of(name)
    buttons = {"scene": 2, "puzzle": 9}.get(name.split("-")[0])
    rng = np.random.default_rng(1)
    more = {} if buttons is None else {"button_states": rng.integers(0, 2, (15, buttons))}
    path = write(tmp_path, names.file.removesuffix(".npz"), **shape, **more)
    goals = envs.task_goals(names.env_id)
    stored = dict(np.load(path))
    if goals.place is not None:
        stored["qpos"][2, :2] = goals.place.xy + 0.1
    for i, cube in enumerate(goals.cubes):
        stored["qpos"][2:4, 14 + 7 * i : 17 + 7 * i] = cube
    for column, target in goals.slides:
        stored["qpos"][2, column] = target
    if goals.buttons is not None:
        stored["button_states"][2] = goals.buttons
    for file in (path, path.with_name(f"{path.stem}-val.npz")):
        np.savez(file, **stored)
    ours = odice.load(name, data_dir=tmp_path)
    theirs, _ = ogbench.make_env_and_datasets(
        name, dataset_path=str(path), dataset_only=True, cur_env=make(names.env_id)
    )
    np.testing.assert_array_equal(ours.rewards, theirs["rewards"])
    np.testing.assert_array_equal(ours.terminated[:1], [True])
    rows = np.zeros(ours.n_steps, bool)
    rows[ours.ends] = ours.terminated
    np.testing.assert_array_equal(rows, theirs["masks"] == 0)
    assert rows.any()
