"""Damage to what a run keeps on disk is noticed, said, and put right; nothing of another run is continued."""

import json
import shutil

import pytest

import odice
from odice.errors import OdiceError
from odice.training.checkpoint import CheckpointWarning
from odice.training.directory import RunDirectory, read_record
from odice.training.loggers import JsonLines, LogWarning, rows
from tests.training.test_resume import content, interrupted, killed, once_interrupted, train, uninterrupted  # noqa: F401

pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")


def flip(path, what, bit=0, nth=0):
    """Flip a bit of the first byte of the nth occurrence of a text."""
    data, at = bytearray(path.read_bytes()), -1
    for _ in range(nth + 1):
        at = data.index(what, at + 1)
    data[at] ^= 1 << bit
    path.write_bytes(data)


@pytest.mark.parametrize("name", ["metrics.jsonl", "evaluations.jsonl"])
@pytest.mark.parametrize(
    ("what", "bit"),
    [(b"{", 0), (b'"step": 40', 2), (b"\n", 1), (b": 4", 7)],
    ids=["row", "name", "line break", "not text"],
)
@pytest.mark.usefixtures("interrupted")
def test_a_damaged_byte_in_a_log_costs_nothing(tmp_path, uninterrupted, name, what, bit):  # noqa: F811
    """Before, every row after the first that could not be read was cut, and 'best' was that of what was left."""
    flip(tmp_path / "run" / name, what, bit)
    damaged = (tmp_path / "run" / name).read_bytes()
    with pytest.warns(LogWarning, match=f"{name} was damaged.*kept as"):
        assert content(train(tmp_path / "run")) == uninterrupted
    assert (tmp_path / "run" / "damaged" / f"{name}.0").read_bytes() == damaged


@pytest.mark.usefixtures("interrupted")
def test_a_flipped_digit_in_a_log_is_noticed(tmp_path, uninterrupted):  # noqa: F811
    flip(tmp_path / "run" / "evaluations.jsonl", b'"mean": ', nth=0)
    path = tmp_path / "run" / "evaluations.jsonl"
    first = json.loads(uninterrupted["evaluations.jsonl"].split(b"\n")[0])["mean"]
    path.write_bytes(uninterrupted["evaluations.jsonl"].replace(f'"mean": {first}'.encode(), b'"mean": 9999.0', 1))
    with pytest.warns(LogWarning, match=r"evaluations.jsonl was damaged"):
        run = train(tmp_path / "run")
    assert content(run) == uninterrupted
    assert run.result["best"]["mean"] < 9999


@pytest.mark.parametrize("name", ["metrics.jsonl", "evaluations.jsonl", "result.json"])
def test_damage_after_the_end_is_put_right_by_the_same_command(tmp_path, uninterrupted, name):  # noqa: F811
    run = train(tmp_path / "run")
    flip(tmp_path / "run" / name, b"0.", 0) if name != "result.json" else flip(tmp_path / "run" / name, b'"mean": ', 1)
    with pytest.raises(OdiceError, match=name):
        odice.Run.open(tmp_path / "run").evaluations if name != "metrics.jsonl" else run.metrics
    with pytest.warns(LogWarning):
        assert content(train(tmp_path / "run")) == uninterrupted
    assert len(odice.Run.open(tmp_path / "run").metrics) == 5


def test_a_damaged_configuration_is_one_sentence(tmp_path):
    train(tmp_path / "run", steps=40)
    path = tmp_path / "run" / "config.json"
    text = path.read_text()
    assert '"lam": 0.6' in text
    for damaged in (text.replace('"lam": 0.6', '"lam": 0.7'), text.replace('"created"', '"creates"'), "[]", "{" * 9999):
        path.write_text(damaged)
        with pytest.raises(OdiceError, match=r"config\.json"):
            train(tmp_path / "run", steps=40)
        with pytest.raises(OdiceError, match=r"config\.json"):
            odice.Run.open(tmp_path / "run").config  # noqa: B018


def test_files_of_an_older_version_are_read(tmp_path):
    (tmp_path / "result.json").write_text('{"step": 3}')
    assert read_record(tmp_path / "result.json") == {"step": 3}


# --- checkpoints ------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("interrupted")
def test_a_checkpoint_of_another_seed_is_not_continued(tmp_path, uninterrupted):  # noqa: F811
    killed(tmp_path / "other", 14, seed=1)
    for step in ("60", "120"):
        shutil.rmtree(tmp_path / "run" / "checkpoints" / step)
        shutil.copytree(tmp_path / "other" / "checkpoints" / step, tmp_path / "run" / "checkpoints" / step)
    with pytest.raises(
        OdiceError, match=r"none of its 2 checkpoints can be used \(it belongs to another run, of seed 1"
    ):
        train(tmp_path / "run")
    shutil.rmtree(tmp_path / "run" / "checkpoints" / "60")
    killed(tmp_path / "own", 7)
    shutil.copytree(tmp_path / "own" / "checkpoints" / "60", tmp_path / "run" / "checkpoints" / "60")
    with pytest.warns(CheckpointWarning, match="belongs to another run, of seed 1"):
        assert content(train(tmp_path / "run")) == uninterrupted


@pytest.mark.parametrize("change", ["sums", "count", "pending", "step", "logs"])
@pytest.mark.usefixtures("interrupted")
def test_the_description_of_a_checkpoint_is_checked(tmp_path, uninterrupted, change):  # noqa: F811
    """Sums and counts of a row that is half done change its numbers; nothing noticed before."""
    (path,) = (tmp_path / "run" / "checkpoints" / "120" / "facts").glob("metadata")
    facts = json.loads(path.read_text())
    assert change in facts
    facts[change] = {"sums": {"loss": 1.0}, "count": 7, "pending": 80, "step": 121, "logs": {}}[change]
    path.write_text(json.dumps(facts))
    with pytest.warns(CheckpointWarning, match="120: this checkpoint cannot be used"):
        assert content(train(tmp_path / "run")) == uninterrupted


@pytest.mark.usefixtures("interrupted")
def test_a_checkpoint_under_another_name_is_not_continued(tmp_path, uninterrupted):  # noqa: F811
    (tmp_path / "run" / "checkpoints" / "120").rename(tmp_path / "run" / "checkpoints" / "140")
    with pytest.warns(CheckpointWarning, match="saved at step 120"):
        assert content(train(tmp_path / "run")) == uninterrupted


# --- rows -------------------------------------------------------------------------------------------------------------


def test_a_log_without_a_checkpoint_keeps_what_can_be_read(tmp_path):
    path = tmp_path / "timing.jsonl"
    path.write_bytes(b'{"step": 1}\n\xff\xfe\n{"step": 3}\n{"st')
    with pytest.raises(OdiceError, match="is damaged: rows in it"):
        rows(path)
    with pytest.warns(LogWarning):
        JsonLines(path).close()
    assert [row["step"] for row in rows(path)] == [1, 3]
    assert len(list((tmp_path / "damaged").iterdir())) == 1


@pytest.mark.parametrize(
    "logs", [{"../outside.jsonl": "0" * 64}, ["metrics.jsonl"], "metrics.jsonl", {"metrics.jsonl": [1]}]
)
def test_a_result_chooses_no_file_to_open(tmp_path, logs, monkeypatch):
    (tmp_path / "outside.jsonl").write_text('{"step": 1}\n')
    with RunDirectory(tmp_path / "run") as folder:
        folder.write("config.json", {"config": {}})
        folder.write("result.json", {"step": 3, "logs_sha256": logs})
        opened = []
        monkeypatch.setattr("odice.training.directory.rows", lambda path, sha256=None: opened.append(path.name))
        if isinstance(logs, dict) and "metrics.jsonl" not in logs:
            assert folder.result
        else:
            with pytest.warns(LogWarning, match="logs_sha256"):
                assert folder.result is None
    assert set(opened) <= {"metrics.jsonl", "evaluations.jsonl"}
