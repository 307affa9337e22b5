"""Batches from a data set that stays on disk.

The rows of a batch depend only on (seed, step), so training from disk sees exactly the batches of training in memory.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from odice.data.dataset import Dataset
from odice.data.preprocess import Fitted
from odice.data.store.records import Records
from odice.data.transitions import Convention, rows_of
from odice.types import Batch


class Streamed:
    """The transitions of a data set, gathered on the host as a run asks for them.

    Stands where `Transitions` stands in memory: the same rows give the same numbers, bit for bit. From a store they are
    read with one small read each, so that the process stays small whatever the size of the data.
    """

    def __init__(
        self,
        dataset: Dataset,
        convention: Convention = "qlearning",
        fitted: Fitted | None = None,
        columns: Mapping[str, np.ndarray] | None = None,
        chosen: np.ndarray | None = None,
    ):
        """`columns` has further numbers of each step, in memory (`data.columns`); `chosen` the rows that the policy
        learns from, where those are not all rows alike."""
        self._columns, self.chosen = dict(columns or {}), chosen
        self._dataset, self._rows, self._fitted = dataset, rows_of(dataset, convention), fitted or Fitted()
        self._ends, self._records = dataset.ends, Records.of(dataset)

    @property
    def size(self) -> int:
        return self._rows.size

    @property
    def n_episodes(self) -> int:
        return self._dataset.n_episodes

    def gather(self, rows: np.ndarray, initial: np.ndarray | None = None, apart: np.ndarray | None = None) -> Batch:
        """The transitions of these rows (of any shape, which leads the shape of every field), as numpy arrays.

        `initial` names episodes whose first observations become `initial_obs`, `apart` places in `chosen` whose rows
        become the batch `chosen`.
        """
        if apart is not None and self.chosen is not None:
            return self.gather(rows, initial)._replace(chosen=self.gather(self.chosen[apart]))
        steps, owner = self._rows.locate(np.asarray(rows).reshape(-1))
        obs, action, reward, after = self._fetch(steps, steps + owner)
        data, fitted, shape = self._dataset, self._fitted, np.shape(rows)
        fields: dict[str, Any] = {
            "obs": fitted.observe(obs),
            "action": fitted.unact(action),
            "reward": fitted.reward(reward),
            "next_obs": fitted.observe(after),
            "terminated": data.terminated[owner] & (steps == self._ends[owner]),
        }
        batch = Batch(**{name: value.reshape(*shape, *value.shape[1:]) for name, value in fields.items()})
        columns: Any = {
            name: column[steps].reshape(*shape, *column.shape[1:]) for name, column in self._columns.items()
        }
        batch = batch._replace(columns=columns)
        if initial is None:
            return batch
        chosen = np.asarray(initial).reshape(-1)
        obs = self._fetch(data.starts[chosen], data.starts[chosen] + chosen)[0]
        first: Any = fitted.observe(obs).reshape(*np.shape(initial), -1)
        return batch._replace(initial_obs=first)

    def _fetch(self, steps: np.ndarray, numbers: np.ndarray) -> tuple[np.ndarray, ...]:
        """Observation, action, reward and next observation of steps whose observations have these numbers."""
        data = self._dataset
        if self._records is None:
            return data.observations[numbers], data.actions[steps], data.rewards[steps], data.observations[numbers + 1]
        like = (data.observations, data.actions, data.rewards, data.observations)
        fields = tuple(np.empty((len(steps), *array.shape[1:]), array.dtype) for array in like)
        for places, part in self._records.chunks(numbers):
            for field, name in zip(fields, part.dtype.names or (), strict=True):
                field[places] = part[name]
        return fields
