"""A run folder may come out of an archive, and archives carry symbolic links: nothing outside of it is changed."""

import hashlib
import os
import shutil

import numpy as np
import pytest

import odice
from odice.cli.main import main
from odice.errors import OdiceError
from odice.sweeps.driver import begin
from odice.sweeps.runs import make_runs
from odice.training.checkpoint import Checkpoints
from odice.training.pool import Pool
from tests.training.line import line_log

RUN = {"algo": "bc", "policy_hidden": (16,), "batch_size": 16, "quiet": True, "allow": ("all",), "env": "none"}
RUN |= {"eval_every": 20, "checkpoint_every": 20}
FOLDERS = ["checkpoints", "checkpoints/20", "checkpoints/9", "policy", "policy/last", "policy/step-20", "policy/step-9"]
FOLDERS += ["policy/.last.01234567.tmp", "policy/.last.old", "policy/.step-9.01234567.tmp", "damaged", "tensorboard"]
FILES = [".lock", "config.json", "metrics.jsonl", "evaluations.jsonl", "timing.jsonl", "result.json", "estimates.jsonl"]
FILES += [
    "policy/last/policy.json",
    "policy/last/policy.safetensors",
    ".config.json.01234567.tmp",
    "damaged/result.json",
]


def train(out, **changes):
    return odice.train(line_log(discrete=True), out=out, **{**RUN, "steps": 40, **changes})


def state(folder):
    """Everything in a folder, down to the last change."""
    return {
        str(path.relative_to(folder)): (
            path.lstat().st_mtime_ns,
            hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else None,
        )
        for path in sorted(folder.rglob("*"))
    }


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    path = tmp_path_factory.mktemp("finished") / "run"
    train(path, steps=20)
    return path


@pytest.fixture
def victim(tmp_path):
    """A folder of somebody's, with names that odice deletes or overwrites where they are its own."""
    folder = tmp_path / "victim"
    for name in ("thesis/chapter-1", "step-9/a", "9/state/a", ".last.01234567.tmp/a", "20.orbax-checkpoint-tmp/a"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("years of work")
    for name in ("file", "result.json", "policy.json", "metrics.jsonl.0"):
        (folder / name).write_text("years of work\n")
    return folder


def put_link(place, target):
    """Replace what is at `place` by a link."""
    shutil.rmtree(place) if place.is_dir() else place.unlink(missing_ok=True)
    place.parent.mkdir(parents=True, exist_ok=True)
    place.symlink_to(target)


@pytest.mark.parametrize("name", FOLDERS + FILES)
def test_a_continued_run_changes_nothing_behind_a_link(name, finished, victim, tmp_path):
    shutil.copytree(finished, tmp_path / "run")
    put_link(tmp_path / "run" / name, victim / "file" if name in FILES else victim)
    before = state(victim)
    with pytest.raises(OdiceError, match=r"is a symbolic link.*remove the link"):
        train(tmp_path / "run")
    assert state(victim) == before


@pytest.mark.parametrize("content", [True, False])
def test_a_dangling_link_makes_no_file(content, finished, tmp_path):
    if content:
        shutil.copytree(finished, tmp_path / "run")
    put_link(tmp_path / "run" / ".lock", tmp_path / "elsewhere")
    with pytest.raises(OdiceError, match="symbolic link"):
        train(tmp_path / "run")
    assert not (tmp_path / "elsewhere").exists()


def test_a_damaged_result_is_not_moved_through_a_link(finished, victim, tmp_path):
    """`RunDirectory.result` is also read of runs that this process does not work on."""
    shutil.copytree(finished, tmp_path / "run")
    (tmp_path / "run" / "result.json").write_text("{")
    put_link(tmp_path / "run" / "damaged", victim)
    before = state(victim)
    with pytest.raises(OdiceError, match="symbolic link"):
        odice.training.directory.RunDirectory(tmp_path / "run").result  # noqa: B018
    assert state(victim) == before


def test_a_second_name_of_a_file_is_not_written_through(finished, tmp_path):
    for name in (".lock", "metrics.jsonl"):
        shutil.copytree(finished, tmp_path / name / "run")
        (tmp_path / name / "other").write_bytes((tmp_path / name / "run" / name).read_bytes())
        (tmp_path / name / "run" / name).unlink()
        os.link(tmp_path / name / "other", tmp_path / name / "run" / name)
        before = (tmp_path / name / "other").read_bytes()
        with pytest.raises(OdiceError, match="hard link"):
            train(tmp_path / name / "run")
        assert (tmp_path / name / "other").read_bytes() == before


def test_strange_names_in_its_folders_are_left_alone(finished, tmp_path):
    """Only names that odice writes itself are deleted."""
    shutil.copytree(finished, tmp_path / "run")
    strange = ["checkpoints/notes/a", "checkpoints/x.orbax-checkpoint-tmp/a", "policy/my-step-3/a", "policy/step-x/a"]
    strange += ["policy/.last.mine.tmp/a", ".config.json.mine.tmp"]
    for name in strange:
        (tmp_path / "run" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "run" / name).write_text("mine")
    ours = ["checkpoints/7.orbax-checkpoint-tmp", "policy/step-7", "policy/.step-7.01234567.tmp"]
    for name in ours:
        (tmp_path / "run" / name).mkdir()
    train(tmp_path / "run")
    assert all((tmp_path / "run" / name).read_text() == "mine" for name in strange)
    assert not any((tmp_path / "run" / name).exists() for name in ours)


def test_the_folder_that_the_user_names_may_be_a_link(tmp_path):
    (tmp_path / "disk" / "run").mkdir(parents=True)
    (tmp_path / "runs").symlink_to(tmp_path / "disk")
    (tmp_path / "here").symlink_to(tmp_path / "disk" / "run")
    train(tmp_path / "here", steps=20)
    assert train(tmp_path / "runs" / "run").result["step"] == 40
    assert (tmp_path / "disk" / "run" / "policy" / "last" / "policy.json").exists()
    put_link(tmp_path / "disk" / "run" / "policy", tmp_path / "elsewhere")
    with pytest.raises(OdiceError, match="here/policy is a symbolic link"):
        train(tmp_path / "here", steps=60)


@pytest.mark.parametrize("parallel", ["processes", "vmap"])
def test_the_folder_of_one_of_several_seeds_may_not(parallel, tmp_path):
    (tmp_path / "disk").mkdir()
    put_link(tmp_path / "run" / "seed-1", tmp_path / "disk")
    with pytest.raises(OdiceError, match="seed-1 is a symbolic link"):
        train(tmp_path / "run", seeds=2, parallel=parallel)
    assert not any((tmp_path / "disk").iterdir())


def test_checkpoints_alone_refuse_links(victim, tmp_path):
    put_link(tmp_path / "checkpoints", victim)
    put_link(tmp_path / "inner" / "5", victim)
    before = state(victim)
    for folder in ("checkpoints", "inner"):
        with pytest.raises(OdiceError, match="symbolic link"):
            Checkpoints(tmp_path / folder)
    assert state(victim) == before


# --- sweeps -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name", ["log/bc/seed-0.log", "log/bc/seed-0/.lock", "sweep.json", ".lock", "log", "log/bc/seed-0"]
)
def test_a_sweep_changes_nothing_behind_a_link(name, victim, tmp_path, capsys):
    np.savez(tmp_path / "log.npz", **line_log(discrete=True))
    put_link(tmp_path / "sweep" / name, victim / "file" if "." in name else victim)
    before = state(victim)
    command = ["sweep", "--data", tmp_path / "log.npz", "--algo", "bc", "--out", tmp_path / "sweep"]
    assert main([*map(str, command), "--env", "none", "--steps", "20", "--workers", "1"]) == 2
    said = capsys.readouterr()
    assert "is a symbolic link" in said.err
    assert "Traceback" not in said.err
    assert state(victim) == before


def test_the_worker_of_a_run_has_a_log_of_its_own(victim, tmp_path):
    """Also where nobody has checked the sweep's folder, as on the node of a cluster."""
    (run,) = make_runs(tmp_path / "sweep", ["log.npz"], ["bc"])
    before = state(victim)
    put_link(run.log, victim / "file")
    with pytest.raises(OdiceError, match="symbolic link"):
        begin(run, Pool(1).start)
    run.log.unlink()
    put_link(run.path.parent, victim)
    with pytest.raises(OdiceError, match="symbolic link"):
        begin(run, Pool(1).start)
    assert state(victim) == before


# --- other outputs ----------------------------------------------------------------------------------------------------


def test_outputs_replace_links_and_do_not_follow_them(finished, victim, tmp_path):
    """A schema, an export, a page: the link is replaced, or the command refused; what it names stays as it is."""
    (tmp_path / "log.csv").write_text(
        "episode,x,action,reward\n" + "".join(f"{i // 5},{i},{i % 2},0\n" for i in range(50))
    )
    before = state(victim)
    commands = {
        "new.toml": ["data", "schema", "log.csv", "--out"],
        "new.onnx": ["export", str(finished), "--onnx"],
        "new.parquet": ["data", "convert", "log.csv", "--out"],
        "new.html": ["report", str(finished), "--out"],
        "page.html": ["data", "inspect", "log.csv", "--allow", "all", "--html"],
    }
    for name, command in commands.items():
        (tmp_path / name).symlink_to(victim / f"made-{name}")
        words = [str(tmp_path / word) if word == "log.csv" else word for word in command]
        assert main([*words, str(tmp_path / name)]) in (0, 1, 2)
    assert state(victim) == before


@pytest.mark.parametrize("name", ["candidates", "candidates/clone"])
def test_a_decision_changes_nothing_behind_a_link(name, victim, tmp_path):
    put_link(tmp_path / "decision" / name, victim)
    before = state(victim)
    data = odice.load(line_log(discrete=True))
    options = {"candidates": {"clone": RUN}, "steps": 20, "allow": ("all",)}
    with pytest.raises(OdiceError, match="is a symbolic link"):
        odice.decide(data, out=tmp_path / "decision", **options)
    assert state(victim) == before


def test_a_candidate_is_trained_beside_a_folder_that_is_not_its_own(victim, tmp_path):
    """And is continued in its own, unless that has a link now."""
    candidates = tmp_path / "decision" / "candidates"
    put_link(candidates / "clone" / "checkpoints", victim)
    before = state(victim)
    data, lines = odice.load(line_log(discrete=True)), []
    options = {"candidates": {"clone": RUN}, "steps": 20, "allow": ("all",), "workers": 1, "say": lines.append}
    odice.decide(data, out=tmp_path / "decision", **options)
    assert (candidates / "clone-2" / "result.json").exists()
    assert any("candidates as clone was not made from this log" in line for line in lines)
    (candidates / "clone-2" / "result.json").unlink()
    put_link(candidates / "clone-2" / "checkpoints", victim)
    with pytest.raises(OdiceError, match="clone-2/checkpoints is a symbolic link"):
        odice.decide(data, out=tmp_path / "decision", **options)
    assert state(victim) == before
