"""Which runs are compared, and what the comparison says."""

import json
import os
import re
from pathlib import Path

import numpy as np
import pytest

import odice
from odice.cli.main import main
from odice.errors import OdiceError
from odice.reports.compare import compare
from odice.reports.runs import clean, data_name
from odice.reports.tables import tables
from tests.reports.made import make_run
from tests.training.line import SMALL, line_log


def test_the_number_of_a_run_is_the_mean_of_its_last_ten_evaluations(tmp_path):
    returns = [[1000.0]] * 5 + [[20.0 * i, 20.0 * i + 8] for i in range(10)]  # the first five must not count
    make_run(tmp_path / "a", returns)
    (group,) = odice.report(tmp_path).groups
    assert group.scored
    assert group.interval.value == pytest.approx(np.mean([10 * i + 2 for i in range(10)]))
    assert group.last == pytest.approx(92.0)
    assert group.best == pytest.approx(500.0)
    assert group.worst == pytest.approx(0.0)  # of the last ten evaluations, an episode's, not a mean
    assert group.std is None
    assert not group.interval.known


def test_how_many_evaluations_count_can_be_chosen(tmp_path, capsys):
    make_run(tmp_path / "a", [[0.0], [100.0], [160.0]])  # scores 0, 50 and 80
    (group,) = odice.report(tmp_path, last=2).groups
    assert group.interval.value == pytest.approx(65.0)
    assert group.worst == pytest.approx(50.0)
    assert main(["report", str(tmp_path), "--last", "2"]) == 0
    assert "the mean of its last 2 evaluations;" in " ".join(capsys.readouterr().out.split())
    assert main(["report", str(tmp_path), "--last", "0"]) == 2
    assert "at least 1 evaluation, got 0 (--last)" in capsys.readouterr().err


def test_seeds_are_averaged(tmp_path):
    for seed, level in enumerate((100.0, 120.0, 170.0)):
        make_run(tmp_path / f"seed-{seed}", [[level - 10, level + 10]], seed=seed)
    (group,) = compare([tmp_path]).groups
    assert group.finals.tolist() == [50.0, 60.0, 85.0]
    assert group.interval.value == pytest.approx(65.0)
    assert group.std == pytest.approx(np.std([50, 60, 85], ddof=1))
    assert group.worst == pytest.approx(45.0)
    assert group.updates_per_second == pytest.approx(501.0)
    # one standard deviation below 65 would be 46.97, and no seed is there
    assert group.curve == ([1000], [65.0], [50.0], [pytest.approx(65 + np.std([50, 60, 85], ddof=1))])


def test_methods_are_named_by_what_differs_on_the_same_data(tmp_path):
    for data, eta in (("a", 0.1), ("b", 0.2)):  # a preset's eta differs between data sets: still one method
        for lam in (0.5, 0.7):
            make_run(tmp_path / f"{data}{lam}", data=data, lam=lam, eta=eta)
        make_run(tmp_path / f"{data}-iql", data=data, algo="iql", tau=eta)
    comparison = compare([tmp_path])
    assert comparison.data == ["a", "b"]
    assert comparison.methods == ["iql", "odice lam=0.5", "odice lam=0.7"]
    assert [len(group.runs) for group in comparison.groups] == [1] * 6


def test_unfinished_runs_are_shown_and_do_not_count(tmp_path):
    make_run(tmp_path / "0", [[100.0]], seed=0)
    make_run(tmp_path / "1", [[0.0]], seed=1, finished=False, steps=1000)
    (group,) = compare([tmp_path]).groups
    assert (len(group.runs), group.finals.tolist()) == (2, [50.0])
    assert group.curve.mean == [50.0]


def test_without_a_reference_there_are_returns(tmp_path):
    make_run(tmp_path / "a", [[100.0]], data="a")
    make_run(tmp_path / "b", [[7.0]], data="b", reference=None)
    make_run(tmp_path / "c", [[100.0]], data="b", algo="bc")  # one run without is enough: the two must compare
    units = {(group.data, group.method): (group.unit, group.interval.value) for group in compare([tmp_path]).groups}
    assert units == {("a", "odice"): ("score", 50.0), ("b", "odice"): ("return", 7.0), ("b", "bc"): ("return", 100.0)}


def test_runs_that_no_simulator_evaluated_have_no_normalized_scores(tmp_path):
    make_run(tmp_path / "a", returns=())
    note = tables(compare([tmp_path / "a"]))[0].note
    assert note.startswith("No finished run was evaluated in a simulator")
    assert "normalized" not in note


def test_averages_over_data_need_methods_that_have_them_all(tmp_path):
    for data in ("a", "b", "c"):
        for algo, level in (("odice", 160.0), ("bc", 40.0)):
            for seed in range(2):
                make_run(tmp_path / f"{data}{algo}{seed}", [[level]], data=data, algo=algo, seed=seed)
    make_run(tmp_path / "iql", [[200.0]], data="a", algo="iql")
    make_run(tmp_path / "raw", [[200.0]], data="d", algo="odice", reference=None)
    comparison = compare([tmp_path])
    assert comparison.shared[0] == ["a", "b", "c"]
    assert {one.method: one.iqm.value for one in comparison.aggregates} == {"odice": 80.0, "bc": 20.0}
    assert {one.method: one.gap.value for one in comparison.aggregates if one.gap} == {"odice": 20.0, "bc": 80.0}
    assert comparison.profiles["bc"].share[:20].tolist() == [1.0] * 20
    assert comparison.profiles["bc"].share[20:].tolist() == [0.0] * 81  # 20 is not above 20


def test_improvement_has_two_sides(tmp_path):
    for seed, (a, b) in enumerate([(10.0, 5.0), (20.0, 15.0)]):
        make_run(tmp_path / f"a{seed}", [[a]], algo="a", seed=seed, reference=None)
        make_run(tmp_path / f"b{seed}", [[b]], algo="b", seed=seed, reference=None)
    result = compare([tmp_path]).improvement
    assert result["a", "b"].value == 0.75  # 10 beats 5; 20 beats both
    assert result["b", "a"].value == 0.25
    assert result["b", "a"].low == pytest.approx(1 - result["a", "b"].high)


def test_a_copy_is_no_second_seed(tmp_path):
    make_run(tmp_path / "a")
    make_run(tmp_path / "b")
    make_run(tmp_path / "c", source="/elsewhere/renamed.parquet", finished=False)
    comparison = compare([tmp_path])
    assert len(comparison.groups[0].runs) == 1
    assert sum("is the same run as" in note for note in comparison.notes) == 2


def test_other_data_of_the_same_name_stay_apart(tmp_path):
    make_run(tmp_path / "a", data="x", source="/one/log.csv")
    make_run(tmp_path / "b", data="y", source="/two/log.csv", seed=1)
    comparison = compare([tmp_path])
    assert comparison.data == ["log (1)", "log (2)"]
    assert "log is the name of 2 data sets" in comparison.notes[0]


def test_health_is_counted(tmp_path):
    for seed, verdict in enumerate(("learned", "learned", "do not deploy")):
        make_run(tmp_path / f"{seed}", seed=seed, health={"verdict": verdict})
    (group,) = compare([tmp_path]).groups
    assert group.health == "2 learned, 1 do not deploy"


@pytest.mark.slow
def test_a_real_run_without_an_environment(tmp_path):
    run = odice.train(line_log(), algo="odice", steps=20, out=tmp_path / "run", quiet=True, **SMALL)
    (group,) = odice.report(run).groups
    assert (group.data, group.method, group.interval) == ("a dict of arrays", "odice", None)
    assert group.finished[0].step == 20
    assert group.updates_per_second is None or group.updates_per_second > 0


@pytest.mark.parametrize(
    ("source", "name"),
    [
        ("/x/hopper-replay.parquet", "hopper-replay"),
        ("hopper-medium-v2", "hopper-medium-v2"),
        ("D4RL/hopper/medium-v2", "D4RL/hopper/medium-v2"),
        ("/x/store", "store"),
        ("a dict of arrays", "a dict of arrays"),
        ("", ""),
        ("/", "/"),
    ],
)
def test_data_have_short_names(source, name):
    assert data_name(source) == name


def test_names_are_one_short_printable_line():
    assert clean("a\x1b[31m\nb") == "a\ufffd[31m\ufffdb"
    assert len(clean("x" * 10_000)) == 80


def damage(folder, name, content):
    (folder / name).write_bytes(content)


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("config.json", b"{", "config.json"),
        ("config.json", b"[1]", "config.json"),
        ("config.json", b'{"config": 3}', "no algorithm"),
        ("config.json", b"[" * 100_000, "config.json"),
        ("result.json", b"\xff", "result.json"),
        ("evaluations.jsonl", b'{"step": 1}\nnonsense\n{"step": 2}\n', "damaged"),
    ],
)
def test_a_broken_run_is_one_sentence(name, content, said, tmp_path):
    good, bad = make_run(tmp_path / "good"), make_run(tmp_path / "sub" / "bad", seed=1)
    damage(bad, name, content)
    with pytest.raises(OdiceError, match=said) as caught:
        compare([bad])
    assert "\n" not in str(caught.value)
    comparison = compare([tmp_path])  # among others it is left out, and that is said
    assert [run.path for run in comparison.groups[0].runs] == [good]
    assert said in comparison.notes[0]


def test_numbers_that_are_none(tmp_path):
    run = make_run(tmp_path / "a")
    rows = ['{"step": 1, "mean": NaN}', '{"step": 2, "mean": "x"}', '{"step": 3, "mean": 1e999}', '{"step": 4}']
    rows += ['{"step": 5, "mean": true}', '{"step": 6, "mean": 4, "worst": null, "reference": [1, "x"]}']
    (run / "evaluations.jsonl").write_text("\n".join(rows) + "\n")
    (run / "timing.jsonl").write_text('{"step": 1, "updates_per_second": "fast"}\n')
    config = json.loads((run / "config.json").read_text())
    config["config"] |= {"seed": [], "steps": "many", "settings": {"a": {"b": [None, {}]}}}
    config["data"] = 7
    (run / "config.json").write_text(json.dumps(config))
    (group,) = compare([tmp_path]).groups
    assert (group.unit, group.finals.tolist(), group.worst, group.updates_per_second) == ("return", [4.0], 4.0, None)


def test_where_there_is_no_run(tmp_path):
    with pytest.raises(OdiceError, match="holds no run"):
        odice.report(tmp_path)
    with pytest.raises(OdiceError, match="holds no run"):
        odice.report(tmp_path / "nowhere")
    with pytest.raises(OdiceError, match="no run to report on"):
        odice.report([])
    os.mkfifo(tmp_path / "config.json")  # would wait for ever
    with pytest.raises(OdiceError, match="not a regular file"):
        odice.report(tmp_path)


@pytest.mark.parametrize(
    "row",
    [
        '{"step": 1000, "mean": 1.7e308}',
        '{"step": 1000, "mean": -1.7e308, "worst": 1e200}',
        '{"step": 1' + "0" * 300 + "}",
    ],
)
@pytest.mark.parametrize("suffix", [".html", ".md", ".tex", ".csv", ".png"])
def test_numbers_beyond_all_returns(row, suffix, tmp_path):
    """Squares of them overflow, and no axis can show them: the run or the evaluation is left out."""
    make_run(tmp_path / "runs" / "good")
    bad = make_run(tmp_path / "runs" / "bad", seed=1)
    (bad / "evaluations.jsonl").write_text(f"{row}\n" + '{"step": 2000, "mean": 5}\n')
    config = json.loads((bad / "config.json").read_text())
    config["config"] |= {"seed": 10**300, "steps": 10**300}
    (bad / "config.json").write_text(json.dumps(config))
    odice.report(tmp_path / "runs", tmp_path / f"report{suffix}")


def test_a_folder_whose_name_is_not_text(tmp_path, capsys):
    folder = os.fsdecode(os.fsencode(tmp_path) + b"/runs/\xff\xfe")
    make_run(Path(folder))
    make_run(Path(folder + "2"), finished=False)
    for name in ("a.html", "a.md", "a.csv"):
        assert main(["report", str(tmp_path / "runs"), "--out", str(tmp_path / name)]) == 0
    assert main(["report", folder + "3"]) == 2
    assert "Traceback" not in capsys.readouterr().err


def test_one_bad_run_among_many_is_left_out_by_name(tmp_path):
    good, bad = make_run(tmp_path / "good"), make_run(tmp_path / "bad", seed=1)
    damage(bad, "config.json", b"{")
    comparison = compare([good, bad])
    assert [run.path for run in comparison.groups[0].runs] == [good]
    assert "bad/config.json" in comparison.notes[0]
    with pytest.raises(OdiceError, match=r"There is no run to report on \(left out: .*bad/config\.json"):
        compare([bad])


@pytest.mark.parametrize("logs", ["[]", '"x"', '{"evaluations.jsonl": 3}', "[1]"])
def test_checksums_that_are_none(logs, tmp_path):
    run = make_run(tmp_path / "a")
    (run / "result.json").write_text(f'{{"step": 1000, "logs_sha256": {logs}}}')
    with pytest.raises(OdiceError, match="logs_sha256"):
        compare([run])


@pytest.mark.parametrize(
    "text", ["=1+1", "+1", "-1", "@x", "\uff1d1", "\uff0b1", "\uff0d1", "\uff201", "a;=1", "a,\t=1", " =1"]
)
def test_no_cell_begins_a_formula(text):
    from odice.reports.tables import _no_formula

    for part in re.split("[;,]", _no_formula(text)):
        assert part.lstrip()[:1] not in set("=+-@\uff1d\uff0b\uff0d\uff20")
    assert _no_formula("a = 1, b-c") == "a = 1, b-c"
