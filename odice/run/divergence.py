"""When the numbers of a run are no longer those of a learning algorithm."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import jax
import numpy as np

from odice.algos import Entry


def bad_metric(metrics: Mapping[str, float], algorithm: Entry, value_limit: float) -> tuple[str, float] | None:
    """The first metric that is not finite, or a value of states that no sum of these rewards could reach."""
    for name, number in metrics.items():
        if not math.isfinite(number) or (name in algorithm.value_metrics and abs(number) > value_limit):
            return name, number
    return None


def all_finite(state: Any) -> bool:
    leaves = (leaf for leaf in jax.tree.leaves(state) if np.issubdtype(leaf.dtype, np.floating))
    return all(bool(np.isfinite(leaf).all()) for leaf in leaves)


def advice(algorithm: Entry, settings: Any) -> str:
    """What the algorithm says should be changed."""
    if algorithm.when_diverged is None:
        return "lower the learning rate"
    verb, name = algorithm.when_diverged
    return f"{verb} {name} (now {algorithm.setting(settings, name, None)})"
