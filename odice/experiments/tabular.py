"""Finite worlds whose visitations, values and optima are exact: one linear solve each, in float64."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float
from numpy import ndarray as Arr

Policy = Float[Arr, "states actions"]
Visits = Float[Arr, "states actions"]


class TabularWorld(NamedTuple):
    """A finite MDP. Entering a terminal state ends the episode."""

    transition: Float[Arr, "states actions states"]
    reward: Float[Arr, "states actions"]
    initial: Float[Arr, " states"]
    terminal: Bool[Arr, " states"]
    discount: float

    @property
    def onward(self) -> Float[Arr, "states actions states"]:
        """Transition probabilities with the way into terminal states removed."""
        return self.transition * ~self.terminal

    @property
    def deterministic(self) -> bool:
        return bool(np.allclose(np.max(self.transition, axis=2), 1.0))


def step_matrix(world: TabularWorld, policy: Policy) -> Float[Arr, "states states"]:
    """P_pi(s' | s), without the way into terminal states."""
    return np.einsum("sa,sat->st", policy, world.onward)


def visits(world: TabularWorld, policy: Policy, start: Float[Arr, " states"], discount: float) -> Visits:
    """Discounted visits to each pair, sum_t discount^t P(s_t, a_t)."""
    matrix = np.eye(len(start)) - discount * step_matrix(world, policy).T
    return np.linalg.solve(matrix, start)[:, None] * policy


def mean_return(world: TabularWorld, policy: Policy) -> float:
    """Discounted return from the world's start."""
    return float(np.sum(visits(world, policy, world.initial, world.discount) * world.reward))


def best_policy(world: TabularWorld, allowed: Bool[Arr, "states actions"]) -> Policy:
    """The best policy among the allowed actions, by policy iteration."""
    policy = allowed / np.maximum(allowed.sum(1, keepdims=True), 1)
    for _ in range(1000):
        value = np.linalg.solve(
            np.eye(len(policy)) - world.discount * step_matrix(world, policy), np.sum(policy * world.reward, axis=1)
        )
        action_value = np.where(allowed, world.reward + world.discount * world.onward @ value, -np.inf)
        better = np.eye(policy.shape[1])[np.argmax(action_value, axis=1)] * allowed.any(1, keepdims=True)
        gain = np.max(action_value, axis=1) - value
        if np.max(gain[allowed.any(1)]) < 1e-12:
            return better
        policy = better
    raise AssertionError("policy iteration ends after finitely many steps")


def random_world(
    rng: np.random.Generator, states: int = 30, actions: int = 3, branching: int = 1, discount: float = 0.95
) -> TabularWorld:
    """Transitions to `branching` random states each, random rewards, a few start states, no terminal state."""
    transition = np.zeros((states, actions, states))
    for s, a in np.ndindex(states, actions):
        transition[s, a, rng.choice(states, branching, replace=False)] = rng.dirichlet(np.ones(branching))
    initial = np.zeros(states)
    initial[:3] = 1 / 3
    return TabularWorld(transition, rng.uniform(size=(states, actions)), initial, np.zeros(states, bool), discount)


def grid_world(side: int = 6, slip: float = 0.0, discount: float = 0.95) -> TabularWorld:
    """A square grid without walls: start in one corner, goal in the opposite one (reward 1, the end).

    A step slips to a random direction with probability `slip`. A diagonal of cells costs 0.2 to enter, except for one
    gap, so that the way matters.
    """
    cells = np.stack(np.meshgrid(np.arange(side), np.arange(side), indexing="ij"), -1).reshape(-1, 2)
    moves = np.array([(0, 1), (0, -1), (-1, 0), (1, 0)])
    landing = np.clip(cells[:, None] + moves, 0, side - 1) @ [side, 1]
    certain = np.eye(side**2)[landing]
    transition = (1 - slip) * certain + slip * certain.mean(1, keepdims=True)
    goal = side**2 - 1
    costly = (cells.sum(1) == side - 1) & (cells[:, 0] != 1)
    arrival = np.where(np.arange(side**2) == goal, 1.0, np.where(costly, -0.2, 0.0))
    initial, terminal = np.eye(side**2)[0], np.eye(side**2, dtype=bool)[goal]
    return TabularWorld(transition, transition @ arrival, initial, terminal, discount)


def noisy_policy(world: TabularWorld, noise: float, rng: np.random.Generator) -> Policy:
    """The best policy, replaced by a random one (drawn per state) with probability `noise`."""
    best = best_policy(world, np.ones(world.reward.shape, bool))
    return (1 - noise) * best + noise * rng.dirichlet(np.ones(best.shape[1]), size=len(best))


def data_distribution(world: TabularWorld, behavior: Policy) -> Visits:
    """What an endless log of the behavior holds: its discounted visitation, normalized, without terminal states."""
    logged = visits(world, behavior, world.initial, world.discount) * ~world.terminal[:, None]
    return logged / logged.sum()
