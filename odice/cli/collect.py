"""`odice data collect`: make a data set in an environment."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import tyro

from odice.collection.behavior import Training
from odice.collection.import_policy import import_policy
from odice.collection.recipes import BUDGET, STEPS, Recipe, collect, plan, plans
from odice.errors import OdiceError


@dataclass(frozen=True)
class Collect:
    """Make a data set in an environment: random, medium, expert and replay data as D4RL's, or a policy's episodes."""

    env: str
    """The environment, with a box of actions (any Gymnasium id)."""
    out: Path
    """Where to write: .hdf5, .parquet, or a Minari id or folder."""
    recipe: Recipe | None = None
    """What to collect; all but `random` and `planner` train SAC first (docs/howto/collect.md). In a maze the default is
    `planner` (docs/reference/mazes.md)."""
    steps: int | None = None
    """Steps to write; by default 100,000, and all of a replay."""
    seed: int = 0
    """Seed of the training and of the episodes."""
    target: float | None = None
    """An expert's return, if D4RL has no reference for the task; medium is a third of the way to it."""
    budget: int = BUDGET
    """Environment steps to train the behavior for."""
    policy: str | None = None
    """Roll out this instead of a recipe: a run or policy folder, or `module:function` with --allow-import."""
    noise: float | None = None
    """Standard deviation of the noise on the planner's actions; 0.5 for the ball, 0.2 for the ant."""
    allow_import: bool = False
    """Allow --policy to import a Python module."""
    behavior: Path | None = None
    """Folder of the training, shared by all recipes of an environment and a seed (default: runs/collect/ENV/seed-N)."""
    to: str | None = None
    """The format, if the suffix of OUT does not show it: d4rl, parquet or minari."""
    dry_run: bool = False
    """Print what would be done, with an estimate of the time and the disk; train nothing, write nothing."""
    quiet: bool = False
    """Print nothing but the result, warnings and errors."""
    training: tyro.conf.OmitArgPrefixes[Training] = field(default_factory=Training)

    def run(self) -> int:
        from odice.data.writers import format_of

        if self.out.exists():
            raise OdiceError(f"--out {self.out} exists already; choose another name.")
        format_of(str(self.out), self.to)  # refused before hours of training
        options = {
            name: getattr(self, name) for name in ("steps", "seed", "target", "budget", "behavior", "noise", "quiet")
        }
        policy = None if self.policy is None else import_policy(self.policy, self.allow_import)
        if self.dry_run:
            print(plan(self.env, self.recipe, policy=policy, training=self.training, **options))
            print(f"out       {self.out}", flush=True)
            print(f"cost      {self._cost(policy)}")
            return 0
        dataset = collect(self.env, self.recipe, policy=policy, training=self.training, allow_import=True, **options)
        place = dataset.save(str(self.out), self.to)
        for line in dataset.meta.history:
            print(f"  {line}")
        print(f"{place}: {dataset.n_episodes:,} episodes, {dataset.n_steps:,} steps, SHA-256 {dataset.fingerprint}")
        return 0

    def _cost(self, policy: Any) -> str:
        from odice.collection.forecast import cost, planner_cost

        if plans(self.env, self.recipe, policy):
            return planner_cost(self.env, STEPS if self.steps is None else self.steps)
        trains = policy is None and self.recipe != "random"
        steps = 0 if "replay" in (self.recipe or "") else self.steps or STEPS
        return cost(self.env, self.training, steps, self.budget if trains else 0, allow_import=True)
