"""Leaks are planted in clean logs, one at a time, and found by name; the clean logs themselves are clean."""

from dataclasses import replace

import numpy as np
import pytest

from odice.data.build import from_steps
from odice.data.doctor import inspect
from odice.data.meta import Meta
from tests.worlds import batch, collection, hospital, hvac, record, traffic

LEAKS = {
    "leaked-action",
    "leaked-reward",
    "leaked-end",
    "leaked-future",
    "leaked-return",
    "id-column",
    "time-backwards",
}
WORLDS = {"hospital": hospital, "collection": collection, "traffic": traffic, "batch": batch, "hvac": hvac}


def log(module, episodes=60):
    return record(module.WORLD, 5, episodes)


def codes(steps, module, column=None, name="extra"):
    """What the doctor reports of a log with one more column."""
    names = module.WORLD.observations
    observations = steps.observations
    if column is not None:
        observations, names = np.column_stack([observations, column]), (*names, name)
    flags = {"terminated": steps.terminated, "truncated": steps.truncated, "episode": steps.episode}
    meta = Meta(obs_layout=tuple((each, 1) for each in names))
    result = inspect(from_steps(observations, steps.actions, steps.rewards, meta=meta, **flags)).findings
    return {f.code: f for f in result if f.code in LEAKS}


@pytest.mark.parametrize("name", WORLDS)
def test_clean_logs_have_no_leaks(name):
    assert codes(log(WORLDS[name]), WORLDS[name]) == {}


def following(values, episode):
    """The next step's value; at the end of an episode, its own."""
    ahead = np.append(values[1:], values[-1])
    return np.where(np.append(episode[1:] == episode[:-1], False), ahead, values)


def planted(steps):
    action = steps.actions if steps.actions.ndim == 1 else steps.actions[:, 0]
    returns = np.bincount(steps.episode, steps.rewards)[steps.episode]
    over = steps.terminated | steps.truncated
    return {
        "leaked-action": action,
        "leaked-reward": steps.rewards,
        "leaked-end": over,
        "leaked-future": following(action, steps.episode),
        "leaked-return": returns,
        "id-column": 1000 + steps.episode,
    }


@pytest.mark.parametrize("name", ["hospital", "traffic", "hvac"])
def test_planted_leaks_are_named(name):
    module, steps = WORLDS[name], log(WORLDS[name])
    for code, column in planted(steps).items():
        reported = codes(steps, module, column.astype(float))
        assert code in reported, (name, code)
        assert reported[code].severity == "warning"
        assert "'extra'" in reported[code].message
        assert "Leave it out" in reported[code].advice
    if steps.actions.ndim == 1:  # a code for the action is the action
        assert "leaked-action" in codes(steps, module, 7.0 - 3.0 * steps.actions)


def test_a_clock_that_runs_backwards():
    steps = log(batch)
    assert codes(steps, batch, 5.0 * steps.step) == {}
    assert codes(steps, batch, (steps.step + 7.0) % 24) == {}  # hours of the day wrap
    swapped = steps.step.astype(float)
    swapped[[30, 31, 130, 131]] = swapped[[31, 30, 131, 130]]
    assert "time-backwards" in codes(steps, batch, swapped)


def test_what_a_column_may_do():
    """Be the last action, a fact about the case, predict the return well, or be one of few steps."""
    steps = log(collection, 400)
    before = np.where(steps.step == 0, -1.0, np.roll(steps.actions, 1))
    assert codes(steps, collection, before) == {}
    rng = np.random.default_rng(0)
    returns = np.bincount(steps.episode, steps.rewards)
    hint = (returns + 0.5 * returns.std() * rng.normal(size=len(returns)))[steps.episode]
    assert codes(steps, collection, hint) == {}
    few = replace(steps_as_data(steps), meta=Meta())
    assert not {f.code for f in inspect(few.first(20)).findings} & LEAKS


def steps_as_data(steps):
    flags = {"terminated": steps.terminated, "truncated": steps.truncated, "episode": steps.episode}
    return from_steps(steps.observations, steps.actions, steps.rewards, **flags)
