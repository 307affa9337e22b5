"""Training the behaviour: SAC in its environment, in a folder from which it can be continued.

    steps of all lanes  ->  replay  ->  as many updates in one compiled call  ->  now and then an evaluation, a checkpoint

A checkpoint holds the networks, the whole replay, where every lane stands, and the policies that recipes ask for later: the first
that was good enough to count as *medium*, and the best. Everything random is a function of (seed, step), so a training that was
interrupted ends with the same bytes as one that was not. One folder serves all recipes of an environment and a seed.
"""

from __future__ import annotations

import dataclasses
import time
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from odice.algos.sac import SACConfig, State, sac
from odice.collection.learner import explore, make_learn
from odice.collection.replay import Replay, parts, width
from odice.collection.vector_env import Lanes
from odice.core.policies import SquashedPolicy
from odice.data.preprocess import Fitted
from odice.errors import Interrupted, OdiceError
from odice.evaluation.evaluate import Environment, Evaluator
from odice.policy.policy import Policy
from odice.run.checkpoint import Checkpoints
from odice.run.directory import RunDirectory
from odice.run.interrupt import Stop
from odice.run.loggers import JsonLines, rows
from odice.run.loop import initial_state
from odice.run.progress import Display

MEDIUM = 1 / 3
"""Share of the way from a random policy's return to an expert's at which a policy is called medium."""
STAGES = ("medium", "best")


@dataclass(frozen=True)
class Training:
    """How the behaviour learns. One update per step after the warm-up."""

    sac: SACConfig = field(default_factory=SACConfig)
    warmup: int = 10_000
    """Steps of uniformly random actions before the first update."""
    lanes: int = 5
    """Environments that step together."""
    chunk: int = 50
    """Steps between two calls of the compiled updates."""
    eval_every: int = 5_000
    """Steps between two evaluations; the first one that is good enough makes the medium policy."""
    eval_episodes: int = 10
    """Episodes per evaluation, with the deterministic policy."""
    checkpoint_every: int = 20_000
    """Steps between two checkpoints."""
    max_steps: int | None = None
    """Cut episodes here instead of at the environment's own time limit."""

    def __post_init__(self):
        for name in ("warmup", "lanes", "chunk", "eval_every", "eval_episodes", "checkpoint_every"):
            if getattr(self, name) < 1:
                raise OdiceError(f"{name} must be at least 1, got {getattr(self, name)}.")
        if self.chunk % self.lanes:
            raise OdiceError(f"chunk ({self.chunk}) must be a multiple of lanes ({self.lanes}).")
        for name in ("warmup", "eval_every", "checkpoint_every"):
            if getattr(self, name) % self.chunk:
                raise OdiceError(f"{name} ({getattr(self, name)}) must be a multiple of chunk ({self.chunk}).")


class Stage(NamedTuple):
    """A policy of the training, and what it earned in its evaluation."""

    step: int
    mean: float
    policy: SquashedPolicy


class Trained(NamedTuple):
    """What a training leaves for recipes."""

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
    """Train a behaviour, or continue the one in `folder`, until it is medium or `budget` steps are made.

    `target` is an expert's return, where the task has no reference. Ctrl-C writes a checkpoint and raises `Interrupted`.
    """
    training = training or Training()
    if budget < training.chunk:
        raise OdiceError(f"The budget is {budget} steps, less than one chunk of {training.chunk}; raise --budget.")
    with ExitStack() as stack:
        directory = stack.enter_context(RunDirectory(folder))
        display = stack.enter_context(Display(budget, quiet=quiet))
        lanes = Lanes(env, training.lanes, (seed, 0), max_steps=training.max_steps, allow_import=allow_import)
        stack.callback(lanes.close)
        evaluator = Evaluator(env, max_steps=training.max_steps, allow_import=allow_import)
        stack.callback(evaluator.close)
        _claim(directory, lanes, seed, target, training)
        stop = stack.enter_context(Stop())
        loop = _Loop(directory, lanes, evaluator, training, seed, target, budget, display, stop)
        stack.callback(loop.close)
        return loop.run(until)


def _claim(directory: RunDirectory, lanes: Lanes, seed: int, target: float | None, training: Training) -> None:
    from odice.run.provenance import versions

    schedule = dataclasses.asdict(training)
    del schedule["checkpoint_every"]  # how often it is saved does not change what it learns
    identity = {"behaviour": "sac", "env": lanes.task.name, "seed": seed, "target": target, **schedule}
    directory.claim(identity, {"versions": versions()})


class _Loop:
    """One training, from where it is to where it should end."""

    def __init__(
        self,
        directory: RunDirectory,
        lanes: Lanes,
        evaluator: Evaluator,
        training: Training,
        seed: int,
        target: float | None,
        budget: int,
        display: Display,
        stop: Stop,
    ):
        self._directory, self._lanes, self._evaluator, self._training = directory, lanes, evaluator, training
        self._seed, self._target, self._budget, self._display, self._stop = seed, target, budget, display, stop
        self._algo = sac(training.sac, lanes.spec)
        self._learn = make_learn(training.sac, lanes.spec, training.chunk)
        self._checkpoints = Checkpoints(directory.checkpoints, keep=2)
        self._stages: dict[str, Stage] = {}
        self._seconds = {"env": 0.0, "update": 0.0}
        self._restore()

    def close(self) -> None:
        self._evaluated.close()
        self._timing.close()
        self._checkpoints.close()

    # --- the loop ------------------------------------------------------------------------------------------------------

    def run(self, until: str) -> Trained:
        training = self._training
        while self.step < self._budget and not (until == "medium" and "medium" in self._stages):
            self._collect()
            if self.step > training.warmup:
                self._update()
                if self.step % training.eval_every == 0:
                    self._evaluate()
            asked = self._stop.asked  # once: a signal that comes after this waits for the next turn, and is saved there
            if self.step % training.checkpoint_every == 0 or asked:
                self._save()
            if asked and self.step < self._budget:
                raise Interrupted(
                    f"stopped at step {self.step:,}; the checkpoint is in {self._directory.path}. Run the same command "
                    "again to continue.",
                    self._stop.signal,
                )
        if self._saved != self.step:
            self._save()
        curve = [(row["step"], row["mean"]) for row in rows(self._directory.path / "evaluations.jsonl")]
        policy = jax.device_get(self.state.policy)
        medium, best = (self._stages.get(name) for name in STAGES)
        return Trained(self.step, self._replay.rows, policy, medium, best, self.threshold, curve)

    @property
    def step(self) -> int:
        return self._replay.filled

    @property
    def threshold(self) -> float | None:
        """The return that counts as medium; None where no expert's return is known, or the warm-up is not over."""
        known = self._lanes.task.reference
        high = self._target if self._target is not None else known and known[1]
        if high is None or self.step < self._training.warmup:
            return None
        low = known[0] if known else self._random_return()
        return low + MEDIUM * (high - low)

    def _collect(self) -> None:
        """A chunk of steps: random ones during the warm-up, then with the policy's own noise."""
        began, lanes, step = time.perf_counter(), self._lanes, self.step
        fresh = []
        for at in range(step, step + self._training.chunk, lanes.count):
            if step < self._training.warmup:
                rng = np.random.default_rng([self._seed, 1, at])
                action = rng.uniform(-1.0, 1.0, (lanes.count, lanes.spec.action_dim)).astype(np.float32)
            else:
                action = np.asarray(explore(self.state.policy, lanes.obs, self._seed, at))
            fresh.append(lanes.step(action))
        self._replay.add(np.concatenate(fresh))
        self._seconds["env"] += time.perf_counter() - began

    def _update(self) -> None:
        began, step = time.perf_counter(), self.step
        self.state, metrics = self._learn(self.state, self._replay.device, step, self._seed, step)
        self._metrics = jax.device_get(metrics)
        self._display.tick(step)
        self._seconds["update"] += time.perf_counter() - began

    def _evaluate(self) -> None:
        if not all(np.isfinite(value) for value in self._metrics.values()):
            raise OdiceError(f"{self._directory.path}: SAC diverged at step {self.step:,}; try another seed.")
        network = jax.device_get(self.state.policy)
        found = self._evaluator(self._policy(network), episodes=self._training.eval_episodes, seed=self._seed)
        stage = Stage(self.step, found.mean, network)
        threshold = self.threshold
        if "medium" not in self._stages and threshold is not None and found.mean >= threshold:
            self._stages["medium"] = stage
        if "best" not in self._stages or found.mean > self._stages["best"].mean:
            self._stages["best"] = stage
        learnt = {name: float(value) for name, value in self._metrics.items()}
        self._evaluated.write({"step": self.step, **found.to_dict(), **learnt})
        updates = self.step - max(self._last_evaluation, self._training.warmup)
        self._timing.write(
            {
                "step": self.step,
                "time": time.time(),
                "env_steps_per_second": (self.step - self._last_evaluation) / max(self._seconds["env"], 1e-9),
                "updates_per_second": updates / max(self._seconds["update"], 1e-9),
                "evaluation_seconds": found.seconds,
            }
        )
        self._last_evaluation, self._seconds = self.step, {"env": 0.0, "update": 0.0}
        self._display.scored(f"{found.mean:.1f}", f"{self._stages['best'].mean:.1f}")
        self._display.update(learnt)

    def _random_return(self) -> float:
        """Mean return of the warm-up's episodes, of the finished ones if there are any."""
        lanes = self._lanes
        found = parts(self._replay.rows[: self._training.warmup], lanes.spec, lanes.count, lanes.scale)
        whole = [part for part in found if part.over] or found
        return float(np.mean([part.episode.rewards.sum() for part in whole]))

    # --- on disk -------------------------------------------------------------------------------------------------------

    def _save(self) -> None:
        state = jax.device_get(self.state)
        self._evaluated.sync()
        stages = {name: self._stages[name].policy if name in self._stages else state.policy for name in STAGES}
        facts = {name: [stage.step, stage.mean] for name, stage in self._stages.items()}
        arrays = {"state": state, "rows": self._replay.rows, **stages}
        self._checkpoints.save(self.step, arrays, {"step": self.step, "lanes": self._lanes.state, "stages": facts})
        self._checkpoints.prune()
        self._saved = self.step
        for name, stage in (*self._stages.items(), ("last", Stage(self.step, 0.0, state.policy))):
            policy = self._policy(stage.policy, stage.step)
            policy = policy if name == "last" else policy.with_scores({"mean": stage.mean})
            policy.save(self._directory.policy / name)

    def _restore(self) -> None:
        """The newest checkpoint, or the beginning."""
        training, lanes, path = self._training, self._lanes, self._directory.path
        like: State = jax.eval_shape(lambda: initial_state(self._algo, self._seed))

        def wanted(facts: dict[str, Any]) -> Any:
            replay = jax.ShapeDtypeStruct((facts["step"], width(lanes.spec)), jnp.float32)
            return {"state": like, "rows": replay, **dict.fromkeys(STAGES, like.policy)}

        found = self._checkpoints.restore(wanted)
        self._saved = step = found.step if found else 0
        self._checkpoints.forget_after(step)
        self._evaluated = JsonLines(path / "evaluations.jsonl", step)
        self._timing = JsonLines(path / "timing.jsonl", step)
        self._last_evaluation = max([row["step"] for row in rows(path / "timing.jsonl")], default=0)
        capacity = -(-max(self._budget, step) // training.chunk) * training.chunk
        self._replay = Replay(lanes.spec, capacity)
        if found is None:
            self.state: State = jax.jit(lambda: initial_state(self._algo, self._seed))()
            return
        self._display.note(f"continuing {path} from step {step:,}")
        self.state = jax.device_put(found.arrays["state"])
        kept = found.facts["stages"].items()
        self._stages = {name: Stage(step, mean, found.arrays[name]) for name, (step, mean) in kept}
        replayed = np.array(found.arrays["rows"])
        if found.step < self._budget:
            lanes.resume(found.facts["lanes"], replayed)
        self._replay.restore(replayed)

    def _policy(self, network: SquashedPolicy, step: int | None = None) -> Policy:
        task, lanes = self._lanes.task, self._lanes
        bounds = Fitted(action_low=tuple(lanes.low.tolist()), action_high=tuple(lanes.high.tolist()))
        return Policy.from_network(
            network.deterministic(),
            bounds,
            algorithm="sac",
            config=self._training.sac,
            env_id=task.name,
            reference=task.reference,
            step=step,
        )
