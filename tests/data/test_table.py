"""Parquet and CSV: what is read is what was written, and what cannot be read is said in one sentence."""

import gzip
import json
import warnings

import numpy as np
import polars as pl
import pytest

import odice
from odice.data.dataset import UnfinishedEpisodeWarning
from odice.errors import OdiceError

LENGTHS = (3, 1, 4)


def columns(discrete=False):
    """Three episodes of 3, 1 and 4 steps, two observation numbers, every value unlike the others."""
    n = sum(LENGTHS)
    table = {
        "episode": np.repeat([5, 7, 2], LENGTHS),
        "obs_0": np.arange(n) + 0.25,
        "obs_1": -np.arange(n) * 0.5,
        "action": np.arange(n) % 3 if discrete else np.linspace(-1, 1, n),
        "reward": np.arange(n) * 0.125,
        "terminated": np.array([0, 0, 1, 0, 0, 0, 0, 1], bool),
        "truncated": np.array([0, 0, 0, 1, 0, 0, 0, 0], bool),
    }
    return table


def check(dataset, discrete=False):
    expected = columns(discrete)
    assert dataset.lengths.tolist() == list(LENGTHS)
    assert dataset.terminated.tolist() == [True, False, True]
    assert dataset.truncated.tolist() == [False, True, False]
    np.testing.assert_array_equal(
        dataset.step_observations(), np.stack([expected["obs_0"], expected["obs_1"]], 1).astype("f4")
    )
    action = expected["action"]
    np.testing.assert_array_equal(dataset.actions, action if discrete else action.astype("f4")[:, None])
    assert dataset.discrete == discrete
    np.testing.assert_array_equal(dataset.rewards, expected["reward"].astype("f4"))


def write(path, table, **options):
    frame = pl.DataFrame(table)
    frame.write_parquet(path) if path.suffix == ".parquet" else frame.write_csv(path, **options)
    return path


@pytest.mark.parametrize("discrete", [False, True])
@pytest.mark.parametrize("name", ["a.parquet", "a.csv", "a.tsv", "a.csv.gz", "semicolons.csv"])
def test_formats_agree(tmp_path, name, discrete):
    table = columns(discrete)
    if name.endswith(".gz"):
        write(tmp_path / "a.csv", table)
        (tmp_path / name).write_bytes(gzip.compress((tmp_path / "a.csv").read_bytes()))
    else:
        separator = {"a.tsv": "\t", "semicolons.csv": ";"}.get(name)
        write(tmp_path / name, table, **({"separator": separator} if separator else {}))
    check(odice.load(tmp_path / name), discrete)


def test_text_that_other_tools_write(tmp_path):
    """Python's True/False, a byte-order mark, Windows line ends, blanks, nan and inf."""
    lines = ["episode,obs_0,action,reward,terminated,truncated", "a,nan, 0.5,1,False,False", "a,inf,1e-3,2,True,False"]
    path = tmp_path / "log.csv"
    path.write_bytes(b"\xef\xbb\xbf" + "\r\n".join(lines).encode() + b"\r\n")
    dataset = odice.load(path)
    assert dataset.terminated.tolist() == [True]
    np.testing.assert_array_equal(dataset.observations[:2, 0], [np.nan, np.inf])
    np.testing.assert_allclose(dataset.actions[:, 0], [0.5, 1e-3])


def test_numbers_that_change_kind_late(tmp_path):
    """The first 10,000 rows look like whole numbers; the fraction after them must not be lost."""
    path = tmp_path / "log.csv"
    rows = ["1,0,0,false"] * 12_000 + ["1.5,0.25,0.75,true"]
    path.write_text("\n".join(["obs_0,action_0,reward,terminated", *rows]) + "\n")
    dataset = odice.load(path)
    assert (dataset.observations[-2, 0], dataset.actions[-1, 0], dataset.rewards[-1]) == (1.5, 0.25, 0.75)


def test_interleaved_episodes_are_collected(tmp_path):
    table = pl.DataFrame(columns()).with_columns(t=pl.int_range(pl.len()).over("episode"))
    shuffled = table[np.array([3, 4, 0, 5, 1, 6, 2, 7])]
    dataset = odice.load(write(tmp_path / "a.parquet", shuffled))
    # episodes in the order in which they first appear: 7, 2, 5
    assert dataset.lengths.tolist() == [1, 4, 3]
    np.testing.assert_array_equal(dataset.rewards, np.array([3, 4, 5, 6, 7, 0, 1, 2]) * np.float32(0.125))


def test_step_column_puts_rows_in_order(tmp_path):
    table = pl.DataFrame(columns()).with_columns(step=pl.int_range(pl.len()).over("episode"))
    check(odice.load(write(tmp_path / "a.csv", table[np.array([2, 1, 0, 3, 7, 5, 6, 4])])))


def test_same_step_twice_is_refused(tmp_path):
    table = pl.DataFrame(columns()).with_columns(step=pl.int_range(pl.len()).over("episode"))
    with pytest.raises(OdiceError, match="two rows have episode 5 and step 0"):
        odice.load(write(tmp_path / "a.csv", pl.concat([table, table])))


@pytest.mark.parametrize("flag", ["is_first", "is_last"])
def test_episodes_from_a_flag(tmp_path, flag):
    table = columns()
    del table["episode"]
    ends = table["terminated"] | table.pop("truncated")
    table[flag] = ends if flag == "is_last" else np.concatenate([[True], ends[:-1]])
    if flag == "is_last":  # it ended, and not by termination: truncated
        check(odice.load(write(tmp_path / "a.csv", table)))
    else:
        with pytest.warns(UnfinishedEpisodeWarning):
            check(odice.load(write(tmp_path / "a.csv", table)))


def test_last_with_truncated_means_terminated(tmp_path):
    """The old Gym log: `done` for either, and a column for the time limit."""
    table = columns()
    table["done"] = table.pop("terminated") | table["truncated"]
    del table["episode"]
    path = write(tmp_path / "a.csv", table)
    with pytest.raises(OdiceError, match="'done'"):
        odice.load(path)
    check(odice.load(path, last="done"))


def test_next_observations(tmp_path):
    table = columns()
    nexts = np.stack([table["obs_0"], table["obs_1"]], 1)
    nexts = np.concatenate([nexts[1:], nexts[-1:]])
    nexts[[2, 3, 7]] = [[100, 101], [102, 103], [104, 105]]
    table |= {"next_obs_0": nexts[:, 0], "next_obs_1": nexts[:, 1]}
    dataset = odice.load(write(tmp_path / "a.csv", table))
    check(dataset)
    assert dataset.final_known.all()
    finals = [episode.observations[-1].tolist() for episode in dataset]
    assert finals == [[100, 101], [102, 103], [104, 105]]
    assert "next_mismatch" not in dataset.meta.evidence
    table["next_obs_0"][5] += 1
    assert odice.load(write(tmp_path / "b.csv", table)).meta.evidence["next_mismatch"]["first_row"] == 5


def test_next_observations_with_gaps(tmp_path):
    table = pl.DataFrame(columns()).with_columns(
        next_obs_0=pl.Series([None, None, 9.0, None, None, None, None, 8.0]),
        next_obs_1=pl.Series([None, None, 7.0, None, None, None, None, 6.0]),
    )
    dataset = odice.load(write(tmp_path / "a.parquet", table))
    assert dataset.final_known.tolist() == [True, False, True]
    assert dataset[0].observations[-1].tolist() == [9, 7]
    partly = table.with_columns(next_obs_1=pl.Series([None, None, None, None, None, None, None, 6.0]))
    with pytest.raises(OdiceError, match="some but not all"):
        odice.load(write(tmp_path / "b.parquet", partly))


def test_lists_in_cells(tmp_path):
    """The layout of LeRobot's Parquet files: one list per cell."""
    table = columns()
    frame = pl.DataFrame(
        {
            "observation.state": np.stack([table["obs_0"], table["obs_1"]], 1).tolist(),
            "action": table["action"][:, None].tolist(),
            "next.reward": table["reward"],
            "episode_index": table["episode"],
            "frame_index": np.arange(8),
            "terminated": table["terminated"],
            "truncated": table["truncated"],
            "next.observation.state": [None, None, [9.0, 7.0], None, None, None, None, [8.0, 6.0]],
        }
    )
    for name, kind in (("list", pl.List(pl.Float64)), ("array", pl.Array(pl.Float32, 2))):
        dataset = odice.load(write(tmp_path / f"{name}.parquet", frame.cast({"observation.state": kind})))
        check(dataset)
        assert dataset[2].observations[-1].tolist() == [8, 6]
        assert dataset.final_known.tolist() == [True, False, True]


def test_schema_file_and_flags(tmp_path):
    names = {
        "obs_0": "height",
        "obs_1": "speed",
        "action": "thrust",
        "reward": "score",
        "terminated": "crashed",
        "episode": "flight",
    }
    path = write(tmp_path / "log.parquet", {names.get(k, k): v for k, v in columns().items()})
    roles = {
        "observation": ["height", "speed"],
        "action": "thrust",
        "reward": "score",
        "terminated": "crashed",
        "episode": "flight",
    }
    (tmp_path / "schema.json").write_text(
        json.dumps(roles | {"action_low": -1, "action_high": [1], "env_id": "Rocket-v0"})
    )
    dataset = odice.load(path, schema=tmp_path / "schema.json")
    check(dataset)
    assert (dataset.meta.action_low, dataset.meta.action_high, dataset.meta.env_id) == ((-1.0,), (1.0,), "Rocket-v0")
    check(odice.load(path, **roles))
    check(odice.load(path, schema=roles | {"reward": "height"}, reward="score"))


def test_discrete_is_a_choice(tmp_path):
    path = write(tmp_path / "a.csv", columns(discrete=True))
    assert odice.load(path, n_actions=5).spec == (2, 5, True)
    continuous = odice.load(path, discrete=False)
    assert not continuous.discrete
    np.testing.assert_array_equal(continuous.actions[:, 0], np.arange(8) % 3)


# --- folders ----------------------------------------------------------------------------------------------------


def test_shards_in_natural_order(tmp_path):
    table = pl.DataFrame(columns())
    for name, rows in (("part-2.parquet", slice(0, 3)), ("part-10.parquet", slice(3, 8))):
        write(tmp_path / name, table[rows])
    (tmp_path / "_SUCCESS").touch()
    check(odice.load(tmp_path))


def test_an_episode_may_span_shards(tmp_path):
    table = pl.DataFrame(columns())
    for i, rows in enumerate((slice(0, 2), slice(2, 5), slice(5, 8))):
        write(tmp_path / f"{i}.csv", table[rows])
    check(odice.load(tmp_path))


@pytest.mark.parametrize("ids", [[0, 0, 0], [0, 0, 1]])
def test_shards_that_number_episodes_from_zero(tmp_path, ids):
    """The same number in two shards is another episode if the first has ended."""
    table = pl.DataFrame(columns()).with_columns(episode=pl.Series(np.repeat(ids, LENGTHS)))
    cuts = (slice(0, 3), slice(3, 4), slice(4, 8)) if ids[2] == 0 else (slice(0, 3), slice(3, 8))
    for i, rows in enumerate(cuts):
        write(tmp_path / f"{i}.parquet", table[rows])
    dataset = odice.load(tmp_path)
    check(dataset)
    assert "flags_inside_episode" not in dataset.meta.evidence


def test_shards_must_be_alike(tmp_path):
    table = pl.DataFrame(columns())
    write(tmp_path / "0.csv", table)
    write(tmp_path / "1.csv", table.drop("obs_1"))
    with pytest.raises(OdiceError, match=r"1\.csv: lacks column 'obs_1'"):
        odice.load(tmp_path)


# --- bad input --------------------------------------------------------------------------------------------------

HEAD = "obs_0,obs_1,action,reward,terminated\n"


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        (HEAD + "1,2,0.1,3,0\n1,2,0.1,3\n", ["'terminated'", "data row 2", "short row"]),
        (HEAD + "1,2,0.1,3,0\n1,2,0.1,3,0,9\n", ["more values than the header"]),
        (HEAD + "1,2,0.1,3,0\n1,,0.1,3,0\n", ["'obs_1'", "1 empty cells", "data row 2"]),
        (HEAD + "1,2,0.1,3,0\n1,abc,0.1,3,0\n", ["'obs_1'", "'abc'", "data row 2", "not a number"]),
        (HEAD + "1,2,0.1,3,0\n1,2,0.1,3,maybe\n", ["'terminated'", "'maybe'", "data row 2"]),
        (HEAD + "1,2,0.1,3,2\n", ["'terminated'", "'2'", "0/1"]),
        (HEAD, ["no rows"]),
        ("", ["empty"]),
        ("\n\n1,2\n", ["first line is empty"]),
        ("obs_0,obs_0,action,reward,terminated\n1,2,3,4,0\n", ["two columns are called 'obs_0'"]),
        ("obs_0,action,terminated\n1,2,0\n", ["no reward"]),
        (HEAD + "1,2,99999999999999999999999,3,0\n", ["'action'", "64 bits"]),
        (HEAD + "1,2,9007199254740993,3,1\n", ["'actions'", "9007199254740993"]),
        (HEAD + "1,2,-1,3,1\n", ["'actions'", "-1", "continuous"]),
        ("\x00\x01\x02garbage", ["not UTF-8 text"]),
    ],
)
def test_bad_csv(tmp_path, text, parts):
    path = tmp_path / "log.csv"
    path.write_text(text)
    with pytest.raises(OdiceError) as error:
        odice.load(path)
    message = str(error.value)
    assert all(part in message for part in ["log.csv", *parts]), message
    assert "\n" not in message


@pytest.mark.parametrize(
    ("change", "parts"),
    [
        ({"obs_0": [[1.0], [2.0, 3.0], [1.0]]}, ["'obs_0'", "ragged", "data row 1", "1 values"]),
        ({"obs_0": [[1.0], [None], [1.0]]}, ["'obs_0'", "inside its lists"]),
        ({"obs_0": [["a"], ["b"], ["c"]]}, ["'obs_0'", "lists of"]),
        ({"obs_0": [b"1", b"2", b"3"]}, ["'obs_0'", "Binary"]),
        ({"obs_0": [{"a": 1}, {"a": 2}, {"a": 3}]}, ["'obs_0'", "Struct"]),
        ({"terminated": [0.5, 0.0, 1.0]}, ["'terminated'", "0.5"]),
        ({"terminated": [float("nan"), 0.0, 1.0]}, ["'terminated'", "nan"]),
        ({"episode": [1, None, 2]}, ["'episode'", "data row 2"]),
        ({"episode": [[1], [2], [3]]}, ["'episode'", "one value per row"]),
    ],
)
def test_bad_parquet(tmp_path, change, parts):
    table = {"obs_0": [1.0, 2.0, 3.0], "action": [0.1, 0.2, 0.3], "reward": [0.0, 0.0, 1.0], "terminated": [0, 0, 1]}
    path = write(tmp_path / "log.parquet", table | change)
    with pytest.raises(OdiceError) as error:
        odice.load(path)
    assert all(part in str(error.value) for part in ["log.parquet", *parts]), str(error.value)


@pytest.mark.parametrize("name", ["log.parquet", "log.csv.gz"])
def test_truncated_files(tmp_path, name):
    write(tmp_path / "a.csv", columns())
    write(tmp_path / "log.parquet", columns())
    (tmp_path / "log.csv.gz").write_bytes(gzip.compress((tmp_path / "a.csv").read_bytes()))
    data = (tmp_path / name).read_bytes()
    for keep in (1, 10, len(data) // 2, len(data) - 1):
        (tmp_path / name).write_bytes(data[:keep])
        with pytest.raises(OdiceError, match=name):
            odice.load(tmp_path / name)


def test_no_backtrace_is_printed(tmp_path, capfd):
    """polars panics on some damaged files and prints where; a person must read one sentence only."""
    write(tmp_path / "log.parquet", columns())
    data = bytearray((tmp_path / "log.parquet").read_bytes())
    refused = 0
    for at in range(4, len(data) - 8, 7):
        broken = data.copy()
        broken[at] ^= 0x5A
        (tmp_path / "log.parquet").write_bytes(broken)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                odice.load(tmp_path / "log.parquet")
        except OdiceError:
            refused += 1
    assert refused > 20
    assert capfd.readouterr().err == ""


def test_gzip_bomb_is_refused(tmp_path, monkeypatch):
    path = tmp_path / "log.csv.gz"
    path.write_bytes(gzip.compress(HEAD.encode() + b"1,2,0.1,3,0\n" * 4_000_000))
    monkeypatch.setattr("os.sysconf", lambda name: {"SC_PAGE_SIZE": 4096, "SC_PHYS_PAGES": 10_000}[name])
    with pytest.raises(OdiceError, match="unpacks to more than"):
        odice.load(path)


def test_bounds_must_fit(tmp_path):
    path = write(tmp_path / "a.csv", columns())
    with pytest.raises(OdiceError, match="`action_low` has 2 numbers for 1 action columns"):
        odice.load(path, action_low=[-1, -1])


def test_unknown_option(tmp_path):
    with pytest.raises(OdiceError, match="Did you mean 'reward'"):
        odice.load(write(tmp_path / "a.csv", columns()), rewards="reward")


def test_damaged_metadata(tmp_path):
    path = tmp_path / "a.parquet"
    pl.DataFrame(columns()).write_parquet(path, metadata={"odice": "{"})
    with pytest.raises(OdiceError, match="metadata 'odice' is damaged"):
        odice.load(path)


@pytest.mark.parametrize("discrete", [False, True])
def test_saved_parquet_comes_back_identical(tmp_path, discrete):
    dataset = odice.load(write(tmp_path / "a.csv", columns(discrete)), ref_min=0.0, ref_max=2.0)
    from odice.data.writers import save

    save(dataset, tmp_path / "b.parquet")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        again = odice.load(tmp_path / "b.parquet")
    assert again.fingerprint == dataset.fingerprint
    assert (again.meta.ref_max, again.meta.source) == (2.0, str(tmp_path / "b.parquet"))
