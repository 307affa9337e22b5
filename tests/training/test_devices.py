"""A run on several devices is the run on one, but for the order in which floats are added."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import jax
import numpy as np
import pytest

import odice
from odice.algos import algorithms
from odice.errors import OdiceError
from odice.training.devices import choose_devices
from odice.training.hosts import ChildOutput, parse_process
from odice.training.settings import resolve
from tests.training.line import SMALL, line_log

ROOT = Path(__file__).parents[2]
SIMULATED = "--xla_force_host_platform_device_count={} --xla_cpu_multi_thread_eigen=false"


def on_devices(count: int, *names: str, double: bool = False) -> list[dict]:
    environment = {**os.environ, "XLA_FLAGS": SIMULATED.format(count), "PYTHONPATH": str(ROOT)}
    environment["JAX_ENABLE_X64"] = str(int(double))
    script = str(Path(__file__).with_name("on_devices.py"))
    done = subprocess.run([sys.executable, script, *names], env=environment, capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_the_state_is_that_of_one_device():
    (row,) = on_devices(8, "odice")
    assert row["devices"] == 8
    assert row["apart"] < 1e-5, row
    assert row["all_reduces"], row  # the work is divided, not repeated


@pytest.mark.long
def test_seeds_and_streams_are_those_of_one_device():
    for row in on_devices(8, "seeds:bc", "stream:bc"):
        assert row["devices"] == 8
        assert row["apart"] < 1e-5, row
        assert row["all_reduces"] or row["name"].startswith("stream"), row  # the work is divided, not repeated


@pytest.mark.long
@pytest.mark.parametrize("name", sorted(algorithms()))
def test_every_algorithm_is_that_of_one_device(name):
    (row,) = on_devices(8, name)
    print(json.dumps(row))  # `pytest -s` shows the numbers
    assert row["apart"] < 1e-5, row
    assert row["all_reduces"], row


@pytest.mark.long
@pytest.mark.parametrize("name", ["algae-dice", "cql", "copti-dice"])
def test_in_double_precision_nothing_is_left_of_the_difference(name):
    """Rounding shrinks with the precision; a fault (a mean over a part, another draw, a lost gradient) does not."""
    (row,) = on_devices(8, name, double=True)
    assert row["bits"] == 64
    assert row["apart"] < 1e-12, row


@pytest.mark.fast
def test_what_cannot_be_divided_is_refused():
    assert choose_devices(None, 64) is None
    there = len(jax.devices())
    with pytest.raises(OdiceError, match=f"--devices {there + 1}: JAX sees {there} here"):
        choose_devices(there + 1, 64)
    with pytest.raises(OdiceError, match="at least 1, or `all`"):
        resolve("x", devices=0)
    with pytest.raises(OdiceError, match=r"leave out --parallel processes"):
        resolve("x", devices="all", seeds=2, parallel="processes")


@pytest.mark.fast
def test_processes_are_numbered_from_one():
    assert parse_process("1/2") == (0, 2)
    assert parse_process("2/2") == (1, 2)
    for bad in ("0/2", "3/2", "2", "a/b", "-1/2"):
        with pytest.raises(OdiceError, match="it is I/N"):
            parse_process(bad)
    with pytest.raises(OdiceError, match="needs --process I/N"):
        resolve("x", coordinator="localhost:1234")
    with pytest.raises(OdiceError, match="it is HOST:PORT of the first process"):
        resolve("x", coordinator="localhost", process="1/2")
    with pytest.raises(OdiceError, match="with --coordinator"):
        resolve("x", process="1/2")
    with pytest.raises(OdiceError, match="--patience is for one process"):
        resolve("x", coordinator="localhost:1234", process="1/2", patience=3)


@pytest.mark.fast
def test_what_libraries_log_is_not_printed(capsys):
    output = ChildOutput()
    lines = ["a\n", "E1118 03:36:23.868881 15124 agent.cc] lost\n", "b\n", "F1118 03:36:23.868886  1 client.h] x\n"]
    for line in [*lines, "    @     0x7fc153420634  absl\n", "odice: warning: w\n", "odice: it ended.\n"]:
        output(line)
    assert capsys.readouterr().out == "a\nb\n"
    assert output.sentence == "it ended."


# --- several processes ------------------------------------------------------------------------------------------------


class Processes:
    """Two `odice train` on this machine that train one run."""

    def __init__(self, folder: Path, port: int, steps: int):
        np.savez(folder / "line.npz", **line_log(60))
        words = "train --data line.npz --algo odice --env none --eval-every 50 --checkpoint-every 50 --allow all"
        words += f" --value-hidden 16 --policy-hidden 16 --batch-size 16 --steps {steps} --out run"
        command = [sys.executable, "-m", "odice", *words.split(), "--coordinator", f"127.0.0.1:{port}"]
        self.started = [
            subprocess.Popen(
                [*command, "--process", f"{number}/2"],
                cwd=folder,
                env={**os.environ, "PYTHONPATH": str(ROOT)},
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
            for number in (1, 2)
        ]

    def end(self) -> list[tuple[int, str]]:
        said = [each.communicate(timeout=300) for each in self.started]
        return [(each.returncode, error) for each, (_, error) in zip(self.started, said, strict=True)]


def free_port() -> int:
    import socket

    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def child_of(process: subprocess.Popen) -> int:
    children = subprocess.run(["pgrep", "-P", str(process.pid)], capture_output=True, text=True, check=True)
    return int(children.stdout.split()[0])


def wait_for(path: Path, seconds: float = 120.0) -> None:
    import time

    until = time.monotonic() + seconds
    while not path.exists():
        assert time.monotonic() < until, f"{path} did not appear"
        time.sleep(0.1)


@pytest.mark.long
@pytest.mark.skipif(sys.platform != "linux", reason="looks for a child process")
def test_a_killed_process_ends_the_run_and_the_same_commands_continue_it(tmp_path):
    both = Processes(tmp_path, free_port(), 400)
    wait_for(tmp_path / "run/checkpoints/100")
    os.kill(child_of(both.started[1]), 9)
    (code, said), (killed, its) = both.end()
    assert code == killed == 2
    assert re.fullmatch(r"odice: Another process of this run has ended.*same commands again.*\n", said), said
    assert "was killed (signal 9)" in its
    assert [code for code, _ in Processes(tmp_path, free_port(), 400).end()] == [0, 0]
    alone = odice.train(
        tmp_path / "line.npz",
        algo="odice",
        env="none",
        steps=400,
        eval_every=50,
        allow=("all",),
        quiet=True,
        out=tmp_path / "alone",
        **SMALL,
    )
    ours, its = odice.Run.open(tmp_path / "run").policy, alone.policy
    assert ours.about["step"] == 400
    for name, tensor in its.tensors.items():
        np.testing.assert_allclose(ours.tensors[name], tensor, atol=1e-5)
