"""Data sets with discrete actions: hospital stays, and CartPole and Acrobot by people of different skill."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from odice import __version__
from odice.data.build import from_episodes
from odice.data.dataset import Dataset, Episode, Meta
from odice.envs.hospital import HOSPITAL, TREATMENTS, greedy_treatment
from odice.envs.make import make
from odice.training.provenance import versions

Choose = Callable[[np.ndarray, np.random.Generator, int], int]
"""From an observation, a generator and the episode's number to an action."""

AT_RANDOM = 0.55
"""Share of the treatments that the physicians choose at random."""
CARTPOLE = "CartPole-v1"
CONTROLLER = np.array([0.1, 0.3, 1.0, 0.5])
HABITS = (0.8, 0.75, 0.45, 0.4, 0.35, 0.3, 0.4, 0.45, 0.3, 0.35)
"""How often each of ten people pushes to the side that a fair controller would: two of them more often than not. Theirs
are the long episodes, so that most steps are right, and cloning is enough."""
FEW_GOOD = (0.65, *[0.35] * 9)
"""One of ten, and not by much: most steps are wrong, and cloning what is done most is the wrong controller."""
ACROBOT = "Acrobot-v1"
SWINGS = (*[0.65] * 4, *[0.35] * 6)
"""How often each of ten people pushes Acrobot's second link the way it already moves. Only the first four reach the
height; the others' episodes last until the time limit, so that most steps are wrong."""


def hospital_log(episodes: int, seed: int = 0) -> Dataset:
    """Stays in `odice/Hospital-v0`, with random or greedy treatments."""

    def choose(obs: np.ndarray, rng: np.random.Generator, episode: int) -> int:
        return int(rng.integers(TREATMENTS)) if rng.uniform() < AT_RANDOM else greedy_treatment(obs)

    return _collect(HOSPITAL, choose, episodes, seed, f"{AT_RANDOM:.0%} of the treatments at random, the others greedy")


def cartpole_log(episodes: int, seed: int = 0, habits: tuple[float, ...] = HABITS) -> Dataset:
    """Episodes of CartPole by people in turn; `habits` are the shares of correct pushes of each."""
    return _habit_log(CARTPOLE, lambda obs: bool(CONTROLLER @ obs > 0), (0, 1), habits, episodes, seed)


def acrobot_log(episodes: int, seed: int = 0, habits: tuple[float, ...] = SWINGS) -> Dataset:
    """Episodes of Acrobot by people in turn; `habits` are the shares of correct pushes of each."""
    return _habit_log(ACROBOT, lambda obs: obs[5] > 0, (0, 2), habits, episodes, seed)


def _habit_log(
    env_id: str,
    forward: Callable[[np.ndarray], bool],
    pushes: tuple[int, int],
    habits: tuple[float, ...],
    episodes: int,
    seed: int,
) -> Dataset:
    """Episodes by people in turn, who choose between two pushes.

    Args:
        env_id: The environment.
        forward: Whether the second push is the correct one.
        pushes: The two actions.
        habits: How often each person chooses the correct one.
        episodes: How many.
        seed: Of the environment and the people.
    """

    def choose(obs: np.ndarray, rng: np.random.Generator, episode: int) -> int:
        fair = int(forward(obs))
        return pushes[fair if rng.uniform() < habits[episode % len(habits)] else 1 - fair]

    description = f"{'ten' if len(habits) == 10 else len(habits)} habits in turn, right with the shares {habits}"
    return _collect(env_id, choose, episodes, seed, description)


def _collect(env_id: str, choose: Choose, episodes: int, seed: int, behavior: str) -> Dataset:
    env, rng = make(env_id), np.random.default_rng(seed)
    collected = [_episode(env, choose, rng, number, seed * 100_000 + number) for number in range(episodes)]
    env.close()
    dataset = from_episodes(collected, discrete=True)
    returns = dataset.returns
    history = (
        f"collected in {env_id}, {episodes} episodes, seed {seed}: {behavior}",
        f"returns: mean {returns.mean():.3f}, least {returns.min():g}, best {returns.max():g}",
        "; ".join(f"{package} {number}" for package, number in {"odice": __version__, **versions()}.items()),
    )
    n_actions = int(env.action_space.n)  # pyright: ignore[reportAttributeAccessIssue]
    return replace(dataset, meta=Meta(f"choices in {env_id}", env_id=env_id, n_actions=n_actions, history=history))


def _episode(env, choose: Choose, rng: np.random.Generator, number: int, seed: int) -> Episode:
    obs, _ = env.reset(seed=seed)
    observations, actions, rewards = [obs], [], []
    terminated = truncated = False
    while not (terminated or truncated):
        actions.append(choose(obs, rng, number))
        obs, reward, terminated, truncated, _ = env.step(actions[-1])
        observations.append(obs)
        rewards.append(reward)
    return Episode(
        np.array(observations, np.float32),
        np.array(actions),
        np.array(rewards, np.float32),
        bool(terminated),
        bool(truncated and not terminated),
    )
