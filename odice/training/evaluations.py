"""Evaluations in the background of the compiled loop, one at a time; they depend on the policy and the seed alone.

They run in a process of their own (`evaluation.simulator.process`), so that an environment that hangs, or ends its
process, does not take the run with it. An environment that exists in this process alone (registered by the program that
called `train`) is evaluated in a thread here: what hangs there cannot be ended, only left behind when the run stops.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future

import numpy as np

from odice.evaluation.simulator.evaluate import Evaluation, Evaluator
from odice.evaluation.simulator.process import EvaluatorProcess, UnknownToWorker
from odice.policy.policy import Policy

LEAVE_SECONDS = 5.0
"""How long the end of a run waits for an evaluation in a thread to notice."""


class BackgroundEvaluator:
    """Runs evaluations one at a time, in the background.

    Args:
        evaluator: The environment.
        episodes: Of each evaluation.
        max_seconds: Time limit of an evaluation.
        allow_import: Whether the environment's name may import a module in the worker.
        plugins: Modules that the worker imports first.
    """

    def __init__(
        self,
        evaluator: Evaluator,
        episodes: int,
        *,
        max_seconds: float = 600.0,
        allow_import: bool = False,
        plugins: Sequence[str] = (),
    ):
        self._evaluator, self._episodes, self._max_seconds = evaluator, episodes, max_seconds
        self._start = lambda: EvaluatorProcess(evaluator, allow_import=allow_import, plugins=plugins)
        self._process: EvaluatorProcess | None = None
        self._in_thread = evaluator.spec is None
        self._stopped = False
        self._waiting: queue.SimpleQueue[tuple[Policy, int, Future[Evaluation]] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._work, name="odice-evaluate", daemon=True)
        self._thread.start()

    def submit(self, policy: Policy, seed: int) -> Future[Evaluation]:
        """Queue an evaluation of a policy."""
        future: Future[Evaluation] = Future()
        self._waiting.put((policy, seed, future))
        return future

    def _work(self) -> None:
        while (item := self._waiting.get()) is not None:
            policy, seed, future = item
            try:
                future.set_result(self._evaluate(policy, seed))
            except BaseException as error:  # whatever it is, it belongs to whoever waits for the result
                future.set_exception(error)

    def _evaluate(self, policy: Policy, seed: int) -> Evaluation:
        options = {"episodes": self._episodes, "seed": seed, "max_seconds": self._max_seconds}
        if not self._in_thread and (self._process is None or not self._process.alive):
            try:
                self._process = self._start()
            except UnknownToWorker:
                self._in_thread = True
        if self._stopped:
            raise InterruptedError("the run stops")
        if self._process is not None and not self._in_thread:
            return self._process(policy, **options)
        return self._evaluator(self._until_stopped(policy), **options)

    def _until_stopped(self, policy: Policy) -> Callable[[np.ndarray], np.ndarray]:
        def act(obs: np.ndarray) -> np.ndarray:
            if self._stopped:
                raise InterruptedError("the run stops")
            return policy(obs)

        return act

    def close(self) -> None:
        """Stop at once: an evaluation that is not finished is repeated on resume."""
        self._stopped = True
        self._waiting.put(None)
        if self._process is not None:
            self._process.close()
        self._thread.join(LEAVE_SECONDS)
        if self._process is not None:
            self._process.close()  # one that was started meanwhile
        if not self._thread.is_alive():
            self._evaluator.close()
