"""Where in a maze does V tell one state from another? Its spread by distance to the goal, at a run's checkpoints.

    python benchmarks/value_spread.py RUN ...                       # O-DICE and S-DICE in an AntMaze
    python benchmarks/value_spread.py RUN ... --log LOG.hdf5        # where the log has moved

A table for docs/research/long_runs.md. The maze's cells are grouped by their number of moves to the goal's cell, those
of U-maze by default: 4 or more moves are the first corridor, 3 the turn, less the last corridor (`--moves 4 3 0`). For
every checkpoint and group: the standard deviation of V over the log's states there, and the share of the policy's
weight, w(r + gamma m V(s') - V(s)), that falls there. A run keeps its last checkpoints and its best; all of them
with `--keep 100` (`odice reproduce`: `--set keep=100`).

The checkpoints are copied before they are read, so a run that is still training is not disturbed.
"""

from __future__ import annotations

import argparse
import re
import shutil
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import odice
from odice.collection.planner.route import Grid
from odice.core.divergences import divergence
from odice.core.extraction import residual_weight
from odice.d4rl import MAZE_LAYOUTS, maze_size
from odice.training.checkpoint import Checkpoints
from odice.training.loop import initial_state
from odice.training.prepare import Prepared, prepare
from odice.training.settings import resolve

ALGORITHMS = ("odice", "sdice", "vdice-true")
BLOCK = 20_000
"""Rows that V sees at once."""


class Row(NamedTuple):
    """One checkpoint; a number for each group of cells."""

    step: int
    mean: float
    spread: list[float]
    share: list[float]


def moves_to_goal(xy: np.ndarray, size: str) -> np.ndarray:
    """(n,) How many cells lie between these positions and the goal's cell; each position counts for the nearest free
    cell."""
    grid = Grid.of_d4rl(size)
    distance = grid.distances(MAZE_LAYOUTS[size].goal)
    centers = np.array([grid.center(cell) for cell in distance])
    nearest = np.argmin(((np.asarray(xy)[:, None] - centers) ** 2).sum(-1), axis=1)
    return np.array(list(distance.values()))[nearest]


def groups(moves: np.ndarray, least: Sequence[int]) -> list[np.ndarray]:
    """(n,) masks: from the first number of moves on, from the next one to that, and so on."""
    ends = [np.inf, *least[:-1]]
    return [(moves >= low) & (moves < high) for low, high in zip(least, ends, strict=True)]


def measure(value: np.ndarray, weight: np.ndarray, parts: Sequence[np.ndarray]) -> tuple[list[float], list[float]]:
    """The spread of V in each part, and the share of the weight that falls there."""
    total = max(float(weight.sum()), np.finfo(float).tiny)
    return [float(value[part].std()) for part in parts], [float(weight[part].sum()) / total for part in parts]


def prepared(run: odice.Run, log: str | None) -> Prepared:
    """The log as the run saw it, under the run's settings."""
    record = run.config
    options = {name: value for name, value in record["config"].items() if name not in ("settings", "data", "env")}
    if options["algo"] not in ALGORITHMS:
        raise odice.OdiceError(f"{run.path}: {options['algo']} has other weights; this reads {', '.join(ALGORITHMS)}.")
    held = record["data"].get("holdout", 0.0)
    given = {**options, **record["config"]["settings"], "holdout": held, "env": "none", "allow": ("all",)}
    made = prepare(resolve(log or record["data"]["source"], **given))
    if made.about.facts["fingerprint"] != record["data"]["fingerprint"]:
        raise odice.OdiceError(f"{run.path} was trained on another log than {log}; name its own with --log.")
    return made


def states(run: odice.Run, like: Any, policy: Any) -> Iterator[tuple[int, Any]]:
    """The step and the state of every checkpoint, from copies."""
    found = [path for path in (run.path / "checkpoints").glob("*") if re.fullmatch(r"\d+", path.name)]
    if not found:
        raise odice.OdiceError(f"{run.path} has no checkpoints.")
    for path in sorted(found, key=lambda path: int(path.name)):
        with tempfile.TemporaryDirectory() as folder:
            shutil.copytree(path, Path(folder) / path.name)
            checkpoints = Checkpoints(Path(folder))
            alone = lambda facts: facts["pending"] in (None, facts["step"])
            restored = checkpoints.restore(
                lambda facts, alone=alone: {"state": like} | ({} if alone(facts) else {"pending": policy})
            )
            checkpoints.close()
        assert restored is not None
        yield restored.step, restored.arrays["state"]


def places(made: Prepared) -> np.ndarray:
    """(n, 2) Where the ant is in each transition, in meters."""
    seen, fitted = np.asarray(made.source.obs)[np.asarray(made.source.index), :2], made.fitted
    if fitted.obs_mean is None or fitted.obs_scale is None:
        return seen
    return seen * np.array(fitted.obs_scale[:2]) + np.array(fitted.obs_mean[:2])


def rows(
    run: odice.Run, log: str | None, least: Sequence[int], maze: str | None = None
) -> tuple[list[float], list[Row]]:
    """The share of the log's rows in each group, and what each checkpoint's V says there."""
    size = maze or maze_size(run.config["config"]["env"])
    if size is None:
        raise odice.OdiceError(f"{run.path} does not name one of D4RL's AntMazes as its environment; add --maze.")
    made = prepared(run, log)
    config, source, entry = made.settings.config, made.source, made.settings.algorithm
    algo, f = entry.build(config, made.spec), divergence(config.divergence)
    like = jax.eval_shape(lambda: initial_state(algo, 0))
    parts = groups(moves_to_goal(places(made), size), least)

    @jax.jit
    def judge(value, batch):
        now, later = value(batch.obs), jnp.min(value(batch.next_obs), axis=0)
        target = batch.reward + config.discount * (1.0 - batch.terminated) * later
        weight = residual_weight(target[None] - now, f, config.policy_weight, config.weight_clamp)
        return jnp.mean(now, axis=0), jnp.mean(weight, axis=0)

    batches = [source.batch(np.arange(at, min(at + BLOCK, source.size))) for at in range(0, source.size, BLOCK)]
    result = []
    for step, state in states(run, like, jax.eval_shape(algo.policy, like)):
        pieces = [judge(entry.value(state), batch) for batch in batches]
        value, weight = (np.concatenate([np.asarray(piece[i], np.float64) for piece in pieces]) for i in (0, 1))
        result.append(Row(step, float(value.mean()), *measure(value, weight, parts)))
    return [float(part.mean()) for part in parts], result


def main(paths: Sequence[str], log: str | None, least: Sequence[int], maze: str | None) -> None:
    print(f"Groups of cells: at least {', '.join(map(str, least))} moves from the goal's cell.")
    print("| run | updates | mean V | spread of V in each group | share of the weight | share of the rows |")
    print("|---|--:|--:|--:|--:|--:|")
    percent = lambda shares: ", ".join(f"{100 * share:.0f}" for share in shares) + " %"
    opened = [odice.Run.open(path) for path in paths]
    for run in [one for each in opened for one in each.seeds or (each,)]:
        here, found = rows(run, log, least, maze)
        for row in found:
            spread = ", ".join(f"{x:.0f}" for x in row.spread)
            cells = (str(run.path), f"{row.step:,}", f"{row.mean:.0f}", spread, percent(row.share), percent(here))
            print(f"| {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="+", help="folders of runs, or of the seeds of one")
    parser.add_argument("--log", help="the log they were trained on; by default the file that the run names")
    parser.add_argument("--moves", nargs="+", type=int, default=[4, 3, 0], help="least moves to the goal, falling")
    parser.add_argument("--maze", choices=sorted(MAZE_LAYOUTS), help="by default that of the run's environment")
    args = parser.parse_args()
    try:
        if args.moves != sorted(set(args.moves), reverse=True) or args.moves[-1] != 0:
            raise odice.OdiceError(f"--moves {args.moves}: numbers that fall to 0, such as 4 3 0.")
        main(args.runs, args.log, args.moves, args.maze)
    except odice.OdiceError as error:
        print(error, file=sys.stderr)
        sys.exit(2)
