"""`odice.collect`: D4RL's recipes for any environment with a box of actions.

| recipe          | what is written                                                                              |
|-----------------|----------------------------------------------------------------------------------------------|
| `random`        | uniformly random actions                                                                     |
| `medium`        | draws of the first policy whose evaluation is a third of the way to an expert's return       |
| `medium-replay` | everything the behaviour saw until then                                                      |
| `medium-expert` | half `medium`, half `expert`                                                                 |
| `expert`        | draws of the policy at the end of the training budget                                        |
| `full-replay`   | everything the behaviour saw within the budget                                               |
| `planner`       | in a maze: walks of a planner and a controller (`collection.planner`), a maze's recipe if none is named |

A random policy's return counts as 0 % of the way and an expert's as 100 %: D4RL's reference returns where they are known, else the
warm-up's mean return and `target`. What was done is written into the data set's history.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args

import numpy as np

from odice import __version__
from odice.collection.behavior import Stage, Trained, Training, train
from odice.collection.planner.mazes import collect_maze, plans
from odice.collection.replay import parts
from odice.collection.rollout import at_random, given, roll_out, sampled
from odice.collection.vector_env import Lanes
from odice.data.build import from_episodes
from odice.data.dataset import Dataset, Episode, Meta, concatenate
from odice.envs.make import resolve
from odice.errors import OdiceError, unknown_name
from odice.evaluation.evaluate import Environment
from odice.policy.policy import open_policy
from odice.run.progress import Display
from odice.run.provenance import versions

Recipe = Literal["random", "medium", "medium-replay", "medium-expert", "expert", "full-replay", "planner"]
BUDGET = 1_000_000
STEPS = 100_000
# what is rolled out -> the stream of its episodes' seeds; the training uses stream 0
STREAMS = {"random": 1, "medium": 2, "expert": 3, "policy": 4}


class Piece(NamedTuple):
    """Some episodes, and where they come from in a sentence."""

    data: Dataset
    told: str


def collect(
    env: Environment,
    recipe: Recipe | None = None,
    *,
    steps: int | None = None,
    out: str | Path | None = None,
    format: str | None = None,
    seed: int = 0,
    target: float | None = None,
    budget: int = BUDGET,
    policy: str | Path | Callable[[np.ndarray], Any] | None = None,
    behaviour: str | Path | None = None,
    training: Training | None = None,
    noise: float | None = None,
    quiet: bool = False,
    allow_import: bool = False,
) -> Dataset:
    """Make a data set in an environment; the same as `odice data collect`.

    env: a name, or a function that makes an environment.
    recipe: see `odice.collection.recipes`; leave it out if a `policy` is given.
    steps: how many; 100,000 by default. Of a replay, whole episodes drawn evenly from it; all of it by default.
    out: also write it there (`Dataset.save`).
    target: an expert's return, where no reference is known.
    budget: steps that the behaviour may learn for.
    policy: roll this out instead: a run or policy folder, or a function from observations to actions.
    behaviour: folder of the behaviour's training, shared by the recipes of an environment and a seed; by default
        runs/collect/ENV/seed-N. If it was interrupted there, it is continued.
    noise: standard deviation of the noise on a planner's actions.
    """
    if plans(env, recipe, policy):
        dataset = _walk(env, STEPS if steps is None else steps, seed, policy, noise, quiet)
        if out is not None:
            dataset.save(out, format)
        return dataset
    if noise is not None:
        raise OdiceError("noise belongs to the recipe planner; leave it out.")
    _check(recipe, policy, steps, seed, target, env)
    training = training or Training()
    name = env if isinstance(env, str) else getattr(env, "__name__", type(env).__name__)
    folder = Path(behaviour or Path("runs") / "collect" / name.replace("/", "-").replace(":", "-") / f"seed-{seed}")
    with ExitStack() as stack:
        kitchen = _Kitchen(env, seed, training, allow_import, quiet, stack)
        if policy is not None:
            pieces, behaved = [kitchen.outside(policy, steps or STEPS)], None
        elif recipe == "random":
            pieces, behaved = [kitchen.random(steps or STEPS)], None
        else:
            until = "medium" if recipe in ("medium", "medium-replay") else "budget"
            options = {"budget": budget, "seed": seed, "target": target, "training": training, "quiet": quiet}
            behaved = train(env, folder, until=until, allow_import=allow_import, **options)
            pieces = kitchen.cook(recipe or "", behaved, steps, budget, folder)
        dataset = kitchen.serve(pieces, recipe or "policy", behaved)
    if out is not None:
        dataset.save(out, format)
    return dataset


def _walk(env: Environment, steps: int, seed: int, policy: Any, noise: float | None, quiet: bool) -> Dataset:
    with Display(steps, quiet=quiet) as display:
        name = env if isinstance(env, str) else getattr(env, "__name__", type(env).__name__)
        return collect_maze(name, steps, seed=seed, policy=policy, noise=noise, progress=display.tick)


def _check(recipe: Any, policy: Any, steps: int | None, seed: int, target: float | None, env: Environment) -> None:
    if (recipe is None) == (policy is None):
        raise OdiceError("Give either a recipe or a policy to roll out, not both and not neither.")
    if recipe is not None and recipe not in get_args(Recipe):
        raise unknown_name("recipe", recipe, get_args(Recipe))
    for what, value, least in (("steps", steps, 1), ("seed", seed, 0)):
        if value is not None and value < least:
            raise OdiceError(f"{what} must be at least {least}, got {value}.")
    if target is not None and not np.isfinite(target):
        raise OdiceError(f"target must be a finite return, got {target}.")
    known = resolve(env).reference if isinstance(env, str) else None
    if recipe is not None and recipe.startswith("medium") and target is None and known is None:
        raise OdiceError(
            f"No expert's return is known for {env}; name one with --target, so that medium is a third of it."
        )


class _Kitchen:
    """Makes the pieces of a data set in one environment."""

    def __init__(
        self, env: Environment, seed: int, training: Training, allow_import: bool, quiet: bool, stack: ExitStack
    ):
        self._env, self._seed, self._training, self._allow = env, seed, training, allow_import
        self._quiet, self._stack = quiet, stack
        self._lanes: Lanes | None = None

    def cook(self, recipe: str, behaved: Trained, steps: int | None, budget: int, folder: Path) -> list[Piece]:
        """The pieces of a recipe that needs a trained behaviour."""
        if "replay" in recipe:
            end = min(behaved.step, budget) if recipe == "full-replay" else _medium(behaved).step
            return [self._replay(behaved.rows[:end], steps)]
        if recipe != "medium" and behaved.step > budget:
            raise OdiceError(
                f"{folder} has learnt for {behaved.step:,} steps already, so the policy at --budget {budget:,} is gone; "
                "raise the budget, or choose another folder with --behaviour."
            )
        last = Stage(behaved.step, behaved.curve[-1][1] if behaved.curve else float("nan"), behaved.policy)
        stages = {"medium": _medium(behaved)} if "medium" in recipe else {}
        stages |= {"expert": last} if "expert" in recipe else {}
        share = -(-(steps or STEPS) // len(stages))
        return [self._stage(name, stage, share) for name, stage in stages.items()]

    def random(self, steps: int) -> Piece:
        lanes = self._open("random")
        return Piece(self._roll(lanes, at_random(lanes), steps), "uniformly random actions")

    def outside(self, policy: str | Path | Callable[[np.ndarray], Any], steps: int) -> Piece:
        name = str(policy) if isinstance(policy, str | Path) else getattr(policy, "__name__", type(policy).__name__)
        act = open_policy(policy) if isinstance(policy, str | Path) else policy
        lanes = self._open("policy")
        return Piece(self._roll(lanes, given(act, lanes, name), steps), f"the policy {name}, without noise")

    def serve(self, pieces: list[Piece], recipe: str, behaved: Trained | None) -> Dataset:
        """One data set that says how it was made."""
        lanes = self._lanes or self._open("random")
        task = lanes.task
        dataset = concatenate([piece.data for piece in pieces])
        returns = dataset.returns
        told = [f"collected in {task.name} with the recipe {recipe}, seed {self._seed}"]
        told += [piece.told for piece in pieces]
        if behaved is not None:
            told.append(_tell(behaved))
        told.append(f"returns: mean {returns.mean():.1f}, least {returns.min():.1f}, best {returns.max():.1f}")
        told.append("; ".join(f"{name} {v}" for name, v in {"odice": __version__, **versions()}.items()))
        reference = task.reference or (None, None)
        meta = Meta(
            source=f"{recipe} data of {task.name}",
            env_id=task.name if isinstance(self._env, str) else None,
            action_low=tuple(lanes.low.tolist()),
            action_high=tuple(lanes.high.tolist()),
            ref_min=reference[0],
            ref_max=reference[1],
            history=tuple(told),
        )
        return replace(dataset, meta=meta)

    # --- pieces --------------------------------------------------------------------------------------------------------

    def _stage(self, name: str, stage: Stage, steps: int) -> Piece:
        lanes = self._open(name)
        told = f"{steps:,} steps drawn from SAC's policy at step {stage.step:,} (evaluation {stage.mean:.1f})"
        return Piece(self._roll(lanes, sampled(stage.policy, lanes), steps), told)

    def _replay(self, rows: np.ndarray, steps: int | None) -> Piece:
        """The replay's episodes; if fewer steps are asked for, as many of them as are needed, drawn evenly."""
        lanes = self._open("random")
        data = _dataset([part.episode for part in parts(rows, lanes.spec, lanes.count, lanes.scale)])
        told = f"the replay of {len(rows):,} steps of SAC, {self._training.warmup:,} of them random"
        if steps is not None and steps < len(rows):
            order = np.random.default_rng([self._seed, 5]).permutation(data.n_episodes)
            enough = int(np.searchsorted(np.cumsum(data.lengths[order]), steps)) + 1
            data = data.select(np.sort(order[:enough])).first(steps)
            told += f", of which {steps:,} in whole episodes were drawn evenly"
        elif steps is not None and steps > len(rows):
            told += f" (--steps asked for {steps:,})"
        return Piece(data, told)

    def _roll(self, lanes: Lanes, behave: Any, steps: int) -> Dataset:
        with Display(steps, quiet=self._quiet) as display:
            return _dataset(roll_out(lanes, behave, steps, display)).first(steps)

    def _open(self, stream: str) -> Lanes:
        training = self._training
        options = {"max_steps": training.max_steps, "allow_import": self._allow}
        self._lanes = Lanes(self._env, training.lanes, (self._seed, STREAMS[stream]), **options)
        self._stack.callback(self._lanes.close)
        return self._lanes


def _dataset(episodes: list[Episode]) -> Dataset:
    return from_episodes(episodes, discrete=False)


def _medium(behaved: Trained) -> Stage:
    """The medium policy, or the best there is if none was good enough within the budget."""
    stage = behaved.medium or behaved.best
    if stage is None:
        raise OdiceError("The behaviour was never evaluated within its budget; raise --budget beyond the warm-up.")
    return stage


def _tell(behaved: Trained) -> str:
    if behaved.threshold is None:
        return f"SAC learnt for {behaved.step:,} steps"
    text = f"a return of {behaved.threshold:.1f} counts as medium"
    if behaved.medium is not None:
        return f"{text}; SAC passed it at step {behaved.medium.step:,} with {behaved.medium.mean:.1f}"
    best = f"; its best was {behaved.best.mean:.1f} at step {behaved.best.step:,}" if behaved.best else ""
    return f"{text}, which SAC did not reach in {behaved.step:,} steps{best}"
