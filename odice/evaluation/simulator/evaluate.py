"""Returns of a policy in a simulator.

Environments are stepped in parallel, with one batched call of the policy for all of them. The result of an episode
depends on its seed alone, not on how many others run. But matrix products round differently for other batch sizes, and
a contact-rich simulator turns the last bit into another episode. So the policy always sees a batch of `BATCH_ENVS`
rows, and episode i is always row i modulo `BATCH_ENVS`.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from odice.d4rl import normalized_score
from odice.envs.make import Task, adapt, make, resolve
from odice.errors import OdiceError
from odice.evaluation.simulator.rollout import BATCH_ENVS, MAX_STEPS, Act, Deadline, Rollout, StepPool, play
from odice.notebook import facts

if TYPE_CHECKING:
    import gymnasium

Environment = str | Callable[[], "gymnasium.Env"]
"""A name (`envs.make`), or a function that makes an environment."""


def name_of(given: Any) -> str:
    """Return an environment or a policy for messages: its name or path, else the name of the function or class."""
    return str(given) if isinstance(given, str | Path) else getattr(given, "__name__", type(given).__name__)


def maker(
    env: Environment, max_steps: int | None = None, allow_import: bool = False
) -> tuple[Task, Callable[[], gymnasium.Env]]:
    """Return the task of an environment, and a function that makes it."""
    if isinstance(env, str):
        return resolve(env), lambda: make(env, max_steps=max_steps, allow_import=allow_import)
    task = Task(name_of(env), name_of(env))
    return task, lambda: adapt(env(), task, max_steps)


@dataclass(frozen=True)
class Evaluation:
    """Every episode's raw return, length and seed, and statistics of them."""

    env_id: str
    returns: np.ndarray
    lengths: np.ndarray
    seeds: np.ndarray
    reference: tuple[float, float] | None = None
    noise: float = 0.0
    start_noise: float = 0.0
    seconds: float = 0.0
    costs: np.ndarray | None = None
    """The cost of each episode, where the environment reports costs (`info["cost"]`, as Safety-Gymnasium does)."""

    def __repr__(self) -> str:
        numbers = f"mean {self.mean:,.4g}, standard deviation {self.std:,.4g}, worst {self.worst:,.4g}"
        return f"Evaluation({self.env_id}, {len(self.returns)} episodes: {numbers})"

    def _repr_html_(self) -> str:
        rows = {
            "episodes": len(self.returns),
            "mean return": f"{self.mean:,.4g}",
            "standard deviation": f"{self.std:,.4g}",
            "worst": f"{self.worst:,.4g}",
            "mean score": None if self.scores is None else f"{self.scores.mean():.1f}",
            "mean cost": None if self.cost is None else f"{self.cost:,.4g}",
            "noise": self.noise or None,
            "start noise": self.start_noise or None,
        }
        return facts(f"Evaluation in {self.env_id}", rows)

    @property
    def cost(self) -> float | None:
        """Mean cost of an episode."""
        return None if self.costs is None else float(self.costs.mean())

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
        """100 (worst - mean) / |mean|, the paper's measure of robustness; None where the mean is 0.

        Of normalized scores, as the paper takes it; of returns where no reference is known.
        """
        values = self.returns if self.scores is None else self.scores
        mean = float(values.mean())
        return 100.0 * (float(values.min()) - mean) / abs(mean) if mean else None

    @property
    def scores(self) -> np.ndarray | None:
        """Normalized returns, where a reference is known."""
        return normalized_score(self.returns, self.reference)

    @property
    def score(self) -> float | None:
        """Mean normalized return."""
        return None if self.scores is None else float(self.scores.mean())

    @property
    def score_std(self) -> float | None:
        return None if self.scores is None else float(self.scores.std())

    @property
    def steps(self) -> int:
        return int(self.lengths.sum())

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values. Without the time it took: the same evaluation gives the same bytes."""
        costs = {} if self.costs is None else {"costs": self.costs.tolist(), "cost": self.cost}
        return {
            **costs,
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
    env: Environment,
    *,
    episodes: int = 10,
    seed: int = 0,
    noise: float = 0.0,
    start_noise: float = 0.0,
    reference: tuple[float, float] | None = None,
    envs: int = BATCH_ENVS,
    max_steps: int | None = None,
    max_seconds: float = 600.0,
    allow_import: bool = False,
) -> Evaluation:
    """Run episodes of `act` in an environment. For many evaluations use an `Evaluator`, which keeps its environments.

    Args:
        act: From a batch of raw observations to a batch of actions, such as a `Policy`.
        env: A name, or a function that makes an environment.
        episodes: How many.
        seed: Seed that the episodes' seeds are drawn from.
        noise: Standard deviation of Gaussian noise on every observed number, in the observation's own units.
        start_noise: The same on the state in which an episode starts.
        reference: Returns that count as 0 and 100; by default the task's, where one is known.
        envs: Environments in parallel.
        max_steps: Time limit of an episode, instead of the environment's own.
        max_seconds: Time limit of the evaluation, after which `EvaluationTimeout` is raised.
        allow_import: Also accept environments of other packages; see `odice.envs.make.make`.
    """
    with Evaluator(env, reference=reference, envs=envs, max_steps=max_steps, allow_import=allow_import) as evaluator:
        return evaluator(
            act, episodes=episodes, seed=seed, noise=noise, start_noise=start_noise, max_seconds=max_seconds
        )


def episode_seeds(seed: int, episodes: int) -> np.ndarray:
    """Return a seed for each episode: a function of `seed` and of the episode's number alone."""
    return np.array([np.random.SeedSequence([seed, i]).generate_state(1)[0] for i in range(episodes)], np.int64)


def evaluation_seed(seed: int, step: int) -> int:
    """Return the seed of a run's evaluation: different at every step, and the same in a resumed run."""
    return int(np.random.SeedSequence([seed, step]).generate_state(1)[0])


class Evaluator:
    """Environments of one task, kept between evaluations.

    At most `envs` run at a time. `max_steps` cuts an episode; by default the environment's own time limit does.
    """

    def __init__(
        self,
        env: Environment,
        *,
        reference: tuple[float, float] | None = None,
        envs: int = BATCH_ENVS,
        max_steps: int | None = None,
        allow_import: bool = False,
    ):
        if not 1 <= envs <= BATCH_ENVS:
            raise OdiceError(f"envs must lie between 1 and {BATCH_ENVS}, got {envs}.")
        if max_steps is not None and max_steps < 1:
            raise OdiceError(f"max_steps must be at least 1, got {max_steps}.")
        self.task, self._make = maker(env, max_steps, allow_import)
        self.env_id = self.task.name
        self.reference = reference or self.task.reference
        self._parallel = envs
        self._envs: list[gymnasium.Env] = [self._make()]
        spec = self._envs[0].spec
        own = spec.max_episode_steps if spec else None
        self._step_limit = max(MAX_STEPS, max_steps or own or 0)
        self._pool = StepPool(self._envs[0])

    @property
    def spec(self) -> str | None:
        """Gymnasium's specification of the environment, as text to compare; None if it is not registered."""
        spec = self._envs[0].unwrapped.spec
        return None if spec is None or not isinstance(spec.entry_point, str) else repr(spec)

    @property
    def obs_dim(self) -> int:
        return self._envs[0].observation_space.shape[0]  # pyright: ignore

    @property
    def action_space(self) -> gymnasium.Space:
        return self._envs[0].action_space

    def check(self, obs_dim: int, action_dim: int, discrete: bool) -> None:
        """Refuse a policy or a data set that does not belong to this environment."""
        count = getattr(self.action_space, "n", None)
        width = self.action_space.shape[0] if count is None else count  # pyright: ignore
        own, given = (self.obs_dim, int(width), count is not None), (obs_dim, action_dim, discrete)
        if own != given:
            raise OdiceError(
                f"{self.env_id} has {_in_words(*own)}, but the policy or data has {_in_words(*given)}; "
                "choose another --env."
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
        """Run episodes; see `evaluate` for the arguments."""
        from threadpoolctl import threadpool_limits

        _check_numbers(episodes=episodes, seed=seed, noise=noise, start_noise=start_noise, max_seconds=max_seconds)
        while len(self._envs) < min(self._parallel, episodes):
            self._envs.append(self._make())
        seeds = episode_seeds(seed, episodes)
        rollouts = [Rollout(self.env_id, int(s), noise, start_noise, self._step_limit) for s in seeds]
        began, deadline = time.perf_counter(), Deadline(self.env_id, max_seconds)
        # Products of this size are slower on two BLAS threads than on one, and a hundred times so on a busy machine.
        with threadpool_limits(1, "blas"), deadline.alarm():
            for first in range(0, episodes, BATCH_ENVS):
                play(act, rollouts[first : first + BATCH_ENVS], self._envs, deadline, self._pool)
        return Evaluation(
            env_id=self.env_id,
            returns=np.array([rollout.total for rollout in rollouts]),
            lengths=np.array([rollout.length for rollout in rollouts], np.int64),
            seeds=seeds,
            reference=self.reference,
            noise=noise,
            start_noise=start_noise,
            seconds=time.perf_counter() - began,
            costs=_costs(rollouts),
        )

    def close(self) -> None:
        self._pool.close()
        for env in self._envs:
            env.close()
        self._envs = []

    def __enter__(self) -> Evaluator:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


def _costs(rollouts: list[Rollout]) -> np.ndarray | None:
    """The cost of each episode, if any reported one."""
    costs = [rollout.cost for rollout in rollouts]
    return None if all(cost is None for cost in costs) else np.array([cost or 0.0 for cost in costs])


def _in_words(obs_dim: int, action_dim: int, discrete: bool) -> str:
    actions = f"{action_dim} discrete actions" if discrete else f"actions of {action_dim} numbers"
    return f"observations of {obs_dim} numbers and {actions}"


def _check_numbers(*, episodes: int, seed: int, noise: float, start_noise: float, max_seconds: float) -> None:
    for name, value, least in (
        ("episodes", episodes, 1),
        ("seed", seed, 0),
        ("noise", noise, 0),
        ("start_noise", start_noise, 0),
    ):
        if not least <= value < np.inf:
            raise OdiceError(f"{name} must be a finite number of at least {least}, got {value}.")
    if not max_seconds > 0:
        raise OdiceError(f"max_seconds must be positive, got {max_seconds}.")
