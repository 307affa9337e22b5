"""A run and its folder."""

import dataclasses
import json

import numpy as np
import pytest

import odice
from odice.algos import algorithms
from odice.errors import Diverged, OdiceError
from odice.evaluation.simulator.evaluate import evaluation_seed
from odice.training.directory import RunDirectory, differences
from odice.training.loggers import rows
from odice.training.options import RunOptions
from odice.training.recorder import Recorder
from odice.training.settings import resolve
from tests.training.line import SMALL, line_log

SHORT = {**SMALL, "algo": "odice", "steps": 40, "eval_every": 20, "checkpoint_every": 20}
SHORT |= {"quiet": True, "allow": ("all",)}
CART = {"env": "CartPole-v1", "eval_episodes": 2}


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A finished run with evaluations."""
    return odice.train(line_log(discrete=True), out=tmp_path_factory.mktemp("run") / "a", **SHORT, **CART)


def test_the_folder_holds_what_was_promised(finished):
    config = json.loads((finished.path / "config.json").read_text())
    assert config["config"]["settings"]["lam"] == 0.6
    assert config["config"]["env"] == "CartPole-v1"
    assert config["versions"].keys() >= {"jax", "numpy", "python"}
    assert config["data"]["fingerprint"] == odice.load(line_log(discrete=True)).fingerprint
    assert [row["step"] for row in rows(finished.path / "metrics.jsonl")] == [20, 40]
    evaluations = rows(finished.path / "evaluations.jsonl")
    assert [row["step"] for row in evaluations] == [20, 40]
    assert all(len(row["returns"]) == len(row["lengths"]) == len(row["seeds"]) == 2 for row in evaluations)
    assert evaluations[0]["seeds"] != evaluations[1]["seeds"]  # new starts every time
    assert sorted(p.name for p in (finished.path / "checkpoints").iterdir()) == ["20", "40"]
    for name in ("metrics", "evaluations"):  # nothing in them depends on the clock
        assert "time" not in (text := (finished.path / f"{name}.jsonl").read_text())
        assert "seconds" not in text


def test_last_and_best_policy_are_those_of_their_steps(finished):
    assert finished.policy.about["step"] == 40
    evaluations = rows(finished.path / "evaluations.jsonl")
    best = max(evaluations, key=lambda row: row["mean"])
    assert finished.best_policy.about["step"] == best["step"] == finished.result["best"]["step"]
    assert finished.best_policy.about["scores"]["mean"] == best["mean"]
    assert finished.policy.about["scores"]["mean"] == evaluations[-1]["mean"] == finished.result["last"]["mean"]
    again = odice.evaluate(finished.policy, "CartPole-v1", episodes=2, seed=evaluation_seed(0, 40))
    assert again.returns.tolist() == evaluations[-1]["returns"]


def test_a_finished_run_says_so(finished, capsys):
    again = odice.train(line_log(discrete=True), out=finished.path, **{**SHORT, **CART, "quiet": False})
    assert again == finished
    assert "already finished" in capsys.readouterr().out


def test_another_configuration_is_refused_with_what_differs(finished):
    with pytest.raises(OdiceError, match=r"settings\.lam: 0\.6 there, 0\.7 now"):
        odice.train(line_log(discrete=True), out=finished.path, **{**SHORT, **CART, "lam": 0.7})
    with pytest.raises(OdiceError, match="data: "):
        odice.train(line_log(discrete=True, seed=1), out=finished.path, **SHORT, **CART)


def test_a_second_process_is_refused(finished):
    with RunDirectory(finished.path), pytest.raises(OdiceError, match=r"another process .* is working on this run"):
        odice.train(line_log(discrete=True), out=finished.path, **SHORT, **CART)


def test_without_an_environment_it_trains_and_says_so(tmp_path, capsys):
    run = odice.train(line_log(discrete=True), out=tmp_path / "a", **{**SHORT, "quiet": False})
    said = capsys.readouterr().out
    assert "no environment is known" in said
    assert "by the log alone: odice.estimate(run.policy, data)" in said
    assert run.result["last"] == {}
    assert run.result["best"] is None
    assert not (run.path / "policy" / "best").exists()
    assert run.policy(np.zeros((3, 4))).shape == (3,)


def test_an_environment_of_another_shape_is_refused_before_training(tmp_path):
    with pytest.raises(OdiceError, match=r"CartPole-v1 has .* but the policy or data has"):
        odice.train(line_log(), out=tmp_path / "a", **SHORT, **CART)


def test_there_must_be_a_run_to_insist_on(tmp_path):
    with pytest.raises(OdiceError, match="no run to resume"):
        odice.train(line_log(), out=tmp_path / "a", resume=True, **SHORT)


def test_a_folder_of_something_else_is_left_alone(tmp_path):
    (tmp_path / "thesis.tex").write_text("chapter one")
    with pytest.raises(OdiceError, match="not empty and not a run"):
        odice.train(line_log(), out=tmp_path, **SHORT)


def test_a_folder_that_cannot_be_made_is_one_sentence(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(OdiceError, match="cannot write there"):
        odice.train(line_log(), out=tmp_path / "file" / "run", **SHORT)


def test_divergence_stops_at_the_last_good_checkpoint(tmp_path, monkeypatch):
    """The limit is the only thing changed: at step 60 values beyond 0.001 count as too large."""
    absorb = Recorder.record

    def strict(self, step, length, metrics, extra):
        limit = 1e-3 if step == 60 else 1e9
        self._prepared = self._prepared._replace(value_limit=limit)
        absorb(self, step, length, metrics, extra)

    monkeypatch.setattr(Recorder, "record", strict)
    with pytest.raises(
        Diverged, match=r"diverged at step 60 \(value_mean .*checkpoint is at step 40.*lower lam \(now 0.6\)"
    ):
        odice.train(line_log(discrete=True), out=tmp_path / "a", **{**SHORT, "steps": 80})
    assert not (tmp_path / "a" / "result.json").exists()
    assert [row["step"] for row in rows(tmp_path / "a" / "metrics.jsonl")] == [20, 40]


@pytest.mark.slow
def test_a_rate_that_is_far_too_large_is_called_a_divergence(tmp_path):
    wild = {**SHORT, "steps": 2000, "algo": "vdice-true", "lam": 0.9, "value_lr": 1e4}
    with pytest.raises(Diverged, match="lower lam"):
        odice.train(line_log(), out=tmp_path / "a", **wild)
    for row in rows(tmp_path / "a" / "metrics.jsonl"):
        assert all(np.isfinite(value) for value in row.values())


def test_preprocessing_follows_the_options_and_goes_into_the_policy(tmp_path):
    log = line_log(discrete=True)
    run = odice.train(log, out=tmp_path / "a", normalize_obs=True, reward="minus-3", **SHORT)
    fitted = json.loads((run.path / "config.json").read_text())["preprocess"]
    assert fitted["reward_shift"] == -3.0
    kept = ~(log["timeouts"] | (np.arange(len(log["rewards"])) == len(log["rewards"]) - 1))
    np.testing.assert_allclose(fitted["obs_mean"], log["observations"][kept].mean(axis=0), atol=1e-6)
    np.testing.assert_allclose(run.policy.obs_mean, fitted["obs_mean"], rtol=1e-6)


@pytest.mark.slow
def test_diagnostics_are_logged_on_request(tmp_path):
    run = odice.train(line_log(), out=tmp_path / "a", diagnostics=True, **{**SHORT, "steps": 20})
    row = rows(run.path / "metrics.jsonl")[0]
    assert row.keys() >= {
        "forward_norm",
        "backward_norm",
        "cosine",
        "weight_ess",
        "feature_product",
        "value_min",
        "value_max",
    }
    assert row["value_min"] <= row["value_max"]


@pytest.mark.slow
def test_streaming_gives_the_same_run(tmp_path):
    kept = odice.train(line_log(), out=tmp_path / "memory", **SHORT)
    streamed = odice.train(line_log(), out=tmp_path / "disk", stream=True, **SHORT)
    assert kept.result["state_sha256"] == streamed.result["state_sha256"]


@pytest.mark.slow
def test_seeds_in_one_vmap_equal_single_runs(tmp_path):
    joint = odice.train(line_log(discrete=True), out=tmp_path / "v", seeds=2, seed=3, parallel="vmap", **SHORT, **CART)
    assert [run.path.name for run in joint.seeds] == ["seed-3", "seed-4"]
    alone = odice.train(line_log(discrete=True), out=tmp_path / "alone", seed=4, **SHORT, **CART)
    one, other = (rows(run.path / "metrics.jsonl") for run in (joint.seeds[1], alone))
    for a, b in zip(one, other, strict=True):
        np.testing.assert_allclose(list(a.values()), list(b.values()), rtol=1e-4, atol=1e-6)
    tensors = joint.seeds[1].policy.tensors
    for name, tensor in alone.policy.tensors.items():
        np.testing.assert_allclose(tensors[name], tensor, rtol=1e-4, atol=1e-6)


def test_a_policy_that_diverges_alone_is_the_fault_of_its_learning_rate(tmp_path):
    """It was advised to lower lam, which the policy's loss does not know."""
    with pytest.raises(Diverged, match=r"training diverged at step .*lower policy_lr \(now 1e\+30\)"):
        odice.train(line_log(), out=tmp_path / "a", policy_lr=1e30, **SHORT)


@pytest.mark.parametrize(("name", "value"), [("actions", np.inf), ("rewards", np.nan), ("observations", np.nan)])
def test_data_that_are_not_finite_are_named_as_the_cause(tmp_path, name, value):
    """Also where everything was allowed: before, a traceback, or the advice to lower lam."""
    log = line_log()
    log[name][7] = value
    with pytest.raises(OdiceError, match=f"the {name} hold numbers that are not finite"):
        odice.train(log, out=tmp_path / "a", **SHORT)
    assert not (tmp_path / "a").exists()


def test_options_and_settings_do_not_share_names():
    options = {item.name for item in dataclasses.fields(RunOptions)}
    for algorithm in algorithms().values():
        assert not options & {item.name for item in dataclasses.fields(algorithm.config)}, algorithm.name


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"lamm": 0.5}, "Did you mean 'lam'"),
        ({"lam": "high"}, "lam is 'high': .*valid number"),
        ({"lam": 1.5}, "lam must lie strictly between 0 and 1"),
        ({"steps": 0}, "steps must be at least 1"),
        ({"steps": True}, "steps must not be True: it is not a switch"),
        ({"seed": 2**31}, "seed must be at most 2147483647"),
        ({"seed": 2**31 - 2, "seeds": 3}, "seed must be at most 2147483647"),
        ({"steps": 10.5}, "steps is 10.5: .*valid integer"),
        ({"reward": "minus3"}, "Did you mean 'minus-3'"),
        ({"algo": "odic"}, "Did you mean 'odice'"),
        ({"preset": "papr"}, "Did you mean 'paper'"),
        ({"config": "nowhere.toml"}, "nowhere.toml: cannot be opened"),
    ],
)
def test_wrong_settings_are_one_sentence(wrong, message):
    with pytest.raises(OdiceError, match=message):
        resolve("data.hdf5", **wrong)


def test_rows_and_pieces_lie_on_the_evaluations_grid(monkeypatch):
    monkeypatch.setattr("odice.training.settings.CHUNK_STEPS", 50)
    assert (resolve("d").row_steps, resolve("d").chunk_steps) == (1000, 50)
    odd = resolve("d", eval_every=1500)
    assert 1500 % odd.row_steps == 0
    assert odd.row_steps % odd.chunk_steps == 0
    assert (odd.row_steps, odd.chunk_steps) == (750, 50)


def test_differences_names_every_entry():
    old, new = {"a": 1, "b": {"c": [1, 2], "d": 0}}, {"a": 1, "b": {"c": [1, 3], "d": 0}, "e": True}
    assert differences(old, new) == ["b.c: [1, 2] there, [1, 3] now", "e: null there, true now"]
