"""The scripts of `benchmarks/`, which are no package, as modules."""

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"


def load_script(name: str) -> ModuleType:
    """Load `benchmarks/NAME.py`; skip the test, or the whole file, where the benchmarks are not there."""
    path = BENCHMARKS / f"{name}.py"
    if not path.exists():
        pytest.skip("the benchmarks are not installed with the tests", allow_module_level=True)
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
