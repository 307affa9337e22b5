"""The folder of a behavior policy's training: checkpoints, logs, and the policies that recipes need.

A checkpoint holds the networks, the replay, the state of every environment, and two policies: the first that was good
enough to count as *medium*, and the best. Everything random is a function of (seed, step), so a training that was
interrupted ends with the same bytes as one that was not.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from odice.collection.replay import width
from odice.collection.sac import SACConfig, State
from odice.collection.vector_env import VectorEnv
from odice.core.policies import SquashedPolicy
from odice.data.preprocess import Fitted
from odice.policy import Policy
from odice.training.checkpoint import Checkpoints
from odice.training.directory import RunDirectory
from odice.training.loggers import JsonLines, rows

STAGES = ("medium", "best")


class Stage(NamedTuple):
    """A policy of the training, and what it earned in its evaluation."""

    step: int
    mean: float
    policy: SquashedPolicy


class Snapshot(NamedTuple):
    """All that is needed to continue a training."""

    state: State
    rows: np.ndarray
    """The replay (`replay.pack`), one row per step."""
    envs: dict[str, list[int]]
    """The state of each environment (`VectorEnv.state`)."""
    stages: dict[str, Stage]

    @property
    def step(self) -> int:
        return len(self.rows)


class BehaviorFolder:
    """The files of a training. Call `restore` first: it opens the logs."""

    def __init__(self, directory: RunDirectory, envs: VectorEnv, cfg: SACConfig):
        self.path, self._policies = directory.path, directory.policy
        self._envs, self._cfg = envs, cfg
        self._checkpoints = Checkpoints(directory.checkpoints, keep=2)
        self._logs: list[JsonLines] = []
        self.saved = 0
        """The step of the newest checkpoint."""

    def restore(self, like: State) -> Snapshot | None:
        """Load the newest checkpoint; None if there is none. `like` has the shapes of the state."""

        def shapes(facts: dict[str, Any]) -> Any:
            replay = jax.ShapeDtypeStruct((facts["step"], width(self._envs.spec)), jnp.float32)
            return {"state": like, "rows": replay, **dict.fromkeys(STAGES, like.policy.params)}

        checkpoint = self._checkpoints.restore(shapes)
        self.saved = checkpoint.step if checkpoint else 0
        self._checkpoints.forget_after(self.saved)
        self.evaluations = JsonLines(self.path / "evaluations.jsonl", self.saved)
        self.timing = JsonLines(self.path / "timing.jsonl", self.saved)
        self._logs = [self.evaluations, self.timing]
        if checkpoint is None:
            return None
        arrays, facts = checkpoint.arrays, checkpoint.facts
        stages = {name: Stage(step, mean, arrays[name]) for name, (step, mean) in facts["stages"].items()}
        return Snapshot(arrays["state"], np.array(arrays["rows"]), facts["envs"], stages)

    def save(self, now: Snapshot) -> None:
        """Write a checkpoint, then the policies as folders of their own."""
        self.evaluations.sync()
        stages = {name: now.stages[name].policy if name in now.stages else now.state.policy.params for name in STAGES}
        facts = {name: [stage.step, stage.mean] for name, stage in now.stages.items()}
        arrays = {"state": now.state, "rows": now.rows, **stages}
        self._checkpoints.save(now.step, arrays, {"step": now.step, "envs": now.envs, "stages": facts})
        self._checkpoints.prune()
        self.saved = now.step
        for name, stage in now.stages.items():
            self.policy(stage.policy, stage.step).with_scores({"mean": stage.mean}).save(self._policies / name)
        self.policy(now.state.policy.params, now.step).save(self._policies / "last")

    def policy(self, network: SquashedPolicy, step: int | None = None) -> Policy:
        """A network of the training as a policy in the environment's units."""
        envs, task = self._envs, self._envs.task
        bounds = Fitted(action_low=tuple(envs.low.tolist()), action_high=tuple(envs.high.tolist()))
        return Policy.from_network(
            network.deterministic(),
            bounds,
            algorithm="sac",
            config=self._cfg,
            env_id=task.name,
            reference=task.reference,
            step=step,
        )

    @property
    def curve(self) -> list[tuple[int, float]]:
        """(step, mean return) of every evaluation."""
        return [(row["step"], row["mean"]) for row in rows(self.path / "evaluations.jsonl")]

    @property
    def last_timing(self) -> int:
        """The step of the newest row of `timing.jsonl`."""
        return max([row["step"] for row in rows(self.path / "timing.jsonl")], default=0)

    def close(self) -> None:
        for log in self._logs:
            log.close()
        self._checkpoints.close()
