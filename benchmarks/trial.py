"""How often `odice trial` is wrong when a trial is read every day, and how many episodes it needs beside a fixed test.

    python benchmarks/trial.py --trials 1000

Each row simulates trials of 500 episodes that are read after every tenth one, against a log of 2,000 episodes and
against a control group of the same size: the share that is ever called better without a gain and with one, and the
episodes after which 80 % are; beside it a z-test that is read as often, and one that is read once, with the episodes
for which that has a power of 80 %.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))

from odice.evaluation.trial import COARSE, FINE, _bets, _log_sum_exp, _stakes

RETURNS = {  # name: draws returns in [0, 1] whose mean is about 0.5 + gain
    "success": lambda rng, n, gain: (rng.random(n) < 0.5 + gain).astype(float),
    "rare event": lambda rng, n, gain: (rng.random(n) < 0.05 + gain).astype(float),
    "bell": lambda rng, n, gain: rng.normal(0.5 + gain, 0.15, n).clip(0, 1).round(2),
    "skewed": lambda rng, n, gain: np.minimum(rng.exponential(0.1, n) + gain, 1).round(2),
}
EPISODES, EVERY, LOG = 500, 10, 2000
POWER, CRITICAL = 0.8, 1.645


def simulate(draw, gain: float, parallel: bool, trials: int, expected: float | None, seed: int) -> dict[str, float]:
    """Simulate trials; returns have at most 101 values, so that the bets on each are made once."""
    rng = np.random.default_rng(seed)
    stakes, looks = _stakes(expected), np.arange(EVERY, EPISODES + 1, EVERY)
    values = np.linspace(0, 1, 101)
    middle = draw(rng, 10_000, 0.0).mean()
    fine = np.linspace(max(0.0, middle - 0.12), min(1.0, middle + gain + 0.12), FINE)  # as wide as the tool's own
    grid = np.union1d(np.linspace(0, 1, COARSE), fine)
    above = np.log1p(_bets(values, grid, stakes.policy))[1:].reshape(-1, 101)
    below = np.log1p(_bets(1 - values, 1 - grid, stakes.control))[:-1].reshape(-1, 101)
    share = np.broadcast_to(stakes.log_share, (len(grid) - 1, len(stakes.log_share)))
    ever, passed, daily = np.zeros(len(looks)), np.zeros(len(looks)), 0
    for _ in range(trials):
        x, y = draw(rng, EPISODES, gain), draw(rng, EPISODES if parallel else LOG, 0.0)
        counts = _counts(x)[looks - 1]
        control = _counts(y)[looks - 1] if parallel else _counts(y)[-1:]
        total = (_sum(counts, above) + _sum(control, below)).reshape(len(looks), *share.shape) + share
        evidence = _log_sum_exp(total).min(axis=1)
        ever += np.maximum.accumulate(evidence >= np.log(20))
        z = _z(counts, control, values) > CRITICAL
        daily += bool(z[looks >= 30].any())
        passed += z
    return {
        "decided": ever[-1] / trials,
        "episodes": _first(looks, ever / trials),
        "fixed": _first(looks, passed / trials),
        "fixed_daily": daily / trials,
    }


def _sum(counts: np.ndarray, bets: np.ndarray) -> np.ndarray:
    """(looks, means * stakes) the logarithms of all bets so far; values that do not occur cost nothing."""
    used = counts[-1] > 0
    return counts[:, used] @ bets[:, used].T


def _first(looks: np.ndarray, share: np.ndarray) -> float:
    """The episodes after which the share is that of a trial with enough power."""
    return float(looks[np.argmax(share >= POWER)]) if (share >= POWER).any() else float("nan")


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
    print("returns     control   gain  ever called better  80 % after  z-test read daily  z-test read once, 80 % with")
    for name, draw in RETURNS.items():
        for parallel in (False, True):
            for gain in (0.0, 0.1):
                row = simulate(draw, gain, parallel, args.trials if gain == 0 else args.trials // 2, 0.1, args.seed)
                group = "parallel" if parallel else "log"
                print(
                    f"{name:<11} {group:<8} {gain:5.2f} {row['decided']:19.1%} {row['episodes']:11.0f} "
                    f"{row['fixed_daily']:18.1%} {row['fixed']:28.0f}",
                    flush=True,
                )


if __name__ == "__main__":
    main()
