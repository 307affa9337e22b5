"""A small finite MDP, a log of it, and the exact return within a horizon: numpy only, nothing shared with the
estimators."""

from __future__ import annotations

import numpy as np

from odice.data.build import from_episodes
from odice.policy.file import Layout
from odice.policy.policy import Policy
from tests.oracles import tabular


def tabular_policy(choice, actions):
    """A policy that does `choice[s]` in the state whose one-hot code it sees."""
    weight = np.eye(actions, dtype=np.float32)[choice]
    tensors = {"layers.0.weight": weight, "layers.0.bias": np.zeros(actions, np.float32)}
    return Policy(Layout((len(choice), actions), False, "relu", "argmax"), tensors)


def exact_return(mdp, pi, horizon, discount):
    """By backward induction."""
    value = np.zeros(mdp.states)
    for _ in range(horizon):
        ahead = np.einsum("sat,t->sa", mdp.transition, np.where(mdp.terminal, 0.0, value))
        value = np.sum(pi * (mdp.reward + discount * ahead), axis=1)
    return float(mdp.initial @ value)


def sample_log(mdp, behavior, horizon, episodes, rng):
    """Episodes of the behavior as a data set of one-hot observations, cut at the horizon."""
    out = []
    for _ in range(episodes):
        states, actions, rewards = [rng.choice(mdp.states, p=mdp.initial)], [], []
        while len(actions) < horizon and not mdp.terminal[states[-1]]:
            s = states[-1]
            actions.append(rng.choice(mdp.actions, p=behavior[s]))
            rewards.append(mdp.reward[s, actions[-1]])
            states.append(rng.choice(mdp.states, p=mdp.transition[s, actions[-1]]))
        ended = bool(mdp.terminal[states[-1]])
        out.append(
            {
                "observations": np.eye(mdp.states, dtype=np.float32)[states],
                "actions": np.array(actions, np.int32),
                "rewards": np.array(rewards, np.float32),
                "terminated": ended,
                "truncated": not ended,
            }
        )
    return from_episodes(out)


class World:
    """One MDP with a terminal state, a behavior, a policy that differs from it, and their exact returns."""

    def __init__(self, seed=1, horizon=15, discount=0.9, episodes=600, states=6, actions=3):
        rng = np.random.default_rng(seed)
        self.mdp = tabular.random_mdp(rng, states, actions, terminals=1, discount=discount)
        self.behavior = np.full((states, actions), 0.4 / actions)
        self.behavior[np.arange(states), rng.integers(0, actions, states)] += 0.6
        self.choice = self.behavior.argmax(1)
        self.choice[:2] = rng.integers(0, actions, 2)
        self.horizon, self.discount = horizon, discount
        self.data = sample_log(self.mdp, self.behavior, horizon, episodes, rng)
        self.policy = tabular_policy(self.choice, actions)
        pi = np.eye(actions)[self.choice]
        self.truth = np.array([exact_return(self.mdp, pi, horizon, g) for g in (discount, 1.0)])
        self.of_behavior = np.array([exact_return(self.mdp, self.behavior, horizon, g) for g in (discount, 1.0)])

    def log_ratio(self):
        """The exact one."""
        states = self.data.step_observations().argmax(1)
        same = self.data.actions == self.choice[states]
        return np.where(same, -np.log(self.behavior[states, self.data.actions]), -np.inf)
