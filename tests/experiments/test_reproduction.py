"""The paper's tables and figures from runs whose numbers are known."""

import json

import pytest

from odice.experiments import reproduction
from odice.experiments.published import corl_score, paper_score
from odice.experiments.reproduction import StudyRun, gather, label, metric_curve, parse
from odice.reports.tables import table_csv, table_latex, table_markdown
from tests.reports.made import make_run

pytestmark = pytest.mark.fast

HALF = [[100.0, 60.0], [120.0, 80.0]]  # scores 40 and 50: the run's number is 45, its last evaluation 60 and 40


def place(folder, data, method, returns=HALF, seed=0, **options):
    options.setdefault("env", data)
    path = make_run(folder / data / method / f"seed-{seed}", returns, algo=parse(method)[0], seed=seed, **options)
    return StudyRun(data, method, path)


def texts(table, row):
    return dict(zip(table.head, [cell.text for cell in table.rows[row]], strict=True))


def test_published_numbers_are_those_of_their_sources():
    """Read off the paper's tables and CORL's README by eye."""
    assert paper_score("hopper-medium-v2", "odice") == (86.1, 4.0)
    assert paper_score("antmaze-large-diverse-v2", "td3-bc") == (0.0, None)
    assert paper_score("walker2d-expert-v2-traj-3", "iq-learn") == (66.7, None)
    assert corl_score("hopper-medium-replay-v2", "bc-10") == (70.42, 8.66)
    assert paper_score("hopper-medium-v2", "bc") is None
    assert paper_score("hopper-medium-replay-local", "odice") is None


def test_published_columns_are_shown_for_d4rl_only(tmp_path):
    d4rl = [place(tmp_path, "hopper-medium-v2", algo, seed=seed) for algo in ("iql", "odice") for seed in (0, 1)]
    table = reproduction.score_table(gather(d4rl), "Table 1", "D4RL.")
    row = texts(table, 0)
    assert row["O-DICE"] == row["IQL"] == "45.0 ± 0.0"
    assert (row["O-DICE: paper"], row["IQL: paper"], row["IQL: CORL"]) == ("86.1 ± 4.0", "66.3 ± 5.7", "67.5 ± 3.8")
    assert "O-DICE: CORL" not in row
    assert "arXiv 2402.00348" in table.note
    local = place(tmp_path, "hopper-medium-replay-local", "odice")
    both = reproduction.score_table(gather([*d4rl, local]), "Table 1", "")
    assert texts(both, 1)["O-DICE: paper"] == ""
    alone = reproduction.score_table(gather([local]), "Table 1", "")
    assert alone.head == ["data", "O-DICE"]
    assert "arXiv" not in alone.note


def test_no_published_number_is_shown_for_another_world(tmp_path):
    """Runs on D4RL's data that were evaluated elsewhere: the cells are empty, and the note says why."""
    worlds = {
        "hopper-medium-v2": "Hopper-v5",
        "antmaze-umaze-v2": "AntMaze_UMaze-v5",
        "walker2d-medium-v2": "Walker2d-v4",
    }
    gathered = gather([place(tmp_path, data, "odice", env=env) for data, env in worlds.items()])
    table = reproduction.score_table(gathered, "Table 1", "")
    shown = [texts(table, row)["O-DICE: paper"] for row in range(3)]
    assert shown == ["", "", "84.9 ± 2.3"]  # Walker2d-v4 is what the name stands for
    assert "No published number belongs to antmaze-umaze-v2: its runs were evaluated in AntMaze_UMaze-v5." in table.note
    assert "walker2d" not in table.note
    right = gather([place(tmp_path, "antmaze-umaze-v2", "odice", seed=1)])
    assert texts(reproduction.score_table(right, "", ""), 0)["O-DICE: paper"] == "94.1 ± 1.6"


def test_variants_share_the_published_column(tmp_path):
    methods = ("sdice", "sdice@lam-0.6", "odice", "odice@reference")
    gathered = gather([place(tmp_path, "hopper-medium-v2", method) for method in methods])
    assert reproduction.score_table(gathered, "", "").head == [
        "data", "S-DICE", "S-DICE, lam 0.6", "S-DICE: paper", "O-DICE", "O-DICE, reference", "O-DICE: paper"
    ]  # fmt: skip


def test_figure_3_takes_the_worst_of_ten_episodes(tmp_path):
    many = [[50.0] * 8 + [100.0, 20.0] + [-1000.0] * 40]  # the paper's code looks at the first ten
    gathered = gather([place(tmp_path, "x", "odice", many)])
    assert reproduction.worst_differences(gathered.groups[0]) == pytest.approx([100 * (20 - 52) / 52])


def test_the_best_of_a_row_is_marked_and_returns_are_labelled(tmp_path):
    places = [place(tmp_path, "x-local", "bc", [[10.0]], reference=None)]
    places += [place(tmp_path, "x-local", "odice", [[30.0]], reference=None)]
    places += [place(tmp_path, "x-local", "iql", [[50.0]], reference=None, finished=False)]
    table = reproduction.score_table(gather(places), "Table 1", "")
    assert [cell.text for cell in table.rows[0]] == ["x-local (return)", "10.0", "30.0", "unfinished"]
    assert [cell.best for cell in table.rows[0]] == [False, False, True, False]
    assert "**30.0**" in table_markdown(table)
    assert r"\textbf{30.0}" in table_latex(table)
    assert table_csv(table).splitlines() == ["data,BC,O-DICE,IQL", "x-local (return),10.0,30.0,unfinished"]


def test_percent_difference_is_of_the_last_evaluation_in_scores(tmp_path):
    """Scores 60 and 40 around 50: the worst is 20 % below. One seed ends at 0, where a percentage means nothing."""
    places = [place(tmp_path, "x", "sdice"), place(tmp_path, "x", "sdice", [[0.0, 0.0]], seed=1)]
    places += [place(tmp_path, "x", "odice", [[1.0], [150.0, 100.0, 110.0]])]
    gathered = gather(places)
    assert reproduction.worst_differences(gathered.groups[0]) == pytest.approx([-20.0])
    assert reproduction.worst_differences(gathered.groups[1]) == pytest.approx([100 * (100 - 120) / 120])
    row = texts(reproduction.robustness_table(gathered, ""), 0)
    assert (row["S-DICE"], row["O-DICE"]) == ("-20.0", "-16.7")


def test_a_metric_is_averaged_where_all_seeds_have_it(tmp_path):
    places = [place(tmp_path, "x", "odice", seed=seed) for seed in (0, 1)]
    for seed, values in ((0, [1.0, 3.0, 5.0]), (1, [2.0, 5.0])):
        rows = [{"step": 10 * (i + 1), "feature_product": value} for i, value in enumerate(values)]
        rows.insert(0, {"step": 5, "policy_loss": 1.0})
        (places[seed].path / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    curve = metric_curve(gather(places).groups[0], "feature_product")
    assert (curve.steps, curve.mean) == ([10, 20], [1.5, 4.0])
    assert (curve.low, curve.high) == ([1, 3], [2, 5])  # a standard deviation is 0.71 and 1.41: further than the seeds
    reproduction.figure3(gather(places), "x")


def test_sensitivity_tells_how_far_lambdas_are_apart(tmp_path):
    at = {("0.5", "0.2"): 10.0, ("0.7", "0.2"): 60.0, ("0.5", "1.0"): 30.0, ("0.7", "1.0"): 20.0}
    places = [place(tmp_path, "x", f"odice-lam={lam}-eta={eta}", [[v]]) for (lam, eta), v in at.items()]
    places += [place(tmp_path, "x", f"sdice-lam={lam}", [[value]]) for lam, value in (("0.5", 100.0), ("0.7", 0.0))]
    gathered = gather(places)
    rows = [[cell.text for cell in row] for row in reproduction.sensitivity_table(gathered, "").rows]
    assert rows == [
        ["x", "O-DICE", "eta 0.2", "0.7", "30.0", "5.0", "25.0", "2"],
        ["x", "O-DICE", "eta 1.0", "0.5", "15.0", "10.0", "5.0", "2"],
        ["x", "S-DICE", "–", "0.5", "50.0", "0.0", "50.0", "2"],
    ]
    figure = reproduction.sensitivity_figure(gathered, "x")
    written = {text.get_text() for text in figure.axes[0].texts}
    assert written == {"50", "0", "5", "30", "15", "10"}


def test_each_setting_stands_with_its_value_and_its_weights(tmp_path):
    """Means of the last tenth of the rows; a run that logs no such metric has a dash."""
    places = [place(tmp_path, "x", "odice-lam=0.5-eta=0.2", [[0.0], [100.0]]), place(tmp_path, "x", "sdice-lam=0.5")]
    rows = [{"step": step, "value_mean": float(step), "weight_ess": 0.25} for step in range(1, 21)]
    (places[0].path / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    table = reproduction.settings_table(gather(places, last=1), "")
    assert [cell.text for cell in table.rows[0]] == ["x", "O-DICE", "0.5", "0.2", "50.0", "19.5", "0.25"]
    assert [cell.text for cell in table.rows[1]][-2:] == ["–", "–"]
    assert "the last evaluation." in table.note
    assert reproduction.settings_table(gather(places), "").rows[0][4].text == "25.0"


def test_names():
    assert parse("vdice-true-lam=0.5") == ("vdice-true", {"lam": "0.5"})
    assert parse("td3-bc") == ("td3-bc", {})
    assert label("bc-10") == "10% BC"
    assert label("odice-lam=0.5-eta=0.2") == "O-DICE lam=0.5 eta=0.2"
    assert label("own-thing") == "own-thing"
