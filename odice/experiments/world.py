"""A random world whose truth is computed: what its log's policy, any policy and the best one are worth.

A world is a table. A step in state s with action a has K outcomes, each with a probability, a reward and a next
state; an episode ends by an outcome or at the horizon. So the value of a policy is a sum over outcomes, from the last
step to the first, and the best value takes the best action on the way. A policy sees observations only, and its
continuous actions are rounded to the nearest level that the table has.

    world = WORLDS["lottery-30"]
    data = world.make_log(np.random.default_rng(0), episodes=6000)
    world.true_value(lambda obs: np.zeros(len(obs), int)), world.behavior_value, world.best_value

Values are expected undiscounted returns of an episode. The episodes of a log come from several agents where `agents`
has more than one table: each episode draws one of them, and no observation says which.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from odice.data.build import from_steps
from odice.data.dataset import Dataset
from odice.data.meta import Meta

Act = Callable[[np.ndarray], np.ndarray]
"""Observations (n, obs) -> actions: (n,) whole numbers, (n, 1) amounts, or probabilities (n, actions)."""
ENDS, REDRAW = -1, -2
"""Next states that are no rows of the table: the episode ends; the next state is drawn as a first state is."""


@dataclass(frozen=True, eq=False)
class World:
    """A table of outcomes, and the agents who wrote its log.

    Args:
        name: Its name, and the source of its logs.
        observations: What is seen in each state, (S, obs).
        probability: Of each outcome, (S, A, K).
        reward: Of each outcome, (S, A, K).
        after: The next state of each outcome, or `ENDS`, or `REDRAW`, (S, A, K).
        agents: Each agent's probability of an action, (S, A).
        shares: How many of the episodes each agent wrote.
        horizon: Steps of an episode, at most. Where it is above 1, the observation ends with the share that has passed.
        start: The distribution of the first state; None is uniform.
        levels: The amount that each action stands for, if actions are continuous.
        episodes: How many a log has by default.
        summary: What the world is, in a few words.
    """

    name: str
    observations: np.ndarray
    probability: np.ndarray
    reward: np.ndarray
    after: np.ndarray
    agents: tuple[np.ndarray, ...]
    shares: tuple[float, ...] = (1.0,)
    horizon: int = 1
    start: np.ndarray | None = None
    levels: np.ndarray | None = None
    episodes: int = 1000
    summary: str = ""

    @property
    def discrete(self) -> bool:
        return self.levels is None

    @cached_property
    def first(self) -> np.ndarray:
        """The distribution of the first state."""
        n = len(self.observations)
        return np.full(n, 1.0 / n) if self.start is None else np.asarray(self.start, float)

    @cached_property
    def mean_reward(self) -> np.ndarray:
        """The expected reward of each state and action, (S, A)."""
        return (self.probability * self.reward).sum(axis=2)

    def observe(self, state: np.ndarray, t: int) -> np.ndarray:
        """What is seen in these states at step t."""
        seen = self.observations[state]
        if self.horizon > 1:
            seen = np.concatenate([seen, np.full((len(seen), 1), t / self.horizon)], axis=1)
        return seen.astype(np.float32)

    # --- the truth ---------------------------------------------------------------------------------------------------

    def action_values(self, following: np.ndarray) -> np.ndarray:
        """What each state and action is worth, (S, A), where the next states are worth `following`, (S,)."""
        worth = np.where(self.after >= 0, following[self.after], 0.0)
        worth = np.where(self.after == REDRAW, self.first @ following, worth)
        return self.mean_reward + (self.probability * worth).sum(axis=2)

    def _backward(self, values_at: Callable[[np.ndarray, int], np.ndarray]) -> float:
        values = np.zeros(len(self.observations))
        for t in reversed(range(self.horizon)):
            values = values_at(self.action_values(values), t)
        return float(self.first @ values)

    def policy_table(self, policy: Act) -> np.ndarray:
        """The policy's probability of each action at each step and state, (T, S, A)."""
        states = np.arange(len(self.observations))
        return np.stack([self._probabilities(policy(self.observe(states, t))) for t in range(self.horizon)])

    def _probabilities(self, actions: np.ndarray) -> np.ndarray:
        actions, n = np.asarray(actions), self.reward.shape[1]
        if self.discrete and actions.ndim == 2:
            return actions
        return np.eye(n)[self._index(actions)]

    def _index(self, actions: np.ndarray) -> np.ndarray:
        """The rows of the table that these actions stand for."""
        if self.levels is None:
            return actions.astype(int)
        return np.abs(actions.reshape(-1, 1) - self.levels).argmin(axis=1)

    def table_value(self, table: np.ndarray) -> float:
        """The value of a policy that is given as probabilities, (T, S, A) or, the same at every step, (S, A)."""
        table = np.broadcast_to(table, (self.horizon, *self.reward.shape[:2]))
        return self._backward(lambda values, t: (table[t] * values).sum(axis=1))

    def true_value(self, policy: Act) -> float:
        """The expected return of an episode under the policy."""
        return self.table_value(self.policy_table(policy))

    @cached_property
    def best_table(self) -> np.ndarray:
        """The best action of each step and state, as probabilities, (T, S, A)."""
        tables: list[np.ndarray] = []

        def best(values: np.ndarray, _: int) -> np.ndarray:
            tables.append(np.eye(values.shape[1])[values.argmax(axis=1)])
            return values.max(axis=1)

        self._backward(best)
        return np.stack(tables[::-1])

    @cached_property
    def best_value(self) -> float:
        return self._backward(lambda values, _: values.max(axis=1))

    @cached_property
    def worst_value(self) -> float:
        return self._backward(lambda values, _: values.min(axis=1))

    @cached_property
    def random_value(self) -> float:
        """The value of a policy that chooses every action equally often."""
        return self._backward(lambda values, _: values.mean(axis=1))

    @cached_property
    def behavior_value(self) -> float:
        """The expected return of an episode of the log."""
        return float(np.dot(self.shares, [self.table_value(agent) for agent in self.agents]))

    def as_policy(self, table: np.ndarray) -> Act:
        """A table of probabilities as a function of observations; it knows the observations of this world only."""
        table = np.broadcast_to(table, (self.horizon, *self.reward.shape[:2]))
        states = np.arange(len(self.observations))
        rows = {row.tobytes(): (t, s) for t in range(self.horizon) for s, row in enumerate(self.observe(states, t))}

        def act(observations: np.ndarray) -> np.ndarray:
            at = np.array([rows[row.tobytes()] for row in np.ascontiguousarray(observations, np.float32)])
            probabilities = table[at[:, 0], at[:, 1]]
            return probabilities if self.levels is None else self.levels[probabilities.argmax(axis=1)][:, None]

        return act

    # --- the log -----------------------------------------------------------------------------------------------------

    def make_log(self, rng: np.random.Generator, episodes: int | None = None, *, act: Act | None = None) -> Dataset:
        """Episodes of the agents, or of `act`, whose probabilities are drawn from where it gives some."""
        n = self.episodes if episodes is None else episodes
        table = None if act is None else self.policy_table(act)
        agent = rng.choice(len(self.agents), n, p=self.shares)
        state, alive = rng.choice(len(self.first), n, p=self.first), np.arange(n)
        agents = np.stack(self.agents)
        rows: list[tuple[np.ndarray, ...]] = []
        for t in range(self.horizon):
            chances = agents[agent[alive], state] if table is None else table[t][state]
            action = _draw(rng, chances)
            outcome = _draw(rng, self.probability[state, action])
            after = self.after[state, action, outcome]
            over = (after == ENDS) | (t == self.horizon - 1)
            rows.append((alive, np.full(len(alive), t), state, action, self.reward[state, action, outcome], over))
            after = np.where(after == REDRAW, rng.choice(len(self.first), len(after), p=self.first), after)
            alive, state = alive[~over], after[~over]
            if not len(alive):
                break
        episode, t, state, action, reward, over = (np.concatenate(column) for column in zip(*rows, strict=True))
        order = np.lexsort((t, episode))
        observations = np.concatenate([self.observe(state[[i]], int(t[i])) for i in order])
        actions = action[order] if self.levels is None else self.levels[action[order]][:, None]
        bounds = {} if self.levels is None else _bounds(self.levels)
        count = self.reward.shape[1] if self.levels is None else None
        return from_steps(
            observations,
            actions,
            reward[order],
            terminated=over[order],
            truncated=np.zeros(len(order), bool),
            episode=episode[order],
            meta=Meta(source=self.name, n_actions=count, **bounds),
        )


def _bounds(levels: np.ndarray) -> dict[str, Any]:
    return {"action_low": (float(levels.min()),), "action_high": (float(levels.max()),)}


def _draw(rng: np.random.Generator, probabilities: np.ndarray) -> np.ndarray:
    """One index per row."""
    above = rng.random((len(probabilities), 1)) < np.cumsum(probabilities, axis=1)
    above[:, -1] = True  # the cumulated sum may end a hair below 1
    return above.argmax(axis=1)
