"""Episodes in a simulator: what a policy really earns.

Many environments are stepped together, so that one batched call of the policy serves them all. The result of an episode
depends on its seed alone, not on how many others run beside it: matrix products round differently for other batch sizes,
and a contact-rich simulator turns the last bit into another episode. So the policy always sees a batch of `LANES` rows, and
episode i always sits in row i modulo `LANES`.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from odice.data.scores import normalized_score
from odice.envs.make import make, resolve
from odice.errors import OdiceError

if TYPE_CHECKING:
    import gymnasium

Act = Callable[[np.ndarray], Any]
"""From a batch of raw observations (float32) to a batch of the environment's actions. A `Policy` is one."""

LANES = 16
NO_LIMIT_STEPS = 100_000  # an episode longer than this, in an environment without a time limit, will not end


@dataclass(frozen=True)
class Evaluation:
    """Every episode's raw return, length and seed, and what is read from them."""

    env_id: str
    returns: np.ndarray
    lengths: np.ndarray
    seeds: np.ndarray
    reference: tuple[float, float] | None = None
    noise: float = 0.0
    start_noise: float = 0.0
    seconds: float = 0.0

    @property
    def mean(self) -> float:
        return float(self.returns.mean())

    @property
    def std(self) -> float:
        """Population standard deviation over the episodes."""
        return float(self.returns.std())

    @property
    def worst(self) -> float:
        return float(self.returns.min())

    @property
    def percent_difference(self) -> float | None:
        """100 (worst - mean) / |mean|, the paper's measure of robustness; None where the mean is 0."""
        return 100.0 * (self.worst - self.mean) / abs(self.mean) if self.mean else None

    @property
    def scores(self) -> np.ndarray | None:
        """Normalised returns, where a reference is known."""
        return normalized_score(self.returns, self.reference)

    @property
    def score(self) -> float | None:
        """Mean normalised return."""
        return None if self.scores is None else float(self.scores.mean())

    @property
    def score_std(self) -> float | None:
        return None if self.scores is None else float(self.scores.std())

    @property
    def steps(self) -> int:
        return int(self.lengths.sum())

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values. Without the time it took: the same evaluation gives the same bytes."""
        return {
            "env_id": self.env_id,
            "episodes": len(self.returns),
            "noise": self.noise,
            "start_noise": self.start_noise,
            "returns": self.returns.tolist(),
            "lengths": self.lengths.tolist(),
            "seeds": self.seeds.tolist(),
            "reference": None if self.reference is None else list(self.reference),
            "mean": self.mean,
            "std": self.std,
            "worst": self.worst,
            "percent_difference": self.percent_difference,
            "score": self.score,
            "score_std": self.score_std,
        }


def evaluate(
    act: Act,
    env_id: str,
    *,
    episodes: int = 10,
    seed: int = 0,
    noise: float = 0.0,
    start_noise: float = 0.0,
    reference: tuple[float, float] | None = None,
    envs: int = LANES,
    max_steps: int | None = None,
    max_seconds: float = 600.0,
    allow_import: bool = False,
) -> Evaluation:
    """Run episodes of `act` in an environment. For many evaluations keep an `Evaluator`, which keeps its environments."""
    with Evaluator(env_id, reference=reference, envs=envs, max_steps=max_steps, allow_import=allow_import) as evaluator:
        return evaluator(
            act, episodes=episodes, seed=seed, noise=noise, start_noise=start_noise, max_seconds=max_seconds
        )


def episode_seeds(seed: int, episodes: int) -> np.ndarray:
    """A seed for each episode. Those of neighbouring `seed`s do not overlap, and the first ones do not depend on how many."""
    return np.array([np.random.SeedSequence([seed, i]).generate_state(1)[0] for i in range(episodes)], np.int64)


class Evaluator:
    """Environments of one task, kept between evaluations.

    `envs` run together at most. `max_steps` cuts an episode (default: the environment's own time limit).
    """

    def __init__(
        self,
        env_id: str,
        *,
        reference: tuple[float, float] | None = None,
        envs: int = LANES,
        max_steps: int | None = None,
        allow_import: bool = False,
    ):
        if not 1 <= envs <= LANES:
            raise OdiceError(f"envs must lie between 1 and {LANES}, got {envs}.")
        self.task = resolve(env_id)
        self.env_id = env_id
        self.reference = reference or self.task.reference
        self._limit = envs
        self._make = lambda: make(env_id, max_steps=max_steps, allow_import=allow_import)
        self._envs: list[gymnasium.Env] = [self._make()]
        self.max_steps = max_steps

    @property
    def obs_dim(self) -> int:
        return self._envs[0].observation_space.shape[0]  # pyright: ignore

    @property
    def action_space(self) -> gymnasium.Space:
        return self._envs[0].action_space

    def check(self, obs_dim: int, action_dim: int, discrete: bool) -> None:
        """Refuse a policy or a data set that does not belong to this environment."""
        space = self.action_space
        choices = getattr(space, "n", None)
        here = (self.obs_dim, int(space.shape[0]) if choices is None else int(choices), choices is not None)  # pyright: ignore
        if here != (obs_dim, action_dim, discrete):
            told = [
                f"{obs} observed numbers and {f'{acts} discrete actions' if disc else f'actions of {acts} numbers'}"
                for obs, acts, disc in (here, (obs_dim, action_dim, discrete))
            ]
            raise OdiceError(
                f"{self.env_id} has {told[0]}, but the policy or data has {told[1]}; choose another --env."
            )

    def __call__(
        self,
        act: Act,
        *,
        episodes: int = 10,
        seed: int = 0,
        noise: float = 0.0,
        start_noise: float = 0.0,
        max_seconds: float = 600.0,
    ) -> Evaluation:
        """The episodes' returns. Gaussian noise of these standard deviations joins observations and start states."""
        if episodes < 1:
            raise OdiceError(f"episodes must be at least 1, got {episodes}.")
        began = time.perf_counter()
        seeds = episode_seeds(seed, episodes)
        returns, lengths = np.zeros(episodes), np.zeros(episodes, np.int64)
        for first in range(0, episodes, LANES):
            block = slice(first, min(first + LANES, episodes))
            runs = [_Run(int(s), noise, start_noise) for s in seeds[block]]
            self._play(act, runs, began + max_seconds)
            returns[block], lengths[block] = [r.total for r in runs], [r.length for r in runs]
        seconds = time.perf_counter() - began
        return Evaluation(self.env_id, returns, lengths, seeds, self.reference, noise, start_noise, seconds)

    def _play(self, act: Act, runs: list[_Run], deadline: float) -> None:
        while len(self._envs) < min(self._limit, len(runs)):
            self._envs.append(self._make())
        batch = np.zeros((LANES, self.obs_dim), np.float32)
        free, waiting, running = list(self._envs), list(enumerate(runs)), []
        while waiting or running:
            while waiting and free:
                lane, run = waiting.pop(0)
                run.start(free.pop())
                running.append((lane, run))
            for lane, run in running:
                batch[lane] = run.obs
            actions = np.asarray(act(batch))
            for lane, run in running:
                run.step(actions[lane])
            free += [run.env for _, run in running if run.over]
            running = [(lane, run) for lane, run in running if not run.over]
            if time.perf_counter() > deadline:
                raise OdiceError(f"{self.env_id} used up its time; raise max_seconds.")

    def close(self) -> None:
        for env in self._envs:
            env.close()
        self._envs = []

    def __enter__(self) -> Evaluator:
        return self

    def __exit__(self, *exception) -> None:
        self.close()


class _Run:
    """One episode."""

    def __init__(self, seed: int, noise: float, start_noise: float):
        self.seed, self.noise, self.start_noise = seed, noise, start_noise
        self.rng = np.random.default_rng([seed, 1])
        self.total, self.length, self.over = 0.0, 0, False

    def start(self, env: gymnasium.Env) -> None:
        self.env = env
        obs, _ = env.reset(seed=self.seed)
        self.obs = self._seen(obs)

    def step(self, action: np.ndarray) -> None:
        obs, reward, terminated, truncated, _ = self.env.step(action)
        self.total += float(reward)
        self.length += 1
        self.over = bool(terminated or truncated)
        self.obs = self._seen(obs)

    def _seen(self, obs: np.ndarray) -> np.ndarray:
        return obs if not self.noise else obs + self.noise * self.rng.standard_normal(obs.shape)
