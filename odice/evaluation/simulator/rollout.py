"""One episode, a batch of episodes stepped in parallel, and their time limit."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

from odice.envs.perturb import perturb_start
from odice.errors import OdiceError
from odice.machine import cores

if TYPE_CHECKING:
    import gymnasium

Act = Callable[[np.ndarray], Any]
"""From a batch of raw observations (float32) to a batch of the environment's actions. A `Policy` is one."""

BATCH_ENVS = 16
"""Rows of every batch that the policy sees, however many environments run."""
MAX_STEPS = 100_000
"""Steps after which an episode in an environment without a time limit is an error."""


class Rollout:
    """One episode of an environment: its return so far, length and cost.

    Args:
        name: The environment's name, for messages.
        seed: Of the reset, and of the noise.
        noise: Standard deviation of Gaussian noise on every observed number.
        start_noise: Standard deviation of Gaussian noise on the start state (`envs.perturb`).
        max_steps: Steps after which an episode that does not end is an error.
    """

    def __init__(self, name: str, seed: int, noise: float, start_noise: float, max_steps: int = MAX_STEPS):
        self.name, self.seed, self.noise, self.start_noise = name, seed, noise, start_noise
        self.rng = np.random.default_rng([seed, 1])  # independent of the other episodes'
        self.max_steps, self.total, self.length, self.over = max_steps, 0.0, 0, False
        self.cost: float | None = None  # the sum of `info["cost"]`, where the environment reports it

    def start(self, env: gymnasium.Env) -> None:
        """Reset the environment, and keep it until the episode ends."""
        self.env = env

        def call() -> Any:
            obs, _ = env.reset(seed=self.seed)
            return obs

        obs = self._guard("reset", call)
        if self.start_noise:
            obs = perturb_start(env, self.start_noise, self.rng)
        self.obs = self._noisy(obs)

    def step(self, action: Any) -> None:
        """Take one step; `over` says whether it was the last."""

        def call() -> tuple[Any, float, float | None, bool]:
            obs, reward, terminated, truncated, info = self.env.step(action)
            return obs, float(reward), float(info["cost"]) if "cost" in info else None, bool(terminated or truncated)

        obs, reward, cost, self.over = self._guard("step", call)
        self.total += reward
        if cost is not None:
            self.cost = (self.cost or 0.0) + cost
        self.length += 1
        self.obs = self._noisy(obs)
        if not self.over and self.length >= self.max_steps:
            raise OdiceError(f"{self.name} did not end within {self.length} steps; cut its episodes with --max-steps.")
        if self.over and not np.isfinite(self.total):
            raise OdiceError(f"{self.name} gave a return of {self.total} in the episode with seed {self.seed}.")

    def _noisy(self, obs: np.ndarray) -> np.ndarray:
        return obs + self.noise * self.rng.standard_normal(np.shape(obs)) if self.noise else obs

    def observed(self, shape: tuple[int, ...]) -> np.ndarray:
        """Return the observation, checked against the declared shape: numpy would broadcast a shorter one."""
        if np.shape(self.obs) != shape:
            raise OdiceError(
                f"{self.name} gave an observation of shape {np.shape(self.obs)} in step {self.length} of the episode "
                f"with seed {self.seed}, but declares {shape}; correct the environment."
            )
        return self.obs

    def _guard(self, what: str, call: Callable[[], Any]) -> Any:
        try:
            return call()
        except OdiceError:
            raise
        except (Exception, SystemExit) as error:
            raise OdiceError(
                f"{self.name} failed in {what} {self.length + 1} of the episode with seed {self.seed}: "
                f"{type(error).__name__}: {error}"
            ) from error


def play(act: Act, episodes: list[Rollout], envs: list[gymnasium.Env], deadline: Deadline, pool: StepPool) -> None:
    """Run episodes to their end, as many at a time as there are environments.

    Args:
        act: The policy.
        episodes: At most `BATCH_ENVS`, not yet started.
        envs: Environments of one kind.
        deadline: When to give up.
        pool: Steps the environments.
    """
    batch = empty_batch(envs[0])
    convert = converter(envs[0].action_space, episodes[0].name)
    waiting, free = list(enumerate(episodes)), list(envs)
    running: list[tuple[int, Rollout]] = []
    while waiting or running:
        while waiting and free:
            row, episode = waiting.pop(0)
            episode.start(free.pop())
            running.append((row, episode))
        for row, episode in running:
            batch[row] = episode.observed(batch.shape[1:])
        actions = convert(act(batch), [row for row, _ in running])
        pool.each(Rollout.step, [(episode, action) for (_, episode), action in zip(running, actions, strict=True)])
        free += [episode.env for _, episode in running if episode.over]
        running = [item for item in running if not item[1].over]
        deadline.check()


def empty_batch(env: gymnasium.Env) -> np.ndarray:
    """Return an empty batch of observations, of the size that the policy always sees."""
    return np.zeros((BATCH_ENVS, *(env.observation_space.shape or ())), np.float32)


def converter(space: gymnasium.Space, name: str) -> Callable[[Any, list[int]], list[Any]]:
    """Return a function from a batch of the policy's actions and some of its rows to arguments of `step`."""
    from gymnasium import spaces

    discrete = isinstance(space, spaces.Discrete)
    first = int(space.start) if isinstance(space, spaces.Discrete) else 0
    shape = (BATCH_ENVS,) if discrete else (BATCH_ENVS, *(space.shape or ()))

    def convert(given: Any, rows: list[int]) -> list[Any]:
        actions = np.asarray(given)
        if actions.shape != shape:
            raise OdiceError(f"{name} takes a batch of actions of shape {shape}, the policy gave {actions.shape}.")
        actions = actions[rows]
        if discrete:
            return [int(action) + first for action in actions]
        if not np.isfinite(actions).all():
            raise OdiceError(f"The policy gave {name} an action that is not finite; its weights or inputs are broken.")
        return list(actions.astype(space.dtype, copy=False))

    return convert


class StepPool:
    """Step environments in threads where that pays: MuJoCo releases Python's lock while it simulates.

    Only for environments that ship with Gymnasium; one that a user wrote may share state between its instances.
    """

    def __init__(self, env: gymnasium.Env):
        builtin = type(env.unwrapped).__module__.split(".")[0] in ("gymnasium", "gymnasium_robotics")
        self._workers = min(cores(), 4) if builtin and hasattr(env.unwrapped, "data") else 1
        self._threads = ThreadPoolExecutor(self._workers - 1, "odice-envs") if self._workers > 1 else None

    def each(self, function: Callable[..., None], calls: list[tuple[Any, ...]]) -> None:
        """Make every call once; an error is raised when all calls have ended."""

        def some(chunk: list[tuple[Any, ...]]) -> None:
            for arguments in chunk:
                function(*arguments)

        if self._threads is None or len(calls) < 2 * self._workers:
            return some(calls)
        others = [self._threads.submit(some, calls[i :: self._workers]) for i in range(1, self._workers)]
        try:
            some(calls[:: self._workers])
        finally:
            wait(others)
        for other in others:
            other.result()

    def close(self) -> None:
        if self._threads is not None:
            self._threads.shutdown()


class EvaluationTimeout(OdiceError):
    """An evaluation exceeded its time limit, or its process ended."""


class Deadline:
    """A time limit. In the main thread it also interrupts a step that does not return."""

    def __init__(self, name: str, seconds: float):
        self.name, self.seconds, self.deadline = name, seconds, time.perf_counter() + seconds

    def check(self) -> None:
        """Raise an `EvaluationTimeout` after the time limit."""
        if time.perf_counter() > self.deadline:
            raise self._error()

    def _error(self) -> EvaluationTimeout:
        return EvaluationTimeout(
            f"{self.name} was not finished after {self.seconds:g} s; "
            "raise --max-seconds or cut its episodes with --max-steps."
        )

    @contextmanager
    def alarm(self) -> Iterator[None]:
        """Interrupt a call that does not return: in the main thread, where the system has alarms and none is set."""
        main = threading.current_thread() is threading.main_thread()
        free = main and hasattr(signal, "setitimer") and not signal.getitimer(signal.ITIMER_REAL)[0]
        if not free or self.seconds > 1e8:
            yield
            return

        def ring(*_: Any) -> None:
            raise self._error()

        before = signal.signal(signal.SIGALRM, ring)
        signal.setitimer(signal.ITIMER_REAL, self.seconds + 0.5)  # the check between steps comes first where it can
        try:
            yield
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before)
