"""Train a behavior policy: SAC in its environment, resumable from its folder (`behavior_folder`).

    steps of all environments -> replay -> as many updates in one compiled call -> sometimes evaluation and checkpoint

One folder serves all recipes of an environment and a seed.
"""

from __future__ import annotations

import dataclasses
import time
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, NamedTuple

import jax
import numpy as np

from odice.collection.behavior_folder import BehaviorFolder, Snapshot, Stage
from odice.collection.learner import explore, make_learn
from odice.collection.replay import Replay, segments
from odice.collection.sac import SACConfig, State
from odice.collection.vector_env import VectorEnv
from odice.core.policies import SquashedPolicy
from odice.d4rl import brief
from odice.errors import Interrupted, OdiceError
from odice.evaluation.simulator.evaluate import Environment, Evaluation, Evaluator
from odice.training.directory import RunDirectory
from odice.training.interrupt import Stop
from odice.training.loop import initial_state
from odice.training.progress import Display
from odice.training.provenance import versions

MEDIUM = 1 / 3
"""Share of the way from a random policy's return to an expert's at which a policy is called medium."""


@dataclass(frozen=True)
class Training:
    """Settings of the behavior policy's training, which makes one update per step after the warm-up."""

    sac: SACConfig = field(default_factory=SACConfig)
    """Settings of the actor-critic."""
    warmup: int = 10_000
    """Steps of uniformly random actions before the first update."""
    num_envs: int = 5
    """Environments that step in parallel."""
    chunk: int = 50
    """Steps between two calls of the compiled updates."""
    eval_every: int = 5_000
    """Steps between two evaluations; the first one that is good enough makes the medium policy."""
    eval_episodes: int = 10
    """Episodes per evaluation, with the deterministic policy."""
    checkpoint_every: int = 20_000
    """Steps between two checkpoints."""
    max_steps: int | None = None
    """Time limit of an episode, instead of the environment's own."""

    def __post_init__(self):
        numbers = dataclasses.asdict(self)
        for name in ("warmup", "num_envs", "chunk", "eval_every", "eval_episodes", "checkpoint_every"):
            if numbers[name] < 1:
                raise OdiceError(f"{name} must be at least 1, got {numbers[name]}.")
        if self.chunk % self.num_envs:
            raise OdiceError(f"chunk ({self.chunk}) must be a multiple of num_envs ({self.num_envs}).")
        for name in ("warmup", "eval_every", "checkpoint_every"):
            if numbers[name] % self.chunk:
                raise OdiceError(f"{name} ({numbers[name]}) must be a multiple of chunk ({self.chunk}).")


class Trained(NamedTuple):
    """The result of a training, for recipes."""

    step: int
    rows: np.ndarray
    """The replay (`replay.pack`)."""
    policy: SquashedPolicy
    medium: Stage | None
    best: Stage | None
    threshold: float | None
    """The return that counts as medium."""
    curve: list[tuple[int, float]]
    """(step, mean return) of every evaluation."""


def train(
    env: Environment,
    folder: str | Path,
    *,
    until: Literal["medium", "budget"] = "budget",
    budget: int = 1_000_000,
    seed: int = 0,
    target: float | None = None,
    training: Training | None = None,
    quiet: bool = False,
    allow_import: bool = False,
) -> Trained:
    """Train a behavior policy, or continue the training in `folder`.

    Ctrl-C writes a checkpoint and raises `Interrupted`.

    Args:
        env: A name, or a function that makes an environment.
        folder: The folder of the training.
        until: Stop at the first medium policy, or when the budget is used.
        budget: Environment steps; the training ends with the chunk in which they are reached.
        seed: Seed of the networks, the environments and the batches.
        target: An expert's return, where the task has no reference.
        training: Settings of the training.
        quiet: Print nothing.
        allow_import: Accept environments of other packages; see `odice.envs.make.make`.
    """
    training = training or Training()
    if budget < training.chunk:
        raise OdiceError(f"The budget is {budget} steps, less than one chunk of {training.chunk}; raise --budget.")
    options = {"max_steps": training.max_steps, "allow_import": allow_import}
    with ExitStack() as stack:
        directory = stack.enter_context(RunDirectory(folder))
        display = stack.enter_context(Display(budget, quiet=quiet))
        envs = VectorEnv(env, training.num_envs, (seed, 0), **options)
        stack.callback(envs.close)
        evaluator = stack.enter_context(Evaluator(env, **options))
        _claim(directory, envs.task.name, seed, target, training)
        stop = stack.enter_context(Stop())
        loop = _Loop(directory, envs, evaluator, training, seed, target, budget, display, stop)
        stack.callback(loop.folder.close)
        return loop.run(until)


def _claim(directory: RunDirectory, task: str, seed: int, target: float | None, training: Training) -> None:
    """Write the configuration to `config.json`, or refuse the folder of another training."""
    schedule = dataclasses.asdict(training)
    del schedule["checkpoint_every"]  # how often it is saved does not change what it learns
    directory.claim(
        {"behavior": "sac", "env": task, "seed": seed, "target": target, **schedule}, {"versions": versions()}
    )


class _Loop:
    """One training, from where it is to where it should end."""

    def __init__(
        self,
        directory: RunDirectory,
        envs: VectorEnv,
        evaluator: Evaluator,
        training: Training,
        seed: int,
        target: float | None,
        budget: int,
        display: Display,
        stop: Stop,
    ):
        self.folder = BehaviorFolder(directory, envs, training.sac)
        self._envs, self._evaluator, self._training = envs, evaluator, training
        self._seed, self._target, self._budget, self._display, self._stop = seed, target, budget, display, stop
        self._learn = make_learn(training.sac, envs.spec, training.chunk)
        self._stages: dict[str, Stage] = {}
        self._seconds = {"env": 0.0, "update": 0.0}
        self._restore()

    def _restore(self) -> None:
        """Continue from the newest checkpoint, or begin."""
        algo, envs, training = self._training.sac.build(self._envs.spec), self._envs, self._training
        initial = lambda: initial_state(algo, self._seed)
        snapshot = self.folder.restore(jax.eval_shape(initial))
        self._last_evaluation = self.folder.last_timing
        capacity = -(-max(self._budget, self.folder.saved) // training.chunk) * training.chunk
        self._replay = Replay(envs.spec, capacity)
        if snapshot is None:
            self.state: State = jax.jit(initial)()
            return
        self._display.note(f"continuing {self.folder.path} from step {snapshot.step:,}")
        self.state, self._stages = jax.device_put(snapshot.state), snapshot.stages
        if snapshot.step < self._budget:
            envs.resume(snapshot.envs, snapshot.rows)
        self._replay.restore(snapshot.rows)

    def run(self, until: str) -> Trained:
        training = self._training
        while self.step < self._budget and not (until == "medium" and "medium" in self._stages):
            self._collect()
            if self.step > training.warmup:
                self._update()
                if self.step % training.eval_every == 0:
                    self._evaluate()
            stopping = self._stop.requested  # read once: a later signal is handled, and saved, in the next turn
            if self.step % training.checkpoint_every == 0 or stopping:
                self._save()
            if stopping and self.step < self._budget:
                raise Interrupted(
                    f"stopped at step {self.step:,}; the checkpoint is in {self.folder.path}. Run the same command "
                    "again to continue.",
                    self._stop.signal,
                )
        if self.folder.saved != self.step:
            self._save()
        policy = jax.device_get(self.state.policy.params)
        medium, best = self._stages.get("medium"), self._stages.get("best")
        return Trained(self.step, self._replay.rows, policy, medium, best, self.threshold, self.folder.curve)

    @property
    def step(self) -> int:
        return self._replay.filled

    @property
    def threshold(self) -> float | None:
        """The return that counts as medium; None where no expert's return is known, or the warm-up is not over."""
        known = self._envs.task.reference
        high = self._target if self._target is not None else known and known[1]
        if high is None or self.step < self._training.warmup:
            return None
        low = known[0] if known else self._random_return()
        return low + MEDIUM * (high - low)

    def _collect(self) -> None:
        """Make a chunk of steps, random ones during the warm-up, then sampled from the policy."""
        began, envs, step = time.perf_counter(), self._envs, self.step
        fresh = []
        for at in range(step, step + self._training.chunk, envs.num_envs):
            if step < self._training.warmup:
                rng = np.random.default_rng([self._seed, 1, at])
                action = rng.uniform(-1.0, 1.0, (envs.num_envs, envs.spec.action_dim)).astype(np.float32)
            else:
                action = np.asarray(explore(self.state.policy.params, envs.obs, self._seed, at))
            fresh.append(envs.step(action))
        self._replay.add(np.concatenate(fresh))
        self._seconds["env"] += time.perf_counter() - began

    def _update(self) -> None:
        began, step = time.perf_counter(), self.step
        self.state, metrics = self._learn(self.state, self._replay.device, step, self._seed, step)
        self._metrics = jax.device_get(metrics)
        self._display.tick(step)
        self._seconds["update"] += time.perf_counter() - began

    def _evaluate(self) -> None:
        """Evaluate the policy, keep it if it is the first medium one or the best, and log both."""
        if not all(np.isfinite(value) for value in self._metrics.values()):
            raise OdiceError(f"{self.folder.path}: SAC diverged at step {self.step:,}; try another seed.")
        network = jax.device_get(self.state.policy.params)
        episodes, threshold = self._training.eval_episodes, self.threshold
        evaluation = self._evaluator(self.folder.policy(network), episodes=episodes, seed=self._seed)
        stage = Stage(self.step, evaluation.mean, network)
        if "medium" not in self._stages and threshold is not None and evaluation.mean >= threshold:
            self._stages["medium"] = stage
        if "best" not in self._stages or evaluation.mean > self._stages["best"].mean:
            self._stages["best"] = stage
        self._log(evaluation)

    def _log(self, evaluation: Evaluation) -> None:
        metrics = {name: float(value) for name, value in self._metrics.items()}
        self.folder.evaluations.write({"step": self.step, **evaluation.to_dict(), **metrics})
        updates = self.step - max(self._last_evaluation, self._training.warmup)
        self.folder.timing.write(
            {
                "step": self.step,
                "time": time.time(),
                "env_steps_per_second": (self.step - self._last_evaluation) / max(self._seconds["env"], 1e-9),
                "updates_per_second": updates / max(self._seconds["update"], 1e-9),
                "evaluation_seconds": evaluation.seconds,
            }
        )
        self._last_evaluation, self._seconds = self.step, {"env": 0.0, "update": 0.0}
        self._display.scored(f"return {brief(evaluation.mean)}", brief(self._stages["best"].mean))
        self._display.update(metrics)

    def _random_return(self) -> float:
        """Return the mean return of the warm-up's episodes, of the finished ones if there are any."""
        envs = self._envs
        started = segments(self._replay.rows[: self._training.warmup], envs.spec, envs.num_envs, envs.scale)
        finished = [segment for segment in started if segment.over] or started
        return float(np.mean([segment.episode.rewards.sum() for segment in finished]))

    def _save(self) -> None:
        self.folder.save(Snapshot(jax.device_get(self.state), self._replay.rows, self._envs.state, self._stages))
