"""The picture of the README, from `odice demo`: `MUJOCO_GL=egl python benchmarks/demo_picture.py demo demo.png`.

Left the learning curve. Right the robot every 0.2 s, in the log's median episode and in one of the learned policy.
"""

import sys
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
from matplotlib.figure import Figure

import odice
from odice.data.load import load
from odice.reports.figures import save

EVERY = 25
"""Steps between two pictures of the robot."""
SEED = 1_000_000
"""The first of the demo's evaluation episodes."""
VIEW = {"type": 0, "distance": 2.55, "azimuth": 90, "elevation": -6, "lookat": np.array((2.5, 0.0, 0.8))}


def states_of_log(observations: np.ndarray, dt: float) -> list[tuple[np.ndarray, np.ndarray]]:
    """Positions and velocities of a logged episode; the log has no x, so it is the sum of the velocities."""
    x = np.cumsum(observations[:, 5]) * dt
    return [(np.r_[place, row[:5]], row[5:]) for place, row in zip(x, observations, strict=True)]


def states_of_policy(env, policy) -> list[tuple[np.ndarray, np.ndarray]]:
    obs, _ = env.reset(seed=SEED)
    states, ended = [], False
    while not ended:
        states.append((env.unwrapped.data.qpos.copy(), env.unwrapped.data.qvel.copy()))
        obs, _, terminated, truncated, _ = env.step(policy(obs))
        ended = terminated or truncated
    return states


def strobe(env, states: list[tuple[np.ndarray, np.ndarray]]) -> np.ndarray:
    """All pictures of an episode in one."""
    env.reset(seed=0)
    picture = lambda qpos, qvel: (env.unwrapped.set_state(qpos, qvel), env.render())[1].astype(int)
    away = states[0][0] + np.r_[100.0, np.zeros(5)]
    shown = background = picture(away, states[0][1])
    for state in states[::EVERY]:
        frame = picture(*state)
        changed = np.abs(frame - background).sum(-1, keepdims=True) > 40
        shown = np.where(changed, frame, shown)
    return shown.astype(np.uint8)


def main(folder: str, out: str) -> None:
    run, data = odice.Run.open(Path(folder, "run")), load("bundled/hopper-replay")
    median = data[int(np.argsort(data.returns)[data.n_episodes // 2])]
    env: Any = gymnasium.make("Hopper-v5", render_mode="rgb_array", width=1000, height=192, default_camera_config=VIEW)
    rows = {
        f"the median episode of the log: return {median.rewards.sum():.0f}": states_of_log(
            median.observations, env.unwrapped.dt
        ),
        "an episode of the policy that was learned from the log": states_of_policy(env, run.policy),
    }
    figure = Figure(figsize=(11, 3.6), dpi=110)
    axes = figure.add_axes((0.05, 0.13, 0.22, 0.78))
    axes.plot(run.evaluations["step"], run.evaluations["mean"], color="#2f6db5", marker="o", markersize=3)
    axes.axhline(data.returns.mean(), color="#888", linestyle="--", linewidth=1)
    axes.text(run.evaluations["step"].max(), data.returns.mean() + 12, "mean of the log", ha="right", color="#666")
    axes.set(xlabel="updates", ylim=(0, None), xticks=(0, 5_000, 10_000))
    axes.set_title("return of the policy", fontsize=10, loc="left")
    axes.spines[["top", "right"]].set_visible(False)
    for row, (title, states) in enumerate(rows.items()):
        strip = figure.add_axes((0.31, 0.53 - 0.5 * row, 0.68, 0.4))
        strip.imshow(strobe(env, states))
        strip.set_axis_off()
        strip.set_title(f"{title}, {len(states) * env.unwrapped.dt:.1f} s", fontsize=10, loc="left")
    save(figure, Path(out))


if __name__ == "__main__":
    main(*sys.argv[1:])
