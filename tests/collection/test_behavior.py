"""The behavior's training: what it keeps, when it stops, and that an interruption leaves no trace."""

import json
import os
import signal
from pathlib import Path

import jax
import numpy as np
import pytest

from odice.collection import behavior
from odice.collection.behavior import Training, train
from odice.collection.sac import SACConfig
from odice.envs.small import LQR, PARKING
from odice.errors import Interrupted, OdiceError
from odice.policy.policy import Policy
from odice.training.checkpoint import Checkpoints, digest
from odice.training.interrupt import Stop
from odice.training.loggers import rows

SMALL = Training(
    SACConfig(critic_hidden=(8,), policy_hidden=(8,), batch_size=8),
    warmup=60,
    num_envs=3,
    chunk=30,
    eval_every=60,
    eval_episodes=2,
    checkpoint_every=90,
)


def small(folder, budget=300, **options):
    return train(options.pop("env", LQR), folder, budget=budget, training=SMALL, quiet=True, **options)


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory):
    folder = tmp_path_factory.mktemp("uninterrupted") / "run"
    return folder, small(folder, target=1e9)


def content(folder: Path) -> dict[str, bytes]:
    """The files of a training that do not depend on the clock."""
    names = ["evaluations.jsonl", *(f"policy/{name}/policy.safetensors" for name in ("last", "best"))]
    return {name: (folder / name).read_bytes() for name in names}


def same_trained(a, b) -> bool:
    return digest((a.rows, a.policy, a.best)) == digest((b.rows, b.policy, b.best)) and a.curve == b.curve


def test_an_unreachable_target_stops_at_the_budget_and_keeps_the_best(uninterrupted):
    folder, result = uninterrupted
    assert result.step == len(result.rows) == 300
    assert result.medium is None
    curve = [(row["step"], row["mean"]) for row in rows(folder / "evaluations.jsonl")]
    assert result.curve == curve
    assert [step for step, _ in curve] == [120, 180, 240, 300]
    best = max(curve, key=lambda point: point[1])
    assert (result.best.step, result.best.mean) == best
    assert Policy.load(folder / "policy" / "best").about["scores"]["mean"] == best[1]
    assert not (folder / "policy" / "medium").exists()


def test_the_warm_up_is_uniform_and_the_rest_is_not(uninterrupted):
    actions = uninterrupted[1].rows[:, 2]
    assert np.abs(actions).max() <= 1
    assert abs(np.abs(actions[:60]).mean() - 0.5) < 0.12


def test_a_training_that_was_stopped_ends_with_the_same_bytes(uninterrupted, tmp_path, monkeypatch):
    """Ctrl-C in the middle, then the same command again; a third time there is nothing left to do."""
    folder, expected = uninterrupted
    steps = iter(range(1000))
    add = behavior.Replay.add

    def interrupt(replay, fresh):
        if next(steps) == 4:
            os.kill(os.getpid(), signal.SIGINT)
        add(replay, fresh)

    monkeypatch.setattr(behavior.Replay, "add", interrupt)
    with pytest.raises(Interrupted, match=r"stopped at step 150; .* Run the same command again"):
        small(tmp_path / "run", target=1e9)
    monkeypatch.undo()
    assert same_trained(small(tmp_path / "run", target=1e9), expected)
    assert content(tmp_path / "run") == content(folder)
    assert same_trained(small(tmp_path / "run", target=1e9), expected)


@pytest.mark.parametrize("question", [1, 2])
def test_what_was_stopped_is_saved_whenever_the_signal_comes(tmp_path, monkeypatch, question):
    counter = iter(range(1, 1000))

    def ask(stop):
        stop.signal = signal.SIGINT if next(counter) > question else 0
        return bool(stop.signal)

    monkeypatch.setattr(Stop, "requested", property(ask))
    with pytest.raises(Interrupted) as stopped:
        small(tmp_path / "run", target=1e9)
    (step,) = (p.name for p in (tmp_path / "run" / "checkpoints").iterdir())
    assert f"stopped at step {step};" in str(stopped.value)


def test_a_training_in_two_budgets_is_the_same(uninterrupted, tmp_path):
    """`medium` trains a little, `expert` goes on in the same folder."""
    first = small(tmp_path / "run", 210, target=1e9)
    assert first.step == 210
    assert same_trained(small(tmp_path / "run", target=1e9), uninterrupted[1])


def test_after_a_kill_the_last_checkpoint_is_continued(uninterrupted, tmp_path, monkeypatch):
    saves = iter(range(1000))
    save = Checkpoints.save

    def die(checkpoints, *args):
        if next(saves) == 2:
            raise KeyboardInterrupt
        save(checkpoints, *args)

    monkeypatch.setattr(Checkpoints, "save", die)
    with pytest.raises(KeyboardInterrupt):
        small(tmp_path / "run", target=1e9)
    monkeypatch.undo()
    assert same_trained(small(tmp_path / "run", target=1e9), uninterrupted[1])


def test_medium_is_the_first_policy_a_third_of_the_way(uninterrupted, tmp_path):
    """The reference of the task is (idle, optimum); `target` stands in the optimum's place."""
    from odice.envs.small import reference

    low = reference(LQR)[0]
    _, result = uninterrupted
    second = result.curve[1][1]
    passing = next(mean for _, mean in result.curve if mean >= second - 1e-6)
    target = low + 3 * (passing - 1e-6 - low)
    stopped = small(tmp_path / "run", until="medium", target=target)
    assert stopped.threshold == pytest.approx(passing, abs=1e-4)
    assert stopped.medium.mean == passing
    assert stopped.step == stopped.medium.step
    medium = Policy.load(tmp_path / "run" / "policy" / "medium")
    network = stopped.medium.policy.deterministic().network
    np.testing.assert_array_equal(medium.tensors["layers.0.weight"], np.asarray(network.weights[0]))
    assert small(tmp_path / "run", until="medium", target=target).step == stopped.step


def test_without_a_reference_the_warm_up_is_the_random_policy(tmp_path):
    result = small(tmp_path / "run", 120, env=PARKING, target=0.0)
    returns, total, ended = [], np.zeros(3), result.rows[:60, -2:].any(axis=1)
    for i, row in enumerate(result.rows[:60]):
        total[i % 3] += row[3]
        if ended[i]:
            returns.append(total[i % 3])
            total[i % 3] = 0.0
    low = np.mean(returns or total)
    assert result.threshold == pytest.approx(low + (0.0 - low) / 3, rel=1e-5)


def test_schedules_that_contradict_each_other_are_refused():
    with pytest.raises(OdiceError, match=r"chunk \(50\) must be a multiple of num_envs \(3\)"):
        Training(num_envs=3, chunk=50)
    with pytest.raises(OdiceError, match=r"warmup \(70\) must be a multiple of chunk"):
        Training(warmup=70)
    with pytest.raises(OdiceError, match="num_envs must be at least 1, got 0"):
        Training(num_envs=0)


def test_another_configuration_in_the_folder_is_refused(uninterrupted):
    with pytest.raises(OdiceError, match="seed: 0 there, 1 now"):
        small(uninterrupted[0], target=1e9, seed=1)
    with pytest.raises(OdiceError, match="target"):
        small(uninterrupted[0])


def test_the_folder_says_how_fast_it_was(uninterrupted):
    timing = [json.loads(line) for line in (uninterrupted[0] / "timing.jsonl").read_text().splitlines()]
    assert all(row["env_steps_per_second"] > 0 and row["updates_per_second"] > 0 for row in timing)


def test_the_state_is_finite(uninterrupted):
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(uninterrupted[1].policy))
