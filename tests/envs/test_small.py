"""The small environments against numbers made another way: least squares, closed forms, hand-written controllers."""

from itertools import product

import gymnasium
import numpy as np
import pytest

from odice.envs.make import make, resolve
from odice.envs.perturb import perturb_start
from odice.envs.small import HORIZON, LQR, PARKING, LinearQuadratic, LQREnv, ParkingEnv
from odice.evaluation.simulator.evaluate import evaluate

T = HORIZON[LQR]


def roll(env, start, act):
    """Returns of an episode from a start state, and its actions."""
    env.reset(seed=0)
    env.unwrapped.state = np.array(start, float)
    total, actions, over, t = 0.0, [], False, 0
    while not over:
        actions.append(act(env.unwrapped.state, t))
        _, reward, terminated, truncated, _ = env.step(actions[-1])
        total, over, t = total + reward, terminated or truncated, t + 1
    return total, np.array(actions), terminated


def least_squares(system, x, steps):
    """The optimal cost over all sequences of actions: x_t is linear in them, so the cost is one sum of squares."""
    power = [np.linalg.matrix_power(system.A, t) for t in range(steps)]
    free = np.concatenate([p @ x for p in power])
    forced = np.zeros((2 * steps, steps))
    for t, s in product(range(steps), range(steps)):
        if s < t:
            forced[2 * t : 2 * t + 2, [s]] = power[t - 1 - s] @ system.B
    rows, target = np.vstack([forced, np.eye(steps)]), np.concatenate([-free, np.zeros(steps)])
    u, *_ = np.linalg.lstsq(rows, target, rcond=None)
    return u, float(np.square(rows @ u - target).sum())


def test_riccati_is_the_best_of_all_sequences():
    system, x = LinearQuadratic(), np.array([0.4, -0.3])
    gains, P = system.riccati(T)
    u, cost = least_squares(system, x, T)
    np.testing.assert_allclose(x @ P @ x, cost, rtol=1e-10)
    np.testing.assert_allclose(-gains[0] @ x, u[:1], rtol=1e-8)


@pytest.mark.parametrize("start", list(product((-0.5, 0.5), repeat=2)))
def test_optimal_controller_earns_the_analytic_return(start):
    """From the corners of the start square, where actions are largest: the dynamics are linear."""
    env, system = make(LQR), LinearQuadratic()
    gains, P = system.riccati(T)
    total, actions, terminated = roll(env, start, lambda x, t: -gains[t] @ x)
    x = np.array(start)
    assert np.abs(actions).max() < 1  # so the bounds change nothing
    assert len(actions) == T
    assert not terminated
    np.testing.assert_allclose(total, -x @ P @ x, rtol=1e-12)

    K = system.gain()
    steady, *_ = roll(env, start, lambda x, t: -K @ x)
    np.testing.assert_allclose(steady, -x @ system.cost(K, T) @ x, rtol=1e-12)
    assert 1.01 * total < steady < total  # not knowing the time costs little
    for other in (0.8 * K, 1.2 * K, K + np.array([[0.2, -0.2]])):
        assert roll(env, start, lambda x, t, K=other: -K @ x)[0] < steady


def test_scores_of_lqr():
    K = LinearQuadratic().gain()
    best = evaluate(lambda obs: -obs @ K.T, LQR, episodes=200)
    idle = evaluate(lambda obs: np.zeros((len(obs), 1)), LQR, episodes=200)
    assert best.score == pytest.approx(100, abs=1.5)  # the start is random
    assert idle.score == pytest.approx(0, abs=15)
    assert best.reference == resolve(LQR).reference


@pytest.mark.parametrize("distance", [0.3, 0.64, 1.0])
def test_parking_in_the_least_time(distance):
    """Full force, then full brake: 2 sqrt(d) seconds, a little less because near is enough."""
    env, steps = make(PARKING), 10 * 2 * np.sqrt(distance)

    def brake_in_time(state, t):
        """As fast as full brakes can still stop it at the origin."""
        x, v = state
        wanted = -np.sign(x) * np.sqrt(2 * abs(x))
        return np.clip([(wanted - v) / 0.1], -1.0, 1.0)

    total, _, terminated = roll(env, (-distance, 0.0), brake_in_time)
    assert terminated
    assert -steps - 2 <= total <= -steps + 4


def test_the_three_ends_of_parking():
    env = make(PARKING)
    push = lambda state, t: np.ones(1)
    total, actions, terminated = roll(env, (1.0, 0.0), push)
    assert terminated
    assert total == ParkingEnv.CRASH - (len(actions) - 1)  # the last step crashes, the others cost 1
    assert len(actions) == np.floor(10 * np.sqrt(2)) + 1  # 1 m at 1 m/s^2 takes sqrt(2) s
    assert total < -HORIZON[PARKING]
    total, _, terminated = roll(env, (1.0, 0.0), lambda state, t: np.zeros(1))
    assert (total, terminated) == (-HORIZON[PARKING], False)


@pytest.mark.filterwarnings("ignore:.*infinity")  # Gymnasium's checker would like bounds on what is observed
@pytest.mark.parametrize("name", [LQR, PARKING])
def test_as_any_gymnasium_environment(name):
    from gymnasium.utils.env_checker import check_env

    check_env(make(name).unwrapped, skip_render_check=True)
    many = gymnasium.vector.SyncVectorEnv([lambda: make(name)] * 3)
    obs, _ = many.reset(seed=0)
    assert obs.shape == (3, 2)
    assert not np.array_equal(obs[0], obs[1])
    assert many.step(many.action_space.sample())[1].shape == (3,)
    env = make(name, max_steps=3)
    before, _ = env.reset(seed=0)
    assert 0 < np.abs(perturb_start(env, 0.01, np.random.default_rng(0)) - before).max() < 0.1


def test_starts():
    many = np.array([LQREnv().reset(seed=s)[0] for s in range(300)])
    np.testing.assert_allclose(many.var(0), 0.25 / 3, rtol=0.2)
    parked = np.array([ParkingEnv().reset(seed=s)[0] for s in range(300)])
    assert (np.abs(parked[:, 0]) >= 0.3).all()
    assert (np.abs(parked[:, 0]) <= 1).all()
    assert 100 < (parked[:, 0] > 0).sum() < 200
    assert (parked[:, 1] == 0).all()
