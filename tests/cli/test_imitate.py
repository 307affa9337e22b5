"""`odice imitate`: `odice train --imitation` under its own name."""

import json

import numpy as np
import pytest

from odice.cli.imitate import ABOUT
from odice.cli.main import main
from odice.cli.train import parse
from tests.training.line import line_log

TINY = ["--policy-hidden", "8", "--batch-size", "8", "--steps", "4", "--allow", "all"]


def settings(*arguments):
    return parse(["--data", "hopper-expert-v2", *arguments], "odice imitate", ABOUT, imitation=True)[0]


def test_the_protocol_is_the_default_of_every_flag():
    result = settings("--episode", "1", "10")
    options = result.options
    assert options.episode == (1, 10)
    assert (options.reward, options.normalize_obs, options.convention) == ("zero", True, "bootstrap")
    assert (options.steps, options.final_obs) == (500_000, "recorded")
    assert (result.config.lam, result.config.eta, result.config.tanh_mean) == (0.4, 1.0, True)
    changed = settings("--lam", "0.7", "--normalize-obs", "False")
    assert (changed.config.lam, changed.options.normalize_obs) == (0.7, False)


def test_it_is_train_with_imitation():
    under_its_name = settings("--algo", "sdice", "--episode", "2")
    by_flag, _ = parse(["--data", "hopper-expert-v2", "--algo", "sdice", "--imitation", "--episode", "2"])
    assert by_flag == under_its_name


def test_help(capsys):
    with pytest.raises(SystemExit) as done:
        main(["imitate", "--help-all"])
    assert done.value.code == 0
    text = capsys.readouterr().out
    for flag in ("--episode", "--suboptimal", "--absorbing", "--final-obs"):
        assert flag in text


def test_a_run_from_the_command_line(tmp_path, capsys):
    np.savez(tmp_path / "line.npz", **line_log())
    arguments = ["imitate", "--data", str(tmp_path / "line.npz"), "--algo", "bc", *TINY, "--env", "none"]
    assert main([*arguments, "--episode", "1", "--out", str(tmp_path / "run")]) == 0
    assert json.loads((tmp_path / "run" / "config.json").read_text())["config"]["episode"] == [1]
    capsys.readouterr()
    assert main([*arguments, "--episode", "99", "--out", str(tmp_path / "other")]) == 2
    error = capsys.readouterr().err
    assert "there is no episode 99; --episode takes 0 to 11" in error
    assert error.count("\n") == 1
    assert not (tmp_path / "other").exists()
