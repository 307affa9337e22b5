"""`odice.imitate`: from demonstrations to a policy."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from odice.training.run import Run
from odice.training.train import train


def imitate(data: Any, *, episode: int | Iterable[int] = (), **options: Any) -> Run:
    """Learn from demonstrations, without rewards; the same as `odice imitate`, and as `odice.train(data,
    imitation=True)`.

    `episode` names the episodes to imitate (one or several, by default all), `suboptimal` other data to learn from
    as well. All options of `odice.train` hold. The policy is scored with the environment's own rewards.
    """
    chosen = [episode] if isinstance(episode, int) else list(episode)
    return train(data, **{**options, "episode": chosen, "imitation": True})
