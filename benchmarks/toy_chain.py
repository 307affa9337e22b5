"""Why the toy's rules find the goal or do not: the exact fixed point of V on one path of 40 moves.

    python benchmarks/toy_chain.py [reward scale]

A table instead of a network, each cell of the path visited once per episode. Setting the gradient with respect to V(s_k) to
zero gives the weight w_k = f*'(R_k) of each move, with b = (1 - lam) / lam and w_(-1) = 0:

    true         w_k = b + gamma w_(k-1)
    semi         w_k = b
    orthogonal   w_k = (b + eta gamma w_(k-1)) / (1 + eta |kappa|),     kappa = <F, B> / <F, F>

Pearson's f has w = 1 + R/2, so R_k = 2 (w_k - 1), and V follows backwards from the goal: V_k = r_k + gamma V_(k+1) - R_k. A
greedy walk gets along the path where V rises. What decides is the start: it has no predecessor in the data, so nothing
pushes it down through the backward term.
"""

from __future__ import annotations

import sys

import numpy as np

LENGTH, GOAL, GAMMA = 40, 10.0, 0.99


def weights(rule: str, lam: float, eta: float = 0.0) -> np.ndarray:
    b, kappa = (1 - lam) / lam, GAMMA
    keep, gain = {"true": (1.0, 1.0), "semi": (1.0, 0.0), "orthogonal": (None, eta)}[rule]
    for _ in range(100):  # kappa depends on the weights: iterate to the common fixed point
        w = np.zeros(LENGTH)
        for k in range(LENGTH):
            w[k] = (b + gain * GAMMA * (w[k - 1] if k else 0.0)) / (keep or 1 + eta * kappa)
        kappa = GAMMA * (w[:-1] @ w[1:]) / (w @ w)
    return w


def values(w: np.ndarray, scale: float = 1.0) -> np.ndarray:
    v, after = np.zeros(LENGTH), 0.0
    for k in reversed(range(LENGTH)):
        v[k] = scale * (GOAL if k == LENGTH - 1 else -1.0) + GAMMA * after - 2 * (w[k] - 1)
        after = v[k]
    return v


def main() -> None:
    scale = float(sys.argv[1]) if len(sys.argv) > 1 else 1.0
    cells = [("semi", lam, 0.0) for lam in (0.4, 0.5, 0.6, 0.65, 0.7)]
    cells += [("true", lam, 0.0) for lam in (0.5, 0.6, 0.8, 0.9, 0.95, 0.99)]
    cells += [("orthogonal", lam, eta) for lam in (0.5, 0.6) for eta in (0.2, 0.4, 0.6, 1.0, 3.0, 10.0)]
    print(
        "| rule | lam | eta | V at the start | first step of V | moves along which V rises |\n|---|---:|---:|---:|---:|---:|"
    )
    for rule, lam, eta in cells:
        v = values(weights(rule, lam, eta), scale)
        rises = int((np.diff(v) > 0).sum())
        print(f"| {rule} | {lam:g} | {eta:g} | {v[0]:.1f} | {v[1] - v[0]:+.2f} | {rises} of {LENGTH - 1} |")


if __name__ == "__main__":
    main()
