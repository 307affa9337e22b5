"""Evaluations in a process of their own: the same numbers, and an environment that hangs costs an evaluation, not the
run."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import gymnasium
import numpy as np
import pytest

import odice
from odice.errors import OdiceError
from odice.evaluation.simulator.evaluate import Evaluator
from odice.evaluation.simulator.process import EvaluatorProcess
from odice.evaluation.simulator.rollout import EvaluationTimeout
from odice.policy.file import Layout
from odice.policy.policy import Policy
from odice.training.evaluations import BackgroundEvaluator
from odice.training.interrupt import Stop
from odice.training.loggers import rows
from odice.training.recorder import EvaluationWarning
from tests.training import hanging
from tests.training.line import SMALL, line_log

RUN = {**SMALL, "algo": "odice", "steps": 40, "eval_every": 10, "eval_episodes": 2, "quiet": True, "allow": ("all",)}


def policy_for(env, hidden=32, seed=0, **vectors):
    sizes, rng = (env.obs_dim, hidden, 2), np.random.default_rng(seed)
    shapes = Layout(sizes, True, "elu", "argmax").shapes
    tensors = {name: rng.normal(size=shape).astype(np.float32) for name, shape in shapes.items()}
    return Policy(Layout(sizes, True, "elu", "argmax"), tensors, **vectors)


def test_the_numbers_are_those_of_an_evaluation_here():
    with Evaluator("CartPole-v1") as here:
        scale = {"obs_mean": np.full(4, 0.1, np.float32), "obs_scale": np.full(4, 2.0, np.float32)}
        there = EvaluatorProcess(here, allow_import=False)
        try:
            for policy, seed in ((policy_for(here), 3), (policy_for(here, seed=1, **scale), 4)):
                expected = here(policy, episodes=20, seed=seed)
                result = there(policy, episodes=20, seed=seed, max_seconds=60)
                assert result.to_dict() == expected.to_dict()
                assert len(set(result.lengths.tolist())) > 1
            with pytest.raises(OdiceError, match="episodes must be"):
                there(policy, episodes=0, seed=0, max_seconds=60)
        finally:
            there.close()
    with pytest.raises(EvaluationTimeout, match=r"ended the process that it ran in \(signal 9\)"):
        there(policy, episodes=1, seed=0, max_seconds=60)


@pytest.mark.parametrize("harm", ["sleep", "stuck", "exit"])
def test_a_harmful_environment_costs_its_evaluation(tmp_path, harm, monkeypatch):
    monkeypatch.setattr("odice.evaluation.simulator.process.GRACE_SECONDS", 1.0)
    options = {**RUN, "env": f"tests/{harm}-v0", "plugin": ("tests.training.hanging",), "eval_seconds": 1.0}
    with pytest.warns(EvaluationWarning) as said:
        run = odice.train(line_log(discrete=True), out=tmp_path / "run", **options)
    messages = [str(each.message) for each in said if each.category is EvaluationWarning]
    assert messages[0].startswith("The evaluation at step 10 was given up; the run goes on.")
    assert messages[1].startswith(
        "The evaluation at step 20 was given up; it is the second in a row, so no more are tried."
    )
    assert len(messages) == 2
    limits = ("not finished after 1 s", "hangs")  # on a busy machine the worker's own clock may come second
    assert any(each in messages[0] for each in {"sleep": limits, "stuck": limits[1:], "exit": ("exit code 7",)}[harm])
    assert run.result["step"] == 40
    assert run.result["last"] == {}
    assert [row["step"] for row in rows(run.path / "metrics.jsonl")] == [10, 20, 30, 40]


def test_sigterm_ends_a_run_whose_environment_hangs(tmp_path):
    """Promptly, with a checkpoint, and without leaving a process behind."""
    log, out = tmp_path / "log.npz", tmp_path / "run"
    np.savez(log, **line_log(discrete=True))
    flags = ["--algo", "odice", "--value-hidden", "16", "--policy-hidden", "16", "--batch-size", "16"]
    flags += ["--steps", "4000", "--eval-every", "100", "--allow", "all"]
    flags += ["--env", "tests/stuck-v0", "--plugin", "tests.training.hanging", "--data", str(log), "--out", str(out)]
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    run = subprocess.Popen([sys.executable, "-m", "odice.cli.main", "train", *flags], env=environment)
    try:
        deadline = time.monotonic() + 300
        while not (children := workers_of(run.pid)) or not (out / "metrics.jsonl").exists():
            assert time.monotonic() < deadline
            time.sleep(0.2)
        time.sleep(5)
        run.send_signal(signal.SIGTERM)
        began = time.monotonic()
        assert run.wait(60) == 128 + signal.SIGTERM
        assert time.monotonic() - began < 30
    finally:
        run.kill()
        run.wait()
    assert list((out / "checkpoints").iterdir())
    assert not [child for child in children if Path(f"/proc/{child}").exists()]


def workers_of(parent):
    """Processes that evaluate for this one."""
    values = []
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and b"odice.evaluation.simulator.process" in (entry / "cmdline").read_bytes():
                status = (entry / "status").read_text()
                values += [entry.name] if f"PPid:\t{parent}\n" in status else []
        except OSError:
            continue
    return values


def test_an_environment_of_this_program_alone_is_evaluated_here():
    gymnasium.register("tests/OnlyHere-v0", hanging.Bad)
    gymnasium.register("tests/OtherThere-v0", "tests.training.hanging:Bad", kwargs={"harm": "none"})
    try:
        for name in ("tests/OnlyHere-v0", "tests/OtherThere-v0"):
            evaluator = Evaluator(name, allow_import=True)
            background = BackgroundEvaluator(evaluator, 2, allow_import=True)
            result = background.submit(policy_for(evaluator), 0).result(120)
            assert result.returns.tolist() == [5.0, 5.0]
            assert background._process is None
            background.close()
    finally:
        for name in ("tests/OnlyHere-v0", "tests/OtherThere-v0"):
            del gymnasium.registry[name]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_signals_that_ask_a_run_to_stop(number):
    before = signal.signal(number, signal.default_int_handler)  # under nohup, pytest itself ignores SIGHUP
    try:
        with Stop() as stop:
            assert not stop.requested
            os.kill(os.getpid(), number)
            assert stop.requested
            assert stop.signal == number
    finally:
        signal.signal(number, before)


def test_nohup_has_the_last_word():
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with Stop() as stop:
            os.kill(os.getpid(), signal.SIGHUP)
            assert not stop.requested
        assert signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)


def test_what_a_worker_fails_with_is_one_sentence(tmp_path):
    """Not a traceback, and not the run itself as the exit code."""
    from odice.training.processes import worker_command
    from odice.training.settings import resolve

    def worker(**options):
        settings = resolve(
            str(tmp_path / "log.npz"), **SMALL, algo="odice", allow=("all",), quiet=True, env="none", **options
        )
        command = [sys.executable, *worker_command(settings, settings.options.data)]
        return subprocess.run(command, capture_output=True, text=True, timeout=300)

    done = worker(out=str(tmp_path / "a"), steps=2)
    assert done.returncode == 2
    assert done.stderr.startswith("odice: ")
    assert done.stderr.count("\n") == 1
    np.savez(tmp_path / "log.npz", **line_log(discrete=True))
    done = worker(out=str(tmp_path / "a"), steps=2)
    assert (done.returncode, done.stderr) == (0, "")
