"""`odice toy` from the outside: its files, its sentences, its exit codes."""

import json

import pytest

from odice.cli.main import main

MEASURES = {
    "reached_goal",
    "return",
    "value_inside",
    "value_outside",
    "auc",
    "auc_near",
    "auc_matched",
    "back_to_support",
}


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """All rules, two seeds, a few updates."""
    out = tmp_path_factory.mktemp("toy") / "new" / "folder"
    assert main(["toy", "--out", str(out), "--steps", "7", "--seeds", "2"]) == 0
    return out


@pytest.mark.slow
def test_writes_a_figure_and_the_numbers_and_nothing_else(finished):
    assert sorted(file.name for file in finished.iterdir()) == ["toy.json", "toy.png"]
    assert (finished / "toy.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.slow
def test_json_has_every_rule_and_seed(finished):
    content = json.loads((finished / "toy.json").read_text())
    runs = content["runs"]
    assert [(run["rule"], run["seed"]) for run in runs] == [
        (rule, seed) for rule in ("true", "semi", "orthogonal") for seed in (0, 1)
    ]
    for run in runs:
        assert set(run) >= MEASURES
        assert isinstance(run["reached_goal"], bool)
        assert 0 <= run["auc"] <= 1
        assert 0 <= run["back_to_support"] <= 1
        # 31 x 31 cells and -1 per move: the shortest walk to a goal takes 40, a lost one 200
        assert -200 <= run["return"] <= 10 - 39
    semi = [run for run in runs if run["rule"] == "semi"]
    assert content["summary"]["semi"]["auc"] == pytest.approx((semi[0]["auc"] + semi[1]["auc"]) / 2)
    assert set(content["settings"]["semi"]) == {"lam"}
    assert set(content["settings"]["orthogonal"]) == {"lam", "eta"}


@pytest.mark.slow
def test_a_seed_gives_the_same_files_again(tmp_path, capsys):
    for name in ("a", "b"):
        assert main(["toy", "--out", str(tmp_path / name), "--steps", "30", "--rules", "semi", "--seed", "4"]) == 0
    for file in ("toy.json", "toy.png"):
        assert (tmp_path / "a" / file).read_bytes() == (tmp_path / "b" / file).read_bytes()
    assert str(tmp_path / "b" / "toy.json") in capsys.readouterr().out.replace("\n", "")


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--rules", "orthogonl"], ["'orthogonl'", "Did you mean 'orthogonal'?"]),
        (["--rules", "semi", "semi"], ["rules"]),
        (["--lam", "1.0"], ["lam", "between 0 and 1", "1.0"]),
        (["--lam", "nan"], ["lam", "nan"]),
        (["--eta", "-0.5"], ["eta", "-0.5"]),
        (["--eta", "inf"], ["eta", "inf"]),
        (["--steps", "0"], ["steps", "0"]),
        (["--seeds", "0"], ["seeds", "0"]),
        (["--seed", "-1"], ["seed", "-1"]),
        (["--seed", "99999999999999999999"], ["seed"]),
        (["--encoding", "one-hott"], ["'one-hott'", "Did you mean 'one-hot'?"]),
        (["--discount", "1.5"], ["discount", "1.5"]),
        (["--goal-reward", "nan"], ["goal-reward", "nan"]),
        (["--batch-size", "0"], ["batch_size", "0"]),
        (["--reward-scale", "0"], ["reward-scale", "0"]),
    ],
)
def test_bad_input_is_one_sentence_and_leaves_nothing(tmp_path, capsys, flags, words):
    out = tmp_path / "out"
    assert main(["toy", "--out", str(out), *flags]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.count("\n") == 1
    assert all(word in captured.err for word in words), captured.err
    assert not out.exists()


def test_a_folder_that_is_a_file_is_refused_before_the_work(tmp_path, capsys):
    file = tmp_path / "out"
    file.write_text("mine")
    assert main(["toy", "--out", str(file)]) == 2
    assert "--out" in capsys.readouterr().err
    assert file.read_text() == "mine"


def test_figure_2_takes_a_seed_and_refuses_what_has_no_effect(tmp_path, monkeypatch, capsys):
    from odice.cli import toy
    from odice.cli.main import main

    seen = []
    monkeypatch.setattr(toy, "main", lambda argv: seen.append(argv) or 0)
    command = ["reproduce", "figure2", "--out", str(tmp_path)]
    assert main([*command, "--seed", "3"]) == 0
    assert seen == [["--out", str(tmp_path / "figure2"), "--seed", "3"]]
    assert main([*command, "--report-only"]) == 2
    assert "--report-only has no effect on figure2" in capsys.readouterr().err
    assert main(["reproduce", "table1", "--seeds", "0", "--out", str(tmp_path)]) == 2
    assert "--seeds must be at least 1" in capsys.readouterr().err
