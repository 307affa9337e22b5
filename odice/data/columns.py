"""Numbers that each step brings into a batch in addition to its transition (`types.COLUMNS`), made from a data set."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np

from odice.data.dataset import Dataset
from odice.data.to_go import standardized_returns
from odice.errors import OdiceError


def _costs(dataset: Dataset, discount: float) -> np.ndarray:
    del discount
    if dataset.costs is None:
        raise OdiceError(
            f"{dataset.meta.source}: the algorithm needs a cost for every step; name a column with --cost-column, or "
            "give an array 'costs'."
        )
    return dataset.costs


def _next_actions(dataset: Dataset, discount: float) -> np.ndarray:
    """The action of the step that follows; of the last step of an episode, NaN."""
    del discount
    actions = np.asarray(dataset.actions, np.float32)
    following = np.concatenate([actions[1:], actions[-1:]])
    following[dataset.ends] = np.nan
    return following


MAKERS: dict[str, Callable[[Dataset, float], np.ndarray]] = {
    "cost": _costs,
    "next_action": _next_actions,
    "return_to_go": standardized_returns,
}


def make_columns(names: Iterable[str], dataset: Dataset, discount: float) -> dict[str, np.ndarray]:
    """The columns of these names, one entry per step of the data set.

    Args:
        names: Of `types.COLUMNS`. `credit` is not made here: it takes training (`training.credit`).
        dataset: With the rewards and actions that the algorithm sees.
        discount: Of returns.
    """
    return {name: MAKERS[name](dataset, discount) for name in names}
