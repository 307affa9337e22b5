"""A task that takes a second: random pushes on a line, of which the better half is worth imitating."""

from typing import Any

import numpy as np

SMALL: dict[str, Any] = {"value_hidden": (16,), "policy_hidden": (16,), "batch_size": 16}


def line_log(episodes: int = 12, length: int = 20, seed: int = 0, discrete: bool = False) -> dict[str, np.ndarray]:
    """Steps of random actions; the reward is larger the more the action points towards the origin."""
    rng = np.random.default_rng(seed)
    n = episodes * length
    obs = rng.normal(size=(n, 4)).astype(np.float32)
    action = rng.integers(0, 2, n) if discrete else rng.uniform(-1, 1, (n, 2)).astype(np.float32)
    push = 2.0 * action - 1 if discrete else action[:, 0]
    ends = np.arange(n) % length == length - 1
    return {
        "observations": obs,
        "actions": action,
        "rewards": (-np.sign(obs[:, 0]) * push).astype(np.float32),
        "terminals": ends & (np.arange(n) // length % 2 == 0),
        "timeouts": ends & (np.arange(n) // length % 2 == 1),
    }
