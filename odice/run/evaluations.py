"""Evaluations beside the compiled loop, one after the other. Their results depend on the policy and the seed alone."""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor

import numpy as np

from odice.evaluation.evaluate import Evaluation, Evaluator
from odice.policy.policy import Policy


class BackgroundEvaluator:
    """Runs evaluations in a thread of its own."""

    def __init__(self, evaluator: Evaluator, episodes: int):
        self._evaluator, self._episodes = evaluator, episodes
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="odice-evaluate")
        self._stopped = False

    def submit(self, policy: Policy, seed: int) -> Future[Evaluation]:
        def act(obs: np.ndarray) -> np.ndarray:
            if self._stopped:
                raise InterruptedError("the run stops")
            return policy(obs)

        return self._pool.submit(self._evaluator, act, episodes=self._episodes, seed=seed)

    def close(self) -> None:
        """Stop at once: an evaluation that is not finished is repeated on resume."""
        self._stopped = True
        self._pool.shutdown(wait=True, cancel_futures=True)
        self._evaluator.close()
