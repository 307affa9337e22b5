"""The picture of docs/research/mazes.md: paths of the ball in three mazes.

python benchmarks/maze_picture.py mazes.png
"""

import sys

import matplotlib.pyplot as plt
import numpy as np

from odice.collection.planner.mazes import collect_maze
from odice.envs.make import make

MAZES = {"pointmaze-umaze": 1500, "pointmaze-medium-play": 4000, "pointmaze-large-diverse": 8000}


def main(path: str) -> None:
    figure, axes = plt.subplots(1, 3, figsize=(9, 3.2), layout="constrained")
    for ax, (name, steps) in zip(axes, MAZES.items(), strict=True):
        data, env = collect_maze(name, steps), make(name)
        env.reset(seed=0)
        walls = np.array([[cell == 1 for cell in row] for row in env.unwrapped.maze.maze_map])
        rows, columns = walls.shape
        ax.imshow(walls, cmap="Greys", vmax=2.5, extent=(-columns / 2, columns / 2, -rows / 2, rows / 2))
        for episode in data:
            ax.plot(*episode.observations[:, :2].T, lw=0.6, alpha=0.6, color="C0" if episode.terminated else "C1")
            ax.plot(*episode.observations[0, :2], "k.", ms=3)
        ax.add_patch(plt.Circle(env.unwrapped.goal, 0.45, fill=False, color="C3"))
        ax.set(xticks=[], yticks=[])
        ax.set_title(f"{name}\n{data.terminated.sum()} of {len(data)} episodes at the goal", fontsize=8)
    figure.savefig(path, dpi=80, bbox_inches="tight")


if __name__ == "__main__":
    main(sys.argv[1])
