"""Which runs a table or figure of the paper is made of, and that the command trains, continues and writes them."""

import csv
import json
import signal
import subprocess
import sys
import time
from dataclasses import replace
from itertools import product

import h5py
import numpy as np
import pytest

import odice
from odice.cli.main import main
from odice.d4rl import ANTMAZE_DATA, LOCOMOTION_DATA
from odice.data.doctor import inspect
from odice.errors import OdiceError
from odice.experiments import suite
from odice.experiments.published import LABELS, paper_score
from odice.experiments.reproduce import StudyOptions, preset_of, seeds_of, study_runs
from odice.experiments.studies import STUDIES
from odice.experiments.study_logs import LIKE, d4rl_sources, local_experts, local_sources
from odice.reports import figures
from tests.d4rl_files import write, write_all
from tests.reports.made import make_run as made_run


def names(runs):
    return [run.name for run in runs]


@pytest.fixture
def d4rl(tmp_path):
    """A folder with two files: one as D4RL's would be, one that odice has collected and somebody renamed."""
    folder = tmp_path / "d4rl"
    folder.mkdir()
    for name, history in (("hopper_medium-v2", []), ("walker2d-medium-v2", ["collected in Walker2d-v5 with ..."])):
        with h5py.File(folder / f"{name}.hdf5", "w") as file:
            file["rewards"] = np.zeros(3)
            if history:
                file.attrs["odice"] = json.dumps({"history": history})
    return folder


def test_what_is_missing_is_listed_with_how_to_get_it(d4rl):
    sources, missing = d4rl_sources(STUDIES["table1"], (), d4rl)
    assert [source.name for source in sources] == ["hopper-medium-v2"]
    assert len(missing) == len(LOCOMOTION_DATA + ANTMAZE_DATA) - 1
    messages = {sentence.split(":")[0]: sentence for sentence in missing}
    assert "offline_rl/gym_mujoco_v2/hopper_medium_replay-v2.hdf5" in messages["hopper-medium-replay-v2"]
    assert (
        "ant_maze_v2/Ant_maze_big-maze_noisy_multistart_True_multigoal_False_sparse_fixed.hdf5"
        in (messages["antmaze-medium-play-v2"])
    )
    assert "is not D4RL's file but collected in Walker2d-v5" in messages["walker2d-medium-v2"]
    with pytest.raises(OdiceError, match="Did you mean 'hopper-medium-v2'"):
        d4rl_sources(STUDIES["table1"], ["hopper-mediun-v2"], d4rl)


def test_d4rl_runs_have_the_papers_settings_and_protocol(d4rl, tmp_path):
    sources, _ = d4rl_sources(STUDIES["table1"], ["hopper-medium-v2"], d4rl)
    runs, _, notes = study_runs(STUDIES["table1"], sources, (), StudyOptions(), tmp_path)
    assert notes == []
    assert len(runs) == 10 * 5  # eleven columns; S-DICE with O-DICE's lambda and with 0.6 are one run on this data
    one = next(run for run in runs if "/odice/" in run.name)
    options, settings = one.settings.options, one.settings.config
    assert (settings.lam, settings.eta, settings.value_lr, settings.value_hidden) == (0.6, 1.0, 1e-4, (256, 256))
    assert (options.steps, options.eval_every, options.eval_episodes) == (1_000_000, 5_000, 10)
    assert (options.reward, options.normalize_obs, options.convention) == ("return-range", False, "qlearning")
    assert options.diagnostics  # figure 3 reads the same runs
    short, _, _ = study_runs(
        STUDIES["table1"], sources, ("odice", "optidice"), StudyOptions("reference", 6000, 1), tmp_path
    )
    assert [(run.steps, run.settings.options.eval_every) for run in short] == [(6000, 300)] * 2
    assert (short[0].settings.config.policy_hidden, short[0].settings.config.twin) == ((1024, 1024), True)
    assert short[1].settings.config.warmup_steps == 1000  # a sixth of the run, as published


def test_the_columns_are_the_papers(d4rl, tmp_path):
    for name in ("antmaze-medium-play-v2", "halfcheetah-medium-v2"):
        write(d4rl, name)
    study = STUDIES["table1"]
    data = ("hopper-medium-v2", "halfcheetah-medium-v2", "antmaze-medium-play-v2")
    sources, _ = d4rl_sources(study, data, d4rl)
    runs, places, _ = study_runs(study, sources, (), StudyOptions(), tmp_path)
    plans = {run.group: run.settings for run in runs}
    methods = [place.method for place in places if place.data == "antmaze-medium-play-v2"][::5]
    assert methods == [
        *("td3-bc", "cql", "iql", "eql", "optidice", "optidice@paper-protocol", "fdvl", "sdice", "sdice@lam-0.6"),
        *("odice", "odice@reference"),
    ]
    lams = {data: [plans.get(f"{data}/{m}") for m in ("sdice", "sdice@lam-0.6", "odice")] for data in data}
    assert [p and p.config.lam for p in lams["antmaze-medium-play-v2"]] == [0.7, 0.6, 0.7]
    assert [p and p.config.lam for p in lams["halfcheetah-medium-v2"]] == [0.5, 0.6, 0.5]
    assert lams["hopper-medium-v2"][1] is None  # O-DICE's lambda is 0.6 there: the two columns share their runs
    shared = {place.path for place in places if place.data == "hopper-medium-v2" and place.method.startswith("sdice")}
    assert len(shared) == 5
    for name in data:
        assert plans[f"{name}/fdvl"].config.divergence == "pearson"
        own, paper = plans[f"{name}/optidice"], plans[f"{name}/optidice@paper-protocol"]
        assert (own.options.steps, own.options.eval_episodes, own.config.warmup_steps) == (3_000_000, 3, 500_000)
        episodes, every = (50, 20_000) if "antmaze" in name else (10, 5_000)
        assert (paper.options.steps, paper.config.warmup_steps) == (1_000_000, 166_666)
        assert (paper.options.eval_episodes, paper.options.eval_every) == (episodes, every)
        text, code = plans[f"{name}/odice"].config, plans[f"{name}/odice@reference"].config
        assert (text.policy_hidden, text.value_lr, text.twin) == ((256, 256), 1e-4, False)
        assert (code.policy_hidden, code.value_lr, code.twin) == ((1024, 1024), 2e-4, True)
    one, _, _ = study_runs(study, sources, ("odice",), StudyOptions("reference"), tmp_path)
    assert {run.group.split("/")[1] for run in one} == {"odice"}  # the preset that was given is no second column


def test_a_wide_table_is_printed_in_parts():
    from odice.cli.reproduce import _parts
    from odice.reports.tables import Cell, ReportTable

    head = ["data", *(f"c{i}" for i in range(1, 19))]
    table = ReportTable("T", head, [[Cell(name) for name in head]], "note")
    parts = _parts(table)
    assert [part.head for part in parts] == [["data", *head[1:9]], ["data", *head[9:17]], ["data", *head[17:]]]
    assert [[cell.text for cell in part.rows[0]] for part in parts] == [part.head for part in parts]
    assert [part.note for part in parts] == ["", "", "note"]
    assert parts[1].title == "T, columns 9 to 16 of 18"
    assert _parts(table._replace(head=head[:9], rows=[])) == [table._replace(head=head[:9], rows=[])]


def test_seeds():
    assert seeds_of(None, (0, 10, 100)) == [0, 10, 100]
    assert seeds_of(2, (0, 10, 100)) == [0, 10]
    assert seeds_of(5, (0, 10, 100)) == [0, 10, 100, 1, 2]
    assert seeds_of(2, (0, 10, 100), 7) == [7, 8]
    assert seeds_of(None, (0, 10, 100), 7) == [7, 8, 9]


def test_states_of_d4rls_layout_lie_on_free_cells(tmp_path):
    for name in ANTMAZE_DATA:
        data = odice.load(write(tmp_path, name), format="d4rl", name=name)
        assert "in-walls" not in {finding.code for finding in inspect(data).findings}
    wrong = replace(data, meta=replace(data.meta, env_id="antmaze-umaze-v2"))  # the large maze's states in the U
    assert "in-walls" in {finding.code for finding in inspect(wrong).errors}


def draw_nothing(monkeypatch):
    """From here on: a large figure takes seconds, and the first command of a test has drawn it."""
    monkeypatch.setattr(figures, "save", lambda figure, path: path)


@pytest.mark.slow
def test_table_1_on_small_files_in_d4rls_layout(tmp_path, capfd, monkeypatch):
    """One of the fifteen rows, all columns of two algorithms; one file is missing, and nothing is trained twice."""
    write(tmp_path, "antmaze-umaze-v2")
    command = ["reproduce", "table1", "--data-dir", str(tmp_path), "--out", str(tmp_path / "out"), "--seeds", "1"]
    command += ["--logs", "antmaze-umaze-v2", "walker2d-medium-v2", "--algos", "sdice", "odice"]
    command += ["--steps", "20", "--eval-every", "20", "--eval-episodes", "1"]
    command += ["--set", "value_hidden=[8]", "policy_hidden=[8]"]
    assert main(command) == 0
    output = capfd.readouterr().out
    assert "missing: walker2d-medium-v2: download http://rail.eecs.berkeley.edu" in output
    table = (tmp_path / "out" / "table1.md").read_text()
    head = next(line for line in table.splitlines() if line.startswith("| data"))
    columns = ["S-DICE", "S-DICE, lam 0.6", "S-DICE: paper", "O-DICE", "O-DICE, reference", "O-DICE: paper"]
    assert [cell.strip() for cell in head.strip("|").split("|")] == ["data", *columns]
    assert "94.1 ± 1.6" in table
    draw_nothing(monkeypatch)
    assert main(command) == 0
    assert "finished already" in capfd.readouterr().out


SMALL = ["--seeds", "1", "--steps", "20", "--eval-every", "20", "--eval-episodes", "1"]
SMALL += ["--set", "value_hidden=[8]", "policy_hidden=[8]", "critic_hidden=[8]"]
OURS = ["TD3+BC", "CQL", "IQL", "EQL", "OptiDICE", "OptiDICE, paper protocol", "f-DVL", "S-DICE", "S-DICE, lam 0.6"]
OURS += ["O-DICE", "O-DICE, reference"]
IN_THE_PAPER = ("td3-bc", "cql", "iql", "eql", "optidice", "fdvl", "sdice", "odice")


def table_rows(path):
    with path.open(encoding="utf-8") as file:
        return list(csv.DictReader(file))


def test_the_whole_table_from_finished_runs(tmp_path, capfd, monkeypatch):
    """Fifteen rows, eleven columns of ours, and the paper's 120 numbers next to the right ones."""
    data, out = tmp_path / "d4rl", tmp_path / "out"
    write_all(data)
    sources, missing = d4rl_sources(STUDIES["table1"], (), data)
    assert missing == []
    runs, _, _ = study_runs(STUDIES["table1"], sources, (), StudyOptions(seeds=1), out / "runs")
    assert len(runs) == 15 * 11 - 5  # O-DICE's lambda is 0.6 on five data sets
    for run in runs[:-1]:
        made_run(run.path, env=run.group.split("/")[0], reference=(0.0, 200.0))
    command = ["reproduce", "table1", "--data-dir", str(data), "--out", str(out), "--seeds", "1", "--report-only"]
    assert main(command) == 0
    shown = " ".join(capfd.readouterr().out.split())
    assert "159 of 160 runs are finished" in shown
    page = (out / "table1.html").read_text()
    assert page.count("columns 17 to 22 of 22") == 1  # the last part of the wide table
    assert "159 of 160 runs are finished. 11 methods on 15 data sets." in page
    rows = table_rows(out / "table1.csv")
    assert [row["data"] for row in rows] == [*STUDIES["table1"].data]
    assert [name for name in rows[0] if name in OURS] == OURS
    assert {row[name] for row in rows for name in OURS} == {"55.0", "–"}
    assert rows[-1]["O-DICE, reference"] == "–"  # the last run has not begun
    published = {(row["data"], name): row[f"{name}: paper"] for row in rows for name in OURS if f"{name}: paper" in row}
    expected = {
        (data, LABELS[algo]): paper_score(data, algo) for data, algo in product(STUDIES["table1"].data, IN_THE_PAPER)
    }
    assert published == {key: score.text for key, score in expected.items()}
    made_run(runs[-1].path, env="AntMaze_Large-v5", reference=(0.0, 200.0))
    draw_nothing(monkeypatch)
    assert main(command) == 0
    shown = " ".join(capfd.readouterr().out.split())
    assert "runs are finished" not in shown
    assert "160 runs." in shown
    assert "evaluated in AntMaze_Large-v5" in shown
    last = table_rows(out / "table1.csv")[-1]
    assert [last[name] for name in last if name.endswith(": paper")] == [""] * 8


@pytest.mark.long
def test_the_whole_table_on_fifteen_small_files(tmp_path, capfd):
    """Every run of Table 1 through the driver, killed and then stopped on the way.

    Nothing is trained twice, and no cell is empty.
    """
    data, out = tmp_path / "d4rl", tmp_path / "out"
    write_all(data)
    command = ["reproduce", "table1", "--data-dir", str(data), "--out", str(out), *SMALL]
    finished = lambda: {path: path.stat().st_mtime_ns for path in out.glob("runs/*/*/seed-0/result.json")}
    before: dict = {}
    for number, code in ((signal.SIGKILL, -signal.SIGKILL), (signal.SIGTERM, 128 + signal.SIGTERM)):
        enough = len(before) + 5
        driver = subprocess.Popen([sys.executable, "-m", "odice", *command], stdout=subprocess.DEVNULL)
        while len(finished()) < enough:
            assert driver.poll() is None
            time.sleep(0.5)
        driver.send_signal(number)
        assert driver.wait() == code
        assert before.items() <= finished().items()
        before = finished()
    assert main(command) == 0
    assert "of them finished already" in capfd.readouterr().out
    after = finished()
    assert len(after) == 15 * 11 - 5 - 15  # runs of one length are the same under both protocols of OptiDICE
    assert before.items() <= after.items()
    for path in after:  # a run that was interrupted has each of its evaluations once
        steps = [json.loads(line)["step"] for line in (path.parent / "evaluations.jsonl").read_text().splitlines()]
        assert steps == [20]
    rows = table_rows(out / "table1.csv")
    assert [row["data"] for row in rows] == [*STUDIES["table1"].data]
    assert all(np.isfinite(float(row[name])) for row in rows for name in OURS)


def test_imitation_takes_the_four_trajectories(d4rl, tmp_path):
    with h5py.File(d4rl / "hopper-expert-v2.hdf5", "w") as file:
        file["rewards"] = np.zeros(3)
    sources, missing = d4rl_sources(STUDIES["table2"], (), d4rl)
    assert len(missing) == 1
    three, _, _ = study_runs(STUDIES["table2"], sources, (), StudyOptions(), tmp_path)
    assert {run.settings.options.seed for run in three} == {0, 10, 100}  # the released script's
    runs, _, _ = study_runs(STUDIES["table2"], sources, (), StudyOptions(seeds=1), tmp_path)
    assert names(runs)[::5] == [f"hopper-expert-v2-traj-{i}/bc/seed-0" for i in (1, 2, 3, 4)]
    assert [run.settings.options.episode for run in runs][::5] == [(1,), (10,), (20,), (30,)]
    assert all(run.settings.options.imitation and run.settings.options.data == "hopper-expert-v2" for run in runs)


def test_imitation_of_local_experts(tmp_path):
    for name in ("hopper-expert", "halfcheetah-expert"):
        (tmp_path / f"{name}-local.hdf5").touch()
    sources, missing = local_experts((), tmp_path)
    assert [sentence.split(":")[0] for sentence in missing] == ["walker2d-expert-local"]
    assert [log.name for log in sources][3:5] == ["hopper-expert-local-traj-4", "halfcheetah-expert-local-traj-1"]
    runs, _, _ = study_runs(STUDIES["table2"], sources, ("bc", "odice"), StudyOptions(), tmp_path / "out")
    assert len(runs) == 8 * 2 * 3  # the released code's policy of 1024-1024 is for D4RL's files
    one = next(run for run in runs if run.name == "hopper-expert-local-traj-2/odice/seed-10")
    assert (one.settings.config.lam, one.settings.config.eta, one.settings.config.value_lr) == (0.4, 1.0, 1e-4)
    assert (one.settings.options.episode, one.settings.options.imitation) == ((10,), True)
    assert (one.settings.options.steps, one.settings.options.eval_episodes) == (100_000, 10)
    with pytest.raises(OdiceError, match="Did you mean 'hopper-expert'"):
        local_experts(["hoper-expert"], tmp_path)
    (mine := tmp_path / "mine.hdf5").touch()
    logs, missing = local_experts([f"ant-expert={mine}"], tmp_path)
    assert ([log.name for log in logs][:1], logs[0].data, missing) == (["ant-expert-local-traj-1"], str(mine), [])


@pytest.fixture
def made(tmp_path, monkeypatch):
    """A suite of which all is there but one log; what is in the logs does not matter before they are read."""
    folder = tmp_path / "suite"
    folder.mkdir()
    for name in suite.SUITE:
        if name != "walker2d-full-replay":
            (folder / f"{name}-local.hdf5").touch()
            (folder / f"{name}-local.json").write_text("{}")
    return folder


def test_local_logs_have_their_protocol_and_their_label(made, tmp_path):
    sources, missing = local_sources((), made)
    assert missing == [f"walker2d-full-replay-local: odice suite make walker2d-full-replay --out {made}"]
    assert all(source.name.endswith("-local") for source in sources)
    runs, _, notes = study_runs(STUDIES["table1"], sources, (), StudyOptions(seeds=1), tmp_path)
    assert len(runs) == 16 * 8 - 4
    assert [note.split()[0] for note in notes] == ["td3-bc"] * 4
    plans = {run.name: run.settings for run in runs}
    maze = plans["pointmaze-medium-diverse-local/odice/seed-0"]
    assert (maze.config.lam, maze.config.eta, maze.options.reward) == (0.7, 0.2, "minus-3")
    assert (maze.options.normalize_obs, maze.options.convention) == (True, "bootstrap")
    assert (maze.config.value_lr, maze.config.policy_lr, maze.options.eval_episodes) == (3e-4, 3e-4, 20)
    assert (maze.options.steps, maze.options.eval_every) == (100_000, 5_000)
    for rule in ("sdice", "vdice-true"):  # only the rule differs
        assert plans[f"pointmaze-medium-diverse-local/{rule}/seed-0"].config.lam == 0.7
    assert plans["pointmaze-medium-diverse-local/iql/seed-0"].config.expectile == 0.9
    assert plans["hopper-full-replay-local/iql/seed-0"].config.expectile == 0.7
    assert plans["hopper-full-replay-local/odice/seed-0"].options.reward == "return-range"
    own, _, _ = study_runs(STUDIES["curves"], sources[:1], ("odice",), StudyOptions("own", seeds=1), tmp_path)
    assert own[0].settings.config.lam == 0.6
    assert own[0].settings.preset is None


def test_a_log_of_ones_own_gets_the_settings_of_the_data_set_of_its_name(made, tmp_path):
    (mine := tmp_path / "mine.hdf5").touch()
    sources, missing = local_sources([f"halfcheetah-medium={mine}", "hospital", f"other={mine}"], made)
    assert missing == []
    assert {source.name: source.data for source in sources} == {
        "halfcheetah-medium-local": str(mine),
        "other-local": str(mine),
        "hospital-local": str(made / "hospital-local.hdf5"),
    }
    options = StudyOptions(seeds=2, first_seed=3)
    runs, _, _ = study_runs(STUDIES["curves"], sources, ("odice",), options, tmp_path / "out")
    plans = {run.name: run.settings for run in runs}
    assert {run.settings.options.seed for run in runs} == {3, 4}
    like = plans["halfcheetah-medium-local/odice/seed-3"]
    assert (like.config.lam, like.config.eta, like.options.reward) == (0.5, 0.2, "return-range")
    assert plans["other-local/odice/seed-4"].config.lam == 0.6  # the preset's general settings
    assert [source.name for source in local_sources([f"other={mine}"], tmp_path)[0]] == ["other-local"]
    for text, message in (("x=", "NAME=PATH"), ("=y", "NAME=PATH"), ("../x=y", "NAME=PATH"), ("x=nowhere", "no file")):
        with pytest.raises(OdiceError, match=message):
            local_sources([text], made)


def test_sensitivity_is_a_grid_and_other_settings_are_for_all(made, tmp_path):
    sources, _ = local_sources(["hospital"], made)
    options = StudyOptions(seeds=1, axes={"eta": [0.2, 1.0]}, settings={"batch_size": 32})
    runs, _, _ = study_runs(STUDIES["sensitivity"], sources, (), options, tmp_path)
    assert len(runs) == 5 + 5 * 2
    assert "hospital-local/odice-lam=0.8-eta=1.0/seed-0" in names(runs)
    assert all(run.settings.config.batch_size == 32 for run in runs)
    held, _, _ = study_runs(STUDIES["sensitivity"], sources, (), StudyOptions(seeds=1, settings={"eta": 0.3}), tmp_path)
    assert len(held) == 5 + 5  # one eta is no axis
    assert {run.settings.config.eta for run in held if run.settings.options.algo == "odice"} == {0.3}
    with pytest.raises(OdiceError, match="Did you mean 'batch_size'"):
        study_runs(STUDIES["sensitivity"], sources, (), StudyOptions(settings={"batch_sizes": 32}), tmp_path)


def test_a_setting_of_other_algorithms_is_left_out_with_a_word(made, tmp_path):
    """`curves` after `table1` with the same --set finds its runs."""
    sources, _ = local_sources(["hospital"], made)
    options = StudyOptions(seeds=1, settings={"critic_hidden": [64, 64], "batch_size": 32})
    runs, _, notes = study_runs(STUDIES["curves"], sources, (), options, tmp_path)
    assert notes == ["critic_hidden is no setting of sdice, odice."]
    table, _, _ = study_runs(STUDIES["table1"], sources, (), options, tmp_path)
    assert set(names(runs)) < set(names(table))
    with pytest.raises(OdiceError, match="Unknown setting"):
        study_runs(STUDIES["curves"], sources, (), StudyOptions(axes={"critic_hidden": [[64], [32]]}), tmp_path)


def test_an_algorithm_without_the_preset_gets_the_next():
    assert preset_of("odice", "paper") == "paper"
    assert preset_of("sql", "paper") == "reference"
    assert preset_of("bc", "paper") == "corl"
    assert preset_of("odice", "own") is None


@pytest.mark.slow
def test_the_command_trains_and_writes_everything_and_does_nothing_twice(tmp_path, capfd, monkeypatch):
    small = suite.Choices(suite.HOSPITAL, 60)
    monkeypatch.setitem(suite.SUITE, "hospital", suite.SuiteLog("", small, 1))
    place = suite.SuiteFolder(tmp_path / "suite")
    suite.make_log("hospital", suite.SUITE["hospital"], place)
    out = tmp_path / "out"
    command = ["reproduce", "curves", "--suite", "local", "--suite-dir", str(place.folder), "--logs", "hospital"]
    command += ["--steps", "40", "--eval-every", "20", "--eval-episodes", "3", "--seeds", "2", "--out", str(out)]
    command += ["--set", "value_hidden=[8]", "policy_hidden=[8]"]
    assert main(command) == 0
    output = capfd.readouterr().out
    assert "hospital-local (return)" in output
    assert "not D4RL's" in output.replace("\n", " ")
    written = {f"curves{suffix}" for suffix in (".md", ".tex", ".csv", "-runs.csv", ".html", ".png", ".pdf")}
    assert written <= {path.name for path in out.iterdir()}
    for name in written - {"curves.png", "curves.pdf", "curves.csv"}:
        assert "-local" in (out / name).read_text()
    assert "-local" in (out / "curves.csv").read_text()
    evaluations = out / "runs" / "hospital-local" / "odice" / "seed-1" / "evaluations.jsonl"
    before = evaluations.stat().st_mtime_ns
    draw_nothing(monkeypatch)
    assert main(command) == 0
    assert "4 of them finished already" in capfd.readouterr().out
    assert evaluations.stat().st_mtime_ns == before
    assert main([*command, "--report-only", "--last", "1"]) == 0
    assert "a run's last evaluation." in (out / "curves.md").read_text()
    assert main([*command, "--last", "0"]) == 2


def test_without_any_data_it_says_how_to_get_them(tmp_path, capfd, monkeypatch):
    monkeypatch.delenv("ODICE_DATA", raising=False)
    assert main(["reproduce", "table1", "--out", str(tmp_path / "out")]) == 2
    said = capfd.readouterr()
    assert said.out.count("missing: ") == 15
    assert "None of the data sets of table1 is there" in said.err
    assert main(["reproduce", "table2", "--suite", "local", "--out", str(tmp_path / "out")]) == 2
    said = capfd.readouterr()
    assert said.out.count("missing: ") == 3
    assert (
        "odice data collect --env Walker2d-v5 --recipe expert --out runs/suite/walker2d-expert-local.hdf5" in said.out
    )
    assert LIKE["hopper-full-replay"] == "hopper-medium-replay-v2"


def test_figure_2_is_the_toy_world(tmp_path, monkeypatch):
    from odice.cli import toy

    seen = []
    monkeypatch.setattr(toy, "main", lambda argv: seen.append(argv) or 0)
    assert main(["reproduce", "figure2", "--steps", "7", "--out", str(tmp_path)]) == 0
    assert seen == [["--out", str(tmp_path / "figure2"), "--steps", "7"]]


def test_failures_are_what_the_command_ends_with(d4rl, tmp_path, capfd):
    """A file that no reader can read: the run fails, and that is said, not that nothing has begun."""
    command = ["reproduce", "curves", "--data-dir", str(d4rl), "--logs", "hopper-medium-v2", "--algos", "odice"]
    command += ["--seeds", "1", "--steps", "10", "--retries", "0", "--out", str(tmp_path / "out")]
    assert main(command) == 2
    assert "1 of 1 runs did not finish: hopper-medium-v2/odice/seed-0 failed" in capfd.readouterr().err
    assert main([*command, "--report-only"]) == 2
    assert "No run of curves has begun" in capfd.readouterr().err
