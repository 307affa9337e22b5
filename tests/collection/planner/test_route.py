"""The planner against ways that were counted by hand, and walks that must end at the target."""

import numpy as np
import pytest

from odice.collection.planner.route import Grid, Route

MAP = """
#######
#...#.#
#.#.#.#
#.#...#
#.#.#.#
#.....#
#######
"""
FREE = np.array([[char == "." for char in row] for row in MAP.split()])


def test_cells_and_points():
    grid = Grid.centered(FREE, 4.0)
    np.testing.assert_array_equal(grid.center((3, 3)), [0, 0])  # the middle of a 7 x 7 maze
    np.testing.assert_array_equal(grid.center((1, 5)), [8, 8])  # right and up
    for cell in grid.cells:
        for offset in ([0, 0], [1.9, -1.9], [-1.9, 1.9]):
            assert grid.cell(grid.center(cell) + offset) == cell
    assert len(grid.cells) == FREE.sum() == 19


def test_distances_by_hand():
    distance = Grid.centered(FREE, 1.0).distances((1, 5))
    assert distance[(1, 5)] == 0
    assert distance[(3, 3)] == 4  # down, down, left, left
    assert distance[(1, 1)] == 8  # and up, up, left, left
    assert distance[(5, 1)] == 8  # down 4, left 4
    assert set(distance) == set(Grid.centered(FREE, 1.0).cells)


def test_no_way():
    free = FREE.copy()
    free[3, 4] = free[5, 4] = False  # the right column is cut off
    assert (1, 1) not in Grid.centered(free, 1.0).distances((1, 5))


def walk(grid, start, target, rng, push=0.0):
    """A point that moves a tenth of a cell towards its waypoint, pushed about; walls hold."""
    xy, route = np.array(start, float), Route(grid, np.array(target), np.array(start))
    for step in range(1000):
        if np.linalg.norm(xy - target) < 0.2 * grid.scale:
            return step
        towards = route.waypoint(xy) - xy
        move = 0.1 * grid.scale * towards / max(np.linalg.norm(towards), 1e-9) + push * grid.scale * rng.normal(size=2)
        for axis in (0, 1):
            after = xy.copy()
            after[axis] += move[axis]
            if grid.free[grid.cell(after)]:
                xy = after
    return None


@pytest.mark.parametrize(("scale", "push"), [(1.0, 0.0), (4.0, 0.0), (1.0, 0.08)])
def test_every_walk_arrives(scale, push):
    grid, rng = Grid.centered(FREE, scale), np.random.default_rng(0)
    cells = grid.cells
    for target in cells:
        start = cells[rng.integers(len(cells))]
        moves = grid.distances(target)[start]
        steps = walk(grid, grid.center(start), grid.center(target) + 0.2 * scale * rng.uniform(-1, 1, 2), rng, push)
        assert steps is not None
        if not push:
            assert steps <= 10 * moves + 5  # ten steps per cell, and what the target is off its center


def test_carried_off_the_way():
    grid = Grid.centered(FREE, 1.0)
    target = grid.center((1, 5))
    route = Route(grid, target, grid.center((3, 3)))
    np.testing.assert_array_equal(route.waypoint(grid.center((3, 3))), grid.center((3, 4)))
    far = grid.center((1, 1))
    np.testing.assert_array_equal(route.waypoint(far), grid.center((1, 2)))  # planned again from there
    np.testing.assert_array_equal(
        route.waypoint(far + np.array([0, 5])), grid.center((1, 2))
    )  # outside: it keeps its aim
    np.testing.assert_array_equal(route.waypoint(target + 0.3), target)
