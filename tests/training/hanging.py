"""Environments that do not behave; a plugin, so that the process that evaluates knows them too."""

import itertools
import os
import time

import gymnasium
import numpy as np


class Bad(gymnasium.Env):
    """Four numbers to see, two choices, and `harm` in the third step."""

    observation_space = gymnasium.spaces.Box(-1, 1, (4,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, harm: str = "none"):
        self.harm, self.steps = harm, 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps = 0
        return np.zeros(4, np.float32), {}

    def step(self, action):
        self.steps += 1
        if self.steps == 3:
            HARM[self.harm]()
        return np.zeros(4, np.float32), 1.0, self.steps == 5, False, {}


HARM = {
    "none": lambda: None,
    "sleep": lambda: time.sleep(3600),
    "stuck": lambda: sum(itertools.repeat(1)),  # inside C, where no signal is heard
    "exit": lambda: os._exit(7),
}
for name in HARM:
    gymnasium.register(f"tests/{name}-v0", "tests.training.hanging:Bad", kwargs={"harm": name}, max_episode_steps=10)
