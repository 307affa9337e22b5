"""`--dry-run`: what would be made is said, and nothing is written."""

import re

import numpy as np
import pytest

from odice.cli.main import main
from odice.envs.small import LQR
from odice.experiments.suite import SUITE
from tests.data.test_many import log, write
from tests.training.line import line_log


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
    said = capsys.readouterr().out
    assert "hospital-local/bc" in said
    assert re.search(r"the 2 runs that are not finished: about \d+m\d\ds, .* at a time; [\d.]+ [kM]B of disk", said), (
        said
    )
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.fast
def test_a_decision_without_an_action_names_the_file_that_will_be_there(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "log.csv").write_text("x,y\n" + "".join(f"{i * 0.37 % 1:.3f},{i * 0.61 % 1:.3f}\n" for i in range(99)))
    assert main(["decide", "log.csv", "--yes", "--dry-run", "--out", "d"]) == 2
    assert "name it in d/schema.toml, which the command without --dry-run writes" in capsys.readouterr().err
    assert main(["decide", "log.csv", "--yes", "--out", "d"]) == 2
    assert "name it in d/schema.toml, then run the same again" in capsys.readouterr().err
    assert (tmp_path / "d" / "schema.toml").exists()


def dry(capsys, folder, *words: str) -> str:
    """What a dry run says; it leaves the folder as it is."""
    before = sorted(folder.rglob("*"))
    assert main([*words, "--dry-run"]) == 0
    assert sorted(folder.rglob("*")) == before
    return capsys.readouterr().out


COST = r"cost +about \d+m\d\ds \([\d,]+ updates/s, start \d+m\d\ds\), \d+ kB"
SMALL = ("--data", "log.npz", "--algo", "bc", "--policy-hidden", "8", "--batch-size", "8", "--steps", "1000")


def test_training_says_what_it_costs(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    np.savez("log.npz", **line_log(60))
    assert re.search(COST, dry(capsys, tmp_path, "train", *SMALL, "--allow", "all"))
    assert "at a time" in dry(capsys, tmp_path, "train", *SMALL, "--allow", "all", "--seeds", "2")
    assert main(["train", *SMALL, "--allow", "all", "--stream", "--dry-run"]) == 2
    assert "--dry-run writes nothing" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["log.npz"]


ROLES = ("--observation-columns", "x", "ward", "--action-columns", "drug", "--reward-column", "r")
ROLES += ("--episode-column", "who", "--terminated-column", "done")


def test_many_files_say_how_large_their_store_is(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    write(log(), tmp_path / "log")
    said = dry(capsys, tmp_path, "data", "convert", "log/*.parquet", *ROLES, "--out", "log.store")
    assert "7 files, about 900 rows" in said
    told = re.search(r"log.store: about (\d+) kB", said)
    assert told, said
    assert main(["data", "convert", "log/*.parquet", *ROLES, "--out", "log.store"]) == 0
    real = sum(file.stat().st_size for file in (tmp_path / "log.store").iterdir()) / 1e3
    assert float(told[1]) == pytest.approx(real, rel=0.3)


def test_a_decision_lists_its_candidates_and_writes_nothing(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("odice.decision.candidates.CANDIDATES", {"clone": {"algo": "bc"}, "again": {"algo": "bc"}})
    assert main(["data", "example", "one-step", "--rows", "400"]) == 0
    said = dry(capsys, tmp_path, "decide", "one-step.csv", "--yes", "--steps", "200", "--allow", "all")
    assert said.count("200 updates, about") == 2
    assert "Judging the policies comes on top." in said


def test_the_toy_world_and_the_benchmark_say_how_long(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    said = dry(capsys, tmp_path, "toy", "--out", "toy", "--rules", "semi", "--steps", "1000")
    assert re.search(r"semi +1 x 1,000 updates, [\d,]+ updates/s\nabout \d+m\d\ds", said), said
    assert "8 processes" in dry(capsys, tmp_path, "bench", "--algo", "odice", "iql", "--section", "devices")
