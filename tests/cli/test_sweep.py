"""`odice sweep` with real workers: what is finished is not done twice, and kills change nothing."""

import json
import random
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from odice.cli.main import main
from odice.cli.sweep import axes
from odice.errors import OdiceError
from tests.training.line import line_log

pytestmark = pytest.mark.fast

TINY = ["--set", "value_hidden=[8]", "policy_hidden=[8]", "batch_size=8", "--allow", "all"]
TINY_BC = ["--set", "policy_hidden=[8]", "batch_size=8", "--allow", "all"]
SAME = ("result.json", "metrics.jsonl", "evaluations.jsonl", "policy/last/policy.safetensors")


@pytest.fixture
def data(tmp_path):
    for seed, name in enumerate(("one", "two")):
        np.savez(tmp_path / f"{name}.npz", **line_log(discrete=True, seed=seed))
    return ["--data", str(tmp_path / "one.npz"), str(tmp_path / "two.npz")]


def test_values_of_a_setting():
    result = axes(("lam=0.5,0.7", "value-hidden=[64,64],[8]", "reward=none,minus-1", "normalize_obs=true", "env=A-v1"))
    assert result == {
        "lam": [0.5, 0.7],
        "value_hidden": [[64, 64], [8]],
        "reward": ["none", "minus-1"],
        "normalize_obs": [True],
        "env": ["A-v1"],
    }
    for wrong in (("lam",), ("lam=",), ("=1",), ("lam=1", "lam=2")):
        with pytest.raises(OdiceError, match="--set"):
            axes(wrong)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--algo", "odic"], "Did you mean 'odice'"),
        (["--set", "lamm=1"], "Did you mean 'lam'"),
        (["--set", "lam=2"], "lam must lie strictly between 0 and 1"),
        (["--seeds", "0"], "seeds must be at least 1"),
    ],
)
def test_wrong_arguments_are_one_sentence_and_leave_nothing(tmp_path, capsys, arguments, message):
    assert main(["sweep", "--data", "x.npz", "--out", str(tmp_path / "sweep"), *arguments]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1
    assert not list(tmp_path.iterdir())


def test_one_driver_at_a_time(tmp_path, capsys):
    from odice.training.directory import RunDirectory

    with RunDirectory(tmp_path / "sweep"):
        (tmp_path / "sweep" / "sweep.json").touch()
        assert main(["sweep", "--data", "x.npz", "--out", str(tmp_path / "sweep")]) == 2
    assert "another process" in capsys.readouterr().err


def sweep(*arguments) -> list[str]:
    return [sys.executable, "-m", "odice.cli.main", "sweep", *arguments]


def run(*arguments, code=0) -> str:
    done = subprocess.run(sweep(*arguments), capture_output=True, text=True, timeout=1200)
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout + done.stderr


def runs(out: Path) -> list[str]:
    return sorted(str(file.parent.relative_to(out)) for file in out.glob("*/*/*/result.json"))


@pytest.mark.slow
def test_three_runs(tmp_path, data):
    out = tmp_path / "sweep"
    command = [*data[:2], "--algo", "odice", "bc", *TINY, "--steps", "60", "--out", str(out)]
    command.insert(command.index("--set") + 1, "lam=0.5,0.7")
    said = run(*command)
    settings = "value_hidden=8-policy_hidden=8-batch_size=8"
    groups = [f"odice-lam=0.5-{settings}", f"odice-lam=0.7-{settings}", "bc-policy_hidden=8-batch_size=8"]
    assert runs(out) == sorted(f"one/{group}/seed-0" for group in groups)
    assert said.count("no environment") >= 3
    logs = {file: file.stat().st_size for file in out.rglob("*.log")}
    assert len(logs) == 3
    again = run(*command)
    assert "3 of them finished already" in again
    assert {file: file.stat().st_size for file in out.rglob("*.log")} == logs

    train = ["train", *data[:2], "--algo", "odice", "--lam", "0.7", "--value-hidden", "8", "--policy-hidden", "8"]
    assert main([*train, "--batch-size", "8", "--allow", "all", "--steps", "60", "--out", str(tmp_path / "one")]) == 0
    for name in SAME[:2]:
        assert (tmp_path / "one" / name).read_bytes() == (out / "one" / groups[1] / "seed-0" / name).read_bytes()


@pytest.mark.slow
def test_a_run_that_fails_is_tried_again_and_shown(tmp_path, data):
    out = tmp_path / "sweep"
    said = run(
        data[0], str(tmp_path / "none.npz"), "--algo", "bc", *TINY_BC, "--steps", "20", "--out", str(out), code=2
    )
    assert said.count("none.npz: ") >= 2
    assert "to be tried again" in said
    assert "1 of 1 runs did not finish" in said
    assert f"{out}/none/" in said
    assert not runs(out)


# --- kills ------------------------------------------------------------------------------------------------------------


class Chaos:
    """Kills a worker and then the driver, again and again, and keeps an eye on what was finished meanwhile."""

    def __init__(self, out: Path, command: list[str]):
        self.out, self.command = out, command
        self.rng = random.Random(0)
        self.killed = {"driver": 0, "worker": 0}
        self.finished: dict[str, tuple[int, int]] = {}

    def look(self) -> None:
        """A result that is there is never written again."""
        for name in runs(self.out):
            facts = (self.out / name / "result.json").stat()
            assert self.finished.setdefault(name, (facts.st_ino, facts.st_mtime_ns)) == (
                facts.st_ino,
                facts.st_mtime_ns,
            )

    def steps(self) -> int:
        return sum(file.read_bytes().count(b"\n") for file in self.out.glob("*/*/*/metrics.jsonl"))

    def round(self, early: bool) -> None:
        before = self.steps() if self.out.exists() else 0
        with open(self.out.with_suffix(".txt"), "a") as log:
            driver = subprocess.Popen(self.command, stdout=log, stderr=log)
        try:
            children = Path(f"/proc/{driver.pid}/task/{driver.pid}/children")
            self.wait(driver, lambda: len(children.read_text().split()) == 2)
            if not early:
                self.wait(driver, lambda: self.steps() > before)
            time.sleep(self.rng.uniform(0, 0.3))
            if workers := children.read_text().split():
                subprocess.run(["kill", "-9", self.rng.choice(workers)], check=True)
                self.killed["worker"] += 1
            time.sleep(self.rng.uniform(0, 0.3))
        finally:
            self.killed["driver"] += driver.poll() is None
            driver.kill()
            driver.wait()
        self.look()

    def wait(self, driver, ready) -> None:
        deadline = time.monotonic() + 600
        while not ready():
            assert driver.poll() is None, "the matrix came to its end before all kills were done"
            assert time.monotonic() < deadline
            time.sleep(0.01)


@pytest.mark.long
@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="asks the kernel who the workers are")
def test_kills_lose_nothing_and_nothing_is_done_twice(tmp_path, data):
    command = [*data, "--algo", "odice", "iql", "bc", "--seeds", "4", "--steps", "3000", "--checkpoint-every", "500"]
    command += ["--eval-every", "500", "--workers", "2", *TINY]
    run(*command, "--out", str(tmp_path / "calm"))
    assert len(runs(tmp_path / "calm")) == 24

    chaos = Chaos(tmp_path / "wild", sweep(*command, "--out", str(tmp_path / "wild")))
    while chaos.killed["driver"] < 20 or chaos.killed["worker"] < 20:
        chaos.round(early=chaos.killed["driver"] % 2 == 0)
    before = len(chaos.finished)
    print(f"killed {chaos.killed}; {before} runs finished meanwhile")
    assert before < 24
    run(*command, "--out", str(tmp_path / "wild"))
    chaos.look()
    assert runs(tmp_path / "wild") == runs(tmp_path / "calm")
    for name in runs(tmp_path / "calm"):
        for file in SAME:
            calm, wild = (tmp_path / kind / name / file for kind in ("calm", "wild"))
            assert calm.exists() == wild.exists()
            assert not calm.exists() or calm.read_bytes() == wild.read_bytes(), wild
        ends = re.findall(r"^finished 3,000 updates", (tmp_path / "wild" / f"{name}.log").read_text(), re.MULTILINE)
        assert len(ends) <= 1  # none if it was killed between its result and its last word
        assert json.loads((tmp_path / "wild" / name / "result.json").read_text())["step"] == 3000
    assert "24 of them finished already" in run(*command, "--out", str(tmp_path / "wild"))


@pytest.mark.slow
def test_ctrl_c_and_on(tmp_path, data):
    out = tmp_path / "sweep"
    command = [
        *data,
        "--algo",
        "bc",
        *TINY_BC,
        "--eval-every",
        "500",
        "--checkpoint-every",
        "1000000",
        "--workers",
        "2",
        "--out",
        str(out),
    ]
    with subprocess.Popen(sweep(*command, "--steps", "1000000"), stderr=subprocess.PIPE, text=True) as driver:
        try:
            deadline = time.monotonic() + 300
            while sum(file.stat().st_size > 0 for file in out.rglob("metrics.jsonl")) < 2:
                assert driver.poll() is None
                assert time.monotonic() < deadline
                time.sleep(0.1)
            driver.send_signal(signal.SIGINT)
            _, error = driver.communicate(timeout=120)
        finally:
            driver.kill()
    assert driver.returncode == 130
    assert "0 of 2 runs are finished" in error
    assert "Run the same command again" in error
    assert len(list(out.glob("*/*/seed-0/checkpoints/*"))) == 2  # both workers had the time to save


@pytest.mark.parametrize("wrong", ["lam=,", "lam=0.5,,0.7", "lam= ", "hidden=[64,64", "hidden=[64,64],"])
def test_a_value_that_is_missing_or_not_closed_is_refused(wrong):
    with pytest.raises(OdiceError, match="--set takes NAME=VALUE,VALUE"):
        axes((wrong,))


def test_a_sweep_of_nothing_is_refused(tmp_path, capsys):
    assert main(["sweep", "--data", "--out", str(tmp_path / "sweep")]) == 2
    assert "needs at least one data set" in capsys.readouterr().err
