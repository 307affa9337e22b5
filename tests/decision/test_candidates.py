"""The training of candidates: several at a time give what one alone gives, and nothing is lost when it is stopped."""

import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

from odice.data.build import from_steps
from odice.decision.candidates import CANDIDATES, train_candidates, usual_candidates
from odice.errors import OdiceError
from odice.training.run import Run

SMALL = {"policy_hidden": (16, 16), "batch_size": 64, "steps": 400, "eval_every": 100}
TWO = {"clone": {"algo": "bc", **SMALL}, "best": {"algo": "bc-10", **SMALL}}
SHARED = {"env": "none", "holdout": 0.3, "quiet": True, "checkpoint_every": 100}


def log(episodes=60, seed=0):
    rng = np.random.default_rng(seed)
    n = 3 * episodes
    actions = rng.integers(0, 2, n)
    ends = np.arange(n) % 3 == 2
    return from_steps(
        rng.normal(size=(n, 2)), actions, rng.normal(size=n), terminated=ends, costs=actions.astype(np.float32)
    )


def state(run: Run) -> str:
    return run.result["state_sha256"]


def test_what_would_be_the_same_twice_is_trained_once():
    assert usual_candidates(100_000) == CANDIDATES
    assert set(CANDIDATES) - set(usual_candidates(5_000)) == {"auto far from it"}


@pytest.mark.slow
def test_candidates_at_the_same_time_are_those_trained_alone(tmp_path):
    data, lines = log(), []
    both = train_candidates(data, TWO, SHARED, tmp_path / "both", workers=2, say=lines.append)
    assert lines[0] == "training 2 candidates, 2 at a time"
    assert sum(line.startswith("trained ") for line in lines) == 2
    for name, options in TWO.items():
        alone = train_candidates(data, {name: options}, SHARED, tmp_path / name, workers=1, say=lines.append)
        assert state(alone[name]) == state(both[name])
        assert alone[name].metrics.equals(both[name].metrics)


@pytest.mark.fast
def test_an_option_that_is_wrong_leaves_nothing_behind(tmp_path):
    """What was noted down would keep the corrected command from these names."""
    with pytest.raises(OdiceError, match="steps must be at least 1"):
        train_candidates(log(), {"clone": {"algo": "bc", "steps": 0}}, SHARED, tmp_path, workers=1)
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_a_candidate_that_cannot_be_trained_is_one_sentence(tmp_path):
    broken = {"clone": {**TWO["clone"], "best_episodes": 0.5}}
    with pytest.raises(OdiceError, match="best_episodes"):
        train_candidates(log(), broken, SHARED, tmp_path, workers=2, say=lambda line: None)
    td3 = {"td3": {"algo": "td3-bc", "steps": 100}}
    with pytest.raises(OdiceError, match=r"td3 was not trained: td3-bc needs continuous actions.*\(see .*td3.log\)"):
        train_candidates(log(), td3, SHARED, tmp_path, workers=2, say=lambda line: None)


SCRIPT = """
import sys
from tests.decision.test_candidates import SHARED, log, many
from odice.decision.candidates import train_candidates
from odice.errors import exit_code
from pathlib import Path
def work():
    train_candidates(log(), many(), SHARED, Path(sys.argv[1]), workers=2)
sys.exit(exit_code(work))
"""


def many():
    """The two candidates with enough updates that a signal arrives in between."""
    return {name: {**options, "steps": 4000} for name, options in TWO.items()}


def start(folder):
    return subprocess.Popen(
        [sys.executable, "-c", SCRIPT, str(folder)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )


@pytest.mark.slow
def test_a_stopped_and_a_killed_command_continue_and_end_with_the_same_policies(tmp_path):
    """Ctrl-C reaches both workers, which save; they also do if the command is killed. The same command continues."""
    stopped, whole = tmp_path / "stopped", tmp_path / "whole"
    checkpoints = lambda: set(stopped.glob("candidates/*/checkpoints/*"))
    for number, code in ((signal.SIGINT, 130), (signal.SIGKILL, -9)):
        before, process, until = checkpoints(), start(stopped), time.monotonic() + 120
        while checkpoints() <= before and time.monotonic() < until:
            time.sleep(0.05)
        process.send_signal(number)
        said, _ = process.communicate(timeout=120)
        assert process.returncode == code, said
        assert code != 130 or "Run the same command again to continue." in said
        assert len(list(stopped.glob("candidates/*/result.json"))) < len(TWO)  # else nothing was left to continue
    said, _ = (again := start(stopped)).communicate(timeout=240)
    assert again.returncode == 0, said
    train_candidates(log(), many(), SHARED, whole, workers=1)
    for name in TWO:
        one, two = (Run.open(folder / "candidates" / name) for folder in (stopped, whole))
        assert state(one) == state(two)


def test_a_link_in_the_place_of_a_candidate_is_refused(tmp_path):
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "out" / "candidates").mkdir(parents=True)
    for name in ("clone", "clone.json"):
        link = tmp_path / "out" / "candidates" / name
        os.symlink(tmp_path / "elsewhere", link)
        with pytest.raises(OdiceError, match="link"):
            train_candidates(log(), {"clone": TWO["clone"]}, SHARED, tmp_path / "out", workers=1)
        link.unlink()
    assert not list((tmp_path / "elsewhere").iterdir())
