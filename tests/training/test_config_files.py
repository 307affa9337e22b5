"""What stands in a file is not what a person typed: no file chooses what is imported."""

import json
import os
import sys

import pytest

from odice.cli.main import main
from odice.cli.train import parse
from odice.errors import OdiceError
from odice.training.processes import worker_command, worker_settings
from odice.training.settings import read_config, resolve
from odice.training.train import one_seed
from tests.training.line import line_log


@pytest.fixture
def trap(tmp_path, monkeypatch):
    """A module whose import leaves a mark."""
    (tmp_path / "trap.py").write_text(f"open({str(tmp_path / 'mark')!r}, 'w').close()\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    yield tmp_path
    sys.modules.pop("trap", None)


def config(folder, **values):
    (folder / "c.json").write_text(json.dumps(values))
    return str(folder / "c.json")


def log(folder):
    import odice

    return str(odice.load(line_log(discrete=True)).save(folder / "log.parquet", "parquet"))


@pytest.mark.parametrize("seeds", [(), ("--seeds", "2", "--parallel", "vmap")])
def test_a_config_file_imports_nothing(trap, capsys, seeds):
    file = config(trap, env="trap:Plant-v0", allow=["all"])
    assert main(["train", "--data", log(trap), "--config", file, "--out", str(trap / "run"), *seeds]) == 2
    assert "would import a Python module; if you trust it, give it yourself with --env" in capsys.readouterr().err
    assert not (trap / "mark").exists()


def test_what_a_person_types_is_imported(trap, capsys):
    file = config(trap, env="trap:Plant-v0", allow=["all"])
    arguments = ["--data", log(trap), "--config", file, "--out", str(trap / "run"), "--env", "trap:Plant-v0"]
    assert main(["train", *arguments]) == 2  # it holds no environment, but it was looked for
    assert (trap / "mark").exists()


def test_who_named_the_environment_survives_the_way_to_a_worker(tmp_path):
    """A worker gets every value by name; who chose it goes with it."""
    for values, arguments, typed in (
        ({"env": "trap:Plant-v0"}, [], False),
        ({"env": "trap:Plant-v0"}, ["--env", "trap:Plant-v0"], True),
        ({"env": "trap:Plant-v0"}, ["--env=trap:Plant-v0"], True),
        ({"lam": 0.5}, [], False),
    ):
        settings, _ = parse(["--data", "x.npz", "--config", config(tmp_path, **values), *arguments])
        assert settings.may_import is typed
        command = worker_command(one_seed(settings, 3), "x.npz")
        received = worker_settings(json.loads(command[-1]))
        assert received.may_import is typed
        assert received.options.env == settings.options.env
        assert received.options.seed == 3
        assert received.sources == settings.sources
    assert resolve("x.npz", env="trap:Plant-v0").may_import


def test_config_files_are_regular_and_small(tmp_path):
    os.mkfifo(tmp_path / "pipe.json")
    with pytest.raises(OdiceError, match="not a regular file"):
        read_config(str(tmp_path / "pipe.json"))
    (tmp_path / "zero.toml").symlink_to("/dev/zero")
    with pytest.raises(OdiceError, match="not a regular file"):
        read_config(str(tmp_path / "zero.toml"))
    (tmp_path / "big.toml").write_text("#" * (2 << 20))
    with pytest.raises(OdiceError, match="larger than"):
        read_config(str(tmp_path / "big.toml"))


@pytest.mark.parametrize("name", ["c.json", "c.toml"])
@pytest.mark.parametrize("text", ["[" * 100_000, "a = " + "[" * 100_000, '{"lam": ' * 50_000, "lam = " + "9" * 9000])
def test_deep_config_files_are_one_sentence(tmp_path, capsys, name, text):
    (tmp_path / name).write_text(text)
    assert main(["train", "--data", "x.npz", "--config", str(tmp_path / name)]) == 2
    said = capsys.readouterr().err
    assert said.startswith(f"odice: {tmp_path / name}")
    assert said.count("\n") == 1
    assert len(said) < 500


def test_a_setting_beyond_float_is_one_sentence(tmp_path, capsys):
    for text in ('{"lam": 1e999}', '{"lam": %s}' % ("9" * 400), '{"steps": %s}' % ("9" * 400), '{"lam": {"a": 1}}'):
        (tmp_path / "c.json").write_text(text)
        assert main(["train", "--data", "nowhere.npz", "--config", str(tmp_path / "c.json")]) == 2
        assert capsys.readouterr().err.count("\n") == 1
