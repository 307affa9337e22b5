"""The names of mazes, and the mazes of gymnasium-robotics: one start cell, one goal that the robot does not see.

`antmaze-*` are D4RL's (`envs.antmaze`). `pointmaze-*`, `PointMaze_*` and `AntMaze_*` are gymnasium-robotics' (the extra
`mazes`), which need four corrections: it moves the goal by up to a meter at every reset, gives observations as a dict
that holds the goal, adds 78 contact forces to the ant's, and leaves a model file behind in the temporary directory for
each environment.

The name of a maze also selects its data (`collection.planner` makes them, docs/reference/mazes.md explains them). The
evaluation task is the same for `antmaze-medium`, `antmaze-medium-play` and `antmaze-medium-diverse`.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from odice.d4rl import MAZE_LAYOUTS, antmaze_id
from odice.envs import robotics
from odice.errors import OdiceError

if TYPE_CHECKING:
    import gymnasium


class Size(NamedTuple):
    """A size of maze: umaze, medium or large."""

    label: str  # in Gymnasium's ids
    layout: str  # its name in gymnasium_robotics.envs.maze.maps
    goal: tuple[int, int]  # row and column; the start is always (1, 1)
    steps: dict[str, int]  # time limits


SIZES = {
    "umaze": Size("UMaze", "U_MAZE", (3, 1), {"ant": 700, "point": 300}),
    "medium": Size("Medium", "MEDIUM_MAZE", (6, 6), {"ant": 1000, "point": 600}),
    "large": Size("Large", "LARGE_MAZE", (7, 9), {"ant": 1000, "point": 800}),
}
START = (1, 1)
POINT_VERSION = "v3"


class Maze(NamedTuple):
    """A maze, and what its name says of the data."""

    name: str
    robot: str  # ant, point
    size: str
    env_id: str
    variant: str  # of the data: "" (fixed start and goal), play, diverse

    @property
    def d4rl(self) -> bool:
        """Whether this is D4RL's own maze and robot, rebuilt."""
        return self.env_id.startswith("odice/")

    @property
    def note(self) -> str:
        """What a reader of scores in this maze should know."""
        if self.d4rl:
            return (
                f"{self.name} is D4RL's maze and ant on today's MuJoCo; D4RL ran them on mujoco-py "
                "(docs/reference/mazes.md says what was checked)"
            )
        return (
            f"{self.env_id} with the goal at its cell's center; the robot, its scale and its start are not D4RL's, so "
            "scores are not comparable with published ones (docs/reference/mazes.md)"
        )


def maze_of(name: str) -> Maze | None:
    """The maze of a name: `antmaze-medium-play-v2`, `pointmaze-large`, `AntMaze_UMaze-v5` ... or None."""
    if match := re.fullmatch(r"antmaze-(umaze|medium|large)(-play|-diverse)?(-v\d)?", name):
        return Maze(name, "ant", match[1], antmaze_id(match[1]), (match[2] or "")[1:])
    if match := re.fullmatch(r"pointmaze-(umaze|medium|large)(-play|-diverse)?(-v\d)?", name):
        return Maze(name, "point", match[1], _robotics_id("point", match[1], POINT_VERSION), (match[2] or "")[1:])
    if match := re.fullmatch(r"(Ant|Point)Maze_(UMaze|Medium|Large)-(v\d)", name):
        robot, size = match[1].lower(), match[2].lower()
        return Maze(name, robot, size, _robotics_id(robot, size, match[3]), "")
    return None


def _robotics_id(robot: str, size: str, version: str) -> str:
    return f"{robot.title()}Maze_{SIZES[size].label}-{version}"


def play_targets(maze: Maze) -> list[tuple[int, int]]:
    """The hand-picked cells that the robot visits in `play` data: D4RL's choice, and the goal."""
    layout = MAZE_LAYOUTS[maze.size]
    if not layout.targets:
        raise OdiceError(f"{maze.name}: there are no play targets for this maze; use the suffix -diverse, or none.")
    return list(dict.fromkeys([*layout.targets, layout.goal]))  # in the large maze the goal is one of those picked


def _maps(name: str) -> Any:
    """Register gymnasium-robotics' environments, and return the module with its layouts."""
    robotics.register(name)
    from gymnasium_robotics.envs.maze import maps  # pyright: ignore[reportMissingImports]

    return maps


def make_maze(name: str, *, max_steps: int | None = None, render_mode: str | None = None) -> gymnasium.Env:
    """The evaluation task of a maze: the data's observation, reward 1 and the end at the goal, else 0."""
    import gymnasium

    maze = maze_of(name)
    assert maze is not None
    if maze.d4rl:
        from odice.envs import antmaze

        antmaze.register()
        return gymnasium.make(
            maze.env_id, max_episode_steps=max_steps, render_mode=render_mode, disable_env_checker=True
        )
    maps = _maps(name)
    size = SIZES[maze.size]
    cells = [list(row) for row in getattr(maps, size.layout)]
    cells[START[0]][START[1]], cells[size.goal[0]][size.goal[1]] = maps.RESET, maps.GOAL
    try:
        env = gymnasium.make(
            maze.env_id,
            maze_map=cells,
            continuing_task=False,
            max_episode_steps=max_steps or size.steps[maze.robot],
            render_mode=render_mode,
            disable_env_checker=True,
            **({"include_cfrc_ext_in_observation": False} if maze.env_id == f"AntMaze_{size.label}-v5" else {}),
        )
    except gymnasium.error.Error as error:
        raise OdiceError(f"Gymnasium cannot make {maze.env_id!r}: {error}") from None
    robotics.remove_model_file(env)
    return _fixed_goal(env, maze)


def _fixed_goal(env: gymnasium.Env, maze: Maze) -> gymnasium.Env:
    """Put the goal at its cell's center, and observe position and velocity without it."""
    import gymnasium

    class GoalAtCenter(gymnasium.Wrapper):
        def __init__(self, env: gymnasium.Env):
            super().__init__(env)
            inner = env.unwrapped
            self._goal = inner.maze.cell_rowcol_to_xy(np.array(SIZES[maze.size].goal))  # pyright: ignore
            width = inner.model.nq + inner.model.nv  # pyright: ignore
            self.observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (width,), np.float64)

        def reset(self, *, seed=None, options=None):
            obs, info = self.env.reset(seed=seed, options=options)
            inner = self.env.unwrapped
            inner.goal = self._goal.copy()  # pyright: ignore
            inner.update_target_site_pos()  # pyright: ignore
            return self.observation(obs), info

        def step(self, action):
            obs, reward, terminated, truncated, info = self.env.step(action)
            return self.observation(obs), float(reward), terminated, truncated, info

        def observation(self, obs):
            if maze.robot == "point":  # the ball's observation starts with its position already
                return obs["observation"]
            return np.concatenate([obs["achieved_goal"], obs["observation"]])

    return GoalAtCenter(env)
