"""An interrupted run, continued, is the run that was never interrupted: same weights, same files, byte for byte."""

import errno
import os
import shutil
from concurrent.futures import Future

import pytest

import odice
from odice.errors import Interrupted, OdiceError
from odice.training.checkpoint import CheckpointWarning
from odice.training.directory import RunDirectory
from odice.training.evaluations import BackgroundEvaluator
from odice.training.interrupt import Stop
from odice.training.loggers import JsonLines
from odice.training.loop import Loop
from odice.training.recorder import Recorder
from tests.training.line import SMALL, line_log

# As in test_checkpoint: tensorstore's threads outlive a read that failed.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")

RUN = {
    **SMALL,
    "algo": "odice",
    "steps": 200,
    "eval_every": 40,
    "checkpoint_every": 60,
    "quiet": True,
    "allow": ("all",),
}
RUN |= {"env": "CartPole-v1", "eval_episodes": 2}
FILES = ("metrics.jsonl", "evaluations.jsonl", "result.json")


class Killed(BaseException):
    pass


def train(out, **changes):
    return odice.train(line_log(discrete=True), out=out, **{**RUN, **changes})


def content(run):
    values = {name: (run.path / name).read_bytes() for name in FILES}
    for which in ("last", "best"):
        for name in ("policy.safetensors", "policy.json"):
            values[f"{which}/{name}"] = (run.path / "policy" / which / name).read_bytes()
    return values


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory):
    """A run that nobody interrupted."""
    return content(train(tmp_path_factory.mktemp("uninterrupted") / "run"))


def killed(out, pieces=None, **changes):
    """Train until the process is gone, after so many pieces; nothing is saved on the way out."""
    with pytest.MonkeyPatch.context() as patch:
        if pieces is not None:
            advance, seen = Loop._advance, []

            def counted(self, length):
                if len(seen) == pieces:
                    raise Killed
                seen.append(length)
                advance(self, length)

            patch.setattr(Loop, "_advance", counted)
        with pytest.raises(Killed):
            train(out, **changes)


@pytest.fixture(scope="module")
def once_interrupted(tmp_path_factory):
    """A run that was killed after 14 of its 20 pieces, at step 140; its newest checkpoint is that of step 120."""
    folder = tmp_path_factory.mktemp("interrupted") / "run"
    killed(folder, 14)
    return folder


@pytest.fixture
def interrupted(tmp_path, once_interrupted):
    """A copy of that run, in the test's folder."""
    return shutil.copytree(once_interrupted, tmp_path / "run")


def test_killed_at_five_moments(tmp_path, uninterrupted):
    for pieces in (5, 9, 2, 7, 3):
        killed(tmp_path / "run", pieces)
    assert content(train(tmp_path / "run", resume=True)) == uninterrupted


def test_a_finished_run_made_longer_is_the_long_run(tmp_path, uninterrupted):
    train(tmp_path / "run", steps=120)
    assert content(train(tmp_path / "run")) == uninterrupted
    with pytest.raises(OdiceError, match="steps: 200 there, 120 now"):
        train(tmp_path / "run", steps=120)
    with pytest.raises(OdiceError, match="eval_every: 40 there, 50 now; steps: 200 there, 300 now"):
        train(tmp_path / "run", steps=300, eval_every=50)


def test_a_run_with_a_schedule_says_why_it_cannot_be_longer(tmp_path):
    config = {"steps": 200, "eval_every": 40, "settings": {"cosine_steps": 200, "lam": 0.5}}
    longer = {**config, "steps": 300, "settings": {**config["settings"], "cosine_steps": 300}}
    with RunDirectory(tmp_path) as folder:
        folder.claim(config, {})
        with pytest.raises(OdiceError, match=r"fall to 0 over its 200 updates.*--cosine-steps 0"):
            folder.claim(longer, {})
        with pytest.raises(OdiceError, match=r"eval_every: 40 there, 50 now; settings.cosine_steps"):
            folder.claim({**longer, "eval_every": 50}, {})
        with pytest.raises(OdiceError, match=r"lam: 0.5 there, 0.6 now"):
            folder.claim({**config, "settings": {**config["settings"], "lam": 0.6}}, {})


def test_stopped_at_random_moments(tmp_path, uninterrupted):
    """A signal saves on the spot, also in the middle of a row: no update is lost or repeated."""
    for pieces in (1, 3, 0, 1):
        calls = []

        def requested(self, pieces=pieces, calls=calls):
            calls.append(1)
            self.signal = 15 if len(calls) > pieces else 0
            return bool(self.signal)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Stop, "requested", property(requested))
            with pytest.raises(Interrupted, match="Run the same command again") as stopped:
                train(tmp_path / "run")
        saved = [p.name for p in (tmp_path / "run" / "checkpoints").iterdir()]
        assert any(f"stopped at step {step};" in str(stopped.value) for step in saved)
    assert content(train(tmp_path / "run")) == uninterrupted


def test_stopped_before_the_first_update(tmp_path, monkeypatch):
    monkeypatch.setattr(Stop, "requested", property(lambda self: True))
    with pytest.raises(Interrupted, match=r"^stopped before the first update; run the same command again to start.$"):
        train(tmp_path / "run")
    assert not list((tmp_path / "run").glob("checkpoints/*"))


def test_killed_while_an_evaluation_is_under_way(tmp_path, uninterrupted, monkeypatch):
    """The checkpoint at 60 carries the policy of step 40, whose evaluation had not finished."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(BackgroundEvaluator, "submit", lambda self, policy, seed: Future())
        killed(tmp_path / "run", 7)
    assert (tmp_path / "run" / "evaluations.jsonl").read_text() == ""
    assert [p.name for p in (tmp_path / "run" / "checkpoints").iterdir()] == ["60"]
    assert content(train(tmp_path / "run")) == uninterrupted


def test_stopped_while_the_next_evaluation_waits_for_the_one_before(tmp_path, uninterrupted):
    """The checkpoint at 80 remembers both: the one of 40 that goes on, and the one of 80 that could not start."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(BackgroundEvaluator, "submit", lambda self, policy, seed: Future())
        patch.setattr(Stop, "requested", property(lambda self: bool(self.signal)))

        def waits(self, wait, collect=Recorder._collect):
            if wait and self._pending:
                self._stop.signal = 15
            return collect(self, wait)

        patch.setattr(Recorder, "_collect", waits)
        with pytest.raises(Interrupted, match="stopped at step 80"):
            train(tmp_path / "run")
    assert sorted(p.name for p in (tmp_path / "run" / "checkpoints").iterdir()) == ["60", "80"]
    assert content(train(tmp_path / "run")) == uninterrupted


def test_killed_between_the_last_checkpoint_and_the_end(tmp_path, uninterrupted, monkeypatch):
    def die(self):
        raise Killed

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Loop, "_finish", die)
        killed(tmp_path / "run")
    assert not (tmp_path / "run" / "result.json").exists()
    assert content(train(tmp_path / "run")) == uninterrupted


@pytest.mark.usefixtures("interrupted")
def test_a_damaged_newest_checkpoint_costs_one_interval(tmp_path, uninterrupted):
    for path in (tmp_path / "run" / "checkpoints" / "120").rglob("*"):
        if path.is_file():
            path.write_bytes(b"")
    with pytest.warns(CheckpointWarning, match="120: this checkpoint cannot be used"):
        assert content(train(tmp_path / "run")) == uninterrupted


@pytest.mark.usefixtures("interrupted")
def test_torn_rows_and_temporary_files_are_gone(tmp_path, uninterrupted):
    with open(tmp_path / "run" / "metrics.jsonl", "a") as file:
        file.write('{"step": 170, "value_lo')
    (tmp_path / "run" / "policy" / ".last.0123abcd.tmp").mkdir()
    assert content(train(tmp_path / "run")) == uninterrupted
    assert not [p for p in (tmp_path / "run").rglob(".*") if p.name != ".lock"]


def test_a_disk_that_fills_up_costs_nothing_but_time(tmp_path, uninterrupted):
    written = JsonLines.write

    def full(self, row):
        if row["step"] >= 120:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        written(self, row)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(JsonLines, "write", full)
        with pytest.raises(OdiceError, match=r"No space left on device.*its checkpoints are intact"):
            train(tmp_path / "run")
    assert content(train(tmp_path / "run")) == uninterrupted


@pytest.mark.slow
def test_seeds_in_one_vmap_resume(tmp_path):
    """One seed's newest checkpoint is missing: all go back to the newest they share."""
    vmapped = {"seeds": 2, "parallel": "vmap"}
    uninterrupted = [content(run) for run in train(tmp_path / "uninterrupted", **vmapped).seeds]
    killed(tmp_path / "run", 14, **vmapped)
    shutil.rmtree(tmp_path / "run" / "seed-1" / "checkpoints" / "120")
    assert [content(run) for run in train(tmp_path / "run", **vmapped).seeds] == uninterrupted
