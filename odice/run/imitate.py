"""`odice.imitate`: from demonstrations to a policy."""

from __future__ import annotations

from typing import Any

from odice.run.train import Run, train


def imitate(data: Any, **options: Any) -> Run | list[Run]:
    """Learn from demonstrations, without rewards; the same as `odice imitate`, and as `odice.train(data, imitation=True)`.

    `episode` names the episodes to imitate (`[1]`, by default all), `imperfect` other data to learn from beside them. All
    options of `odice.train` hold. The policy is scored with the environment's own rewards.
    """
    return train(data, **{**options, "imitation": True})
