"""Maze data: what the log must obey, checked against the simulator and by geometry."""

import json
import sys
from importlib.util import find_spec

import numpy as np
import pytest

from odice.cli.main import main
from odice.collection.planner import mazes
from odice.collection.planner.mazes import Walker, collect_maze, plans, push_ball
from odice.data.doctor import inspect
from odice.data.load import load
from odice.envs.make import make
from odice.envs.mazes import maze_of, play_targets
from odice.errors import OdiceError
from odice.evaluation.simulator.evaluate import Evaluator

needs_mazes = pytest.mark.skipif(find_spec("gymnasium_robotics") is None, reason="needs gymnasium-robotics")
START, GOAL = np.array([-1.0, 1.0]), np.array([-1.0, -1.0])  # of the ball's U, whose cells are a meter wide


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"name": "pointmaze-huge"}, "no planner"),
        ({"name": "Hopper-v5"}, "no planner"),
        ({"name": "pointmaze-umaze", "steps": 0}, "steps must be at least 1"),
        ({"name": "pointmaze-umaze", "noise": float("nan")}, "got 10, 0 and nan"),
        ({"name": "AntMaze_UMaze-v5"}, "no planner"),  # gymnasium-robotics' ant, for which there is no walk
        ({"name": "antmaze-umaze-play"}, "no play targets"),
    ],
)
def test_refusals(arguments, says):
    with pytest.raises(OdiceError, match=says):
        collect_maze(**{"steps": 10} | arguments)


def test_without_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "gymnasium_robotics", None)  # importing it fails
    with pytest.raises(
        OdiceError, match=r"^pointmaze-umaze needs gymnasium-robotics; .* pip install 'odice\[mazes\]'$"
    ):
        collect_maze("pointmaze-umaze", 10)


def test_controller_by_hand():
    np.testing.assert_allclose(push_ball(np.array([0.0, 0, 0.5, 0]), np.array([0.08, -0.02])), [0.3, -0.2])
    np.testing.assert_allclose(push_ball(np.zeros(4), np.array([3.0, -3.0])), [1, -1])


@pytest.fixture(scope="module")
def fixed():
    return collect_maze("pointmaze-umaze", 600, seed=3)


@needs_mazes
def test_from_start_to_goal(fixed):
    assert fixed.n_steps == 600
    assert fixed.final_known.all()
    assert fixed.terminated[:-1].all()  # the controller always arrives; the last episode is cut by the budget
    assert (fixed.terminated ^ fixed.truncated).all()
    for episode in fixed:
        place, reached = episode.observations[:, :2], episode.terminated
        assert np.abs(place[0] - START).max() <= 0.25
        assert np.linalg.norm(place[:-1] - GOAL, axis=1).min() > 0.45
        assert (np.linalg.norm(place[-1] - GOAL) <= 0.45) == reached
        np.testing.assert_array_equal(episode.rewards, np.append(np.zeros(len(episode.rewards) - 1), reached))
    assert np.abs(fixed.actions).max() <= 1
    assert np.std(fixed.actions[:, 0]) > 0.3  # noise


@needs_mazes
def test_what_is_logged_is_what_the_evaluation_does(fixed):
    """Every tenth step, and the last of each episode, played again from the stored state."""
    env = make(fixed.meta.env_id)
    env.reset(seed=0)
    for episode in fixed:
        for t in {*range(0, len(episode.rewards), 10), len(episode.rewards) - 1}:
            state = episode.observations[t].astype(float)
            env.unwrapped.point_env.set_state(state[:2], state[2:])
            obs, reward, terminated, _, _ = env.step(episode.actions[t])
            np.testing.assert_allclose(obs, episode.observations[t + 1], atol=1e-5)
            assert (reward, terminated) == (episode.rewards[t], episode.terminated and t == len(episode.rewards) - 1)
        env.reset()  # the time limit counts the steps of both
    env.close()


@needs_mazes
def test_same_seed_same_data(fixed):
    done = []
    again = collect_maze("pointmaze-umaze", 600, seed=3, progress=done.append)
    assert again.fingerprint == fixed.fingerprint
    np.testing.assert_array_equal(done, np.cumsum(fixed.lengths))
    longer = collect_maze("pointmaze-umaze", 700, seed=3)
    np.testing.assert_array_equal(longer.observations[:500], fixed.observations[:500])
    assert collect_maze("pointmaze-umaze", 600, seed=4).fingerprint != fixed.fingerprint
    calm = collect_maze("pointmaze-umaze", 600, seed=3, noise=0.0)
    assert calm.lengths[0] <= fixed.lengths[0] + 10


@needs_mazes
@pytest.mark.parametrize(
    ("name", "starts", "targets"),
    [
        ("pointmaze-medium", {(1, 1)}, {(6, 6)}),
        ("pointmaze-medium-play", None, {(2, 6), (5, 1), (6, 5), (6, 6)}),
        ("pointmaze-medium-diverse", None, None),
    ],
)
def test_variants(name, starts, targets):
    env = make(name)
    walker = Walker(env, maze_of(name), push_ball, 0.5)
    free = {(int(r), int(c)) for r, c in np.argwhere(np.array(maps().MEDIUM_MAZE) == 0)}
    assert len(free) == 26
    assert set(walker.starts) == (starts or free - {(6, 6)})
    assert set(walker.targets) == (targets or free)
    rng = np.random.default_rng(0)
    begun = {walker.grid.cell(walker.episode(rng, 1).observations[0, :2]) for _ in range(20)}
    assert begun <= set(walker.starts)
    assert len(begun) > 5 or starts
    env.close()


def maps():
    from gymnasium_robotics.envs.maze import maps

    return maps


@needs_mazes
def test_each_target_counts_once():
    targets = play_targets(maze_of("antmaze-large-play"))
    assert sorted(targets) == [(1, 6), (3, 5), (3, 10), (5, 2), (7, 4), (7, 6), (7, 9)]


@needs_mazes
def test_nobody_picked_targets_for_the_u():
    with pytest.raises(OdiceError, match="use the suffix -diverse"):
        collect_maze("pointmaze-umaze-play", 10)


@needs_mazes
def test_the_file_knows_its_task(tmp_path):
    data = collect_maze("pointmaze-umaze-diverse", 2000, seed=0)
    assert not inspect(data).findings
    made, how, outcome, versions = data.meta.history
    assert made == "collected in pointmaze-umaze-diverse with the recipe planner, seed 0"
    assert how.endswith("PD controller, action noise 0.5")
    assert f"mean {data.terminated.mean():.3f}" in outcome
    assert "gymnasium-robotics" in versions
    for suffix in (".hdf5", ".parquet"):
        data.save(tmp_path / f"maze{suffix}")
        back = load(tmp_path / f"maze{suffix}")
        assert back.fingerprint == data.fingerprint
        assert (back.meta.ref_min, back.meta.ref_max) == (0, 1)
        assert back.meta.history == data.meta.history
        with Evaluator(back.meta.env_id) as evaluator:
            evaluator.check(*back.spec)


@pytest.mark.parametrize(
    ("env", "recipe", "policy", "planner"),
    [
        ("pointmaze-umaze", None, None, True),
        ("antmaze-umaze", None, None, True),
        ("antmaze-umaze", None, "a/policy", False),  # rolled out
        ("antmaze-umaze", "planner", None, True),
        ("pointmaze-umaze", "random", None, False),
        ("Hopper-v5", None, None, False),
        ("Hopper-v5", "planner", None, True),  # and refused by it
    ],
)
def test_when_the_planner_is_meant(env, recipe, policy, planner):
    assert plans(env, recipe, policy) == planner


@needs_mazes
def test_by_the_command(tmp_path, capsys):
    out = tmp_path / "maze.hdf5"
    assert (
        main(["data", "collect", "--env", "pointmaze-umaze", "--steps", "200", "--seed", "3", "--out", str(out)]) == 0
    )
    assert "waypoint planner and PD controller, action noise 0.5" in capsys.readouterr().out
    assert load(out).fingerprint == collect_maze("pointmaze-umaze", 200, seed=3).fingerprint


def test_the_command_refuses(tmp_path, capsys):
    out = tmp_path / "maze.hdf5"
    for given, says in (
        (["--env", "antmaze-umaze-play"], "no play targets"),
        (["--env", "LQR", "--recipe", "random", "--noise", "1"], "noise"),
    ):
        assert main(["data", "collect", *given, "--out", str(out)]) == 2
        assert says in capsys.readouterr().err
        assert not out.exists()


def test_ant(monkeypatch):
    data = collect_maze("antmaze-umaze", 60, seed=1)
    assert (data.spec.obs_dim, data.spec.action_dim) == (29, 8)
    assert data.meta.env_id == "antmaze-umaze"
    assert np.abs(data.observations[0, :2]).max() <= 0.1  # D4RL's origin is the start cell
    assert [finding.code for finding in inspect(data).errors] == ["zero-rewards"]  # too short to arrive
    assert "goal at" in data.meta.history[2]

    monkeypatch.setattr(mazes, "uprightness", lambda obs: -1.0)
    fallen = collect_maze("antmaze-umaze", 120)
    assert fallen.lengths.tolist() == [50, 50, 20]
    assert fallen.truncated.all()


def test_starts_and_targets_of_the_ant_are_d4rls():
    env = make("antmaze-medium-play")
    walker = Walker(env, maze_of("antmaze-medium-play"), mazes.walk_ant, 0.2, seed=5)
    off = walker.goal - [20, 20]
    assert (off >= 0).all()
    assert (off <= 1.5).all()
    assert set(walker.targets) == {(2, 6), (5, 1), (6, 5), (6, 6)}
    for number in range(20):
        start = walker.episode(np.random.default_rng(number), 1).observations[0, :2]
        cell = walker.grid.cell(start - 0.5)
        assert cell in walker.starts
        assert cell != (6, 6)
        assert ((start - walker.grid.center(cell) >= -0.1) & (start - walker.grid.center(cell) <= 1.1)).all()


@needs_mazes
@pytest.mark.slow
def test_cloning_the_planner_reaches_the_goal(tmp_path):
    """From collected file to evaluated policy by the command line, with no more flags than the file's name."""
    collect_maze("pointmaze-umaze", 5000, seed=0).save(tmp_path / "maze.hdf5")
    settings = (
        "--algo bc --steps 1500 --eval-every 1500 --eval-episodes 8 --policy-hidden 64 64 --policy-lr 1e-3 --quiet"
    )
    out = tmp_path / "run"
    assert main(["train", "--data", str(tmp_path / "maze.hdf5"), *settings.split(), "--out", str(out)]) == 0
    last = [line for line in (out / "evaluations.jsonl").read_text().splitlines() if line][-1]
    assert json.loads(last)["score"] >= 75
