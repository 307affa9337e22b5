"""The short version of benchmarks/chaos.py: a run under SIGKILL."""

import importlib.util
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "chaos.py"


@pytest.mark.long
@pytest.mark.skipif(not SCRIPT.exists(), reason="the benchmarks are not installed with the tests")
def test_kills_lose_nothing(tmp_path):
    spec = importlib.util.spec_from_file_location("chaos", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    chaos = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(chaos)
    result = chaos.chaos(tmp_path, kills=2)
    assert result["kills"] == 2
    assert chaos.passed(result), result
