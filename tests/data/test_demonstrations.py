"""Demonstrations: episodes by number, what follows one that was cut, and suboptimal data behind them."""

import re

import numpy as np
import pytest

import odice
from odice.data.demonstrations import demonstrations, with_suboptimal
from odice.data.transitions import to_transitions
from odice.errors import OdiceError

# Four episodes of 3, 2, 2 and 3 steps; the second terminates, the others are cut. Observation of row i: (i, -i).
LENGTHS = (3, 2, 2, 3)
STARTS = np.cumsum((0, *LENGTHS[:-1]))


def log(**changed):
    n = sum(LENGTHS)
    ends = np.zeros(n, bool)
    ends[np.cumsum(LENGTHS) - 1] = True
    terminal = np.zeros(n, bool)
    terminal[4] = True
    rows = np.arange(n, dtype=np.float32)
    arrays = {
        "observations": np.stack([rows, -rows], 1),
        "actions": rows[:, None] / 10,
        "rewards": np.ones(n, np.float32),
        "terminals": terminal,
        "timeouts": ends & ~terminal,
    }
    return odice.load(arrays | changed)


def test_episodes_come_in_the_order_they_are_named():
    chosen = demonstrations(log(), [3, 1])
    np.testing.assert_array_equal(chosen.lengths, [3, 2])
    np.testing.assert_array_equal(chosen.step_observations()[:, 0], [7, 8, 9, 3, 4])
    np.testing.assert_array_equal(chosen.terminated, [False, True])


def test_no_number_means_all():
    data = log()
    assert demonstrations(data) is data


@pytest.mark.parametrize("number", [4, -1])
def test_a_number_that_does_not_exist_is_answered_with_the_range_and_the_returns(number):
    with pytest.raises(OdiceError, match=rf"no episode {number}.*takes 0 to 3.*returns are 3, 2, 2, 3\.$"):
        demonstrations(log(), [0, number])


def test_many_returns_are_cut_short():
    data = log()
    many = data.select([0] * 20 + [1])
    with pytest.raises(OdiceError, match=re.escape("0 to 20") + r".*3, \.\.\. \(highest 3\)"):
        demonstrations(many, [30])


def test_an_episode_counts_once():
    with pytest.raises(OdiceError, match="twice"):
        demonstrations(log(), [1, 1])


@pytest.mark.filterwarnings("ignore::odice.data.dataset.UnfinishedEpisodeWarning")
def test_without_ends_there_is_nothing_to_choose_from():
    nowhere = np.zeros(10, bool)
    data = log(terminals=nowhere, timeouts=nowhere)
    with pytest.raises(OdiceError, match="nothing marks where an episode ends"):
        demonstrations(data, [0])
    assert demonstrations(data).n_episodes == 1


def test_a_cut_step_is_left_out_where_its_next_state_is_unknown():
    rows = to_transitions(demonstrations(log(), [0, 1]), "bootstrap")
    assert rows.size == 2 + 2
    np.testing.assert_array_equal(rows.terminated, [False, False, False, True])


def test_a_cut_step_is_kept_where_its_next_state_was_recorded():
    after = np.arange(1, 11, dtype=np.float32)
    after[[2, 4, 6, 9]] = [100, 101, 102, 103]
    data = log(next_observations=np.stack([after, -after], 1))
    batch = to_transitions(demonstrations(data, [2]), "bootstrap").batch(np.arange(2))
    np.testing.assert_array_equal(batch.next_obs[:, 0], [6, 102])
    assert not batch.terminated.any()


def test_the_reference_code_lets_a_cut_episode_lead_into_the_next():
    data = log()
    chosen = demonstrations(data, [0, 1, 3], "next-reset")
    batch = to_transitions(chosen, "bootstrap").batch(np.arange(7))
    # Episode 0 leads from row 2 to row 3, where episode 1 starts; episode 1 terminates; nothing follows episode 3.
    np.testing.assert_array_equal(batch.obs[:, 0], [0, 1, 2, 3, 4, 7, 8])
    np.testing.assert_array_equal(batch.next_obs[:4, 0], [1, 2, 3, 4])
    np.testing.assert_array_equal(batch.terminated, [False, False, False, False, True, False, False])
    np.testing.assert_array_equal(data.final_known, log().final_known)  # the data set itself is as it was


def test_suboptimal_data_stand_behind_the_demonstrations():
    union = with_suboptimal(demonstrations(log(), [3]), log())
    np.testing.assert_array_equal(union.lengths, [3, *LENGTHS])
    np.testing.assert_array_equal(union.step_observations()[:4, 0], [7, 8, 9, 0])


def test_suboptimal_data_of_another_robot_are_refused():
    wide = log(observations=np.zeros((10, 5), np.float32))
    with pytest.raises(OdiceError, match="different"):
        with_suboptimal(log(), wide)
    from dataclasses import replace

    data = log()
    bounded = lambda high: replace(data, meta=replace(data.meta, action_low=(-1.0,), action_high=(high,)))
    with pytest.raises(OdiceError, match="action high"):
        with_suboptimal(bounded(1.0), bounded(2.0))
    assert with_suboptimal(bounded(1.0), data).meta.action_high == (1.0,)
