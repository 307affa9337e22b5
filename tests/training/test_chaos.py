"""The short version of benchmarks/chaos.py: a run under SIGKILL."""

import pytest

from tests.scripts import load_script


@pytest.mark.long
def test_kills_lose_nothing(tmp_path):
    chaos = load_script("chaos")
    result = chaos.chaos(tmp_path, kills=2)
    assert result["kills"] == 2
    assert chaos.passed(result), result
