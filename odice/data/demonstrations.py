"""Demonstrations: the episodes to imitate, chosen by number, and the suboptimal data that may be added."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

import numpy as np

from odice.data.dataset import Dataset
from odice.data.join import concatenate
from odice.errors import OdiceError

FinalObs = Literal["recorded", "next-reset"]
"""What follows the last step of an episode that was cut by time.

`recorded`: the final observation where the source has it (else the `bootstrap` convention leaves the step out).
`next-reset`: the first observation of the next episode, as O-DICE's released code has it by mistake: a transition that
never happened, one in a thousand. For the `reference` preset only.
"""
SHOWN = 12
"""How many returns an error lists."""


def demonstrations(dataset: Dataset, episodes: Sequence[int] = (), final: FinalObs = "recorded") -> Dataset:
    """These episodes of a data set, in this order; all of them if none is named."""
    which = np.asarray(episodes if len(episodes) else range(dataset.n_episodes), np.int64)
    if len(episodes):
        _check(dataset, which)
    chosen = dataset.select(which) if len(episodes) else dataset
    return _into_next(dataset, chosen, which) if final == "next-reset" else chosen


def _check(dataset: Dataset, which: np.ndarray) -> None:
    source, n = dataset.meta.source, dataset.n_episodes
    if n == 1 and dataset.meta.evidence.get("unfinished"):
        raise OdiceError(
            f"{source}: nothing marks where an episode ends, so there is no episode to choose; add terminated and "
            "truncated flags, or leave out --episode to imitate all of it as one."
        )
    outside = which[(which < 0) | (which >= n)]
    if outside.size:
        returns = ", ".join(f"{value:.4g}" for value in dataset.returns[:SHOWN])
        more = f", ... (highest {dataset.returns.max():.4g})" if n > SHOWN else ""
        raise OdiceError(
            f"{source}: there is no episode {outside[0]}; --episode takes 0 to {n - 1}, "
            f"whose returns are {returns}{more}."
        )
    if len(np.unique(which)) < which.size:
        raise OdiceError(f"--episode names an episode twice in {which.tolist()}; name each once.")


def _into_next(dataset: Dataset, chosen: Dataset, which: np.ndarray) -> Dataset:
    """Let every chosen episode that was cut by time lead into the start of the episode after it."""
    cut = ~chosen.terminated & (which + 1 < dataset.n_episodes)
    after = which[cut] + 1
    observations = chosen.observations.copy()
    observations[(chosen.ends + np.arange(chosen.n_episodes) + 1)[cut]] = dataset.observations[
        dataset.starts[after] + after
    ]
    return replace(
        chosen,
        observations=observations,
        final_known=chosen.final_known | cut,
        meta=chosen.meta.after("cut episodes lead into the next one's start"),
    )


def with_suboptimal(expert: Dataset, suboptimal: Dataset) -> Dataset:
    """Demonstrations and suboptimal data in one data set, the demonstrations first; their metadata hold for both."""
    for name in ("action_low", "action_high"):
        ours, theirs = getattr(expert.meta, name), getattr(suboptimal.meta, name)
        if ours is not None and theirs is not None and ours != theirs:
            raise OdiceError(
                f"{suboptimal.meta.source}: its {name.replace('_', ' ')} {list(theirs)} is not that of the "
                f"demonstrations, {list(ours)}; suboptimal data must come from the same environment."
            )
    union = concatenate([expert, suboptimal])  # in one encoding
    meta = expert.meta.after(f"joined with {suboptimal.n_episodes} episodes of {suboptimal.meta.source}")
    shared = {name: getattr(union.meta, name) for name in ("n_actions", "choices", "obs_columns", "obs_layout")}
    return replace(union, meta=replace(meta, **shared))
