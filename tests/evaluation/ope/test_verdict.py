"""The verdict's rules one by one, the choice among policies, and the command line's refusals."""

import json

import numpy as np
import pytest

from odice.cli.main import main
from odice.cli.select import find_policies
from odice.data.build import from_episodes
from odice.data.meta import Meta
from odice.errors import OdiceError
from odice.evaluation.ope.bootstrap import Interval
from odice.evaluation.ope.estimate import estimate
from odice.evaluation.ope.log import make_log
from odice.evaluation.ope.select import select
from odice.evaluation.ope.verdict import judge, together
from odice.policy.file import Layout
from odice.policy.guard import fit_guard
from odice.policy.policy import Policy
from tests.evaluation.ope.support import World, tabular_policy

pytestmark = pytest.mark.fast

UP, DOWN, WIDE = Interval(2, 1, 3, 1.2), Interval(-2, -3, -1, -2.8), Interval(0.5, -1, 2, -0.8)
FACTS = {"episodes": 100, "outside": 0.0, "spread": 1.0}


def ask(improvement, undiscounted=UP, unusable=(), **facts):
    usable = {name: "too little" if name in unusable else "" for name in improvement}
    return judge(improvement, undiscounted, usable, **{**FACTS, **facts})


@pytest.mark.parametrize(
    ("found", "answer", "says"),
    [
        (ask({"fqe": UP}), "better", "by fqe it earns at least 1.2 more"),
        (ask({"fqe": UP, "importance": UP}), "better", "by fqe, importance it"),
        (ask({"fqe": DOWN}, DOWN), "not better", "between 1 and 3 less"),
        (ask({"fqe": WIDE, "importance": UP}), "cannot tell", "as low as -0.8"),
        (ask({"fqe": UP, "importance": DOWN}), "cannot tell", "as low as -2.8"),
        (ask({"fqe": UP, "importance": DOWN}, unusable=["importance"]), "better", "at least 1.2"),
        (ask({"fqe": UP, "gradient-dice": DOWN}), "better", "at least 1.2"),  # shown, not asked
        (ask({"fqe": UP}, WIDE), "cannot tell", "without discount it may earn 0.8 less"),
        (ask({"fqe": DOWN}, UP), "cannot tell", "by FQE undiscounted it is"),
        (ask({"fqe": DOWN, "importance": UP}, DOWN), "cannot tell", "not better, by importance it is"),
        (ask({"fqe": UP}, episodes=12), "cannot tell", "12 episodes"),
        (ask({"fqe": UP}, outside=0.6), "cannot tell", "60%"),
    ],
)
def test_rules(found, answer, says):
    assert found.answer == answer
    assert says in found.reason


def test_the_bound_is_the_least_of_those_that_count():
    assert ask({"fqe": UP, "importance": WIDE}).lower_bound == -0.8
    assert ask({"fqe": UP, "importance": WIDE}, unusable=["importance"]).lower_bound == 1.2
    assert ask({"fqe": UP, "gradient-dice": WIDE}).lower_bound == 1.2
    assert ask({"fqe": UP}, outside=0.9).lower_bound is None


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


@pytest.mark.slow
def test_the_command_line(files, capsys, tmp_path):
    quick = ["--data", str(files / "log.npz"), "--updates", "60", "--discount", "0.9"]
    assert main(["evaluate", str(files / "run"), *quick, "--json", str(tmp_path / "out.json")]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert all(word in shown for word in ("behavior", "fqe", "undiscounted", "verdict:", "resampling episodes"))
    found = json.loads((tmp_path / "out.json").read_text())
    assert found["episodes"] == 300
    assert set(found["estimates"]) == {"fqe", "importance", "doubly-robust", "gradient-dice"}
    assert found["verdict"]["answer"] in ("better", "not better", "cannot tell")


@pytest.mark.slow
def test_select_ranks_by_the_bound(files, world, capsys, tmp_path):
    quick = [
        "--data",
        str(files / "log.npz"),
        "--updates",
        "60",
        "--discount",
        "0.9",
    ]
    out = tmp_path / "out.json"
    assert main(["select", str(files / "run"), str(files / "worst"), *quick, "--json", str(out)]) == 0
    assert "better by" in capsys.readouterr().out
    found = json.loads(out.read_text())
    bounds = [row["verdict"]["lower_bound"] for row in found["ranked"]]
    fqe = [row["estimates"]["fqe"]["improvement"]["mean"] for row in found["ranked"]]
    keys = [(bound is not None, value) for bound, value in zip(bounds, fqe, strict=True)]
    assert keys == sorted(keys, reverse=True)
    assert len(found["ranked"]) == 2
    assert set(found["ranked"][0]["estimates"]) == {"fqe", "importance", "doubly-robust"}


@pytest.mark.slow
def test_clone_the_behavior_where_nothing_is_better(world):
    few = world.data.select(np.arange(20))  # too few episodes to say anything
    found = select({"a": world.policy}, few, updates=20, discount=0.9, estimators=("fqe",))
    assert found.choice is None
    assert "clone the behavior" in found.advice


@pytest.mark.parametrize(
    ("log", "options", "says"),
    [
        ("wide.npz", [], "observations of 12 numbers, the policy takes 6"),
        ("zero.npz", [], "every reward in the log is 0"),
        ("nan.npz", [], "a number of the log's rewards is not finite"),
        ("log.npz", ["--horizon", "0"], "--horizon must be"),
        ("log.npz", ["--discount", "1"], "--discount must lie between"),
        ("log.npz", ["--estimators", "fqe", "dise"], "Did you mean 'dice'?"),
        ("log.npz", ["--estimators", "dice"], "must include fqe"),
        ("log.npz", ["--video", "a.gif"], "leave it out with --data"),
        ("none.npz", [], "none.npz"),
    ],
)
def test_refusals(files, log, options, says, capsys):
    assert main(["evaluate", str(files / "run"), "--data", str(files / log), *options]) == 2
    told = capsys.readouterr().err
    assert says in told
    assert len(told.strip().splitlines()) == 1


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
    assert make_log(line_policy(), episodes([6, 6, 6], False)).complete.all()
    assert make_log(line_policy(), episodes([5, 6, 7], False), 5).complete.all()


def test_other_columns_of_the_same_number_are_noticed():
    normalizer = {"obs_mean": np.array([0, 50], np.float32), "obs_scale": np.ones(2, np.float32)}
    with pytest.raises(OdiceError, match=r"observation 1 lies 50 scales"):
        make_log(line_policy(**normalizer), episodes([5, 6], True))


def test_columns_are_compared_by_name():
    """One sentence that names the first column that differs."""
    rng = np.random.default_rng(0)
    named = lambda *names: episodes([5, 6], True, meta=Meta("m", obs_layout=tuple((name, 1) for name in names)))
    guard = fit_guard(rng.normal(size=(50, 2)), rng.normal(size=(50, 2)), ("pulse", "pressure"))
    policy = line_policy(guard=guard)
    assert make_log(policy, named("pulse", "pressure")).episodes == 2
    assert make_log(policy, episodes([5, 6], True)).episodes == 2  # a log without names
    with pytest.raises(OdiceError, match=r"the same columns in another order: observation 0 is 'pressure'"):
        make_log(policy, named("pressure", "pulse"))
    with pytest.raises(OdiceError, match=r"another column: observation 1 is 'lactate' in the log and 'pressure'"):
        make_log(policy, named("pulse", "lactate"))


def test_of_a_run_every_checkpoint_is_ranked_once(tmp_path):
    for name, step in (("last", 30), ("best", 20), ("step-10", 10), ("step-20", 20), ("step-30", 30)):
        line_policy(about={"step": step}).save(tmp_path / "run" / "policy" / name)
    line_policy().save(tmp_path / "alone")
    found = find_policies((tmp_path / "run", tmp_path / "alone"))
    assert [path.removeprefix(f"{tmp_path}/") for path in found] == [
        "run/policy/best",
        "run/policy/last",
        "run/policy/step-10",
        "alone",
    ]


def test_together_reaches_as_far_as_any_that_was_learned():
    found = together({"fqe": WIDE, "doubly-robust": DOWN, "importance": Interval(9, 8, 99, 8), "gradient-dice": UP})
    assert found == Interval(0.5, -3, 3, -2.8)
    assert together({"fqe": UP}) == UP
