"""Small files in D4RL's layout: its names, shapes, dtypes, flags and lengths of episodes, with random numbers in them.

Locomotion: `observations`, `actions`, `rewards`, `terminals`, `timeouts`, `next_observations`, `infos/qpos`,
`infos/qvel`; an episode ends by a fall or after 1,000 rows, and a replay stops in the middle of one. AntMaze: no
`next_observations`, but `infos/goal`; rewards 0 and 1, a terminal row for every step at the goal, positions on free
cells. `python -m tests.d4rl_files DIR` writes all fifteen of the paper's Table 1.
"""

import sys
from collections.abc import Iterable
from pathlib import Path

import h5py
import numpy as np

from odice.d4rl import ANTMAZE_DATA, LOCOMOTION_DATA, MAZE_LAYOUTS, ROBOTS, file_names, maze_center, maze_size, robot_of

LIMIT = 1000
"""Rows of an episode that is cut by time."""
FALL = 120
"""Rows of an episode that ends by a fall."""
MAZE_LENGTH = 60


def write(folder: Path, name: str, episodes: int = 6, seed: int = 0) -> Path:
    """The file of a data set under D4RL's own name."""
    path = folder / file_names(name)[-1]
    rng = np.random.default_rng(seed)
    rows = _maze(name, 2 * episodes, rng) if maze_size(name) else _robot(name, episodes, rng)
    with h5py.File(path, "w") as file:
        for key, value in rows.items():
            file.create_dataset(key, data=value, compression="gzip")
    return path


def write_all(folder: Path, names: Iterable[str] = LOCOMOTION_DATA + ANTMAZE_DATA) -> None:
    """A file for each data set of the paper's Table 1."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in names:
        write(folder, name)


def _robot(name: str, episodes: int, rng: np.random.Generator) -> dict[str, np.ndarray]:
    robot = ROBOTS[robot_of(name)]
    falls = robot_of(name) != "halfcheetah"  # it never falls
    lengths = [FALL if falls and i % 3 else LIMIT for i in range(episodes)]
    if "replay" in name:
        lengths.append(FALL // 2)
    walks = [np.cumsum(0.1 * rng.normal(size=(n + 1, robot.obs_dim)), axis=0).astype(np.float32) for n in lengths]
    obs = np.concatenate([walk[:-1] for walk in walks])
    actions = np.tanh(rng.normal(size=(len(obs), robot.action_dim))).astype(np.float32)
    last, joints = np.cumsum(lengths) - 1, (robot.obs_dim + 1) // 2  # an observation has all but the place
    terminals, timeouts = np.zeros((2, len(obs)), bool)
    terminals[last[np.array(lengths) == FALL]] = True
    timeouts[last[np.array(lengths) == LIMIT]] = True
    place = np.concatenate([np.arange(n) for n in lengths])[:, None]
    return {
        "observations": obs,
        "next_observations": np.concatenate([walk[1:] for walk in walks]),
        "actions": actions,
        "rewards": (1 + actions[:, 0] + 0.1 * rng.normal(size=len(obs))).astype(np.float32),
        "terminals": terminals,
        "timeouts": timeouts,
        "infos/qpos": np.concatenate([place, obs[:, : joints - 1]], axis=1).astype(np.float64),
        "infos/qvel": obs[:, joints - 1 :].astype(np.float64),
    }


def _maze(name: str, episodes: int, rng: np.random.Generator) -> dict[str, np.ndarray]:
    layout = MAZE_LAYOUTS[maze_size(name) or ""]
    n = episodes * MAZE_LENGTH
    cells = np.argwhere(layout.free)
    goal = maze_center(layout.goal) + 0.7
    obs = np.zeros((n, 29), np.float32)
    for episode in range(episodes):
        block = slice(episode * MAZE_LENGTH, (episode + 1) * MAZE_LENGTH)
        cell = cells[rng.integers(len(cells))]
        obs[block, :2] = maze_center((int(cell[0]), int(cell[1]))) + rng.uniform(-1.5, 1.5, (MAZE_LENGTH, 2))
        if episode % 3 == 0:  # at the goal from the middle on
            half = MAZE_LENGTH // 2
            obs[block, :2][half:] = goal + rng.uniform(-0.3, 0.3, (MAZE_LENGTH - half, 2))
    obs[:, 2:] = rng.normal(size=(n, 27))
    reached = np.linalg.norm(obs[:, :2] - goal, axis=1) <= 0.5
    return {
        "observations": obs,
        "actions": rng.uniform(-1, 1, (n, 8)).astype(np.float32),
        "rewards": reached.astype(np.float32),
        "terminals": reached,
        "timeouts": np.arange(n) % MAZE_LENGTH == MAZE_LENGTH - 1,
        "infos/goal": np.tile(goal.astype(np.float32), (n, 1)),
        "infos/qpos": obs[:, :15].astype(np.float64),
        "infos/qvel": obs[:, 15:].astype(np.float64),
    }


if __name__ == "__main__":
    write_all(Path(sys.argv[1]))
