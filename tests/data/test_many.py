"""Many Parquet files become a store: the log as read at once, in bounded memory, after a kill too, from S3 too."""

import json
import os
import re
import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import polars as pl
import pytest

import odice
from odice.cli.main import main
from odice.data.readers.files import _fetch, list_files, short_name
from odice.data.store import make_store, many, stored
from odice.errors import OdiceError

ROOT = Path(__file__).parents[2]
KNOWN = {"observation": ("x", "ward"), "action": "drug", "reward": "r", "episode": "who", "terminated": "done"}


def log(rows: int = 900, seed: int = 0) -> pl.DataFrame:
    """Episodes of 1 to 40 steps, with words in the observations and actions."""
    rng = np.random.default_rng(seed)
    lengths = rng.integers(1, 41, rows)
    who = np.repeat(np.arange(rows), lengths)[:rows]
    last = np.append(np.diff(who) != 0, True)
    return pl.DataFrame(
        {
            "who": who,
            "x": rng.normal(size=rows).astype(np.float32),
            "ward": np.where(np.arange(rows) < rows // 2, "north", "south"),
            "drug": rng.choice(["a", "b"], rows),
            "r": rng.normal(size=rows).astype(np.float32),
            "done": last,
        }
    )


def write(table: pl.DataFrame, folder: Path, parts: int = 7) -> str:
    """The table in so many files, cut without regard to episodes."""
    folder.mkdir()
    for i, rows in enumerate(np.array_split(np.arange(len(table)), parts)):
        table[rows].write_parquet(folder / f"part-{i + 5}.parquet")
    return str(folder / "*.parquet")


def same(a: odice.Dataset, b: odice.Dataset) -> None:
    for name in ("observations", "actions", "rewards", "lengths", "terminated", "truncated", "final_known"):
        np.testing.assert_array_equal(getattr(a, name), getattr(b, name), err_msg=name)
    assert json.dumps(a.encoding) == json.dumps(b.encoding)
    assert a.meta.n_actions == b.meta.n_actions


@pytest.mark.parametrize("rows", [10, 64, 10_000])
def test_files_of_any_size_are_the_log(rows, tmp_path, monkeypatch):
    """10 rows at a time are fewer than an episode has."""
    monkeypatch.setattr(many, "ROWS", rows)
    table = log()
    pattern = write(table, tmp_path / "log")
    table.write_parquet(tmp_path / "whole.parquet")
    whole = odice.load(tmp_path / "whole.parquet", **KNOWN)
    same(make_store(pattern, tmp_path / "log.store", **KNOWN), whole)
    same(odice.load(pattern, **KNOWN), whole)
    assert not list(tmp_path.glob("*.partial"))
    assert stored(pattern, tmp_path / "log.store", **KNOWN).n_steps == len(table)


def test_numbers_that_start_anew_in_every_file_are_other_episodes(tmp_path):
    (tmp_path / "log").mkdir()
    for i in range(3):
        log(200, seed=i).write_parquet(tmp_path / f"log/{i}.parquet")
    made = make_store(str(tmp_path / "log/*.parquet"), tmp_path / "log.store", **KNOWN)
    same(made, odice.load(tmp_path / "log", **KNOWN))


def test_steps_of_one_window_may_be_interleaved_but_not_far_apart(tmp_path, monkeypatch):
    table = log(300).with_row_index("t")
    mixed = table.with_columns((pl.col("t") % 7).alias("k")).sort("k", maintain_order=True).drop("k")
    pattern = write(mixed, tmp_path / "log", parts=1)
    known = {**KNOWN, "step": "t"}
    same(make_store(pattern, tmp_path / "a.store", **known), odice.load(tmp_path / "log", **known))
    monkeypatch.setattr(many, "ROWS", 50)
    one = pl.concat([table, table[:20].with_columns(pl.col("t") + 1000)])
    with pytest.raises(OdiceError, match=r"episode 0 stands in several places of the file.*sort the rows by episode"):
        make_store(write(one, tmp_path / "far", parts=1), tmp_path / "b.store", **known)


def test_a_log_of_single_decisions_is_not_kept_in_memory(tmp_path, monkeypatch):
    monkeypatch.setattr(many, "ROWS", 50)
    sizes, append = [], many._Copy._append
    monkeypatch.setattr(
        many._Copy, "_append", lambda self, window: (sizes.append(len(window.table)), append(self, window))
    )
    known = {**{role: KNOWN[role] for role in ("observation", "action", "reward")}, "one_step": True}
    pattern = write(log().drop("done"), tmp_path / "log")
    same(make_store(pattern, tmp_path / "log.store", **known), odice.load(tmp_path / "log", **known))
    assert max(sizes) <= 100


def test_a_killed_copy_goes_on(tmp_path, monkeypatch):
    monkeypatch.setattr(many, "ROWS", 50)
    pattern = write(log(), tmp_path / "log")
    append, seen = many._Copy._append, []

    def killed(self, window):
        seen.append(len(window.table))
        if len(seen) == 9:
            self._out.arrays["records"].append(np.zeros(3, self._out.arrays["records"]._like.dtype))  # half a step
            raise KeyboardInterrupt
        append(self, window)

    monkeypatch.setattr(many._Copy, "_append", killed)
    with pytest.raises(KeyboardInterrupt):
        make_store(pattern, tmp_path / "log.store", **KNOWN)
    assert not (tmp_path / "log.store").exists()
    with pytest.raises(OdiceError, match="was begun from other files or options"):
        make_store(pattern, tmp_path / "log.store", **{**KNOWN, "observation": ("x",)})
    before = len(seen)
    made = make_store(pattern, tmp_path / "log.store", **KNOWN)
    assert sum(seen[before:]) < 900 - 50 * 5  # not from the start
    same(made, odice.load(tmp_path / "log", **KNOWN))


def test_unfinished_episodes_are_said_once(tmp_path, monkeypatch):
    monkeypatch.setattr(many, "ROWS", 50)
    pattern = write(log().with_columns(done=pl.lit(False)), tmp_path / "log")
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        make_store(pattern, tmp_path / "log.store", **KNOWN)
    assert len(said) == 1
    assert "end with neither a terminal nor a timeout flag" in str(said[0].message)


def test_names_of_runs():
    assert short_name("s3://bucket/logs/*.parquet") == "logs"
    assert short_name("a/hopper.v1.hdf5") == "hopper.v1"
    assert short_name("*.parquet") == "data"


def test_what_cannot_be_done_is_said(tmp_path):
    with pytest.raises(OdiceError, match="no Parquet files are there"):
        list_files(str(tmp_path / "*.parquet"))
    pattern = write(log(), tmp_path / "log")
    with pytest.raises(OdiceError, match="needs the whole log in memory"):
        make_store(pattern, tmp_path / "a.store", missing="impute", **KNOWN)
    with pytest.raises(OdiceError, match=r"copy it first: odice data convert 's3://b/\*\.parquet' --out log.store"):
        stored("s3://b/*.parquet")
    log().drop("r").write_parquet(tmp_path / "log/part-99.parquet")
    with pytest.raises(OdiceError, match=r"part-99\.parquet: lacks column 'r'"):
        make_store(pattern, tmp_path / "b.store", **KNOWN)


@pytest.fixture
def bucket(tmp_path):
    """The log's files at memory://logs, and their contents by path."""
    system = pytest.importorskip("fsspec").filesystem("memory")
    write(log(), tmp_path / "log")
    files = {f"/logs/{path.name}": path.read_bytes() for path in (tmp_path / "log").iterdir()}
    system.pipe(files)
    yield system, files
    system.store.clear()


FLAGS = ["--observation-columns", "x", "ward", "--action-columns", "drug", "--reward-column", "r"]
FLAGS += ["--episode-column", "who", "--terminated-column", "done", "--out", "log.store"]


def test_a_bucket_that_disappears_halfway_leaves_a_copy_that_goes_on(tmp_path, bucket, monkeypatch, capsys):
    system, files = bucket
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(many, "ROWS", 50)
    append, seen = many._Copy._append, []

    def gone(self, window):
        append(self, window)
        seen.append(len(window.table))
        if len(seen) == 4:
            system.rm(list(files))

    monkeypatch.setattr(many._Copy, "_append", gone)
    convert = ["data", "convert", "memory://logs/*.parquet", *FLAGS]
    assert main(convert) == 2
    said = capsys.readouterr().err
    assert re.fullmatch(
        r"odice: memory:///logs/part-\d\.parquet: cannot be read \(it is gone\); run the command again\.\n", said
    )
    assert main(convert) == 2  # it is still away
    assert capsys.readouterr().err.startswith("odice: memory://logs/*.parquet: no Parquet files are there")
    assert not (tmp_path / "log.store").exists()
    system.pipe(files)
    assert main(convert) == 0
    assert sum(seen) == 900  # nothing twice
    same(odice.load("log.store"), odice.load(tmp_path / "log", **KNOWN))


def test_a_file_that_is_lost_or_changes_while_it_is_read_is_said(tmp_path, bucket, monkeypatch):
    system, files = bucket
    get, asked = type(system).get_file, []

    def lost(self, path, *words, **options):
        asked.append(path)
        if len(asked) == 3:
            raise ConnectionError("reset by peer")
        get(self, path, *words, **options)

    monkeypatch.setattr(type(system), "get_file", lost)
    with pytest.raises(OdiceError, match=r"part-7\.parquet: cannot be read \(reset by peer\); run the command again"):
        odice.train("memory://logs", algo="bc", env="none", steps=10, out=tmp_path / "run", quiet=True)
    assert not (tmp_path / "run" / "config.json").exists()
    listed = list_files("memory://logs")
    system.pipe("/logs/part-5.parquet", files["/logs/part-5.parquet"][:-10])
    with pytest.raises(OdiceError, match=r"part-5\.parquet: has changed, from [\d,]+ to [\d,]+ bytes"):
        _fetch(listed[0], tmp_path / "copy")


@pytest.mark.slow
def test_from_an_s3_server(tmp_path, monkeypatch):
    """moto's server, in a process of its own."""
    pytest.importorskip("s3fs")
    pytest.importorskip("moto")
    server = subprocess.Popen(
        [sys.executable, "-c", "from moto.server import main; main(['-H', '127.0.0.1', '-p', '0'])"],
        stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        text=True,
    )
    try:
        address = next(line.split()[-1] for line in server.stderr if "Running on" in line)
        names = {"AWS_ENDPOINT_URL": address, "AWS_ACCESS_KEY_ID": "x", "AWS_SECRET_ACCESS_KEY": "x"}
        for name, value in {**names, "AWS_DEFAULT_REGION": "us-east-1"}.items():
            monkeypatch.setenv(name, value)
        write(log(), tmp_path / "log")
        import boto3

        client = boto3.client("s3")
        client.create_bucket(Bucket="logs")
        for path in sorted((tmp_path / "log").iterdir()):
            client.upload_file(str(path), "logs", f"2026/{path.name}")
        client.close()
        script = (
            "import sys, odice; from odice.data.store import make_store\n"
            "known = eval(sys.argv[1])\n"
            "a = make_store('s3://logs/2026/*.parquet', 'log.store', **known)\n"
            "b = odice.load('s3://logs/2026', **known)\n"
            "print(a.fingerprint, b.fingerprint)"
        )
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        done = subprocess.run(
            [sys.executable, "-c", script, repr(KNOWN)], cwd=tmp_path, env=environment, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr
        assert set(done.stdout.split()) == {odice.load(tmp_path / "log", **KNOWN).fingerprint}
        words = ["data", "convert", "s3://logs/none/*.parquet", "--out", "b.store"]
        done = subprocess.run(
            [sys.executable, "-m", "odice", *words], cwd=tmp_path, env=environment, capture_output=True, text=True
        )
        assert (done.returncode, done.stderr.count("\n")) == (2, 1), done.stderr
        assert "no Parquet files are there" in done.stderr
    finally:
        server.terminate()
        server.communicate(timeout=20)
