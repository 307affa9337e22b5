"""The instrument itself: verdicts of the benchmark on the smallest of its worlds, against their exact truth."""

import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[3]))

from benchmarks import calibration


def test_rows_are_kept_and_counted(tmp_path, monkeypatch):
    """Every row is read again, a second run adds nothing, and the verdicts are those that were stored."""
    chosen = [lambda: calibration.table_case("lottery-20", False, randomized=True)]
    chosen.append(lambda: calibration.table_case("corridor", True))
    monkeypatch.setattr(calibration, "cases", lambda: chosen)
    monkeypatch.setattr(calibration, "STEPS", 1000)
    calibration.run(tmp_path, 2, [], None)
    rows = calibration.read(tmp_path)
    assert [(row["world"], row["log"], row["policy"]) for row in rows] == [
        (world, number, kind)
        for number in (0, 1)
        for world in ("lottery-20 (randomized)", "corridor (table)")
        for kind in ("greedy", "good")
    ]
    for row in rows:
        again = calibration.verdict_of(row)
        assert again.answer == row["verdict"]["answer"]
        assert again.lower_bound == row["verdict"]["lower_bound"] or np.isclose(
            again.lower_bound, row["verdict"]["lower_bound"]
        )
    calibration.run(tmp_path, 2, [], None)
    assert len(calibration.read(tmp_path)) == 8


def test_counts_by_hand(monkeypatch):
    """Two bounds, one of them false; one better with a loss; one loss that is found; one gain that is missed."""
    verdicts = {
        "a": calibration.Verdict("better", "", 1.0, 1.0),
        "b": calibration.Verdict("better", "", 1.0, 1.0),
        "c": calibration.Verdict("not better", "", None, None),
        "d": calibration.Verdict("cannot tell", "", None, 2.0),
    }
    monkeypatch.setattr(calibration, "verdict_of", lambda row: verdicts[row["name"]])
    gains = {"a": 2.0, "b": -1.0, "c": -2.0, "d": 0.5}
    counted = calibration.counts({"name": name, "gain": gain} for name, gain in gains.items())
    assert counted == ["4", "2", "1 (50%)", "1 of 2 (50%)", "1", "1 of 2", "0"]
