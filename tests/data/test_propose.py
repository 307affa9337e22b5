"""Roles that are proposed for tables of several trades, written as people write them."""

import numpy as np
import polars as pl
import pytest

from odice.data.propose import propose
from odice.errors import OdiceError
from tests.worlds import ads, arm, batch, elevator, game, hospital, inventory, trading, traffic

RNG = np.random.default_rng(0)


def stays():
    """A hospital: blocks of rows per stay, an outcome known at the end, a dose."""
    lengths = RNG.integers(2, 8, 60)
    stay = np.repeat(np.arange(1000, 1060), lengths)
    hour = np.concatenate([np.arange(n) * 4 for n in lengths])
    last = np.append(stay[1:] != stay[:-1], True)
    died = np.repeat(RNG.random(60) < 0.3, lengths)
    return pl.DataFrame(
        {
            "stay_id": stay,
            "hour": hour,
            "season": RNG.choice(["winter", "summer"], len(stay)),
            "heart_rate": RNG.normal(80, 10, len(stay)),
            "dose": RNG.uniform(0, 5, len(stay)).round(1),
            "died": (died & last).astype(int),
            "outcome": np.where(died, "dead", "alive"),
            "survived": np.where(last & ~died, 1.0, 0.0),
            "ward": "north",
        }
    )


def collections():
    n = 40
    case = np.repeat([f"C{i}" for i in range(n)], 5)
    return pl.DataFrame(
        {
            "CaseID": case,
            "week": np.tile(np.arange(5), n),
            "balance": RNG.gamma(2, 300, 5 * n),
            "region": RNG.choice(["a", "b", "c"], 5 * n),
            "channel": RNG.choice(["letter", "call", "mail", "none"], 5 * n),
            "recovered": RNG.gamma(1, 10, 5 * n),
            "cost": RNG.choice([0.5, 2.0], 5 * n),
            "note": [f"free text {i}" for i in range(5 * n)],
        }
    )


def shown():
    """A randomized one-step log, as the Open Bandit data are."""
    n = 400
    return pl.DataFrame(
        {
            "impression_id": np.arange(n),
            "user_age": RNG.integers(18, 80, n),
            "item": RNG.integers(0, 34, n),
            "propensity_score": np.full(n, 1 / 34) + RNG.uniform(0, 1e-6, n),
            "click": (RNG.random(n) < 0.05).astype(int),
        }
    )


EXPECTED = [
    (
        stays,
        {
            "stay_id": "episode",
            "hour": "step",
            "season": "observation",
            "heart_rate": "observation",
            "dose": "action",
            "died": "terminated",
            "outcome": "left out",
            "survived": "reward",
            "ward": "left out",
        },
    ),
    (
        collections,
        {
            "CaseID": "episode",
            "week": "step",
            "balance": "observation",
            "region": "observation",
            "channel": "action",
            "recovered": "reward",
            "cost": "cost",
            "note": "left out",
        },
    ),
    (
        shown,
        {
            "impression_id": "left out",
            "user_age": "observation",
            "item": "action",
            "propensity_score": "propensity",
            "click": "reward",
        },
    ),
]


@pytest.mark.parametrize(("make", "roles"), EXPECTED, ids=lambda value: getattr(value, "__name__", ""))
def test_roles_by_names_and_values(make, roles):
    proposal = propose(make())
    assert {item.column: item.role for item in proposal.roles} == roles
    assert all(item.reason for item in proposal.roles)
    assert proposal.one_step == (make is shown)


@pytest.mark.parametrize("world", [ads, arm, batch, elevator, game, hospital, inventory, trading, traffic])
def test_nothing_that_a_policy_must_not_see_is_an_observation(world):
    """On worlds that were not written for this: the action, the reward, the episode and the end are found."""
    proposal = propose(pl.DataFrame(world.make_log(0, 50)))
    columns = world.COLUMNS
    for role in ("reward", "episode", "terminated"):
        if role in columns:
            assert proposal.columns(role) == (columns[role],)
    assert set(proposal.columns("action")) <= set(columns["action"])
    assert proposal.columns("action")
    hidden = {columns.get(role) for role in ("reward", "episode", "step", "terminated", "truncated")}
    assert not hidden & set(proposal.columns("observation"))


def test_a_panel_sorted_by_time():
    week, customer = np.meshgrid(np.arange(20), [f"K{i}" for i in range(8)], indexing="ij")
    n = week.size
    table = pl.DataFrame(
        {"week": week.ravel(), "customer": customer.ravel(), "x": RNG.normal(size=n)}
        | {"offer": RNG.choice(["a", "b"], n), "revenue": RNG.gamma(1, 2, n)}
    )
    proposal = propose(table)
    assert (proposal["customer"].role, proposal["week"].role) == ("episode", "step")
    assert not proposal.one_step


def test_deaths_are_a_reward_where_there_is_no_other():
    table = stays().drop("survived", "outcome")
    assert propose(table).reward == "-died"
    dead = pl.col("died").max().over("stay_id")
    repeated = propose(table.with_columns(dead.alias("died")))
    assert repeated.reward == "-last(died)"
    assert "died" not in repeated.columns("observation")


def test_a_result_that_every_row_repeats_counts_once():
    lived = 1 - pl.col("died").max().over("stay_id")
    table = stays().drop("outcome").with_columns(lived.alias("survived"))
    assert propose(table).reward == "last(survived)"


def test_a_stay_is_over_at_its_last_row_and_a_customer_is_not():
    table = stays()
    assert propose(table).complete
    assert not propose(table.rename({"stay_id": "customer_id"})).complete
    for name in ("stay_id", "customer_id"):
        questions = propose(table.rename({"stay_id": name})).questions
        assert any(question.about == "ends" for question in questions)


def test_a_probability_is_known_by_its_values():
    chance = np.array([0.5, 0.3, 0.2])
    taken = RNG.choice(3, 2000, p=chance)
    rows = {"age": RNG.integers(18, 80, 2000), "offer": np.array(["a", "b", "c"])[taken], "click": taken % 2}
    rows |= {"prob": chance[taken], "rate": RNG.uniform(0.05, 1, 2000)}
    proposal = propose(pl.DataFrame(rows))
    assert proposal.columns("propensity") == ("prob",)
    assert propose(pl.DataFrame(rows).drop("prob")).columns("propensity") == ()


def test_what_stands_after_the_action_is_an_outcome():
    table = collections().drop("note").with_columns(pl.col("balance").shift(1).fill_null(0.0).alias("mood"))
    proposal = propose(table)
    assert proposal["mood"].role == "outcome"
    question = next(question for question in proposal.questions if question.about == "mood")
    assert proposal.answered(question, "observation")["mood"].role == "observation"


def test_answers_change_the_proposal():
    proposal = propose(stays().drop("survived", "outcome"))
    reward, ends = (next(q for q in proposal.questions if q.about == about) for about in ("reward", "ends"))
    changed = proposal.answered(reward, "1 - 0.1 * heart_rate").answered(ends, "cut")
    assert changed.reward == "1 - 0.1 * heart_rate"
    assert changed["heart_rate"].role == "left out"  # what is rewarded is not seen before
    assert not changed.complete
    assert not changed.questions
    for wrong in ("hart_rate", "maybe"):
        with pytest.raises(OdiceError, match="Unknown"):
            proposal.answered(reward if wrong == "hart_rate" else ends, wrong)


def test_a_robot_log_with_the_usual_names():
    n = 30
    table = pl.DataFrame(
        {f"obs_{i}": RNG.normal(size=n) for i in range(3)}
        | {f"action_{i}": RNG.uniform(-1, 1, n) for i in range(2)}
        | {"reward": RNG.normal(size=n), "terminated": np.arange(n) % 10 == 9, "episode": np.arange(n) // 10}
    )
    proposal = propose(table)
    assert proposal.columns("observation") == ("obs_0", "obs_1", "obs_2")
    assert proposal.columns("action") == ("action_0", "action_1")
    assert (proposal["reward"].role, proposal["terminated"].role, proposal["episode"].role) == (
        "reward",
        "terminated",
        "episode",
    )
    assert not proposal.doubts


def test_a_copy_of_the_action_or_the_reward_is_no_observation():
    table = collections().with_columns(pl.col("channel").alias("last_contact"), pl.col("recovered").alias("paid"))
    proposal = propose(table)
    assert proposal["last_contact"].reason == "a copy of channel"
    assert proposal["paid"].reason == "a copy of recovered"


def test_a_rival_of_the_reward_is_left_out_if_it_stands_after_the_action():
    table = collections()
    before = table.select("CaseID", "week", pl.col("balance").alias("score"), "channel", "recovered")
    assert propose(before)["score"].role == "observation"
    after = before.select("CaseID", "week", "channel", "recovered", "score")
    assert propose(after)["score"].role == "outcome"
    for one in (before, after):
        assert any("score could be it, too" in doubt for doubt in propose(one).doubts)


def test_what_is_in_doubt_is_said():
    proposal = propose(collections().with_columns(pl.col("region").alias("offer")))
    assert any("offer" in doubt and "channel" in doubt for doubt in proposal.doubts)
    nothing = propose(pl.DataFrame({"x": [1.0, 2.0, 3.0], "y": [0.1, 0.2, 0.4]}))
    assert [question.about for question in nothing.questions] == ["action", "reward", "one_step"]
    assert nothing.columns("observation") == ("x", "y")


@pytest.mark.parametrize("name", ["", "\n", "a|b", "🙂", "id", "next_x", "1e9"])
def test_odd_names_and_values_are_no_problem(name):
    for values in ([None, None], [1, 2], ["a", None], [True, False], [float("nan"), 1.0], [[1], [2]]):
        propose(pl.DataFrame({name: values, "reward": [0.0, 1.0]}, strict=False))
