"""Ten small worlds with known truth, each with the kind of table that people of its field keep.

A world steps many episodes at once, in numpy only. `make_log` writes what its people would have: their column names,
units and categories, one row per step. `simulate` tells what a policy is worth there, which nobody knows who has only
the log.

    path = write(hvac.make_log(seed=0), tmp_path / "hvac.csv")
    data = odice.load(path, **hvac.COLUMNS)
    returns = simulate(hvac.WORLD, policy, episodes=500, seed=1).returns
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import polars as pl

Act = Callable[[np.ndarray], np.ndarray]  # observations (n, obs) -> actions (n,) or (n, act)
Table = dict[str, Any]  # column -> one value per row


class World(NamedTuple):
    """A world for many episodes at once; a state has one row per episode. Randomness comes from the generator given."""

    observations: tuple[str, ...]  # names of the columns a policy sees
    start: Callable[[np.random.Generator, int], np.ndarray]  # (rng, n) -> state
    observe: Callable[[np.ndarray], np.ndarray]  # state -> observations (n, obs)
    behave: Callable[[np.random.Generator, np.ndarray], np.ndarray]  # (rng, state) -> what the log's authors did
    step: Callable[[np.random.Generator, np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray, np.ndarray]]
    # (rng, state, actions) -> state after, rewards, terminated
    horizon: int  # the log stops here; an episode that is not over is truncated


class Steps(NamedTuple):
    """Rows in order of (episode, step)."""

    episode: np.ndarray
    step: np.ndarray
    observations: np.ndarray
    actions: np.ndarray
    rewards: np.ndarray
    terminated: np.ndarray
    truncated: np.ndarray
    next_observations: np.ndarray


class Outcome(NamedTuple):
    """What a policy is worth: the undiscounted return of each episode, its length, and whether the world ended it."""

    returns: np.ndarray
    lengths: np.ndarray
    terminated: np.ndarray


def record(world: World, seed: int, episodes: int, act: Act | None = None) -> Steps:
    """Episodes under `act`, or as the log's authors behave."""
    rng = np.random.default_rng(seed)
    state = world.start(rng, episodes)
    alive = np.arange(episodes)
    parts = []
    for t in range(world.horizon):
        seen = world.observe(state)
        actions = world.behave(rng, state) if act is None else np.asarray(act(seen.astype(np.float32)))
        after, rewards, over = world.step(rng, state, actions)
        cut = ~over & (t == world.horizon - 1)
        parts.append((alive, np.full(len(alive), t), seen, actions, rewards, over, cut, world.observe(after)))
        alive, state = alive[~over], after[~over]
        if not len(alive):
            break
    columns = [np.concatenate(column) for column in zip(*parts, strict=True)]
    order = np.lexsort((columns[1], columns[0]))
    return Steps(*(column[order] for column in columns))


def simulate(world: World, act: Act, episodes: int = 500, seed: int = 0) -> Outcome:
    """What a policy does in the world itself."""
    steps = record(world, seed, episodes, act)
    returns = np.bincount(steps.episode, steps.rewards, minlength=episodes)
    lengths = np.bincount(steps.episode, minlength=episodes)
    return Outcome(returns, lengths, np.bincount(steps.episode, steps.terminated, minlength=episodes) > 0)


def observation_columns(world: World, steps: Steps, digits: int = 4) -> Table:
    """The observations as columns, rounded as a person's export is."""
    return {name: np.round(steps.observations[:, i], digits) for i, name in enumerate(world.observations)}


def write(table: Table, path: Path) -> Path:
    """The table as a CSV file."""
    pl.DataFrame({name: pl.Series(name, column) for name, column in table.items()}).write_csv(path)
    return path


from tests.worlds import ads, arm, batch, elevator, game, hospital, hvac, inventory, trading, traffic  # noqa: E402

WORLDS = (hospital, hvac, ads, inventory, traffic, arm, trading, game, batch, elevator)
