"""The way through a maze: breadth-first search over its cells, followed from center to center.

Cells are (row, column); x grows with the column. In gymnasium-robotics y falls with the row and the origin is the
maze's center; in D4RL y grows with the row and the origin is the start cell's center. Pure numpy, no simulator.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float
from numpy import ndarray as Arr

from odice.d4rl import MAZE_LAYOUTS, MAZE_SCALE, maze_center

Cell = tuple[int, int]
ARRIVED = 0.3
"""How near to a cell's center, in cells, the robot turns to the next one. It does not stop there."""


@dataclass(frozen=True)
class Grid:
    """Which cells are free, and where they are."""

    free: Bool[Arr, "rows columns"]
    scale: float
    """Width of a cell in meters."""
    corner: tuple[float, float]
    """Center of cell (0, 0)."""
    rise: int
    """1 if y grows with the row, -1 if it falls."""

    @classmethod
    def centered(cls, free: Bool[Arr, "rows columns"], scale: float) -> Grid:
        """As gymnasium-robotics places its mazes."""
        rows, columns = free.shape
        return cls(free, scale, (scale * (1 - columns) / 2, scale * (rows - 1) / 2), -1)

    @classmethod
    def of_d4rl(cls, size: str) -> Grid:
        """As D4RL places them."""
        x, y = maze_center((0, 0)).tolist()
        return cls(MAZE_LAYOUTS[size].free, MAZE_SCALE, (x, y), 1)

    @property
    def cells(self) -> list[Cell]:
        return [(int(row), int(column)) for row, column in np.argwhere(self.free)]

    def center(self, cell: Cell) -> Float[Arr, " 2"]:
        return np.array(self.corner) + self.scale * np.array([cell[1], self.rise * cell[0]])

    def cell(self, xy: Float[Arr, " 2"]) -> Cell:
        x, y = (xy - np.array(self.corner)) / self.scale
        return int(np.floor(self.rise * y + 0.5)), int(np.floor(x + 0.5))

    def neighbors(self, cell: Cell) -> list[Cell]:
        """The free cells adjacent to a cell; the maze is walled, so none is out of range."""
        row, column = cell
        adjacent = ((row, column + 1), (row - 1, column), (row, column - 1), (row + 1, column))
        return [one for one in adjacent if self.free[one]]

    def distances(self, target: Cell) -> dict[Cell, int]:
        """Moves to the target from every cell that has a way there."""
        distance = {target: 0}
        queue = deque([target])
        while queue:
            cell = queue.popleft()
            for neighbor in self.neighbors(cell):
                if neighbor not in distance:
                    distance[neighbor] = distance[cell] + 1
                    queue.append(neighbor)
        return distance


class Route:
    """Where to go next on a shortest way to a target point. It is planned again if the robot is pushed off it."""

    def __init__(self, grid: Grid, target: Float[Arr, " 2"], start: Float[Arr, " 2"]):
        self.grid, self.target = grid, target
        self._distance = grid.distances(grid.cell(target))
        self._aim = self._after(grid.cell(start))

    def waypoint(self, xy: Float[Arr, " 2"]) -> Float[Arr, " 2"]:
        """The point to head for from `xy`: a cell's center, in the last cell the target itself."""
        current = self.grid.cell(xy)
        if current in self._distance and current != self._aim and current not in self.grid.neighbors(self._aim):
            self._aim = current
        near = np.linalg.norm(xy - self.grid.center(self._aim)) < ARRIVED * self.grid.scale
        if near:
            self._aim = self._after(self._aim)
        return self.target if self._distance[self._aim] == 0 else self.grid.center(self._aim)

    def _after(self, cell: Cell) -> Cell:
        return min([cell, *self.grid.neighbors(cell)], key=self._distance.__getitem__)
