"""The list of known mistakes (`benchmarks/mutations.py`) fits the code; whether tests catch them takes minutes."""

from pathlib import Path

import pytest

from tests.scripts import load_script

ROOT = Path(__file__).parents[1]
mutations = load_script("mutations")


@pytest.mark.parametrize("mistake", mutations.MISTAKES, ids=lambda mistake: mistake.name)
def test_a_mistake_can_be_made_and_its_tests_exist(mistake):
    assert (ROOT / mistake.file).read_text("utf-8").count(mistake.right) == 1
    assert mistake.right != mistake.wrong
    assert all((ROOT / path).exists() for path in mistake.tests.split())
