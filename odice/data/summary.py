"""A data set in numbers, as plain JSON: the summary of the doctor's report."""

from __future__ import annotations

from typing import Any

import numpy as np

from odice.d4rl import normalized_score
from odice.data.dataset import walk
from odice.data.doctor.scan import Columns, Scan
from odice.jsonable import jsonable

BINS = 20


def summarize(scan: Scan) -> dict[str, Any]:
    """Return sizes, returns, lengths, and ranges of rewards, actions and observations."""
    data = scan.dataset
    meta, spec = data.meta, data.spec
    reference = (meta.ref_min, meta.ref_max)
    score = normalized_score(float(np.mean(data.returns)), reference)
    summary = {
        "source": meta.source,
        "fingerprint": data.fingerprint,
        "env": meta.env_id,
        "episodes": data.n_episodes,
        "steps": data.n_steps,
        "bytes": data.nbytes,
        "terminated": int(data.terminated.sum()),
        "truncated": int((data.truncated & ~data.terminated).sum()),
        "final_observations": int(data.final_known.sum()),
        "obs_dim": spec.obs_dim,
        "action_dim": spec.action_dim,
        "discrete": spec.discrete,
        "returns": _spread(data.returns),
        "score": score,
        "reference": [meta.ref_min, meta.ref_max] if score is not None else None,
        "lengths": _spread(data.lengths),
        "reward": {**_columns(scan.reward)[0], "nonzero": np.mean(data.rewards != 0)},
        "actions": _action_counts(scan) if data.discrete else _actions(scan),
        "observations": _columns(scan.observation),
        "history": meta.history,
    }
    return jsonable(summary)


def _spread(values: np.ndarray) -> dict[str, Any]:
    """Mean, deviation, quartiles and a histogram of the finite values."""
    fine = np.asarray(values, np.float64)
    fine = fine[np.isfinite(fine)]
    if not fine.size:
        return {"mean": None, "std": None, "quartiles": [None] * 5, "histogram": {"edges": [], "counts": []}}
    edges = np.linspace(fine.min(), fine.max(), BINS + 1)
    if not (np.diff(edges) > 0).all():  # one value, or values too close together for so many bins
        edges = edges[[0, -1]]
    counts = np.histogram(fine, edges)[0] if len(edges) > 2 else np.array([fine.size])
    return {
        "mean": fine.mean(),
        "std": fine.std(),
        "quartiles": np.quantile(fine, [0, 0.25, 0.5, 0.75, 1]),
        "histogram": {"edges": edges, "counts": counts},
    }


def _columns(columns: Columns) -> list[dict[str, Any]]:
    return [
        {
            "name": name,
            "min": columns.low[i],
            "max": columns.high[i],
            "mean": columns.mean[i],
            "std": columns.std[i],
        }
        for i, name in enumerate(columns.names)
    ]


def _actions(scan: Scan) -> list[dict[str, Any]]:
    """Range of each action and the fraction of steps in which it is at its bound (declared, else the largest seen)."""
    columns = scan.action
    low, high = scan.bounds or (columns.low, columns.high)
    near = 1e-4 * (high - low)
    at = np.zeros(len(columns.names))
    for _, part in walk(columns.values):
        at += ((part >= high - near) | (part <= low + near)).sum(axis=0)
    fraction = at / len(columns.values)
    return [
        {**one, "saturation": fraction[i], "bounds": [low[i], high[i]] if scan.bounds else None}
        for i, one in enumerate(_columns(columns))
    ]


def _action_counts(scan: Scan) -> list[dict[str, Any]]:
    counts = scan.action_counts
    return [{"name": str(i), "share": count / counts.sum()} for i, count in enumerate(counts)]
