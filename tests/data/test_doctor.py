"""Every finding on data with exactly that defect planted, and none of them on clean data."""

import json
import warnings
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from odice.data.build import from_episodes, from_steps
from odice.data.dataset import UnfinishedEpisodeWarning
from odice.data.doctor import CODES, check, inspect
from odice.data.meta import Meta
from odice.errors import OdiceError
from tests.data.test_leaks import LEAKS

WORLDS = ("linear", "pendulum", "pendulum-discrete", "pendulum-raw-angle", "cartpole", "goal", "contacts", "grid")
BOUNDS = {"pendulum": 2.0, "pendulum-raw-angle": 2.0}


def build(rows, world="", **meta):
    """A Dataset of these step arrays, with the bounds the world's robot has. Missing flags are part of some defects."""
    if "actions" in rows and rows["actions"].ndim == 2 and "action_low" not in meta:
        width, bound = rows["actions"].shape[1], BOUNDS.get(world, 1.0)
        meta |= {"action_low": (-bound,) * width, "action_high": (bound,) * width}
    if meta.get("action_low") is None:
        meta.pop("action_low", None), meta.pop("action_high", None)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UnfinishedEpisodeWarning)
        return from_steps(**rows, meta=Meta(source="log", **meta))


def codes(dataset):
    return {finding.code for finding in inspect(dataset).findings}


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("world", WORLDS)
@pytest.mark.parametrize("final", [True, False])
def test_clean_data_has_no_findings(simulate, world, seed, final):
    rows = simulate(world, seed=seed)
    if not final:
        del rows["next_observations"]
    assert [f.message for f in inspect(build(rows, world)).findings] == []


# --- defects: each takes clean rows, spoils one thing, and may return what to build with ------------------------


def defect(code, world="linear", severity="warning"):
    return lambda plant: DEFECTS.append(pytest.param(code, world, severity, plant, id=plant.__name__)) or plant


DEFECTS: list = []


@defect("not-finite", severity="error")
def nan_in_observations(rows):
    rows["observations"][37, 2] = rows["next_observations"][36, 2] = np.nan


@defect("not-finite", severity="error")
def infinity_in_rewards(rows):
    rows["rewards"][100] = np.inf


@defect("not-finite", severity="error")
def nan_in_actions(rows):
    rows["actions"][5:9, 0] = np.nan


@defect("constant-column", severity="note")
def dead_sensor(rows):
    for key in ("observations", "next_observations"):
        rows[key] = np.concatenate([rows[key], np.full((len(rows[key]), 1), 3.0)], 1)


@defect("constant-column")
def dead_actuator(rows):
    rows["actions"] = np.concatenate([rows["actions"], np.zeros((len(rows["actions"]), 1))], 1)


@defect("duplicate-column", severity="note")
def repeated_column(rows):
    for key in ("observations", "next_observations"):
        rows[key] = np.concatenate([rows[key], rows[key][:, 1:2]], 1)


@defect("zero-rewards", "goal", "error")
def rewards_of_zero(rows):
    rows["rewards"][:] = 0


@defect("constant-rewards", "pendulum")
def rewards_of_one(rows):
    rows["rewards"][:] = 1


@defect("action-out-of-bounds", severity="error")
def degrees_for_radians(rows):
    rows["actions"][50:60] *= 57.3


@defect("action-out-of-bounds")
def slight_overshoot(rows):
    rows["actions"][rows["actions"] == 1] = 1.001


@defect("unknown-bounds", "pendulum", "error")
def bounds_not_declared(rows):
    return {"action_low": None}


@defect("unused-actions", "pendulum-discrete", "note")
def actions_from_one(rows):
    rows["actions"] += 1


@defect("whole-number-actions", "pendulum-discrete")
def choices_as_floats(rows):
    rows["actions"] = rows["actions"][:, None].astype(float)
    return {"action_low": (0.0,), "action_high": (2.0,)}


@defect("extreme-value")
def broken_reading(rows):
    rows["observations"][500, 1] = rows["next_observations"][499, 1] = 4e4


@defect("extreme-value")
def marks_for_missing_data(rows):
    for t in (100, 333, 700, 1500, 2222):
        rows["observations"][t, 3] = rows["next_observations"][t - 1, 3] = -999


@defect("extreme-value")
def reward_in_another_unit(rows):
    rows["rewards"][777] *= 1e4


@defect("rounded-column")
def clock_as_observation(rows):
    seconds = 1.7e9 + 0.05 * np.arange(len(rows["observations"]))
    for key, add in (("observations", 0), ("next_observations", 0.05)):
        rows[key] = np.concatenate([rows[key], (seconds + add)[:, None]], 1)


@defect("next-mismatch", severity="error")
def rows_lost(rows):
    keep = np.ones(len(rows["rewards"]), bool)
    keep[np.arange(5, len(keep), 40)] = False
    keep[np.flatnonzero(rows["terminated"] | rows["truncated"])] = True
    for key in rows:
        rows[key] = rows[key][keep]


@defect("next-mismatch", severity="note")
def rounded_by_another_tool(rows):
    rows["next_observations"] = np.round(rows["next_observations"], 6)


@defect("unfinished", severity="note")
def recording_stopped(rows):
    for key in rows:
        rows[key] = rows[key][:-30]


@defect("unfinished", "pendulum", "note")
def a_clock_without_flags(rows):
    del rows["truncated"], rows["terminated"]


@defect("unfinished", "cartpole")
def falls_without_flags(rows):
    del rows["truncated"], rows["terminated"]


@defect("step-gap")
def rows_taken_out(rows):
    """As the table reader would report it; `test_table.py` makes it do so."""
    return {"evidence": {"step_gaps": {"count": 3, "first_row": 17, "usual": 1.0, "largest": 9.0}}}


@defect("shifted-rewards", "linear")
def dense_reward_early_by_a_row(rows):
    rows["rewards"] = np.roll(rows["rewards"], -1)


@defect("flags-inside-episode")
def ends_inside_a_number(rows):
    rows["episode"] //= 2


@defect("timeouts-as-terminals", "pendulum")
def every_timeout_a_terminal(rows):
    rows["terminated"], rows["truncated"] = rows["truncated"], rows["terminated"]


@defect("timeouts-as-terminals", "cartpole")
def some_true_terminals_too(rows):
    rows["terminated"] |= rows.pop("truncated")


@defect("timeouts-as-terminals", "goal")
def goal_and_clock_alike(rows):
    rows["terminated"] |= rows.pop("truncated")


@defect("terminal-runs", "goal", "note")
def log_goes_on_at_the_goal(rows):
    times = np.where(rows["terminated"], 4, 1)
    for key in rows:
        rows[key] = np.repeat(rows[key], times, axis=0)
    del rows["episode"]
    arrived = np.flatnonzero(rows["terminated"])
    rows["observations"][arrived] += 1e-3 * np.random.default_rng(0).normal(size=rows["observations"][arrived].shape)
    del rows["next_observations"]


@defect("shifted-rewards", "goal")
def goal_reward_late(rows):
    rows["rewards"] = np.roll(rows["rewards"], 1)


@defect("shifted-rewards", "grid")
def goal_reward_early(rows):
    rows["rewards"] = np.roll(rows["rewards"], -1)


@defect("shifted-rewards", "linear")
def dense_reward_late(rows):
    rows["rewards"] = np.roll(rows["rewards"], 1)


@defect("shifted-rewards", "pendulum-raw-angle")
def dense_reward_early(rows):
    rows["rewards"] = np.roll(rows["rewards"], -1)


@defect("duplicate-episodes")
def episodes_twice(rows):
    part = np.flatnonzero(rows["episode"] < 3)
    for key in rows:
        copy = rows[key][part] + 1000 if key == "episode" else rows[key][part]
        rows[key] = np.concatenate([rows[key], copy])


@defect("few-episodes", "pendulum")
def nine_episodes(rows):
    for key, value in rows.items():
        rows[key] = value[rows["episode"] < 9] if key != "episode" else value
    rows["episode"] = rows["episode"][rows["episode"] < 9]


def _forget_ends(rows, fraction):
    """Ends that nobody wrote down: the rows follow each other as if nothing had happened."""
    ends = np.flatnonzero(rows["terminated"] | rows["truncated"])[:-1]
    lost = ends[np.random.default_rng(0).random(len(ends)) < fraction]
    rows["terminated"][lost] = rows["truncated"][lost] = False
    del rows["episode"], rows["next_observations"]


@defect("teleport", "linear")
def linear_ends_missing(rows):
    _forget_ends(rows, 0.1)


@defect("teleport", "contacts")
def contacts_ends_missing(rows):
    _forget_ends(rows, 0.1)


@defect("teleport", "cartpole")
def cartpole_ends_missing(rows):
    _forget_ends(rows, 0.1)


@defect("teleport", "grid")
def grid_ends_missing(rows):
    _forget_ends(rows, 0.1)


@defect("teleport", "pendulum-discrete")
def pendulum_ends_missing(rows):
    _forget_ends(rows, 0.2)


@defect("teleport", "goal")
def most_ends_missing(rows):
    _forget_ends(rows, 0.7)


@defect("in-walls", "contacts", severity="error")
def positions_of_another_maze(rows):
    for name in ("observations", "next_observations"):
        rows[name][:, :2] = 0.3 * np.tanh(rows[name][:, :2]) + [0.0, 4.0]  # behind the start cell stands a wall
    return {"env_id": "antmaze-umaze-v2"}


@pytest.mark.parametrize(("code", "world", "severity", "plant"), DEFECTS)
def test_planted_defect_is_found_and_nothing_else(simulate, code, world, severity, plant):
    rows = simulate(world)
    meta = plant(rows) or {}
    report = inspect(build(rows, world, **meta))
    assert {f.code for f in report.findings} == {code}, [f.message for f in report.findings]
    assert report.findings[0].severity == severity
    assert all(f.advice and f.evidence for f in report.findings)


def test_every_code_is_planted_and_named():
    assert {param.values[0] for param in DEFECTS} | LEAKS == set(CODES)


# --- the words --------------------------------------------------------------------------------------------------


def test_evidence_says_where(simulate):
    rows = simulate("linear")
    first = np.flatnonzero(rows["episode"] == 4)[0]
    rows["rewards"][first + 7] = np.nan
    (finding,) = inspect(build(rows)).findings
    assert finding.evidence["first"] == {"episode": 4, "step": 7, "row": int(first) + 7}
    assert "episode 4, step 7" in finding.message


def test_teleports_are_counted_and_placed(simulate):
    rows = simulate("goal")
    ends = np.flatnonzero(rows["terminated"] | rows["truncated"])
    rows["terminated"][ends[3]] = rows["truncated"][ends[3]] = False
    del rows["episode"], rows["next_observations"]
    (finding,) = inspect(build(rows)).findings
    assert finding.evidence["jumps"] == 1
    assert finding.evidence["places"][0]["row"] == ends[3]


def test_sentinel_is_named(simulate):
    rows = simulate("linear")
    marks_for_missing_data(rows)
    (finding,) = inspect(build(rows)).findings
    assert "-999 occurs 5 times" in finding.message


def test_true_ends_at_one_length_are_no_timeouts():
    """A task that always takes 25 steps and pays at the end terminates for good."""
    rng = np.random.default_rng(0)
    n, length = 20, 25
    rows = {
        "observations": rng.normal(size=(n * length, 2)),
        "actions": rng.uniform(-1, 1, (n * length, 1)),
        "rewards": np.tile(np.eye(length)[-1], n) + 0.0,
        "terminated": np.tile(np.arange(length) == length - 1, n),
    }
    assert codes(build(rows)) == set()


def test_bandits_are_fine():
    """One-step episodes all terminate at length 1 and are no runs of terminals."""
    rng = np.random.default_rng(0)
    rows = {
        "observations": rng.normal(size=(500, 3)),
        "actions": rng.integers(0, 4, 500),
        "rewards": rng.normal(size=500),
        "terminated": np.ones(500, bool),
    }
    assert codes(build(rows)) == set()


def test_one_step_and_tiny_data():
    tiny = from_episodes([{"observations": [[1.0], [2.0]], "actions": [[0.5]], "rewards": [1.0], "terminated": True}])
    assert codes(tiny) == {"few-episodes"}


def test_all_values_missing(simulate):
    rows = simulate("linear")
    rows["observations"][:] = rows["next_observations"][:] = np.nan
    rows["rewards"][:] = np.nan
    report = inspect(build(rows))
    assert {f.code for f in report.findings} == {"not-finite"}
    json.dumps(report.to_dict(), allow_nan=False)


def test_check_raises_for_errors_only(simulate):
    rows = simulate("linear")
    assert check(build(rows)).findings == ()
    rows["rewards"][:] = 0
    rows["observations"][3, 0] = np.nan
    data = build(rows)
    with pytest.raises(OdiceError, match=r"log: .*NaN.*--allow not-finite zero-rewards") as error:
        check(data)
    assert "\n" not in str(error.value)
    with pytest.raises(OdiceError, match="zero"):
        check(data, allow=["not-finite"])
    assert len(check(data, allow=["not-finite", "zero-rewards"]).errors) == 2
    assert check(data, allow=["all"]).errors
    with pytest.raises(OdiceError, match="Did you mean 'zero-rewards'"):
        check(data, allow=["zero-reward"])


# --- the numbers ------------------------------------------------------------------------------------------------


def test_summary_numbers(simulate):
    rows = simulate("goal")
    data = replace(build(rows), meta=Meta(source="log", ref_min=0.0, ref_max=2.0, env_id="Ball-v0"))
    summary = inspect(data).summary
    ends = rows["terminated"] | rows["truncated"]
    lengths = np.diff(np.flatnonzero(ends), prepend=-1)
    returns = [rows["rewards"][rows["episode"] == e].sum() for e in range(80)]
    assert (summary["episodes"], summary["steps"]) == (80, len(ends))
    assert (summary["terminated"], summary["truncated"]) == (rows["terminated"].sum(), rows["truncated"].sum())
    assert summary["returns"]["mean"] == pytest.approx(np.mean(returns))
    assert summary["score"] == pytest.approx(50 * np.mean(returns))
    assert summary["lengths"]["quartiles"] == pytest.approx(np.quantile(lengths, [0, 0.25, 0.5, 0.75, 1]))
    assert sum(summary["returns"]["histogram"]["counts"]) == 80
    third = summary["observations"][2]
    states = np.concatenate([rows["observations"], rows["next_observations"][ends]]).astype("f4")
    assert third["std"] == pytest.approx(states[:, 2].std(), rel=1e-4)
    assert third["max"] == pytest.approx(states[:, 2].max())
    fraction = np.mean(np.abs(rows["actions"][:, 0]) > 1 - 1e-4)
    assert summary["actions"][0]["saturation"] == pytest.approx(fraction, abs=1e-3)
    json.dumps(summary, allow_nan=False)


def test_summary_of_discrete_actions(simulate):
    rows = simulate("grid")
    fractions = [one["share"] for one in inspect(build(rows)).summary["actions"]]
    np.testing.assert_allclose(fractions, np.bincount(rows["actions"]) / len(rows["actions"]))


def test_large_offsets_keep_their_spread():
    """The variance of a far-off column must not drown in its mean."""
    rng = np.random.default_rng(0)
    rows = {
        "observations": 1e4 + rng.normal(size=(5000, 1)),
        "actions": rng.uniform(-1, 1, (5000, 1)),
        "rewards": rng.normal(size=5000),
        "truncated": np.arange(5000) % 100 == 99,
    }
    data = build(rows)
    assert inspect(data).summary["observations"][0]["std"] == pytest.approx(
        data.observations.astype("f8").std(), rel=1e-6
    )


@pytest.mark.slow
def test_a_million_steps_take_seconds():
    import time

    rng = np.random.default_rng(0)
    n = 1_000_000
    walk = np.sin(np.cumsum(0.1 * rng.normal(size=(n, 17)).astype("f4"), axis=0))
    truncated = np.arange(n) % 1000 == 999
    data = from_steps(
        walk, rng.uniform(-1, 1, (n, 6)).astype("f4"), rng.normal(size=n).astype("f4"), truncated=truncated
    )
    start = time.process_time()
    assert inspect(data).findings == ()
    assert time.process_time() - start < 20


# --- anything ---------------------------------------------------------------------------------------------------

numbers = st.sampled_from([0.0, 1.0, -1.0, 1e-45, 1e38, -3e38, np.inf, -np.inf, np.nan, 0.1, 7.0])


@given(
    st.integers(1, 400),
    st.integers(1, 4),
    st.integers(0, 3),
    st.lists(numbers, min_size=1, max_size=12),
    st.integers(0, 2**32 - 1),
    st.booleans(),
)
def test_the_doctor_survives_anything(n, obs, act, pool, seed, final):
    rng = np.random.default_rng(seed)
    draw = lambda *shape: np.where(rng.random(shape) < 0.5, rng.normal(size=shape), rng.choice(pool, shape)).astype(
        "f4"
    )
    rows = {
        "observations": draw(n, obs),
        "actions": rng.integers(0, 3, n) if act == 0 else draw(n, act),
        "rewards": draw(n),
        "terminated": rng.random(n) < 0.1,
        "truncated": rng.random(n) < 0.1,
    }
    if final:
        rows["next_observations"] = draw(n, obs)
    with np.errstate(all="ignore"):
        data = build(rows, action_low=None)
    report = inspect(data)
    json.dumps(report.to_dict(), allow_nan=False)
