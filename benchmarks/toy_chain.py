"""Where V rises along one path to the goal, at the exact fixed point of each rule (odice.experiments.toy_path).

python benchmarks/toy_chain.py [reward scale]
"""

from __future__ import annotations

import sys

import numpy as np

from odice.experiments.toy_path import LENGTH, values, weights

CELLS = [("semi", lam, 0.0) for lam in (0.3, 0.4, 0.5, 0.6, 0.65, 0.7)]
CELLS += [("true", lam, 0.0) for lam in (0.5, 0.6, 0.8, 0.9, 0.95, 0.99)]
CELLS += [("orthogonal", lam, eta) for lam in (0.3, 0.5, 0.6) for eta in (0.2, 0.4, 0.6, 1.0, 3.0, 10.0)]


def main() -> None:
    scale = float(sys.argv[1]) if len(sys.argv) > 1 else 1.0
    print("| rule | lam | eta | V at the start | first step of V | moves along which V rises |")
    print("|---|---:|---:|---:|---:|---:|")
    for rule, lam, eta in CELLS:
        v = values(weights(rule, lam, eta), scale)
        rises = int((np.diff(v) > 0).sum())
        print(f"| {rule} | {lam:g} | {eta:g} | {v[0]:.1f} | {v[1] - v[0]:+.2f} | {rises} of {LENGTH - 1} |")


if __name__ == "__main__":
    main()
