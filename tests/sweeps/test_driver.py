"""A sweep: which runs there are, and that each comes to its end exactly once, whatever the workers do.

The driver is tested with shell scripts in place of workers; tests/cli/test_sweep.py has real ones.
"""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from odice.errors import Interrupted, OdiceError
from odice.machine import free_core
from odice.sweeps.driver import Driver, Watcher, begin, outcome_of
from odice.sweeps.execute import Part, listing
from odice.sweeps.runs import SweepRun, agrees, busy, make_runs, record, result
from odice.training.directory import RunDirectory
from odice.training.pool import Pool, Worker
from odice.training.prepare import prepare
from odice.training.processes import worker_settings
from odice.training.settings import resolve
from tests.training.line import SMALL, line_log

pytestmark = pytest.mark.fast


def runs_in(out, n=3, **options):
    return make_runs(out, ["log.npz"], ["bc"], seeds=n, **{"steps": 100, **options})


def finish(run, last=None, **changes):
    """Write what a finished run leaves."""
    with RunDirectory(run.path) as folder:
        folder.write("config.json", {"config": {**run.identity, "env": None, "data": "0123", **changes}})
        folder.write("result.json", {"step": 100, "last": last or {}, "best": None})


# --- which runs ------------------------------------------------------------------------------------------------------


def test_a_setting_varies_the_algorithms_that_have_it(tmp_path):
    runs = make_runs(
        tmp_path,
        ["a/one.npz", "mujoco/hopper/expert-v0"],
        ["odice", "bc"],
        seeds=2,
        first_seed=3,
        axes={"lam": [0.5, 0.7], "batch_size": [8]},
        steps=50,
    )
    groups = {"odice-lam=0.5-batch_size=8": 0.5, "odice-lam=0.7-batch_size=8": 0.7, "bc-batch_size=8": None}
    expected = [f"{d}/{g}/seed-{s}" for d in ("one", "mujoco-hopper-expert-v0") for g in groups for s in (3, 4)]
    assert [run.name for run in runs] == expected
    for run in runs:
        plan = run.settings
        assert (plan.options.steps, plan.config.batch_size) == (50, 8)
        assert run.path == tmp_path / run.name
        assert plan.options.seed == int(run.name[-1])
        if (lam := groups[run.group.split("/")[1]]) is not None:
            assert plan.config.lam == lam


def test_lists_and_long_settings_have_folders_too(tmp_path):
    (run,) = make_runs(tmp_path, ["x=/some/where/log.npz"], ["bc"], axes={"policy_hidden": [[64, 32]]})
    assert run.name == "x/bc-policy_hidden=64x32/seed-0"
    assert run.settings.options.data == "/some/where/log.npz"
    (run,) = make_runs(tmp_path, ["x"], ["bc"], axes={"policy_hidden": [[64] * 60]})
    assert len(run.name) < 150


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"axes": {"lamm": [1]}}, "Did you mean 'lam'"),
        ({"axes": {"seed": [1]}}, "cannot vary 'seed'"),
        ({"axes": {"lam": [2]}}, "lam must lie strictly between 0 and 1"),
        ({"data": ["a/log.npz", "b/log.npz"]}, "would share the folder"),
        ({"algos": ["odic"]}, "Did you mean 'odice'"),
    ],
)
def test_a_wrong_sweep_is_one_sentence(tmp_path, given, message):
    with pytest.raises(OdiceError, match=message):
        make_runs(tmp_path, **{"data": ["log.npz"], "algos": ["odice"], **given})
    assert not list(tmp_path.iterdir())


# --- what is there ----------------------------------------------------------------------------------------------------


def test_another_sweep_is_refused_a_larger_one_extends(tmp_path):
    with RunDirectory(tmp_path) as folder:
        assert record(folder, runs_in(tmp_path, 2)) is None
        before = (tmp_path / "sweep.json").read_bytes()
        assert record(folder, runs_in(tmp_path, 2)) is None
        with pytest.raises(OdiceError, match=r"eval_every: 1000 there, 7 now"):
            record(folder, runs_in(tmp_path, 2, eval_every=7))
        with pytest.raises(OdiceError, match=r"steps: 100 there, 99 now"):
            record(folder, runs_in(tmp_path, 2, steps=99))
        assert (tmp_path / "sweep.json").read_bytes() == before
        assert "2 runs are new" in (record(folder, runs_in(tmp_path, 4)) or "")
        assert "3 runs there are not part of this command" in (record(folder, runs_in(tmp_path, 1, steps=200)) or "")
    content = json.loads((tmp_path / "sweep.json").read_text())["runs"]
    assert [content[f"log/bc/seed-{i}"]["steps"] for i in range(4)] == [200, 100, 100, 100]
    (tmp_path / "config.json").write_text("{}")
    with RunDirectory(tmp_path) as folder, pytest.raises(OdiceError, match="is a run itself"):
        record(folder, runs_in(tmp_path, 1))


def test_a_run_is_finished_when_its_result_is_of_its_configuration(tmp_path):
    run = runs_in(tmp_path, 1)[0]
    assert result(run) is None
    finish(run)
    assert result(run) is not None
    for change in ({"steps": 99}, {"settings": {**run.identity["settings"], "batch_size": 1}}, {"algo": "iql"}):
        finish(run, **change)
        assert result(run) is None, change
    finish(run)
    (run.path / "config.json").write_text("{")
    assert result(run) is None


@pytest.mark.parametrize(
    "options", [{"distance": "near"}, {"distance": "far"}, {"chosen_share": 0.3}, {"algo": "odice"}]
)
def test_what_a_small_log_decides_does_not_make_a_finished_run_another_one(options):
    settings = resolve(line_log(), **{"algo": "auto", "env": "none", "allow": ("all",), **SMALL, **options})
    run, trained = SweepRun("line/auto/seed-0", settings), prepare(settings).settings
    assert agrees(json.loads(json.dumps(trained.identity())) | {"env": None}, run.identity)
    if "distance" in options:
        assert trained.config.chosen_share == 1.0
        other = {"near": "far", "far": "near"}[options["distance"]]
        assert not agrees(trained.replace("", distance=other).identity() | {"env": None}, run.identity)


def test_a_run_is_busy_while_its_folder_is_locked(tmp_path):
    run = runs_in(tmp_path, 1)[0]
    assert not busy(run)
    with RunDirectory(run.path):
        (run.path / "something").touch()
        assert busy(run)
    assert not busy(run)


# --- the driver -------------------------------------------------------------------------------------------------------


class Scripts(Watcher):
    """Stands in for workers: a run's n-th attempt is the n-th of its scripts; `ok` writes what a finished run
    leaves."""

    def __init__(self, monkeypatch, scripts=None, share=False):
        self.scripts = scripts or {}
        self.order, self.most, self.again, self.shared = [], 0, [], []
        monkeypatch.setattr("odice.training.pool.start", self.start)
        monkeypatch.setattr("odice.sweeps.driver.POLL_SECONDS", 0.01)
        if not share:
            monkeypatch.setattr("odice.sweeps.driver.SMALL_STEPS", 0)

    def start(self, name, command, environment, log):
        jobs = [json.loads(argument) for argument in command[2:]]
        self.shared.append([job["options"]["seed"] for job in jobs])
        script = "exit 0"
        for job in jobs:  # as a worker of several runs: until one does not end well
            run = SweepRun(name, worker_settings(job))
            seed = run.settings.options.seed
            scripts = self.scripts.get(seed, ["ok"])
            script = scripts[min(self.order.count(seed), len(scripts) - 1)]
            self.order.append(seed)
            log = Path(job["log"])
            if not script.startswith("ok"):
                break
            finish(run)
            script = script[2:] or "exit 0"
        with open(log, "ab") as file:
            process = subprocess.Popen(["sh", "-c", script], stdout=file, stderr=file, cwd=log.parent)
        return Worker(name, process, None)

    def progress(self, running):
        self.most = max(self.most, len(running))

    def ended(self, attempt, outcome, again):
        self.again.append(again)


def test_every_run_once_and_no_more_at_a_time_than_allowed(tmp_path, monkeypatch):
    runs = runs_in(tmp_path, 6)
    finish(runs[2])
    workers = Scripts(monkeypatch)
    outcomes = Driver(runs, 2, watcher=workers).run()
    assert {outcome.ending for outcome in outcomes.values()} == {"finished"}
    assert outcomes.keys() == {run.name for run in runs}
    assert sorted(workers.order) == [0, 1, 3, 4, 5]
    assert workers.most <= 2
    workers.order.clear()
    Driver(runs, 2, watcher=workers).run()
    assert workers.order == []


@pytest.mark.parametrize("retries", [0, 2])
def test_failures_are_retried_so_often_and_shown_with_their_log(tmp_path, monkeypatch, retries):
    runs = runs_in(tmp_path, 4)
    scripts = {
        0: ["seq 100; echo broken >&2; exit 7"],
        1: ["echo far; exit 3"],
        2: ["kill -9 $$"] * retries + ["ok"],
        3: ["exit 0"],
    }
    workers = Scripts(monkeypatch, scripts)
    outcomes = Driver(runs, 2, retries, workers).run()
    broken, far, killed, empty = (outcomes[run.name] for run in runs)
    assert (broken.ending, broken.code, broken.tail) == ("failed", 7, "97\n98\n99\n100\nbroken")
    assert (far.ending, far.code, far.tail) == ("diverged", 3, "far")
    assert killed.ending == "finished"
    assert (empty.ending, empty.code) == ("failed", 0)  # it says that all is well, but there is no result
    assert [workers.order.count(i) for i in range(4)] == [1 + retries, 1, 1 + retries, 1 + retries]
    assert sum(workers.again) == 3 * retries


def test_small_runs_share_a_process_as_long_as_every_core_has_one(tmp_path, monkeypatch):
    workers = Scripts(monkeypatch, share=True)
    outcomes = Driver(runs_in(tmp_path / "a", 7), 2, watcher=workers).run()
    assert workers.shared == [[0, 1, 2, 3], [4, 5], [6]]  # fewer towards the end, so that no core waits long
    assert [outcomes[f"log/bc/seed-{i}"].ending for i in range(7)] == ["finished"] * 7
    workers.shared.clear()
    Driver(runs_in(tmp_path / "b", 30), 1, watcher=workers).run()
    assert [len(seeds) for seeds in workers.shared] == [8, 8, 8, 6]
    workers.shared.clear()
    Driver(runs_in(tmp_path / "c", 3, steps=5_001), 1, watcher=workers).run()
    assert workers.shared == [[0], [1], [2]]
    workers.shared.clear()
    mixed = make_runs(tmp_path / "d", ["log.npz", "b.npz"], ["bc", "iql"], seeds=2, steps=100)
    Driver(mixed, 1, watcher=workers).run()
    assert workers.shared == [[0, 1, 0, 1]] * 2  # of one log


@pytest.mark.parametrize("code", [3, 7])
def test_a_run_that_fails_in_a_shared_process_fails_alone(tmp_path, monkeypatch, code):
    workers = Scripts(monkeypatch, {1: [f"echo broken; exit {code}", "ok"]}, share=True)
    outcomes = Driver(runs_in(tmp_path, 4), 1, retries=1, watcher=workers).run()
    one = outcomes.pop("log/bc/seed-1")
    assert {outcome.ending for outcome in outcomes.values()} == {"finished"}
    assert len(outcomes) == 3
    if code == 3:
        assert (one.ending, one.tail) == ("diverged", "broken")
        assert workers.shared == [[0, 1, 2, 3], [2, 3]]
    else:
        assert one.ending == "finished"
        assert workers.shared == [[0, 1, 2, 3], [2, 3], [1]]  # after the others, and not with them


def test_the_reason_is_what_odice_said_whatever_other_libraries_print_after_it(tmp_path):
    run = runs_in(tmp_path, 1)[0]
    run.log.parent.mkdir(parents=True)
    noise = ["odice: warning: slow", *(f"RuntimeError: Event loop is closed ({i})" for i in range(9))]
    run.log.write_text("\n".join(["odice: the disk is full.", *noise]))
    assert outcome_of(run, 2).tail.splitlines() == [*noise[-4:], "odice: the disk is full."]
    run.log.write_text("\n".join(noise))
    assert outcome_of(run, 1).tail.splitlines() == noise[-5:]


def test_a_worker_that_is_killed_after_its_result_has_not_failed(tmp_path, monkeypatch):
    runs = runs_in(tmp_path, 1)
    workers = Scripts(monkeypatch, {0: ["ok kill -9 $$"]})
    assert Driver(runs, 1, 0, workers).run()[runs[0].name].ending == "finished"
    assert workers.order == [0]


def test_a_run_that_somebody_else_holds_is_waited_for(tmp_path, monkeypatch):
    runs = runs_in(tmp_path, 2)
    workers = Scripts(monkeypatch, {1: ["exit 2"]})
    orphan = RunDirectory(runs[0].path).__enter__()
    (runs[0].path / "config.json").touch()
    seen = []

    def ended(attempt, outcome, again):
        seen.append((attempt.run.name, again))
        if len(seen) == 1:  # the other run has failed; the orphan finishes its own
            orphan.__exit__()
            finish(runs[0])

    workers.ended = ended
    outcomes = Driver(runs, 2, 0, workers).run()
    assert workers.order == [1]
    assert seen == [(runs[1].name, False)]
    assert [outcomes[run.name].ending for run in runs] == ["finished", "failed"]


def test_a_worker_whose_run_is_taken_has_not_failed(tmp_path, monkeypatch):
    run = runs_in(tmp_path, 1)[0]
    workers = Scripts(monkeypatch, {0: ["exit 2", "ok"]})
    orphan = RunDirectory(run.path)
    workers.started = lambda attempt: orphan.__enter__() if len(workers.order) == 1 else None
    workers.progress = lambda running: orphan.__exit__() if not running else None
    outcomes = Driver([run], 1, 0, workers).run()
    assert outcomes[run.name].ending == "finished"
    assert workers.order == [0, 0]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_reaches_the_workers_and_says_how_to_continue(tmp_path, monkeypatch, number):
    runs = runs_in(tmp_path, 3)
    script = "trap 'echo saved >> saved; exit 143' INT TERM; touch ready-$$; while :; do sleep 0.02; done"
    workers = Scripts(monkeypatch, {1: [script], 2: [script]})
    sent = []

    def progress(running):
        if not sent and len(list(tmp_path.glob("log/bc/ready-*"))) == 2:
            sent.append(os.kill(os.getpid(), number))

    workers.progress = progress
    before = signal.getsignal(number)
    with pytest.raises(Interrupted, match=r"1 of 3 runs are finished.*same command again") as stopped:
        Driver(runs, 2, watcher=workers).run()
    assert stopped.value.signal == number
    assert (tmp_path / "log/bc/saved").read_text() == "saved\nsaved\n"
    assert signal.getsignal(number) is before


@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="this system does not pin")
def test_two_commands_do_not_choose_the_same_core():
    own = sorted(os.sched_getaffinity(0))
    if len(own) < 2:
        pytest.skip("one core")
    others = [subprocess.Popen(["sleep", "60"]) for _ in range(20)]
    try:
        for core, number in ((own[0], 0), (own[1], 1)):  # twenty more than whatever else is kept on a core here
            for process in others:
                os.sched_setaffinity(process.pid, {core})
            assert free_core(()) != number
            assert free_core([n for n in range(len(own)) if n != number]) == number  # none but this one is left
    finally:
        for process in others:
            process.kill()
            process.wait()


@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="this system does not pin")
def test_a_worker_is_alone_on_its_core_and_knows_its_parent(tmp_path, monkeypatch):
    run = runs_in(tmp_path, 1)[0]
    script = "import os; print(os.sched_getaffinity(0), os.environ['ODICE_PARENT'], os.environ['XLA_FLAGS'])"
    fake = Path(tmp_path / "python")
    fake.write_text(f'#!/bin/sh\nsleep 0.2; exec {sys.executable} -c "{script}"\n')
    fake.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(fake))
    pool = Pool(len(os.sched_getaffinity(0)), pinned=True)
    attempts = [begin(run, pool.start) for _ in range(pool.free)]
    assert [attempt.worker.process.wait(60) for attempt in attempts] == [0] * len(attempts)
    lines = [line.split() for line in run.log.read_text().splitlines()]
    assert sorted(line[0] for line in lines) == sorted(f"{{{core}}}" for core in os.sched_getaffinity(0))
    assert {line[1] for line in lines} == {str(os.getpid())}
    assert run.log.read_text().count("intra_op_parallelism_threads=1") == len(lines)


# --- parts ------------------------------------------------------------------------------------------------------------


def test_the_parts_of_a_sweep_have_every_run_once(tmp_path):
    runs = runs_in(tmp_path, 7)
    parts = [Part.parse(f"{i}/3").choose(runs) for i in (1, 2, 3)]
    assert [len(part) for part in parts] == [3, 2, 2]
    assert sorted(run.name for part in parts for run in part) == sorted(run.name for run in runs)
    assert Part.parse("8/8").choose(runs) == []


@pytest.mark.parametrize("text", ["0/3", "4/3", "2", "a/b", "1/0", "-1/2", "1/2/3"])
def test_a_part_that_does_not_exist_is_one_sentence(text):
    with pytest.raises(OdiceError, match="--part takes I/N"):
        Part.parse(text)


def test_the_folder_of_a_sweep_may_be_waited_for(tmp_path):
    with RunDirectory(tmp_path / "sweep"), pytest.raises(OdiceError, match="another process"):
        RunDirectory(tmp_path / "sweep", wait=0.3).__enter__()
    with RunDirectory(tmp_path / "sweep", wait=0.3) as folder:
        assert folder.path.is_dir()


def test_a_listing_says_what_is_finished(tmp_path):
    runs = runs_in(tmp_path, 2)
    finish(runs[1])
    first, second, total = listing(runs).splitlines()
    assert (first.endswith("100 updates"), second.endswith("100 updates  finished")) == (True, True)
    assert total == "2 runs, 200 updates"
