"""`odice.collect`: D4RL's recipes for any environment with a box of actions.

| recipe          | what is written                                                                                |
|-----------------|------------------------------------------------------------------------------------------------|
| `random`        | uniformly random actions                                                                       |
| `medium`        | draws of the first policy whose evaluation is a third of the way to an expert's return         |
| `medium-replay` | everything the behavior saw until then                                                         |
| `medium-expert` | half `medium`, half `expert`                                                                   |
| `expert`        | draws of the policy at the end of the training budget                                          |
| `full-replay`   | everything the behavior saw within the budget                                                  |
| `planner`       | in a maze: walks of a planner and a controller (`collection.planner`); the default in a maze   |

A random policy's return counts as 0 % of the way and an expert's as 100 %. These are D4RL's reference returns where
they are known, else the warm-up's mean return and `target`. What was done is written into the data set's history.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args

import numpy as np

from odice import __version__
from odice.collection.behavior import Trained, Training, train
from odice.collection.behavior_folder import Stage
from odice.collection.planner.mazes import collect_maze, plans
from odice.collection.replay import segments
from odice.collection.rollout import Behave, at_random, given, roll_out, sampled
from odice.collection.vector_env import VectorEnv
from odice.data.build import from_episodes
from odice.data.dataset import Dataset, Episode, Meta
from odice.data.join import concatenate
from odice.envs.make import resolve
from odice.errors import OdiceError, unknown_name
from odice.evaluation.simulator.evaluate import Environment, name_of
from odice.policy import open_policy
from odice.training.progress import Display
from odice.training.provenance import versions

Recipe = Literal["random", "medium", "medium-replay", "medium-expert", "expert", "full-replay", "planner"]
BUDGET = 1_000_000
STEPS = 100_000
# what is rolled out -> a number in the seeds of its episodes; the training has 0
SEEDS = {"random": 1, "medium": 2, "expert": 3, "policy": 4}


class Subset(NamedTuple):
    """Some episodes, and where they come from in a sentence."""

    data: Dataset
    origin: str


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
    behavior: str | Path | None = None,
    training: Training | None = None,
    noise: float | None = None,
    quiet: bool = False,
    allow_import: bool = False,
) -> Dataset:
    """Make a data set in an environment; the same as `odice data collect`.

    Args:
        env: A name, or a function that makes an environment.
        recipe: See `odice.collection.recipes`; leave it out if a `policy` is given.
        steps: How many; 100,000 by default. Of a replay, complete episodes drawn uniformly; all of it by default.
        out: Also write it there (`Dataset.save`).
        format: The format of `out`, where its suffix does not show it.
        seed: Seed of the training and of the episodes.
        target: An expert's return, where no reference is known.
        budget: Environment steps to train the behavior for.
        policy: Roll this out instead: a run or policy folder, or a function from observations to actions.
        behavior: Folder of the behavior's training, shared by the recipes of an environment and a seed; by default
            runs/collect/ENV/seed-N. An interrupted training is continued.
        training: Settings of the behavior's training.
        noise: Standard deviation of the noise on a planner's actions.
        quiet: Print nothing.
        allow_import: Accept environments of other packages; see `odice.envs.make.make`.
    """
    if plans(env, recipe, policy):
        steps = STEPS if steps is None else steps
        with Display(steps, quiet=quiet) as display:
            dataset = collect_maze(name_of(env), steps, seed=seed, noise=noise, progress=display.tick)
    else:
        _check(recipe, policy, steps, seed, target, noise, env)
        training = training or Training()
        folder = _behavior_folder(behavior, env, seed)
        with _Collector(env, seed, training, allow_import, quiet) as collector:
            trained = None
            if policy is not None:
                subsets = [collector.from_policy(policy, steps or STEPS)]
            elif recipe == "random":
                subsets = [collector.random(steps or STEPS)]
            else:
                until = "medium" if recipe in ("medium", "medium-replay") else "budget"
                options = {"budget": budget, "seed": seed, "target": target, "training": training, "quiet": quiet}
                trained = train(env, folder, until=until, allow_import=allow_import, **options)
                subsets = collector.from_training(recipe or "", trained, steps, budget, folder)
            dataset = collector.join(subsets, recipe or "policy", trained)
    if out is not None:
        dataset.save(out, format)
    return dataset


def plan(
    env: Environment,
    recipe: Recipe | None = None,
    *,
    steps: int | None = None,
    seed: int = 0,
    target: float | None = None,
    budget: int = BUDGET,
    policy: Any = None,
    behavior: str | Path | None = None,
    noise: float | None = None,
    **_: Any,
) -> str:
    """Describe in lines what `collect` would do with these arguments; make nothing."""
    if plans(env, recipe, policy):
        return f"planner   {name_of(env)}: {STEPS if steps is None else steps:,} steps"
    _check(recipe, policy, steps, seed, target, noise, env)
    wanted = (
        f"{steps:,} steps" if steps else f"{STEPS:,} steps" if "replay" not in (recipe or "") else "the whole replay"
    )
    lines = [f"collect   {recipe or name_of(policy)} in {name_of(env)}: {wanted}, seed {seed}"]
    if policy is None and recipe != "random":
        folder = _behavior_folder(behavior, env, seed)
        until = "until it is medium, at most" if recipe in ("medium", "medium-replay") else "for"
        begun = ", continued" if folder.exists() else ""
        lines.append(f"training  SAC in {folder}{begun}, {until} {budget:,} steps")
    return "\n".join(lines)


def _behavior_folder(behavior: str | Path | None, env: Environment, seed: int) -> Path:
    return Path(behavior or Path("runs", "collect", re.sub("[/:]", "-", name_of(env)), f"seed-{seed}"))


def _check(
    recipe: Any,
    policy: Any,
    steps: int | None,
    seed: int,
    target: float | None,
    noise: float | None,
    env: Environment,
) -> None:
    """Refuse arguments that do not fit each other, where no planner collects."""
    if noise is not None:
        raise OdiceError("noise belongs to the recipe planner; leave it out.")
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
            f"No expert's return is known for {env}; name one with --target; medium is a third of the way to it."
        )


class _Collector:
    """Collects the subsets of a data set in one environment."""

    def __init__(self, env: Environment, seed: int, training: Training, allow_import: bool, quiet: bool):
        self._env, self._seed, self._training = env, seed, training
        self._allow_import, self._quiet = allow_import, quiet
        self._opened: list[VectorEnv] = []

    def __enter__(self) -> _Collector:
        return self

    def __exit__(self, *exception: object) -> None:
        for envs in self._opened:
            envs.close()

    def random(self, steps: int) -> Subset:
        envs = self._open("random")
        return Subset(self._roll_out(envs, at_random(envs), steps), "uniformly random actions")

    def from_policy(self, policy: str | Path | Callable[[np.ndarray], Any], steps: int) -> Subset:
        name = name_of(policy)
        act = open_policy(policy) if isinstance(policy, str | Path) else policy
        envs = self._open("policy")
        return Subset(self._roll_out(envs, given(act, envs, name), steps), f"the policy {name}, without noise")

    def from_training(
        self, recipe: str, trained: Trained, steps: int | None, budget: int, folder: Path
    ) -> list[Subset]:
        """The subsets of a recipe that needs a trained behavior."""
        if "replay" in recipe:
            end = min(trained.step, budget) if recipe == "full-replay" else _medium(trained).step
            return [self._replay(trained.rows[:end], steps)]
        chunk = self._training.chunk
        if recipe != "medium" and trained.step > -(-budget // chunk) * chunk:  # a training ends with a whole chunk
            raise OdiceError(
                f"{folder} has learned for {trained.step:,} steps already, so the policy at --budget {budget:,} is "
                "gone; raise the budget, or choose another folder with --behavior."
            )
        last = Stage(trained.step, trained.curve[-1][1] if trained.curve else float("nan"), trained.policy)
        stages = {"medium": _medium(trained)} if "medium" in recipe else {}
        stages |= {"expert": last} if "expert" in recipe else {}
        each = -(-(steps or STEPS) // len(stages))
        return [self._stage(name, stage, each) for name, stage in stages.items()]

    def join(self, subsets: list[Subset], recipe: str, trained: Trained | None) -> Dataset:
        """Concatenate the subsets into one data set, with its history."""
        envs = self._opened[-1]
        task = envs.task
        dataset = concatenate([subset.data for subset in subsets])
        returns = dataset.returns
        history = [f"collected in {task.name} with the recipe {recipe}, seed {self._seed}"]
        history += [subset.origin for subset in subsets]
        if trained is not None:
            history.append(_describe(trained))
        history.append(f"returns: mean {returns.mean():.1f}, least {returns.min():.1f}, best {returns.max():.1f}")
        history.append("; ".join(f"{name} {v}" for name, v in {"odice": __version__, **versions()}.items()))
        reference = task.reference or (None, None)
        meta = Meta(
            source=f"{recipe} data of {task.name}",
            env_id=task.name if isinstance(self._env, str) else None,
            action_low=tuple(envs.low.tolist()),
            action_high=tuple(envs.high.tolist()),
            ref_min=reference[0],
            ref_max=reference[1],
            history=tuple(history),
        )
        return replace(dataset, meta=meta)

    def _stage(self, name: str, stage: Stage, steps: int) -> Subset:
        envs = self._open(name)
        score = "not evaluated" if np.isnan(stage.mean) else f"evaluation {stage.mean:.1f}"
        origin = f"{steps:,} steps drawn from SAC's policy at step {stage.step:,} ({score})"
        return Subset(self._roll_out(envs, sampled(stage.policy, envs), steps), origin)

    def _replay(self, rows: np.ndarray, steps: int | None) -> Subset:
        """The replay's episodes, or for a smaller number of steps a uniform sample of them."""
        envs = self._open("random")
        data = _dataset([segment.episode for segment in segments(rows, envs.spec, envs.num_envs, envs.scale)])
        origin = f"the replay of {len(rows):,} steps of SAC, {self._training.warmup:,} of them random"
        if steps is not None and steps < len(rows):
            order = np.random.default_rng([self._seed, 5]).permutation(data.n_episodes)
            enough = int(np.searchsorted(np.cumsum(data.lengths[order]), steps)) + 1
            data = data.select(np.sort(order[:enough])).first(steps)
            origin += f", of which {steps:,} in complete episodes were drawn uniformly"
        elif steps is not None and steps > len(rows):
            origin += f" (--steps was {steps:,})"
        return Subset(data, origin)

    def _roll_out(self, envs: VectorEnv, behave: Behave, steps: int) -> Dataset:
        with Display(steps, quiet=self._quiet) as display:
            return _dataset(roll_out(envs, behave, steps, display)).first(steps)

    def _open(self, what: str) -> VectorEnv:
        training = self._training
        options = {"max_steps": training.max_steps, "allow_import": self._allow_import}
        self._opened.append(VectorEnv(self._env, training.num_envs, (self._seed, SEEDS[what]), **options))
        return self._opened[-1]


def _dataset(episodes: list[Episode]) -> Dataset:
    return from_episodes(episodes, discrete=False)


def _medium(trained: Trained) -> Stage:
    """The medium policy, or the best there is if none was good enough within the budget."""
    stage = trained.medium or trained.best
    if stage is None:
        raise OdiceError("The behavior was never evaluated within its budget; raise --budget beyond the warm-up.")
    return stage


def _describe(trained: Trained) -> str:
    if trained.threshold is None:
        return f"SAC learnt for {trained.step:,} steps"
    text = f"a return of {trained.threshold:.1f} counts as medium"
    if trained.medium is not None:
        return f"{text}; SAC passed it at step {trained.medium.step:,} with {trained.medium.mean:.1f}"
    best = f"; its best was {trained.best.mean:.1f} at step {trained.best.step:,}" if trained.best else ""
    return f"{text}, which SAC did not reach in {trained.step:,} steps{best}"
