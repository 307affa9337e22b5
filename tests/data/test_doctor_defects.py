"""Every finding on data with exactly that defect planted, and none of them on clean data."""

import numpy as np
import pytest

from odice.data.doctor import CODES, inspect
from tests.data.test_doctor import build
from tests.data.test_leaks import LEAKS
from tests.data.test_order import DOUBTS

WORLDS = ("linear", "pendulum", "pendulum-discrete", "pendulum-raw-angle", "cartpole", "goal", "contacts", "grid")


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
    assert {param.values[0] for param in DEFECTS} | LEAKS | DOUBTS == set(CODES)


def test_sentinel_is_named(simulate):
    rows = simulate("linear")
    marks_for_missing_data(rows)
    (finding,) = inspect(build(rows)).findings
    assert "-999 occurs 5 times" in finding.message
