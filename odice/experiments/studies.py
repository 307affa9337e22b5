"""What the paper's tables and figures compare: algorithms, data sets and seeds.

| study         | what it trains                                                                   |
|---------------|----------------------------------------------------------------------------------|
| `table1`      | the paper's algorithms on its 15 D4RL data sets; O-DICE by text and by code      |
| `table2`      | imitation of one expert trajectory: BC, ValueDICE, IQ-Learn, O-DICE              |
| `figure3`     | EQL, S-DICE and O-DICE: the worst episode, and the feature product over training |
| `curves`      | S-DICE and O-DICE: learning curves                                               |
| `sensitivity` | O-DICE over lambda and eta, S-DICE over lambda                                   |

Figure 2 needs no runs: it is the toy world (`odice toy`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from odice.d4rl import ANTMAZE_DATA, LOCOMOTION_DATA
from odice.presets.imitation import SEEDS as IMITATION_SEEDS

EXPERTS = ("hopper-expert-v2", "walker2d-expert-v2")
LAMBDAS, ETAS = (0.4, 0.5, 0.6, 0.7, 0.8), (0.2, 0.4, 0.6, 0.8, 1.0)
PAPER_SEEDS = (0, 1, 2, 3, 4)
"""The paper has five; its released code names seed 0 for reinforcement learning."""


class Column(NamedTuple):
    """A column of a table: an algorithm, and what distinguishes it from another column of the same algorithm."""

    algo: str
    variant: str = ""
    """In the folder's name and in the table's head; the algorithm's first column has none."""
    preset: str | None = None
    """Instead of the chosen preset."""
    settings: Mapping[str, Any] = {}
    protocol: str | None = None
    """The algorithm of the preset `paper` whose length and evaluation hold instead of this one's own."""

    @property
    def method(self) -> str:
        return f"{self.algo}{VARIANT}{self.variant}" if self.variant else self.algo


VARIANT = "@"
"""Between an algorithm and its variant in the name of a folder."""
CHI_SQUARE = Column("fdvl", settings={"divergence": "pearson"})
"""The paper's f-DVL; f-DVL's own command for AntMaze has total variation."""
PAPER_LAMBDA = 0.6
"""The released code's default, which S-DICE may have been run with: the paper gives none for it."""
TABLE1 = (
    *map(Column, ("td3-bc", "cql", "iql", "eql", "optidice")),
    Column("optidice", "paper-protocol", protocol="odice"),
    CHI_SQUARE,
    Column("sdice"),
    Column("sdice", f"lam-{PAPER_LAMBDA}", settings={"lam": PAPER_LAMBDA}),
    Column("odice"),
    Column("odice", "reference", preset="reference"),
)
TABLE2 = (*map(Column, ("bc", "value-dice", "iq-learn", "odice")), Column("odice", "reference", preset="reference"))
LOCAL_TABLE1 = tuple(map(Column, ("bc", "bc-10", "td3-bc", "iql", "sql", "vdice-true", "sdice", "odice")))


class Study(NamedTuple):
    """What is compared."""

    columns: tuple[Column, ...]
    data: tuple[str, ...] = LOCOMOTION_DATA + ANTMAZE_DATA
    local_columns: tuple[Column, ...] | None = None
    imitation: bool = False
    axes: Mapping[str, Sequence[Any]] = {}
    seeds: tuple[int, ...] = PAPER_SEEDS


STUDIES = {
    "table1": Study(TABLE1, local_columns=LOCAL_TABLE1),
    "table2": Study(TABLE2, EXPERTS, local_columns=TABLE2[:-1], imitation=True, seeds=IMITATION_SEEDS),
    "figure3": Study(tuple(map(Column, ("eql", "sdice", "odice")))),
    "curves": Study(tuple(map(Column, ("sdice", "odice")))),
    "sensitivity": Study(tuple(map(Column, ("sdice", "odice"))), axes={"lam": LAMBDAS, "eta": ETAS}),
}
