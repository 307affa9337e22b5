"""CoinDICE on tables: do intervals by empirical likelihood cover the true value of a policy?

    python benchmarks/coindice.py [--logs 200] [--worlds 5]

CoinDICE (Dai, Nachum, Chow, Li, Szepesvari, Schuurmans, NeurIPS 2020) takes the values of all reweightings p of the n
logged transitions with  D(p || 1/n) <= q / (2n),  q the quantile of chi-square with one degree of freedom, as its
interval. In a table the inner problem, DICE under p, is the value of the policy in the world that p describes, so the
ends of the interval are found by tilting p along the value's gradient until the divergence (KL) is used up.

Random worlds (8 states, 3 actions, 3 next states each, discount 0.9), a random behavior, a policy half way to the best
one. Beside it: resampled transitions, and resampled episodes, of the same plug-in value. Nominal coverage 90 %.
`iid`: transitions drawn from the behavior's visits, as its theory asks; `episodes`: of 20 steps, each from the start.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import NamedTuple

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.new_rows import best_policy
from tests.oracles import tabular

STATES, ACTIONS, STEPS, LEVEL, RESAMPLES = 8, 3, 20, 0.9, 200
QUANTILE = 2.7055  # of chi-square with one degree of freedom, at 90 %


class Log(NamedTuple):
    state: np.ndarray
    action: np.ndarray
    following: np.ndarray
    episode: np.ndarray


def draw(mdp: tabular.TabularMDP, behavior: np.ndarray, episodes: int, iid: bool, rng: np.random.Generator) -> Log:
    """A log of episodes of 20 steps, or as many transitions from the behavior's discounted visits."""
    n = episodes * STEPS
    if iid:
        sample = tabular.sample_log(mdp, behavior, rng, n)
        return Log(sample.state, sample.action, sample.next_state, np.arange(n))
    state = rng.choice(STATES, episodes, p=mdp.initial)
    rows = []
    pick = lambda p: (np.cumsum(p, 1) > rng.random((len(p), 1))).argmax(1)
    for _ in range(STEPS):
        action = pick(behavior[state])
        following = pick(mdp.transition[state, action])
        rows.append((state, action, following, np.arange(episodes)))
        state = following
    return Log(*(np.concatenate(parts) for parts in zip(*rows, strict=True)))


def plug_in(mdp: tabular.TabularMDP, policy: np.ndarray, log: Log, p: np.ndarray) -> tuple[float, np.ndarray]:
    """(1 - gamma) times the value where transitions are those of the weighted log, and its gradient in p.

    A pair that the log lacks stays where it is, without reward.
    """
    counts = np.zeros((STATES, ACTIONS, STATES))
    np.add.at(counts, (log.state, log.action, log.following), p)
    total = counts.sum(2)
    model = np.where(total[..., None] > 0, counts / np.where(total > 0, total, 1)[..., None], np.eye(STATES)[:, None])
    reward = np.where(total > 0, mdp.reward, 0.0)
    flow = np.einsum("sa,sat->st", policy, model)
    gamma = mdp.discount
    value = np.linalg.solve(np.eye(STATES) - gamma * flow, np.sum(policy * reward, 1))
    visits = np.linalg.solve(np.eye(STATES) - gamma * flow.T, (1 - gamma) * mdp.initial)[:, None] * policy
    q = reward + gamma * model @ value
    ratio = visits / np.where(total > 0, total, np.inf)
    slope = ratio[log.state, log.action] * (
        reward[log.state, log.action] + gamma * value[log.following] - q[log.state, log.action]
    )
    return float((1 - gamma) * mdp.initial @ value), slope


def coin_end(mdp, policy, log: Log, sign: float) -> float:
    """The least (sign -1) or largest value in the ball, by tilting p along the gradient, a little further each time."""
    n = len(log.state)
    radius, p = QUANTILE / (2 * n), np.full(n, 1 / n)
    for _ in range(8):
        slope = plug_in(mdp, policy, log, p)[1]
        low, high = 0.0, 1e6
        for _ in range(60):  # the strength of the tilt at which the divergence is used up
            middle = (low + high) / 2 if high < 1e6 else max(2 * low, 1e-3 / (np.abs(slope).max() + 1e-12))
            x = sign * middle * slope
            p = np.exp(x - x.max())
            p /= p.sum()
            divergence = np.sum(p * np.log(np.maximum(p * n, 1e-300)))
            low, high = (middle, high) if divergence < radius else (low, middle)
    return plug_in(mdp, policy, log, p)[0]


def resampled(mdp, policy, log: Log, rng: np.random.Generator) -> tuple[float, float]:
    """Quantiles of the plug-in value over resampled episodes (of single transitions where every row is one)."""
    count, values = log.episode.max() + 1, []
    for _ in range(RESAMPLES):
        times = np.bincount(rng.integers(0, count, count), minlength=count)[log.episode].astype(float)
        values.append(plug_in(mdp, policy, log, times / times.sum())[0])
    low, high = np.quantile(values, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return float(low), float(high)


def study(kind: str, episodes: int, worlds: int, logs: int) -> str:
    hits, widths, bias = {"CoinDICE": [], "resampling": []}, {"CoinDICE": [], "resampling": []}, []
    for seed in range(worlds):
        rng = np.random.default_rng(seed)
        mdp = tabular.random_mdp(rng, STATES, ACTIONS, terminals=0)
        behavior = rng.dirichlet(np.ones(ACTIONS), size=STATES)
        policy = 0.5 * behavior + 0.5 * best_policy(mdp)
        truth = float(np.sum(tabular.visitation(mdp, policy) * mdp.reward))
        for _ in range(logs):
            log = draw(mdp, behavior, episodes, kind == "iid", rng)
            bias.append(plug_in(mdp, policy, log, np.full(len(log.state), 1 / len(log.state)))[0] - truth)
            ends = {"CoinDICE": (coin_end(mdp, policy, log, -1.0), coin_end(mdp, policy, log, 1.0))}
            ends["resampling"] = resampled(mdp, policy, log, rng)
            for name, (low, high) in ends.items():
                hits[name].append(low <= truth <= high)
                widths[name].append(high - low)
    cells = " | ".join(f"{100 * np.mean(hits[name]):.0f} % | {np.mean(widths[name]):.3f}" for name in hits)
    return f"| {kind} | {episodes} x {STEPS} | {np.mean(bias):+.3f} | {cells} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--logs", type=int, default=200)
    parser.add_argument("--worlds", type=int, default=5)
    options = parser.parse_args()
    print("| log | size | bias | CoinDICE covers | width | resampling covers | width |\n|---|---|---|---|---|---|---|")
    for kind in ("iid", "episodes"):
        for episodes in (5, 20, 80):
            print(study(kind, episodes, options.worlds, options.logs), flush=True)


if __name__ == "__main__":
    main()
