"""A policy on rows: names, fills, and categories that its log does not have."""

import dataclasses

import numpy as np
import polars as pl
import pytest

from odice.errors import OdiceError
from odice.policy.file import Layout
from odice.policy.guard import fit_guard
from odice.policy.policy import Policy

COLUMNS = ({"name": "ward", "values": ["A", "B"]}, {"name": "pulse", "fill": 80.0})


@pytest.fixture
def policy():
    """Gives `high` where the pulse is above 100 or the ward is B."""
    weight = np.array([[0, 0], [0, 50], [0, 1]], np.float32)
    tensors = {"layers.0.weight": weight, "layers.0.bias": np.array([0, -100], np.float32)}
    rng = np.random.default_rng(0)
    ward = rng.random(500) < 0.3
    states = np.column_stack([~ward, ward, rng.normal(80, 10, 500)]).astype(np.float32)
    guard = fit_guard(states[:400], states[400:], ("ward=A", "ward=B", "pulse"), ("", "", "bpm"))
    about = {"preprocess": {"columns": COLUMNS, "choices": ["low", "high"]}, "data": {"schema": {"action": ["dose"]}}}
    return Policy(Layout((3, 2), False, "relu", "argmax"), tensors, about=about, guard=guard)


def test_a_row_gives_a_word(policy):
    assert policy.choose({"ward": "A", "pulse": 82}).action == "low"
    assert policy.choose({"ward": "B", "pulse": 82}).action == "high"
    assert policy.choose({"ward": "A", "pulse": None}) == ("low", "act", ())  # its fill is 80


@pytest.mark.parametrize(("unseen", "decision"), [("fall back", "fall back"), ("commonest", "act")])
def test_an_unseen_category_follows_the_stated_rule(policy, unseen, decision):
    choice = policy.choose({"ward": "Z", "pulse": 82}, unseen=unseen)
    assert choice.action == "low"  # as in ward A, the commonest
    assert choice.decision == decision
    assert choice.why == ("ward is 'Z', which the log does not have; 'A', the commonest, stands in its place",)
    with pytest.raises(OdiceError, match="the policy knows A, B"):
        policy.choose({"ward": "Z", "pulse": 82}, unseen="refuse")


def test_one_strange_row_among_many_does_not_stop_the_others(policy):
    rows = pl.DataFrame({"ward": ["A"] * 50 + ["Z"] + ["B"] * 50, "pulse": [80.0] * 101})
    choices = policy.choose(rows)
    assert [choice.decision for choice in choices].count("fall back") == 1
    assert [choice.action for choice in choices[:51]] == ["low"] * 51
    assert choices == policy.choose(rows.to_dicts())


def test_the_guard_explains_a_row(policy):
    assert policy.guard.explain({"ward": "A", "pulse": 80}) == []
    lines = policy.guard.explain({"ward": "Z", "pulse": 400})
    assert lines[0].startswith("pulse is 400 bpm; the log has")
    assert lines[1] == "ward is 'Z'; the log has A, B"
    with pytest.raises(OdiceError, match="one observation of 3 numbers"):
        policy.guard.explain(np.zeros(2))


def test_amounts_have_their_names(policy):
    layout = Layout((3, 2), False, "relu", "clip")
    about = {**policy.about, "preprocess": {"columns": COLUMNS}, "data": {"schema": {"action": ["drug", "fluid"]}}}
    amounts = dataclasses.replace(policy, layout=layout, about=about)
    assert set(amounts.choose({"ward": "A", "pulse": 80}).action) == {"drug", "fluid"}


@pytest.mark.parametrize("rows", [5, "ward", np.zeros(3), [1, 2]])
def test_what_is_no_row_is_one_sentence(policy, rows):
    with pytest.raises(OdiceError, match="row"):
        policy.choose(rows)
