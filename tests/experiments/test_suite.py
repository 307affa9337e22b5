"""The local suite: the same bytes for anyone, also for one who was interrupted."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import odice
from odice.collection.behavior import Training
from odice.collection.sac import SACConfig
from odice.data.doctor import inspect
from odice.envs.hospital import HOSPITAL, greedy_treatment
from odice.envs.make import make, resolve
from odice.errors import OdiceError
from odice.experiments import suite
from odice.experiments.suite import SUITE, Choices, MazeWalks, ReplayLog, SuiteFolder, SuiteLog, chosen, make_log
from odice.training.pool import ONE_THREAD

SMALL = Training(
    sac=SACConfig(critic_hidden=(8,), policy_hidden=(8,), batch_size=16),
    warmup=100,
    num_envs=2,
    chunk=20,
    eval_every=200,
    eval_episodes=1,
    checkpoint_every=100,
    max_steps=40,
)
MAKE = """
import sys
from pathlib import Path
from odice.experiments.suite import SuiteLog, SuiteFolder, ReplayLog, make_log
from tests.experiments.test_suite import SMALL
log = SuiteLog("", ReplayLog("odice/LQR-v0", "full-replay", budget=int(sys.argv[2]), training=SMALL), 1)
make_log("lqr", log, SuiteFolder(Path(sys.argv[1]), quiet=True))
"""


def start(folder, budget=3000):
    env = {**os.environ, **ONE_THREAD}
    return subprocess.Popen([sys.executable, "-c", MAKE, str(folder), str(budget)], env=env)


def bytes_of(folder):
    return (folder / "lqr-local.hdf5").read_bytes()


@pytest.mark.long
def test_a_log_that_was_killed_in_the_middle_is_the_same_file(tmp_path):
    for name, kills in (("undisturbed", 0), ("killed", 2)):
        folder = tmp_path / name
        for _ in range(kills):
            worker = start(folder)
            seen = len(list(folder.glob("behaviors/*/checkpoints/*")))
            until = time.monotonic() + 120
            while len(list(folder.glob("behaviors/*/checkpoints/*"))) <= seen and worker.poll() is None:
                assert time.monotonic() < until
                time.sleep(0.01)
            assert worker.poll() is None, "it was over before it could be killed"
            worker.send_signal(signal.SIGKILL)
            worker.wait()
            assert not (folder / "lqr-local.hdf5").exists()
        last = start(folder)
        assert last.wait(240) == 0
    assert bytes_of(tmp_path / "undisturbed") == bytes_of(tmp_path / "killed")
    facts = SuiteFolder(tmp_path / "killed").facts("lqr")
    assert facts["steps"] == 3000
    assert facts["fingerprint"] == odice.load(tmp_path / "killed" / "lqr-local.hdf5").fingerprint


def test_the_medium_replay_is_the_beginning_of_the_full_one(tmp_path):
    place = SuiteFolder(tmp_path, quiet=True)
    training = SMALL
    target = resolve("odice/LQR-v0").reference
    assert target is not None
    made = {
        recipe: make_log(
            recipe, SuiteLog("", ReplayLog("odice/LQR-v0", recipe, budget=600, training=training), 1), place
        )
        for recipe in ("medium-replay", "full-replay")
    }
    medium, full = made["medium-replay"], made["full-replay"]
    assert 100 < medium.n_steps <= full.n_steps == 600
    first = medium.lengths[0]
    np.testing.assert_array_equal(medium.observations[: first + 1], full.observations[: first + 1])
    assert len(list((tmp_path / "behaviors").iterdir())) == 1  # one training for both


@pytest.mark.parametrize(
    ("recipe", "steps"), [(Choices(HOSPITAL, 20), None), (Choices("CartPole-v1", 20), None)], ids=["hospital", "pole"]
)
def test_choices_are_the_same_bytes_again(tmp_path, recipe, steps):
    files = []
    for name in ("a", "b"):
        make_log("x", SuiteLog("", recipe, 1), SuiteFolder(tmp_path / name))
        files.append((tmp_path / name / "x-local.hdf5").read_bytes())
    assert files[0] == files[1]
    data = odice.load(tmp_path / "a" / "x-local.hdf5")
    assert data.discrete
    assert data.n_episodes == 20
    assert data.meta.env_id == recipe.env
    assert [finding.code for finding in inspect(data).errors] == []


def test_a_walk_is_the_same_bytes_again(tmp_path):
    pytest.importorskip("gymnasium_robotics")
    files = []
    for name in ("a", "b"):
        make_log("x", SuiteLog("", MazeWalks("pointmaze-umaze-diverse", 400), 1), SuiteFolder(tmp_path / name))
        files.append((tmp_path / name / "x-local.hdf5").read_bytes())
    assert files[0] == files[1]


def test_a_walk_of_the_ant(tmp_path):
    made = make_log("x", SuiteLog("", MazeWalks("antmaze-umaze-diverse", 60), 1), SuiteFolder(tmp_path))
    assert (made.n_steps, made.spec.obs_dim, made.meta.env_id) == (60, 29, "antmaze-umaze-diverse")


def test_names_and_groups():
    assert chosen(["hospital", "hospital-local"]) == ["hospital"]
    assert chosen([]) == list(SUITE)
    with pytest.raises(OdiceError, match="Did you mean 'hospital'"):
        chosen(["hospitl"])
    assert SUITE["hopper-medium-replay"].recipe.group == SUITE["hopper-full-replay"].recipe.group
    assert SUITE["hopper-full-replay"].recipe.budget >= 200_000


def test_the_hospital_is_the_one_of_its_equations():
    """One step by hand: signs times the drift, plus the treatment's push, plus noise; and greedy looks one step on."""
    env = make(HOSPITAL)
    obs, _ = env.reset(seed=3)
    assert env.action_space.n == 5
    rng = np.random.default_rng()
    rng.bit_generator.state = env.unwrapped.np_random.bit_generator.state
    moves = np.random.default_rng(7).normal(size=(5, 3, 3)) * 0.35
    pushes = np.random.default_rng(8).normal(size=(5, 3)) * 0.3
    signs, age = env.unwrapped._signs, env.unwrapped._age
    after = [(1.06 + 0.05 * age) * signs + 0.35 * (np.tanh(moves[a] @ signs) + 0.5 * pushes[a]) for a in range(5)]
    assert greedy_treatment(obs) == np.argmin(np.linalg.norm(after, axis=1))
    result, reward, terminated, _truncated, _ = env.step(2)
    expected = after[2] + 0.2 * rng.normal(size=3)
    np.testing.assert_allclose(result[:3], expected, rtol=1e-6)
    size = np.linalg.norm(expected)
    assert (reward, terminated) == ((1.0, True) if size < 0.5 else (-1.0, True) if size > 2.8 else (0.0, False))


def test_the_command_makes_what_is_missing_once(tmp_path, capfd):
    from odice.cli.main import main

    folder = str(tmp_path / "suite")
    assert main(["suite", "make", "hospital", "--out", folder]) == 0
    first = (tmp_path / "suite" / "hospital-local.hdf5").stat().st_mtime_ns
    assert "1,000 episodes" in capfd.readouterr().out
    assert main(["suite", "make", "hospital-local", "--out", folder]) == 0
    assert (tmp_path / "suite" / "hospital-local.hdf5").stat().st_mtime_ns == first
    assert "has them all already" in capfd.readouterr().out
    assert main(["suite", "list", "--out", folder]) == 0
    output = capfd.readouterr().out
    facts = json.loads(Path(folder, "hospital-local.json").read_text())
    assert f"content {facts['fingerprint'][:12]}" in output
    assert "hopper-full-replay" in output
    assert "not D4RL" not in output
    assert "None of it is D4RL's" in output


def test_in_few_good_most_steps_are_wrong_and_in_the_mixture_right():
    """The controller that pushes towards the fall, by hand; what cloning would learn is the majority."""
    for habits, low, high in ((suite.HABITS, 0.6, 0.8), (suite.FEW_GOOD, 0.4, 0.49)):
        data = suite.cartpole_log(100, habits=habits)
        x, v, angle, rate = data.step_observations().T
        right = (0.1 * x + 0.3 * v + angle + 0.5 * rate > 0).astype(int) == data.actions
        assert low < right.mean() < high


def test_in_the_acrobots_log_most_steps_are_wrong_and_only_the_first_four_reach_the_height():
    data = suite.acrobot_log(20)
    right = 2 * (data.step_observations()[:, 5] > 0) == data.actions
    assert 0.35 < right.mean() < 0.49
    reached = data.returns > -500
    assert reached.tolist() == ([True] * 4 + [False] * 6) * 2
