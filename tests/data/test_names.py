"""One table of names: what a column means in a CSV file, an array of that name means in an NPZ file or a dict."""

import numpy as np
import polars as pl
import pytest

import odice
from odice.data.names import ALIASES, DONE
from odice.data.readers.arrays import ROLES
from odice.data.schema import GROUPS, SINGLE
from odice.errors import OdiceError

# three episodes of two steps; the second ends by time, the others for good
LOG = {
    "observation": np.array([1.0, 2.0, 3.0, 4.0, 5.0, 6.0]),
    "action": np.linspace(-1, 1, 6),
    "reward": np.array([0.5, 1.0, 1.5, 2.0, 2.5, 3.0]),
    "terminated": np.array([0, 1, 0, 0, 0, 1], bool),
    "truncated": np.array([0, 0, 0, 1, 0, 0], bool),
    "episode": np.array([7, 7, 8, 8, 9, 9]),
    "next_observation": np.array([2.0, 10.0, 4.0, 20.0, 6.0, 30.0]),
}
NEEDED = ("observation", "action", "reward", "terminated", "truncated")


def log(role: str, name: str) -> dict[str, np.ndarray]:
    """The log with the role's data under this name."""
    if role == "next_observation":  # in a table, the next observation is called after the observation
        return {
            **{part: LOG[part] for part in NEEDED[1:]},
            name.removeprefix("next_"): LOG["observation"],
            name: LOG[role],
        }
    return {**{part: LOG[part] for part in NEEDED if part != role}, name: LOG[role]}


EXPECTED = odice.load({part: LOG[part] for part in NEEDED})


USUAL = [(role, name) for role in LOG for name in ALIASES[role]]
SHOUTED = [(role, name.upper()) for role, name in USUAL if role != "next_observation"]


@pytest.mark.parametrize(("role", "name"), USUAL + SHOUTED)
def test_every_name_means_the_same_in_arrays_and_in_tables(role, name, tmp_path):
    columns = log(role, name)
    pl.DataFrame(columns).write_csv(tmp_path / "log.csv")
    np.savez(tmp_path / "log.npz", **columns)
    for source in (columns, tmp_path / "log.npz", tmp_path / "log.csv"):
        data = odice.load(source)
        assert data.rewards.tolist() == LOG["reward"].tolist()
        assert data.actions.tolist() == EXPECTED.actions.tolist()
        assert data.terminated.tolist() == [True, False, True]
        assert data.truncated.tolist() == [False, True, False]
        if role == "next_observation":
            assert data.final_known.all()
            assert data.observations[:, 0].tolist() == [1, 2, 10, 3, 4, 20, 5, 6, 30]
        else:
            assert data.fingerprint == EXPECTED.fingerprint


@pytest.mark.parametrize("name", ALIASES["episode"])
def test_episodes_are_distinguished_by_their_number_alone(name, tmp_path):
    columns = {**{part: LOG[part] for part in NEEDED[:3]}, name: LOG["episode"]}
    pl.DataFrame(columns).write_parquet(tmp_path / "log.parquet")
    for source in (columns, tmp_path / "log.parquet"):
        with pytest.warns(UserWarning, match="3 of 3 episodes end with neither"):
            assert odice.load(source).lengths.tolist() == [2, 2, 2]


@pytest.mark.parametrize("flag", ["terminated", "truncated"])
def test_every_name_of_a_flag_means_the_same_in_a_list_of_episodes(flag):
    for name in ALIASES[flag]:
        one = {
            "observations": np.zeros((3, 1)),
            "actions": np.zeros((2, 1)),
            "rewards": [0.0, 1.0],
            name: [False, True],
        }
        data = odice.load([one, one])
        assert getattr(data, flag).tolist() == [True, True]
        assert data.lengths.tolist() == [2, 2]


@pytest.mark.parametrize("name", DONE)
def test_a_flag_that_does_not_say_why_is_refused(name, tmp_path):
    columns = {**{part: LOG[part] for part in NEEDED[:3]}, name: LOG["terminated"]}
    pl.DataFrame(columns).write_csv(tmp_path / "log.csv")
    for source, what in (
        (columns, "does not say why an episode ended"),
        (tmp_path / "log.csv", "does not say whether"),
    ):
        with pytest.raises(OdiceError, match=what):
            odice.load(source)


def test_of_two_arrays_of_one_role_the_first_name_of_the_table_counts():
    columns = {**log("reward", "rewards"), "reward": -LOG["reward"], "OBS": -LOG["observation"]}
    data = odice.load(columns)
    assert data.fingerprint == EXPECTED.fingerprint
    exact = {**log("reward", "rew"), "REW": -LOG["reward"]}
    assert odice.load(exact).fingerprint == EXPECTED.fingerprint


def test_two_names_of_one_role_in_a_table_are_an_error(tmp_path):
    pl.DataFrame({**log("reward", "rewards"), "reward": LOG["reward"]}).write_csv(tmp_path / "log.csv")
    with pytest.raises(OdiceError, match="could each be the `reward` column"):
        odice.load(tmp_path / "log.csv")


def test_no_name_has_two_meanings_and_every_role_is_in_the_table():
    names = [name for role in ALIASES.values() for name in role] + list(DONE)
    assert len(set(names)) == len(names)
    assert all(name == name.lower() for name in names)
    assert {*ROLES.values(), *SINGLE, *GROUPS} == set(ALIASES)
