"""What is known about D4RL: its data sets, their robots, reference returns and files, and how codes change its rewards.

D4RL's normalized score is 100 (return - min) / (max - min), where min is the return of a random policy and max that of
an expert. The numbers belong to D4RL's environments (`d4rl/infos.py`). Where no reference is known the answer is None,
and raw returns are all there is: nothing is borrowed from a task with a similar name.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import product
from pathlib import PurePath
from typing import Any, NamedTuple

import numpy as np

# --- robots ----------------------------------------------------------------------------------------------------------


class Robot(NamedTuple):
    """A family of D4RL's environments; its data sets' names start with the robot's."""

    obs_dim: int
    action_dim: int
    env_id: str | None = None
    """The closest environment that Gymnasium still has. AntMaze is rebuilt in `odice.envs.antmaze`."""


ROBOTS = {
    "hopper": Robot(11, 3, "Hopper-v4"),
    "halfcheetah": Robot(17, 6, "HalfCheetah-v4"),
    "walker2d": Robot(17, 6, "Walker2d-v4"),
    "ant": Robot(111, 8, "Ant-v4"),
    "antmaze": Robot(29, 8),
    "maze2d": Robot(4, 2),
    "pen": Robot(45, 24),
    "hammer": Robot(46, 26),
    "door": Robot(39, 28),
    "relocate": Robot(39, 30),
    "kitchen": Robot(60, 9),
}
# D4RL's ant carries 84 contact forces that its MuJoCo always reported as zero; a modern one reports real ones.
ANT_ZEROS = 84
_EPISODE_STEPS = 1000

# Ids of Gymnasium -> the robot whose reference returns their scores use. Ant-v5 has another reward.
SCORED_AS = {robot.env_id: name for name, robot in ROBOTS.items() if robot.env_id}
SCORED_AS |= {"Hopper-v5": "hopper", "HalfCheetah-v5": "halfcheetah", "Walker2d-v5": "walker2d"}
# Ids of the simulator that D4RL used, which Gymnasium no longer has -> the robot.
MUJOCO_PY = {
    f"{robot.env_id[:-1]}{version}": name for name, robot in ROBOTS.items() if robot.env_id for version in (2, 3)
}


def robot_of(name: str | None) -> str:
    """The first word of a data set's name. It need not be a known robot."""
    return (name or "").partition("-")[0]


def episode_steps(name: str | None) -> int | None:
    """After how many steps D4RL's environment cuts an episode, where that is known."""
    robot, _, rest = (name or "").partition("-")
    if robot == "antmaze":
        return 700 if rest.startswith("umaze") else _EPISODE_STEPS
    known = ROBOTS.get(robot)
    return _EPISODE_STEPS if known and known.env_id else None


# --- data sets and their reference returns ---------------------------------------------------------------------------

_LOCOMOTION = ("random", "medium", "expert", "medium-replay", "medium-expert", "full-replay")
_MAZES = ("umaze", "umaze-diverse", "medium-play", "medium-diverse", "large-play", "large-diverse")
_HANDS = ("human", "cloned", "expert")

# start of the name -> (kinds of data, versions, reference minimum, reference maximum)
_FAMILIES = {
    "hopper": (_LOCOMOTION, ("v2",), -20.272305, 3234.3),
    "halfcheetah": (_LOCOMOTION, ("v2",), -280.178953, 12135.0),
    "walker2d": (_LOCOMOTION, ("v2",), 1.629008, 4592.3),
    "ant": (_LOCOMOTION, ("v2",), -325.6, 3879.7),
    "antmaze": (_MAZES, ("v0", "v2"), 0.0, 1.0),
    "pen": (_HANDS, ("v0", "v1"), 96.262799, 3076.8331017826877),
    "hammer": (_HANDS, ("v0", "v1"), -274.856578, 12794.134825156867),
    "door": (_HANDS, ("v0", "v1"), -56.512833, 2880.5693087298737),
    "relocate": (_HANDS, ("v0", "v1"), -6.425911, 4233.877797728884),
    "kitchen": (("complete", "partial", "mixed"), ("v0",), 0.0, 4.0),
    "maze2d-open": (("",), ("v0",), 0.01, 20.66),
    "maze2d-open-dense": (("",), ("v0",), 11.17817, 27.166538620695782),
    "maze2d-umaze": (("",), ("v1",), 23.85, 161.86),
    "maze2d-umaze-dense": (("",), ("v1",), 68.537689, 193.66285642381482),
    "maze2d-medium": (("",), ("v1",), 13.13, 277.39),
    "maze2d-medium-dense": (("",), ("v1",), 44.264742, 297.4552547777125),
    "maze2d-large": (("",), ("v1",), 6.7, 273.99),
    "maze2d-large-dense": (("",), ("v1",), 30.569041, 303.4857382709002),
}


def _expand() -> Iterator[tuple[str, tuple[float, float]]]:
    for family, (kinds, versions, low, high) in _FAMILIES.items():
        for kind, version in product(kinds, versions):
            yield "-".join(part for part in (family, kind, version) if part), (low, high)


# name of a data set -> (reference minimum, reference maximum), for all 71 environments
REFERENCES: dict[str, tuple[float, float]] = dict(_expand())

# The data sets of the O-DICE paper's Table 1, which the other papers report too.
LOCOMOTION_DATA = tuple(
    f"{robot}-{kind}-v2"
    for kind, robot in product(("medium", "medium-replay", "medium-expert"), ("halfcheetah", "hopper", "walker2d"))
)
ANTMAZE_DATA = tuple(f"antmaze-{maze}-v2" for maze in _MAZES)


def reference_of(robot: str) -> tuple[float, float]:
    """The reference returns of a robot, which are the same for all its data sets."""
    _, _, low, high = _FAMILIES[robot]
    return low, high


def normalized_score(returns: Any, reference: str | tuple[float | None, float | None] | None) -> Any:
    """100 (return - min) / (max - min), or None where the reference is unknown.

    `reference` is a D4RL name, or the pair (min, max) as in `Meta.ref_min`, `Meta.ref_max`. Works on a number or an
    array. The map is affine: never pass a standard deviation through it, scale that by 100 / (max - min) instead.
    """
    pair = REFERENCES.get(reference) if isinstance(reference, str) else reference
    low, high = pair or (None, None)
    if low is None or high is None or not high > low:
        return None
    return 100.0 * (returns - low) / (high - low)


# --- files -----------------------------------------------------------------------------------------------------------

# D4RL's own file names for AntMaze: maze -> its word, kind of data -> (several starts, several goals)
_MAZE_WORD = {"umaze": "u-maze", "medium": "big-maze", "large": "hardest-maze"}
_STARTS_GOALS = {"": (False, False), "play": (True, False), "diverse": (True, True)}


def file_names(name: str) -> tuple[str, ...]:
    """The names under which the file of a data set may lie in a folder: the data set's, then D4RL's own."""
    robot, *words, version = name.split("-")
    if robot == "antmaze":
        starts, goals = _STARTS_GOALS["".join(words[1:])]
        fixed = "_fixed" if version == "v2" else ""
        return (
            f"{name}.hdf5",
            f"Ant_maze_{_MAZE_WORD[words[0]]}_noisy_multistart_{starts}_multigoal_{goals}_sparse{fixed}.hdf5",
        )
    if version == "v2":  # MuJoCo
        return f"{name}.hdf5", f"{'_'.join([robot, *words])}-{version}.hdf5"
    return (f"{name}.hdf5",)


def name_of_file(path: PurePath) -> str | None:
    """The data set whose file has this name; None where no file of D4RL is called so."""
    return _FILES.get(path.name)


_FILES = {file: name for name in REFERENCES for file in file_names(name)}

_HOST = "http://rail.eecs.berkeley.edu/datasets/offline_rl"


def address(name: str) -> str | None:
    """Where D4RL offers the file of a locomotion or AntMaze -v2 data set (`d4rl/infos.py`); None for the others."""
    if not name.endswith("-v2"):
        return None
    return f"{_HOST}/{'ant_maze_v2' if name.startswith('antmaze') else 'gym_mujoco_v2'}/{file_names(name)[-1]}"


# --- AntMaze's geometry -----------------------------------------------------------------------------------------------

MAZE_SCALE = 4.0
"""Width of a cell in meters."""
MAZE_START = (1, 1)
"""Row and column of the start cell, whose center is the origin; x grows with the column, y with the row."""


class MazeLayout(NamedTuple):
    """A maze of `d4rl/locomotion/maze_env.py`, as it is evaluated."""

    rows: str
    """Of the map, from the lowest y to the highest; 1 is a wall."""
    goal: tuple[int, int]
    steps: int
    """The time limit of the evaluation."""
    targets: tuple[tuple[int, int], ...]
    """The cells that were picked by hand for `play` data."""

    @property
    def free(self) -> np.ndarray:
        """(rows, columns) Which cells are no walls."""
        return np.array([[cell == "0" for cell in row] for row in self.rows.split()])


MAZE_LAYOUTS = {
    "umaze": MazeLayout("11111 10001 11101 10001 11111", (3, 1), 700, ()),
    "medium": MazeLayout(
        "11111111 10011001 10010001 11000111 10010001 10100101 10001001 11111111",
        (6, 6),
        1000,
        ((2, 6), (5, 1), (6, 5)),
    ),
    "large": MazeLayout(
        "111111111111 100001000001 101101010101 100000010001 101111011101 100101000001 110101010111 100100010001 "
        "111111111111",
        (7, 9),
        1000,
        ((1, 6), (3, 5), (3, 10), (5, 2), (7, 4), (7, 6), (7, 9)),
    ),
}


def maze_size(name: str | None) -> str | None:
    """The maze of an AntMaze name (`antmaze-medium-play-v2` -> `medium`); None for any other name."""
    match = re.fullmatch(r"antmaze-(\w+?)(-play|-diverse)?(-v\d)?", name or "")
    return match[1] if match and match[1] in MAZE_LAYOUTS else None


def antmaze_id(size: str) -> str:
    """The Gymnasium id of D4RL's AntMaze, rebuilt (`envs.antmaze`)."""
    return f"odice/AntMaze-{size}-v2"


def maze_center(cell: tuple[int, int]) -> np.ndarray:
    """The point (x, y) in the middle of a cell (row, column)."""
    return MAZE_SCALE * np.array([cell[1] - MAZE_START[1], cell[0] - MAZE_START[0]], np.float64)


def in_walls(xy: np.ndarray, size: str, margin: float = 0.0) -> np.ndarray:
    """(n,) Which of the points (n, 2) lie deeper than `margin` in a wall, or outside the maze."""
    free = MAZE_LAYOUTS[size].free
    outside = np.ones(len(xy), bool)
    for corner in product((-margin, margin), repeat=2):
        place = np.floor((np.asarray(xy, np.float64) + corner) / MAZE_SCALE + 0.5)
        place = np.nan_to_num(place, nan=-1e6, posinf=1e6, neginf=-1e6).astype(np.int64)
        rows, columns = place[:, 1] + MAZE_START[0], place[:, 0] + MAZE_START[1]
        inside = (rows >= 0) & (rows < free.shape[0]) & (columns >= 0) & (columns < free.shape[1])
        outside &= ~(inside & free[np.where(inside, rows, 0), np.where(inside, columns, 0)])
    return outside


# --- rewards ---------------------------------------------------------------------------------------------------------

# What published codes do to AntMaze's rewards of 0 and 1, as fields of `odice.data.preprocess.Preprocess`.
ANTMAZE_REWARDS: dict[str, dict[str, Any]] = {
    "odice-code": {"reward_values": ((0.0, -3.0), (1.0, 0.0))},
    "odice-paper": {"reward_shift": -3.0},
    "iql": {"reward_shift": -1.0},
    "cql": {"reward_scale": 4.0, "reward_shift": -2.0},
    "corl-cql": {"reward_scale": 10.0, "reward_shift": -5.0},
}


def brief(value: float) -> str:
    """A return or a score in a line of text: one digit after the point, and three digits in all where that is more."""
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.3g}"
