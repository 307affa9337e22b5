"""The registry, and what other packages may add to it."""

import dataclasses
import json
import subprocess
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import odice
from odice.algos import registry
from odice.core.divergences import DIVERGENCES, from_formulas
from odice.core.policies import TanhPolicy
from odice.data.transitions import to_transitions
from odice.errors import OdiceError
from odice.training.loop import initial_state, make_chunk
from tests.training.line import SMALL, line_log

EXAMPLES = Path(__file__).parents[2] / "examples"


@dataclasses.dataclass(frozen=True)
class MeanConfig:
    """An algorithm whose state is a dict."""

    batch_size: int = 8
    """Transitions per update."""
    pull: float = 0.1
    """How fast."""


@pytest.fixture
def mean_algorithm(monkeypatch):
    """Registered late, after others were looked up, and forgotten after the test."""
    odice.algorithms()
    monkeypatch.setattr(registry, "_REGISTRY", dict(registry._REGISTRY))

    @odice.register("mean", MeanConfig)
    def mean(cfg: MeanConfig, spec: odice.Spec) -> odice.Algo:
        """Mean: always the average action of the log."""

        def init(key):
            policy = TanhPolicy(key, spec, ())
            return {"policy": jax.tree.map(jnp.zeros_like, policy), "seen": jnp.zeros(())}

        def update(state, batch, key):
            bias = state["policy"].network.biases[0]
            moved = bias + cfg.pull * (jnp.arctanh(0.9 * jnp.mean(batch.action, axis=0)) - bias)
            policy = jax.tree.map(lambda leaf: moved if leaf.shape == bias.shape else leaf, state["policy"])
            return {"policy": policy, "seen": state["seen"] + 1}, {"seen": state["seen"]}

        return odice.Algo(init, update, policy=lambda state: state["policy"])


@pytest.mark.usefixtures("mean_algorithm")
def test_a_dict_is_a_state(tmp_path):
    """Trained, evaluated, saved and continued: the run knows nothing of a state but `policy(state)`."""
    log = line_log()
    options = {"algo": "mean", "allow": ("all",), "normalize_obs": False, "quiet": True, "out": tmp_path / "run"}
    run = odice.train(log, steps=40, checkpoint_every=20, **options)
    assert run.result["step"] == 40
    longer = odice.train(log, steps=60, **options)
    assert longer.result["step"] == 60
    obs = np.zeros((1, log["observations"].shape[1]), np.float32)
    target = 0.9 * np.mean(log["actions"])
    assert abs(float(longer.policy(obs)[0, 0]) - target) < 0.1


@pytest.mark.fast
@pytest.mark.usefixtures("mean_algorithm")
def test_a_taken_name_is_refused():
    with pytest.raises(OdiceError, match="'mean' is registered already"):
        odice.register("mean", MeanConfig)(lambda cfg, spec: None)
    with pytest.raises(OdiceError, match="'odice' is registered already"):
        odice.register("odice", MeanConfig)(lambda cfg, spec: None)


@pytest.mark.fast
def test_what_is_declared_must_exist():
    with pytest.raises(OdiceError, match=r"setting that late declares.*'lamda'"):
        odice.register("late", MeanConfig, when_diverged=("lower", "lamda"))(lambda cfg, spec: None)
    for declared, message in (
        ({"schedul": "pull"}, "declaration of late.*'schedul'.*Did you mean 'schedule'"),
        ({"schedule": "pul"}, "setting that late declares.*'pul'"),
        ({"columns": {"costs": None}}, "column that late declares.*'costs'.*Did you mean 'cost'"),
        ({"columns": {"cost": "pul"}}, "setting that late declares.*'pul'"),
    ):
        with pytest.raises(OdiceError, match=message):
            odice.register("late", MeanConfig, **declared)(lambda cfg, spec: None)
    with pytest.raises(OdiceError, match="frozen dataclass"):
        odice.register("late", dict)(lambda cfg, spec: None)
    assert "late" not in odice.algorithms()


def test_a_divergence_is_a_value():
    """The same curves under another name give the same updates, by value and by name."""
    pearson = odice.divergence("pearson")
    mine = from_formulas("mine", pearson.f, lambda y: jnp.maximum(1 + y / 2, 0) ** 2 - 1, pearson.weight)
    data = jax.device_put(to_transitions(odice.load(line_log())))
    spec = odice.load(line_log()).spec
    states = []
    for each in ("pearson", mine):
        algo = odice.make("odice", spec, divergence=each, **SMALL)
        states.append(make_chunk(algo, 16, 5)(initial_state(algo, 0), data, 0, 0)[0])
    for a, b in zip(*map(jax.tree.leaves, states), strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.fast
def test_a_divergence_is_registered_once(monkeypatch):
    monkeypatch.setattr("odice.core.divergences.DIVERGENCES", dict(DIVERGENCES))
    mine = odice.divergence("pearson")._replace(name="mine")
    with pytest.raises(OdiceError, match="Unknown divergence 'mine'"):
        odice.make("odice", odice.Spec(3, 1), divergence="mine")
    odice.register_divergence(mine)
    odice.make("odice", odice.Spec(3, 1), divergence="mine")
    with pytest.raises(OdiceError, match="'mine' is registered already"):
        odice.register_divergence(mine)


def test_batches_are_those_of_a_run():
    data = odice.load(line_log())
    source = jax.device_put(to_transitions(data, "bootstrap"))
    algo = odice.make("bc", data.spec, policy_hidden=(8,), batch_size=16)
    expected, _ = make_chunk(algo, 16, 6)(initial_state(algo, 3), source, 3, 0)
    state, update = initial_state(algo, 3), jax.jit(algo.update)
    for batch, key in odice.batches(data, 16, steps=6, seed=3):
        state, _ = update(state, batch, key)
    for a, b in zip(jax.tree.leaves(expected), jax.tree.leaves(state), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


@pytest.mark.slow
def test_the_example_trains_from_the_command_line_and_as_an_installed_package(tmp_path):
    """As `--plugin`, and found by its entry point in a folder that looks like an installation of it."""
    site = tmp_path / "site"
    info = site / "odice_filtered_bc-0.1.0.dist-info"
    info.mkdir(parents=True)
    (site / "filtered_bc.py").write_text((EXAMPLES / "own_algorithm" / "filtered_bc.py").read_text())
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: odice-filtered-bc\nVersion: 0.1.0\n")
    (info / "entry_points.txt").write_text("[odice.plugins]\nfiltered-bc = filtered_bc\n")
    np.savez(tmp_path / "log.npz", **line_log())
    arguments = [
        "train",
        "--algo",
        "filtered-bc",
        "--data",
        str(tmp_path / "log.npz"),
        "--steps",
        "20",
        "--allow",
        "all",
    ]
    arguments += ["--policy-hidden", "8", "--batch-size", "16", "--quiet"]
    root = str(Path(odice.__file__).parents[1])
    ways = {
        "installed": ([], {"PYTHONPATH": f"{site}:{root}"}),
        "plugin": (["--plugin", "filtered_bc"], {"PYTHONPATH": f"{root}:{EXAMPLES / 'own_algorithm'}"}),
        "neither": ([], {"PYTHONPATH": root}),
    }
    import os

    for way, (more, variables) in ways.items():
        command = [sys.executable, "-m", "odice.cli.main", *arguments, *more, "--out", str(tmp_path / way)]
        done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, **variables}, timeout=120)
        if way == "neither":
            assert done.returncode == 2
            assert "Unknown algorithm 'filtered-bc'" in done.stderr
        else:
            assert done.returncode == 0, done.stderr
            assert json.loads((tmp_path / way / "result.json").read_text())["step"] == 20


@pytest.mark.fast
def test_a_plugin_that_is_not_there_is_one_sentence(tmp_path, capsys):
    from odice.cli.main import main

    assert main(["train", "--plugin", "no_such_module", "--data", "x.npz"]) == 2
    assert "--plugin no_such_module cannot be imported" in capsys.readouterr().err


def test_a_config_file_cannot_name_a_plugin(tmp_path):
    (tmp_path / "c.json").write_text('{"plugin": ["os"]}')
    with pytest.raises(OdiceError, match="a file cannot set 'plugin'"):
        odice.train("x.npz", config=str(tmp_path / "c.json"))


def test_the_loop_of_one_s_own_runs(tmp_path, monkeypatch):
    import runpy

    loop = runpy.run_path(str(EXAMPLES / "own_loop.py"))
    monkeypatch.setitem(loop["main"].__globals__, "STEPS", 3)
    assert loop["main"]("bundled/hopper-replay").action_dim == 3
