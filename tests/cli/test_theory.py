"""`odice theory`: table, JSON and exit codes, with the measurements replaced by two that are known."""

import json

import pytest

from odice.cli.main import main
from odice.experiments import theory
from odice.experiments.check import ClaimCheck

GOOD = ClaimCheck("Theorem 9", "two is even", "2 mod 2 = 0", True, {"rest": 0.0})
BAD = ClaimCheck("Theorem 10", "three is even", "3 mod 2 = 1", False, {"rest": 1.0})


@pytest.fixture
def results(monkeypatch):
    results = []
    monkeypatch.setattr(theory, "checks", lambda seed: results)
    return results


def test_all_hold(results, capsys, tmp_path):
    results.append(GOOD)
    path = tmp_path / "theory.json"
    assert main(["theory", "--seed", "3", "--json", str(path)]) == 0
    out = capsys.readouterr().out
    assert "Theorem 9" in out
    assert "holds" in out
    written = json.loads(path.read_text())
    assert written["seed"] == 3
    assert written["checks"] == [
        {
            "source": "Theorem 9",
            "claim": "two is even",
            "measured": "2 mod 2 = 0",
            "passed": True,
            "numbers": {"rest": 0.0},
        }
    ]
    assert list(tmp_path.iterdir()) == [path], "no temporary file stays behind"


def test_one_fails(results, capsys):
    results.extend([GOOD, BAD])
    assert main(["theory"]) == 1
    assert "FAILS" in capsys.readouterr().out


def test_bad_flags(results, capsys, tmp_path):
    assert main(["theory", "--seed", "-1"]) == 2
    assert "--seed" in capsys.readouterr().err
    assert main(["theory", "--json", str(tmp_path)]) == 2
    assert "is a folder" in capsys.readouterr().err
