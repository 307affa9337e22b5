"""What `odice.load` takes; what it refuses is in test_bad_files, Minari's folders are in test_load_minari."""

import h5py
import numpy as np
import pytest

import odice
from odice.d4rl import REFERENCES, file_names
from odice.data.build import from_steps
from odice.data.load import READERS, SUFFIXES, register_reader
from odice.data.meta import Meta
from odice.data.readers.d4rl import MissingTimeoutsWarning
from odice.data.store import stored
from odice.data.transitions import to_transitions
from odice.errors import OdiceError

N = 12
ARRAYS = {
    "observations": np.arange(N * 2, dtype=np.float64).reshape(N, 2),
    "actions": np.linspace(-1, 1, N)[:, None],
    "rewards": np.arange(N, dtype=np.float64),
    "terminals": np.arange(N) == 3,
    "timeouts": np.arange(N) % 8 == 7,
}
ARRAYS["timeouts"][-1] = True


@pytest.fixture(autouse=True)
def nowhere(tmp_path, monkeypatch):
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path / "minari"))
    monkeypatch.delenv("ODICE_DATA", raising=False)


def hdf5(path, arrays=ARRAYS, **attributes):
    with h5py.File(path, "w") as file:
        for name, value in arrays.items():
            file.create_dataset(name, data=value)
        file.attrs.update(attributes)
    return path


# --- what works ------------------------------------------------------------------------------------------------------


def test_the_same_arrays_from_everywhere_are_the_same_data_set(tmp_path):
    expected = odice.load(ARRAYS)
    assert expected.lengths.tolist() == [4, 4, 4]
    assert expected.terminated.tolist() == [True, False, False]
    np.savez(tmp_path / "a.npz", **ARRAYS)
    np.savez_compressed(tmp_path / "b.npz", **ARRAYS)
    sources = [hdf5(tmp_path / "a.hdf5"), tmp_path / "a.npz", str(tmp_path / "b.npz"), list(expected), expected]
    assert {odice.load(source).fingerprint for source in sources} == {expected.fingerprint}


def test_infos_and_other_arrays_are_left_alone(tmp_path):
    path = hdf5(
        tmp_path / "a.hdf5", {**ARRAYS, "infos/qpos": np.zeros((3, 1)), "metadata/x": np.zeros(1)}, env="Hopper-v5"
    )
    data = odice.load(path)
    assert data.meta.env_id == "Hopper-v5"
    assert data.meta.source == str(path)


def test_a_legacy_name_is_looked_up_and_brings_its_reference(tmp_path, monkeypatch):
    arrays = {**ARRAYS, "observations": np.zeros((N, 11)), "actions": np.zeros((N, 3))}
    hdf5(tmp_path / "hopper_medium-v2.hdf5", arrays)
    data = odice.load("hopper-medium-v2", data_dir=tmp_path)
    assert (data.meta.ref_min, data.meta.ref_max) == REFERENCES["hopper-medium-v2"]
    monkeypatch.setenv("ODICE_DATA", str(tmp_path))
    assert odice.load("hopper-medium-v2").fingerprint == data.fingerprint


def test_a_legacy_name_is_never_served_by_other_data(tmp_path):
    hdf5(tmp_path / "hopper-medium.hdf5")
    hdf5(tmp_path / "hopper-medium-replay-v2.hdf5")
    with pytest.raises(OdiceError, match=rf"looked in {tmp_path} for hopper-medium-v2.hdf5 or hopper_medium-v2.hdf5"):
        odice.load("hopper-medium-v2", data_dir=tmp_path)
    with pytest.raises(OdiceError, match=r"dimensions \(2, 1\) but hopper-medium-replay-v2 has \(11, 3\)"):
        odice.load("hopper-medium-replay-v2", data_dir=tmp_path)
    with pytest.raises(OdiceError, match="set ODICE_DATA"):
        odice.load("hopper-medium-v2")


def test_every_legacy_name_has_a_file_name():
    names = {name: file_names(name) for name in REFERENCES}
    assert names["antmaze-large-play-v2"][1] == (
        "Ant_maze_hardest-maze_noisy_multistart_True_multigoal_False_sparse_fixed.hdf5"
    )
    assert names["walker2d-medium-expert-v2"] == ("walker2d-medium-expert-v2.hdf5", "walker2d_medium_expert-v2.hdf5")
    assert len({name for pair in names.values() for name in pair}) == sum(map(len, names.values()))


def test_without_timeouts_a_step_counter_cuts_episodes(tmp_path):
    arrays = {k: v for k, v in ARRAYS.items() if k != "timeouts"}
    data = odice.load(hdf5(tmp_path / "a.hdf5", arrays), max_episode_steps=4)
    assert data.lengths.tolist() == [4, 4, 4]
    assert data.truncated.tolist() == [True, True, True]  # the terminal at row 3 is also the fourth step
    assert odice.load(hdf5(tmp_path / "b.hdf5", arrays, max_episode_steps=4)).fingerprint == data.fingerprint
    assert to_transitions(data).reward.tolist() == [0, 1, 2, 4, 5, 6, 8, 9, 10]


@pytest.mark.filterwarnings("ignore::odice.data.dataset.UnfinishedEpisodeWarning")
def test_without_timeouts_and_counter_jumps_or_a_warning(tmp_path):
    arrays = {k: v for k, v in ARRAYS.items() if k != "timeouts"}
    with pytest.warns(MissingTimeoutsWarning, match="max_episode_steps"):
        assert odice.load(hdf5(tmp_path / "a.hdf5", arrays)).lengths.tolist() == [4, 8]
    after = arrays["observations"] + 2
    after[5] += 1
    data = odice.load(hdf5(tmp_path / "b.hdf5", {**arrays, "next_observations": after}))
    assert data.lengths.tolist() == [4, 2, 6]


def test_a_folder_of_shards_is_one_data_set(tmp_path):
    for i in range(3):
        hdf5(tmp_path / f"{i}.hdf5", {**ARRAYS, "rewards": ARRAYS["rewards"] + 100 * i})
    data = odice.load(tmp_path)
    assert data.n_steps == 3 * N
    assert data.rewards[N : 2 * N].tolist() == [100.0 + i for i in range(N)]


def test_keys_say_which_array_is_which():
    arrays = {**{k: v for k, v in ARRAYS.items() if k not in ("terminals", "timeouts")}, "dones": ARRAYS["timeouts"]}
    with pytest.raises(OdiceError, match="'dones' does not say why"):
        odice.load(arrays)
    assert odice.load(arrays, keys={"truncated": "dones"}).truncated.all()
    assert odice.load(arrays, keys={"terminated": "dones"}).terminated.all()
    with pytest.raises(OdiceError, match="no array 'x'"):
        odice.load(arrays, keys={"terminated": "x"})
    with pytest.raises(OdiceError, match="Did you mean 'terminated'"):
        odice.load(arrays, keys={"terminate": "dones"})


# --- readers of your own ---------------------------------------------------------------------------------------------


@pytest.fixture
def readers(monkeypatch):
    """The registries, as they were after the test."""
    monkeypatch.setattr("odice.data.load.READERS", dict(READERS))
    monkeypatch.setattr("odice.data.load.SUFFIXES", dict(SUFFIXES))


def read_lines(source, *, gain=1.0):
    """One reward per line; position and push are the line's number."""
    rewards = [gain * float(line) for line in source.read_text().split()]
    rows = np.arange(len(rewards), dtype=float)[:, None]
    return from_steps(rows, rows, rewards, truncated=rows[:, 0] == len(rewards) - 1, meta=Meta(source=str(source)))


def test_a_reader_of_your_own(readers, tmp_path):
    path = tmp_path / "a.lines"
    path.write_text("1\n2\n3\n")
    with pytest.raises(OdiceError, match=r"unknown kind of file '\.lines'"):
        odice.load(path)
    register_reader("lines", read_lines, [".LINES", ".lines.txt"])
    assert odice.load(path).rewards.tolist() == [1, 2, 3]
    assert odice.load(str(path), gain=2.0).rewards.tolist() == [2, 4, 6]
    with pytest.raises(OdiceError, match=r"Unknown option of the lines reader 'gian'\. Did you mean 'gain'"):
        odice.load(path, gian=2.0)
    (tmp_path / "b.lines.txt").write_text("4")
    assert odice.load(tmp_path).rewards.tolist() == [1, 2, 3, 4]  # a folder of such files
    store = stored(path, tmp_path / "store")
    assert store.fingerprint == odice.load(path).fingerprint
    assert odice.load(tmp_path / "store").fingerprint == store.fingerprint


def test_a_reader_of_your_own_is_handed_names_and_objects_if_the_format_says_so(readers):
    seen = []

    def remember(source, **options):
        seen.append((source, options))
        return odice.load(ARRAYS)

    register_reader("remembered", remember)
    thing = object()
    for source in ("db://robot/7", thing):
        assert odice.load(source, format="remembered", table="runs").n_steps == len(ARRAYS["rewards"])
    assert seen == [("db://robot/7", {"table": "runs"}), (thing, {"table": "runs"})]
    assert odice.load(ARRAYS, format="table").n_steps == len(ARRAYS["rewards"])  # what a dict is, is plain


@pytest.mark.parametrize(
    ("name", "suffixes", "message"),
    [
        ("table", [], "The data format 'table' has a reader already"),
        ("lines", [".CSV"], r"Files '\.csv' are read as 'table' already"),
        ("lines", ["lines"], "must start with a dot"),
        ("lines", ["."], "must start with a dot"),
    ],
)
def test_a_taken_name_or_suffix_is_an_error_and_changes_nothing(readers, name, suffixes, message):
    from odice.data import load

    with pytest.raises(OdiceError, match=message):
        register_reader(name, read_lines, [".fine", *suffixes])
    assert load.READERS == READERS
    assert load.SUFFIXES == SUFFIXES


def test_more_than_memory_is_refused_before_it_is_allocated():
    class Endless:
        shape, dtype, ndim = (10**13, 4), np.dtype(np.float32), 2

        def __len__(self):
            return self.shape[0]

    from odice.data.build import in_memory

    with pytest.raises(OdiceError, match="160,000 GB but this machine has"):
        in_memory("observations", Endless.shape, np.float32)


def test_where_the_memory_is_unknown_nothing_is_refused_for_it(monkeypatch):
    from odice.data.build import in_memory

    monkeypatch.setattr("odice.data.build.memory", lambda: 1000)
    with pytest.raises(OdiceError, match="need 0 GB"):
        in_memory("rewards", (1000,), np.float32)
    monkeypatch.setattr("odice.data.build.memory", lambda: None)
    assert in_memory("rewards", (1000,), np.float32).shape == (1000,)


def test_importing_odice_does_not_import_the_readers():
    import subprocess
    import sys

    names = ("jax", "h5py", "minari", "polars", "gymnasium")
    code = f"import sys, odice; odice.load; print([m for m in {names} if m in sys.modules])"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "h5py" not in out.stdout
    assert "minari" not in out.stdout
    assert "polars" not in out.stdout
