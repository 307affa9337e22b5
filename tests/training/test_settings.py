"""Every setting is decided once, and its source is known."""

import dataclasses

import pytest

from odice.cli.main import main
from odice.errors import OdiceError
from odice.presets import own_protocol
from odice.training.prepare import prepare
from odice.training.settings import resolve
from tests.training.line import line_log

QUICK = {"env": "none", "allow": ("all",)}


def test_every_value_has_a_source():
    for given in ({}, {"preset": "paper"}, {"algo": "iql"}, {"imitation": True}):
        settings = resolve("x", **given)
        values = {item.name for part in (settings.options, settings.config) for item in dataclasses.fields(part)}
        assert set(settings.sources) == values - {"data"}


def test_the_sources_are_the_layers(tmp_path):
    (tmp_path / "c.toml").write_text("lam = 0.7\npolicy_lr = 1e-3\n")
    settings = resolve("x", preset="reference", config=str(tmp_path / "c.toml"), lam=0.8)
    sources = settings.sources
    assert (sources["lam"], settings.config.lam) == ("given", 0.8)
    assert sources["policy_lr"] == f"file {tmp_path / 'c.toml'}"
    assert sources["value_lr"].startswith("preset reference (")
    assert sources["reward"].startswith("preset reference (")
    assert sources["discount"] in ("default of odice", sources["value_lr"])
    assert (sources["seed"], sources["algo"]) == ("default", "default")


def test_the_length_of_the_run_and_diagnostics_decide_what_is_left_open():
    settings = resolve("x", algo="iql", preset="reference", steps=700)
    assert (settings.config.cosine_steps, settings.sources["cosine_steps"]) == (700, "the length of the run")
    assert resolve("x", algo="odice", diagnostics=True).sources["diagnose"] == "--diagnostics"


def test_the_log_decides_the_rest():
    before = resolve(line_log(60), **QUICK)
    after = prepare(before).settings
    changed = {name for name in after.sources if after.sources[name] != before.sources[name]}
    assert changed == {"balance", "chosen_share", "holdout", "value_start"}
    assert (before.options.holdout, after.options.holdout) == (None, 0.1)
    assert before.config.value_start is None
    assert after.config.value_start > 0
    assert all(after.sources[name].startswith("the log") for name in changed)
    assert prepare(resolve(line_log(60), preset="paper", **QUICK)).settings.options.holdout == 0.0


def test_resolving_what_was_resolved_changes_nothing():
    settings = resolve("x", preset="reference", lam=0.8)
    options = {item.name: getattr(settings.options, item.name) for item in dataclasses.fields(settings.options)}
    again = resolve(**options, **dataclasses.asdict(settings.config))
    assert (again.options, again.config, again.preset) == (settings.options, settings.config, settings.preset)


def test_a_dry_run_prints_the_sources_and_writes_nothing(tmp_path, capsys, monkeypatch):
    import numpy as np

    np.savez(tmp_path / "line.npz", **line_log(60))
    monkeypatch.chdir(tmp_path)
    assert main(["train", "--data", "line.npz", "--env", "none", "--allow", "all", "--lam", "0.4", "--dry-run"]) == 0
    text = capsys.readouterr().out
    lines = {line.split()[0]: line for line in text.splitlines() if line.startswith("  ")}
    assert lines["lam"].split() == ["lam", "0.4", "given"]
    assert lines["holdout"].split(maxsplit=2)[1:] == ["0.1", "the log (its number of episodes)"]
    assert "default of auto" in lines["value_lr"]
    assert lines["steps"].endswith("default of auto [1]")
    assert " ".join(text.split()).count(own_protocol("auto").source) == 1  # a long reason is printed once
    assert [path.name for path in tmp_path.iterdir()] == ["line.npz"]


@pytest.mark.parametrize("option", ["stream", "imitation"])
def test_what_cannot_be_held_out_is_one_sentence(option):
    settings = resolve(line_log(), algo="bc", holdout=0.1, **{option: True}, **QUICK)
    with pytest.raises(OdiceError, match=f"--holdout 0.1 .* leave out --holdout, or --{option}"):
        prepare(settings)
