"""Small files that declare much: refused by rows times width, before a value is decoded."""

import gzip
import time
import tracemalloc

import numpy as np
import polars as pl
import pytest

import odice
from odice.cli.main import main
from odice.data.readers.scan import MAX_COLUMNS, scan
from odice.errors import OdiceError

pytestmark = pytest.mark.filterwarnings("ignore::odice.data.dataset.UnfinishedEpisodeWarning")


@pytest.fixture(autouse=True)
def small_machine(monkeypatch):
    """A machine of 64 MB: what needs more than half of it is refused."""
    monkeypatch.setattr("odice.data.readers.scan.memory", lambda: 64 << 20)


def write(path, rows):
    """Constant columns: a few kilobytes, however many rows."""
    zero = np.zeros(rows)
    frame = pl.DataFrame({"obs_0": zero, "action": zero, "reward": zero, "terminated": zero > 1})
    frame.write_parquet(path)
    return path


def test_a_parquet_file_of_repeated_values(tmp_path):
    path = write(tmp_path / "a.parquet", 1_000_000)
    assert path.stat().st_size < 100_000
    with pytest.raises(OdiceError, match=r"its rows would take 0\.1 GB, more than half of this machine's memory"):
        odice.load(path)
    assert main(["data", "schema", str(path)]) == 2
    assert odice.load(write(tmp_path / "b.parquet", 1000), action="action").n_steps == 1000


def test_shards_count_as_one(tmp_path):
    (tmp_path / "log").mkdir()
    for i in range(4):
        write(tmp_path / "log" / f"{i}.parquet", 100_000)
    with pytest.raises(OdiceError, match="its rows would take"):
        odice.load(tmp_path / "log")


def test_the_measure_is_that_of_the_columns_that_are_read(tmp_path):
    wide = {f"obs_{i}": np.zeros(20_000) for i in range(200)}
    pl.DataFrame({**wide, "action": 0, "reward": 0.0, "episode": 1}).write_parquet(tmp_path / "a.parquet")
    with pytest.raises(OdiceError, match="its rows would take"):
        odice.load(tmp_path / "a.parquet")
    assert odice.load(tmp_path / "a.parquet", observation=["obs_3"]).n_steps == 20_000


def test_the_measure_of_a_parquet_file(tmp_path):
    """Texts, lists, several groups: what is declared is at least what polars holds."""
    frame = pl.DataFrame({"x": np.arange(5000.0), "word": ["abc"] * 5000, "pair": [[1.0, 2.0]] * 5000})
    frame.write_parquet(tmp_path / "a.parquet", row_group_size=1000)
    opened = scan(tmp_path / "a.parquet")
    assert opened.rows == 5000
    assert set(opened.bytes_of) == {"x", "word", "pair"}
    for name, size in opened.bytes_of.items():
        assert frame[name].estimated_size() <= size <= 64 * 5000


@pytest.mark.parametrize("pack", [False, True])
def test_a_text_file_with_too_many_names(pack, tmp_path):
    """One line of 10 MB took 24 s and 2.5 GB."""
    text = b",".join(b"c%d" % i for i in range(1_500_000)) + b"\n1\n"
    path = tmp_path / ("a.csv.gz" if pack else "a.csv")
    path.write_bytes(gzip.compress(text) if pack else text)
    began = time.perf_counter()
    with pytest.raises(OdiceError, match="first line has more than 4 MB"):
        odice.load(path)
    names = b",".join(b"%x" % i for i in range(MAX_COLUMNS + 1)) + b"\n1\n"
    path.write_bytes(gzip.compress(names) if pack else names)
    with pytest.raises(OdiceError, match=r"20,001 columns, and at most 20,000 are read"):
        odice.load(path)
    assert time.perf_counter() - began < 10


def test_a_text_file_of_short_rows(tmp_path):
    """Every row is filled up to the width of the header."""
    header = ",".join(f"obs_{i}" for i in range(1000)) + ",action,reward,episode\n"
    (tmp_path / "a.csv").write_text(header + "1\n" * 10_000)
    tracemalloc.start()
    with pytest.raises(OdiceError, match="its rows would take"):
        odice.load(tmp_path / "a.csv")
    assert tracemalloc.get_traced_memory()[1] < 8 << 20
    tracemalloc.stop()
