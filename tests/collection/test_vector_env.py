"""Vector environments and replays: rows against environments stepped by hand, and going back to where one stood."""

import gymnasium
import numpy as np
import pytest

from odice.collection.replay import Replay, segments, width
from odice.collection.vector_env import ReplayWarning, VectorEnv
from odice.errors import OdiceError
from odice.types import Spec


class Counter(gymnasium.Env):
    """Observes (seed, steps) and pays the action. Ends after `seed % 3 + 2` steps; terminated if the seed is even."""

    observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (2,))
    action_space = gymnasium.spaces.Box(np.float32([0.0]), np.float32([4.0]))

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.start, self.steps = seed % 1000, 0
        return np.array([self.start, 0.0]), {}

    def step(self, action):
        self.steps += 1
        over = self.steps == self.start % 3 + 2
        even = self.start % 2 == 0
        return np.array([self.start, self.steps]), float(action[0]), over and even, over and not even, {}


def actions(num_envs, t):
    return np.full((num_envs, 1), -1 + 0.1 * (t % 20), np.float32)


def run(envs, first, steps):
    return np.concatenate([envs.step(actions(envs.num_envs, t)) for t in range(first, first + steps)])


def test_rows_are_read_back_as_the_episodes_that_were_played():
    envs = VectorEnv(Counter, 3, (7, 0))
    pieces = segments(run(envs, 0, 10), envs.spec, 3, envs.scale)
    assert sum(len(segment.episode.rewards) for segment in pieces) == 30
    assert [(segment.start, segment.env) for segment in pieces] == sorted(
        (segment.start, segment.env) for segment in pieces
    )
    numbers = dict.fromkeys(range(3), 0)
    for segment in pieces:
        seed = np.random.SeedSequence([7, 0, segment.env, numbers[segment.env]]).generate_state(1)[0] % 1000
        numbers[segment.env] += 1
        length = len(segment.episode.rewards)
        expected = 2.0 + 2.0 * actions(1, 0)[0, 0] + 0.2 * (np.arange(segment.start, segment.start + length) % 20)
        np.testing.assert_allclose(segment.episode.actions[:, 0], expected, rtol=1e-6)  # in the environment's units
        np.testing.assert_allclose(segment.episode.rewards, expected, rtol=1e-6)
        np.testing.assert_array_equal(segment.episode.observations[:, 0], np.full(length + 1, seed, np.float32))
        np.testing.assert_array_equal(segment.episode.observations[:, 1], np.arange(length + 1))
        assert segment.over == (length == seed % 3 + 2)
        assert segment.episode.terminated == (segment.over and seed % 2 == 0)
        assert segment.episode.truncated == (not segment.episode.terminated)


def test_an_environment_goes_back_to_where_it_stood():
    envs = VectorEnv(Counter, 2, (1, 0))
    before = run(envs, 0, 7)
    state, there = envs.state, envs.obs.copy()
    later = run(envs, 7, 6)
    other = VectorEnv(Counter, 2, (1, 0))
    assert other.resume(state, before)
    np.testing.assert_array_equal(other.obs, there)
    np.testing.assert_array_equal(run(other, 7, 6), later)


def test_an_environment_that_does_not_repeat_itself_starts_over_and_is_named():
    class Forgetful(Counter):
        def step(self, action):
            obs, *rest = super().step(action)
            return obs + np.random.default_rng().normal(size=2), *rest

    envs = VectorEnv(Forgetful, 2, (1, 0))
    rows = run(envs, 0, 1)
    with pytest.warns(ReplayWarning, match="Forgetful does not repeat itself"):
        assert not VectorEnv(Forgetful, 2, (1, 0)).resume(envs.state, rows)
    assert [segment.over for segment in segments(rows, envs.spec, 2, envs.scale)] == [True, True]


def test_scaling_is_undone_and_clipped():
    envs = VectorEnv(Counter, 1, (0,))
    inside = np.float32([[-1.0], [-0.25], [1.0]])
    np.testing.assert_allclose(envs.scale(inside), [[0.0], [1.5], [4.0]])
    np.testing.assert_allclose(envs.unscale(envs.scale(inside)), inside)
    np.testing.assert_allclose(envs.unscale(np.float32([[9.0]])), [[1.0]])


def test_the_replay_is_the_same_on_host_and_device():
    spec = Spec(2, 1)
    rng = np.random.default_rng(0)
    replay = Replay(spec, 12)
    chunks = [rng.normal(size=(4, width(spec))).astype(np.float32) for _ in range(2)]
    for chunk in chunks:
        replay.add(chunk)
    np.testing.assert_array_equal(replay.rows, np.concatenate(chunks))
    np.testing.assert_array_equal(np.asarray(replay.device)[:8], replay.rows)
    again = Replay(spec, 12)
    again.restore(replay.rows)
    np.testing.assert_array_equal(np.asarray(again.device), np.asarray(replay.device))


@pytest.mark.parametrize(
    ("space", "message"),
    [
        (gymnasium.spaces.Discrete(3), "needs a box of numbers"),
        (gymnasium.spaces.Box(-np.inf, np.inf, (1,)), "without bounds"),
        (gymnasium.spaces.Dict({"a": gymnasium.spaces.Discrete(2)}), "needs a vector"),
    ],
)
def test_actions_that_are_no_finite_box_are_refused(space, message):
    class Odd(Counter):
        action_space = space

    with pytest.raises(OdiceError, match=message):
        VectorEnv(Odd, 1, (0,))


def test_an_environment_that_breaks_is_named():
    class Broken(Counter):
        def step(self, action):
            raise RuntimeError("joint 3 is gone")

    class Infinite(Counter):
        def step(self, action):
            return np.array([np.nan, 0.0]), 0.0, False, False, {}

    with pytest.raises(OdiceError, match="Broken failed in a step: RuntimeError: joint 3 is gone"):
        run(VectorEnv(Broken, 1, (0,)), 0, 1)
    with pytest.raises(OdiceError, match="Infinite gave an observation or a reward that is not finite"):
        run(VectorEnv(Infinite, 1, (0,)), 0, 1)


def test_an_observation_of_another_shape_than_declared_is_refused():
    class Shrinks(Counter):
        def step(self, action):
            obs, *others = super().step(action)
            return obs[:1], *others

    envs = VectorEnv(Shrinks, 2, (0, 0))
    with pytest.raises(OdiceError, match=r"shape \(1,\), but declares \(2,\)"):
        envs.step(np.zeros((2, 1), np.float32))
