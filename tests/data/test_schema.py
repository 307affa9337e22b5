"""Names of columns: which are understood, which are refused, and what is said then."""

import json
from dataclasses import fields

import pytest

from odice.cli.help import field_notes
from odice.data.binding import bind
from odice.data.names import natural
from odice.data.proposal import ROLES
from odice.data.schema import FLAGS, GROUPS, HELP, SINGLE, Schema, TableFlags
from odice.errors import OdiceError

ENDS = ["reward", "terminated", "truncated"]


def resolve(columns, **given):
    return bind(Schema.parse(given, "log.csv"), columns, "log.csv")


@pytest.mark.parametrize(
    ("columns", "observation", "action"),
    [
        (["obs_0", "obs_1", "action"], ("obs_0", "obs_1"), ("action",)),
        (
            ["observation_1", "observation_0", "action_1", "action_0"],
            ("observation_0", "observation_1"),
            ("action_0", "action_1"),
        ),
        (["observation.0", "observation.1", "action.0"], ("observation.0", "observation.1"), ("action.0",)),
        (["obs[10]", *(f"obs[{i}]" for i in range(10)), "act"], tuple(f"obs[{i}]" for i in range(11)), ("act",)),
        (["state_x", "state_angle", "action_torque"], ("state_x", "state_angle"), ("action_torque",)),
        (["s1", "s2", "a"], ("s1", "s2"), ("a",)),
        (["x0", "x1", "u0"], ("x0", "x1"), ("u0",)),
        (["obs0", "obs1", "action0"], ("obs0", "obs1"), ("action0",)),
        (["Observation_0", "Action"], ("Observation_0",), ("Action",)),
        (["observation.state", "action", "episode_index", "frame_index"], ("observation.state",), ("action",)),
    ],
)
def test_usual_names(columns, observation, action):
    schema = resolve(columns + ENDS)
    assert (schema.observation, schema.action, schema.next_observation) == (observation, action, ())
    assert (schema.reward, schema.terminated, schema.truncated) == tuple(ENDS)


@pytest.mark.parametrize(
    ("columns", "expected"),
    [
        (["obs_0", "obs_1", "next_obs_1", "next_obs_0"], ("next_obs_0", "next_obs_1")),
        (["obs_0", "obs_next_0"], ("obs_next_0",)),
        (["obs_0", "obs_0_next"], ("obs_0_next",)),
        (["s0", "s1", "next_s0", "next_s1"], ("next_s0", "next_s1")),
        (["observation.x", "next.observation.x"], ("next.observation.x",)),
    ],
)
def test_next_observation_follows_the_observation(columns, expected):
    assert resolve([*columns, "action", *ENDS]).next_observation == expected


def test_other_roles_by_name():
    schema = resolve(["traj_id", "t", "is_first", "is_last", "is_terminal", "s0", "a0", "r"])
    assert (schema.episode, schema.step, schema.first, schema.last) == ("traj_id", "t", "is_first", "is_last")
    assert (schema.terminated, schema.truncated, schema.reward) == ("is_terminal", None, "r")


def test_given_names_and_patterns_win():
    schema = resolve(
        ["q_10", "q_2", "v", "obs_0", "thrust", "r", "crash"],
        observation="q_*,v",
        action=["thrust"],
        terminated="crash",
    )
    assert schema.observation == ("q_2", "q_10", "v")
    assert (schema.action, schema.terminated) == (("thrust",), "crash")


@pytest.mark.parametrize(
    ("columns", "given", "parts"),
    [
        (["obs_0", "obs_2", "action", *ENDS], {}, ["lack number 1"]),
        (["obs_3", "obs_4", "action", *ENDS], {}, ["lack number 2"]),
        (["obs_0", "obs_mean", "action", *ENDS], {}, ["mix numbers and names"]),
        (["obs_0", "obs.0", "action", *ENDS], {}, ["repeat a number"]),
        (["obs_0", "state_0", "action", *ENDS], {}, ["'obs_0'", "'state_0'", "could each be"]),
        (["obs_0", "action", "reward", "done"], {}, ["'done'", "terminated", "truncated", "last"]),
        (["obs_0", "action", "reward", "done", "truncated"], {}, ["'done'"]),
        (["obs_0", "action", "reward"], {}, ["where episodes end"]),
        (["obs_0", "action", "rewardz", "terminated"], {}, ["no reward", "did you mean 'rewardz'"]),
        (["obs_0", "actoin", "reward", "terminated"], {}, ["no action", "did you mean 'actoin'"]),
        (["action", "reward", "terminated"], {}, ["no observation"]),
        (["obs_0", "action", "r", "reward", "terminated"], {}, ["could each be the `reward`"]),
        (["obs_0", "obs_1", "next_obs_0", "action", *ENDS], {}, ["'next_obs_0'", "'next_obs_1'"]),
        (["obs_0", "next_state_0", "action", *ENDS], {}, ["'next_state_0'"]),
        (["altitude", "action", *ENDS], {"observation": "altitud"}, ["'altitud'", "did you mean 'altitude'"]),
        (["x", "y", "action", *ENDS], {"observation": ["x", "*"]}, ["'x'", "twice"]),
        (["obs_0", "r_a", "r_b", "action", "terminated"], {"reward": "r_*"}, ["one column"]),
        (["obs_0", "action", "n", *ENDS], {"next_observation": ["n", "obs_0"]}, ["2 next-observation columns for 1"]),
    ],
)
def test_what_is_not_clear_is_refused(columns, given, parts):
    with pytest.raises(OdiceError) as error:
        resolve(columns, **given)
    assert all(part in str(error.value) for part in ["log.csv", *parts]), str(error.value)


def test_done_may_be_mapped():
    columns = ["obs_0", "action", "reward", "done"]
    assert resolve(columns, terminated="done").terminated == "done"
    assert resolve(columns, last="done").last == "done"
    assert resolve([*columns, "terminated"]).terminated == "terminated"


def test_schema_files(tmp_path):
    entries = {
        "observation": ["x", "v"],
        "action": "u",
        "reward": "r",
        "terminated": "fell",
        "discrete": False,
        "action_low": -2,
    }
    (tmp_path / "a.json").write_text(json.dumps(entries))
    (tmp_path / "a.toml").write_text(
        'observation = ["x", "v"]\naction = "u"\nreward = "r"\nterminated = "fell"\ndiscrete = false\naction_low = -2\n'
    )
    for name in ("a.json", "a.toml"):
        schema = Schema.read(tmp_path / name)
        assert schema == Schema(("x", "v"), ("u",), reward="r", terminated="fell", discrete=False, action_low=(-2.0,))
        assert Schema(reward="other").over(schema).reward == "other"
        assert Schema(reward="other").over(schema).observation == ("x", "v")


@pytest.mark.parametrize(
    ("name", "text", "part"),
    [
        ("s.toml", "observation = ", "not valid TOML"),
        ("s.json", "{", "not valid JSON"),
        ("s.json", "[1]", "holds a list"),
        ("s.json", '{"observations": "x"}', "Did you mean 'observation'"),
        ("s.json", '{"reward": 3}', "expected one name"),
        ("s.json", '{"observation": []}', "a list of names"),
        ("s.json", '{"discrete": 1}', "true or false"),
        ("s.json", '{"n_actions": 0}', "above 0"),
        ("s.json", '{"action_low": [NaN]}', "finite"),
        ("s.json", "[" * 100_000, "not valid JSON"),
        ("s.json", '"' + "x" * (1 << 20), "larger than"),
    ],
)
def test_bad_schema_files(tmp_path, name, text, part):
    (tmp_path / name).write_text(text)
    with pytest.raises(OdiceError, match=r"s\.(json|toml)") as error:
        Schema.read(tmp_path / name)
    assert part in str(error.value)
    assert "\n" not in str(error.value)


def test_missing_schema_file(tmp_path):
    with pytest.raises(OdiceError, match="cannot be opened"):
        Schema.read(tmp_path / "none.toml")


def test_natural_order():
    assert sorted(["part-10", "part-2", "part-1", "a"], key=natural) == ["a", "part-1", "part-2", "part-10"]


def test_the_flags_are_made_from_the_entries():
    flags = TableFlags(reward_column="score", observation_columns=("a", "b"), n_choices=3, categories=("a=x|y",))
    schema = Schema(reward="score", observation=("a", "b"), n_actions=3, categories=(("a", ("x", "y")),))
    assert flags.table() == {"schema": schema}
    assert TableFlags().table() == {}
    assert {item.name for item in fields(TableFlags)} == set(FLAGS.values())
    assert {"cost_limit", "outcomes", "env_id", "ref_min", "ref_max"} == set(HELP) - set(FLAGS)
    assert field_notes(TableFlags) == {flag: HELP[name] for name, flag in FLAGS.items()}


def test_flags_win_over_the_file(tmp_path):
    (tmp_path / "schema.toml").write_text('reward = "score"\ncost = "price"\n')
    schema = TableFlags(reward_column="gain").table(tmp_path / "schema.toml")["schema"]
    assert (schema.reward, schema.cost) == ("gain", "price")


def test_every_role_that_is_proposed_is_an_entry():
    assert set(ROLES) - {"outcome", "left out"} <= {*SINGLE, *GROUPS}
