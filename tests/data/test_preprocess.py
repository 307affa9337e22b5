import json
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from odice.d4rl import ANTMAZE_REWARDS
from odice.data.build import from_steps
from odice.data.meta import Meta
from odice.data.preprocess import (
    REWARD_FIELDS,
    REWARD_MAPS,
    Fitted,
    Preprocess,
    fit,
    moments,
    register_reward_map,
    return_range,
)
from odice.data.transitions import to_transitions
from odice.errors import OdiceError


def make(lengths, terminated, rewards=None, *, obs=None, meta=None, actions=None):
    """Episodes of these lengths; each ends at a terminal or at a timeout."""
    n, ends = sum(lengths), np.cumsum(lengths) - 1
    flags = np.zeros((2, n), bool)
    flags[0, ends], flags[1, ends] = terminated, np.logical_not(terminated)
    rewards = np.arange(n, dtype=float) if rewards is None else rewards
    obs = np.arange(float(n))[:, None] if obs is None else obs
    actions = np.zeros((n, 1)) if actions is None else actions
    return from_steps(obs, actions, rewards, terminated=flags[0], truncated=flags[1], meta=meta)


def range_a(data):
    """IQL's way, on the transitions: split where the observation jumps or at a terminal, every piece counts."""
    t = to_transitions(data)
    batch = t.batch(np.arange(t.size))
    returns, total = [], 0.0
    for i in range(t.size):
        total += float(batch.reward[i])
        jump = i + 1 < t.size and np.linalg.norm(batch.obs[i + 1] - batch.next_obs[i]) > 1e-6
        if jump or batch.terminated[i] or i + 1 == t.size:
            returns.append(total)
            total = 0.0
    return max(returns) - min(returns)


def range_b(data, limit=1000):
    """O-DICE's way: a running sum, cut at a terminal or after 1000 rows; the tail is thrown away."""
    t = to_transitions(data)
    returns, total, length = [], 0.0, 0
    for reward, terminal in zip(t.reward, t.terminated, strict=True):
        total, length = total + float(reward), length + 1
        if terminal or length == limit:
            returns.append(total)
            total, length = 0.0, 0
    return max(returns) - min(returns) if returns else 0.0


@given(
    lengths=st.lists(st.one_of(st.integers(1, 30), st.sampled_from([999, 1000, 1001, 2300])), min_size=2, max_size=7),
    data=st.data(),
)
def test_both_return_ranges_match_their_codes_row_by_row(lengths, data):
    terminated = data.draw(st.lists(st.booleans(), min_size=len(lengths), max_size=len(lengths)))
    rng = np.random.default_rng(data.draw(st.integers(0, 99)))
    rewards = rng.normal(size=sum(lengths)) + 1
    # observations that jump at every episode end, as real ones do
    obs = np.arange(float(sum(lengths)))[:, None] + 10 * np.repeat(np.arange(len(lengths)), lengths)[:, None]
    episodes = make(lengths, terminated, rewards, obs=obs)
    for variant, oracle in (("episodes", range_a), ("thousand", range_b)):
        try:
            expected = oracle(episodes)
        except (ValueError, OdiceError):
            expected = 0.0
        if expected > 0:
            assert return_range(episodes, variant) == pytest.approx(expected, rel=1e-6), variant
        else:
            with pytest.raises(OdiceError):
                return_range(episodes, variant)


def test_rows_cut_by_time_make_the_two_ranges_differ():
    """Like HalfCheetah: never terminal, 1000 steps each. (A) sees 999-row episodes, (B) drifts across them."""
    rewards = np.repeat([1.0, 2.0, 4.0], 1000)
    data = make([1000] * 3, [False] * 3, rewards)
    assert return_range(data, "episodes") == 999 * 3
    # rows are 999 ones, 999 twos, 999 fours; pieces of 1000: 999 + 2 = 1001, 998 * 2 + 2 * 4 = 2004, tail lost
    assert return_range(data, "thousand") == 2004 - 1001
    scaled = fit(Preprocess(return_range="episodes"), data).apply(data)
    assert scaled.rewards[0] == pytest.approx(1000 / 2997)


def test_equal_returns_cannot_scale():
    with pytest.raises(OdiceError, match="range of its 2 returns"):
        fit(Preprocess(return_range="episodes"), make([3, 4], [True, True], np.ones(7)))


@pytest.mark.parametrize(
    ("variant", "zero", "one"),
    [("odice-code", -3, 0), ("odice-paper", -3, -2), ("iql", -1, 0), ("cql", -2, 2), ("corl-cql", -5, 5)],
)
def test_antmaze_rewards(variant, zero, one):
    data = make([2, 2], [True, False], [0, 1, 0, 0])
    assert fit(Preprocess(**ANTMAZE_REWARDS[variant]), data).apply(data).rewards.tolist() == [zero, one, zero, zero]


def test_exact_replacements_refuse_dense_rewards():
    data = make([2, 2], [True, False], [0, 0.5, 0, 1])
    with pytest.raises(OdiceError, match=r"also hold 0\.5"):
        fit(Preprocess(**ANTMAZE_REWARDS["odice-code"]), data).apply(data)


def test_observations_are_normalized_over_the_transitions_only():
    obs = np.array([[0.0, 5], [2, 5], [100, 5], [4, 5], [6, 5], [200, 5]])
    data = make([3, 3], [False, False], obs=obs)  # the steps with 100 and 200 are cut by time: not transitions
    mean, std = moments(data)
    assert mean.tolist() == [3, 5]
    assert std.tolist() == [pytest.approx(np.sqrt(5)), 0]
    fitted = fit(Preprocess(normalize_obs=True), data)
    assert fitted.apply(data).observations[:2, 0] == pytest.approx(np.array([-3, -1]) / (np.sqrt(5) + 1e-3), rel=1e-6)
    assert fitted.observe(np.array([3.0, 5.0])).tolist() == [0, 0]
    assert fitted.observe(obs).shape == (6, 2)


def test_action_bounds_map_to_the_unit_box_and_back():
    meta = Meta(action_low=(-2.0, 0.0), action_high=(2.0, 10.0))
    actions = np.array([[-2.0, 0.0], [2.0, 10.0], [0.0, 5.0], [1.0, 2.5]])
    data = make([2, 2], [True, True], meta=meta, actions=actions)
    fitted = fit(Preprocess(clip_actions=0.75), data)
    assert fitted.apply(data).actions.tolist() == [[-0.75, -0.75], [0.75, 0.75], [0, 0], [0.5, -0.5]]
    assert fitted.act(np.array([[-1.0, -1], [1, 1], [0.5, -0.5]])).tolist() == [[-2, 0], [2, 10], [1, 2.5]]
    assert fitted.act(np.array([3.0, 3.0])).tolist() == [2, 10]


@pytest.mark.parametrize("bounds", [(None, None), ((-1.0,), (1.0,)), ((-np.inf,), (np.inf,)), ((1.0,), (1.0,))])
def test_bounds_that_need_no_map_or_allow_none_leave_actions_alone(bounds):
    data = make([2], [True], meta=Meta(action_low=bounds[0], action_high=bounds[1]))
    assert fit(Preprocess(), data) == Fitted()
    assert fit(Preprocess(), data).apply(data) is data


def test_discrete_actions_pass_through():
    data = make([2, 2], [True, True], actions=np.array([0, 1, 2, 1]))
    fitted = fit(Preprocess(clip_actions=0.5, reward_scale=2.0), data)
    assert fitted.apply(data).actions.tolist() == [0, 1, 2, 1]
    assert fitted.act(np.array(2)) == 2
    assert fitted.unact(np.array([2])).tolist() == [2]


def test_the_fitted_numbers_survive_json_bit_for_bit():
    rng = np.random.default_rng(0)
    meta = Meta(action_low=(-0.3,), action_high=(0.7,))
    data = make([4, 5], [True, False], rng.normal(size=9), obs=rng.normal(size=(9, 3)), meta=meta)
    wanted = Preprocess(
        return_range="episodes", reward_scale=0.1, reward_shift=-1.0, normalize_obs=True, clip_actions=1 - 1e-5
    )
    fitted = fit(wanted, data)
    again = Fitted.from_dict(json.loads(json.dumps(fitted.to_dict())))
    assert again == fitted
    assert again.apply(data).fingerprint == fitted.apply(data).fingerprint
    pairs = Fitted(reward_values=((0.0, -3.0), (1.0, 0.0)))
    assert Fitted.from_dict(json.loads(json.dumps(pairs.to_dict()))) == pairs
    with pytest.raises(OdiceError, match="another version"):
        Fitted.from_dict({"whiten": True})


def test_standardized_rewards_have_mean_zero_and_the_given_spread():
    """OptiDICE's rewards, over the transitions that count: the truncated step of each episode is left out."""
    rng = np.random.default_rng(0)
    rewards = rng.normal(3.0, 2.0, 60).astype(np.float32)
    rewards[9::10] = 1e3  # never seen: the time limit's steps
    dataset = from_steps(
        observations=rng.normal(size=(60, 2)).astype(np.float32),
        actions=rng.uniform(-1, 1, (60, 1)).astype(np.float32),
        rewards=rewards,
        truncated=np.arange(60) % 10 == 9,
    )
    fitted = fit(Preprocess(standardize_reward=True, reward_scale=0.1), dataset)
    seen = fitted.reward(np.delete(rewards, np.arange(9, 60, 10)))
    np.testing.assert_allclose([seen.mean(), seen.std()], [0.0, 0.1], atol=1e-5)
    flat = replace(dataset, rewards=np.ones_like(rewards))
    with pytest.raises(OdiceError, match="cannot be standardized"):
        fit(Preprocess(standardize_reward=True), flat)


# --- reward maps by name ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("none", [0.0, 1.0, 3.0]),
        ("minus-1", [-1.0, 0.0, 2.0]),
        ("minus-3", [-3.0, -2.0, 0.0]),
        ("times-4-minus-2", [-2.0, 2.0, 10.0]),
        ("times-10-minus-5", [-5.0, 5.0, 25.0]),
        ("zero", [0.0, 0.0, 0.0]),
        ("return-range", [0.0, 500.0, 1500.0]),  # two episodes: 1 and 3
    ],
)
def test_reward_maps_by_hand(name, expected):
    data = from_steps(np.zeros((3, 1)), np.zeros((3, 1)), [0.0, 1.0, 3.0], terminated=[0, 1, 1])
    fitted = fit(Preprocess(**REWARD_MAPS[name]), data, "bootstrap")
    assert fitted.apply(data).rewards.tolist() == expected


def test_every_reward_map_sets_fields_about_rewards():
    for changes in REWARD_MAPS.values():
        Preprocess(**changes)
        assert set(changes) <= set(REWARD_FIELDS)


def test_a_reward_map_of_your_own(monkeypatch):
    monkeypatch.setattr("odice.data.preprocess.REWARD_MAPS", maps := dict(REWARD_MAPS))
    register_reward_map("halved", reward_scale=0.5, reward_shift=1.0)
    assert Fitted(**maps["halved"]).reward(np.array([4.0])).tolist() == [3.0]
    for taken in ("halved", "minus-1"):
        with pytest.raises(OdiceError, match=f"reward map '{taken}' exists already; choose another name"):
            register_reward_map(taken, reward_scale=2.0)
    assert maps["minus-1"] == {"reward_shift": -1.0}
    with pytest.raises(OdiceError, match=r"field of the reward map 'new': 'scale'\. Did you mean 'reward_scale'"):
        register_reward_map("new", scale=2.0)
    assert "new" not in maps
