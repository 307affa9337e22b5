"""`--dry-run`: what would be made is said, and nothing is written."""

import pytest

from odice.cli.main import main
from odice.envs.small import LQR
from odice.experiments.suite import SUITE


@pytest.mark.fast
def test_the_suite_says_what_is_missing(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["suite", "make", "hospital", "cartpole-mixture", "--dry-run"]) == 0
    minutes = SUITE["hospital"].minutes + SUITE["cartpole-mixture"].minutes
    assert f"2 logs are missing in runs/suite: {minutes:g} core minutes" in capsys.readouterr().out
    assert not list(tmp_path.iterdir())


@pytest.mark.fast
def test_collecting_says_what_is_trained(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    command = ["data", "collect", "--env", LQR, "--out", "log.hdf5", "--budget", "5000", "--dry-run", "--recipe"]
    assert main([*command, "full-replay"]) == 0
    said = capsys.readouterr().out
    assert f"full-replay in {LQR}: the whole replay, seed 0" in said
    assert "for 5,000 steps" in said
    assert main([*command, "random", "--steps", "700"]) == 0
    said = capsys.readouterr().out
    assert "700 steps" in said
    assert "training" not in said
    assert not list(tmp_path.iterdir())


def test_a_study_lists_its_runs(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["suite", "make", "hospital", "--quiet"]) == 0
    before = sorted(tmp_path.rglob("*"))
    capsys.readouterr()
    study = ["reproduce", "table1", "--suite", "local", "--logs", "hospital-local", "--algos", "bc", "--seeds", "2"]
    assert main([*study, "--steps", "50", "--dry-run"]) == 0
    assert "hospital-local/bc" in capsys.readouterr().out
    assert sorted(tmp_path.rglob("*")) == before
