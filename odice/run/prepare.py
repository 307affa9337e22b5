"""From a source of data to what the loop needs: checked, transformed, on the device, and an environment to score in."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from odice.data.doctor import check
from odice.data.episodes import Dataset
from odice.data.load import load
from odice.data.preprocess import Fitted, fit
from odice.data.stream import Streamed, stored
from odice.data.transitions import to_transitions
from odice.errors import OdiceError
from odice.run.evaluate import Evaluator
from odice.run.settings import Plan
from odice.types import Batch, Spec, Transitions

SAMPLE = 256
"""Transitions of the fixed sample that diagnostics look at."""


class Prepared(NamedTuple):
    """Everything a run knows about its data and its task."""

    spec: Spec
    source: Transitions | Streamed
    fitted: Fitted
    facts: dict[str, Any]
    """Where the data came from, how much there is, and its fingerprint."""
    notes: tuple[str, ...]
    """What a person should know before the run starts."""
    env_id: str | None
    reference: tuple[float, float] | None
    value_limit: float
    """|V| beyond this is no value of these rewards."""


def prepare(plan: Plan) -> Prepared:
    """Read and check the data, fit the preprocessing and build the transitions."""
    options = plan.options
    readers = {"schema": options.schema} if options.schema else {}
    on_disk = options.stream and isinstance(options.data, str | Path)
    open_data = stored if on_disk else load  # a log that is streamed is copied once, to a store beside it
    dataset = open_data(options.data, format=options.format, data_dir=options.data_dir, **readers)
    report = check(dataset, allow=options.allow)
    fingerprint, share = dataset.fingerprint, getattr(plan.settings, "top_returns", 1.0)
    if share < 1.0:  # percentage BC: the algorithm declares which episodes it learns from
        dataset = dataset.by_return(1.0 - share)
    fitted = fit(plan.preprocess, dataset, options.convention)
    if options.stream:
        source: Transitions | Streamed = Streamed(dataset, options.convention, fitted)
    else:
        arrays = to_transitions(fitted.apply(dataset), options.convention)
        source = jax.device_put(arrays)
    env_id = options.env or dataset.meta.env_id
    env_id = None if env_id == "none" else env_id
    notes = [f"{finding.severity}: {finding.message}" for finding in report.findings if finding.severity != "note"]
    if env_id is None:
        notes.append("no environment is known for these data: training without evaluation (name one with --env)")
    facts = {
        "source": str(dataset.meta.source),
        "fingerprint": fingerprint,
        "steps": dataset.n_steps,
        "episodes": dataset.n_episodes,
        "transitions": source.size,
    }
    low, high = dataset.meta.ref_min, dataset.meta.ref_max
    reference = None if low is None or high is None else (low, high)
    limit = _value_limit(dataset, fitted, getattr(plan.settings, "discount", 0.99))
    return Prepared(dataset.spec, source, fitted, facts, tuple(notes), env_id, reference, limit)


def _value_limit(dataset: Dataset, fitted: Fitted, discount: float) -> float:
    """A thousand times the largest discounted sum of rewards there could be."""
    extremes = np.array([dataset.rewards.min(), dataset.rewards.max()], np.float32)
    if not fitted.reward_values:
        extremes = fitted.reward(extremes)
    return 1000.0 * max(1.0, float(np.abs(extremes).max())) / (1.0 - min(discount, 0.99))


def sample(source: Transitions | Streamed) -> Batch:
    """A fixed sample of the data, the same in every run on them."""
    rows = np.random.default_rng(0).integers(0, source.size, SAMPLE)
    return source.gather(rows) if isinstance(source, Streamed) else source.batch(jax.numpy.asarray(rows))


def open_evaluator(plan: Plan, prepared: Prepared) -> Evaluator | None:
    """The environments to score in, if any; refused before training starts if they do not fit the data."""
    if prepared.env_id is None:
        return None
    evaluator = Evaluator(
        prepared.env_id, reference=prepared.reference, allow_import=plan.options.env == prepared.env_id
    )
    try:
        evaluator.check(*prepared.spec)
    except OdiceError:
        evaluator.close()
        raise
    return evaluator
