"""D4RL's AntMaze against the numbers of D4RL's source, and against the laws that they imply."""

import mujoco
import numpy as np
import pytest

from odice.collection.planner.gait import WALK, Walk, trial, uprightness
from odice.collection.planner.route import Grid, Route
from odice.d4rl import ANTMAZE_DATA, MAZE_LAYOUTS, in_walls, maze_center, maze_size
from odice.envs.antmaze import OPEN, AntEnv, AntMazeEnv, ant_xml
from odice.envs.make import make, resolve
from odice.envs.perturb import perturb_start

MAPS = {
    "umaze": """
        #####
        #...#
        ###.#
        #...#
        #####""",
    "medium": """
        ########
        #..##..#
        #..#...#
        ##...###
        #..#...#
        #.#..#.#
        #...#..#
        ########""",
    "large": """
        ############
        #....#.....#
        #.##.#.#.#.#
        #......#...#
        #.####.###.#
        #..#.#.....#
        ##.#.#.#.###
        #..#...#...#
        ############""",
}
GOALS = {"umaze": (0, 8), "medium": (20, 20), "large": (32, 24)}
"""x, y of the goal cell's center: 4 (column - 1), 4 (row - 1)."""


@pytest.fixture(scope="module")
def ant():
    return AntEnv()


def test_the_robot_is_d4rls(ant):
    model = ant.model
    assert (model.opt.timestep, model.opt.integrator) == (0.02, mujoco.mjtIntegrator.mjINT_RK4)
    assert ant.dt == pytest.approx(0.1)
    motors = [model.joint(model.actuator_trnid[i, 0]).name for i in range(model.nu)]
    assert motors == [f"{joint}_{leg}" for leg in (4, 1, 2, 3) for joint in ("hip", "ankle")]
    np.testing.assert_array_equal(model.actuator_gear[:, 0], 1)
    np.testing.assert_array_equal(model.actuator_ctrlrange, [[-30, 30]] * 8)
    np.testing.assert_allclose(model.geom_solref, [[0.02, 1]] * model.ngeom)
    np.testing.assert_allclose(model.geom_solimp[:, :3], [[0.8, 0.8, 0.01]] * model.ngeom)
    np.testing.assert_allclose(model.geom_friction, [[1, 0.5, 0.5]] * model.ngeom)
    np.testing.assert_allclose(model.geom_margin, 0.01)
    np.testing.assert_array_equal(model.geom_condim, 3)
    np.testing.assert_allclose(model.dof_armature[6:], 1)
    np.testing.assert_allclose(model.dof_damping[6:], 1)
    hips, ankles = model.jnt_range[1::2], model.jnt_range[2::2]
    np.testing.assert_allclose(hips, np.radians([[-30, 30]] * 4))
    np.testing.assert_allclose(ankles, np.radians([[30, 70], [-70, -30], [-70, -30], [30, 70]]))
    torso = model.geom("torso_geom").id
    assert model.geom_size[torso, 0] == 0.25
    # density 5: the masses of a ball and of twelve capsules, by hand
    capsule = lambda length: np.pi * 0.08**2 * length + 4 / 3 * np.pi * 0.08**3
    volume = 4 / 3 * np.pi * 0.25**3 + 4 * (2 * capsule(np.hypot(0.2, 0.2)) + capsule(np.hypot(0.4, 0.4)))
    assert model.body_mass.sum() == pytest.approx(5 * volume, rel=1e-6)


def test_a_torque_of_one_is_thirty_newton_meters(ant):
    """In the air without joint limits, a constant torque on one hip gives the acceleration of armature and damping."""
    ant.reset(seed=0)
    ant.set_state(np.array([0, 0, 5, 1, 0, 0, 0, 0, 1, 0, -1, 0, -1, 0, 1.0]), np.zeros(14))
    action = np.zeros(8)
    action[2] = 1.0  # hip_1
    ant.data.ctrl[:] = 0
    ant.simulate(action)
    assert ant.data.time == pytest.approx(0.1)
    assert ant.data.qfrc_actuator[6] == pytest.approx(30)
    np.testing.assert_allclose(ant.data.qfrc_actuator[7:], 0)
    ant.set_state(ant.init_qpos, np.zeros(14))
    ant.simulate(np.full(8, -7.0))  # beyond the bounds: cut
    np.testing.assert_allclose(ant.data.qfrc_actuator[6:], -30)


def test_same_motion_as_gymnasiums_ant_where_the_two_agree(ant):
    """In free flight contacts do not matter: ten half steps of Gymnasium's integration with the same torque."""
    import gymnasium

    other = gymnasium.make("Ant-v5").unwrapped
    rng = np.random.default_rng(0)
    start = np.array([0, 0, 5, 1, 0, 0, 0, 0, 1, 0, -1, 0, -1, 0, 1.0])
    action = 0.2 * rng.uniform(-1, 1, 8)
    ant.reset(seed=0)
    ant.set_state(start, np.zeros(14))
    ant.simulate(action)
    other.reset(seed=0)
    other.set_state(start, np.zeros(14))
    other.do_simulation(30 * action / 150, 10)  # 10 x 0.01 s, gear 150
    np.testing.assert_allclose(ant.data.qpos, other.data.qpos, atol=1e-5)
    np.testing.assert_allclose(ant.data.qvel, other.data.qvel, atol=1e-3)


@pytest.mark.parametrize("size", MAPS)
def test_walls_stand_where_the_map_says(size):
    env = AntMazeEnv(size)
    model = env.model
    walls = [i for i in range(model.ngeom) if model.geom(i).name.startswith("wall")]
    boxes = {tuple(np.round(model.geom_pos[i], 6)) for i in walls}
    cells = [line.strip() for line in MAPS[size].split()]
    expected = {
        (4.0 * (column - 1), 4.0 * (row - 1), 1.0)
        for row, line in enumerate(cells)
        for column, cell in enumerate(line)
        if cell == "#"
    }
    assert boxes == expected
    np.testing.assert_array_equal(model.geom_size[walls], [[2, 2, 1]] * len(walls))
    # a ray from above meets the floor on free cells, and the top of a wall elsewhere
    env.reset(seed=0)
    hit = np.zeros(1, np.int32)
    for row, line in enumerate(cells):
        for column, cell in enumerate(line):
            point = np.array([4.0 * (column - 1) + 0.9, 4.0 * (row - 1) - 0.9, 30.0])
            distance = mujoco.mj_ray(model, env.data, point, np.array([0, 0, -1.0]), None, 1, 1, hit)
            assert distance == pytest.approx(28 if cell == "#" else 30), (row, column)
            assert in_walls(point[None, :2], size)[0] == (cell == "#")


@pytest.mark.parametrize("size", MAPS)
def test_starts_and_goals(size):
    env = make(f"antmaze-{size}-v2")
    world = env.unwrapped
    goals, starts, speeds = [], [], []
    for seed in range(200):
        obs, info = env.reset(seed=seed)
        assert obs.shape == (29,)
        np.testing.assert_array_equal(obs, np.concatenate([world.data.qpos, world.data.qvel]))
        assert np.linalg.norm(obs[3:7]) == pytest.approx(1)
        goals.append(info["goal"])
        starts.append(obs[[0, 1, 2, *range(7, 15)]])
        speeds.append(obs[15:])
    off = np.array(goals) - GOALS[size]
    assert off.min() >= 0
    assert off.max() <= 1.5
    np.testing.assert_allclose(off.mean(0), 0.75, atol=0.1)  # 1/2 + 1/4
    np.testing.assert_allclose(off.std(0), np.sqrt((1 + 0.25) / 12), atol=0.05)
    usual = np.array([0, 0, 0.55, 0, 1, 0, -1, 0, -1, 0, 1])
    assert np.abs(np.array(starts) - usual).max() <= 0.1
    np.testing.assert_allclose(np.array(starts).std(0), 0.2 / np.sqrt(12), rtol=0.2)
    assert np.std(speeds) == pytest.approx(0.1, rel=0.05)
    assert env.spec.max_episode_steps == (700 if size == "umaze" else 1000)
    again, _ = env.reset(seed=3)
    np.testing.assert_array_equal(again[15:], speeds[3])


def test_success_is_half_a_meter_and_a_fall_is_nothing():
    env = make("antmaze-umaze-v2")
    world = env.unwrapped
    env.reset(seed=0)
    for distance, reached in ((0.52, False), (0.48, True)):
        qpos = world.init_qpos.copy()
        qpos[:2] = world.goal - [distance, 0]
        world.set_state(qpos, np.zeros(14))
        world.data.qacc_warmstart[:] = 0
        _, reward, terminated, truncated, _ = env.step(np.zeros(8))
        assert (reward, terminated, truncated) == (float(reached), reached, False)
        env.reset(seed=0)
    qpos = world.init_qpos.copy()
    qpos[2:7] = [0.3, 0, 1, 0, 0]  # on its back
    world.set_state(qpos, np.zeros(14))
    for _ in range(699):
        obs, reward, terminated, truncated, _ = env.step(np.zeros(8))
        assert (reward, terminated, truncated) == (0.0, False, False)
    assert uprightness(obs) < 0
    assert env.step(np.zeros(8))[3]  # 700 steps


def test_the_wall_holds_the_ant():
    env = AntMazeEnv("umaze")
    env.reset(seed=0)
    for _ in range(300):
        env.simulate(WALK(env._get_obs(), np.array([0.0, 1.0])))
    x, y = env.data.qpos[:2]
    assert 0.5 < y < 2.1  # the wall begins at 2; the torso has a radius of 0.25
    assert not in_walls(np.array([[x, y]]), "umaze", 0.1)[0]


def test_names():
    for name in ANTMAZE_DATA:
        task = resolve(name)
        assert task.env_id == f"odice/AntMaze-{maze_size(name)}-v2"
        assert "D4RL's maze and ant" in task.note
    assert resolve("AntMaze_UMaze-v5").env_id == "AntMaze_UMaze-v5"
    assert "not comparable" in resolve("AntMaze_UMaze-v5").note
    assert maze_size("pointmaze-umaze") is None
    assert maze_size("hopper-medium-v2") is None


def test_start_noise_is_possible():
    env = make("antmaze-umaze-v2")
    before, _ = env.reset(seed=0)
    after = perturb_start(env, 0.05, np.random.default_rng(0))
    assert 0.01 < np.abs(after - before).mean() < 0.2
    assert np.linalg.norm(after[3:7]) == pytest.approx(1)


def test_the_goal_is_drawn_where_it_is():
    env = AntMazeEnv("umaze")
    for seed in range(2):
        _, info = env.reset(seed=seed)
        env.simulate(np.zeros(8))
        np.testing.assert_allclose(env.data.site("goal").xpos[:2], info["goal"])


def test_open_ground_has_no_walls():
    assert "wall" not in ant_xml(OPEN)
    assert AntEnv().model.nv == 14


# --- the walk ---------------------------------------------------------------------------------------------------------


def test_the_walk_knows_no_direction_of_its_own(ant):
    """Turning the ant and the wish together changes nothing."""
    obs, _ = ant.reset(seed=1)
    action = WALK(obs, np.array([1.0, 0.3]))
    angle = 1.1
    turned = obs.copy()
    w, x, y, z = obs[3:7]
    c, s = np.cos(angle / 2), np.sin(angle / 2)
    turned[3:7] = [c * w - s * z, c * x - s * y, c * y + s * x, c * z + s * w]
    rotation = np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
    np.testing.assert_allclose(WALK(turned, rotation @ [1.0, 0.3]), action, atol=1e-12)
    assert np.abs(WALK(obs, np.array([-1.0, 0.3])) - action).max() > 0.05


def test_the_walk_walks():
    speeds = [trial(WALK, seed) for seed in range(5)]
    assert np.median(speeds) > 0.5
    still = Walk(swing=0.0, reach=0.0, turn=0.0)
    assert np.mean([trial(still, seed) for seed in range(2)]) < 0.2


@pytest.mark.parametrize(("size", "episodes"), [("umaze", 4), ("medium", 2)])
def test_an_ant_that_walks_reaches_the_goal(size, episodes):
    env = make(f"antmaze-{size}-v2")
    grid, reached = Grid.of_d4rl(size), 0
    for seed in range(episodes):
        obs, info = env.reset(seed=seed)
        route = Route(grid, info["goal"], obs[:2])
        terminated = truncated = False
        while not (terminated or truncated):
            obs, _, terminated, truncated, _ = env.step(WALK(obs, route.waypoint(obs[:2]) - obs[:2]))
        reached += terminated
    assert reached >= episodes / 2


def test_grid_and_geometry_agree():
    for size, layout in MAZE_LAYOUTS.items():
        grid = Grid.of_d4rl(size)
        for cell in grid.cells:
            np.testing.assert_array_equal(grid.center(cell), maze_center(cell))
            assert grid.cell(grid.center(cell) + np.array([1.9, -1.9])) == cell
        assert layout.free[layout.goal]
        assert all(layout.free[cell] for cell in layout.targets)
