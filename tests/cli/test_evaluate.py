"""`odice evaluate`: a table and a file, or one sentence and exit code 2."""

import json

import jax
import numpy as np
import pytest

from odice import Policy
from odice.cli.main import main
from odice.core.policies import GaussianPolicy
from odice.evaluation.simulator import video
from odice.types import Spec


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A run directory with a last and a best policy that do not act alike."""
    path = tmp_path_factory.mktemp("runs") / "pendulum"
    for name, key in (("last", 0), ("best", 1)):
        network = GaussianPolicy(jax.random.key(key), Spec(3, 1), (8,)).deterministic()
        Policy.from_network(network, env_id="Pendulum-v1", reference=(-2000, 0)).save(path / "policy" / name)
    return path


def test_table_and_file(run, tmp_path, capsys):
    out = tmp_path / "sub" / "out.json"
    sweep = ["--noise", "0", "0.5", "--start-noise", "0", "0.1"]
    code = main(["evaluate", str(run), "--episodes", "2", *sweep, "--json", str(out)])
    shown = " ".join(capsys.readouterr().out.split())
    assert code == 0
    assert "last policy" in shown
    assert "Pendulum-v1, 2 episodes" in shown
    content = json.loads(out.read_text())["evaluations"]
    assert [(row["noise"], row["start_noise"]) for row in content] == [(0, 0), (0.5, 0), (0, 0.1), (0.5, 0.1)]
    for row in content:
        assert len(row["returns"]) == len(row["seeds"]) == 2
        assert row["score"] == pytest.approx(100 * (np.mean(row["returns"]) + 2000) / 2000)
        assert f"{row['mean']:.1f}" in shown
    assert len({tuple(row["returns"]) for row in content}) == 4


def test_best_is_another_policy(run, tmp_path):
    returns = []
    for which in ("last", "best"):
        options = ["--which", which, "--episodes", "1", "--json", str(tmp_path / which)]
        assert main(["evaluate", str(run), *options]) == 0
        returns.append(json.loads((tmp_path / which).read_text())["evaluations"][0]["returns"])
    assert returns[0] != returns[1]


def test_the_same_command_gives_the_same_bytes(run, tmp_path):
    for name in ("a", "b"):
        assert main(["evaluate", str(run / "policy" / "last"), "--episodes", "2", "--json", str(tmp_path / name)]) == 0
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--env", "CartPole-v1"], "CartPole-v1 has observations of 4 numbers"),
        (["--env", "Pendulun-v1"], "Did you mean 'Pendulum-v1'?"),
        (["--episodes", "0"], "episodes must be"),
        (["--noise", "-1"], "noise must be"),
        (["--max-seconds", "1e-9"], "was not finished after"),
        (["--episodes", "1", "--video", "video.avi"], "ends in .gif or .mp4"),
    ],
)
def test_refusals(run, options, says, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["evaluate", str(run), *options]) == 2
    assert says in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_no_environment_known(run, tmp_path, capsys):
    network = GaussianPolicy(jax.random.key(0), Spec(3, 1), (8,)).deterministic()
    Policy.from_network(network).save(tmp_path / "policy")
    assert main(["evaluate", str(tmp_path / "policy")]) == 2
    assert "name one with --env" in capsys.readouterr().err
    assert main(["evaluate", str(tmp_path / "policy"), "--env", "Pendulum-v1", "--episodes", "1"]) == 0
    assert "score" not in capsys.readouterr().out  # nothing to normalize with


def test_an_import_path_in_a_policy_is_not_followed(tmp_path, capsys, monkeypatch):
    (tmp_path / "trap.py").write_text("raise SystemExit('executed')")
    monkeypatch.syspath_prepend(tmp_path)
    network = GaussianPolicy(jax.random.key(0), Spec(3, 1), (8,)).deterministic()
    Policy.from_network(network, env_id="trap:Pendulum-v1").save(tmp_path / "policy")
    assert main(["evaluate", str(tmp_path / "policy")]) == 2
    assert "would import a Python module" in capsys.readouterr().err


class Drawn:
    """Pendulum with a camera that needs no graphics."""

    metadata = {"render_fps": 60}

    def __init__(self, env):
        self._env = env

    def __getattr__(self, name):
        return getattr(self._env, name)

    def render(self):
        return np.full((8, 8, 3), 100, np.uint8)


def test_video(run, tmp_path, monkeypatch, capsys):
    from PIL import Image

    make = video.make
    monkeypatch.setattr(video, "make", lambda name, render_mode, **options: Drawn(make(name, **options)))
    path = tmp_path / "video.gif"
    assert main(["evaluate", str(run), "--episodes", "1", "--max-steps", "20", "--video", str(path)]) == 0
    assert "11 frames" in capsys.readouterr().out  # the start, then every second step: 60 a second become 30
    with Image.open(path) as image:
        assert image.size == (8, 8)


def test_video_that_cannot_be_drawn(run, tmp_path, monkeypatch, capsys):
    def broken(self):
        raise RuntimeError("no graphics here")

    make = video.make
    monkeypatch.setattr(Drawn, "render", broken)
    monkeypatch.setattr(video, "make", lambda name, render_mode, **options: Drawn(make(name, **options)))
    assert main(["evaluate", str(run), "--episodes", "1", "--video", str(tmp_path / "video.gif")]) == 2
    assert "cannot be drawn on this machine" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--horizon", "10"], "--horizon is for an estimate from a log; name the log with --data"),
        (["--observation-columns", "x"], "--observation-columns is for an estimate from a log"),
        (["--data", "log.npz", "--episodes", "20"], "--episodes is for episodes in an environment"),
        (["--data", "log.npz", "--noise", "0.1"], "--noise is for episodes in an environment"),
    ],
)
def test_a_flag_without_an_effect_is_refused(run, options, says, capsys):
    assert main(["evaluate", str(run), *options]) == 2
    assert says in capsys.readouterr().err
