"""What the doctor says and counts; that it finds every defect is in test_doctor_defects."""

import json
import warnings
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from odice.data.build import from_episodes, from_steps
from odice.data.dataset import UnfinishedEpisodeWarning
from odice.data.doctor import check, inspect
from odice.data.meta import Meta
from odice.errors import OdiceError

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
