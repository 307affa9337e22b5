"""The example in the README is run as it stands there."""

import re
import runpy
from pathlib import Path

import numpy as np
import pytest

README = Path(__file__).parents[1] / "README.md"


@pytest.mark.slow
def test_the_example_runs(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (code,) = re.findall(r"```python\n(.*?)```", README.read_text("utf-8"), re.DOTALL)
    Path("example.py").write_text(code)
    found = runpy.run_path("example.py")
    assert np.shape(found["policy"](found["obs"])) == (1000, 1)
    assert "[[" in capsys.readouterr().out
