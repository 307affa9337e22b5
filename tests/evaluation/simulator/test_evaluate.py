"""Evaluation: right numbers, the same ones however many environments run, and an end to those that have none."""

import json
import time

import gymnasium
import jax
import numpy as np
import pytest
from gymnasium import spaces

from odice import Policy, evaluate
from odice.core.policies import GaussianPolicy
from odice.errors import OdiceError
from odice.evaluation.simulator.evaluate import Evaluation, Evaluator, episode_seeds, evaluation_seed
from odice.evaluation.simulator.rollout import BATCH_ENVS, Deadline
from odice.types import Spec


class Walk(gymnasium.Env):
    """A number that the action is added to. Pays the number; ends when it passes 10. Starts between 0 and 1."""

    observation_space = spaces.Box(-np.inf, np.inf, (1,), np.float64)
    action_space = spaces.Box(-5, 5, (1,), np.float32)
    made = 0

    def __init__(self):
        Walk.made += 1

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.state = self.np_random.uniform(size=1)
        return self.state, {}

    def step(self, action):
        self.state = self.state + action
        return self.state, float(self.state[0]), bool(self.state[0] > 10), False, {}


def one(obs):
    return np.ones((len(obs), 1))


def by_hand(seed: int) -> tuple[float, int]:
    """Return and length of `Walk` under steps of one."""
    state, total, length = np.random.default_rng(np.random.PCG64(seed)).uniform(), 0.0, 0
    while state <= 10:
        state, length = state + 1, length + 1
        total += state
    return total, length


# --- the numbers ------------------------------------------------------------------------------------------------------


def test_returns_by_hand():
    evaluation = evaluate(one, Walk, episodes=20, seed=3)
    expected = [by_hand(seed) for seed in evaluation.seeds]
    np.testing.assert_allclose(evaluation.returns, [total for total, _ in expected])
    assert evaluation.lengths.tolist() == [length for _, length in expected]
    assert evaluation.env_id == "Walk"


def test_seeds_do_not_depend_on_how_many_and_do_not_overlap():
    assert episode_seeds(0, 5).tolist() == episode_seeds(0, 9)[:5].tolist()
    assert not set(episode_seeds(0, 100)) & set(episode_seeds(1, 100))
    of_runs = [evaluation_seed(seed, step) for seed in range(3) for step in (0, 5000, 10_000)]
    assert len(set(of_runs)) == 9
    assert of_runs[4] == evaluation_seed(1, 5000)


def test_a_system_without_affinity_and_alarms_gives_the_same(monkeypatch):
    """macOS has no `sched_getaffinity`, Windows no `setitimer`."""
    policy = Policy.from_network(GaussianPolicy(jax.random.key(0), Spec(3, 1), (8,)).deterministic())
    here = evaluate(policy, "Pendulum-v1", episodes=3, max_steps=20)
    monkeypatch.delattr("os.sched_getaffinity", raising=False)
    monkeypatch.delattr("signal.setitimer", raising=False)
    assert evaluate(policy, "Pendulum-v1", episodes=3, max_steps=20).returns.tolist() == here.returns.tolist()


def test_statistics_by_hand():
    evaluation = Evaluation("x", np.array([1.0, 3.0, 8.0]), np.array([1, 2, 3]), np.arange(3), reference=(0.0, 10.0))
    assert (evaluation.mean, evaluation.worst, evaluation.steps) == (4.0, 1.0, 6)
    assert evaluation.std == pytest.approx(np.sqrt((9 + 1 + 16) / 3))
    assert evaluation.percent_difference == pytest.approx(-75.0)
    assert evaluation.score == pytest.approx(40.0)
    assert evaluation.score_std == pytest.approx(10 * evaluation.std)
    assert json.loads(json.dumps(evaluation.to_dict()))["returns"] == [1.0, 3.0, 8.0]


def test_statistics_without_reference_or_mean():
    evaluation = Evaluation("x", np.zeros(2), np.ones(2, int), np.arange(2))
    assert (evaluation.score, evaluation.score_std, evaluation.percent_difference) == (None, None, None)
    shifted = Evaluation("x", np.array([12.0, 18.0]), np.ones(2, int), np.arange(2), reference=(10.0, 20.0))
    assert shifted.percent_difference == pytest.approx(-60.0)  # of the scores 20 and 80
    costs = Evaluation("x", np.array([-1.0, -3.0]), np.ones(2, int), np.arange(2))
    assert costs.percent_difference == pytest.approx(-50.0)  # the worst is below the mean, whatever the sign


# --- the same result, however it is run -------------------------------------------------------------------------------


def test_does_not_depend_on_the_number_of_environments():
    """With a real network, whose matrix products round differently for other batch sizes."""
    policy = Policy.from_network(GaussianPolicy(jax.random.key(0), Spec(3, 1), (64, 64)).deterministic())
    runs = [evaluate(policy, "Pendulum-v1", episodes=18, envs=envs, noise=0.1) for envs in (1, 5, BATCH_ENVS)]
    for other in runs[1:]:
        np.testing.assert_array_equal(runs[0].returns, other.returns)
    fewer = evaluate(policy, "Pendulum-v1", episodes=3, noise=0.1)
    np.testing.assert_array_equal(runs[0].returns[:3], fewer.returns)


def test_the_policy_always_sees_the_same_batch():
    shapes = set()

    def act(obs):
        shapes.add((obs.shape, obs.dtype))
        return one(obs)

    evaluate(act, Walk, episodes=37, envs=5)
    assert shapes == {((BATCH_ENVS, 1), np.dtype(np.float32))}


def test_an_evaluator_keeps_its_environments():
    Walk.made = 0
    with Evaluator(Walk, envs=4) as evaluator:
        first, second = evaluator(one, episodes=9), evaluator(one, episodes=9)
    assert Walk.made == 4
    np.testing.assert_array_equal(first.returns, second.returns)


@pytest.mark.parametrize("robot", ["Hopper-v4", "Hopper-v5"])
def test_mujoco_in_threads_equals_a_plain_loop(robot):
    policy = Policy.from_network(GaussianPolicy(jax.random.key(0), Spec(11, 3), (32,)).deterministic())
    evaluation = evaluate(policy, robot, episodes=6)
    env = gymnasium.make(robot.replace("-v4", "-v5"))  # the same robot; v5 pays a point less for the fall
    batch = np.zeros((BATCH_ENVS, 11), np.float32)
    for row, seed in enumerate(evaluation.seeds):
        obs, _ = env.reset(seed=int(seed))
        total, over = 0.0, False
        while not over:
            batch[row] = obs
            obs, reward, terminated, truncated, _ = env.step(policy(batch)[row])
            total, over = total + float(reward), terminated or truncated
        assert evaluation.returns[row] == pytest.approx(total + (1.0 if robot == "Hopper-v4" else 0.0), abs=1e-9)
    assert evaluation.reference == (-20.272305, 3234.3)


# --- noise ------------------------------------------------------------------------------------------------------------


def test_observation_noise_is_what_it_says():
    seen = []

    def act(obs):
        seen.append(obs[:, 0].copy())
        return np.zeros((len(obs), 1))

    class Still(Walk):
        def reset(self, **options):
            super().reset(**options)
            self.state = np.zeros(1)
            return self.state, {}

    evaluate(act, Still, episodes=BATCH_ENVS, noise=0.5, max_steps=400)
    values = np.concatenate(seen)
    assert values.mean() == pytest.approx(0, abs=0.05)
    assert values.std() == pytest.approx(0.5, rel=0.05)
    assert abs(np.corrcoef(np.stack(seen).T)[0, 1]) < 0.2  # every episode has noise of its own


def test_start_noise_moves_the_start():
    usual, moved = (evaluate(one, Walk, episodes=BATCH_ENVS, start_noise=scale, max_steps=1) for scale in (0.0, 2.0))
    shift = moved.returns - usual.returns  # after one step of one from the start
    assert shift.std() == pytest.approx(2, rel=0.5)
    again = evaluate(one, Walk, episodes=BATCH_ENVS, start_noise=2.0, max_steps=1)
    np.testing.assert_array_equal(moved.returns, again.returns)


@pytest.mark.parametrize("env_id", ["Hopper-v4", "ant-medium-v2", "Pendulum-v1", "CartPole-v1", "Acrobot-v1"])
def test_start_noise_gives_an_observation_of_the_moved_state(env_id):
    from odice.envs.make import make
    from odice.envs.perturb import perturb_start

    env = make(env_id)
    before, _ = env.reset(seed=0)
    after = perturb_start(env, 0.01, np.random.default_rng(0))
    assert after.shape == before.shape
    assert env.observation_space.shape == after.shape
    np.testing.assert_allclose(after, before, atol=0.2)
    assert not np.array_equal(after, before)
    env.step(env.action_space.sample())
    env.close()


def test_start_noise_where_it_is_impossible():
    class Sealed(Walk):
        state = property(lambda self: None, lambda self, value: None)

        def reset(self, **options):
            return np.zeros(1), {}

    with pytest.raises(OdiceError, match="Sealed does not let its start state be set"):
        evaluate(one, Sealed, start_noise=0.1)


# --- environments that do not behave ----------------------------------------------------------------------------------


def test_a_crash_says_where():
    class Crash(Walk):
        def step(self, action):
            raise RuntimeError("wheel came off")

    with pytest.raises(OdiceError, match=r"Crash failed in step 1 of the episode with seed \d+: RuntimeError: wheel"):
        evaluate(one, Crash)


def test_an_endless_environment(monkeypatch):
    class Endless(Walk):
        def step(self, action):
            return self.state, 0.0, False, False, {}

    monkeypatch.setattr("odice.evaluation.simulator.evaluate.MAX_STEPS", 50)
    with pytest.raises(OdiceError, match="did not end within 50 steps; cut its episodes with --max-steps"):
        evaluate(one, Endless)
    assert evaluate(one, Endless, episodes=2, max_steps=7).lengths.tolist() == [7, 7]


def test_a_slow_environment_is_stopped_between_steps():
    class Slow(Walk):
        def step(self, action):
            time.sleep(0.01)
            return self.state, 0.0, False, False, {}

    began = time.perf_counter()
    with pytest.raises(OdiceError, match=r"Slow was not finished after 0\.2 s; raise --max-seconds"):
        evaluate(one, Slow, episodes=1, max_seconds=0.2)
    assert time.perf_counter() - began < 5


def test_a_step_that_does_not_return_is_interrupted():
    class Stuck(Walk):
        def step(self, action):
            while True:
                time.sleep(3600)

    began = time.perf_counter()
    with pytest.raises(OdiceError, match="Stuck was not finished after"):
        evaluate(one, Stuck, episodes=1, max_seconds=0.2)
    assert time.perf_counter() - began < 10


def test_the_alarm_leaves_other_timers_alone():
    import signal

    before = signal.getsignal(signal.SIGALRM)
    with Deadline("x", 100).alarm():
        assert signal.getitimer(signal.ITIMER_REAL)[0] > 0
    assert signal.getsignal(signal.SIGALRM) is before
    assert signal.getitimer(signal.ITIMER_REAL)[0] == 0
    with Deadline("x", float("inf")).alarm():
        assert signal.getitimer(signal.ITIMER_REAL)[0] == 0


def test_broken_policies_are_refused():
    with pytest.raises(OdiceError, match=r"shape \(16, 1\), the policy gave \(16,\)"):
        evaluate(lambda obs: np.ones(len(obs)), Walk)
    with pytest.raises(OdiceError, match="not finite"):
        evaluate(lambda obs: np.full((len(obs), 1), np.nan), Walk)


def test_a_return_that_is_not_a_number():
    class Nan(Walk):
        def step(self, action):
            return self.state, float("nan"), True, False, {}

    with pytest.raises(OdiceError, match="Nan gave a return of nan"):
        evaluate(one, Nan)


def test_discrete_actions_are_whole_and_start_where_the_space_says():
    class Choice(Walk):
        action_space = spaces.Discrete(3, start=4)

        def step(self, action):
            assert self.action_space.contains(action)
            return self.state, float(action), True, False, {}

    assert set(evaluate(lambda obs: np.full(len(obs), 2), Choice).returns) == {6.0}


@pytest.mark.parametrize(
    "wrong", [{"episodes": 0}, {"noise": -1.0}, {"start_noise": float("nan")}, {"seed": -1}, {"max_seconds": 0.0}]
)
def test_wrong_numbers(wrong):
    with pytest.raises(OdiceError, match=next(iter(wrong))):
        evaluate(one, Walk, **wrong)
    with pytest.raises(OdiceError, match="envs must lie between 1 and 16"):
        Evaluator(Walk, envs=17)
    with pytest.raises(OdiceError, match="max_steps"):
        Evaluator(Walk, max_steps=0)


def test_check_names_both_sides():
    with Evaluator("CartPole-v1") as evaluator:
        evaluator.check(4, 2, True)
        with pytest.raises(OdiceError, match=r"4 numbers and 2 discrete actions.*11 numbers and actions of 3 numbers"):
            evaluator.check(11, 3, False)


# --- environments that break their word ---------------------------------------------------------------------------


class Leaves(Walk):
    def step(self, action):
        raise SystemExit(3)


class Shrinks(Walk):
    """Declares two numbers and gives one: before, numpy spread it over both in silence."""

    observation_space = spaces.Box(-np.inf, np.inf, (2,), np.float64)


class Grows(Walk):
    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return np.zeros(3), {}


class Old(Walk):
    """Gym's interface of four values."""

    def step(self, action):
        return super().step(action)[:4]


@pytest.mark.parametrize(
    ("env", "message"),
    [
        (Leaves, r"Leaves failed in step 1 of the episode with seed \d+: SystemExit: 3"),
        (Shrinks, r"Shrinks gave an observation of shape \(1,\) in step 0 .* but declares \(2,\)"),
        (Grows, r"Grows gave an observation of shape \(3,\) in step 0 .* but declares \(1,\)"),
        (Old, r"Old failed in step 1 of .*ValueError: not enough values"),
    ],
)
def test_an_environment_that_breaks_its_word_is_one_sentence(env, message):
    with pytest.raises(OdiceError, match=message) as caught:
        evaluate(one, env, episodes=2)
    assert "\n" not in str(caught.value)


def test_a_video_of_an_environment_that_breaks_its_word_is_one_sentence(monkeypatch, tmp_path):
    from odice.evaluation.simulator.video import record

    class Drawn(Shrinks):
        metadata = {"render_modes": ["rgb_array"]}

        def __init__(self, render_mode=None):
            super().__init__()
            self.render_mode = render_mode

        def render(self):
            return np.zeros((8, 8, 3), np.uint8)

    monkeypatch.setitem(gymnasium.registry, "Drawn-v0", gymnasium.envs.registration.EnvSpec("Drawn-v0", Drawn))
    with pytest.raises(OdiceError, match=r"shape \(1,\) in step 0 .* but declares \(2,\)"):
        record(one, "Drawn-v0", tmp_path / "video.gif")
    assert not list(tmp_path.iterdir())


def test_calls_in_threads_have_all_ended_when_an_error_is_raised(monkeypatch):
    ended = []

    def call(number):
        if number == 1:
            raise OdiceError("wheel came off")
        time.sleep(0.05 * (number % 4 > 1))
        ended.append(number)

    monkeypatch.setattr("odice.evaluation.simulator.rollout.cores", lambda: 4)
    with Evaluator("Hopper-v5") as evaluator:
        with pytest.raises(OdiceError, match="wheel came off"):
            evaluator._pool.each(call, [(number,) for number in range(8)])
        known = sorted(ended)
    assert known == [0, 2, 3, 4, 6, 7]
