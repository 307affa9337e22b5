"""Checkpoints: whole, atomic, checked, and few."""

import resource

import numpy as np
import pytest

from odice.errors import OdiceError
from odice.training.checkpoint import Checkpoints, CheckpointWarning, digest

# When one array of a checkpoint fails, tensorstore's threads finish the others after orbax has closed their event loop.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")


def tree(seed=0):
    rng = np.random.default_rng(seed)
    return {
        "w": rng.normal(size=(40, 30)).astype(np.float32),
        "opt": [np.int32(seed), rng.normal(size=7).astype(np.float32)],
    }


def like(facts):
    return tree()


@pytest.fixture
def checkpoints(tmp_path):
    result = Checkpoints(tmp_path / "checkpoints", keep=2)
    yield result
    result.close()


def test_what_is_saved_comes_back_bit_for_bit(checkpoints):
    assert checkpoints.restore(like) is None
    checkpoints.save(10, tree(1), {"sums": {"loss": 0.1 + 0.2}, "pending": None})
    checkpoints.save(20, tree(2), {"sums": {}, "pending": 15})
    restored = checkpoints.restore(like)
    assert restored is not None
    assert (restored.step, restored.facts) == (20, {"sums": {}, "pending": 15})
    np.testing.assert_array_equal(restored.arrays["w"], tree(2)["w"])
    assert restored.arrays["opt"][0] == 2
    older = checkpoints.restore(like, at_most=19)
    assert older is not None
    assert older.facts["sums"]["loss"] == 0.1 + 0.2


def test_the_last_ones_and_the_best_are_kept(checkpoints):
    for step in (1, 2, 3, 4, 5):
        checkpoints.save(step, tree(step), {})
        checkpoints.prune(best=2)
    assert checkpoints.steps == [2, 4, 5]


def flip_a_byte(folder):
    largest = max((p for p in folder.rglob("*") if p.is_file()), key=lambda p: p.stat().st_size)
    content = bytearray(largest.read_bytes())
    content[len(content) // 2] ^= 0xFF
    largest.write_bytes(content)


def cut_short(folder):
    for path in folder.rglob("*"):
        if path.is_file():
            path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def remove_the_index(folder):
    (folder / "state" / "manifest.ocdbt").unlink()


@pytest.mark.parametrize("damage", [flip_a_byte, cut_short, remove_the_index])
def test_a_damaged_newest_falls_back_with_a_warning(tmp_path, checkpoints, damage):
    for step in (10, 20):
        checkpoints.save(step, tree(step), {})
    damage(tmp_path / "checkpoints" / "20")
    with pytest.warns(CheckpointWarning, match="20: this checkpoint cannot be used"):
        restored = checkpoints.restore(like)
    assert restored is not None
    assert restored.step == 10
    assert checkpoints.steps == [10]
    assert (tmp_path / "damaged" / "20").is_dir()
    checkpoints.save(20, tree(20), {})
    assert checkpoints.steps == [10, 20]


def test_if_none_can_be_read_nothing_is_thrown_away(tmp_path, checkpoints):
    checkpoints.save(10, tree(), {})
    flip_a_byte(tmp_path / "checkpoints" / "10")
    with pytest.raises(OdiceError, match="none of its 1 checkpoints"):
        checkpoints.restore(like)
    assert (tmp_path / "checkpoints" / "10").is_dir()


def test_another_shape_is_not_restored(checkpoints):
    checkpoints.save(10, tree(), {})
    with pytest.raises(OdiceError, match="none of its 1 checkpoints"):
        checkpoints.restore(lambda facts: {**tree(), "w": np.zeros((3, 3), np.float32)})


def test_a_full_disk_leaves_the_one_before(tmp_path, checkpoints):
    checkpoints.save(10, tree(1), {})
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, hard))  # writes beyond 1000 bytes fail, as on a full disk
    try:
        with pytest.raises(OdiceError, match=r"step 20 could not be written \(.*the one at step 10 is intact"):
            checkpoints.save(20, tree(2), {})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert [p.name for p in (tmp_path / "checkpoints").iterdir()] == ["10"]
    restored = checkpoints.restore(like)
    assert restored is not None
    assert restored.step == 10


def test_what_a_killed_save_left_is_removed_on_the_next_start(tmp_path, checkpoints):
    for step in (10, 20):
        checkpoints.save(step, tree(), {})
    (tmp_path / "checkpoints" / "20").rename(tmp_path / "checkpoints" / "20.orbax-checkpoint-tmp")
    again = Checkpoints(tmp_path / "checkpoints")
    assert [p.name for p in (tmp_path / "checkpoints").iterdir()] == ["10"]
    assert again.steps == [10]
    again.close()


def test_the_digest_sees_values_types_shapes_and_names():
    base = {"a": np.zeros(4, np.float32)}
    others = [{"a": np.full(4, -0.0, np.float32)}, {"a": np.zeros(4, np.int32)}, {"a": np.zeros((2, 2), np.float32)}]
    others.append({"b": np.zeros(4, np.float32)})
    assert digest(base) == digest({"a": np.zeros(4, np.float32)})
    assert len({digest(each) for each in [base, *others]}) == 5
