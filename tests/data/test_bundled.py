"""The data set that comes with odice: it is what its README says, it is small, and it is found by name."""

import re
from pathlib import Path

import numpy as np
import pytest

import odice
from odice.data.doctor import inspect
from odice.data.load import find
from odice.errors import OdiceError

FOLDER = Path(odice.__file__).parent / "data" / "bundled"
README = (FOLDER / "README.md").read_text("utf-8")


@pytest.fixture(scope="module")
def replay():
    return odice.load("bundled/hopper-replay")


def test_it_is_what_its_readme_says(replay):
    assert replay.fingerprint in README
    row = re.search(r"\| ([\d,]+) \| ([\d,]+) \| ([\d.]+) \| ([\d.]+) \| ([\d.]+) \|", README)
    assert row is not None
    stated = [float(cell.replace(",", "")) for cell in row.groups()]
    returns = [sum(map(float, episode.rewards)) for episode in replay]
    values = [len(replay.rewards), len(returns), np.mean(returns), np.median(returns), np.max(returns)]
    np.testing.assert_allclose(stated, values, atol=0.051)
    assert replay.meta.env_id == "Hopper-v5"
    assert replay.meta.history[0] == "collected in Hopper-v5 with the recipe medium-replay, seed 0"


def test_it_is_whole_and_the_doctor_is_content(replay):
    assert replay.final_known.all()
    assert np.abs(replay.actions).max() <= 1
    assert not inspect(replay).errors


def test_it_is_small():
    assert sum(item.stat().st_size for item in FOLDER.iterdir() if item.is_file()) < 5_000_000


def test_names_are_found_and_misspelt_ones_corrected(tmp_path, monkeypatch):
    assert find("bundled/hopper-replay").items == [FOLDER / "hopper-replay.parquet"]
    with pytest.raises(OdiceError, match="Did you mean 'bundled/hopper-replay'"):
        odice.load("bundled/hoper-replay")
    monkeypatch.chdir(tmp_path)  # a file of the user's comes first
    (tmp_path / "bundled").mkdir()
    (tmp_path / "bundled" / "mine.csv").write_text("observation,action,reward\n0,0,0\n")
    assert find("bundled/mine.csv").items == [Path("bundled/mine.csv")]


def test_it_is_known_by_its_name(replay):
    """Not by the folder of an installation, which means nothing elsewhere."""
    assert replay.meta.source == "bundled/hopper-replay"
