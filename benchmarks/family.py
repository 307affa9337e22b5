"""The algorithms that came after the paper, and the baselines practitioners know, on worlds and robot logs.

    python benchmarks/family.py run                                        # worlds with computed truth
    python benchmarks/family.py run --logs bundled=bundled/hopper-replay:Hopper-v5 --steps 9600 --seeds 0 1
    python benchmarks/family.py acting --logs NAME=LOG.hdf5:Hopper-v5 --steps 9600 --seeds 0 1
    python benchmarks/family.py table

`acting` trains Diffusion-DICE once for each seed and compares ways to act with it, which need no other training.

The runner, the sizes of the networks and the protocol are those of benchmarks/auto.py. An algorithm for continuous
actions alone is left out where actions are choices. docs/research/parity.md and
docs/algorithms/diffusion_dice.md read the tables.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import auto
import jax
import jax.numpy as jnp
import numpy as np

from odice.algos import entry
from odice.core.diffusion import DiffusionPolicy
from odice.data.load import load
from odice.evaluation.simulator.evaluate import Evaluator
from odice.experiments.worlds import WORLDS
from odice.types import Transitions

FAST = {**auto.FAST, "score_lr": 3e-3, "guidance_lr": 1e-3}
DIFFUSION = {"algo": "diffusion-dice", **FAST}
CANDIDATES: dict[str, dict[str, Any]] = {
    "bc": {"algo": "bc", **FAST},
    "bc-10": {"algo": "bc-10", **FAST},
    "iql": {"algo": "iql", **FAST},
    "awac": {"algo": "awac", **FAST},
    "crr": {"algo": "crr", **FAST},
    "rebrac": {"algo": "rebrac", "batch_size": 256, **FAST},
    "cors-dice": {"algo": "cors-dice", "reward": "return-spread", **FAST},
    "idrl": {"algo": "idrl", "reward": "return-spread", **FAST},
    "diffusion-dice": DIFFUSION,
    "diffusion-clone": {**DIFFUSION, "guidance": 0.0, "candidates": 1},
    "diffusion-guided": {**DIFFUSION, "guidance": 4.0, "candidates": 1},
    "diffusion-select": {**DIFFUSION, "guidance": 0.0, "candidates": 16},
}
WORLD_LOGS = ("lottery-30", "lottery-10", "corridor", "inventory", "dosing")


def stacked(parts: list[Transitions]) -> tuple[Transitions, np.ndarray]:
    """As `auto.stacked`, with the first states of the episodes, cut to the shortest."""
    data, sizes = whole(parts)
    starts = [np.asarray(part.initial) for part in parts]
    shortest = min(map(len, starts))
    drawn = [np.random.default_rng(0).permutation(start)[:shortest] for start in starts]
    return data._replace(initial=jnp.asarray(np.stack(drawn))), sizes


whole = auto.stacked


def train(algo, batch_size: int, data: Transitions, sizes: np.ndarray, seeds: list[int], steps: int, parts: int):
    """As `auto.train`, with first states where the algorithm reads them."""

    def update(carry, _, data, size):
        state, key = carry
        key, for_rows, for_first, for_update = jax.random.split(key, 4)
        batch = data.batch(jax.random.randint(for_rows, (batch_size,), 0, size))
        if algo.initial_states:
            first = data.initial[jax.random.randint(for_first, (batch_size,), 0, data.initial.shape[0])]
            batch = batch._replace(initial_obs=data.obs[first])
        state, _ = algo.update(state, batch, for_update)
        return (state, key), None

    def part(state, key, data, size):
        return jax.lax.scan(lambda carry, x: update(carry, x, data, size), (state, key), None, steps // parts)[0]

    keys = jnp.stack([jax.random.PRNGKey(seed) for seed in seeds])
    states = jax.jit(jax.vmap(algo.init))(keys)
    run = jax.jit(jax.vmap(part))
    for _ in range(parts):
        states, keys = run(states, keys, data, jnp.asarray(sizes))
        yield states


def fits(log: str, who: str) -> bool:
    """Whether an algorithm has a form for the actions of a log."""
    name = log.partition("=")[0]
    return name not in WORLDS or not WORLDS[name].discrete or entry(CANDIDATES[who]["algo"]).discrete


ACTING = {"clone": (0.0, 1), "guided": (1.0, 1), "guided, k 2": (2.0, 1), "guided, best of 8": (1.0, 8)}
"""Guidance and candidates."""


def acting(log: str, seeds: list[int], steps: int) -> None:
    """A row for each way to act: the mean of the last five of ten evaluations, one number for each seed."""
    name, _, where = log.partition("=")
    source, _, env = where.rpartition(":")
    settings = auto.settings_of("diffusion-dice", steps)
    transitions, fitted, config, spec = auto.prepare(settings, load(source))
    data, sizes = stacked([transitions])
    data = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (len(seeds), *leaf.shape[1:])), data)
    algo = settings.algorithm.build(config, spec)
    curves: dict[str, list[list[float]]] = {who: [] for who in ACTING}
    mode = jax.jit(lambda policy, obs: policy.mode(obs))
    with Evaluator(env) as evaluator:
        parts = train(algo, config.batch_size, data, np.repeat(sizes, len(seeds)), seeds, steps, auto.EVALUATIONS)
        for at, states in enumerate(parts, start=1):
            for who, (scale, count) in ACTING.items() if at > auto.EVALUATIONS // 2 else ():
                means = []
                for i in range(len(seeds)):
                    p: Any = algo.policy(jax.tree.map(lambda leaf, i=i: leaf[i], states))
                    p = DiffusionPolicy(p.score, p.guidance, p.critic, p.noise[:count], scale, p.steps)
                    act = lambda obs, p=p: fitted.act(np.asarray(mode(p, jnp.asarray(fitted.observe(obs)))))
                    means.append(evaluator(act, episodes=auto.EPISODES, seed=100 * at).mean)
                curves[who].append(means)
                print(name, at, who, *(f"{mean:.0f}" for mean in means), flush=True)
    for who, curve in curves.items():
        print(f"| {name} | {who} | {', '.join(f'{mean:,.0f}' for mean in np.mean(curve, axis=0))} |", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("do", choices=("run", "acting", "table"))
    parser.add_argument("--logs", nargs="*", default=list(WORLD_LOGS))
    parser.add_argument("--who", nargs="*", default=[name for name in CANDIDATES if name != "diffusion-guided"])
    parser.add_argument("--seeds", nargs="*", type=int, default=[0, 1, 2])
    parser.add_argument("--steps", type=int, default=2000)
    args = parser.parse_args()
    auto.CANDIDATES, auto.FAST, auto.ROWS = CANDIDATES, FAST, Path("runs/family/rows.jsonl")
    auto.SMALL |= {"score_hidden": auto.WIDTH, "guidance_hidden": auto.WIDTH}
    auto.stacked, auto.train = stacked, train
    if args.do == "table":
        auto.table()
    elif args.do == "acting":
        for log in args.logs:
            acting(log, args.seeds, args.steps)
    else:
        for log in args.logs:
            auto.run([log], [who for who in args.who if fits(log, who)], args.seeds, args.steps)
