"""`odice data collect`: files, refusals, a stop that can be continued."""

import os
import signal

import pytest

import odice
from odice.cli.main import main
from odice.collection import behavior
from odice.envs.small import LQR

FAST = ["--critic-hidden", "8", "--policy-hidden", "8", "--batch-size", "8", "--warmup", "60", "--num-envs", "3"]
FAST += ["--chunk", "30", "--eval-every", "60", "--eval-episodes", "2", "--checkpoint-every", "90", "--quiet"]


def run(*words):
    return main(["data", "collect", "--env", LQR, *map(str, words)])


@pytest.mark.parametrize("name", ["log.hdf5", "log.parquet", "log-v0"])
def test_any_layout_can_be_written(name, tmp_path, capsys):
    out = tmp_path / name
    extra = ["--to", "minari"] if name == "log-v0" else []
    assert run("--recipe", "random", "--steps", 60, "--out", out, "--quiet", *extra) == 0
    data = odice.load(out)
    assert data.n_steps == 60
    assert f"SHA-256 {data.fingerprint}" in capsys.readouterr().out


def test_a_stop_can_be_continued(tmp_path, monkeypatch, capsys):
    out = tmp_path / "replay.parquet"
    command = ["--recipe", "full-replay", "--budget", 150, "--out", out, "--behavior", tmp_path / "sac", *FAST]
    add = behavior.Replay.add

    def interrupt(replay, rows):
        os.kill(os.getpid(), signal.SIGINT)
        add(replay, rows)

    monkeypatch.setattr(behavior.Replay, "add", interrupt)
    assert run(*command) == 130
    assert "Run the same command again to continue" in capsys.readouterr().err
    assert not out.exists()
    monkeypatch.undo()
    assert run(*command) == 0
    assert odice.load(out).n_steps == 150


def test_a_function_is_imported_only_if_that_is_said(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my_policy_of_this_test.py").write_text(
        "import numpy as np\ndef act(obs): return -obs[:, :1] / 9\nn = 3\n"
    )
    words = ["--steps", 60, "--out", tmp_path / "log.parquet", "--quiet", "--policy"]
    assert run(*words, "my_policy_of_this_test:act") == 2
    assert "add --allow-import" in capsys.readouterr().err
    assert run(*words, "my_policy_of_this_test:n", "--allow-import") == 2
    assert "is a int, not a function" in capsys.readouterr().err
    assert run(*words, "my_policy_of_this_test:gone", "--allow-import") == 2
    assert run(*words, "my_policy_of_this_test:act", "--allow-import") == 0
    data = odice.load(tmp_path / "log.parquet")
    assert (abs(data.actions + data.step_observations()[:, :1] / 9) < 1e-5).all()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--recipe", "random", "--out", "log.txt"], "cannot tell the format"),
        (["--recipe", "random", "--out", "."], "exists already"),
        (["--out", "log.parquet"], "either a recipe or a policy"),
        (["--policy", "nowhere", "--out", "log.parquet"], "nowhere does not exist"),
        (["--recipe", "random", "--steps", "0", "--out", "log.parquet"], "steps must be at least 1"),
    ],
)
def test_refusals_are_one_sentence_and_leave_nothing(words, message, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert run(*words) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_a_missing_package_is_named(tmp_path, monkeypatch, capsys):
    import gymnasium

    def missing(*_, **__):
        raise gymnasium.error.DependencyNotInstalled("MuJoCo is not installed, run `pip install gymnasium[mujoco]`")

    monkeypatch.setattr(gymnasium, "make", missing)
    assert run("--recipe", "random", "--out", tmp_path / "log.parquet") == 2
    assert "needs a package that is not installed: MuJoCo" in capsys.readouterr().err


def test_the_cost_of_an_environment_of_another_package_is_forecast(tmp_path, monkeypatch, capsys):
    """The environment was typed by the user, so `--dry-run` imports it as the command itself does."""
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "envs_of_this_test.py").write_text(
        "import gymnasium\n"
        "gymnasium.register('Elsewhere-v0', 'envs_of_this_test:Small', max_episode_steps=5)\n"
        "from odice.envs.small import LQREnv as Small\n"
    )
    words = ["--env", "envs_of_this_test:Elsewhere-v0", "--recipe", "random", "--out", str(tmp_path / "log.parquet")]
    assert main(["data", "collect", *words, "--dry-run"]) == 0
    assert "steps/s" in capsys.readouterr().out


def test_a_dry_run_refuses_what_the_command_refuses(tmp_path, capsys):
    assert run("--recipe", "random", "--noise", 0.1, "--out", tmp_path / "log.parquet", "--dry-run") == 2
    assert "noise belongs to the recipe planner" in capsys.readouterr().err
