"""Published scores to compare with: package data, each file with its source (`published_scores/SOURCES.md`)."""

from __future__ import annotations

import csv
from functools import cache
from importlib.resources import files
from typing import NamedTuple

LABELS = {
    "td3-bc": "TD3+BC",
    "cql": "CQL",
    "iql": "IQL",
    "sql": "SQL",
    "eql": "EQL",
    "optidice": "OptiDICE",
    "fdvl": "f-DVL",
    "sdice": "S-DICE",
    "odice": "O-DICE",
    "vdice-true": "V-DICE, true gradient",
    "bc": "BC",
    "bc-10": "10% BC",
    "value-dice": "ValueDICE",
    "iq-learn": "IQLearn",
}
"""Algorithm -> its name in papers."""
PAPER = "the O-DICE paper (arXiv 2402.00348)"
CORL = "CORL's README, last evaluations"


class Score(NamedTuple):
    """A published score; the standard deviation is None where none was published."""

    mean: float
    std: float | None

    @property
    def text(self) -> str:
        return f"{self.mean:.1f}" if self.std is None else f"{self.mean:.1f} ± {self.std:.1f}"


def paper_score(data: str, algo: str) -> Score | None:
    """The paper's score of an algorithm on a D4RL data set; NAME-traj-N are the rows of its table on imitation."""
    return _paper().get((data, LABELS.get(algo, algo)))


def corl_score(data: str, algo: str) -> Score | None:
    """CORL's score: the mean of its last evaluations."""
    return _corl().get((data, LABELS.get(algo, algo)))


@cache
def _paper() -> dict[tuple[str, str], Score]:
    scores = {
        (row["dataset"], row["algorithm"]): _score(row["score_mean"], row["score_std"])
        for row in _rows("paper_table1.csv")
    }
    for row in _rows("paper_table2.csv"):
        scores[f"{row['dataset']}-traj-{row['traj_row']}", row["algorithm"]] = _score(row["score"], "")
    return scores


@cache
def _corl() -> dict[tuple[str, str], Score]:
    return {
        (row["dataset"], row["algorithm"]): _score(row["score_mean"], row["score_std"])
        for row in _rows("corl.csv")
        if row["kind"] == "last"
    }


def _score(mean: str, std: str) -> Score:
    return Score(float(mean), float(std) if std else None)


def _rows(name: str) -> list[dict[str, str]]:
    with (files("odice.experiments") / "published_scores" / name).open(encoding="utf-8") as file:
        return list(csv.DictReader(file))
