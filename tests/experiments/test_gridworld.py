"""The toy world against facts counted by hand."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from odice.experiments import gridworld
from odice.experiments.gridworld import ENCODINGS, MOVES, GridWorld

pytestmark = pytest.mark.fast

UP, DOWN, LEFT, RIGHT = range(4)
WORLD = GridWorld()


def test_goals_are_the_papers():
    goals = {tuple(map(int, cell)) for cell in np.argwhere(WORLD.goals())}
    assert goals == {(x, 30) for x in range(10, 21)} | {(30, y) for y in range(10, 21)}
    assert WORLD.rewards()[15, 30] == 10
    assert WORLD.rewards()[15, 29] == -1


@pytest.mark.parametrize(
    ("cell", "action", "after"),
    [
        ((3, 4), UP, (3, 5)),
        ((3, 4), DOWN, (3, 3)),
        ((3, 4), LEFT, (2, 4)),
        ((3, 4), RIGHT, (4, 4)),
        ((0, 0), LEFT, (0, 0)),
        ((0, 0), DOWN, (0, 0)),
        ((30, 5), RIGHT, (30, 5)),
    ],
)
def test_moves_and_walls(cell, action, after):
    assert tuple(WORLD.move(np.array(cell), np.array(action))) == after


@pytest.mark.parametrize(
    ("cell", "top", "right"), [((0, 0), 40, 40), ((15, 20), 10, 15), ((25, 0), 35, 15), ((15, 30), 0, 25)]
)
def test_distance_to_the_goal_areas(cell, top, right):
    assert WORLD.distance(np.array(cell), 0) == top
    assert WORLD.distance(np.array(cell), 1) == right


def test_log_is_a_chain_of_legal_moves_that_ends_at_goals():
    log = gridworld.collect(WORLD, 800, seed=3)
    cells, goals = WORLD.cells, WORLD.goals().ravel()
    assert len(log.cell) == 800
    assert 17 <= log.episode.max() + 1 <= 20  # 40 moves and some for the noise
    np.testing.assert_array_equal(np.clip(cells[log.cell] + MOVES[log.action], 0, 30), cells[log.next_cell])
    np.testing.assert_array_equal(log.terminated, goals[log.next_cell])
    np.testing.assert_array_equal(log.reward, np.where(log.terminated, 10.0, -1.0))
    same_episode = log.episode[1:] == log.episode[:-1]
    np.testing.assert_array_equal(log.cell[1:][same_episode], log.next_cell[:-1][same_episode])
    assert (log.cell[1:][~same_episode] == 0).all()
    assert log.cell[0] == 0
    np.testing.assert_array_equal(log.terminated[:-1], ~same_episode)


def test_five_percent_of_the_actions_are_random():
    """Of four random actions three differ from the intended move, or two where two moves are as good: 2.5-3.75 %."""
    log = gridworld.collect(WORLD, 5_000, seed=0)
    cells = WORLD.cells
    closer = lambda area: WORLD.distance(cells[log.next_cell], area) < WORLD.distance(cells[log.cell], area)
    count = lambda moves: np.bincount(log.episode, weights=moves)
    aims_right = count(closer(1)) > count(closer(0))
    astray = ~np.where(aims_right[log.episode], closer(1), closer(0))
    assert 0.02 < astray.mean() < 0.045


def test_log_is_a_function_of_the_seed():
    first, again, other = (gridworld.collect(WORLD, 100, seed) for seed in (1, 1, 2))
    np.testing.assert_array_equal(first.action, again.action)
    assert (first.action != other.action).any()


def test_support_is_where_the_log_has_been():
    log = gridworld.collect(WORLD, 50, seed=0)
    visited = {int(c) for c in log.cell} | {int(c) for c in log.next_cell}
    assert {int(i) for i in np.flatnonzero(gridworld.support(WORLD, log))} == visited


def test_distance_to_the_support():
    seen = np.zeros((4, 4), bool)
    seen[0, 0] = seen[3, 3] = True
    expected = [[0, 1, 2, 3], [1, 2, 3, 2], [2, 3, 2, 1], [3, 2, 1, 0]]
    np.testing.assert_array_equal(gridworld.distance_to(seen), expected)


def towards(*goal: int) -> np.ndarray:
    """A value map that rises towards one cell."""
    return -np.abs(WORLD.cells - np.array(goal)).sum(1).reshape(WORLD.shape).astype(float)


def test_greedy_walk_takes_the_shortest_way_and_stops_at_the_goal():
    path = WORLD.cells[gridworld.walk(WORLD, gridworld.greedy_map(WORLD, towards(30, 15)))]
    assert len(path) == 46
    assert tuple(path[0]) == (0, 0)
    assert tuple(path[-1]) == (30, 15)
    assert (np.abs(np.diff(path, axis=0)).sum(1) == 1).all()


def test_greedy_walk_never_stays_and_ends_at_the_horizon():
    path = WORLD.cells[gridworld.walk(WORLD, gridworld.greedy_map(WORLD, towards(3, 0)), horizon=20)]
    assert len(path) == 21
    assert (np.abs(np.diff(path, axis=0)).sum(1) == 1).all()  # it steps to and fro around the top of the hill


def test_arrives_knows_who_gets_there():
    table = gridworld.greedy_map(WORLD, towards(15, 30))
    goals = WORLD.goals()
    to_goal = gridworld.arrives(table, goals.ravel()).reshape(WORLD.shape)
    assert to_goal.all()
    there = np.zeros(WORLD.shape, bool)
    there[15, 29] = True  # the last cell before the peak: walks along row 30 end in another goal first
    back = gridworld.arrives(table, there.ravel()).reshape(WORLD.shape)
    assert back[15, 5]
    assert back[15, 29]
    assert not back[15, 30]
    assert not back[0, 30]
    assert not back[25, 30]


@given(st.lists(st.integers(-5, 5), min_size=1, max_size=8), st.lists(st.integers(-5, 5), min_size=1, max_size=8))
def test_auc_is_the_share_of_ordered_pairs(positive, negative):
    pairs = [1.0 if p > n else 0.5 if p == n else 0.0 for p in positive for n in negative]
    assert gridworld.auc(np.array(positive, float), np.array(negative, float)) == pytest.approx(np.mean(pairs))


def test_auc_of_nothing_is_unknown():
    assert np.isnan(gridworld.auc(np.array([]), np.array([1.0])))


def test_matched_auc_compares_only_cells_as_far_from_a_goal():
    """Strata of equal distance: 1 of 1 pairs ordered at distance 1, 0 of 2 at distance 2; the rest has no pair."""
    value = np.array([5.0, 1.0, 3.0, 4.0, 9.0, 0.0])
    inside = np.array([True, False, True, False, False, True])
    distance = np.array([1, 1, 2, 2, 2, 7])
    assert gridworld.matched_auc(value, inside, distance) == pytest.approx(1 / 3)


@pytest.mark.parametrize("name", ENCODINGS)
def test_encodings_tell_all_cells_apart(name):
    codes = ENCODINGS[name](WORLD)
    assert len(codes) == 961
    assert np.isfinite(codes).all()
    assert len(np.unique(codes.round(9), axis=0)) == 961
