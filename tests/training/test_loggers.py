"""Logs: rows survive, torn rows do not, trackers are optional."""

import json
import sys

import pytest

from odice.errors import OdiceError
from odice.training.loggers import JsonLines, open_sink, rows

pytestmark = pytest.mark.fast


def write(path, *steps, last_step=None):
    log = JsonLines(path, last_step)
    for step in steps:
        log.write({"step": step, "loss": step / 7})
    log.sync()
    log.close()


def test_rows_are_appended(tmp_path):
    path = tmp_path / "metrics.jsonl"
    write(path, 10, 20)
    write(path, 30, last_step=20)
    assert [row["step"] for row in rows(path)] == [10, 20, 30]
    assert rows(path)[1]["loss"] == 20 / 7


def test_what_comes_after_the_checkpoint_is_cut(tmp_path):
    path = tmp_path / "metrics.jsonl"
    write(path, 10, 20, 30)
    before = path.read_bytes()
    write(path, 20, 30, last_step=10)
    assert path.read_bytes() == before


@pytest.mark.parametrize("torn", ['{"step": 30, "lo', '{"step": 30}', "garbage\n", "[1, 2]\n"])
def test_a_torn_row_is_dropped(tmp_path, torn):
    path = tmp_path / "metrics.jsonl"
    write(path, 10, 20)
    intact = path.read_bytes()
    path.write_bytes(intact + torn.encode())
    write(path)
    assert path.read_bytes() == intact


def test_numbers_that_json_does_not_know_become_null(tmp_path):
    log = JsonLines(tmp_path / "log.jsonl")
    log.write({"step": 1, "loss": float("nan"), "returns": [1.5, float("inf")]})
    log.close()
    assert json.loads((tmp_path / "log.jsonl").read_text()) == {"step": 1, "loss": None, "returns": [1.5, None]}


@pytest.mark.parametrize("name", ["tensorboard", "wandb"])
def test_a_missing_extra_is_one_sentence(tmp_path, monkeypatch, name):
    for module in ["wandb", "tensorboard", *(m for m in sys.modules if m.startswith("tensorboard."))]:
        monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(OdiceError, match=rf"pip install 'odice\[{name}\]'"):
        open_sink(name, tmp_path, {}, 0)


def test_an_unknown_tracker_names_the_nearest(tmp_path):
    with pytest.raises(OdiceError, match="Did you mean 'tensorboard'"):
        open_sink("tensorbord", tmp_path, {}, 0)


def test_tensorboard_reads_back_what_was_logged(tmp_path):
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    first = open_sink("tensorboard", tmp_path, {}, 0)
    for step in (10, 20, 30):
        first.write("train", step, {"loss": step / 4})
    first.close()
    second = open_sink("tensorboard", tmp_path, {}, 20)  # resumed: 30 was after the checkpoint
    second.write("train", 30, {"loss": 7.5})
    second.close()
    result = EventAccumulator(str(tmp_path / "tensorboard")).Reload().Scalars("train/loss")
    assert [(event.step, event.value) for event in result] == [(10, 2.5), (20, 5.0), (30, 7.5)]
