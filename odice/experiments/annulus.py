"""A bandit whose good actions lie on a ring: what a Gaussian averages, a diffusion keeps, and guidance finds.

There is one state, an action has two dimensions, and the log's actions lie on an annulus, in every direction alike. The
reward is largest in one direction, `BEST`. The mean of the log's actions is the hole in the middle, where the log has
nothing; half of the ring earns less than the log does. The paper of Diffusion-DICE opens with such a picture; the
numbers here are our own.

    python -m odice.experiments.annulus PICTURE.png
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from odice.algos import make
from odice.core.diffusion import DiffusionPolicy, solve
from odice.reports.figures import figure_style, save
from odice.training.loop import initial_state, make_chunk
from odice.types import Spec, Transitions

INNER, OUTER, BEST = 0.5, 0.8, np.pi / 4
SPEC = Spec(1, 2)
SETTINGS: dict[str, Any] = {
    "alpha": 0.5,
    "critic_hidden": (64, 64),
    "value_hidden": (64, 64),
    "score_hidden": (64, 64, 64),
    "guidance_hidden": (64, 64),
    "value_lr": 1e-3,
    "critic_lr": 1e-3,
    "score_lr": 3e-3,
    "guidance_lr": 1e-3,
}
BATCH = 256


def reward(action: np.ndarray) -> np.ndarray:
    """From -1 to 1 by the direction of an action (..., 2)."""
    return np.cos(np.arctan2(action[..., 1], action[..., 0]) - BEST)


def make_log(rows: int = 4000, seed: int = 0) -> Transitions:
    """One-step episodes with actions drawn evenly from the annulus."""
    rng = np.random.default_rng(seed)
    radius, angle = np.sqrt(rng.uniform(INNER**2, OUTER**2, rows)), rng.uniform(-np.pi, np.pi, rows)
    action = np.stack([radius * np.cos(angle), radius * np.sin(angle)], axis=1)
    return Transitions(
        obs=jnp.zeros((rows, 1)),
        index=jnp.arange(rows),
        next_index=jnp.arange(rows),
        action=jnp.asarray(action, jnp.float32),
        reward=jnp.asarray(reward(action), jnp.float32),
        terminated=jnp.ones(rows, bool),
    )


def learn(log: Transitions, steps: int = 6000, seed: int = 0, **settings: Any) -> DiffusionPolicy:
    """What acts after training."""
    algo = make("diffusion-dice", SPEC, **SETTINGS, cosine_steps=steps, **settings)
    state = jax.jit(lambda seed: initial_state(algo, seed))(seed)
    state, _ = make_chunk(algo, BATCH, steps)(state, log, seed, 0)
    acts = algo.policy(state)
    assert isinstance(acts, DiffusionPolicy)
    return acts


def draw(acts: DiffusionPolicy, scale: float, count: int, selected: int = 1, seed: int = 1) -> np.ndarray:
    """(count, 2) actions from new noise, each the best of `selected` by Q."""
    obs, noise = jnp.zeros((1,)), jax.random.normal(jax.random.key(seed), (count * selected, 2))
    fresh = DiffusionPolicy(acts.score, acts.guidance, acts.critic, noise, scale, acts.steps)
    made = jax.jit(lambda p: p.candidates(obs))(fresh)
    q = jnp.mean(acts.critic(jnp.zeros((len(made), 1)), made), axis=0).reshape(count, selected)
    return np.asarray(made).reshape(count, selected, 2)[np.arange(count), np.argmax(q, axis=1)]


def exact(log: Transitions, count: int, calls: int, seed: int = 1) -> np.ndarray:
    """(count, 2) actions from new noise with the exact score of the log's actions, by so many calls of it."""

    def clean(x, t, alpha, sigma):
        away = jnp.sum(jnp.square(x[:, None] - alpha * log.action[None]), axis=-1)
        return jax.nn.softmax(-0.5 * away / jnp.square(sigma), axis=1) @ log.action

    noise = jax.random.normal(jax.random.key(seed), (count, 2))
    return np.asarray(jax.jit(lambda noise: solve(noise, calls, clean))(noise))


class Measured(NamedTuple):
    """Of drawn actions."""

    on_ring: float
    """The share within 0.05 of the annulus."""
    in_arc: float
    """The share within 45 degrees of the best direction."""
    earned: float
    """The mean reward."""


def measure(action: np.ndarray) -> Measured:
    radius = np.linalg.norm(action, axis=1)
    on_ring = np.mean((radius > INNER - 0.05) & (radius < OUTER + 0.05))
    return Measured(float(on_ring), float(np.mean(reward(action) > np.cos(np.pi / 4))), float(reward(action).mean()))


KINDS = {
    "diffusion clone (k = 0)": (0.0, 1),
    "guided (k = 1)": (1.0, 1),
    "guided (k = 4)": (4.0, 1),
    "guided (k = 1), best of 8": (1.0, 8),
}
"""Guidance and candidates of the panels."""


def picture(log: Transitions, drawn: dict[str, np.ndarray], path: Path) -> Path:
    """The log and what was drawn, a panel each."""
    import matplotlib.pyplot as plt

    panels = {"the log": np.asarray(log.action[:1000]), **drawn}
    with figure_style():
        figure, axes = plt.subplots(1, len(panels), figsize=(3 * len(panels), 3.2), sharex=True, sharey=True)
        for axis, (title, action) in zip(axes, panels.items(), strict=True):
            for edge in (INNER, OUTER):
                axis.add_patch(plt.Circle((0, 0), edge, fill=False, color="0.6", linewidth=0.8))
            axis.scatter(*action.T, c=reward(action), s=5, cmap="viridis", vmin=-1, vmax=1)
            axis.set(title=f"{title}\nreward {reward(action).mean():.2f}", xlim=(-1, 1), ylim=(-1, 1), aspect="equal")
        mean = np.asarray(log.action).mean(axis=0)
        axes[0].plot(*mean, marker="x", color="#c0392b")
        return save(figure, path)


def main(path: str) -> None:
    log = make_log()
    acts = learn(log)
    drawn = {name: draw(acts, scale, 600, selected) for name, (scale, selected) in KINDS.items()}
    print("| actions | on the ring | within 45 degrees of the best | reward |\n|---|---|---|---|")
    known = {f"exact score, {calls} calls": exact(log, 600, calls) for calls in (15, 31)}
    for name, action in {"the log": np.asarray(log.action), **known, **drawn}.items():
        on_ring, in_arc, earned = measure(action)
        print(f"| {name} | {on_ring:.3f} | {in_arc:.3f} | {earned:.2f} |")
    picture(log, drawn, Path(path))


if __name__ == "__main__":
    main(sys.argv[1])
