"""Why a rule finds the toy's goal or does not: the exact fixed point of V-DICE on one path of 40 moves.

A table instead of a network, each cell of the path visited once. Setting the gradient with respect to V(s_k) to zero
gives the weight w_k = f*'(R_k) of each move, with b = (1 - lam) / lam and w_(-1) = 0:

    true         w_k = b + gamma w_(k-1)
    semi         w_k = b
    orthogonal   w_k = (b + eta gamma w_(k-1)) / (1 + eta |kappa|),     kappa = <F, B> / <F, F>

Pearson's f has w = 1 + R/2, so R_k = 2 (w_k - 1), and V follows backwards from the goal: V_k = r_k + gamma V_(k+1) -
R_k. A greedy walk gets along the path where V rises. What decides is the start: it has no predecessor in the data, so
no backward term pushes it down, while the moves that follow are.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Float
from numpy import ndarray as Arr

from odice.core.gradients import rule as gradient_rule

LENGTH, GOAL, STEP = 40, 10.0, -1.0


def weights(rule: str, lam: float, eta: float = 0.0, discount: float = 0.99) -> Float[Arr, " moves"]:
    """w of every move at the fixed point of a rule; kappa depends on w, so both are iterated."""
    chosen = gradient_rule(rule, eta)
    kappa = discount
    w = np.zeros(LENGTH)
    for _ in range(100):
        keep = 1 + chosen.eta * kappa if chosen.project else 1.0
        for k in range(LENGTH):
            before = w[k - 1] if k else 0.0
            w[k] = ((1 - lam) / lam + chosen.eta * discount * before) / keep
        kappa = discount * (w[:-1] @ w[1:]) / (w @ w)
    return w


def rewards(scale: float = 1.0) -> Float[Arr, " moves"]:
    """-1 per move, 10 for the one that reaches the goal; `scale` is the factor of `odice toy --reward-scale`."""
    return scale * np.array([STEP] * (LENGTH - 1) + [GOAL])


def values(w: Float[Arr, " moves"], scale: float = 1.0, discount: float = 0.99) -> Float[Arr, " moves"]:
    """V of every cell of the path, from its goal backwards."""
    v, after = np.zeros(LENGTH), 0.0
    for k, reward in reversed(list(enumerate(rewards(scale)))):
        v[k] = after = reward + discount * after - 2 * (w[k] - 1)
    return v
