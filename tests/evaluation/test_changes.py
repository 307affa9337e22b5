"""What a policy would change: shares, situations and examples against a log whose answers are known."""

import dataclasses

import numpy as np

from odice.data.build import from_steps
from odice.data.meta import Meta
from odice.evaluation.changes import changes


def ward(n=400, discrete=True):
    """The log always does 0 (or 0.0); columns: a number, and a category with two values."""
    rng = np.random.default_rng(0)
    lactate, winter = rng.uniform(0, 4, n), rng.random(n) < 0.5
    observations = np.stack([lactate, winter, ~winter], axis=1).astype(np.float32)
    data = from_steps(
        observations=observations,
        actions=np.zeros(n, int) if discrete else rng.uniform(0, 1, (n, 1)).astype(np.float32),
        rewards=np.ones(n, np.float32),
        terminated=np.arange(n) % 4 == 3,
        truncated=np.zeros(n, bool),
    )
    columns = ({"name": "lactate"}, {"name": "season", "values": ("winter", "summer")})
    names = {"choices": ("wait", "treat"), "n_actions": 2} if discrete else {"action_names": ("dose",)}
    meta = dataclasses.replace(
        data.meta,
        obs_columns=columns,
        obs_layout=(("lactate", 1), ("season=winter", 1), ("season=summer", 1)),
        obs_units=(("lactate", "mmol/l"),),
        **names,
    )
    return dataclasses.replace(data, meta=meta)


class Treats:
    """Treats above a lactate of 3."""

    def __call__(self, obs):
        return (obs[:, 0] > 3).astype(int)

    def outputs(self, obs):
        return np.stack([np.zeros(len(obs)), 5 * (obs[:, 0] - 3)], axis=1)


def test_the_situation_is_the_rule_that_the_policy_follows():
    data = ward()
    changes_ = changes(Treats(), data)
    truth = (data.step_observations()[:, 0] > 3).mean()
    assert changes_.differs == truth
    assert {item.name: (item.today, item.policy) for item in changes_.actions} == {
        "wait": (1.0, 1 - truth),
        "treat": (0.0, truth),
    }
    best = changes_.situations[0]
    assert best.condition.startswith("lactate above")
    assert best.condition.endswith("mmol/l")
    assert (best.action, best.today) in {("wait", 1.0), ("treat", 0.0)}
    assert abs(best.policy - best.today) > 0.8


def test_examples_are_the_clearest_ones_of_different_episodes():
    data = ward()
    changes_ = changes(Treats(), data, examples=5)
    lactate = [float(item.values["lactate"].split()[0]) for item in changes_.examples]
    assert lactate == sorted(lactate, reverse=True)
    assert lactate[0] > 3.9
    assert {(item.today, item.policy) for item in changes_.examples} == {("wait", "treat")}
    assert {item.values["season"] for item in changes_.examples} <= {"winter", "summer"}


def test_amounts_differ_by_more_than_a_tenth_of_their_range():
    data = ward(discrete=False)
    same = changes(lambda obs: data.actions + 0.05, data)
    assert same.differs == 0
    assert same.examples == ()
    other = changes(lambda obs: data.actions + 0.2, data)
    assert other.differs == 1
    assert abs(other.actions[0].policy - other.actions[0].today - 0.2) < 1e-5
    assert other.examples[0].policy.startswith("dose ")


def test_examples_of_amounts_are_not_all_alike():
    data = ward(discrete=False)
    examples = changes(lambda obs: np.full_like(data.actions, data.actions.max()), data).examples
    low, high = float(data.actions.min()), float(data.actions.max())
    fifths = [int((float(item.today.split()[1]) - low) / (high - low) * 5) for item in examples]
    assert len(examples) == 10
    assert fifths[0] == 0  # the clearest comes first
    assert max(fifths.count(fifth) for fifth in set(fifths)) <= 3


def test_a_log_without_names_has_numbered_ones():
    data = dataclasses.replace(ward(), meta=Meta(n_actions=2))
    changes_ = changes(lambda obs: (obs[:, 1] > 0).astype(int), data)
    assert changes_.situations[0].condition.startswith("observation 1")
    assert changes_.examples[0].policy == "choice 1"
    assert changes_.to_dict()["discrete"] is True


def test_a_choice_that_the_log_does_not_have():
    """A policy of three actions may be compared with a log in which the third never occurs."""
    rng = np.random.default_rng(0)
    data = from_steps(
        observations=rng.normal(size=(40, 2)).astype(np.float32),
        actions=rng.integers(0, 2, 40),
        rewards=np.ones(40, np.float32),
        terminated=np.ones(40, bool),
        truncated=np.zeros(40, bool),
    )
    found = changes(lambda obs: np.full(len(obs), 2), data)
    assert found.differs == 1
    assert ("choice 2", 0.0, 1.0) in [(item.name, item.today, item.policy) for item in found.actions]
    assert found.examples[0].policy == "choice 2"
