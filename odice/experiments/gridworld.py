"""The paper's toy world: a 30 x 30 grid, goals on two of its borders, and 800 logged moves of a policy.

What the paper fixes: positions (0, 0) to (30, 30); start (0, 0); goals at the top from (10, 30) to (20, 30) and on the
right from (30, 10) to (30, 20); four moves; reward -1 per move and a positive one for the move that reaches a goal; a
goal-reaching behavior whose action is replaced by a random one with probability 0.05; about 20 trajectories, 800
transitions.

What it leaves open, and what is assumed: the goal's reward is 10; reaching a goal ends the episode; a move into a
wall leaves the agent where it is; the behavior picks one of the two goal areas per episode and then, in every cell,
one of the moves that shorten the way to it. Such an episode takes 40 moves and some for the noise, which is how 20 of
them make 800.

Cells are (x, y) pairs; maps over the grid are indexed `[x, y]`. Pure numpy.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int
from numpy import ndarray as Arr

MOVES = np.array([(0, 1), (0, -1), (-1, 0), (1, 0)])
"""Up, down, left, right: an action is a row of this table."""


@dataclass(frozen=True)
class GridWorld:
    """The rules of the world. Positions run from 0 to `side` in both directions."""

    side: int = 30
    goal_from: int = 10
    goal_to: int = 20
    goal_reward: float = 10.0
    step_reward: float = -1.0
    noise: float = 0.05
    """Probability with which the behavior's action is replaced by a uniformly random one."""

    @property
    def shape(self) -> tuple[int, int]:
        return self.side + 1, self.side + 1

    @property
    def cells(self) -> Int[Arr, "cells 2"]:
        """Every cell, in the order of a flattened map."""
        return np.stack(np.meshgrid(*map(np.arange, self.shape), indexing="ij"), axis=-1).reshape(-1, 2)

    def goals(self) -> Bool[Arr, "x y"]:
        """Map of the goal cells: a stretch of the top border and one of the right border."""
        goals = np.zeros(self.shape, bool)
        goals[self.goal_from : self.goal_to + 1, -1] = True
        goals[-1, self.goal_from : self.goal_to + 1] = True
        return goals

    def rewards(self) -> Float[Arr, "x y"]:
        """Map of the reward for arriving in a cell."""
        return np.where(self.goals(), self.goal_reward, self.step_reward)

    def flat(self, cells: Int[Arr, "*n 2"]) -> Int[Arr, "*n"]:
        """Position of a cell in a flattened map."""
        return cells[..., 0] * self.shape[1] + cells[..., 1]

    def move(self, cells: Int[Arr, "*n 2"], action: Int[Arr, "*n"]) -> Int[Arr, "*n 2"]:
        """Where an action leads; a move into a wall leads nowhere."""
        return np.clip(cells + MOVES[action], 0, self.side)

    def distance(self, cells: Int[Arr, "*n 2"], area: int) -> Int[Arr, "*n"]:
        """Moves to the goal area at the top (0) or on the right (1)."""
        along, across = cells[..., area], cells[..., 1 - area]
        sideways = np.maximum(self.goal_from - along, 0) + np.maximum(along - self.goal_to, 0)
        return sideways + self.side - across


class Moves(NamedTuple):
    """Logged moves, one row each; cells as positions in a flattened map."""

    cell: Int[Arr, " n"]
    action: Int[Arr, " n"]
    reward: Float[Arr, " n"]
    next_cell: Int[Arr, " n"]
    terminated: Bool[Arr, " n"]
    episode: Int[Arr, " n"]


def behave(world: GridWorld, cell: Int[Arr, " xy"], area: int, rng: np.random.Generator) -> int:
    """The behavior's action: a random one of the moves that shorten the way, or now and then any move."""
    if rng.random() < world.noise:
        return int(rng.integers(len(MOVES)))
    reachable = world.move(cell, np.arange(len(MOVES)))
    shorter = np.flatnonzero(world.distance(reachable, area) < world.distance(cell, area))
    return int(rng.choice(shorter))


def collect(world: GridWorld, transitions: int, seed: int) -> Moves:
    """Log the behavior until there are `transitions` moves; the last episode is cut there."""
    rng = np.random.default_rng(seed)
    goals = world.goals()
    rows: list[tuple] = []
    episode = 0
    while len(rows) < transitions:
        cell, area, reached = np.zeros(2, int), int(rng.integers(2)), False
        while not reached and len(rows) < transitions:
            action = behave(world, cell, area, rng)
            after = world.move(cell, np.array(action))
            reached = bool(goals[tuple(after)])
            reward = world.goal_reward if reached else world.step_reward
            rows.append((world.flat(cell), action, reward, world.flat(after), reached, episode))
            cell = after
        episode += 1
    return Moves(*(np.array(column) for column in zip(*rows, strict=True)))


def support(world: GridWorld, log: Moves) -> Bool[Arr, "x y"]:
    """Map of the cells the log has been in."""
    seen = np.zeros(world.shape, bool)
    seen.flat[log.cell] = True
    seen.flat[log.next_cell] = True
    return seen


def distance_to(seen: Bool[Arr, "x y"]) -> Int[Arr, "x y"]:
    """Moves from every cell to the nearest seen one."""
    where = np.argwhere(seen)
    grid = np.argwhere(np.ones_like(seen))
    return np.abs(grid[:, None] - where[None]).sum(-1).min(1).reshape(seen.shape)


def greedy_map(world: GridWorld, value: Float[Arr, "x y"]) -> Int[Arr, " cells"]:
    """The greedy policy as a table: for every cell (flat) the neighbor with the highest value; goal cells stay."""
    cells = world.cells
    neighbors = cells[:, None] + MOVES
    inside = ((neighbors >= 0) & (neighbors <= world.side)).all(-1)
    index = world.flat(np.clip(neighbors, 0, world.side))
    best = np.where(inside, value.ravel()[index], -np.inf).argmax(1)
    chosen = np.take_along_axis(index, best[:, None], 1)[:, 0]
    return np.where(world.goals().ravel(), world.flat(cells), chosen)


def walk(world: GridWorld, table: Int[Arr, " cells"], start: int = 0, horizon: int = 200) -> Int[Arr, " t"]:
    """The cells (flat) of a greedy walk until a goal or the horizon, the start included."""
    goals = world.goals().ravel()
    path = [start]
    while len(path) <= horizon and not goals[path[-1]]:
        path.append(int(table[path[-1]]))
    return np.array(path)


def arrives(table: Int[Arr, " cells"], there: Bool[Arr, " cells"], horizon: int = 200) -> Bool[Arr, " cells"]:
    """From which cells the greedy walk comes to a cell in `there` (goal cells are dead ends)."""
    arrived = there.copy()
    for _ in range(horizon):
        arrived |= arrived[table]
    return arrived


def auc(positive: Float[Arr, " p"], negative: Float[Arr, " n"]) -> float:
    """Probability that a positive scores above a negative, ties counted half (area under the ROC curve)."""
    if not positive.size or not negative.size:
        return float("nan")
    difference = np.sign(positive[:, None] - negative[None])
    return float((difference.mean() + 1) / 2)


def matched_auc(value: Float[Arr, " n"], inside: Bool[Arr, " n"], distance: Int[Arr, " n"]) -> float:
    """The AUC over the pairs of an inside and an outside cell that are equally far from a goal.

    A value that only knows the way to the goal scores 0.5, wherever the data lie; the plain AUC mixes both questions.
    """
    ordered, pairs = 0.0, 0
    for d in np.unique(distance):
        at_d = distance == d
        weight = int((inside & at_d).sum()) * int((~inside & at_d).sum())
        if weight:
            ordered, pairs = ordered + auc(value[inside & at_d], value[~inside & at_d]) * weight, pairs + weight
    return ordered / pairs if pairs else float("nan")


def _fourier(unit: Float[Arr, "cells 2"]) -> Float[Arr, "cells 20"]:
    angles = np.pi * unit[:, :, None] * 2.0 ** np.arange(5)
    return np.concatenate([np.sin(angles), np.cos(angles)], axis=-1).reshape(len(unit), -1)


def _one_hot(index: Int[Arr, " cells"], size: int) -> Float[Arr, "cells size"]:
    return np.eye(size)[index]


ENCODINGS = {
    "raw": lambda world: world.cells.astype(float),
    "unit": lambda world: world.cells / world.side,
    "symmetric": lambda world: 2 * world.cells / world.side - 1,
    "fourier": lambda world: _fourier(world.cells / world.side),
    "one-hot-xy": lambda world: np.concatenate([_one_hot(c, world.side + 1) for c in world.cells.T], axis=-1),
    "one-hot": lambda world: np.eye(len(world.cells)),
}
"""What a network sees of a cell: its coordinates (as they are, in [0, 1], in [-1, 1], as waves of five lengths), one
bit per column and row, or one bit per cell."""
