"""`odice theory visitation`: its files, its table, its refusals, with a small study in place of the long one."""

import json

import pytest

from odice.cli.main import main
from odice.experiments import visitation_study as study
from odice.experiments.tabular import grid_world


@pytest.mark.slow
def test_files_and_table(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(study, "WORLDS", {"grid, deterministic": lambda rng: grid_world(4)})
    monkeypatch.setattr(study, "SHARES", (1.0, 0.5))
    monkeypatch.setattr(study, "LAMS", (0.9,))
    monkeypatch.setattr(study, "BATCHES", (64,))
    out = tmp_path / "new"
    assert main(["theory", "visitation", "--out", str(out), "--seeds", "1"]) == 0
    names = {"visitation.json", "visitation-states.png", "visitation-eta.png", "visitation-features.png"}
    assert {path.name for path in out.iterdir()} == names
    content = json.loads((out / "visitation.json").read_text())
    methods = {row["method"]: row for row in content["tables"] if row["divergence"] == "kl"}
    assert methods["true"]["optimum"] < 1e-9
    assert methods["semi"]["own"] > 0.1
    assert {row["divergence"] for row in content["features"]} == set(study.DIVERGENCES)
    assert content["seeds"] == 1
    rounds = {row["round"]: row for row in content["rounds"] if row["alpha"] == 0.1}
    assert rounds[1]["pairs"] == 1.0 > rounds[2]["pairs"]
    printed = capsys.readouterr().out
    assert "orthogonal, eta 0.2" in printed
    assert "round 2, visitation ratio" in printed
    tables = printed[printed.index("means over") :]  # the progress line stands before them
    assert max(len(line) for line in tables.splitlines() if str(out) not in line) <= 80


def test_bad_options(tmp_path, capsys):
    assert main(["theory", "visitation", "--out", str(tmp_path), "--seeds", "0"]) == 2
    assert "--seeds must be at least 1" in capsys.readouterr().err
    (tmp_path / "file").touch()
    assert main(["theory", "visitation", "--out", str(tmp_path / "file")]) == 2
    assert "name another folder" in capsys.readouterr().err
