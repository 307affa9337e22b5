"""Health: the checks themselves, the yardsticks against numbers by hand, and what a run says of itself."""

import json
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

import odice
from odice.algos import algorithms, entry
from odice.algos.health import Check
from odice.errors import OdiceError
from odice.training.health import COMMON, Watch, judge
from odice.training.holdout import Nearby, Probe, Yardsticks, error
from odice.training.loggers import rows
from odice.training.prepare import prepare
from odice.training.settings import resolve
from odice.types import Batch, Transitions
from tests.training.line import SMALL, line_log
from tests.worlds import hospital

pytestmark = pytest.mark.fast

QUICK = {"steps": 40, "eval_every": 20, "quiet": True, "allow": ("all",), "env": "none"}


class Fixed:
    """A policy that does the same everywhere."""

    def __init__(self, action):
        self.action = action

    def mode(self, obs) -> Any:
        return np.broadcast_to(self.action, (len(obs), *np.shape(self.action)))

    def deterministic(self) -> Any:
        raise NotImplementedError


def probe(actions, clone_gain=0.8, chance=0.5, returns=(0.0, 10.0), trained=None, near=None) -> Probe:
    n = len(actions)
    zeros = jnp.zeros((n, 2))
    batch = lambda actions: Batch(zeros, jnp.asarray(actions), jnp.zeros(n), zeros, jnp.zeros(n, bool))
    near = np.tile([0, 1], (n, 50)) if near is None else near
    held, trained = batch(actions), batch(actions if trained is None else trained)
    return Probe(trained, held, returns, lambda: Yardsticks(chance, clone_gain, Nearby(near, 0.05)))


# --- checks -----------------------------------------------------------------------------------------------------------


def test_a_limit_itself_is_healthy():
    least, most = Check("x", 0.5, "at least", "low"), Check("x", 0.5, "at most", "high")
    assert [least.fails(v) for v in (0.4, 0.5, 0.6)] == [True, False, False]
    assert [most.fails(v) for v in (0.4, 0.5, 0.6)] == [False, False, True]
    assert least.describe(0.25) == "low (x 0.25, healthy at least 0.5)"


def test_every_declared_metric_is_one_that_the_docs_or_the_run_make():
    made_by_the_run = {"value_excess", "agreement", "drift", "memorized", "outside"}
    for name, algorithm in algorithms().items():
        for check in algorithm.health:
            assert isinstance(check, Check)
            assert check.metric in made_by_the_run or check.metric.endswith(("_ess", "_mean", "_std", "_loss")), name
    assert {check.metric for check in COMMON} <= made_by_the_run


def test_only_the_last_quarter_counts():
    before = [{"step": i, "weight_ess": 0.0001, "weight_mean": 1.0, "value_mean": 0.0} for i in range(6)]
    after = [{"step": i, "weight_ess": 0.2, "weight_mean": 1.0, "value_mean": 0.0} for i in range(6, 8)]
    verdict = judge(entry("odice"), before + after, Fixed(1), probe([1, 1, 0, 1]))
    assert verdict.measures["weight_ess"] == 0.2
    assert not [each for each in verdict.findings if each.check.metric == "weight_ess"]
    verdict = judge(entry("odice"), after + before, Fixed(1), probe([1, 1, 0, 1]))
    assert verdict.verdict == "do not deploy"
    assert verdict.to_dict()["says"].startswith("do not deploy: almost no transition has any weight")


def test_agreement_is_a_share_of_what_cloning_gains():
    """Three of four right: an error of 0.25 against 0.5 of chance is a gain of 0.5; cloning gains 0.8."""
    verdict = judge(entry("bc"), [{"step": 1}], Fixed(1), probe([1, 1, 0, 1]))
    assert verdict.measures["policy_gain"] == pytest.approx(0.5)
    assert verdict.measures["agreement"] == pytest.approx(0.625)
    assert verdict.verdict == "good"
    assert judge(entry("bc"), [{"step": 1}], Fixed(0), probe([1, 1, 0, 1])).verdict == "do not deploy"


def test_where_cloning_cannot_learn_nothing_is_said_about_agreement():
    verdict = judge(entry("bc"), [{"step": 1}], Fixed(0), probe([1, 1, 0, 1], clone_gain=0.05))
    assert verdict.measures["agreement"] is None
    assert verdict.verdict == "not checked"
    assert verdict.to_dict()["says"].startswith("not checked: the log's actions hardly depend")


def test_without_held_out_episodes_nothing_is_called_good():
    verdict = judge(entry("bc"), [{"step": 1}], Fixed(1), probe([1, 1, 0, 1])._replace(held=None))
    assert verdict.verdict == "not checked"
    (unknown,) = [result for result in verdict.results if result.metric == "memorized"]
    assert (unknown.state, unknown.value) == ("not checked", None)
    assert "--holdout" in unknown.reason


def test_learned_by_heart():
    """All of four right where it was trained and one of four elsewhere: gains of 1 and -0.5, chance errs in half."""
    verdict = judge(entry("bc"), [{"step": 1}], Fixed(1), probe([0, 0, 1, 0], clone_gain=0.05, trained=[1, 1, 1, 1]))
    assert verdict.measures["memorized"] == pytest.approx(1.5)
    assert verdict.verdict == "do not deploy"
    assert "by heart" in verdict.to_dict()["says"]
    assert verdict.results[0].state == "bad"


def test_outside_the_data_in_more_than_a_third_of_the_states():
    """Action 1 is what none of the neighbors did in two of four states; in one of four that is fine."""
    near = np.ones((4, 100), int)
    for never, verdict in ((2, "do not deploy"), (1, "good")):
        near[:never] = 0
        near[never:] = 1
        result = judge(entry("bc"), [{"step": 1}], Fixed(1), probe([1, 1, 1, 1], near=near))
        assert result.measures["outside"] == never / 4
        assert result.verdict == verdict
    distances = Nearby(np.zeros((3, 2, 1)), 0.5)
    assert distances.outside(np.array([[0.4], [0.6], [-2.0]])) == pytest.approx(2 / 3)


def test_values_beyond_every_return():
    row = {"step": 1, "weight_ess": 0.5, "weight_mean": 1.0, "critic_mean": 5.0, "value_mean": 25.0}
    verdict = judge(entry("iql"), [row], Fixed(1), probe([1, 1, 0, 1]))
    assert verdict.measures["value_excess"] == pytest.approx(1.5)  # 15 above the best return, of a range of 10
    assert verdict.verdict == "do not deploy"
    assert judge(entry("iql"), [{**row, "value_mean": 5.0}], Fixed(1), probe([1, 1, 0, 1])).verdict == "good"


def test_numbers_that_still_move_are_reported():
    numbers = [{"step": i, "weight_ess": 0.5, "weight_mean": 1.0, "value_mean": float(i)} for i in range(8)]
    verdict = judge(entry("odice"), numbers, Fixed(1), probe([1, 1, 0, 1]))
    assert verdict.measures["drift"] == pytest.approx(2 / 7)  # 6.5 after 4.5, of a range of 7
    assert verdict.verdict == "watch"


def test_says_once_when_it_turns_bad():
    watch = Watch(entry("odice"), 100, (0.0, 1.0))
    bad, good = {"weight_ess": 0.001, "weight_mean": 1.0}, {"weight_ess": 0.3, "weight_mean": 1.0}
    assert watch(10, bad) == []  # networks start anywhere
    assert [watch(step, row) for step, row in ((30, bad), (40, good), (50, bad))] == [[], [], []]
    (said,) = watch(60, bad)
    assert said.startswith("step 60: almost no transition")
    assert watch(70, bad) == []


# --- yardsticks -------------------------------------------------------------------------------------------------------


def test_errors_by_hand():
    assert error(np.array([1, 2, 3]), np.array([1, 0, 3])) == pytest.approx(1 / 3)
    assert error(np.array([[1.0, 0.0]]), np.array([[0.0, 2.0]])) == pytest.approx(2.5)


def test_yardsticks_know_a_log_that_can_be_cloned_from_one_that_cannot():
    clear = line_log(60)
    clear["actions"] = np.tanh(clear["observations"][:, :2])
    values = {
        name: prepare(resolve(data, algo="bc", **QUICK)).probe for name, data in (("no", line_log(60)), ("yes", clear))
    }
    assert values["no"].yardsticks().clone_gain < 0.05
    assert values["yes"].yardsticks().clone_gain > 0.8
    variance = clear["actions"].var(axis=0).mean()
    assert values["yes"].yardsticks().chance == pytest.approx(variance, rel=0.15)


def test_the_range_of_returns():
    data = {**line_log(2, length=3), "rewards": np.array([1.0, -2.0, 4.0, 0.0, 0.0, -8.0], np.float32)}
    low, high = prepare(resolve(data, algo="iql", discount=0.5, **QUICK)).probe.returns
    assert (low, high) == (-8.0, 4.0)
    assert prepare(resolve(data, algo="iql", discount=0.5, reward="zero", **QUICK)).probe.returns == (0.0, 0.0)


# --- held-out episodes ------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_tenth_is_held_out_where_there_are_enough_episodes():
    plans = {
        "few": (resolve(line_log(49), algo="odice", **QUICK), 49, None),
        "enough": (resolve(line_log(60), algo="odice", **QUICK), 54, 6),
        "by choice": (resolve(line_log(10), algo="odice", holdout=0.3, **QUICK), 7, 3),
        "none": (resolve(line_log(60), algo="odice", holdout=0.0, **QUICK), 60, None),
        "preset": (resolve(line_log(60), preset="paper", **QUICK), 60, None),
    }
    for name, (plan, trained, held) in plans.items():
        facts = prepare(plan).about.facts
        assert (facts["episodes"], facts.get("held_out_episodes")) == (trained, held), name


def test_held_out_episodes_are_not_trained_on():
    prepared = prepare(resolve(line_log(60), algo="odice", normalize_obs=False, **QUICK))
    assert prepared.probe.held is not None
    assert isinstance(prepared.source, Transitions)
    trained = {row.tobytes() for row in np.asarray(prepared.source.obs)}
    assert not trained & {row.tobytes() for row in np.asarray(prepared.probe.held.obs)}
    assert {row.tobytes() for row in np.asarray(prepared.probe.trained.obs)} <= trained


def test_a_share_that_is_none_is_refused(tmp_path):
    with pytest.raises(OdiceError, match=r"holdout is a share of the episodes from 0 to 0\.5, got 0\.9"):
        resolve(line_log(), holdout=0.9)
    with pytest.raises(OdiceError, match="larger than memory"):
        prepare(resolve(line_log(), holdout=0.1, stream=True, **QUICK))


@pytest.mark.slow
def test_held_out_numbers_stand_in_the_metrics(tmp_path):
    run = odice.train(line_log(60, discrete=True), out=tmp_path / "a", algo="odice", **SMALL, **QUICK)
    result = rows(run.path / "metrics.jsonl")
    names = {f"{part}_{what}" for part in ("holdout", "train") for what in ("action_error", "log_prob", "value_error")}
    assert all(names <= row.keys() for row in result)
    probe = prepare(resolve(line_log(60, discrete=True), algo="odice", **SMALL, **QUICK)).probe
    assert probe.held is not None
    raw = np.asarray(probe.held.obs) * run.policy.obs_scale + run.policy.obs_mean
    assert result[-1]["holdout_action_error"] == pytest.approx((run.policy(raw) != probe.held.action).mean())
    with pytest.raises(OdiceError, match="held_out_episodes"):
        odice.train(line_log(60, discrete=True), out=run.path, algo="odice", **SMALL, **{**QUICK, "holdout": 0.0})


# --- runs -------------------------------------------------------------------------------------------------------------
@pytest.mark.slow
def test_a_run_that_imitates_nothing_says_so(tmp_path, capsys):
    """Sparse rewards and the paper's lambda: every residual is negative, so no transition has weight."""
    quick = {**QUICK, "steps": 600, "eval_every": 100}
    small = {"value_hidden": (16,), "policy_hidden": (16,), "batch_size": 64, "value_lr": 3e-3}
    run = odice.train(hospital.dataset(patients=100), out=tmp_path / "a", preset="paper", **quick, **small)
    health = run.result["health"]
    assert health["verdict"] == "do not deploy"
    lines = capsys.readouterr().err.splitlines()
    assert lines[-1] == f"{run.path}: {health['says']}"
    assert json.loads((run.path / "result.json").read_text())["health"] == health
    assert run.policy.about["health"]["verdict"] == "do not deploy"
    assert "do not deploy: " in (run.path / "policy" / "last" / "README.md").read_text()


@pytest.mark.slow
def test_a_run_that_clones_is_good(tmp_path, capsys):
    quick = {**QUICK, "steps": 600, "eval_every": 100}
    run = odice.train(
        hospital.dataset(patients=100),
        algo="bc",
        out=tmp_path / "a",
        policy_hidden=(16,),
        batch_size=64,
        policy_lr=1e-2,
        **quick,
    )
    assert run.result["health"]["verdict"] in ("good", "watch")
    assert "do not deploy" not in capsys.readouterr().err
    assert run.result["health"]["measures"]["agreement"] > 0.6
    assert run.policy.guard is not None
    assert run.policy.guard.names == hospital.VITALS


def test_units_of_the_schema_travel_to_the_guard(tmp_path):
    rng, n = np.random.default_rng(0), 120
    lines = [f"{x:.3f},{y:.3f},{a:.3f},1.0,{i % 20 == 19:d}" for i, (x, y, a) in enumerate(rng.uniform(-1, 1, (n, 3)))]
    (tmp_path / "log.csv").write_text("\n".join(["pulse,pressure,action,reward,terminated", *lines]))
    schema = tmp_path / "schema.toml"
    schema.write_text('observation = ["pulse", "pressure"]\nunits = ["pressure=mmHg"]\n')
    run = odice.train(
        tmp_path / "log.csv",
        algo="bc",
        schema=str(schema),
        out=tmp_path / "run",
        policy_hidden=(8,),
        batch_size=8,
        **QUICK,
    )
    guard = odice.Policy.load(run.path / "policy" / "last").guard
    assert guard is not None
    assert (guard.names, guard.units) == (("pulse", "pressure"), ("", "mmHg"))
    (said,) = guard.explain(np.array([0.0, 40.0]))
    assert said.startswith("pressure is 40 mmHg; the log has -")
    for units, why in (
        ("lactate=mmol/l", "'lactate' .for `units`. is no observation column"),
        ("pulse", "has no unit"),
    ):
        with pytest.raises(OdiceError, match=why):
            odice.load(tmp_path / "log.csv", observation=["pulse", "pressure"], units=[units])
