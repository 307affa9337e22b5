"""Early stopping by the log alone: when it stops, what it keeps, and that an interrupted run stops at the same step."""

import json

import numpy as np
import pytest

import odice
from odice.errors import OdiceError
from odice.evaluation.ope.estimate import estimate
from odice.training.loggers import rows
from odice.training.loop import Loop
from odice.training.patience import Patience
from tests.training.line import SMALL, line_log

RUN = {
    **SMALL,
    "algo": "odice",
    "steps": 200,
    "eval_every": 20,
    "checkpoint_every": 30,
    "quiet": True,
    "allow": ("all",),
}
RUN |= {"env": "none", "patience": 2}
BOUNDS = {20: -3.0, 40: None, 60: 1.0, 80: 0.5, 100: 1.0, 120: 9.0}
"""What the estimates say in these tests: the best is at 60, and 80 and 100 are no better."""


class Said:
    """As much of an estimate as is looked at."""

    def __init__(self, policy, data, **settings):
        bound = BOUNDS[policy.about["step"]]
        interval = type("Interval", (), {"mean": -5.0 if bound is None else bound})()
        self.estimates = {"fqe": type("Estimate", (), {"improvement": interval})()}
        self.verdict = type("Verdict", (), {"answer": "cannot tell", "lower_bound": bound, "smallest": bound})()


@pytest.fixture
def fixed_estimates(monkeypatch):
    monkeypatch.setattr("odice.training.patience.estimate", Said)


def train(out, **changes):
    return odice.train(line_log(), out=out, **{**RUN, **changes})


def content(run):
    names = ["metrics.jsonl", "estimates.jsonl", "result.json"]
    names += [f"policy/{which}/policy.{suffix}" for which in ("last", "selected") for suffix in ("json", "safetensors")]
    return {name: (run.path / name).read_bytes() for name in names}


def test_stops_after_so_many_estimates_without_a_better_one(tmp_path, fixed_estimates):
    run = train(tmp_path / "run")
    assert [row["bound"] for row in rows(run.path / "estimates.jsonl")] == [-3.0, None, 1.0, 0.5, 1.0]
    assert (run.result["step"], run.result["stopped_early"]) == (100, True)
    assert run.result["selected"] == {"step": 60, "answer": "cannot tell", "bound": 1.0}
    selected = odice.Policy.load(run.path / "policy" / "selected")
    assert (selected.about["step"], run.policy.about["step"]) == (60, 100)
    assert selected.about["health"]["verdict"] in ("good", "watch", "do not deploy", "not checked")
    assert "stopped early after 100 updates" in run.summary()
    assert train(tmp_path / "run").result == run.result  # finished: nothing to do


def test_without_patience_nothing_is_estimated(tmp_path, fixed_estimates):
    run = train(tmp_path / "run", patience=None, steps=40)
    assert not (run.path / "estimates.jsonl").exists()
    assert "selected" not in run.result


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_an_interrupted_run_stops_at_the_same_step(tmp_path, fixed_estimates):
    uninterrupted = content(train(tmp_path / "uninterrupted"))
    for pieces in (5, 4, 1):

        def dies(self, length, advance=Loop._advance, left=[pieces]):  # noqa: B006
            if not left[0]:
                raise KeyboardInterrupt
            left[0] -= 1
            advance(self, length)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Loop, "_advance", dies)
            with pytest.raises(KeyboardInterrupt):
                train(tmp_path / "run")
    assert content(train(tmp_path / "run")) == uninterrupted


def test_the_estimates_are_by_the_held_out_episodes(tmp_path, monkeypatch):
    """An estimate made during training is what `odice.estimate` says of the policy that was saved at that step."""
    quick = lambda policy, data, **settings: estimate(policy, data, updates=20, **settings)
    monkeypatch.setattr("odice.training.patience.estimate", quick)
    log = line_log(episodes=60)
    run = odice.train(log, out=tmp_path / "run", **{**RUN, "steps": 40, "eval_every": 40})
    (row,) = rows(run.path / "estimates.jsonl")
    result = quick(run.policy, odice.load(log))
    assert result.episodes == 6
    assert row["answer"] == result.verdict.answer
    assert row["rank"][3] == pytest.approx(result.estimates["fqe"].improvement.mean, rel=1e-6)


def test_a_log_that_cannot_judge_is_refused_before_training(tmp_path):
    log = line_log()
    with pytest.raises(OdiceError, match="every reward in the log is 0"):
        odice.train({**log, "rewards": np.zeros_like(log["rewards"])}, out=tmp_path / "run", **RUN)
    with pytest.raises(OdiceError, match="patience must be at least 1, got 0"):
        train(tmp_path / "run", patience=0)
    with pytest.raises(OdiceError, match="needs the log in memory; leave out --stream"):
        train(tmp_path / "run", stream=True)


def test_checkpoints_have_policies_and_lose_both_at_once(tmp_path):
    run = train(tmp_path / "run", patience=None, keep=2, steps=100, checkpoint_every=20)
    there = sorted(folder.name for folder in (run.path / "policy").iterdir())
    assert there == ["last", "step-100", "step-80"]
    steps = [json.loads((run.path / "policy" / name / "policy.json").read_text())["step"] for name in there]
    assert steps == [100, 100, 80]


def test_patience_by_hand():
    looks = Patience(2, None)  # pyright: ignore[reportArgumentType]
    assert not looks.enough
    for rank, enough in ((1, False), (0, False), (2, False), (2, False), (1, True), (3, False)):
        looks.remember([*looks._rows, {"rank": [True, rank, 0]}])
        assert looks.enough is enough
