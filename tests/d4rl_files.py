"""Small files in D4RL's layout: its names, shapes, dtypes and flags, with random numbers in them.

Locomotion: `observations`, `actions`, `rewards`, `terminals`, `timeouts`, `next_observations`, `infos/qpos`,
`infos/qvel`. AntMaze: no `next_observations`, but `infos/goal`; rewards 0 and 1, a terminal row for every step at the
goal, and positions on free cells.
"""

from pathlib import Path

import h5py
import numpy as np

from odice.d4rl import MAZE_LAYOUTS, ROBOTS, file_names, maze_center, maze_size, robot_of

LENGTH = 60
"""Rows of an episode that is cut by time."""


def write(folder: Path, name: str, episodes: int = 12, seed: int = 0) -> Path:
    """The file of a data set under D4RL's own name."""
    path = folder / file_names(name)[-1]
    rng = np.random.default_rng(seed)
    rows = _maze(name, episodes, rng) if maze_size(name) else _robot(name, episodes, rng)
    with h5py.File(path, "w") as file:
        for key, value in rows.items():
            file.create_dataset(key, data=value, compression="gzip")
    return path


def _robot(name: str, episodes: int, rng: np.random.Generator) -> dict[str, np.ndarray]:
    robot = ROBOTS[robot_of(name)]
    n = episodes * LENGTH
    steps = np.tile(np.arange(LENGTH), episodes)
    obs = np.cumsum(0.1 * rng.normal(size=(episodes, LENGTH + 1, robot.obs_dim)), axis=1).astype(np.float32)
    actions = np.tanh(rng.normal(size=(n, robot.action_dim))).astype(np.float32)
    ends = np.zeros(n, bool)
    if robot_of(name) != "halfcheetah":  # it never falls
        ends[(steps == LENGTH - 1) & (np.arange(n) // LENGTH % 2 == 0)] = True
    return {
        "observations": obs[:, :-1].reshape(n, -1),
        "next_observations": obs[:, 1:].reshape(n, -1),
        "actions": actions,
        "rewards": (1 + actions[:, 0] + 0.1 * rng.normal(size=n)).astype(np.float32),
        "terminals": ends,
        "timeouts": (steps == LENGTH - 1) & ~ends,
        "infos/qpos": obs[:, :-1, :6].reshape(n, -1).astype(np.float64),
        "infos/qvel": obs[:, :-1, :6].reshape(n, -1).astype(np.float64),
    }


def _maze(name: str, episodes: int, rng: np.random.Generator) -> dict[str, np.ndarray]:
    layout = MAZE_LAYOUTS[maze_size(name) or ""]
    n = episodes * LENGTH
    cells = np.argwhere(layout.free)
    goal = maze_center(layout.goal) + 0.7
    obs = np.zeros((n, 29), np.float32)
    for episode in range(episodes):
        block = slice(episode * LENGTH, (episode + 1) * LENGTH)
        cell = cells[rng.integers(len(cells))]
        obs[block, :2] = maze_center((int(cell[0]), int(cell[1]))) + rng.uniform(-1.5, 1.5, (LENGTH, 2))
        if episode % 3 == 0:  # at the goal from the middle on
            obs[block, :2][LENGTH // 2 :] = goal + rng.uniform(-0.3, 0.3, (LENGTH - LENGTH // 2, 2))
    obs[:, 2:] = rng.normal(size=(n, 27))
    reached = np.linalg.norm(obs[:, :2] - goal, axis=1) <= 0.5
    return {
        "observations": obs,
        "actions": rng.uniform(-1, 1, (n, 8)).astype(np.float32),
        "rewards": reached.astype(np.float32),
        "terminals": reached,
        "timeouts": np.arange(n) % LENGTH == LENGTH - 1,
        "infos/goal": np.tile(goal.astype(np.float32), (n, 1)),
        "infos/qpos": obs[:, :15].astype(np.float64),
        "infos/qvel": obs[:, 15:].astype(np.float64),
    }
