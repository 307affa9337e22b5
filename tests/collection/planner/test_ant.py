"""The ant's symmetries in the simulator itself: a turned and renamed ant must do the same, turned and renamed."""

import numpy as np
import pytest

from odice.collection.planner.ant import Steered, measure_yaw, rename_legs, rename_motors, turn_world, uprightness, yaw
from odice.envs.make import make
from odice.envs.mazes import GAIT
from odice.errors import OdiceError


@pytest.fixture(scope="module")
def ant():
    env = make(GAIT)
    env.reset(seed=0)
    yield env.unwrapped
    env.close()


def simulate(ant, state, actions):
    """The states after each action."""
    ant.reset(seed=0)  # forgets the solver's warm start
    ant.set_state(state[:15].copy(), state[15:].copy())
    states = []
    for action in actions:
        ant.do_simulation(action, ant.frame_skip)
        states.append(np.concatenate([ant.data.qpos, ant.data.qvel]))
    return np.array(states)


def any_state(ant, rng):
    """Somewhere near the ground, tilted, joints within their limits, everything moving."""
    state = np.concatenate([ant.init_qpos, np.zeros(14)])
    state[:2], state[2] = rng.normal(size=2), rng.uniform(0.5, 0.9)
    state[3:7] = [np.cos(0.3), *(np.sin(0.3) * _unit(rng.normal(size=3)))]
    state = turn_world(state, rng.uniform(-np.pi, np.pi))
    state[7:15] += 0.2 * rng.uniform(-1, 1, 8)
    state[15:] = 0.5 * rng.normal(size=14)
    return state


def _unit(vector):
    return vector / np.linalg.norm(vector)


@pytest.mark.parametrize("turns", [0, 1, 2, 3])
@pytest.mark.parametrize("angle", [0.0, 1.1, np.pi])
def test_exact_symmetry(ant, turns, angle):
    """Ten control steps, fifty of the simulator, with ground contact: equal to rounding."""
    rng = np.random.default_rng(turns)
    state, actions = any_state(ant, rng), rng.uniform(-1, 1, (10, 8))
    changed = lambda one: rename_legs(turn_world(one, angle), turns)
    plain = simulate(ant, state, actions)
    other = simulate(ant, changed(state), [rename_motors(action, turns) for action in actions])
    np.testing.assert_allclose(other, [changed(one) for one in plain], rtol=0, atol=1e-10)
    assert np.abs(plain[-1] - state).max() > 0.1  # something did happen


def test_names_go_round(ant):
    rng = np.random.default_rng(0)
    state, action = any_state(ant, rng), rng.uniform(-1, 1, 8)
    again, motors = state, action
    for _ in range(4):
        again, motors = rename_legs(again, 1), rename_motors(motors, 1)
    np.testing.assert_array_equal(motors, action)
    np.testing.assert_allclose(again[[*range(3), *range(7, 29)]], state[[*range(3), *range(7, 29)]], atol=1e-15)
    np.testing.assert_allclose(again[3:7], -state[3:7], atol=1e-15)  # a whole turn: the other sign of one orientation
    np.testing.assert_array_equal(rename_motors(rename_motors(action, 3), -3), action)


def test_yaw_and_tilt(ant):
    state = np.concatenate([ant.init_qpos, np.zeros(14)])
    assert yaw(turn_world(state, 0.7)) == pytest.approx(0.7)
    assert yaw(rename_legs(state, 1)) == pytest.approx(np.pi / 2)
    assert uprightness(turn_world(state, 2.0)) == pytest.approx(1)
    state[3:7] = [0, 1, 0, 0]  # half a turn about x
    assert uprightness(state) == pytest.approx(-1)


@pytest.mark.parametrize("gait_yaw", [0.0, 0.6, -2.0])
def test_steering_is_equivariant(ant, gait_yaw):
    """Whatever the gait does, turning ant and wish together changes nothing, and neither does another naming."""
    rng = np.random.default_rng(1)
    weights = rng.normal(size=(27, 8)) / 5
    seen = []

    def gait(obs):
        seen.append(obs)
        return np.tanh(obs @ weights)

    steered = Steered(gait, gait_yaw)
    for _ in range(20):
        state, wish, angle = any_state(ant, rng), rng.normal(size=2), rng.uniform(-np.pi, np.pi)
        action = steered(state, wish)
        turn = np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
        np.testing.assert_allclose(steered(turn_world(state, angle), turn @ wish), action, atol=1e-5)
        np.testing.assert_allclose(steered(rename_legs(state, 1), wish), rename_motors(action, 1), atol=1e-5)
    for obs in seen:  # the gait only ever sees itself within an eighth of a turn of its own yaw
        off = yaw(np.concatenate([np.zeros(2), obs[0].astype(float)])) - gait_yaw
        assert abs((off + np.pi) % (2 * np.pi) - np.pi) <= np.pi / 4 + 1e-6


@pytest.mark.parametrize(
    ("gait", "says"),
    [
        (lambda obs: np.zeros((len(obs), 8)), "on open ground"),
        (lambda obs: np.zeros((len(obs), 6)), r"shape \(1, 6\)"),
        (lambda obs: np.full((len(obs), 8), np.nan), "8 finite numbers"),
    ],
)
def test_a_gait_that_does_not_run(gait, says):
    with pytest.raises(OdiceError, match=says):
        measure_yaw(gait, steps=40)
