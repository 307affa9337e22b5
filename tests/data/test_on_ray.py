"""Many files read by the nodes of a cluster: the store is the one that this machine makes, to the last byte.

Without Ray installed its place is taken by threads that run the tasks (`Threads`): so the order of the files, what is
read ahead, errors and going on are tested everywhere. With Ray the same is tested on a cluster of this machine.
"""

import json
import os
import queue
import threading
import types
import warnings

import polars as pl
import pytest

from odice.cli.main import main
from odice.data.store import make_store, many, on_ray
from odice.data.store.windows import LocalReader
from odice.errors import OdiceError
from tests.data.test_many import KNOWN, log, write


class RayTaskError(Exception):
    def __init__(self, cause):
        super().__init__(str(cause))
        self.cause = cause


class Threads:
    """What `RayReader` uses of Ray: generators as tasks, each in a thread that waits while results are not read."""

    def __init__(self, cores: int = 3):
        self.cores, self.started, self.most = cores, [], 0
        self.exceptions = types.SimpleNamespace(RayTaskError=RayTaskError, RayError=(RayTaskError, ConnectionError))
        self._lock, self._running = threading.Lock(), 0

    def cluster_resources(self):
        return {"CPU": self.cores}

    def remote(self, _generator_backpressure_num_objects):
        def decorate(work):
            return types.SimpleNamespace(remote=lambda *args: self._start(work, args, queue.Queue(2)))

        return decorate

    def _start(self, work, args, results):
        self.started.append(args[0].name)
        with self._lock:
            self._running += 1
            self.most = max(self.most, self._running)

        def run():
            try:
                for item in work(*args):
                    results.put(("value", item))
            except Exception as error:
                results.put(("error", error))
            with self._lock:
                self._running -= 1
            results.put(("end", None))

        threading.Thread(target=run, daemon=True).start()
        return iter(results.get, ("end", None))

    def wait(self, tasks, timeout):
        return tasks, []

    def get(self, result):
        kind, value = result
        if kind == "error":
            raise value if isinstance(value, ConnectionError) else RayTaskError(value)
        return value


@pytest.fixture
def threads(monkeypatch):
    fake = Threads()
    monkeypatch.setattr(many, "import_ray", lambda: fake)
    monkeypatch.setattr(many, "connect", lambda ray, address, stack: None)
    return fake


def assert_same_files(a, b) -> None:
    assert sorted(os.listdir(a)) == sorted(os.listdir(b))
    for name in os.listdir(a):
        assert (a / name).read_bytes() == (b / name).read_bytes(), name


@pytest.mark.parametrize("rows", [10, 50, 10_000])
def test_the_store_is_the_same_to_the_byte(rows, tmp_path, monkeypatch, threads):
    monkeypatch.setattr(many, "ROWS", rows)
    pattern = write(log(), tmp_path / "log")
    make_store(pattern, tmp_path / "here.store", **KNOWN)
    make_store(pattern, tmp_path / "there.store", ray="auto", **KNOWN)
    assert_same_files(tmp_path / "here.store", tmp_path / "there.store")
    assert len(threads.started) == 14  # seven files, once for their words and once for their rows
    assert [os.path.isabs(name) for name in threads.started] == [True] * 14
    assert 1 < threads.most <= 3  # several at a time, no more than the cluster has cores


def test_it_goes_on_where_a_cluster_was_lost_also_without_one(tmp_path, monkeypatch, threads):
    monkeypatch.setattr(many, "ROWS", 50)
    pattern = write(log(), tmp_path / "log")
    make_store(pattern, tmp_path / "here.store", **KNOWN)
    tables, lost = on_ray._node_tables, []

    def dies(file, *args):
        if "part-9" in file.name and not lost:
            lost.append(file.name)
            raise ConnectionError("the node is gone")
        yield from tables(file, *args)

    monkeypatch.setattr(on_ray, "_node_tables", dies)
    with pytest.raises(OdiceError, match=r"part-9.parquet: the cluster lost it .*same command again"):
        make_store(pattern, tmp_path / "there.store", ray="auto", **KNOWN)
    assert not (tmp_path / "there.store").exists()
    seen = []
    pieces = LocalReader.pieces
    monkeypatch.setattr(
        LocalReader,
        "pieces",
        lambda self, files, begin, how: seen.append(len(files)) or pieces(self, files, begin, how),
    )
    make_store(pattern, tmp_path / "there.store", **KNOWN)
    assert seen == [4]  # of seven: the first three, up to an open episode, are not read again
    assert_same_files(tmp_path / "here.store", tmp_path / "there.store")


def test_what_is_wrong_with_a_file_is_said_as_here(tmp_path, threads):
    pattern = write(log(), tmp_path / "log")
    log().drop("r").write_parquet(tmp_path / "log/part-8.parquet")
    with pytest.raises(OdiceError, match=r"part-8.parquet: lacks column 'r'; all files must have the same columns"):
        make_store(pattern, tmp_path / "a.store", ray="auto", **KNOWN)
    (tmp_path / "log/part-8.parquet").write_bytes(b"PAR1 and then nothing PAR1")
    with pytest.raises(OdiceError, match=r"part-8\.parquet: "):
        make_store(pattern, tmp_path / "b.store", ray="auto", **KNOWN)


def test_another_version_on_a_node_is_refused(tmp_path, monkeypatch, threads):
    pattern = write(log(), tmp_path / "log")
    monkeypatch.setattr(
        on_ray, "_same_version", lambda version: (_ for _ in ()).throw(OdiceError("A node has odice 0"))
    )
    with pytest.raises(OdiceError, match="A node has odice 0"):
        make_store(pattern, tmp_path / "a.store", ray="auto", **KNOWN)


def test_only_many_files_are_read_by_a_cluster(tmp_path, capsys):
    log().write_parquet(tmp_path / "one.parquet")
    words = ["data", "convert", str(tmp_path / "one.parquet"), "--ray", "auto", "--out"]
    assert main([*words, str(tmp_path / "a.store")]) == 2
    assert "is no pattern of files" in capsys.readouterr().err
    assert main([*words, str(tmp_path / "a.hdf5")]) == 2
    assert "--out NAME.store" in capsys.readouterr().err


@pytest.mark.slow
def test_on_a_cluster_of_this_machine(tmp_path, monkeypatch):
    ray = pytest.importorskip("ray")
    monkeypatch.setattr(many, "ROWS", 50)
    monkeypatch.setenv("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    monkeypatch.setenv("RAY_worker_niceness", "0")
    monkeypatch.setenv("PYTHONPATH", os.getcwd())
    pattern = write(log(), tmp_path / "log")
    make_store(pattern, tmp_path / "here.store", **KNOWN)
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level="error")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ResourceWarning)
            make_store(pattern, tmp_path / "there.store", ray="auto", **KNOWN)
        assert_same_files(tmp_path / "here.store", tmp_path / "there.store")
        log().drop("r").write_parquet(tmp_path / "log/part-8.parquet")
        with pytest.raises(OdiceError, match=r"part-8.parquet: lacks column 'r'"):
            make_store(pattern, tmp_path / "a.store", ray="auto", **KNOWN)
    finally:
        ray.shutdown()


def test_last_of_an_episode_that_spans_files_is_refused(tmp_path):
    table = log().with_columns(died=pl.lit(1.0))
    pattern = write(table, tmp_path / "log")
    known = {**KNOWN, "reward": "r - last(died)"}
    with pytest.raises(OdiceError, match=r"'r - last\(died\)' counts the last row of an episode"):
        make_store(pattern, tmp_path / "a.store", **known)
    whole = write(table, tmp_path / "one", parts=1)
    made = make_store(whole, tmp_path / "b.store", **known)
    assert float(table["r"].sum() - made.rewards.sum()) == pytest.approx(made.n_episodes, rel=1e-4)
    assert json.loads((tmp_path / "b.store/store.json").read_text())["format"] == "odice-store-2"
