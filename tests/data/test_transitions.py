import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from odice.data.build import from_steps
from odice.data.transitions import rows_of, to_transitions
from odice.errors import OdiceError
from tests.data.strategies import datasets


def d4rl_qlearning(obs, actions, rewards, terminals, timeouts):
    """D4RL's loop in its own order: the oracle. Returns (obs, action, reward, next_obs, terminal) row by row."""
    rows = []
    for i in range(len(rewards) - 1):
        if timeouts[i]:
            continue
        rows.append((obs[i], actions[i], rewards[i], obs[i + 1], terminals[i]))
    return rows


@given(
    ends=st.lists(st.sampled_from(["", "", "terminal", "timeout", "both"]), min_size=2, max_size=40),
    seed=st.integers(0, 99),
)
@pytest.mark.filterwarnings("ignore::odice.data.dataset.UnfinishedEpisodeWarning")
def test_qlearning_rows_are_those_of_d4rl(ends, seed):
    rng, n = np.random.default_rng(seed), len(ends)
    obs, actions = rng.normal(size=(n, 3)).astype(np.float32), rng.normal(size=(n, 2)).astype(np.float32)
    rewards = rng.normal(size=n).astype(np.float32)
    terminals = np.array([end in ("terminal", "both") for end in ends])
    timeouts = np.array([end in ("timeout", "both") for end in ends])
    expected = d4rl_qlearning(obs, actions, rewards, terminals, timeouts)
    data = from_steps(obs, actions, rewards, terminated=terminals, truncated=timeouts)
    if not expected:
        with pytest.raises(OdiceError, match="no step is left"):
            to_transitions(data)
        return
    transitions = to_transitions(data)
    assert transitions.size == len(expected)
    batch = transitions.batch(np.arange(transitions.size))
    for i, (s, a, r, after, end) in enumerate(expected):
        assert np.array_equal(batch.obs[i], s)
        assert np.array_equal(batch.action[i], a)
        assert batch.reward[i] == r
        assert batch.terminated[i] == end
        if not end:  # at a terminal D4RL has the next episode's first observation, which nobody may read
            assert np.array_equal(batch.next_obs[i], after)


def test_a_thousand_steps_cut_by_time_give_999_transitions():
    n = 3000
    timeouts = np.arange(n) % 1000 == 999
    data = from_steps(np.zeros((n, 1)), np.zeros((n, 1)), np.zeros(n), terminated=np.zeros(n), truncated=timeouts)
    assert to_transitions(data).size == 3 * 999


def test_the_last_row_is_lost_even_if_it_is_terminal():
    data = from_steps(np.zeros((4, 1)), np.zeros((4, 1)), np.arange(4.0), terminated=[0, 1, 0, 1])
    assert to_transitions(data).reward.tolist() == [0, 1, 2]


def test_bootstrap_keeps_a_cut_step_exactly_where_its_final_observation_is_known():
    data = from_steps(
        np.arange(5.0)[:, None],
        np.zeros((5, 1)),
        np.arange(5.0),
        terminated=[0, 0, 0, 0, 1],
        truncated=[0, 1, 0, 1, 0],
        next_observations=np.arange(5.0)[:, None] + 0.5,
        next_known=[1, 1, 1, 0, 0],
    )
    transitions = to_transitions(data, "bootstrap")
    assert transitions.reward.tolist() == [0, 1, 2, 4]
    assert transitions.terminated.tolist() == [False, False, False, True]
    assert transitions.batch(np.arange(4)).next_obs[:3, 0].tolist() == [1, 1.5, 3]
    assert to_transitions(data, "qlearning").reward.tolist() == [0, 2]


@given(data=datasets(), convention=st.sampled_from(["qlearning", "bootstrap"]))
def test_rows_are_located_without_a_table(data, convention):
    try:
        rows = rows_of(data, convention)
    except OdiceError:
        return
    steps, owner = rows.locate(np.arange(rows.size))
    assert (np.diff(steps) > 0).all()
    assert (steps >= data.starts[owner]).all()
    assert (steps <= data.ends[owner]).all()
    transitions = to_transitions(data, convention)
    assert np.array_equal(transitions.reward, data.rewards[steps])
    assert transitions.obs is data.observations
    for e, one in enumerate(data):
        assert transitions.obs[transitions.initial[e]].tobytes() == one.observations[0].tobytes()


def test_an_unknown_convention_is_named():
    data = from_steps(np.zeros((2, 1)), np.zeros((2, 1)), np.zeros(2), terminated=[0, 1])
    with pytest.raises(OdiceError, match="Did you mean 'bootstrap'"):
        to_transitions(data, "bootstrapp")  # pyright: ignore[reportArgumentType]
