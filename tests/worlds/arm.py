"""A two-jointed arm that reaches for a target: angles, velocities, torques. The hand at the target ends the episode.

The reward is minus the distance after the step, and the torque's cost. Recordings are cut after 80 steps of 50 ms.
"""

from __future__ import annotations

import numpy as np

from tests.worlds import Table, World, observation_columns, record

NAMES = ("q1_rad", "q2_rad", "dq1_rad_s", "dq2_rad_s", "target_x_m", "target_y_m")
COLUMNS = {
    "observation": NAMES,
    "action": ("tau1_nm", "tau2_nm"),
    "reward": "reward",
    "episode": "trial",
    "step": "time_s",
    "terminated": "reached",
    "next_observation": tuple(f"next_{name}" for name in NAMES),
    "action_low": (-2.0,),
    "action_high": (2.0,),
}
LINKS, DT = (0.3, 0.25), 0.05


def _hand(q: np.ndarray) -> np.ndarray:
    a, b = q[:, 0], q[:, 0] + q[:, 1]
    return np.stack([LINKS[0] * np.cos(a) + LINKS[1] * np.cos(b), LINKS[0] * np.sin(a) + LINKS[1] * np.sin(b)], axis=1)


def _pull(state: np.ndarray) -> np.ndarray:
    """Torques that pull the hand to the target: the transposed Jacobian, with damping."""
    a, b = state[:, 0], state[:, 0] + state[:, 1]
    off = state[:, 4:6] - _hand(state[:, :2])
    far = np.stack([-LINKS[1] * np.sin(b), LINKS[1] * np.cos(b)], axis=1)
    near = far + np.stack([-LINKS[0] * np.sin(a), LINKS[0] * np.cos(a)], axis=1)
    pull = np.stack([(near * off).sum(axis=1), (far * off).sum(axis=1)], axis=1)
    return np.clip(20 * pull - 0.35 * state[:, 2:4], -2, 2)


def _start(rng: np.random.Generator, n: int) -> np.ndarray:
    angle, reach = rng.uniform(-np.pi, np.pi, n), rng.uniform(0.2, 0.5, n)
    still = np.zeros((n, 2))
    goal = np.stack([reach * np.cos(angle), reach * np.sin(angle)], axis=1)
    return np.concatenate([rng.normal(0, 0.3, (n, 1)), rng.normal(1.0, 0.3, (n, 1)), still, goal], axis=1)


def _behave(rng: np.random.Generator, state: np.ndarray) -> np.ndarray:
    return np.clip(0.6 * _pull(state) + rng.normal(0, 0.5, (len(state), 2)), -2, 2)


def _step(rng: np.random.Generator, state: np.ndarray, actions: np.ndarray):
    torque = np.clip(actions, -2, 2)
    speed = 0.96 * state[:, 2:4] + DT * torque / np.array([0.12, 0.06]) * 0.5 + rng.normal(0, 0.01, (len(state), 2))
    after = np.concatenate([state[:, :2] + DT * speed, speed, state[:, 4:]], axis=1)
    away = np.linalg.norm(_hand(after[:, :2]) - after[:, 4:], axis=1)
    return after, -away - 0.005 * (torque**2).sum(axis=1), away < 0.03


WORLD = World(NAMES, _start, lambda state: state, _behave, _step, horizon=80)
good = _pull


def make_log(seed: int = 0, episodes: int = 120) -> Table:
    steps = record(WORLD, seed, episodes)
    return {
        "trial": steps.episode,
        "time_s": np.round(steps.step * DT, 2),
        **observation_columns(WORLD, steps, 5),
        "tau1_nm": np.round(steps.actions[:, 0], 4),
        "tau2_nm": np.round(steps.actions[:, 1], 4),
        "reward": np.round(steps.rewards, 6),
        "reached": steps.terminated,
        **{f"next_{name}": np.round(steps.next_observations[:, i], 5) for i, name in enumerate(NAMES)},
    }
