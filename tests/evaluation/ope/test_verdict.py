"""The verdict's rules one by one, the choice among policies, and the command line's refusals."""

import json
from dataclasses import replace

import numpy as np
import pytest

from odice.cli.main import main
from odice.cli.select import find_policies
from odice.data.build import from_episodes, from_steps
from odice.data.meta import Meta
from odice.errors import OdiceError
from odice.evaluation.ope.episodes import make_episodes
from odice.evaluation.ope.estimate import estimate
from odice.evaluation.ope.held_out import evaluation_episodes
from odice.evaluation.ope.intervals import Interval
from odice.evaluation.ope.select import select
from odice.evaluation.ope.verdict import conclude
from odice.policy.file import Layout
from odice.policy.guard import fit_guard
from odice.policy.policy import Policy
from tests.evaluation.ope.support import World, tabular_policy

pytestmark = pytest.mark.fast

UP, DOWN, WIDE = Interval(2, 1, 3, 1.2), Interval(-2, -3, -1, -2.8), Interval(0.5, -1, 2, -0.8)
FACTS = {"episodes": 100, "outside": 0.0, "known": False}


def ask(improvement, unusable=(), **facts):
    why = {name: "too little" if name in unusable else "" for name in improvement}
    return conclude(improvement, why, **{**FACTS, **facts})


def weighted(fqe, robust, **more):
    return {"fqe": fqe, "importance": WIDE, "doubly-robust": robust, **more}


@pytest.mark.parametrize(
    ("verdict", "answer", "says"),
    [
        (ask({"fqe": UP}), "cannot tell", "FQE alone gives an estimate"),
        (ask({"fqe": UP, "one-step": UP}), "better", "by fqe and one-step it earns at least 1.2 more"),
        (ask({"fqe": UP, "one-step": UP}, unusable=["one-step"]), "cannot tell", "one-step: too little"),
        (
            ask({"fqe": UP, "one-step": WIDE}),
            "cannot tell",
            "could confirm a gain of 1.3 or more, and finds less (fqe 2, one-step 0.5)",
        ),
        (ask({"fqe": DOWN, "one-step": DOWN}), "not better", "at least 1 less"),
        (ask({"fqe": DOWN, "one-step": UP}), "cannot tell", "finds less (fqe -2, one-step 2)"),
        (ask(weighted(UP, UP)), "better", "by fqe and doubly-robust"),
        (ask(weighted(UP, UP, **{"one-step": WIDE})), "better", "at least 1.2"),
        (ask(weighted(WIDE, UP)), "cannot tell", "a gain of 1.3 or more"),
        (ask(weighted(WIDE, DOWN)), "not better", "by doubly-robust it earns at least 1 less"),
        (ask(weighted(UP, DOWN)), "cannot tell", "doubly-robust find it worse, fqe better"),
        (ask({**weighted(WIDE, UP), "importance": UP}, known=True), "better", "doubly-robust and importance"),
        (ask({"fqe": WIDE, "propensity": UP}), "better", "by propensity"),
        (ask({"fqe": WIDE, "propensity": DOWN}), "not better", "by propensity"),
        (ask({"fqe": UP, "gradient-dice": UP}), "cannot tell", "FQE alone"),
        (ask({"fqe": UP, "one-step": UP}, episodes=12), "cannot tell", "12 episodes"),
        (ask({"fqe": UP, "one-step": UP}, outside=0.6), "cannot tell", "60%"),
        (ask({"fqe": DOWN, "one-step": DOWN}, outside=0.6), "not better", "at least 1 less"),
        (ask({"fqe": UP, "one-step": UP}, trained_on=True), "cannot tell", "these episodes trained the policy"),
    ],
)
def test_rules(verdict, answer, says):
    assert verdict.answer == answer
    assert says in verdict.reason


def test_the_bound_is_the_least_of_those_that_count():
    higher = Interval(5, 4, 6, 4.5)
    assert ask({"fqe": UP, "one-step": higher}).lower_bound == 1.2
    assert ask(weighted(higher, UP)).lower_bound == 1.2
    assert ask(weighted(UP, UP)).smallest == pytest.approx(0.8)
    assert ask(weighted(UP, WIDE)).lower_bound is None  # a bound below 0 is not stated
    assert ask(weighted(UP, WIDE)).smallest == pytest.approx(1.3)
    for facts in ({"outside": 0.9}, {"trained_on": True}, {"episodes": 5}):
        assert ask({"fqe": UP, "one-step": UP}, **facts).lower_bound is None


@pytest.fixture(scope="module")
def world():
    return World(episodes=300)


@pytest.fixture(scope="module")
def files(world, tmp_path_factory):
    folder = tmp_path_factory.mktemp("ope")
    world.policy.save(folder / "run" / "policy" / "last")
    worst = world.mdp.reward.argmin(1)
    tabular_policy(worst, 3).save(folder / "worst")
    data = world.data
    arrays = {
        "observations": data.step_observations(),
        "actions": data.actions,
        "rewards": data.rewards,
        "terminals": data.step_flags("terminated"),
        "timeouts": data.step_flags("truncated"),
    }
    np.savez(folder / "log.npz", **arrays)
    np.savez(folder / "zero.npz", **{**arrays, "rewards": 0 * data.rewards})
    np.savez(folder / "nan.npz", **{**arrays, "rewards": np.where(np.arange(data.n_steps) == 3, np.nan, data.rewards)})
    np.savez(folder / "wide.npz", **{**arrays, "observations": np.repeat(arrays["observations"], 2, axis=1)})
    return folder


def test_the_command_line(files, capsys, tmp_path):
    quick = ["--data", str(files / "log.npz"), "--discount", "0.9"]
    assert main(["evaluate", str(files / "run"), *quick, "--json", str(tmp_path / "out.json")]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert all(word in shown for word in ("behavior", "fqe", "one-step", "verdict:", "judged by 300 episodes"))
    content = json.loads((tmp_path / "out.json").read_text())
    assert content["episodes"] == 300
    assert set(content["estimates"]) == {"fqe", "importance", "doubly-robust", "one-step"}
    assert content["verdict"]["answer"] in ("better", "not better", "cannot tell")
    low, high = content["possible"]
    values = [one["value"] for one in content["estimates"].values() if one["value"]]
    assert all(low <= value[end] <= high for value in values for end in ("mean", "low", "high"))


@pytest.mark.slow
def test_select_pays_for_the_choice_and_obeys_health(files, world, capsys, tmp_path):
    quick = ["--data", str(files / "log.npz"), "--discount", "0.9"]
    sick = replace(world.policy, about={"health": {"verdict": "do not deploy", "says": "do not deploy: x"}})
    sick.save(tmp_path / "sick")
    out = tmp_path / "out.json"
    assert main(["select", str(tmp_path / "sick"), str(files / "worst"), *quick, "--json", str(out)]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "the 2 bounds hold at once" in shown
    content = json.loads(out.read_text())
    assert content["choice"] is None
    assert [row["verdict"]["confidence"] for row in content["ranked"]] == [0.975, 0.975]
    alone = estimate(world.policy, world.data, discount=0.9)
    of_two = next(row for row in content["ranked"] if row["health"] == "do not deploy")
    assert of_two["verdict"]["lower_bound"] < alone.verdict.lower_bound
    assert alone.verdict.answer == "better"
    assert select({"good": world.policy}, world.data, discount=0.9).choice == "good"


def test_a_run_is_judged_by_its_held_out_episodes(world):
    data = world.data
    facts = {"fingerprint": data.fingerprint, "holdout": 0.2, "held_out_episodes": 60}
    of_run = lambda **more: replace(world.policy, about={"data": {**facts, **more}})
    by = evaluation_episodes(of_run(), data)
    assert by.origin == "held out"
    assert by.data.fingerprint == data.split(0.2)[0].fingerprint
    assert evaluation_episodes(of_run(holdout=None), data).origin == "trained on"
    assert evaluation_episodes(of_run(holdout="all"), data).origin == "trained on"
    assert evaluation_episodes(of_run(fingerprint="0"), data).origin == "another log"
    assert evaluation_episodes(world.policy, data).origin == "another log"


def test_of_a_long_log_some_episodes_are_used(world, monkeypatch):
    monkeypatch.setattr("odice.evaluation.ope.estimate.MAX_STEPS", 600)
    estimates = estimate(world.policy, world.data, discount=0.9)
    assert 600 <= estimates.steps < 700
    assert estimates.horizon == world.data.lengths.max()
    assert f"{estimates.episodes:,} episodes" in estimates.judged_by


def test_what_can_be_judged(world):
    """A policy, the same as a function, and as a column of decisions or probabilities."""
    data = world.data
    choose = lambda seen: world.choice[seen.argmax(axis=1)]
    column = choose(data.step_observations())
    logs = [make_episodes(one, data) for one in (world.policy, choose, column, np.eye(3)[column])]
    steps = [log.decisions.prob[log.index] for log in logs]
    assert all(np.array_equal(one, steps[0]) for one in steps)
    assert all(log.decisions.deterministic for log in logs)
    assert logs[0].known_next.all()
    with pytest.raises(OdiceError, match="whole number from 0 to 2"):
        make_episodes(lambda seen: np.full(len(seen), 7), data)
    with pytest.raises(OdiceError, match="has 3 rows"):
        make_episodes(column[:3], data)


def bandit_log(n, rng, propensity=True):
    """One decision among five: the reward's chance is 0.1 to 0.5; the log tries all of them equally often."""
    actions = rng.integers(0, 5, n)
    rewards = rng.random(n) < 0.1 * (1 + actions)
    chance = {"propensities": np.full(n, 0.2)} if propensity else {}
    return from_steps(rng.normal(size=(n, 2)), actions, rewards.astype(float), episode=np.arange(n), **chance)


def test_a_randomized_one_step_log_is_answered_exactly():
    data = bandit_log(2000, np.random.default_rng(0))
    assert data.terminated.all()  # single decisions, without a flag
    run = lambda arm: estimate(lambda seen: np.full(len(seen), arm), data, discount=1.0)
    good, bad = run(4), run(0)
    assert (good.verdict.answer, good.verdict.witnesses) == ("better", ("propensity",))
    assert 0.1 < good.verdict.lower_bound < 0.2  # the truth is 0.5 - 0.3
    assert bad.verdict.answer == "not better"
    assert good.outside == 0  # each action has a fifth: none is rare
    assert good.known


def test_clone_the_behavior_where_nothing_is_better(world):
    few = world.data.select(np.arange(20))  # too few episodes to say anything
    selection = select({"a": world.policy}, few, discount=0.9)
    assert selection.choice is None
    assert "clone the behavior" in selection.advice


@pytest.mark.parametrize(
    ("log", "options", "says"),
    [
        ("wide.npz", [], "observations of 12 numbers, the policy takes 6"),
        ("zero.npz", [], "every reward in the log is 0"),
        ("nan.npz", [], "a number of the log's rewards is not finite"),
        ("log.npz", ["--horizon", "0"], "--horizon must be"),
        ("log.npz", ["--discount", "2"], "--discount must lie above 0"),
        ("log.npz", ["--seed", "-1"], "seed must be at least 0, got -1"),
        ("log.npz", ["--discount", "1", "--estimators", "dice"], "need a discount below 1"),
        ("log.npz", ["--estimators", "fqe", "dise"], "Did you mean 'dice'?"),
        ("log.npz", ["--video", "a.gif"], "leave it out with --data"),
        ("none.npz", [], "none.npz"),
    ],
)
def test_refusals(files, log, options, says, capsys):
    assert main(["evaluate", str(files / "run"), "--data", str(files / log), *options]) == 2
    output = capsys.readouterr().err
    assert says in output
    assert len(output.strip().splitlines()) == 1


def episodes(lengths, terminated, action=0.5, meta=None):
    make = lambda n: {
        "observations": np.random.default_rng(n).normal(size=(n + 1, 2)),
        "actions": np.full((n, 1), action),
        "rewards": np.ones(n),
        "terminated": terminated,
        "truncated": not terminated,
    }
    return from_episodes([make(n) for n in lengths], meta=meta)


def line_policy(**options):
    tensors = {"layers.0.weight": np.ones((2, 1), np.float32), "layers.0.bias": np.zeros(1, np.float32)}
    return Policy(Layout((2, 1), False, "relu", "clip"), tensors, **options)


BOUNDS = {"action_low": np.array([-1], np.float32), "action_high": np.array([1], np.float32)}


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (episodes([5], True), "the log is one episode"),
        (episodes([5, 6, 7], False), "no episode terminates"),
        (episodes([5, 6], True, action=3.0), "actions go from 3 to 3, the policy's from -1 to 1"),
        (episodes([5, 6], True, meta=Meta("m", action_low=(-2.0,), action_high=(2.0,))), "from -2 to 2"),
    ],
)
def test_logs_that_cannot_be_judged(data, says):
    with pytest.raises(OdiceError, match=says):
        estimate(line_policy(**BOUNDS), data)


def test_a_log_without_terminals_but_with_a_time_limit_is_judged():
    assert make_episodes(line_policy(), episodes([6, 6, 6], False)).complete.all()
    assert make_episodes(line_policy(), episodes([5, 6, 7], False), 5).complete.all()


def test_other_columns_of_the_same_number_are_noticed():
    normalizer = {"obs_mean": np.array([0, 50], np.float32), "obs_scale": np.ones(2, np.float32)}
    with pytest.raises(OdiceError, match=r"observation 1 lies 50 scales"):
        make_episodes(line_policy(**normalizer), episodes([5, 6], True))


def test_columns_are_compared_by_name():
    """One sentence that names the first column that differs."""
    rng = np.random.default_rng(0)
    named = lambda *names: episodes([5, 6], True, meta=Meta("m", obs_layout=tuple((name, 1) for name in names)))
    guard = fit_guard(rng.normal(size=(50, 2)), rng.normal(size=(50, 2)), ("pulse", "pressure"))
    policy = line_policy(guard=guard)
    assert make_episodes(policy, named("pulse", "pressure")).n_episodes == 2
    assert make_episodes(policy, episodes([5, 6], True)).n_episodes == 2  # a log without names
    with pytest.raises(OdiceError, match=r"the same columns in another order: observation 0 is 'pressure'"):
        make_episodes(policy, named("pressure", "pulse"))
    with pytest.raises(OdiceError, match=r"another column: observation 1 is 'lactate' in the log and 'pressure'"):
        make_episodes(policy, named("pulse", "lactate"))


def test_of_a_run_every_checkpoint_is_ranked_once(tmp_path):
    for name, step in (("last", 30), ("best", 20), ("step-10", 10), ("step-20", 20), ("step-30", 30)):
        line_policy(about={"step": step}).save(tmp_path / "run" / "policy" / name)
    line_policy().save(tmp_path / "alone")
    policies = find_policies((tmp_path / "run", tmp_path / "alone"))
    assert [path.removeprefix(f"{tmp_path}/") for path in policies] == [
        "run/policy/best",
        "run/policy/last",
        "run/policy/step-10",
        "alone",
    ]


@pytest.mark.parametrize("horizon", [0, -1, 10**9, 10**30])
def test_a_horizon_that_no_memory_holds_is_one_sentence(horizon):
    with pytest.raises(OdiceError, match=r"--horizon must be from 1 to"):
        make_episodes(line_policy(), episodes([5, 6], True), horizon)


def test_no_confidence_is_rounded_up_to_certainty():
    several = ask({"fqe": UP, "one-step": UP}, confidence=1 - 0.05 / 20)
    assert "(99.7% confidence)" in several.reason
    assert "(95% confidence)" in ask({"fqe": UP, "one-step": UP}).reason


def test_the_table_of_one_of_several_policies_says_its_confidence(world):
    from odice.cli.estimates import lines

    estimates = estimate(world.policy, world.data, discount=0.9, candidates=8)
    assert any("99.3 % between them" in line for line in lines(estimates))
