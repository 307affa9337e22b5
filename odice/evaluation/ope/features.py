"""Random features: what the learned parts of an estimate are linear in.

    f(x) = [1, x, sqrt(2 / m) cos(W x + u)],   W normal, u uniform

A ridge regression on m random cosines is a regression with a Gaussian kernel, at the cost of a small linear system. So
every fit is exact, has no learning rate and no number of updates, and takes a fraction of a second; a network would
take a minute to compile and train, and would be no better on the few hundred episodes of an evaluation.
"""

from __future__ import annotations

import numpy as np

MAX_LINEAR = 200
"""Of wider inputs the linear part is left out: the system would grow with its square."""
WIDTHS = (1.0, 0.5)
"""Of the kernel, in units of the root of the number of inputs: half of the cosines have each."""


class Features:
    """A fixed random map from inputs in standard units to features."""

    def __init__(self, inputs: int, size: int, seed: int = 0):
        """`size` is the number of features; there are at least 8 cosines."""
        rng = np.random.default_rng([seed, inputs])
        self.linear = inputs <= MAX_LINEAR
        cosines = max(8, size - 1 - inputs * self.linear)
        width = np.repeat(WIDTHS, [cosines - cosines // 2, cosines // 2]) * max(inputs, 1) ** 0.5
        self.weight = (rng.normal(size=(inputs, cosines)) / width).astype(np.float32)
        self.phase = rng.uniform(0, 2 * np.pi, cosines).astype(np.float32)

    def __call__(self, x: np.ndarray) -> np.ndarray:
        """(n, features) in single precision."""
        x = np.clip(x, -10, 10).astype(np.float32)
        cosines = np.cos(x @ self.weight + self.phase) * np.float32((2 / len(self.phase)) ** 0.5)
        return np.concatenate([np.ones((len(x), 1), np.float32), *([x] if self.linear else []), cosines], axis=1)
