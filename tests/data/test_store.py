import errno
import json
import os
from dataclasses import replace

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import odice
from odice.data.build import from_steps
from odice.data.join import concatenate
from odice.data.meta import Meta
from odice.data.preprocess import Fitted
from odice.data.store import Streamed, make_store, stored, write_store
from odice.data.store.records import Records
from odice.data.to_go import standardized_returns
from odice.data.transitions import to_transitions
from odice.errors import OdiceError
from tests.data.strategies import datasets


def make(seed=0, n=50):
    rng = np.random.default_rng(seed)
    flags = {"terminated": np.arange(n) % 7 == 6, "truncated": (np.arange(n) % 10 == 9) | (np.arange(n) == n - 1)}
    return from_steps(rng.normal(size=(n, 3)), rng.normal(size=(n, 2)), rng.normal(size=n), **flags)


def same(one, two):
    return all(np.array_equal(a, b) for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(two), strict=True))


@given(data=datasets(), convention=st.sampled_from(["qlearning", "bootstrap"]), seed=st.integers(0, 9))
@settings(max_examples=30)
def test_gathered_rows_are_the_rows_of_the_transitions(tmp_path_factory, data, convention, seed):
    try:
        in_memory = to_transitions(data, convention, {"return_to_go": standardized_returns(data, 0.9)})
    except OdiceError:
        return
    store = write_store(data, tmp_path_factory.mktemp("store") / "s")
    streamed = Streamed(store, convention, columns={"return_to_go": standardized_returns(data, 0.9)})
    assert streamed.size == in_memory.size
    rows = np.random.default_rng(seed).integers(0, streamed.size, (3, 5), dtype=np.int32)
    for name in ("obs", "action", "reward", "next_obs", "terminated"):
        result, expected = getattr(streamed.gather(rows), name), getattr(in_memory.batch(rows), name)
        assert result.dtype == expected.dtype
        assert result.tobytes() == np.ascontiguousarray(expected).tobytes()
        assert result.shape[:2] == (3, 5)
    (result,), (expected,) = (batch.columns.values() for batch in (streamed.gather(rows), in_memory.batch(rows)))
    assert result.dtype == expected.dtype
    np.testing.assert_array_equal(result, expected)


def test_gathering_in_pieces_does_not_change_the_result(tmp_path, monkeypatch):
    store = write_store(make(), tmp_path / "s")
    rows = np.random.default_rng(1).integers(0, Streamed(store).size, 100)
    whole = Streamed(store).gather(rows)
    monkeypatch.setattr("odice.data.store.records.CHUNK", 7)
    assert same(Streamed(store).gather(rows), whole)


def test_fitted_numbers_are_applied_as_rows_are_gathered(tmp_path):
    data = make()
    fitted = Fitted(2.0, 1.0, (), (1.0, 2.0, 3.0), (4.0, 5.0, 6.0), (-2.0, -2.0), (2.0, 2.0), 0.5)
    streamed = Streamed(write_store(data, tmp_path / "s"), fitted=fitted)
    rows = np.arange(streamed.size)
    expected = to_transitions(fitted.apply(data)).batch(rows)
    assert same(streamed.gather(rows), expected)


def test_costs_and_propensities_are_kept(tmp_path):
    data = make()
    numbers = np.linspace(0.1, 1.0, data.n_steps, dtype=np.float32)
    data = replace(data, costs=numbers, propensities=numbers[::-1].copy())
    store = write_store(data, tmp_path / "s")
    assert store.fingerprint == data.fingerprint
    half = write_store([data, replace(data, costs=None)], tmp_path / "half")
    assert half.costs is None  # where one part has none, none are known
    np.testing.assert_array_equal(half.propensities, np.tile(data.propensities, 2))


def test_shards_are_written_one_after_the_other(tmp_path):
    parts = [make(seed) for seed in range(3)]
    store = write_store(iter(parts), tmp_path / "s")
    assert store.fingerprint == concatenate(parts).fingerprint
    assert isinstance(store.observations, np.memmap)
    assert sorted(item.name for item in (tmp_path / "s").iterdir()) == [
        "actions.npy", "final_known.npy", "lengths.npy", "records.npy", "rewards.npy", "store.json", "terminated.npy",
        "truncated.npy",
    ]  # fmt: skip
    with pytest.raises(OdiceError, match="Shards differ"):
        write_store([parts[0], from_steps(np.zeros((1, 9)), np.zeros((1, 2)), [0.0], terminated=[1])], tmp_path / "t")
    with pytest.raises(OdiceError, match="0 shards"):
        write_store([], tmp_path / "t")
    assert [item.name for item in tmp_path.iterdir()] == ["s"]


def test_any_source_becomes_a_store(tmp_path):
    data = make()
    data.save(tmp_path / "a.hdf5")
    data.save(tmp_path / "a.parquet")
    arrays = {"obs": np.zeros((2, 1)), "actions": np.zeros((2, 1)), "rewards": np.zeros(2), "terminals": [0, 1]}
    for number, source in enumerate((data, tmp_path / "a.hdf5", tmp_path / "a.parquet", list(data))):
        assert make_store(source, tmp_path / f"s{number}").fingerprint == data.fingerprint
    assert make_store(arrays, tmp_path / "d").n_steps == 2
    with pytest.raises(OdiceError, match="exists already"):
        make_store(data, tmp_path / "d")


def test_a_folder_of_shards_is_written_shard_by_shard(tmp_path):
    (tmp_path / "shards").mkdir()
    for i in range(3):
        make(i).save(tmp_path / "shards" / f"{i}.hdf5")
    store = make_store(tmp_path / "shards", tmp_path / "s")
    assert store.fingerprint == odice.load(tmp_path / "shards").fingerprint


def test_a_store_keeps_the_schema_for_the_policy_that_is_trained_from_it(tmp_path):
    (tmp_path / "log.csv").write_text("age,did,got\n" + "".join(f"{i % 7},{'ab'[i % 2]},{i % 3}\n" for i in range(40)))
    data = odice.load(tmp_path / "log.csv", observation="age", action="did", reward="got", one_step=True)
    place = tmp_path / "log.store"
    assert write_store(data, place).meta.schema == data.meta.schema is not None
    header = json.loads((place / "store.json").read_text())
    for wrong, words in (({"nothing": 1}, "entry"), ([1], "schema"), ({"reward": 5}, "reward")):
        (place / "store.json").write_text(json.dumps({**header, "schema": wrong}))
        with pytest.raises(OdiceError, match=words):
            odice.load(place)


def test_metadata_are_kept(tmp_path):
    data = make()
    meta = Meta("x", "Hopper-v5", (-1.0, -1.0), (1.0, 1.0), ref_min=0.0, ref_max=2.0)
    data = type(data)(
        data.observations,
        data.actions,
        data.rewards,
        data.lengths,
        data.terminated,
        data.truncated,
        data.final_known,
        meta,
    )
    assert write_store(data, tmp_path / "s").meta == meta


@pytest.mark.parametrize("damage", ["header", "format", "missing", "short", "fields"])
def test_a_damaged_store_is_refused(tmp_path, damage):
    write_store(make(), tmp_path / "s")
    folder = tmp_path / "s"
    if damage == "header":
        (folder / "store.json").write_text("{")
    elif damage == "format":
        (folder / "store.json").write_text(json.dumps({"format": "other", "meta": {}}))
    elif damage == "missing":
        (folder / "rewards.npy").unlink()
    elif damage == "fields":
        np.save(folder / "records.npy", np.zeros(len(odice.load(folder).observations), [("observation", "<f4", (3,))]))
    else:
        raw = (folder / "records.npy").read_bytes()
        (folder / "records.npy").write_bytes(raw[: len(raw) // 2])
    with pytest.raises(OdiceError, match="not a complete store"):
        odice.load(folder)


def test_a_store_of_another_layout_is_refused(tmp_path):
    write_store(make(), tmp_path / "s")
    header = tmp_path / "s" / "store.json"
    header.write_text(header.read_text().replace("odice-store-2", "odice-store-1"))
    with pytest.raises(OdiceError, match=r"not a complete store .*delete it and make it again"):
        odice.load(tmp_path / "s")


def test_what_is_not_cached_is_read_after_the_rest(tmp_path, monkeypatch):
    """A read that must not wait may fail, or bring only a part: both are repeated, and everything else is read once."""
    store = write_store(make(), tmp_path / "s")
    rows, calls, read = np.arange(12), [], os.preadv
    expected = Streamed(store).gather(rows)

    def reluctant(file, slots, offset, flags=0):
        calls.append((offset, flags))
        if flags and len(calls) % 3 == 1:
            raise BlockingIOError
        if flags and len(calls) % 3 == 2:
            return read(file, [slots[0][:8]], offset)
        return read(file, slots, offset)

    monkeypatch.setattr("odice.data.store.records.NOWAIT", 8)
    monkeypatch.setattr("odice.data.store.records.os.preadv", reluctant)
    assert same(Streamed(store).gather(rows), expected)
    assert [flags for _, flags in calls] == [8] * 12 + [0] * 8
    assert sorted(offset for offset, flags in calls if not flags) == [
        offset for number, (offset, _) in enumerate(calls[:12]) if number % 3 < 2
    ]


def test_a_file_system_that_can_only_wait_is_tried_once(tmp_path, monkeypatch):
    store, rows, flagged, read = write_store(make(), tmp_path / "s"), np.arange(12), [], os.preadv
    expected = Streamed(store).gather(rows)

    def waiting(file, slots, offset, flags=0):
        flagged.append(flags)
        if flags:
            raise OSError(errno.EOPNOTSUPP, "not supported")
        return read(file, slots, offset)

    monkeypatch.setattr("odice.data.store.records.NOWAIT", 8)
    monkeypatch.setattr("odice.data.store.records.os.preadv", waiting)
    assert same(Streamed(store).gather(rows), expected)
    assert flagged == [8] + [0] * 12

    def broken(*_):
        raise OSError(errno.EIO, "broken disk")

    monkeypatch.setattr("odice.data.store.records.os.preadv", broken)
    with pytest.raises(OSError, match="broken disk"):
        Streamed(store).gather(rows)


def test_a_system_without_scattered_reads_and_advice_gives_the_same(tmp_path, monkeypatch):
    store = write_store(data := make(), tmp_path / "s")
    rows = np.arange(Streamed(store).size)
    expected = Streamed(store).gather(rows)
    monkeypatch.delattr("odice.data.store.records.os.preadv", raising=False)
    monkeypatch.delattr("odice.data.store.records.os.posix_fadvise", raising=False)
    monkeypatch.setattr("odice.data.store.records.NOWAIT", 0)
    monkeypatch.delattr("odice.data.rows.mmap.MADV_DONTNEED", raising=False)
    assert same(Streamed(store).gather(rows), expected)
    assert odice.load(tmp_path / "s").fingerprint == data.fingerprint
    os.truncate(tmp_path / "s" / "records.npy", 1000)
    with pytest.raises(OSError, match="shorter than it was"):
        Streamed(store).gather(rows)


def test_a_store_that_shrinks_while_it_is_read_is_an_error(tmp_path):
    streamed = Streamed(write_store(make(), tmp_path / "s"))
    os.truncate(tmp_path / "s" / "records.npy", 1000)
    with pytest.raises(OSError, match="shorter than it was"):
        streamed.gather(np.arange(streamed.size))


def test_records_are_used_only_for_the_data_they_hold(tmp_path):
    store = write_store(data := make(), tmp_path / "s")
    other = write_store(make(1), tmp_path / "t")
    assert Records.of(store) is not None
    assert Records.of(store.first(20)) is not None
    others = [
        data,
        store.select([1, 0]),
        replace(store, rewards=store.rewards * 2),
        replace(store, actions=other.actions),
    ]
    assert [Records.of(each) for each in others] == [None] * 4
    for each in (*others, store.first(20)):
        rows = np.arange(Streamed(each).size)[::-1]
        assert same(Streamed(each).gather(rows), to_transitions(each).batch(rows))


def test_a_file_is_copied_once_and_again_when_it_changes(tmp_path):
    path = tmp_path / "a.hdf5"
    make(0).save(path)
    first = stored(path)
    assert first.fingerprint == make(0).fingerprint
    header = tmp_path / "a.hdf5.store" / "store.json"
    before = header.stat().st_mtime_ns
    assert stored(str(path)).fingerprint == first.fingerprint
    assert header.stat().st_mtime_ns == before
    assert stored(tmp_path / "a.hdf5.store").fingerprint == first.fingerprint
    make(1).save(path)
    with pytest.raises(OdiceError, match="another or an older source"):
        stored(path)
    assert stored(path, tmp_path / "new").fingerprint == make(1).fingerprint
    with pytest.raises(OdiceError, match="another or an older source"):
        stored(path, tmp_path / "new", n_actions=3)


def test_what_is_not_a_file_needs_a_folder(tmp_path):
    with pytest.raises(OdiceError, match="name a folder"):
        stored(list(make()))
    assert stored(data := make()) is data
    assert stored(list(make()), tmp_path / "s").fingerprint == make().fingerprint


def test_a_minari_id_is_streamed_from_a_copy_next_to_it(tmp_path, monkeypatch):
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path))
    make().save("robot/mine-v0", "minari")
    assert stored("robot/mine-v0").fingerprint == make().fingerprint
    assert (tmp_path / "robot" / "mine-v0.store" / "store.json").exists()
    assert isinstance(stored("robot/mine-v0").observations, np.memmap)
