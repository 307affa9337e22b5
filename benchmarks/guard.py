"""Which score tells states of the log from others? AUC, detection at 1 % false alarms, size and cost, of each
candidate.

    python benchmarks/guard.py                        # the bundled hopper log and a ward's
    python benchmarks/guard.py --data LOG --steps 0   # a log of your own; without the scores that need a trained V
    python benchmarks/guard.py --data LOG --other LOG # and states of other agents' logs: same robot, another gait
    python benchmarks/guard.py --cost RUN             # microseconds per call of that run's policy and guard

Half of the episodes fit the score, a fifth calibrates it, the rest is tested: as they are (false alarms) and corrupted.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import odice
from odice.data.dataset import Dataset
from odice.policy.guard import _exceeded, _spread_out, fit_guard
from odice.policy.policy import Policy, open_policy

Score = Callable[[np.ndarray], np.ndarray]
ROWS = 4000


# --- candidates: (states, log) -> a score that grows with novelty -----------------------------------------------------


def ranges(known: np.ndarray) -> Score:
    """How far outside the log's range the worst column is, in ranges."""
    low, high = known.min(axis=0), known.max(axis=0)
    width = np.maximum(high - low, 1e-6)
    return lambda obs: (np.maximum(low - obs, obs - high) / width).max(axis=1)


def mahalanobis(known: np.ndarray) -> Score:
    center, spread = known.mean(axis=0), known.std(axis=0) + 1e-6
    z = (known - center) / spread
    inverse = np.linalg.inv(np.cov(z, rowvar=False) + 1e-3 * np.eye(z.shape[1]))

    def score(obs: np.ndarray) -> np.ndarray:
        x = (obs - center) / spread
        return np.sqrt(np.einsum("ni,ij,nj->n", x, inverse, x))

    return score


def nearest(known: np.ndarray, states: int = 512, *, whiten: bool = True, spread_out: bool = True) -> Score:
    """Distance to the nearest of so many states, whitened or only standardized."""
    center, spread = known.mean(axis=0), known.std(axis=0) + 1e-6
    matrix = np.eye(known.shape[1])
    if whiten:
        values, vectors = np.linalg.eigh(np.cov((known - center) / spread, rowvar=False))
        matrix = vectors / np.sqrt(values + 1e-3)
    white = (((known - center) / spread) @ matrix).astype(np.float32)
    if spread_out:
        chosen = _spread_out(white, states)
    else:
        chosen = np.random.default_rng(0).choice(len(white), min(states, len(white)), replace=False)
    core = white[chosen]

    def score(obs: np.ndarray) -> np.ndarray:
        x = ((obs - center) / spread @ matrix).astype(np.float32)
        squares = np.square(x).sum(axis=1)[:, None] - 2 * x @ core.T + np.square(core).sum(axis=1)
        return np.sqrt(np.maximum(squares.min(axis=1), 0))

    return score


def random_network(known: np.ndarray, width: int = 256) -> Score:
    """A random network's outputs, predicted by ridge regression from another's features: the error grows off the
    data."""
    rng = np.random.default_rng(0)
    center, spread, size = known.mean(axis=0), known.std(axis=0) + 1e-6, known.shape[1]

    def features(scale: float) -> Callable[[np.ndarray], np.ndarray]:
        weight, bias = rng.normal(size=(size, width)) * scale, rng.uniform(-2, 2, width)
        return lambda obs: np.tanh((obs - center) / spread @ weight / np.sqrt(size) + bias)

    target, basis = features(3.0), features(1.0)
    x, y = basis(known), target(known)
    fit = np.linalg.solve(x.T @ x + 1e-3 * len(x) * np.eye(width), x.T @ y)
    return lambda obs: np.square(basis(obs) @ fit - target(obs)).mean(axis=1)


def value_scores(known: np.ndarray, dataset: Dataset, steps: int) -> dict[str, Score]:
    """The paper's idea: what O-DICE's V says of a state, and where its last hidden layer sees it."""
    import jax
    import jax.numpy as jnp

    from odice.data.preprocess import Preprocess, fit
    from odice.data.transitions import to_transitions
    from odice.training.loop import initial_state, make_chunk

    fitted = fit(Preprocess(normalize_obs=True), dataset)
    algo = odice.make("odice", dataset.spec, value_hidden=(64, 64), policy_hidden=(16,), lam=0.5)
    source = jax.device_put(to_transitions(fitted.apply(dataset)))
    state, chunk = initial_state(algo, 0), make_chunk(algo, 256, 500)
    for first in range(0, steps, 500):
        state, _ = chunk(state, source, 0, first)
    value = jax.device_get(state).value.params

    def hidden(obs: np.ndarray) -> np.ndarray:
        x = fitted.observe(obs)
        for weight, bias in zip(value.heads.weights[:-1], value.heads.biases[:-1], strict=True):
            x = np.maximum(x @ np.asarray(weight[0]) + np.asarray(bias[0]), 0)
        return x

    def of(obs: np.ndarray) -> np.ndarray:
        return np.asarray(value(jnp.asarray(fitted.observe(obs)))).mean(axis=0)

    middle = np.median(of(known))
    near = nearest(hidden(known) + 1e-6 * np.random.default_rng(0).normal(size=(len(known), 64)))
    return {
        "-V": lambda obs: -of(obs),
        "V away from its median": lambda obs: np.abs(of(obs) - middle),
        "nearest, last layer of V": lambda obs: near(hidden(obs)),
    }


# --- what may go wrong ------------------------------------------------------------------------------------------------


def corruptions(obs: np.ndarray, spread: np.ndarray, rng: np.random.Generator) -> dict[str, np.ndarray]:
    """The same states as a broken pipeline would hand them over; every row in a way of its own."""
    rows, size = np.arange(len(obs)), obs.shape[1]
    column, other = rng.integers(0, size, len(obs)), rng.integers(1, size, len(obs))
    other = (column + other) % size
    units, swapped, stuck = obs.copy(), obs.copy(), obs.copy()
    units[rows, column] *= rng.choice([57.2958, 0.0174533, 1000.0, 0.001, 2.2046, 1.8], len(obs))
    swapped[rows, column], swapped[rows, other] = obs[rows, other], obs[rows, column]
    stuck[rows, column] = obs[rng.permutation(len(obs)), column]  # where it was at another time
    zero = obs.copy()
    zero[rows, column] = 0.0
    noise = rng.normal(size=obs.shape) * spread
    return {
        "wrong units, one column": units,
        "two columns swapped": swapped,
        "one sensor stuck at an old value": stuck,
        "one sensor stuck at 0": zero,
        "noise, 1 std": obs + noise,
        "noise, 3 std": obs + 3 * noise,
    }


def of_another_log(path: str, rows: int = ROWS) -> np.ndarray:
    """States of another agent's log. Each episode's first 20 steps are left out: all agents start alike."""
    states = np.concatenate([episode.observations[20:-1] for episode in odice.load(path)])
    return states[np.random.default_rng(0).permutation(len(states))[:rows]]


def another_gait(seed: int = 0, rows: int = ROWS) -> np.ndarray:
    """States of a hopper whose joints swing like a clock's: same robot, another gait. Each episode's first 20 steps are
    left out."""
    import gymnasium

    env, states, rng = gymnasium.make("Hopper-v5"), [], np.random.default_rng(seed)
    while len(states) < rows:
        obs, _ = env.reset(seed=int(rng.integers(1 << 30)))
        speed, phase = rng.uniform(0.05, 0.5), rng.uniform(0, 6.28, 3)
        for t in range(200):
            obs, _, over, _, _ = env.step(np.sin(speed * t + phase).astype(np.float32))
            if t >= 20:
                states.append(obs)
            if over:
                break
    return np.asarray(states[:rows], np.float32)


def auc(usual: np.ndarray, odd: np.ndarray) -> float:
    """The chance that an odd state scores above a usual one; ties count half."""
    both = np.concatenate([usual, odd])
    order, ranks = np.argsort(both, kind="stable"), np.empty(len(both))
    ranks[order] = np.arange(1, len(both) + 1)
    for value in np.unique(both[np.concatenate([[False], np.diff(np.sort(both)) == 0])[np.argsort(order)]]):
        same = both == value
        ranks[same] = ranks[same].mean()
    return float((ranks[len(usual) :].sum() - len(odd) * (len(odd) + 1) / 2) / (len(usual) * len(odd)))


# --- the table --------------------------------------------------------------------------------------------------------


def measure(name: str, dataset: Dataset, steps: int, others: dict[str, np.ndarray]) -> None:
    """`others` are states of the same robot in other hands, by name."""
    rng = np.random.default_rng(0)
    half, rest = dataset.split(0.5, seed=1)
    calibrate, test = rest.split(0.4, seed=2)
    known, unseen = half.step_observations(), calibrate.step_observations()
    known = known[np.sort(rng.permutation(len(known))[:20_000])].astype(np.float64)
    unseen = unseen[np.sort(rng.permutation(len(unseen))[:20_000])].astype(np.float64)
    usual = test.step_observations()
    usual = usual[rng.permutation(len(usual))[:ROWS]].astype(np.float64)
    odd = corruptions(usual, known.std(axis=0), rng)
    odd |= {what: states.astype(np.float64) for what, states in others.items()}
    guard = fit_guard(known, unseen)
    candidates: dict[str, Score] = {
        "ranges": ranges(known),
        "Mahalanobis": mahalanobis(known),
        "nearest of 512, standardized": nearest(known, whiten=False),
        "nearest of 512 at random, whitened": nearest(known, spread_out=False),
        "nearest of 512, whitened": nearest(known),
        "nearest of 1,024, whitened": nearest(known, 1024),
        "random network": random_network(known),
        **(value_scores(known, half, steps) if steps else {}),
        "the guard": guard.score,
    }
    print(f"\n{name}: {len(known):,} states known, {len(unseen):,} to calibrate, {len(usual):,} tested\n")
    print("| score | false alarms | " + " | ".join(odd) + " | mean AUC |")
    print("|---|---|" + "---|" * (len(odd) + 1))
    for label, score in candidates.items():
        base, limit = score(usual), _exceeded(np.sort(score(unseen)), 0.01)
        measured = {what: (auc(base, score(states)), (score(states) > limit).mean()) for what, states in odd.items()}
        cells = [f"{area:.3f} ({100 * share:.0f} %)" for area, share in measured.values()]
        mean = np.mean([area for area, _ in measured.values()])
        print(f"| {label} | {100 * (base > limit).mean():.2f} % | {' | '.join(cells)} | {mean:.3f} |", flush=True)
    cost(guard, usual)


def cost(guard: Any, obs: np.ndarray) -> None:
    one, many = obs[0].astype(np.float32), obs.astype(np.float32)
    single, batched = _microseconds(lambda: guard.score(one), 300), _microseconds(lambda: guard.score(many), 3)
    size = sum(getattr(guard, part).nbytes for part in ("center", "scale", "whiten", "states"))
    print(
        f"\nthe guard: {single:.0f} us for one state, {batched / len(obs):.2f} us per state of {len(obs):,}; "
        f"{size / 1e3:.0f} kB"
    )


def call_cost(policy: Policy) -> None:
    """Medians, one state and many."""
    guard, rng = policy.guard, np.random.default_rng(0)
    assert guard is not None
    states = (guard.center + guard.scale * rng.standard_normal((4096, policy.obs_dim))).astype(np.float32)
    for name, call in (("the action", policy), ("its novelty", guard.score), ("both, `guarded`", policy.guarded)):
        print(f"{name}, one state: {_microseconds(lambda call=call: call(states[0]), 3000):.1f} us")
    for count in (16, 256, 4096):
        each = _microseconds(lambda count=count: guard.score(states[:count]), 50) / count
        print(f"its novelty, {count} states at once: {each:.1f} us each")


def _microseconds(call: Callable[[], Any], times: int) -> float:
    taken = []
    for _ in range(times):
        began = time.perf_counter()
        call()
        taken.append(time.perf_counter() - began)
    return 1e6 * float(np.median(taken))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", help="a log; by default the bundled hopper log and a ward's")
    parser.add_argument("--other", nargs="*", default=[], help="logs of the same robot by other agents")
    parser.add_argument("--steps", type=int, default=1000, help="updates of V for the paper's score; 0 leaves it out")
    parser.add_argument("--cost", help="a run or policy: how long its calls take")
    arguments = parser.parse_args()
    if arguments.cost:
        return call_cost(open_policy(arguments.cost))
    others = {Path(other).stem: of_another_log(other) for other in arguments.other}
    if arguments.data:
        return measure(arguments.data, odice.load(arguments.data), arguments.steps, others)
    from tests.worlds import hospital

    others |= {"another gait": another_gait()}
    measure("hopper-replay", odice.load("bundled/hopper-replay"), arguments.steps, others)
    measure("ward", hospital.dataset(patients=1000), arguments.steps, {})


if __name__ == "__main__":
    main()
