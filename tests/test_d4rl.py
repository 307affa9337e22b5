import csv
from pathlib import Path

import numpy as np
import pytest

from odice.d4rl import REFERENCES, normalized_score

TABLE = Path(__file__).parents[3] / "shared" / "paper" / "d4rl_ref_scores.csv"


def test_all_71_environments_are_there():
    assert len(REFERENCES) == 71
    assert REFERENCES["hopper-medium-replay-v2"] == (-20.272305, 3234.3)
    assert REFERENCES["maze2d-umaze-dense-v1"] == (68.537689, 193.66285642381482)


@pytest.mark.skipif(not TABLE.exists(), reason="the reference table is not part of the repository")
def test_every_number_is_that_of_the_table():
    with TABLE.open() as file:
        rows = {row["env"]: (float(row["ref_min_score"]), float(row["ref_max_score"])) for row in csv.DictReader(file)}
    assert rows == REFERENCES


def test_the_score_is_a_hundred_at_the_expert():
    assert normalized_score(3234.3, "hopper-medium-v2") == 100
    assert normalized_score(-20.272305, "hopper-medium-v2") == 0
    assert normalized_score(np.array([0.0, 0.5]), (0.0, 2.0)).tolist() == [0, 25]


@pytest.mark.parametrize("reference", [None, "hopper-medium", "mujoco/hopper/medium-v0", (None, 1.0), (1.0, 1.0)])
def test_an_unknown_reference_gives_no_score(reference):
    assert normalized_score(1000.0, reference) is None
