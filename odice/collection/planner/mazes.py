"""Sparse-reward maze data: a planner finds the way, a controller walks it with noise, and the log keeps what happened.

| name                    | starts                  | the robot walks to                                  |
|-------------------------|-------------------------|-----------------------------------------------------|
| `pointmaze-umaze` ...   | the start cell          | the goal                                            |
| `...-play`              | any cell but the goal's | one of a few hand-picked cells, the goal among them |
| `...-diverse`           | any cell but the goal's | any cell, the goal's among them                     |

The reward is that of the evaluation task, whatever the robot walks to: 1 at its goal, where the episode ends, else 0. A
robot that has reached another target gets a new one and goes on until the time limit. So the way from the start to the
goal has to be stitched together from segments of several episodes. The ant's mazes are D4RL's (`envs.antmaze`), with
D4RL's starts, targets and noise; docs/reference/mazes.md says what its recipe has and this one has not.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float
from numpy import ndarray as Arr

from odice import __version__
from odice.collection.planner.gait import WALK, uprightness
from odice.collection.planner.route import Cell, Grid, Route
from odice.data.build import from_episodes
from odice.data.dataset import Dataset, Episode, Meta
from odice.envs.antmaze import RADIUS, draw_goal, draw_start
from odice.envs.make import make
from odice.envs.mazes import SIZES, START, Maze, maze_of, play_targets
from odice.errors import OdiceError
from odice.training.provenance import versions

if TYPE_CHECKING:
    import gymnasium

NOISE = {"point": 0.5, "ant": 0.2}
"""Standard deviation of the noise on actions: D4RL's numbers."""
REACHED = {"point": 0.45, "ant": RADIUS}
"""Meters within which a target counts as reached: the goal's radius."""
TARGET_SPREAD = 0.25  # cells: targets of the ball other than the goal lie this near their cell's center
HELPLESS = 50  # steps on its back after which an ant's episode is cut: it never gets up
ANT_STEPS = 1000
"""Length of an episode of the ant, in every maze: D4RL's."""

Behavior = Callable[[Float[Arr, " obs"], Float[Arr, " 2"]], Float[Arr, " act"]]
"""From an observation and the point to head for to an action."""


def collect_maze(
    name: str,
    steps: int,
    *,
    seed: int = 0,
    noise: float | None = None,
    progress: Callable[[int], Any] | None = None,
) -> Dataset:
    """Walk a maze for `steps` steps. The same arguments give the same data.

    Args:
        name: `pointmaze-umaze`, `antmaze-large-diverse` ...; it is the data's environment too.
        steps: How many steps to collect.
        seed: An episode depends on the seed and on its number alone.
        noise: Standard deviation of the Gaussian noise on actions; by default 0.5 for the ball and 0.2 for the ant.
        progress: Called with the number of steps so far after each episode.
    """
    maze = maze_of(name)
    if maze is None or (maze.robot == "ant" and not maze.d4rl):
        raise OdiceError(
            f"There is no planner for {name!r}; its mazes are pointmaze or antmaze, -umaze, -medium or -large, and "
            "-play or -diverse."
        )
    noise = NOISE[maze.robot] if noise is None else noise
    if steps < 1 or seed < 0 or not 0 <= noise < np.inf:
        raise OdiceError(
            f"{name}: steps must be at least 1, seed and noise at least 0; got {steps}, {seed} and {noise}."
        )
    env = make(name, max_steps=ANT_STEPS if maze.d4rl else None)
    try:
        walker = Walker(env, maze, BEHAVIORS[maze.robot], noise, seed)
        episodes: list[Episode] = []
        done = 0
        while done < steps:
            episodes.append(walker.episode(np.random.default_rng([seed, len(episodes)]), steps - done))
            done += len(episodes[-1].rewards)
            if progress is not None:
                progress(done)
    finally:
        env.close()
    who = {"point": "PD controller", "ant": f"{WALK}"}[maze.robot]
    dataset = from_episodes(episodes)
    returns = dataset.returns
    history = (
        f"collected in {name} with the recipe planner, seed {seed}",
        f"waypoint planner and {who}, action noise {noise:g}",
        *([f"goal at {walker.goal.round(3).tolist()}"] if maze.d4rl else []),
        f"returns: mean {returns.mean():.3f}, which is the share of the {len(returns)} episodes that reached the goal",
        "; ".join(f"{package} {number}" for package, number in {"odice": __version__, **versions()}.items()),
    )
    return replace(dataset, meta=_meta(maze, env, history))


def plans(env: Any, recipe: str | None, policy: Any) -> bool:
    """Return whether the planner collects: the recipe is `planner`, or there is none and no policy, in a maze."""
    if recipe is not None or not isinstance(env, str) or maze_of(env) is None:
        return recipe == "planner"
    return policy is None


@dataclass
class Walker:
    """A behavior in its maze. The goal of D4RL's mazes is drawn once for all episodes, as in D4RL's files."""

    env: gymnasium.Env
    maze: Maze
    behave: Behavior
    noise: float
    seed: int = 0

    def __post_init__(self):
        inside: Any = self.env.unwrapped
        size = SIZES[self.maze.size]
        if self.maze.d4rl:
            self.grid = Grid.of_d4rl(self.maze.size)
            self.goal = draw_goal(size.goal, np.random.default_rng([self.seed, 2**31]))
        else:
            free = np.array([[cell != 1 for cell in row] for row in inside.maze.maze_map])
            self.grid = Grid.centered(free, inside.maze.maze_size_scaling)
            self.goal = self.grid.center(size.goal)
        self.goal_cell = size.goal
        anywhere = self.maze.variant != ""
        self.starts = [cell for cell in self.grid.cells if cell != size.goal] if anywhere else [START]
        self.targets = {"": [size.goal], "diverse": self.grid.cells}.get(self.maze.variant) or play_targets(self.maze)

    def episode(self, rng: np.random.Generator, longest: int) -> Episode:
        """One episode, cut after `longest` steps."""
        start = self._start(rng)
        obs, _ = self.env.reset(seed=int(rng.integers(2**31)), options=start)
        route = self._route(obs, rng)
        log, actions, rewards = [obs], [], []
        terminated = truncated = False
        on_back = 0
        while not (terminated or truncated):
            if np.linalg.norm(obs[:2] - route.target) <= REACHED[self.maze.robot]:
                route = self._route(obs, rng)
            action = self.behave(obs, route.waypoint(obs[:2]))
            action = np.clip(action + self.noise * rng.standard_normal(action.shape), -1, 1).astype(np.float32)
            obs, reward, terminated, truncated, _ = self.env.step(action)
            log.append(obs)
            actions.append(action)
            rewards.append(reward)
            on_back = on_back + 1 if self.maze.robot == "ant" and uprightness(obs) < 0 else 0
            truncated = not terminated and (truncated or on_back >= HELPLESS or len(rewards) >= longest)
        return Episode(np.array(log), np.array(actions), np.array(rewards), terminated, truncated)

    def _start(self, rng: np.random.Generator) -> dict[str, Any]:
        cell = _pick(self.starts, rng)
        if not self.maze.d4rl:
            return {"reset_cell": np.array(cell)}
        start = draw_start(cell, rng) if self.maze.variant else self.grid.center(cell)
        return {"start": start, "goal": self.goal}

    def _route(self, obs: Float[Arr, " obs"], rng: np.random.Generator) -> Route:
        """The way to a new target in another cell: the goal itself, or a point near the center of the cell."""
        current = self.grid.cell(obs[:2])
        cell = _pick([cell for cell in self.targets if cell != current], rng)
        if cell == self.goal_cell:
            target = self.goal
        elif self.maze.d4rl:
            target = draw_goal(cell, rng)
        else:
            offset = rng.uniform(-TARGET_SPREAD, TARGET_SPREAD, 2)
            target = self.grid.center(cell) + self.grid.scale * offset
        return Route(self.grid, target, obs[:2])


def push_ball(obs: Float[Arr, " 4"], waypoint: Float[Arr, " 2"]) -> Float[Arr, " 2"]:
    """A proportional-derivative controller with D4RL's gains."""
    return np.clip(10 * (waypoint - obs[:2]) - obs[2:], -1, 1)


def walk_ant(obs: Float[Arr, " 29"], waypoint: Float[Arr, " 2"]) -> Float[Arr, " 8"]:
    """The walk of `planner.gait`."""
    return WALK(obs, waypoint - obs[:2])


BEHAVIORS: dict[str, Behavior] = {"point": push_ball, "ant": walk_ant}


def _meta(maze: Maze, env: gymnasium.Env, history: tuple[str, ...]) -> Meta:
    space: Any = env.action_space
    return Meta(
        source=f"planner data of {maze.name}",
        env_id=maze.name,
        action_low=tuple(space.low.tolist()),
        action_high=tuple(space.high.tolist()),
        ref_min=0.0,
        ref_max=1.0,
        history=history,
    )


def _pick(cells: Sequence[Cell], rng: np.random.Generator) -> Cell:
    return cells[int(rng.integers(len(cells)))]
