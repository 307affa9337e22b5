"""`odice train`: every setting is a flag, and flags win over the file, the file over the preset."""

import json
import re
import signal
import subprocess
import sys
import time
from contextlib import contextmanager

import numpy as np
import pytest

from odice.algos import algorithms
from odice.cli.main import main
from odice.cli.train import FIRST, parse
from odice.errors import Diverged, Interrupted, OdiceError
from odice.training.settings import resolve
from tests.training.line import line_log

pytestmark = pytest.mark.fast

TINY = ["--value-hidden", "8", "--policy-hidden", "8", "--batch-size", "8", "--allow", "all"]


@pytest.fixture
def data(tmp_path):
    np.savez(tmp_path / "line.npz", **line_log(discrete=True))
    return str(tmp_path / "line.npz")


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(algorithms()))
def test_help_explains_every_setting_of_the_algorithm(name, capsys):
    with pytest.raises(SystemExit) as done:
        parse(["--algo", name, "--help-all"])
    assert done.value.code == 0
    text = capsys.readouterr().out
    for field in algorithms()[name].config.__dataclass_fields__:
        assert f"--{field.replace('_', '-')}" in text
    for flag in ("--preset", "--checkpoint-every", "--seeds", "--resume", "--log"):
        assert flag in text


def test_help_shows_the_options_that_matter_in_80_columns(capsys):
    with pytest.raises(SystemExit) as done:
        parse(["--algo", "iql", "-h"])
    assert done.value.code == 0
    text = capsys.readouterr().out
    assert max(map(len, text.splitlines())) <= 80
    assert len(text.splitlines()) < 40
    assert re.findall(r"^  --(\S+)", text, re.MULTILINE) == [name.replace("_", "-") for name in FIRST]
    assert "[iql]" in text
    assert "--help-all" in text


def test_precedence(tmp_path):
    file = tmp_path / "settings.toml"
    file.write_text('lam = 0.7\nvalue-lr = 3e-4\nsteps = 500\npolicy_hidden = [64, 64]\npreset = "reference"\n')
    arguments = ["--data", "hopper-medium-expert-v2", "--config", str(file), "--lam", "0.8", "--eval-every", "100"]
    settings, _ = parse(arguments)
    assert settings.config.lam == 0.8  # flag over file (0.7) and preset (0.5)
    assert settings.config.value_lr == 3e-4  # file over preset (2e-4)
    assert settings.config.policy_hidden == (64, 64)
    assert settings.config.policy_lr == 2e-4  # preset over default (1e-4)
    assert settings.config.eta == 1.0  # the preset's row
    assert settings.config.discount == 0.99  # default
    assert (settings.options.steps, settings.options.eval_every, settings.options.reward) == (
        500,
        100,
        "return-range-b",
    )


def test_the_preset_knows_a_data_set_by_its_name_or_its_files():
    by_name, _ = parse(["--data", "hopper-medium-expert-v2", "--preset", "paper"])
    by_file, _ = parse(["--data=some/where/hopper_medium_expert-v2.hdf5", "--preset", "paper"])
    unknown, _ = parse(["--data", "mine.parquet", "--preset", "paper"])
    assert by_name.config.lam == by_file.config.lam == 0.5
    assert unknown.config.lam == 0.6
    assert unknown.preset is not None
    assert unknown.preset.data is None


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ('{"lamm": 0.5}', "Did you mean 'lam'"),
        ('{"lam": "big"}', "lam is 'big': input should be a valid number"),
        ('{"lam": 0.5', "not a valid .json file"),
        ("[1, 2]", "holds one object of settings"),
        ('{"algo": "odicee"}', "Did you mean 'odice'"),
    ],
)
def test_a_wrong_config_file_is_one_sentence(tmp_path, capsys, content, message):
    (tmp_path / "c.json").write_text(content)
    assert main(["train", "--data", "x.npz", "--config", str(tmp_path / "c.json")]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--data", "nowhere.hdf5"], "nowhere.hdf5"),
        (["--data", "x.npz", "--lam", "2"], "lam must lie strictly between 0 and 1"),
        (["--data", "x.npz", "--steps", "0"], "steps must be at least 1"),
        (["--data", "x.npz", "--reward", "minus3"], "Did you mean 'minus-3'"),
        (["--data", "x.npz", "--algo", "odic"], "Did you mean 'odice'"),
    ],
)
def test_wrong_arguments_are_one_sentence(tmp_path, capsys, arguments, message):
    assert main(["train", *arguments, "--out", str(tmp_path / "run")]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1


def test_a_refused_run_leaves_nothing_behind(tmp_path, data):
    assert main(["train", "--data", data, "--out", str(tmp_path / "run"), "--env", "Hopper-v4", *TINY]) == 2
    assert main(["train", "--data", str(tmp_path / "none.npz"), "--out", str(tmp_path / "other"), *TINY]) == 2
    assert [p.name for p in tmp_path.iterdir()] == ["line.npz"]


def test_a_flag_that_does_not_exist_is_refused():
    with pytest.raises(OdiceError, match=r"does not take --lamda.*did you mean --lam\?"):
        parse(["--data", "x.npz", "--lamda", "0.5"])


@pytest.mark.parametrize(("error", "code"), [(Diverged("too far"), 3), (Interrupted("stopped", 15), 143)])
def test_exit_codes(monkeypatch, capsys, error, code):
    def fail(settings):
        raise error

    monkeypatch.setattr("odice.training.train.train_settings", fail)
    assert main(["train", "--data", "x.npz"]) == code
    assert capsys.readouterr().err == f"odice: {error}\n"


@contextmanager
def started(*arguments):
    command = [sys.executable, "-m", "odice.cli.main", "train", *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_in_a_checkpoint_and_the_same_command_goes_on(tmp_path, data, number):
    out = tmp_path / "run"
    command = ["--data", data, "--out", str(out), "--steps", "1000000", "--checkpoint-every", "1000000"]
    command += ["--algo", "odice", *TINY]
    with started(*command) as worker:
        deadline = time.monotonic() + 120
        while not (out / "metrics.jsonl").exists() or not (out / "metrics.jsonl").stat().st_size:
            assert worker.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.1)
        if number == signal.SIGTERM:  # for either signal once is enough
            with started(*command) as second:
                _, error = second.communicate(timeout=60)
                assert second.returncode == 2
                assert "another process" in error
        began = time.monotonic()
        worker.send_signal(number)
        _, error = worker.communicate(timeout=30)
        assert worker.returncode == 128 + number
        assert time.monotonic() - began < 10
        assert "Run the same command again to continue" in error
        assert "Traceback" not in error
    steps = [int(p.name) for p in (out / "checkpoints").iterdir()]
    assert len(steps) == 1
    with started(*command, "--resume") as again:
        assert any(f"from step {steps[0]:,}" in line for line in again.stdout)
        again.send_signal(signal.SIGTERM)
        again.communicate(timeout=60)
        assert again.returncode == 143


@pytest.mark.slow
def test_several_seeds_each_in_its_own_folder(tmp_path, data):
    common = ["--data", data, "--algo", "odice", "--steps", "100", *TINY]
    with started(*common, "--seeds", "2", "--out", str(tmp_path / "many")) as process:
        output, error = process.communicate(timeout=300)
        assert process.returncode == 0, output + error
    assert main(["train", *common, "--seed", "1", "--out", str(tmp_path / "one")]) == 0
    results = [json.loads((tmp_path / where / "result.json").read_text()) for where in ("many/seed-1", "one")]
    assert results[0]["state_sha256"] == results[1]["state_sha256"]
    assert (tmp_path / "many" / "seed-0" / "policy" / "last" / "policy.safetensors").exists()


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        (["--steps", "700"], 700),
        ([], 1_000_000),
        (["--steps", "700", "--cosine-steps", "0"], 0),
        (["--cosine-steps", "9"], 9),
    ],
)
def test_a_cosine_schedule_lasts_as_long_as_the_run(flags, expected):
    settings, _ = parse(["--data", "log.csv", "--algo", "iql", "--preset", "reference", *flags])
    assert settings.config.cosine_steps == expected
    given = {flag[2:].replace("-", "_"): int(value) for flag, value in zip(flags[::2], flags[1::2], strict=True)}
    assert resolve("log.csv", algo="iql", preset="reference", **given).config.cosine_steps == expected
