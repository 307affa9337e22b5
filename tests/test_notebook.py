"""What a notebook shows of odice's objects."""

import re
from types import SimpleNamespace

import numpy as np
import pytest

import odice
from odice.notebook import facts, table


def text(html: str) -> str:
    return re.sub(r"<[^>]+>", " ", html)


def test_cells_are_escaped_and_empty_facts_left_out():
    html = facts("<b>", {"name": "<script>", "none": None, "empty": "", "zero": 0})
    assert "<script>" not in html
    assert "&lt;script&gt;" in html
    assert "none" not in html
    assert "empty" not in html
    assert "zero" in html
    assert table("t", ["a"], [["1"]], "n & m").count("<tr>") == 2


@pytest.fixture(scope="module")
def log() -> dict:
    rng = np.random.default_rng(0)
    obs, act = rng.normal(size=(400, 3)), rng.uniform(-1, 1, (400, 1))
    return {
        "observations": obs,
        "actions": act,
        "rewards": -np.abs(act[:, 0] - np.tanh(obs[:, 0])),
        "terminals": np.zeros(400, bool),
        "timeouts": np.arange(400) % 20 == 19,
    }


def test_data_set(log):
    shown = text(odice.load(log)._repr_html_())
    assert "400" in shown
    assert "3 numbers" in shown
    assert f"{odice.load(log).returns.mean():,.4g}" in shown


def test_evaluation():
    from odice.evaluation.simulator.evaluate import Evaluation

    evaluation = Evaluation("Hopper-v5", np.array([1.0, 3.0]), np.array([5, 5]), np.array([0, 1]), reference=(0.0, 4.0))
    shown = text(evaluation._repr_html_())
    assert "Hopper-v5" in shown
    assert "50.0" in shown
    assert "cost" not in shown
    assert repr(evaluation) == "Evaluation(Hopper-v5, 2 episodes: mean 2, standard deviation 1, worst 1)"


def test_estimates():
    from odice.evaluation.ope.estimate import Estimates
    from odice.evaluation.ope.intervals import Interval

    one = SimpleNamespace(value=None, improvement=Interval(0.5, 0.25, 0.75, 0.3), unusable="too few episodes")
    result = SimpleNamespace(
        estimates={"one-step": one}, behavior=Interval(2.0, 1.0, 3.0, 1.1), verdict="cannot tell", judged_by="held out"
    )
    assert Estimates.__repr__(result) == "Estimates(cannot tell)"
    shown = text(Estimates._repr_html_(result))
    for words in ("cannot tell", "2 (1 to 3)", "0.5 (0.25 to 0.75)", "too few episodes", "held out"):
        assert words in shown


@pytest.mark.slow
def test_policy_of_a_table_names_its_columns(tmp_path):
    rng = np.random.default_rng(0)
    lines = [
        f"{i // 5},{i % 5},{rng.normal()},{rng.choice(['low', 'high'])},{rng.normal()},{int(i % 5 == 4)}"
        for i in range(100)
    ]
    (tmp_path / "log.csv").write_text("\n".join(["episode,step,obs_heat,action,reward,truncated", *lines]))
    settings = {"algo": "bc", "steps": 10, "batch_size": 16, "policy_hidden": (8,), "quiet": True, "allow": ["all"]}
    run = odice.train(str(tmp_path / "log.csv"), out=tmp_path / "run", **settings)
    shown = text(run.policy._repr_html_())
    assert "obs_heat" in shown
    assert "high, low" in shown


@pytest.mark.slow
def test_run_policy_comparison(log, tmp_path):
    run = odice.train(log, algo="bc", steps=40, batch_size=32, policy_hidden=(8,), out=tmp_path / "run", quiet=True)
    assert repr(run).startswith(f"Run({str(run.path)!r}: finished")
    shown = text(run._repr_html_())
    assert "bc" in shown
    assert "finished 40 updates" in shown
    assert run.result["health"]["says"] in shown.replace("&#x27;", "'")
    assert "3 numbers" in text(run.policy._repr_html_())
    figure = run.plot()
    assert figure._repr_png_().startswith(b"\x89PNG")
    assert [axes.get_title() for axes in figure.axes] == ["policy_loss"]
    assert figure.axes[0].lines[0].get_marker() == "o"  # one row: a line alone would not be seen
    drawn = figure.axes[0].lines[0].get_ydata()
    np.testing.assert_allclose(drawn, run.metrics["policy_loss"].to_numpy())
    with pytest.raises(odice.OdiceError, match="has no metric 'nonsense'"):
        run.plot(["nonsense"])
    comparison = odice.report(run)
    assert "bc" in comparison._repr_html_()
    assert repr(comparison).startswith("Comparison(bc on ")
