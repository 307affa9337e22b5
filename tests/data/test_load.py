"""What `odice.load` takes, and the one sentence it says about everything else."""

import io
import json
import zipfile
from pathlib import Path

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


# --- Minari ----------------------------------------------------------------------------------------------------------


def minari_dataset(root, name="maze/test-v0", *, space=None, obs=None, action=None, actions=None, **metadata):
    folder = root / name / "data"
    folder.mkdir(parents=True)
    box = {"type": "Box", "dtype": "float64", "low": [-1.0, -2.0], "high": [1.0, 2.0], "shape": [2]}
    described = {
        "dataset_id": name,
        "minari_version": "0.5.3",
        "data_format": "hdf5",
        "total_episodes": 2,
        "total_steps": 5,
        "env_spec": json.dumps({"id": "AntMaze_UMaze-v5", "entry_point": "nowhere:Nothing"}),
        "action_space": json.dumps(action or box),
        **metadata,
    }
    if space:
        described["observation_space"] = json.dumps(space)
    (folder / "metadata.json").write_text(json.dumps(described))
    with h5py.File(folder / "main_data.hdf5", "w") as file:
        for e, steps in enumerate((3, 2)):
            group = file.create_group(f"episode_{e}")
            plain = {"observations": np.arange(steps + 1.0)[:, None] + 10 * e}
            for key, value in (obs(steps) if obs else plain).items():
                group[key] = value
            group["actions"] = np.zeros((steps, 2)) if actions is None else actions[:steps]
            group["rewards"] = np.arange(steps, dtype=float)
            group["terminations"] = np.arange(steps) == (2 if e == 0 else -1)
            group["truncations"] = np.arange(steps) == (steps - 1 if e == 1 else -1)
    return name


MAZE = {
    "type": "Dict",
    "subspaces": {
        "observation": {"type": "Box", "shape": [3]},
        "achieved_goal": {"type": "Box", "shape": [2]},
        "room": {"type": "Discrete", "n": 3, "start": 1},
    },
}


def maze(steps):
    rows = steps + 1
    return {
        "observations/achieved_goal": np.full((rows, 2), 5.0),
        "observations/observation": np.ones((rows, 3)),
        "observations/room": np.arange(rows) % 3 + 1,
    }


def test_minari_loads_without_an_environment(tmp_path):
    minari_dataset(tmp_path / "minari", ref_min_score=1.0, ref_max_score=9.0)
    data = odice.load("maze/test-v0")
    assert data.observations[:, 0].tolist() == [0, 1, 2, 3, 10, 11, 12]
    assert (data.meta.env_id, data.meta.source) == ("AntMaze_UMaze-v5", "maze/test-v0")
    assert (data.meta.ref_min, data.meta.ref_max) == (1.0, 9.0)
    assert (data.meta.action_low, data.meta.action_high) == ((-1.0, -2.0), (1.0, 2.0))
    assert data.terminated.tolist() == [True, False]
    assert data.truncated.tolist() == [False, True]
    assert data.final_known.all()
    assert odice.load(tmp_path / "minari" / "maze" / "test-v0").fingerprint == data.fingerprint


def test_dict_observations_are_flattened_as_declared(tmp_path):
    minari_dataset(tmp_path / "minari", space=MAZE, obs=maze)
    data = odice.load("maze/test-v0")
    assert data.meta.obs_layout == (("observation", 3), ("achieved_goal", 2), ("room", 3))
    assert data.observations[1].tolist() == [1, 1, 1, 5, 5, 0, 1, 0]
    chosen = odice.load("maze/test-v0", obs_keys=["achieved_goal", "observation"])
    assert chosen.observations[1].tolist() == [5, 5, 1, 1, 1]
    with pytest.raises(OdiceError, match="no observation key 'goal'; there are: observation, achieved_goal, room"):
        odice.load("maze/test-v0", obs_keys=["goal"])


def test_minari_discrete_actions_and_missing_scores(tmp_path):
    space = {"type": "Discrete", "n": 7, "start": 0}
    minari_dataset(tmp_path / "minari", action=space, actions=np.array([0, 4, 2]))
    data = odice.load("maze/test-v0")
    assert tuple(data.spec) == (1, 7, True)
    assert data.meta.ref_min is data.meta.ref_max is None


def test_an_id_that_is_nowhere_names_those_that_are_here(tmp_path):
    minari_dataset(tmp_path / "minari")
    with pytest.raises(
        OdiceError, match=r"mujoco/hopper/medium-v0: not on this machine.*local Minari ids: maze/test-v0"
    ):
        odice.load("mujoco/hopper/medium-v0", download=False)


def test_offline_a_remote_id_is_one_clear_error(tmp_path, monkeypatch):
    from minari.storage import remotes

    def offline():
        raise ConnectionError("no route to host\nmore")

    monkeypatch.setattr(remotes, "get_cloud_storage", offline)
    with pytest.raises(OdiceError, match=r"mujoco/hopper/medium-v0: .*\(no route to host\); local Minari ids: none"):
        odice.load("mujoco/hopper/medium-v0")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"total_episodes": 0}, "0 episodes"),
        ({"total_episodes": 5}, r"'total_episodes' are 5, but main_data\.hdf5 holds 2"),
        ({"action": {"type": "Tuple"}}, "actions are of type 'Tuple'"),
        ({"action": {"type": "Discrete", "n": 2, "start": 5}}, "start at 5"),
        ({"space": {"type": "Text"}}, "is text"),
    ],
)
def test_minari_data_that_cannot_be_used(tmp_path, change, message):
    minari_dataset(tmp_path / "minari", **change)
    with pytest.raises(OdiceError, match=message):
        odice.load("maze/test-v0")


def test_a_broken_minari_description(tmp_path):
    minari_dataset(tmp_path / "minari")
    path = tmp_path / "minari" / "maze" / "test-v0" / "data" / "metadata.json"
    for content in ("{", "[]", ""):
        path.write_text(content)
        with pytest.raises(OdiceError, match=r"metadata\.json"):
            odice.load("maze/test-v0")


# --- bad input -------------------------------------------------------------------------------------------------------


def without(key):
    return {name: value for name, value in ARRAYS.items() if name != key}


def truncated_hdf5(path: Path):
    hdf5(path, {**ARRAYS, "observations": np.zeros((N, 500))})
    path.write_bytes(path.read_bytes()[:9000])


def unfilled_hdf5(path: Path):
    with h5py.File(path, "w") as file:
        for name, value in without("observations").items():
            file[name] = value
        file.create_dataset("observations", (10**12, 17), np.float32, chunks=(1000, 17))


def foreign_hdf5(path: Path):
    hdf5(path, without("rewards"))
    hdf5(path.with_name("secret.h5"))
    with h5py.File(path, "a") as file:
        file["rewards"] = h5py.ExternalLink("secret.h5", "/rewards")


def virtual_hdf5(path: Path):
    hdf5(path.with_name("secret.h5"))
    layout = h5py.VirtualLayout((N,), np.float64)
    layout[:] = h5py.VirtualSource(str(path.with_name("secret.h5")), "rewards", (N,))
    hdf5(path, without("rewards"))
    with h5py.File(path, "a") as file:
        file.create_virtual_dataset("rewards", layout)


def group_hdf5(path: Path):
    hdf5(path, {**without("rewards"), "rewards/inner": np.zeros(3)})


def minari_hdf5(path: Path):
    hdf5(path, {"episode_0/rewards": np.zeros(3)})


HDF5 = {
    "truncated": (truncated_hdf5, "not a readable HDF5 file"),
    "not hdf5": (lambda p: p.write_bytes(b"hello"), "not a readable HDF5 file"),
    "empty": (lambda p: p.write_bytes(b""), "the file is empty"),
    "declares a terabyte": (unfilled_hdf5, r"declares shape \(1000000000000, 17\)"),
    "external link": (foreign_hdf5, "points to another file"),
    "virtual": (virtual_hdf5, "points to another file"),
    "a group": (group_hdf5, "'rewards' is not an array"),
    "minari": (minari_hdf5, "belongs to a Minari data set"),
    "no rewards": (lambda p: hdf5(p, without("rewards")), "no array for rewards; found actions, observations"),
    "no ends": (
        lambda p: hdf5(p, {k: ARRAYS[k] for k in ("observations", "actions", "rewards")}),
        "where episodes end",
    ),
    "text": (lambda p: hdf5(p, {**ARRAYS, "actions": np.array([b"x"] * N)}), "only real numbers"),
    "lengths": (lambda p: hdf5(p, {**ARRAYS, "actions": np.zeros((3, 1))}), "'actions' has 3 rows"),
    "0 steps": (lambda p: hdf5(p, {k: v[:0] for k, v in ARRAYS.items()}), "0 steps"),
    "scalar": (lambda p: hdf5(p, {**ARRAYS, "rewards": 3.0}), "single number"),
    "flags": (lambda p: hdf5(p, {**ARRAYS, "terminals": np.arange(N)}), "other than 0 and 1"),
    "int64 actions": (lambda p: hdf5(p, {**ARRAYS, "actions": np.full(N, 2**60)}), "holds 1152921504606846976"),
    "broken description": (lambda p: hdf5(p, odice="{"), "'odice' is not a JSON object"),
}


@pytest.mark.parametrize("case", HDF5)
def test_bad_hdf5_gets_one_sentence(tmp_path, case):
    make, message = HDF5[case]
    path = tmp_path / "a.hdf5"
    make(path)
    with pytest.raises(OdiceError, match=message) as caught:
        odice.load(path)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


def npz(path, arrays):
    np.savez(path, **arrays)


def huge_header(path):
    """A few bytes that claim to be an array of 80 TB."""
    buffer = io.BytesIO()
    np.lib.format.write_array_header_1_0(buffer, {"descr": "<f8", "fortran_order": False, "shape": (10**13,)})
    npz(path, without("rewards"))
    with zipfile.ZipFile(path, "a") as file:
        file.writestr("rewards.npy", buffer.getvalue())


def bomb(path):
    """A small file that unpacks to far more: 200 MB of zeros, declared to be more than the machine has."""
    npz(path, without("rewards"))
    with zipfile.ZipFile(path, "a", zipfile.ZIP_DEFLATED) as file:
        file.writestr("rewards.npy", b"\x93NUMPY\x01\x00" + b"\x00" * 1000)


NPZ = {
    "truncated": (lambda p: (npz(p, ARRAYS), p.write_bytes(p.read_bytes()[:700])), "not a readable NPZ"),
    "not a zip": (lambda p: p.write_bytes(b"PK hello"), "not a readable NPZ"),
    "pickled": (lambda p: npz(p, {**ARRAYS, "rewards": np.array([{}] * N, object)}), "pickled Python objects"),
    "header": (huge_header, "declares shape"),
    "damaged array": (bomb, "cannot be read"),
    "empty zip": (
        lambda p: zipfile.ZipFile(p, "w").close(),
        "no array for observations, actions, rewards; found nothing",
    ),
    "lengths": (lambda p: npz(p, {**ARRAYS, "rewards": np.zeros(4)}), "'rewards' has 4 rows"),
}


@pytest.mark.parametrize("case", NPZ)
def test_bad_npz_gets_one_sentence(tmp_path, case):
    make, message = NPZ[case]
    path = tmp_path / "a.npz"
    make(path)
    with pytest.raises(OdiceError, match=message) as caught:
        odice.load(path)
    assert str(path) in str(caught.value)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("missing.hdf5", "no such file or folder"),
        ("some text", "no such file or folder"),
        ("hopper-medium-v2 ", "no such file or folder"),
    ],
)
def test_what_is_not_there(name, message):
    with pytest.raises(OdiceError, match=message):
        odice.load(name)


def test_folders_without_one_kind_of_data(tmp_path):
    with pytest.raises(OdiceError, match="holds no data files"):
        odice.load(tmp_path)
    hdf5(tmp_path / "a.hdf5")
    npz(tmp_path / "a.npz", ARRAYS)
    with pytest.raises(OdiceError, match=r"several readers \(arrays, d4rl\)"):
        odice.load(tmp_path)


def test_unknown_suffixes_formats_options_and_objects(tmp_path):
    (tmp_path / "a.xyz").write_text("x")
    with pytest.raises(OdiceError, match=r"unknown kind of file '\.xyz'"):
        odice.load(tmp_path / "a.xyz")
    with pytest.raises(OdiceError, match="Unknown data format 'd4rll'"):
        odice.load(hdf5(tmp_path / "a.hdf5"), format="d4rll")
    with pytest.raises(
        OdiceError, match=r"Unknown option of the d4rl reader 'max_steps'\. Did you mean 'max_episode_steps'"
    ):
        odice.load(tmp_path / "a.hdf5", max_steps=3)
    with pytest.raises(OdiceError, match="Cannot load a int"):
        odice.load(3)


def test_an_npz_of_a_zip_version_that_nobody_has(tmp_path):
    np.savez(tmp_path / "a.npz", **ARRAYS)
    raw = bytearray((tmp_path / "a.npz").read_bytes())
    raw[raw.index(b"PK\x01\x02") + 6] = 255  # the version needed to extract, in the table of contents
    (tmp_path / "a.npz").write_bytes(raw)
    with pytest.raises(OdiceError, match=r"a\.npz: not a readable NPZ file \(zip file version 25\.5\)"):
        odice.load(tmp_path / "a.npz")


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
