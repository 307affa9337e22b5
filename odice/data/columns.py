"""Numbers that each step brings into a batch beside its transition (`types.COLUMNS`), made from a data set."""

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


MAKERS: dict[str, Callable[[Dataset, float], np.ndarray]] = {"cost": _costs, "return_to_go": standardized_returns}


def make_columns(names: Iterable[str], dataset: Dataset, discount: float) -> dict[str, np.ndarray]:
    """The columns of these names, one number per step of the data set.

    Args:
        names: Of `types.COLUMNS`.
        dataset: With the rewards that the algorithm sees.
        discount: Of returns.
    """
    return {name: MAKERS[name](dataset, discount) for name in names}
