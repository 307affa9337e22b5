import csv
from pathlib import Path

import numpy as np
import pytest

from odice.d4rl import (
    ANTMAZE_DATA,
    LOCOMOTION_DATA,
    MUJOCO_PY,
    REFERENCES,
    ROBOTS,
    SCORED_AS,
    episode_steps,
    normalized_score,
    reference_of,
    robot_of,
)

TABLE = Path(__file__).parent / "published" / "d4rl_ref_scores.csv"


def test_all_71_environments_are_there():
    assert len(REFERENCES) == 71
    assert REFERENCES["hopper-medium-replay-v2"] == (-20.272305, 3234.3)
    assert REFERENCES["maze2d-umaze-dense-v1"] == (68.537689, 193.66285642381482)


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


def test_robots_of_all_data_sets():
    assert {robot_of(name) for name in REFERENCES} == set(ROBOTS)
    assert robot_of(None) == robot_of("") == ""
    for robot in ("hopper", "ant", "antmaze", "kitchen"):
        assert {reference_of(robot)} == {pair for name, pair in REFERENCES.items() if robot_of(name) == robot}


def test_ids_of_three_simulators():
    assert [SCORED_AS[f"Walker2d-v{version}"] for version in (4, 5)] == ["walker2d"] * 2
    assert [MUJOCO_PY[f"Ant-v{version}"] for version in (2, 3)] == ["ant"] * 2
    assert "Ant-v5" not in SCORED_AS  # another reward, so another scale
    assert len(SCORED_AS) == 7
    assert len(MUJOCO_PY) == 8


@pytest.mark.parametrize(
    ("name", "steps"),
    [
        ("hopper-medium-v2", 1000),
        ("ant-random-v2", 1000),
        ("antmaze-umaze-diverse-v2", 700),
        ("antmaze-large-play-v0", 1000),
        ("maze2d-large-v1", None),
        ("pen-human-v1", None),
        ("another-v0", None),
        (None, None),
    ],
)
def test_where_d4rl_cuts_episodes(name, steps):
    assert episode_steps(name) == steps


def test_the_data_sets_of_the_papers_are_data_sets():
    assert len(LOCOMOTION_DATA) == 9
    assert len(ANTMAZE_DATA) == 6
    assert set(LOCOMOTION_DATA + ANTMAZE_DATA) <= set(REFERENCES)
