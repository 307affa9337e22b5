from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given

from odice.data.build import from_episodes, from_steps
from odice.data.dataset import UnfinishedEpisodeWarning, pick, walk
from odice.data.join import concatenate
from odice.data.meta import Meta
from odice.errors import OdiceError
from tests.data.strategies import datasets

# Two episodes by hand: three steps that terminate, two steps that were cut.
OBS = np.array([[0.0], [1.0], [2.0], [10.0], [11.0]])
NEXT = np.array([[1.0], [2.0], [3.0], [11.0], [12.0]])
ACTIONS = np.array([[0.1], [0.2], [0.3], [0.4], [0.5]])
REWARDS = np.array([1.0, 2.0, 4.0, 8.0, 16.0])
TERMINATED = np.array([0, 0, 1, 0, 0], bool)
TRUNCATED = np.array([0, 0, 0, 0, 1], bool)


def hand(**changes):
    columns = {"terminated": TERMINATED, "truncated": TRUNCATED, "next_observations": NEXT, **changes}
    return from_steps(OBS, ACTIONS, REWARDS, **columns)


def test_steps_become_episodes_with_one_observation_more():
    data = hand()
    assert data.observations[:, 0].tolist() == [0, 1, 2, 3, 10, 11, 12]
    assert data.lengths.tolist() == [3, 2]
    assert data.starts.tolist() == [0, 3]
    assert data.ends.tolist() == [2, 4]
    assert data.returns.tolist() == [7, 24]
    assert data.terminated.tolist() == [True, False]
    assert data.truncated.tolist() == [False, True]
    assert data.final_known.all()
    assert data.step_flags("terminated").tolist() == TERMINATED.tolist()
    assert np.array_equal(data.step_observations(), OBS)
    assert data.observations.dtype == data.actions.dtype == data.rewards.dtype == np.float32
    last = data[-1]
    assert last.observations[:, 0].tolist() == [10, 11, 12]
    assert last.rewards.tolist() == [8, 16]
    assert (last.terminated, last.truncated) == (False, True)
    assert [len(one.rewards) for one in data] == [3, 2]
    assert tuple(data.spec) == (1, 1, False)


def test_without_next_observations_the_final_one_is_unknown_and_repeated():
    data = hand(next_observations=None)
    assert data.observations[:, 0].tolist() == [0, 1, 2, 2, 10, 11, 11]
    assert not data.final_known.any()


def test_next_known_marks_single_rows():
    data = hand(next_known=[1, 1, 0, 1, 1])
    assert data.final_known.tolist() == [False, True]
    assert data.observations[3, 0] == 2.0
    assert "next_mismatch" not in data.meta.evidence


def test_a_disagreeing_next_observation_is_evidence_not_data():
    wrong = NEXT.copy()
    wrong[1] = 7.5
    data = hand(next_observations=wrong)
    assert data.observations[2, 0] == 2.0
    assert data.meta.evidence["next_mismatch"] == {"count": 1, "first_row": 1, "largest": 5.5, "column": 0}


def test_an_unfinished_tail_is_kept_as_truncated_with_a_warning():
    with pytest.warns(UnfinishedEpisodeWarning, match="the last episode"):
        data = hand(truncated=None)
    assert data.truncated.tolist() == [False, True]
    assert data.n_steps == 5
    assert data.meta.evidence["unfinished"] == {"count": 1, "tail": True}


def test_a_change_of_episode_number_ends_an_episode():
    with pytest.warns(UnfinishedEpisodeWarning, match="2 of 2 episodes"):
        data = from_steps(OBS, ACTIONS, REWARDS, episode=[7, 7, 3, 3, 3])
    assert data.lengths.tolist() == [2, 3]
    assert data.truncated.all()
    assert not data.terminated.any()


def test_a_terminal_inside_an_episode_cuts_it():
    flags = np.array([0, 1, 0, 0, 1], bool)
    data = from_steps(OBS, ACTIONS, REWARDS, terminated=flags, episode=np.zeros(5))
    assert data.lengths.tolist() == [2, 3]
    assert data.meta.evidence["flags_inside_episode"] == {"count": 1, "first_row": 1}


def test_a_list_of_episodes_cuts_at_inner_flags_and_knows_the_observation_there():
    one = {
        "observations": np.arange(5.0)[:, None],
        "actions": np.zeros((4, 2)),
        "rewards": np.ones(4),
        "terminations": [0, 1, 0, 0],
        "truncations": [0, 0, 0, 1],
    }
    data = from_episodes([one, {**one, "observations": one["observations"][:4] + 10}])
    assert data.lengths.tolist() == [2, 2, 2, 2]
    assert data.observations[:, 0].tolist() == [0, 1, 2, 2, 3, 4, 10, 11, 12, 12, 13, 13]
    assert data.final_known.tolist() == [True, True, True, False]


@pytest.mark.parametrize(
    ("kind", "discrete", "shape"),
    [(np.int64, True, (5,)), (np.uint8, True, (5, 1)), (bool, True, (5,)), (np.float64, False, (5,))],
)
def test_the_type_of_the_actions_decides(kind, discrete, shape):
    actions = np.array([0, 1, 1, 0, 1], kind).reshape(shape)
    data = from_steps(OBS, actions, REWARDS, terminated=TERMINATED, truncated=TRUNCATED)
    assert data.discrete is discrete
    assert tuple(data.spec) == ((1, 2, True) if discrete else (1, 1, False))
    assert data.actions.dtype == (np.int32 if discrete else np.float32)


def test_whole_numbers_in_floats_are_discrete_only_on_request():
    actions = np.array([0.0, 2.0, 1.0, 0.0, 1.0])
    flags = {"terminated": TERMINATED, "truncated": TRUNCATED}
    assert from_steps(OBS, actions, REWARDS, discrete=True, **flags).spec.action_dim == 3
    with pytest.raises(OdiceError, match="fractions"):
        from_steps(OBS, actions / 2, REWARDS, discrete=True, **flags)


def test_selection_by_index_mask_return_and_steps():
    data = hand()
    assert data.select([1, 0]).rewards.tolist() == [8, 16, 1, 2, 4]
    assert data.select([1, 0]).observations[:, 0].tolist() == [10, 11, 12, 0, 1, 2, 3]
    assert data.select([-1]).returns.tolist() == [24]
    assert data.select(data.returns > 10).returns.tolist() == [24]
    assert data.by_return(0.5).returns.tolist() == [24]
    assert data.by_return(0, 0.5).returns.tolist() == [7]
    for bad in ([], [2], [-3]):
        with pytest.raises(OdiceError, match="cannot select"):
            data.select(bad)


def test_the_first_steps_cut_an_episode_as_truncated():
    cut = hand().first(4)
    assert cut.lengths.tolist() == [3, 1]
    assert cut.observations[:, 0].tolist() == [0, 1, 2, 3, 10, 11]
    assert cut.truncated.tolist() == [False, True]
    assert cut.final_known.tolist() == [True, True]
    whole = hand(next_observations=None).first(3)
    assert whole.terminated.tolist() == [True]
    assert whole.final_known.tolist() == [False]
    with pytest.raises(OdiceError, match="cannot take 6 steps of 5"):
        hand().first(6)


@given(datasets(min_episodes=2))
def test_a_split_is_a_partition(data):
    first, second = data.split(0.5, seed=1)
    assert first.n_episodes + second.n_episodes == data.n_episodes
    lengths = sorted([*first.lengths, *second.lengths])
    assert lengths == sorted(data.lengths)
    assert first.fingerprint == data.split(0.5, seed=1)[0].fingerprint


@given(datasets(min_episodes=2))
def test_parts_concatenate_to_the_whole(data):
    whole = concatenate([data.select([e]) for e in range(data.n_episodes)], source="whole")
    assert whole.fingerprint == data.fingerprint
    assert whole.meta.env_id == data.meta.env_id
    assert whole.meta.source == "whole"


def test_concatenation_forgets_what_differs_and_refuses_other_shapes():
    one = hand(meta=Meta(source="medium", env_id="A", ref_min=1.0))
    two = hand(meta=Meta(source="expert", env_id="B", ref_min=1.0))
    both = concatenate([one, two])
    assert (both.meta.source, both.meta.env_id, both.meta.ref_min) == ("medium + expert", None, 1.0)
    wide = from_steps(np.zeros((1, 2)), np.zeros((1, 1)), [0.0], terminated=[True])
    with pytest.raises(OdiceError, match="different"):
        concatenate([one, wide])


@given(datasets())
def test_any_change_changes_the_fingerprint(data):
    base = data.fingerprint
    assert from_episodes(list(data), meta=data.meta).fingerprint == base
    for name in ("observations", "actions", "rewards", "terminated", "truncated", "final_known"):
        array = getattr(data, name).copy()
        array.reshape(-1).view(np.uint8)[0] ^= 1
        changed = type(data)(**{**vars_of(data), name: array})
        assert changed.fingerprint != base, name


def vars_of(data):
    names = ("observations", "actions", "rewards", "lengths", "terminated", "truncated", "final_known", "meta")
    return {name: getattr(data, name) for name in names}


def test_the_fingerprint_is_of_the_content_not_of_the_name():
    assert hand(meta=Meta(source="x")).fingerprint == hand(meta=Meta(source="y", env_id="z")).fingerprint


FLAGS = {"terminated": TERMINATED, "truncated": TRUNCATED}


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"rewards": REWARDS[:4]}, "'rewards' has 4 rows but 'observations' has 5"),
        ({"rewards": np.zeros((5, 2))}, "one reward per step"),
        ({"actions": np.array(["a"] * 5)}, "only real numbers"),
        ({"actions": np.array([None] * 5)}, "only real numbers"),
        ({"observations": np.zeros(5, complex)}, "only real numbers"),
        ({"observations": [[1, 2], [3], [4], [5], [6]]}, "ragged"),
        ({"observations": 3.0}, "single number"),
        ({"observations": np.zeros((0, 1)), "actions": np.zeros(0), "rewards": []}, "0 steps"),
        ({"terminated": [0, 0, 2, 0, 0]}, "other than 0 and 1"),
        ({"terminated": [0, 1]}, r"shape \(2,\)"),
        ({"episode": [1, 2]}, "'episode' has 2 rows"),
        ({"next_observations": np.zeros((5, 2))}, "another width"),
        ({"actions": np.array([0, 1, -1, 0, 0])}, "holds -1"),
        ({"actions": np.array([0, 1, 2**62, 0, 0])}, "holds 4611686018427387904"),
        ({"actions": np.array([0, 1, 5, 0, 0]), "meta": Meta(n_actions=5)}, "from 0 to 4"),
        ({"actions": np.zeros((5, 2), int), "meta": Meta(n_actions=5)}, "one number per step"),
    ],
)
def test_bad_columns_get_one_sentence(columns, message):
    with pytest.raises(OdiceError, match=message):
        from_steps(**{"observations": OBS, "actions": ACTIONS, "rewards": REWARDS, **FLAGS, **columns})


@pytest.mark.parametrize(
    ("episode", "message"),
    [
        ({"observations": np.zeros((3, 1)), "actions": np.zeros(2)}, "only observations, actions"),
        (
            {"observations": np.zeros((2, 1)), "actions": np.zeros(3), "rewards": np.zeros(3)},
            "2 observations, 3 actions",
        ),
        ({"observations": np.zeros((1, 1)), "actions": np.zeros(0), "rewards": np.zeros(0)}, "it has 0 steps"),
        ("text", "found a str"),
    ],
)
def test_bad_episodes_get_one_sentence(episode, message):
    good = {"observations": np.zeros((2, 1)), "actions": np.zeros(1), "rewards": np.zeros(1), "terminated": True}
    episode = {**episode, "terminated": True} if isinstance(episode, dict) else episode
    with pytest.raises(OdiceError, match=message):
        from_episodes([good, episode])


def test_episodes_of_another_width_are_refused():
    good = {"observations": np.zeros((2, 1)), "actions": np.zeros(1), "rewards": np.zeros(1), "terminated": True}
    with pytest.raises(OdiceError, match="episode 1: its observations or actions have another width"):
        from_episodes([good, {**good, "observations": np.zeros((2, 3))}])
    with pytest.raises(OdiceError, match="0 episodes"):
        from_episodes([])


def test_metadata_survive_json():
    import json

    meta = Meta(
        "s",
        "e",
        (-1.0,),
        (1.0,),
        None,
        0.5,
        2.0,
        (("goal", 2),),
        history=("cut",),
        evidence={"unfinished": {"count": 1}},
    )
    meta = replace(meta, obs_columns=({"name": "goal", "width": 2},), action_names=("force",))
    assert Meta.from_dict(json.loads(json.dumps(meta.to_dict()))) == meta
    assert Meta().to_dict() == {"source": "memory"}
    assert Meta.from_dict({"source": "x", "from_the_future": 1}) == Meta("x")


def test_scattered_rows_of_a_mapped_file_are_picked_in_pieces(tmp_path):
    values = np.arange(3000, dtype=np.float32).reshape(1000, 3)
    np.save(tmp_path / "a.npy", values)
    mapped = np.load(tmp_path / "a.npy", mmap_mode="r")
    rows = np.array([0, 0, 5, 6, 300, 301, 999])
    for chunk in (1, 3, 100):
        assert np.array_equal(pick(mapped, rows, chunk), values[[0, 0, 5, 6, 300, 301, 999]])
    assert np.array_equal(np.concatenate([part for _, part in walk(mapped)]), values)
