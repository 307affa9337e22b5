"""From episodes to transitions: which steps count, and where their next observation is.

Two conventions. `qlearning` is what D4RL's `qlearning_dataset` does, and with it every published O-DICE, IQL and CQL
number: a step at which the episode was cut by time is left out (so 1000 steps give 999 transitions), a terminal step
is kept, and the last step of the whole data set is always lost. `bootstrap` keeps every step whose next observation is
known or does not matter: truncation steps where the source recorded the true final observation, and all terminals.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

import numpy as np

from odice.data.build import in_memory
from odice.data.dataset import Dataset, blocks
from odice.errors import OdiceError, unknown_name
from odice.types import Transitions

Convention = Literal["qlearning", "bootstrap"]


class Rows(NamedTuple):
    """Which steps are transitions, without a number per step: of each episode the first `kept` steps count."""

    kept: np.ndarray  # (episodes,)
    first: np.ndarray  # (episodes,) the row of each episode's first transition
    starts: np.ndarray  # (episodes,) the step at which each episode starts

    @property
    def size(self) -> int:
        return int(self.first[-1] + self.kept[-1])

    def locate(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The step and the episode of each row. The observation of step i in episode e is number i + e."""
        owner = np.searchsorted(self.first, rows, side="right") - 1
        return self.starts[owner] + (rows - self.first[owner]), owner


def rows_of(dataset: Dataset, convention: Convention = "qlearning") -> Rows:
    """The transitions of a data set under a convention."""
    if convention == "qlearning":
        dropped = dataset.truncated.copy()
        dropped[-1] = True
    elif convention == "bootstrap":
        dropped = ~dataset.terminated & ~dataset.final_known
    else:
        raise unknown_name("convention", convention, ("qlearning", "bootstrap"))
    kept = dataset.lengths - dropped
    if not kept.any():
        raise OdiceError(
            f"{dataset.meta.source}: no step is left under the {convention!r} convention, because every episode is one "
            "step that was cut; if nothing follows these decisions (a bandit log), mark them as terminated; else "
            "record the next observations."
        )
    return Rows(kept, np.cumsum(kept) - kept, dataset.starts)


def why_left_out(dataset: Dataset, convention: Convention) -> str | None:
    """How many steps are no transitions under a convention, and why, in a sentence; None if all are."""
    lost = dataset.n_steps - rows_of(dataset, convention).size
    if not lost:
        return None
    steps = f"{lost:,} of {dataset.n_steps:,} steps {'is' if lost == 1 else 'are'} left out"
    if convention == "bootstrap":
        return f"{steps}: the log ends there, and what came next was not recorded"
    cut = int(dataset.truncated.sum())
    last = "" if dataset.truncated[-1] else ", and the last step of the data, as in D4RL's code"
    kept = "--convention qlearning; bootstrap keeps those whose next state is known"
    return f"{steps}: {cut:,} at time limits{last} ({kept})"


def to_transitions(
    dataset: Dataset, convention: Convention = "qlearning", columns: Mapping[str, np.ndarray] | None = None
) -> Transitions:
    """The data set as flat arrays, still numpy: `jax.device_put` moves them to the device. `columns` has further
    numbers of each step (`data.columns`).

    Observations are shared with the data set, not copied. The next observation of a terminated row is the final
    observation where it is known and a repetition where it is not: it may be read only behind the mask.
    """
    rows = rows_of(dataset, convention)
    if len(dataset.observations) >= 2**31:
        raise OdiceError(
            f"{dataset.meta.source}: {len(dataset.observations):,} observations are too many for one device."
        )
    index = in_memory("index", (rows.size,), np.int32)
    action = in_memory("actions", (rows.size, *dataset.actions.shape[1:]), dataset.actions.dtype.type)
    reward = in_memory("rewards", (rows.size,), np.float32)
    terminated = in_memory("flags", (rows.size,), np.bool_)
    ends = dataset.ends
    for block in blocks(rows.size, 32):  # in blocks, because 8-byte numbers for all rows would outweigh the data
        steps, owner = rows.locate(np.arange(block.start, block.stop))
        index[block] = steps + owner
        action[block] = dataset.actions[steps]
        reward[block] = dataset.rewards[steps]
        terminated[block] = dataset.terminated[owner] & (steps == ends[owner])
    per_row = lambda steps: steps[rows.locate(np.arange(rows.size))[0]]
    arrays: dict[str, Any] = {
        "obs": dataset.observations,
        "index": index,
        "next_index": None,
        "action": action,
        "reward": reward,
        "terminated": terminated,
        "columns": {name: per_row(steps) for name, steps in (columns or {}).items()},
        "initial": (dataset.starts + np.arange(dataset.n_episodes)).astype(np.int32),
    }
    return Transitions(**arrays)
