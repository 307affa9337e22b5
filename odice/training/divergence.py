"""When the numbers of a run are no longer those of a learning algorithm, and what is the likely cause."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

import jax
import numpy as np

from odice.algos import Entry


def bad_metrics(metrics: Mapping[str, float], algorithm: Entry, value_limit: float) -> dict[str, float]:
    """The metrics that are not finite, and values of states that no sum of these rewards could reach."""
    return {
        name: number
        for name, number in metrics.items()
        if not math.isfinite(number) or (name in algorithm.value_metrics and abs(number) > value_limit)
    }


def bad_parameters(state: Any) -> dict[str, float]:
    """Where in a state there are numbers that are not finite, by the path of their array."""
    leaves = jax.tree_util.tree_leaves_with_path(state)
    return {
        f"the parameter {jax.tree_util.keystr(path).lstrip('.')}": math.nan
        for path, leaf in leaves
        if np.issubdtype(leaf.dtype, np.floating) and not np.isfinite(leaf).all()
    }


def advice(algorithm: Entry, settings: Any, bad: Mapping[str, float]) -> str:
    """What should be changed: the policy's learning rate, if only the policy broke; else what the algorithm says."""
    fields = {field.name for field in dataclasses.fields(settings)}
    verb, name = algorithm.when_diverged or ("lower", "the learning rate")
    if all("policy" in each for each in bad) and "policy_lr" in fields:
        verb, name = "lower", "policy_lr"
    now = f" (now {getattr(settings, name)})" if name in fields else ""
    return f"Try again with --out NEW_FOLDER and {verb} {name}{now}."
