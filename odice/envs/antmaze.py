"""D4RL's AntMaze, rebuilt on today's MuJoCo: the world in which the scores of `antmaze-*-v2` are defined.

D4RL's own needs mujoco-py. The numbers are those of D4RL's source (`d4rl/locomotion`); the ant is the one that
Gymnasium installs, changed in memory where D4RL's differs:

|                         | D4RL, and this module          | Gymnasium's ant              |
|-------------------------|--------------------------------|------------------------------|
| time step, control step | 0.02 s, 0.1 s                  | 0.01 s, 0.05 s               |
| motors                  | gear 1, torque within +-30     | gear 150, control within +-1 |
| contacts                | solref .02 1, solimp .8 .8 .01 | MuJoCo's defaults            |

An action in [-1, 1] is multiplied by 30 to give torques. The observation is qpos (15 numbers, x and y first) and qvel
(14); the goal is not in it. Cell (row, column) is centered at x = 4 (column - 1), y = 4 (row - 1), so the start cell
(1, 1) is the origin. An episode starts there, ends within 0.5 of the goal with reward 1, and is never ended by a fall.
The goal is drawn anew at every reset.

What differs from mujoco-py is MuJoCo itself (2.0 there): the solver's and the collision code's last digits.
"""

from __future__ import annotations

from importlib.resources import files
from typing import Any
from xml.etree import ElementTree

import gymnasium
import numpy as np
from gymnasium.spaces import Box
from jaxtyping import Float
from numpy import ndarray as Arr

from odice.d4rl import MAZE_LAYOUTS, MAZE_SCALE, antmaze_id, maze_center

TIMESTEP, FRAME_SKIP = 0.02, 5
TORQUE = 30.0
SOLREF, SOLIMP = "0.02 1", "0.8 0.8 0.01"
HEIGHT = 2.0
"""Height of the walls, in meters."""
RADIUS = 0.5
GOAL_SPREAD = (1.0, 0.5)
"""Two uniform draws from 0 to these are added to each coordinate of the goal's cell: up to 1.5 m towards +x and +y."""
START_SPREAD = 1.0
START_POSITION, START_VELOCITY = 0.1, 0.1
"""At reset: half the width of the uniform noise on qpos, and the standard deviation of the noise on qvel."""


OPEN = "open"
"""In the place of a maze: the same ant on open ground."""


def register() -> None:
    """Register the mazes with Gymnasium; a second call changes nothing."""
    for size, layout in MAZE_LAYOUTS.items():
        if antmaze_id(size) not in gymnasium.registry:
            entry = f"{__name__}:AntMazeEnv"
            gymnasium.register(antmaze_id(size), entry, max_episode_steps=layout.steps, kwargs={"size": size})


def draw_goal(cell: tuple[int, int], rng: np.random.Generator) -> Float[Arr, " 2"]:
    """A goal in a cell: off its center towards +x and +y."""
    drawn = rng.uniform(0.0, GOAL_SPREAD[0], 2) + rng.uniform(0.0, GOAL_SPREAD[1], 2)
    return np.maximum(maze_center(cell) + drawn, 0.0)


def draw_start(cell: tuple[int, int], rng: np.random.Generator) -> Float[Arr, " 2"]:
    """A start of `play` and `diverse` data in a cell: off its center towards +x and +y."""
    return np.maximum(maze_center(cell) + rng.uniform(0.0, START_SPREAD, 2), 0.0)


def ant_xml(size: str) -> str:
    """The installed ant with D4RL's numbers, in a maze or on open ground."""
    source = files("gymnasium.envs.mujoco") / "assets" / "ant.xml"
    root = ElementTree.fromstring(source.read_text("utf-8"))
    _one(root, "option").set("timestep", str(TIMESTEP))
    geoms = _one(root, "default/geom")
    geoms.set("solref", SOLREF)
    geoms.set("solimp", SOLIMP)
    for motor in root.iterfind("actuator/motor"):
        motor.set("gear", "1")
        motor.set("ctrlrange", f"{-TORQUE} {TORQUE}")
    world = _one(root, "worldbody")
    if size != OPEN:
        half = MAZE_SCALE / 2
        for row, column in np.argwhere(~MAZE_LAYOUTS[size].free).tolist():
            x, y = maze_center((row, column))
            wall = {"pos": f"{x} {y} {HEIGHT / 2}", "size": f"{half} {half} {HEIGHT / 2}", "type": "box"}
            contact = {"contype": "1", "conaffinity": "1", "rgba": "0.4 0.4 0.4 1"}
            ElementTree.SubElement(world, "geom", {"name": f"wall_{row}_{column}", **wall, **contact})
        # not at the origin: MuJoCo would then take it for fixed to its body, and not move it
        goal = {"name": "goal", "type": "sphere", "pos": "0 1 0", "size": str(RADIUS), "rgba": "0.9 0.1 0.1 1"}
        ElementTree.SubElement(world, "site", goal)
    return ElementTree.tostring(root, "unicode")


def _one(root: ElementTree.Element, path: str) -> ElementTree.Element:
    element = root.find(path)
    assert element is not None, f"Gymnasium's ant.xml has no {path}"
    return element


class AntEnv(gymnasium.Env):
    """D4RL's ant in MuJoCo, without a task."""

    metadata = {"render_modes": ["rgb_array"], "render_fps": round(1 / (TIMESTEP * FRAME_SKIP))}
    observation_space = Box(-np.inf, np.inf, (29,), np.float64)
    action_space = Box(-1.0, 1.0, (8,), np.float32)
    dt = TIMESTEP * FRAME_SKIP

    def __init__(self, size: str = OPEN, render_mode: str | None = None):
        import mujoco

        self._mujoco: Any = mujoco
        self.size, self.render_mode = size, render_mode
        self.model: Any = mujoco.MjModel.from_xml_string(ant_xml(size))  # pyright: ignore[reportAttributeAccessIssue]
        self.data = mujoco.MjData(self.model)  # pyright: ignore[reportAttributeAccessIssue]
        self.init_qpos, self.init_qvel = self.model.numeric("init_qpos").data.copy(), np.zeros(self.model.nv)
        self._renderer: Any = None

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None):
        super().reset(seed=seed)
        self._mujoco.mj_resetData(self.model, self.data)
        qpos = self.init_qpos + self.np_random.uniform(-START_POSITION, START_POSITION, self.model.nq)
        qvel = self.init_qvel + START_VELOCITY * self.np_random.standard_normal(self.model.nv)
        self._mujoco.mj_normalizeQuat(self.model, qpos)  # mujoco-py's MuJoCo did so in the state itself
        self.set_state(qpos, qvel)
        return self._get_obs(), {}

    def set_state(self, qpos: Float[Arr, " 15"], qvel: Float[Arr, " 14"]) -> None:
        self.data.qpos[:], self.data.qvel[:] = qpos, qvel
        self._mujoco.mj_forward(self.model, self.data)

    def simulate(self, action: Float[Arr, " 8"]) -> None:
        """Hold the torques of an action for one control step."""
        self.data.ctrl[:] = TORQUE * np.clip(action, -1.0, 1.0)
        self._mujoco.mj_step(self.model, self.data, nstep=FRAME_SKIP)

    def _get_obs(self) -> Float[Arr, " 29"]:
        return np.concatenate([self.data.qpos, self.data.qvel])

    def render(self) -> Any:
        if self.render_mode is None:
            return None
        if self._renderer is None:
            self.model.vis.global_.offwidth, self.model.vis.global_.offheight = 640, 480
            self._renderer = self._mujoco.Renderer(self.model, 480, 640)
        self._renderer.update_scene(self.data, self._camera())
        return self._renderer.render()

    def _camera(self) -> Any:
        camera = self._mujoco.MjvCamera()
        camera.distance, camera.elevation, camera.azimuth = 12.0, -50.0, 90.0
        camera.lookat[:] = self.data.qpos[:3]
        return camera

    def close(self) -> None:
        if self._renderer is not None:
            self._renderer.close()
            self._renderer = None


class AntMazeEnv(AntEnv):
    """The evaluation task of `antmaze-*-v2`.

    `reset(options=...)` takes `start` and `goal`, points in the place of the usual ones.
    """

    goal: Float[Arr, " 2"]

    def __init__(self, size: str, render_mode: str | None = None):
        super().__init__(size, render_mode)
        self.layout = MAZE_LAYOUTS[size]
        self._site = self.model.site("goal").id

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None):
        options = options or {}
        super().reset(seed=seed)
        self.goal = draw_goal(self.layout.goal, self.np_random)
        if "goal" in options:
            self.goal = np.array(options["goal"], np.float64)
        if "start" in options:
            qpos = self.data.qpos.copy()
            qpos[:2] += options["start"]
            self.set_state(qpos, self.data.qvel.copy())
        self.model.site_pos[self._site][:2] = self.goal
        return self._get_obs(), {"goal": self.goal.copy()}

    def step(self, action):
        self.simulate(np.asarray(action, np.float64))
        obs = self._get_obs()
        reached = bool(np.linalg.norm(obs[:2] - self.goal) <= RADIUS)
        return obs, float(reached), reached, False, {"goal": self.goal.copy()}

    def _camera(self) -> Any:
        camera = self._mujoco.MjvCamera()
        rows, columns = self.layout.free.shape
        camera.lookat[:] = [MAZE_SCALE * (columns - 3) / 2, MAZE_SCALE * (rows - 3) / 2, 0.0]
        camera.distance, camera.elevation, camera.azimuth = 1.15 * MAZE_SCALE * max(rows, columns), -70.0, 90.0
        return camera
