"""A sweep on a Ray cluster of several nodes, simulated on this machine: a node that dies costs nothing but time."""

import json
import os
import subprocess
import threading
import time
from types import SimpleNamespace

import numpy as np
import pytest

from odice.errors import OdiceError
from odice.sweeps import ray as sweep_ray
from odice.sweeps.driver import Driver
from odice.sweeps.execute import Backend, run_sweep
from odice.sweeps.ray import Resources, run_on_ray, run_one
from odice.sweeps.runs import make_runs, result, step
from odice.training.processes import worker_command
from tests.training.line import line_log

ray = pytest.importorskip("ray")

SAME = ("metrics.jsonl", "evaluations.jsonl", "policy/last/policy.safetensors")


def runs_in(out, data, seeds=2, steps=60, often=20):
    options = {"steps": steps, "eval_every": often, "checkpoint_every": often, "allow": ("all",), "env": "none"}
    return make_runs(out, [str(data)], ["bc"], seeds, batch_size=8, policy_hidden=(8,), **options)


@pytest.fixture
def data(tmp_path):
    np.savez(tmp_path / "log.npz", **line_log(discrete=True))
    return tmp_path / "log.npz"


def instructions(run):
    return worker_command(run.settings, str(run.settings.options.data))[-1]


@pytest.fixture
def cluster(monkeypatch):
    """A head that computes nothing, and two nodes with a core each."""
    from ray.cluster_utils import Cluster

    monkeypatch.setenv("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    monkeypatch.setenv("RAY_worker_niceness", "0")
    monkeypatch.setenv("PYTHONPATH", os.getcwd())
    made = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False})
    nodes = [made.add_node(num_cpus=1) for _ in range(2)]
    yield made, nodes
    ray.shutdown()
    made.shutdown()


def same_as_alone(runs, tmp_path, data, **options):
    """Every run equals the one that was trained on this machine, undisturbed."""
    alone = runs_in(tmp_path / "alone", data, **options)
    Driver(alone, workers=2).run()
    for here, there in zip(alone, runs, strict=True):
        a, b = result(here), result(there)
        assert a is not None
        assert b is not None
        assert a["state_sha256"] == b["state_sha256"]
        for name in SAME:
            if (here.path / name).exists() and (there.path / name).exists():
                assert (here.path / name).read_bytes() == (there.path / name).read_bytes(), name


# --- without a cluster ------------------------------------------------------------------------------------------------


def test_a_task_does_nothing_with_another_version_of_odice(tmp_path, data):
    (run,) = runs_in(tmp_path / "out", data, seeds=1)
    ending, _, words, _ = run_one(run.name, instructions(run), None, True, "0.0.0")
    assert ending == "failed"
    assert "the command has 0.0.0" in words
    assert not run.path.exists()


def test_what_a_run_asks_of_ray():
    assert Resources().options() == {"num_cpus": 1.0, "num_gpus": 0.0}
    assert Resources(2, 0.5, 4).options() == {"num_cpus": 2, "num_gpus": 0.5, "memory": 4_000_000_000}


def test_a_store_that_does_not_answer_ends_no_run(tmp_path, data, monkeypatch):
    (run,) = runs_in(tmp_path / "out", data, seeds=1)
    asked = []

    class Lost:
        def __init__(self, address="memory://x"):
            self.address = address

        def save(self, *_):
            asked.append("save")
            raise OdiceError("the store is away")

        fetch = save

    process = subprocess.Popen(["sleep", "0.3"])
    worker = SimpleNamespace(worker=SimpleNamespace(process=process))
    monkeypatch.setattr(sweep_ray, "begin", lambda *_: worker)
    monkeypatch.setattr(sweep_ray, "SAVE_SECONDS", 0.0)
    monkeypatch.setattr(sweep_ray, "POLL_SECONDS", 0.05)
    assert sweep_ray._train(run, Lost(), True) == 0
    assert len(asked) > 1
    monkeypatch.setattr(sweep_ray, "Store", Lost)
    ending, code, words, _ = run_one(run.name, instructions(run), "memory://x", True, sweep_ray.__version__)
    assert (ending, code, words) == ("failed", 2, "the store is away")


def test_a_store_without_a_cluster_is_refused(tmp_path, data):
    with pytest.raises(OdiceError, match="--store is for runs on a cluster"):
        run_sweep(tmp_path / "out", runs_in(tmp_path / "out", data), Backend(store="file:///x"))


@pytest.mark.slow
def test_a_task_with_a_store_continues_what_another_node_saved(tmp_path, data, monkeypatch):
    """The first is cut short at 20 updates, as if its node had died after a save; the second goes on from there."""
    store = (tmp_path / "store").as_uri()
    (run,) = runs_in(tmp_path / "out", data, seeds=1)
    first = runs_in(tmp_path / "first", data, seeds=1, steps=20)[0]
    Driver([first], workers=1).run()
    (first.path / "result.json").unlink()
    sweep_ray.Store(store).save(run.name, first.path)
    ending, code, words, _ = run_one(run.name, instructions(run), store, True, sweep_ray.__version__)
    assert (ending, code, words) == ("finished", 0, "")
    assert sweep_ray.Store(store).finished(run.name)
    sweep_ray.Store(store).fetch(run.name, run.path)
    same_as_alone([run], tmp_path, data, seeds=1)
    again = run_one(run.name, instructions(run), store, True, sweep_ray.__version__)
    assert again[0] == "finished"


# --- on one -----------------------------------------------------------------------------------------------------------


@pytest.mark.long
def test_a_node_that_dies_costs_nothing_but_time(tmp_path, data, cluster, capfd):
    """Three runs on two nodes; one node is killed when its run has a checkpoint and is not over."""
    made, nodes = cluster
    options = {"seeds": 3, "steps": 20_000, "often": 500}
    runs = runs_in(tmp_path / "out", data, **options)
    killed = []

    def kill() -> None:
        until = time.monotonic() + 300
        while time.monotonic() < until and not killed:
            running = [run for run in runs if step(run) >= 500 and not (run.path / "result.json").exists()]
            if len(running) >= 2:
                made.remove_node(nodes[0], allow_graceful=False)
                killed.append(running)
            time.sleep(0.05)

    thread = threading.Thread(target=kill)
    thread.start()
    outcomes = run_on_ray(tmp_path / "out", runs, made.address)
    thread.join()
    assert killed, "no node was killed: the runs were too fast"
    assert {outcome.ending for outcome in outcomes.values()} == {"finished"}
    assert len(outcomes) == 3
    same_as_alone(runs, tmp_path, data, **options)
    capfd.readouterr()
    assert run_on_ray(tmp_path / "out", runs, made.address).keys() == outcomes.keys()
    assert "3 of them finished already" in capfd.readouterr().out


@pytest.mark.long
def test_with_a_store_the_nodes_share_nothing(tmp_path, data, cluster):
    made, _ = cluster
    runs = runs_in(tmp_path / "out", data)
    outcomes = run_on_ray(tmp_path / "out", runs, made.address, store=(tmp_path / "store").as_uri())
    assert {outcome.ending for outcome in outcomes.values()} == {"finished"}
    for run in runs:
        assert not (run.path / "checkpoints").exists()  # here is what a report reads
        assert (tmp_path / "store" / run.name / "checkpoints").exists()
    same_as_alone(runs, tmp_path, data)
    record = json.loads((tmp_path / "out" / "sweep.json").read_text())
    assert record["runs"].keys() == outcomes.keys()


@pytest.mark.long
def test_a_run_that_fails_is_reported_with_its_words(tmp_path, cluster):
    made, _ = cluster
    runs = runs_in(tmp_path / "out", tmp_path / "missing.npz", seeds=1)
    (outcome,) = run_on_ray(tmp_path / "out", runs, made.address, quiet=True).values()
    assert outcome.ending == "failed"
    assert "missing.npz" in outcome.tail
