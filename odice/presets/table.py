"""What a preset is made of: settings with their sources, the protocol around the updates, rows by data set."""

from __future__ import annotations

from typing import Any, NamedTuple

from odice.d4rl import ANTMAZE_DATA, LOCOMOTION_DATA


class Setting(NamedTuple):
    """One number and where it comes from."""

    value: Any
    source: str


class Protocol(NamedTuple):
    """What surrounds the updates: how long, how the data are transformed, how the policy is scored."""

    steps: int = 1_000_000
    reward: str = "none"
    """Name of the reward map (`data.preprocess`)."""
    normalize_obs: bool = False
    clip_actions: float | None = None
    """Logged actions are clipped to +- this."""
    convention: str = "qlearning"
    """Which steps count (`data.transitions`)."""
    final_obs: str = "recorded"
    """What follows a demonstration that was cut by time (`data.demonstrations`)."""
    absorbing: bool = False
    """Whether a state that absorbs follows every terminal one (`data.preprocess`)."""
    eval_every: int = 5_000
    eval_episodes: int = 10
    source: str = ""


OWN = Protocol(
    steps=20_000,
    eval_every=1_000,
    normalize_obs=True,
    convention="bootstrap",
    source="odice's own: cloning failed on raw observations (docs/research/public_agents.md); steps with a next state "
    "count",
)
"""The protocol where no preset is chosen."""

OWN_PROTOCOLS = {
    "auto": OWN._replace(
        steps=10_000,
        reward="return-spread",
        source=f"{OWN.source}; twice as many updates earn no more on the bundled log (docs/research/auto.md); the "
        "reward map was not compared with others",
    ),
    "diffusion-dice": OWN._replace(
        reward="return-spread",
        source=f"{OWN.source}; returns of standard deviation 10, so that alpha has a meaning for every log",
    ),
}
"""Algorithms that have another protocol where no preset is chosen."""


def own_protocol(algo: str) -> Protocol:
    """Return an algorithm's protocol where no preset is chosen."""
    return OWN_PROTOCOLS.get(algo, OWN)


class Row(NamedTuple):
    """A preset's values for one data set, over its general ones."""

    settings: dict[str, Setting]
    protocol: Protocol


class Table(NamedTuple):
    """A preset for one algorithm: general values, and rows by data set."""

    settings: dict[str, Setting]
    protocol: Protocol
    rows: dict[str, Row] = {}


def settings(source: str, **values) -> dict[str, Setting]:
    """Settings that share one source."""
    return {name: Setting(value, source) for name, value in values.items()}


def rows(mujoco: Row, antmaze: Row, **others: Row) -> dict[str, Row]:
    """One row for the locomotion data, one for the mazes, and exceptions by name (with _ for -)."""
    families = dict.fromkeys(LOCOMOTION_DATA, mujoco) | dict.fromkeys(ANTMAZE_DATA, antmaze)
    return families | {name.replace("_", "-"): row for name, row in others.items()}
