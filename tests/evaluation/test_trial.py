"""The sequential test of a trial: exact numbers, false alarms under repeated reading, power, and bad input."""

import json

import numpy as np
import pytest

import odice
from odice.cli.main import main
from odice.data.build import from_steps
from odice.errors import OdiceError
from odice.evaluation import trial as module
from odice.evaluation.trial import compare, episodes_needed


def successes(rng, n, chance):
    return (rng.random(n) < chance).astype(float)


def test_evidence_is_a_lower_bound_on_the_wealth_at_every_mean():
    """By the definition, at many means: no grid, no intervals between its points."""
    rng = np.random.default_rng(0)
    x, y = rng.beta(4, 2, 60), rng.beta(3, 3, 150)
    stakes = module._stakes(None)
    wealth = []
    for m in np.linspace(0.001, 0.999, 1500):
        b, c = np.minimum(stakes.policy, 0.95 / m), np.minimum(stakes.control, 0.95 / (1 - m))
        bets = [np.prod(1 + bi * (x - m)) * np.prod(1 + ci * (m - y)) for bi, ci in zip(b, c, strict=True)]
        wealth.append(np.mean(bets))
    evidence = compare(x, y, (0, 1)).evidence
    assert evidence <= min(wealth) * (1 + 1e-9)
    assert evidence == pytest.approx(min(wealth), rel=0.3)


def test_no_bet_can_be_expected_to_win_where_the_policy_is_not_better():
    """The mean of one factor, over all pairs of outcomes, for every stake at the mean that both groups have."""
    values = np.array([0.0, 0.2, 1.0])
    chance = np.array([0.5, 0.3, 0.2])
    stakes, m = module._stakes(0.1), chance @ values
    won = module._bets(values, np.array([m]), stakes.policy)[0] @ chance
    lost = module._bets(1 - values, np.array([1 - m]), stakes.control)[0] @ chance
    np.testing.assert_allclose(won, 0, atol=1e-12)
    np.testing.assert_allclose(lost, 0, atol=1e-12)


def test_the_order_of_episodes_makes_no_difference():
    rng = np.random.default_rng(1)
    x, y = rng.random(40), rng.random(70)
    assert compare(x, y, (0, 1)).evidence == pytest.approx(compare(x[::-1], rng.permutation(y), (0, 1)).evidence)


def test_bounds_agree_with_the_answer_and_with_exchanged_groups():
    rng = np.random.default_rng(2)
    for chance in (0.3, 0.5, 0.7):
        x, y = successes(rng, 400, chance), successes(rng, 400, 0.5)
        one, other = compare(x, y, (0, 1)), compare(y, x, (0, 1))
        assert one.lower_bound <= one.gain <= one.upper_bound
        assert (one.answer == "better") == (one.lower_bound > 0) == (other.answer == "worse")
        assert one.gain == -other.gain
    assert [compare(successes(rng, 400, p), successes(rng, 400, 0.5), (0, 1)).answer for p in (0.3, 0.7)] == [
        "worse",
        "better",
    ]


def test_returns_in_other_units_have_the_same_answer():
    rng = np.random.default_rng(3)
    x, y = rng.normal(0.6, 0.1, 50).clip(0, 1), rng.normal(0.5, 0.1, 300).clip(0, 1)
    unit, scaled = compare(x, y, (0, 1)), compare(1000 * x - 300, 1000 * y - 300, (-300, 700))
    assert scaled.evidence == pytest.approx(unit.evidence, rel=1e-6)
    assert scaled.lower_bound == pytest.approx(1000 * unit.lower_bound, rel=1e-6)


@pytest.mark.parametrize("parallel", [False, True])
def test_false_alarms_when_read_every_day(parallel):
    """No gain, 15 looks: a wrong "better" in at most 5 % of trials, where a t-test read daily is wrong in many."""
    rng = np.random.default_rng(4)
    wrong = naive = 0
    for _ in range(40):
        x, y = successes(rng, 150, 0.5), successes(rng, 150 if parallel else 500, 0.5)
        looks = [(x[:n], y[:n] if parallel else y) for n in range(10, 151, 10)]
        wrong += any(module.Bet(*look, module._stakes(None)).evidence() >= 20 for look in looks)
        z = [(a.mean() - b.mean()) / np.sqrt(0.25 / len(a) + 0.25 / len(b)) for a, b in looks]
        naive += max(z) > 1.645
    assert wrong <= 2
    assert naive > 2  # so the looks are what makes the difference


def test_the_planned_number_of_episodes_has_the_power_it_says():
    rng = np.random.default_rng(5)
    control = successes(rng, 1000, 0.5)
    n = episodes_needed(control, 0.15, limits=(0, 1), power=0.8)
    confirmed = [
        compare(successes(rng, n, control.mean() + 0.15), control, (0, 1), expected_gain=0.15).answer == "better"
        for _ in range(40)
    ]
    assert 0.65 <= np.mean(confirmed) <= 0.97
    assert episodes_needed(control, 0.3, limits=(0, 1)) < n
    assert episodes_needed(control, 0.03, limits=(0, 1)) is None  # the log itself leaves too much in doubt


def log(returns, action=0):
    """One-step episodes with these returns."""
    n = len(returns)
    return from_steps(
        observations=np.zeros((n, 1), np.float32),
        actions=np.full(n, action),
        rewards=np.asarray(returns, np.float32),
        terminated=np.ones(n, bool),
        truncated=np.zeros(n, bool),
    )


def test_the_share_of_steps_that_followed_the_policy():
    data = log([1.0, 0.0, 1.0, 1.0])
    choose = lambda obs: np.arange(len(obs)) % 2
    assert odice.trial(data, log([0.0, 1.0]), policy=choose).followed == 0.5
    assert odice.trial(data, log([0.0, 1.0])).followed is None


def write_log(path, chance, n, seed):
    rng = np.random.default_rng(seed)
    rows = [f"{i},0,{float(rng.random() < chance):g},1" for i in range(n)]
    path.write_text("\n".join(["x,action,reward,terminated", *rows]) + "\n")
    return str(path)


def test_the_command_plans_and_judges(tmp_path, capsys):
    control = write_log(tmp_path / "control.csv", 0.5, 400, 0)
    roles = ["--observation-columns", "x", "--discrete", "True"]
    assert main(["trial", "--control", control, "--gain", "0.2", *roles]) == 0
    assert "episodes with the policy confirm a gain of 0.2" in capsys.readouterr().out
    done = write_log(tmp_path / "trial.csv", 0.9, 200, 1)
    out = tmp_path / "out.json"
    assert main(["trial", done, "--control", control, "--range", "0", "1", "--json", str(out), *roles]) == 0
    assert "The policy is better than the control." in capsys.readouterr().out
    written = json.loads(out.read_text())
    assert written["answer"] == "better"
    assert 0 < written["lower_bound"] < written["gain"] < written["upper_bound"]


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"trial": [], "control": [1.0]}, "no episodes"),
        ({"trial": [np.nan], "control": [1.0]}, "not finite"),
        ({"trial": [1.0], "control": [1.0]}, "nothing to compare"),
        ({"trial": [1.0], "control": [0.0], "limits": (1, 0)}, "lower one first"),
        ({"trial": [2.0], "control": [0.0], "limits": (0, 1)}, "outside the range"),
        ({"trial": [1.0], "control": [0.0], "alpha": 0.7}, "alpha"),
        ({"trial": [1.0], "control": [0.0], "expected_gain": np.nan}, "a number above 0, got nan"),
        ({"trial": [1.0], "control": [0.0], "expected_gain": -1.0}, "a number above 0, got -1"),
    ],
)
def test_bad_input_gets_one_sentence(given, words):
    with pytest.raises(OdiceError, match=words):
        compare(**given)


@pytest.mark.parametrize("flags", [[], ["--control", "nowhere.csv"]])
def test_the_command_names_what_is_missing(flags, capsys):
    assert main(["trial", *flags]) == 2
    assert "\n" not in capsys.readouterr().err.strip()


def test_as_many_episodes_as_allowed_are_tried():
    """Doubling goes from 16 past 24; a gain that 24 episodes confirm is still planned."""
    control = successes(np.random.default_rng(0), 2000, 0.5)
    enough = episodes_needed(control, 0.4, limits=(0, 1))
    assert enough is not None
    assert 16 < enough < 32
    assert episodes_needed(control, 0.4, limits=(0, 1), at_most=31) is not None
    assert episodes_needed(control, 0.4, limits=(0, 1), at_most=16) is None


def test_a_policy_of_another_kind_of_action_is_refused(tmp_path):
    from tests.policy.support import save_policy

    policy = odice.Policy.load(save_policy(tmp_path / "policy"))
    with pytest.raises(OdiceError, match="give the policy that was tried"):
        odice.trial(log([1.0, 0.0]), log([0.0, 1.0]), policy=policy)


def test_no_bound_is_stated_with_full_confidence():
    assert "with 99.9% confidence" in str(compare([1.0, 0.0], [0.0, 1.0], alpha=0.0004))


@pytest.mark.parametrize("gain", [np.nan, 0.0, -1.0, 0.6])
def test_a_gain_that_no_policy_can_have_is_refused(gain):
    with pytest.raises(OdiceError, match=r"The gain must lie between 0 and 0\.5"):
        episodes_needed([0.0, 1.0] * 10, gain)
