"""`odice demo`: what it leaves behind, also where nothing can be drawn."""

import pytest

import odice
from odice.cli.main import main
from odice.envs.small import LQR
from odice.experiments import demo
from odice.policy.policy import Policy


@pytest.fixture(scope="module")
def small_log(tmp_path_factory):
    path = tmp_path_factory.mktemp("log") / "lqr.parquet"
    odice.collect(LQR, "random", steps=500, quiet=True, out=path)
    return str(path)


def test_everything_is_left_and_named_even_without_a_video(small_log, tmp_path, monkeypatch, capsys):
    """LQR cannot be drawn, as Hopper on a machine without graphics."""
    monkeypatch.setattr(demo, "DATA", small_log)
    monkeypatch.setattr(demo, "SETTINGS", {"algo": "odice", "value_hidden": (8,), "policy_hidden": (8,)})
    out = tmp_path / "demo"
    assert main(["demo", "--out", str(out), "--steps", "20"]) == 0
    said = capsys.readouterr().out
    for name in ("learning-curve.png", "evaluation.md"):
        assert (out / name).stat().st_size > 0
        assert name in said
    assert "video   there is none: " in said
    assert Policy.load(out / "run" / "policy" / "last").env_id == LQR
    data = odice.load(small_log)
    table = (out / "evaluation.md").read_text()
    assert (
        f"| the data | 10 | {data.returns.mean():.0f} | {data.returns.max():.0f} | {data.returns.min():.0f} |" in table
    )
    assert f"| the learned policy | {demo.EPISODES} | " in table
    assert main(["demo", "--out", str(out), "--steps", "20"]) == 0  # again: nothing to do but to show it


@pytest.mark.long
def test_the_video_of_the_bundled_data(tmp_path, capsys):
    """Where Hopper cannot be drawn, the demo says so and still ends well."""
    assert main(["demo", "--out", str(tmp_path), "--steps", "20"]) == 0
    video = tmp_path / "hopper.gif"
    assert video.exists() or "there is none: Hopper-v5 cannot be drawn" in capsys.readouterr().out
    assert not video.exists() or video.read_bytes()[:3] == b"GIF"


def test_a_demo_of_no_updates_is_refused(tmp_path, capsys):
    assert main(["demo", "--out", str(tmp_path / "demo"), "--steps", "0"]) == 2
    assert "steps must be at least 1" in capsys.readouterr().err
