"""`odice.imitate`: from demonstrations to a policy."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from odice.training.run import Run
from odice.training.train import train


def imitate(data: Any, *, episode: int | Iterable[int] = (), **options: Any) -> Run:
    """Learn from demonstrations, without rewards; the same as `odice imitate`.

    The policy is scored with the environment's own rewards.

    Args:
        data: Demonstrations: anything `odice.load` takes.
        episode: The episodes to imitate, by number: one or several; by default all.
        **options: Those of `odice.train`; `suboptimal` are other data to learn from as well.

    Returns:
        The finished run, as of `odice.train`.
    """
    chosen = [episode] if isinstance(episode, int) else list(episode)
    return train(data, **{**options, "episode": chosen, "imitation": True})
