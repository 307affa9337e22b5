"""`benchmarks/released.py` says in a sentence what it misses; the comparison itself needs clones that are not ours."""

import numpy as np
import pytest

from tests.scripts import load_script


@pytest.fixture(scope="module")
def released():
    return load_script("released")


@pytest.mark.parametrize("name", ["diffusion-dice", "cors-dice"])
def test_a_missing_clone_or_package_is_a_sentence(name, released, tmp_path, capsys, monkeypatch):
    assert released.main(name, tmp_path) == 2
    file, package = released.MARKS[name]
    assert capsys.readouterr().err.startswith(f"{tmp_path}: there is no {file} in it; clone ")
    (tmp_path / file).parent.mkdir(exist_ok=True)
    (tmp_path / file).touch()
    monkeypatch.setattr(released.importlib.util, "find_spec", lambda _: None)
    assert released.main(name, tmp_path) == 2
    assert capsys.readouterr().err.strip().endswith(f"pip install {package}.")


def test_difference_is_relative_to_the_largest_of_theirs(released):
    pairs = [(np.array([1.0, 2.0]), np.array([1.0, 2.5])), (np.array([[4.0]]), np.array([[5.0]]))]
    assert released.difference(pairs) == 0.2
