"""OGBench's single-task data: `antmaze-large-navigate-singletask-task1-v0`, or without a task number its default one.

A file (`antmaze-large-navigate-v0.npz`) serves all tasks of its environment: it holds `observations`, `actions`,
`terminals` and the simulator's `qpos`, `qvel` and sometimes `button_states`, and no rewards. `terminals` mark the last
row of a trajectory, whose action leads nowhere; they do not say that a task is over. The task is that of the
environment, so the package `ogbench` (the extra of that name) must be there: the reward is the number of its goals that
are reached in a state, minus how many there are, and a state in which all are reached is terminal. Trajectories go on
after that, so a terminal step ends an episode here and the next row begins another, as in D4RL's AntMaze.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from odice.data.build import Allocate, from_steps, in_memory
from odice.data.dataset import Dataset
from odice.data.meta import Meta
from odice.data.readers.arrays import NpzFile
from odice.errors import OdiceError
from odice.ogbench import names_of

ARM_POSITIONS = 14
"""Numbers of qpos before the objects, in the manipulation environments; each cube then has seven."""
NEAR = 0.04
"""Meters within which a cube, the drawer and the window count as placed."""


def read(source: Path | str, *, name: str, allocate: Allocate = in_memory) -> Dataset:
    """The data of a task. `name` is the single-task name; the file's own does not say which task is meant."""
    path, known = Path(source), names_of(name)
    if known is None:
        raise OdiceError(
            f"{name}: not the name of OGBench's single-task data, such as antmaze-large-navigate-singletask-task1-v0."
        )
    with NpzFile(path) as file:
        arrays = {key: file[key] for key in ("observations", "actions", "terminals")}
        arrays |= {key: file[key] for key in ("qpos", "button_states") if key in file.names}
    if arrays["observations"].ndim != 2 or arrays["observations"].dtype == np.uint8:
        raise OdiceError(f"{path}: its observations are images, and odice has no networks for images.")
    ends = np.asarray(arrays["terminals"], bool)
    if not len(ends) or not ends[-1]:
        raise OdiceError(f"{path}: the last row ends no trajectory; download the file again.")
    kept = np.flatnonzero(~ends)  # the last row of a trajectory is where its last action led
    reached = goals_reached(known.env_id, {key: value[kept] for key, value in arrays.items()})
    observations = arrays["observations"]
    return from_steps(
        observations=observations[kept],
        actions=arrays["actions"][kept],
        rewards=(reached.sum(1) - reached.shape[1]).astype(np.float32),
        terminated=reached.all(1),
        truncated=ends[kept + 1] & ~reached.all(1),
        next_observations=observations[kept + 1],
        meta=Meta(source=str(path), env_id=known.env_id, ref_min=0.0, ref_max=1.0),
        allocate=allocate,
    )


def goals_reached(env_id: str, rows: Mapping[str, np.ndarray]) -> np.ndarray:
    """(n, goals) Which goals of the environment's task are reached in each row."""
    from odice.envs.ogbench import task_goals

    goals, qpos = task_goals(env_id), rows["qpos"]
    parts = []
    if goals.place is not None:
        at = qpos[:, goals.place.start : goals.place.start + 2]
        parts.append(np.linalg.norm(at - goals.place.xy, axis=1, keepdims=True) <= goals.place.radius)
    for i, target in enumerate(goals.cubes):
        start = ARM_POSITIONS + 7 * i
        parts.append(np.linalg.norm(qpos[:, start : start + 3] - target, axis=1, keepdims=True) <= NEAR)
    if goals.buttons is not None:
        parts.append(rows["button_states"] == goals.buttons)
    for column, target in goals.slides:
        parts.append(np.abs(qpos[:, column : column + 1] - target) <= NEAR)
    return np.concatenate(parts, axis=1)
