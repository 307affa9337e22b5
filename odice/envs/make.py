"""Environments by name.

| name                               | environment                                                                   |
|------------------------------------|-------------------------------------------------------------------------------|
| `Hopper-v5`, `CartPole-v1` ...     | any Gymnasium id with vector observations and Box or Discrete actions         |
| `hopper-medium-v2` ...             | D4RL's name: the Gymnasium v4 robot, the closest to what the data was made on |
| `antmaze-umaze-v2` ...             | D4RL's maze and ant, rebuilt (`envs.antmaze`); success ends the episode       |
| `pointmaze-umaze`,                 | with the extra `mazes`: gymnasium-robotics', with a fixed start and goal cell |
| `AntMaze_UMaze-v5` ...             |                                                                               |
| `cube-single-singletask-task2-v0`  | with the extra `ogbench`: OGBench's, scored by success                        |
| `odice/LQR-v0`, `odice/Parking-v0` | small ones whose best returns are known, for tests and first steps            |
| `odice/Hospital-v0`                | five treatments, one outcome: discrete actions and a sparse reward            |

`resolve` gives the task of a name; `make` builds its environment.
"""

from __future__ import annotations

import logging
import re
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from types import FunctionType
from typing import TYPE_CHECKING, Any

import numpy as np

from odice.d4rl import ANT_ZEROS, MUJOCO_PY, REFERENCES, ROBOTS, SCORED_AS, reference_of, robot_of
from odice.envs.options import OBS, as_vector, parts, plain, split
from odice.errors import OdiceError
from odice.ogbench import is_task

if TYPE_CHECKING:
    import gymnasium

# Where an environment may come from if a file names it. Other packages may do anything when they are imported or built.
TRUSTED = ("gymnasium.", "gymnasium_robotics.", "odice.")


@dataclass(frozen=True)
class Task:
    """The environment, reference returns and observation layout of a name."""

    name: str
    env_id: str
    reference: tuple[float, float] | None = None
    """Returns that count as 0 and 100."""
    maze: str | None = None
    """The maze of this task (`envs.mazes`), if it is one."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """Arguments of the environment, and the parts of its observation (`envs.options`)."""
    zeros: int = 0
    """Zeros that are appended to the observation."""
    note: str | None = None
    """What a reader of the scores should know."""


def resolve(name: str) -> Task:
    """The task of a name, without building anything."""
    from odice.envs.mazes import maze_of

    env_id, options = split(name)
    if options:
        return Task(name, env_id, options=options)
    if is_task(name):
        note = f"scores of {name} are the percentage of episodes in which the task was done"
        return Task(name, name, reference=(0.0, 1.0), note=note)
    if maze := maze_of(name):
        return Task(name, maze.env_id, reference=(0.0, 1.0), maze=maze.name, note=maze.note)
    if name.startswith("odice/"):
        from odice.envs.small import reference

        known = reference(name)
        note = f"scores of {name} are 0 for doing nothing and 100 for the optimum" if known else None
        return Task(name, name, reference=known, note=note)
    if name in SCORED_AS:
        note = f"scores of {name} use the reference returns that D4RL measured on the same robot with mujoco-py"
        return Task(name, name, reference=reference_of(SCORED_AS[name]), note=note)
    robot = robot_of(name) if name in REFERENCES else MUJOCO_PY.get(name)
    if robot is None:
        return Task(name, name)
    env_id = ROBOTS[robot].env_id
    if env_id is None:
        raise OdiceError(
            f"The D4RL task {name!r} has no counterpart in Gymnasium; evaluate on a Gymnasium id with --env, or train "
            "without one."
        )
    note = f"{name} belongs to mujoco-py; it is evaluated on {env_id}, the closest that Gymnasium has"
    return Task(name, env_id, reference=reference_of(robot), zeros=ANT_ZEROS if robot == "ant" else 0, note=note)


def make(
    name: str, *, max_steps: int | None = None, render_mode: str | None = None, allow_import: bool = False
) -> gymnasium.Env:
    """Build the environment of a name: flat float observations, Box or Discrete actions.

    Args:
        name: The environment's name; the module's table lists the kinds.
        max_steps: Time limit of an episode, instead of the environment's own.
        render_mode: Gymnasium's.
        allow_import: Also accept environments of packages other than Gymnasium, gymnasium-robotics and odice; making
            one imports its package. Set it for a name that the user typed, not for one that was read from a file.
    """
    import gymnasium

    from odice.envs import antmaze, hospital, mazes, ogbench, robotics, small

    task = resolve(name)
    if ":" in task.env_id and not allow_import:
        raise OdiceError(
            f"The environment name {task.env_id!r} would import a Python module; if you trust it, give it yourself "
            "with --env."
        )
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*is out of date.*")
        _quiet_mujoco()
        if task.maze is not None:
            return mazes.make_maze(task.maze, max_steps=max_steps, render_mode=render_mode)
        if is_task(task.env_id):
            return adapt(ogbench.make_task(task.env_id, max_steps=max_steps, render_mode=render_mode), task)
        for each in (small, antmaze, hospital):
            each.register()
        if task.env_id not in gymnasium.registry and robotics.is_installed():
            robotics.register(name)
        if not allow_import:
            _check_origin(task.env_id)
        arguments = {key: value for key, value in task.options.items() if key != OBS}
        if not allow_import and plain(arguments) != arguments:
            raise OdiceError(
                f"{name}: a file may not choose these options of an environment; if you trust them, give the name "
                "yourself with --env."
            )
        if render_mode is not None:  # not every environment takes one
            arguments["render_mode"] = render_mode
        try:
            env = gymnasium.make(task.env_id, max_episode_steps=max_steps, disable_env_checker=True, **arguments)
        except gymnasium.error.DependencyNotInstalled as error:
            raise OdiceError(f"{task.env_id} needs a package that is not installed: {error}") from None
        except gymnasium.error.UnregisteredEnv as error:
            raise _not_found(name, error) from None
        except Exception as error:  # Gymnasium's own errors, and whatever an environment's constructor raises
            raise OdiceError(f"Gymnasium cannot make {task.env_id!r}: {type(error).__name__}: {error}") from error
    robotics.remove_model_file(env)
    return adapt(env, task)


def own_env(env: Callable[..., gymnasium.Env]) -> str:
    """A name, in this program only, for an environment's class or a function that makes one."""
    import gymnasium

    if not callable(env):
        raise OdiceError(
            f"env is a {type(env).__name__}; give a name, an environment's class, or a function that makes one."
        )
    name = env.__name__ if isinstance(env, type | FunctionType) else type(env).__name__
    name = re.sub(r"\W", "", name) or "Env"
    env_id = f"own/{name}-v0"
    gymnasium.registry.pop(env_id, None)  # the same name again means the object that is given now
    gymnasium.register(env_id, entry_point=env)
    return env_id


def _check_origin(env_id: str) -> None:
    """Refuse an environment of a package that no file may choose. Only the registry is read; nothing is imported.

    A name without a version means the newest one. A class that was registered itself, not by its path, is the running
    program's own: it is imported already.
    """
    import gymnasium

    for name, spec in gymnasium.registry.items():
        entry = spec.entry_point
        if env_id in (name, name.rpartition("-v")[0]) and isinstance(entry, str) and not entry.startswith(TRUSTED):
            package = entry.split(":")[0].split(".")[0]
            raise OdiceError(
                f"The environment {env_id!r} belongs to the package {package!r}, which a file may not choose; if "
                "you trust it, give it yourself with --env (in Python: allow_import=True)."
            )


def _not_found(name: str, error: Exception) -> OdiceError:
    """The error of an unknown name, with the nearest known one."""
    import gymnasium

    d4rl = (each for each in REFERENCES if robot_of(each) == "antmaze" or ROBOTS[robot_of(each)].env_id)
    known = {*gymnasium.registry, *d4rl}
    near = get_close_matches(name, known, n=1, cutoff=0.6)
    hint = f" Did you mean {near[0]!r}?" if near else ""
    return OdiceError(f"Unknown environment {name!r}.{hint} (Gymnasium: {error})")


def _quiet_mujoco() -> None:
    """MuJoCo writes its warnings to `MUJOCO_LOG.TXT` in the working directory unless a handler is set."""
    try:
        import mujoco
    except ImportError:
        return
    listen = mujoco.set_mju_user_warning  # pyright: ignore[reportAttributeAccessIssue]
    listen(lambda message: logging.getLogger("odice.mujoco").info(message))


def adapt(env: gymnasium.Env, task: Task, max_steps: int | None = None) -> gymnasium.Env:
    """Flatten the observations and set the time limit; refuse observation and action spaces of other kinds."""
    from gymnasium import spaces, wrappers

    if max_steps is not None:
        env = wrappers.TimeLimit(env, max_steps)
    if task.options.get(OBS):
        env = as_vector(env, task.options[OBS], task.env_id)
    space = env.observation_space
    if isinstance(space, spaces.Dict):
        known = ",".join(parts(space))
        raise OdiceError(
            f"{task.env_id} has observations of several parts; name those that make up the vector, in the order of the "
            f"data: --env '{task.env_id}?obs={known}'."
        )
    if not isinstance(space, spaces.Box):
        raise OdiceError(
            f"{task.env_id} has observations of type {type(space).__name__}; odice needs a Box of numbers."
        )
    if len(space.shape) >= 3 and space.dtype == np.uint8:
        raise OdiceError(
            f"{task.env_id} shows images {space.shape}; odice learns from vectors, so encode them as features first."
        )
    vector = isinstance(env.action_space, spaces.Box) and len(env.action_space.shape) == 1
    if not vector and not isinstance(env.action_space, spaces.Discrete):
        raise OdiceError(
            f"{task.env_id} has actions {env.action_space}; odice needs a vector (Box) or a choice (Discrete)."
        )
    if len(space.shape) != 1:
        env = wrappers.FlattenObservation(env)
    if task.zeros:
        width = env.observation_space.shape[0] + task.zeros  # pyright: ignore
        wider = spaces.Box(-np.inf, np.inf, (width,), np.float64)
        silent = np.zeros(task.zeros)
        env = wrappers.TransformObservation(env, lambda obs: np.concatenate([obs, silent]), wider)
    return env
