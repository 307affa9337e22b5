"""Forecast the cost of a sweep's runs, before any of them starts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from odice.algos.validation import settings_dict
from odice.sweeps.runs import SweepRun, result
from odice.training.forecast import Forecast, forecast, total

SHAPE = ("hidden", "batch_size", "layer_norm", "heads")
"""Endings of the settings that decide what an update costs."""


def forecast_runs(runs: Sequence[SweepRun], workers: int | None = None) -> str:
    """Forecast in a sentence the time and the disk of the runs that are not finished.

    Updates are timed once for every algorithm and size of its networks, on the first log.
    """
    left = [run for run in runs if not result(run)]
    if not left:
        return "all runs are finished: nothing to do"
    measured: dict[Any, Forecast] = {}
    costs = []
    for run in left:
        shape = {name: value for name, value in settings_dict(run.settings.config).items() if name.endswith(SHAPE)}
        key = (run.settings.options.algo, repr(sorted(shape.items())))
        if key not in measured:
            measured[key] = forecast(run.settings)
        costs.append(measured[key]._replace(steps=run.steps))
    what = "the run that is" if len(left) == 1 else f"the {len(left)} runs that are"
    return f"{what} not finished: {total(costs, workers)} (estimated by timing a few updates on this machine)"
