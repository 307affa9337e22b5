"""The recorder of one seed: it writes the logs, checkpoints, evaluations and policies of a run.

The loop computes and knows no files; several seeds may share one loop (`vmap`), and each has a recorder of its own.
Everything it writes is a function of the configuration: wall-clock times go to `timing.jsonl` alone.
"""

from __future__ import annotations

import re
import time
import warnings
from collections.abc import Mapping
from concurrent import futures
from concurrent.futures import Future
from contextlib import suppress
from typing import Any, NamedTuple

import jax

from odice.algos.validation import settings_dict
from odice.d4rl import brief, normalized_score
from odice.errors import Diverged, OdiceError
from odice.evaluation.simulator.evaluate import Evaluation, evaluation_seed
from odice.evaluation.simulator.rollout import EvaluationTimeout
from odice.files import checksum, delete, make_folder
from odice.jsonable import jsonable
from odice.policy.file import is_name
from odice.policy.policy import Policy
from odice.training.checkpoint import Checkpoints, Restored, digest
from odice.training.directory import RunDirectory
from odice.training.divergence import advice, bad_metrics, bad_parameters
from odice.training.evaluations import BackgroundEvaluator
from odice.training.health import Watch, judge
from odice.training.interrupt import Stop
from odice.training.loggers import JsonLines, open_sink, rows
from odice.training.prepare import Prepared
from odice.training.progress import Display
from odice.types import Algo

POLL_SECONDS = 0.2
"""How often a run that waits for an evaluation checks whether it should stop."""
MOST_HANGING = 2
"""Evaluations in a row that may hang before no more are tried."""
STEP_POLICY = re.compile(r"step-\d+|\.step-\d+\.(?:[0-9a-f]{8}\.tmp|old)")
"""The names of a checkpoint's policy, and of what a killed writer of one leaves."""


class EvaluationWarning(UserWarning):
    """An evaluation was given up; the run went on without it."""


class Context(NamedTuple):
    """What the recorders of a run and its loop share."""

    prepared: Prepared
    algo: Algo
    evaluations: BackgroundEvaluator | None
    display: Display
    stop: Stop


class Pending(NamedTuple):
    """An evaluation that runs in the background."""

    step: int
    network: Any
    """The policy's parameters on the host."""
    future: Future[Evaluation]


class Recorder:
    """The files of one seed. Call `begin` before anything is written."""

    def __init__(self, context: Context, directory: RunDirectory, seed: int):
        self.directory, self.seed = directory, seed
        self.failure: Diverged | None = None
        self.due: int | None = None
        """The step of an evaluation that could not start: a signal came while another one went on."""
        self._prepared, self._algo, self._evaluations, self._display, self._stop = context
        self._settings, options = self._prepared.settings, self._prepared.settings.options
        self._checkpoints = Checkpoints(directory.checkpoints, options.keep)
        self._run = _run_id(self._prepared, seed)
        self._sums: dict[str, float] = {}
        self._count = 0
        self._pending: Pending | None = None
        self._hanging = 0
        self._last: dict[str, Any] = {}
        self._best: tuple[float, int] | None = None
        self._patience = None
        if self._prepared.log is not None and options.patience is not None:
            from odice.training.patience import Patience  # imports the estimators

            self._patience = Patience(options.patience, self._prepared.log)
        self._watch = Watch(self._settings.algorithm, options.steps or 0, self._prepared.probe.returns)

    # --- starting -----------------------------------------------------------------------------------------------------

    def restore(self, like: Any, at_most: int | None = None) -> Restored | None:
        """The newest intact checkpoint. `like` is the state's shapes."""

        def wanted(facts: Mapping[str, Any]) -> dict[str, Any]:
            if facts.get("run", self._run) != self._run:
                raise ValueError(f"it belongs to another run, of seed {facts['run']['seed']}")
            if facts["pending"] in (None, facts["step"]):
                return {"state": like}
            return {"state": like, "pending": jax.eval_shape(self._algo.policy, like)}

        return self._checkpoints.restore(wanted, at_most)

    def begin(self, restored: Restored | None) -> None:
        """Cut the logs to the checkpoint (or to nothing) and repeat the evaluation that was under way."""
        step, facts = (restored.step, restored.facts) if restored else (0, {"pending": None, "sums": {}, "count": 0})
        self._checkpoints.forget_after(step)
        self._prune_policies()
        path, pending = self.directory.path, facts["pending"]
        known = facts.get("logs", {})
        evaluated = step if pending is None else pending - 1
        self._metrics = JsonLines(path / "metrics.jsonl", step, known.get("metrics"))
        self._evaluated = JsonLines(path / "evaluations.jsonl", evaluated, known.get("evaluations"))
        self._timing = JsonLines(path / "timing.jsonl")
        if self._patience is not None:
            self._estimates = JsonLines(path / "estimates.jsonl", step, known.get("estimates"))
            self._patience.remember(rows(path / "estimates.jsonl"))
        self._sums, self._count = dict(facts["sums"]), facts["count"]
        for row in rows(path / "evaluations.jsonl"):
            self._last = row
            self._rank(row["mean"], row["step"])
        config = self.directory.read("config.json")["config"]
        self._sinks = [open_sink(name, path, config, step) for name in self._settings.options.log]
        if restored and pending is not None:
            arrays = restored.arrays
            self._submit(pending, arrays["pending"] if "pending" in arrays else self._algo.policy(arrays["state"]))
            if due := facts.get("due"):
                self.evaluate(due, self._algo.policy(arrays["state"]))

    # --- while it runs ------------------------------------------------------------------------------------------------

    def get_ready(self) -> None:
        """Load and fit what the first checkpoint will need, while the device works."""
        self._checkpoints.open()
        self._prepared.guard()
        self._prepared.probe.yardsticks()

    def record(self, step: int, length: int, metrics: Mapping[str, Any], extra: Mapping[str, float]) -> None:
        """Take in the mean metrics of `length` updates up to `step`; write a row where one is due."""
        self._collect(wait=False)
        self._display.tick(step)
        numbers = {name: float(value) for name, value in metrics.items()}
        if bad := bad_metrics(numbers, self._settings.algorithm, self._prepared.value_limit):
            raise self._diverged(step, bad)
        for name, number in numbers.items():
            self._sums[name] = self._sums.get(name, 0.0) + length * number
        self._count += length
        if step % self._settings.row_steps and step != self._settings.options.steps:
            return
        row = {name: total / self._count for name, total in self._sums.items()} | dict(extra)
        self._sums, self._count = {}, 0
        self._metrics.write({"step": step, **row})
        self._timing.write({"step": step, "time": time.time(), "updates_per_second": self._display.rate})
        self._display.update(row)
        self._log("train", step, row)
        for said in self._watch(step, row):
            self._display.warn(f"{self.directory.path}: {said}")

    def evaluate(self, step: int, network: Any) -> None:
        """Start an evaluation in the background; the one before must be finished first."""
        if self._collect(wait=True):
            self._submit(step, network)
        else:
            self.due = step

    def estimate(self, step: int, network: Any) -> None:
        """Estimate the policy from the log alone, where the run stops by that."""
        if self._patience is None:
            return
        policy = self.policy(step, network)
        began = time.perf_counter()
        row = self._patience.estimate(step, policy)
        self._estimates.write(row)
        self._timing.write({"step": step, "estimate_seconds": time.perf_counter() - began})
        if self._patience.best is row:
            policy.with_health(self._health(step, network)).save(self.directory.policy / "selected")

    @property
    def enough(self) -> bool:
        """Whether the log says that training on does not help."""
        return self._patience is not None and self._patience.enough

    def save(self, step: int, state: Any) -> None:
        """Commit everything up to `step`: rows first, then the checkpoint, then the policy."""
        self._collect(wait=False)
        if bad := bad_parameters(state):
            raise self._diverged(step, bad)
        self._metrics.sync()
        self._evaluated.sync()
        pending = self._pending
        arrays = {"state": state} | ({"pending": pending.network} if pending and pending.step != step else {})
        facts: dict[str, Any] = {"pending": pending.step if pending else self.due, "sums": self._sums}
        facts |= {"count": self._count, "due": self.due if pending else None}
        logs = {"metrics": self._metrics.text, "evaluations": self._evaluated.text}
        if self._patience is not None:
            self._estimates.sync()
            logs["estimates"] = self._estimates.text
        facts |= {"run": self._run, "logs": logs}
        began = time.perf_counter()
        self._checkpoints.save(step, arrays, {"step": step, **facts})
        seconds = time.perf_counter() - began
        self._checkpoints.prune(self._best[1] if self._best else None)
        self._prune_policies()
        size = sum(
            item.stat().st_size for item in (self.directory.checkpoints / str(step)).rglob("*") if item.is_file()
        )
        self._timing.write({"step": step, "checkpoint_seconds": seconds, "checkpoint_bytes": size})
        policy = self.policy(step, self._algo.policy(state))
        for name in (f"step-{step}", "last"):
            policy.save(self.directory.policy / name)

    def _prune_policies(self) -> None:
        """Every checkpoint has its policy, `policy/step-N`, for `odice select`; a policy goes with its checkpoint."""
        kept = {f"step-{step}" for step in self._checkpoints.steps}
        for folder in make_folder(self.directory.policy).iterdir():
            if STEP_POLICY.fullmatch(folder.name) and folder.name not in kept:
                delete(folder)

    def settle(self) -> bool:
        """Wait for the last evaluation; False if a signal came meanwhile."""
        return self.due is None and self._collect(wait=True)

    def finish(self, step: int, state: Any) -> dict[str, Any]:
        """The last policy, and the mark that the run is finished. First `settle`."""
        acts = self._algo.policy(state)
        health = self._health(step, acts)
        policy = self.policy(step, acts).with_scores(_scores(self._last)).with_health(health)
        policy.save(self.directory.policy / "last")
        result = {
            "step": step,
            "state_sha256": digest(state),
            "health": health,
            "last": _scores(self._last),
            "best": self._best and {"mean": self._best[0], "step": self._best[1]} | self._best_health(),
            "logs_sha256": {"metrics.jsonl": self._metrics.sha256, "evaluations.jsonl": self._evaluated.sha256},
        }
        if self._patience is not None and (best := self._patience.best):
            result["selected"] = {"step": best["step"], "answer": best["answer"], "bound": best["bound"]}
            result["stopped_early"] = self._patience.enough
        self._metrics.sync()
        self._evaluated.sync()
        self.directory.write("result.json", result)
        return result

    def _health(self, step: int, acts: Any) -> dict[str, Any]:
        """What health says of the policy at this step, by the metrics up to there."""
        written = [row for row in rows(self.directory.path / "metrics.jsonl") if row["step"] <= step]
        return jsonable(judge(self._settings.algorithm, written, acts, self._prepared.probe).to_dict())

    def _best_health(self) -> dict[str, Any]:
        """What stands in `policy/best`, if it does: it is not worth failing for."""
        health: dict[str, Any] = {}
        with suppress(OdiceError):
            health = Policy.load(self.directory.policy / "best").about.get("health") or {}
        return {"health": {name: health[name] for name in ("verdict", "says")}} if health else {}

    def close(self) -> None:
        for name in ("_metrics", "_evaluated", "_timing", "_estimates"):
            if log := getattr(self, name, None):
                log.close()
        for sink in getattr(self, "_sinks", []):
            sink.close()
        self._checkpoints.close()

    # --- evaluations --------------------------------------------------------------------------------------------------

    def policy(self, step: int, network: Any) -> Policy:
        """What is deployed: the network, what was done to its data, and where it comes from."""
        about, evaluator = self._prepared.about, self._prepared.about.evaluator
        return Policy.from_network(
            network.deterministic(),
            self._prepared.fitted,
            algorithm=self._settings.options.algo,
            config=settings_dict(self._settings.config),
            data=about.facts,
            env_id=evaluator.env_id if evaluator and is_name(evaluator.env_id) else None,
            reference=about.reference,
            step=step,
            guard=self._prepared.guard(),
        )

    def _submit(self, step: int, network: Any) -> None:
        if self._evaluations is not None and self._hanging < MOST_HANGING:
            seed = evaluation_seed(self.seed, step)
            self._pending = Pending(step, network, self._evaluations.submit(self.policy(step, network), seed))

    def _collect(self, wait: bool) -> bool:
        """Write down the evaluation that is under way, if it is finished (or as soon as it is). True if none is
        left."""
        if self._pending is None:
            return True
        step, network, future = self._pending
        while wait and not futures.wait([future], POLL_SECONDS).done and not self._stop.requested:
            pass
        if not future.done():
            return False
        self._pending = None
        try:
            evaluation, self._hanging = future.result(), 0
        except EvaluationTimeout as error:
            self._give_up(step, error)
            return True
        self._timing.write({"step": step, "evaluation_seconds": evaluation.seconds})
        self._last = row = {"step": step, **evaluation.to_dict()}
        if self._rank(evaluation.mean, step):
            best = self.policy(step, network).with_scores(_scores(row)).with_health(self._health(step, network))
            best.save(self.directory.policy / "best")
        self._evaluated.write(row)
        numbers = {name: row[name] for name in ("mean", "std", "worst", "score") if row[name] is not None}
        self._log("eval", step, numbers)
        best = self._best[0] if self._best else evaluation.mean
        kind = "return" if evaluation.reference is None else "score"
        self._display.scored(f"{kind} {_short(evaluation, evaluation.mean)}", _short(evaluation, best))
        return True

    def _give_up(self, step: int, error: EvaluationTimeout) -> None:
        """An environment that hangs costs its evaluation, not the run."""
        self._hanging += 1
        after = "the run goes on" if self._hanging < MOST_HANGING else "it is the second in a row, so no more are tried"
        warnings.warn(
            f"The evaluation at step {step:,} was given up; {after}. {error}", EvaluationWarning, stacklevel=3
        )
        self._timing.write({"step": step, "evaluation_given_up": str(error)})

    def _rank(self, mean: float, step: int) -> bool:
        """Keep the best; on a tie the earlier one."""
        if self._best is not None and mean <= self._best[0]:
            return False
        self._best = (mean, step)
        return True

    def _log(self, group: str, step: int, values: Mapping[str, float]) -> None:
        for sink in self._sinks:
            sink.write(group, step, values)

    def _diverged(self, step: int, bad: Mapping[str, float]) -> Diverged:
        good, (name, value) = self._checkpoints.steps, next(iter(bad.items()))
        kept = f"the last good checkpoint is at step {good[-1]:,}" if good else "there is no checkpoint yet"
        change = advice(self._settings.algorithm, self._settings.config, bad)
        return Diverged(
            f"{self.directory.path}: training diverged at step {step:,} ({name} is {value:.3g}); {kept}. {change}"
        )


def _run_id(prepared: Prepared, seed: int) -> dict[str, Any]:
    """What a checkpoint says of the run it belongs to: the seed, and a checksum of all that the numbers depend on."""
    config = jsonable(settings_dict(prepared.settings.config), words=True)
    known = {"algo": prepared.settings.options.algo, "seed": seed, "settings": config}
    return {"seed": seed, "sha256": checksum({**known, "data": prepared.about.facts["fingerprint"]})}


def _scores(row: Mapping[str, Any]) -> dict[str, Any]:
    names = ("mean", "std", "worst", "percent_difference", "score", "score_std", "episodes")
    return {name: row[name] for name in names if row.get(name) is not None}


def _short(evaluation: Evaluation, mean: float) -> str:
    score = normalized_score(mean, evaluation.reference)
    return brief(mean if score is None else score)
