"""How often `odice trial` is wrong when a trial is read every day, and how many episodes it needs beside a fixed test.

    python benchmarks/trial.py --trials 1000

Each row simulates trials of 400 episodes that are read after every tenth one, against a log of 2,000 episodes and
against a control group of the same size: the share that is ever called better where there is no gain; then the share
called better where there is one, and when, beside a z-test that is read once, at the end.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))

from odice.evaluation.trial import _bets, _log_sum_exp, _stakes

RETURNS = {  # name: draws returns in [0, 1] whose mean is about 0.5 + gain
    "success": lambda rng, n, gain: (rng.random(n) < 0.5 + gain).astype(float),
    "rare event": lambda rng, n, gain: (rng.random(n) < 0.05 + gain).astype(float),
    "bell": lambda rng, n, gain: rng.normal(0.5 + gain, 0.15, n).clip(0, 1).round(2),
    "skewed": lambda rng, n, gain: np.minimum(rng.exponential(0.1, n) + gain, 1).round(2),
}
EPISODES, EVERY, LOG = 400, 10, 2000


def simulate(draw, gain: float, parallel: bool, trials: int, expected: float | None, seed: int) -> dict[str, float]:
    """Simulate trials; returns have at most 101 values, so that the bets on each are made once."""
    rng = np.random.default_rng(seed)
    stakes, looks = _stakes(expected), np.arange(EVERY, EPISODES + 1, EVERY)
    values = np.linspace(0, 1, 101)
    grid = np.linspace(0, 1, 101)
    above = np.log1p(_bets(values, grid, stakes.policy))[1:].reshape(-1, 101)
    below = np.log1p(_bets(1 - values, 1 - grid, stakes.control))[:-1].reshape(-1, 101)
    share = np.broadcast_to(stakes.log_share, (len(grid) - 1, len(stakes.log_share)))
    decided, once, daily = [], 0, 0
    for _ in range(trials):
        x, y = draw(rng, EPISODES, gain), draw(rng, EPISODES if parallel else LOG, 0.0)
        counts = _counts(x)[looks - 1]
        control = _counts(y)[looks - 1] if parallel else np.broadcast_to(_counts(y)[-1], counts.shape)
        total = (counts @ above.T + control @ below.T).reshape(len(looks), *share.shape) + share
        evidence = _log_sum_exp(total).min(axis=1)
        crossed = evidence >= np.log(20)
        decided.append(int(looks[np.argmax(crossed)]) if crossed.any() else None)
        z = _z(counts, control, values)
        daily += bool((z[looks >= 30] > 1.645).any())
        once += bool(z[-1] > 1.645)
    when = [n for n in decided if n is not None]
    return {
        "decided": len(when) / trials,
        "median": float(np.median(when)) if when else float("nan"),
        "fixed": once / trials,
        "fixed_daily": daily / trials,
    }


def _counts(x: np.ndarray) -> np.ndarray:
    """(episodes, 101) how often each value has occurred so far."""
    one = np.zeros((len(x), 101))
    one[np.arange(len(x)), np.rint(100 * x).astype(int)] = 1
    return one.cumsum(axis=0)


def _z(counts: np.ndarray, control: np.ndarray, values: np.ndarray) -> np.ndarray:
    def moments(table):
        n = table.sum(axis=1)
        mean = table @ values / n
        return mean, np.maximum(table @ values**2 / n - mean**2, 1e-9) / n

    (mean, error), (other, noise) = moments(counts), moments(control)
    return (mean - other) / np.sqrt(error + noise)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    print("returns     control   gain  called better  after (median)  z-test read once  z-test read daily")
    for name, draw in RETURNS.items():
        for parallel in (False, True):
            for gain in (0.0, 0.1):
                row = simulate(draw, gain, parallel, args.trials if gain == 0 else args.trials // 5, 0.1, args.seed)
                group = "parallel" if parallel else "log"
                print(
                    f"{name:<11} {group:<8} {gain:5.2f} {row['decided']:14.1%} {row['median']:15.0f} "
                    f"{row['fixed']:17.1%} {row['fixed_daily']:18.1%}",
                    flush=True,
                )


if __name__ == "__main__":
    main()
