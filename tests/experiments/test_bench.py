"""`odice bench`: what is counted and computed, by hand; and tiny real measurements, whatever their speed."""

import json
import math
import subprocess
import sys

import jax
import jax.numpy as jnp
import pytest

from odice.algos import entry
from odice.experiments import bench, speed
from odice.experiments.bench import Budget
from odice.types import Spec

TINY = Budget(seconds=0.01, length=2, steps=1)


def batch(rows: int, spec: Spec):
    return speed.made_up(200, spec).batch(jnp.arange(rows))


def test_operations_of_an_update_by_hand():
    n, a, b, h = 5, 2, 8, 16
    spec, config = Spec(n, a), entry("odice").config(value_hidden=(h, h), policy_hidden=(h, h), batch_size=b)
    up = 2 * b * (n * h + h * h + h)  # V at one point; its weight gradients cost as much
    down = 2 * b * (h + h * h)  # unit deltas
    size = n * h + h + h * h + h + h + 1
    policy = 2 * b * (n * h + h * h + h * a)
    expected = (
        (4 * up)  # V and its target, here and next
        + 2 * down
        + (3 * up)  # forward, backward, linear
        + 2 * (2 * size)  # <F, F> and <F, B>
        + (2 * policy + 2 * b * (h * a + h * h))
    )
    assert speed.operations(entry("odice").build(config, spec), batch(b, spec)) == expected


def test_loops_count_every_turn_and_branches_their_mean():
    x = jnp.ones((4, 4))
    loop = jax.make_jaxpr(lambda x: jax.lax.scan(lambda c, _: (c @ x, None), x, None, length=5)[0])(x)
    assert speed._operations(loop.jaxpr) == 5 * 2 * 4**3
    branch = jax.make_jaxpr(lambda x: jax.lax.cond(x[0, 0] > 0, lambda x: x @ x, lambda x: x, x))(x)
    assert speed._operations(branch.jaxpr) == 4**3


@pytest.mark.parametrize("name", ["cql", "optidice", "demo-dice", "copti-dice"])
def test_every_kind_of_batch_can_be_counted(name):
    spec = Spec(5, 2)
    assert speed.operations(entry(name).build(entry(name).config(), spec), batch(8, spec)) > 1e6


def test_bytes_that_devices_exchange_are_read_from_the_program():
    text = """
    %all-reduce.1 = (f32[3,4]{1,0}, f32[5]{0}) all-reduce(%a, %b), replica_groups={{0,1}}, to_apply=%sum
    %all-reduce.2 = f32[] all-reduce(%c), replica_groups={{0,1}}, to_apply=%sum
    %x = f32[100]{0} add(%a, %b)
    """
    assert speed.all_reduced(text) == 4 * (12 + 5 + 1)


def test_shares_and_ratios(monkeypatch):
    """Rates of 10, 20 and 30 beside products at 1000: the median turn has a share of 20 * 25 / 1000."""
    values = {"rates": [10.0, 30.0, 20.0], "matmul": [1000.0] * 3, "operations": 25, "peak": 5e6}
    monkeypatch.setattr(bench, "measure", lambda jobs: [values] * len(jobs))
    rows = list(bench.bench(["odice"], None, ["updates", "seeds", "data"], TINY, sizes=(10, 20)))
    one = rows[0]
    assert (one.value, one.spread, one.facts["share"], one.facts["peak MB"]) == (20, (10, 30), 0.5, 5)
    assert [row.facts["times one seed"] for row in rows if row.section == "seeds"] == [1, 2, 5]
    assert [row.facts["of the smallest"] for row in rows if row.section == "data"] == [1, 1]


def test_overhead_is_the_share_of_the_updates_between(monkeypatch):
    """A row of 0.1 s every 100 updates of 0.01 s is 10 %; a checkpoint of 1 s every 10,000 is 1 %."""
    values = {"bare": 0.01, "row": 0.1, "row_steps": 100, "save": 1.0, "evaluation": 2.0, "eval_every": 1000}
    monkeypatch.setattr(bench, "measure", lambda jobs: [values])
    loop, row, save, evaluation = bench.bench(["odice"], None, ["overhead"], TINY)
    assert [each.value for each in (loop, row, save, evaluation)] == pytest.approx([100, 10, 1, 20])


def test_data_that_do_not_fit_are_left_out(monkeypatch):
    values = {"rates": [1.0], "matmul": [1.0], "operations": 1, "peak": 1}
    monkeypatch.setattr(bench, "measure", lambda jobs: [values])
    monkeypatch.setattr(bench, "memory", lambda: 1e9)
    rows = list(bench.bench(["odice"], None, ["data"], TINY))
    assert [row.what for row in rows][-1] == "odice, 1,000,000 transitions"


@pytest.mark.slow
def test_two_processes_measure_at_once():
    job = {"algo": "bc", "preset": None, "rows": 300, "length": 2, "seconds": 0.01}
    measured = bench.measure([{**job, "core": 0}, {**job, "core": 1}])
    for each in measured:
        assert len(each["rates"]) == len(each["matmul"]) >= 3
        assert all(math.isfinite(rate) and rate > 0 for rate in each["rates"])
        assert each["peak"] > 1e7
    assert measured[0]["operations"] == measured[1]["operations"] > 0


@pytest.mark.long
def test_a_run_is_taken_apart():
    (measured,) = bench.measure([{"kind": "run", "algo": "bc", "preset": None, "core": 0, "steps": 1}])
    assert measured["bare"] > 0
    assert measured["save"] > 0
    assert measured["evaluation"] > 0


@pytest.mark.slow
def test_a_worker_that_fails_says_why():
    with pytest.raises(bench.OdiceError, match="ended early"):
        bench.measure([{"algo": "nothing", "preset": None, "rows": 10, "length": 1, "seconds": 0.1, "core": None}])


@pytest.mark.slow
def test_the_command_prints_json():
    command = [sys.executable, "-m", "odice.cli.main", "bench", "--algo", "bc", "--section", "updates"]
    done = subprocess.run([*command, "--seconds", "0.01", "--json"], capture_output=True, text=True, check=True)
    one, every = (json.loads(line) for line in done.stdout.splitlines())
    assert "one core" in one["what"]
    assert one["facts"]["share"] > 0
    assert every["section"] == "updates"


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--algo", "odise"], "Did you mean 'odice'"),
        (["--seconds", "0"], "more than 0"),
        (["--algo", "sql", "--preset", "paper"], "paper"),
    ],
)
def test_wrong_options_are_answered_in_words(options, says, capsys):
    from odice.cli.main import main

    assert main(["bench", *options]) != 0
    assert says in capsys.readouterr().err
