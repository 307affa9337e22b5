"""Ways to act with Diffusion-DICE that need no other training: noise, guidance, selection. And what an action costs.

    python benchmarks/diffusion.py acting --log LOG.hdf5:Hopper-v5 --steps 9600 --seeds 0 1 --last 2
    python benchmarks/diffusion.py cost

`acting` trains once (an ensemble of ten Q for the selection is learned along with the rest) and evaluates every way at
the end of the run; then, on 2,000 states of the log, which of eight draws a Q takes. docs/algorithms/
diffusion_dice.md has the tables.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from typing import Any, NamedTuple

import family
import jax
import jax.numpy as jnp
import numpy as np
import runner

from odice.core.diffusion import DiffusionPolicy, solve
from odice.data.load import load
from odice.evaluation.simulator.evaluate import Evaluator
from odice.policy.policy import Policy
from odice.policy.sampler import Sampler


class Way(NamedTuple):
    """How an action is made."""

    guidance: float = 0.0
    candidates: int = 1
    noise: str = "middle"
    """`middle`: 0. `new`: drawn at every step. `kept`: drawn once, for all steps; of several the first is 0."""
    size: float = 1.0
    """Of the noise."""
    by: str = "Q"
    """Who chooses: the first slow `Q`, the mean of the `ensemble`, or the `worst` by Q."""


WAYS = {
    "clone": Way(),
    "guided (k = 1)": Way(1.0),
    "guided (k = 2)": Way(2.0),
    "clone, new noise": Way(noise="new"),
    "clone, new noise of half the size": Way(noise="new", size=0.5),
    "clone, one draw kept": Way(noise="kept"),
    "clone, one draw of half the size kept": Way(noise="kept", size=0.5),
    "guided (k = 1), the best of 8 kept draws by Q": Way(1.0, 8, "kept"),
    "clone, the best of 8 new draws by Q": Way(0.0, 8, "new"),
    "clone, the best of 8 new draws by the ensemble": Way(0.0, 8, "new", by="ensemble"),
    "clone, the worst of 8 new draws by Q": Way(0.0, 8, "new", by="worst"),
}


@jax.jit
def candidates(policy: DiffusionPolicy, obs, noise):
    """(b, candidates, act) actions from this noise."""
    seen = jnp.broadcast_to(obs[:, None], (*noise.shape[:-1], obs.shape[-1]))
    return jnp.clip(solve(noise, policy.steps, lambda x, *at: policy.clean(seen, x, *at)), -1.0, 1.0)


@jax.jit
def values(critic, obs, actions):
    """(b, candidates) mean over the heads."""
    seen = jnp.broadcast_to(obs[:, None], (*actions.shape[:-1], obs.shape[-1]))
    return jnp.mean(critic(seen, actions), axis=0)


def noise_of(way: Way, rng: np.random.Generator, rows: int, kept: np.ndarray) -> np.ndarray:
    """(rows, candidates, act); `kept` are the draws for all steps."""
    if way.noise == "middle":
        return np.zeros((rows, *kept.shape), np.float32)
    drawn = rng.normal(size=(rows, *kept.shape)) if way.noise == "new" else np.broadcast_to(kept, (rows, *kept.shape))
    return (way.size * drawn).astype(np.float32)


def chosen(way: Way, critics: dict[str, Any], obs, actions) -> np.ndarray:
    """(b,) which candidate is taken."""
    if way.candidates == 1:
        return np.zeros(len(actions), int)
    q = np.asarray(values(critics["ensemble" if way.by == "ensemble" else "Q"], obs, actions))
    return np.argmin(q, axis=1) if way.by == "worst" else np.argmax(q, axis=1)


def actor(way: Way, policy: DiffusionPolicy, critics: dict[str, Any], fitted, seed: int):
    """A function of raw observations."""
    policy = DiffusionPolicy(policy.score, policy.guidance, policy.critic, policy.noise, way.guidance, policy.steps)
    rng = np.random.default_rng(seed)
    kept = np.random.default_rng([seed, 1]).normal(size=(way.candidates, policy.noise.shape[-1]))
    if way.candidates > 1:
        kept[0] = 0.0

    def act(raw):
        obs = jnp.asarray(fitted.observe(raw))
        made = np.asarray(candidates(policy, obs, noise_of(way, rng, len(obs), kept)))
        return fitted.act(made[np.arange(len(made)), chosen(way, critics, obs, made)])

    return act


def trained(where: str, seeds: list[int], steps: int) -> Iterator[tuple[int, Any, list[tuple[DiffusionPolicy, dict]]]]:
    """After each tenth of the run: its number, what undoes the preprocessing, and for each seed what acts."""
    candidate = {**family.RUNNER.candidates["diffusion-dice"], "critic_ensemble": 10}
    settings = runner.small_settings(candidate, steps, family.SMALL, family.FAST)
    transitions, fitted, config, spec = runner.prepare(settings, load(where))
    data, sizes = runner.stacked([transitions] * len(seeds))
    algo = settings.algorithm.build(config, spec)
    parts = runner.train(algo, config.batch_size, data, sizes, seeds, steps, runner.EVALUATIONS)
    for at, states in enumerate(parts, start=1):
        each = [jax.tree.map(lambda leaf, i=i: leaf[i], states) for i in range(len(seeds))]
        first = lambda tree: jax.tree.map(lambda leaf: leaf[:1], tree)
        critics = [{"Q": first(s.values.target), "ensemble": s.ensemble.params} for s in each]
        yield at, (fitted, transitions), list(zip((algo.policy(s) for s in each), critics, strict=True))


def acting(log: str, seeds: list[int], steps: int, last: int) -> None:
    """A row for each way: the mean of the last evaluations, one in each tenth of the run; a number for each seed."""
    where, _, env = log.rpartition(":")
    curves: dict[str, list[list[float]]] = {name: [] for name in WAYS}
    end = None
    with Evaluator(env) as evaluator:
        for at, about, policies in trained(where, seeds, steps):
            end = about, policies
            for name, way in WAYS.items() if at > runner.EVALUATIONS - last else ():
                acts = [actor(way, *policy, about[0], seed) for seed, policy in zip(seeds, policies, strict=True)]
                curves[name].append([evaluator(act, episodes=runner.EPISODES, seed=100 * at).mean for act in acts])
                print(at, name, *(f"{mean:.0f}" for mean in curves[name][-1]), flush=True)
    print("| policy | return |\n|---|---|")
    for name, curve in curves.items():
        print(f"| {name} | {', '.join(f'{mean:,.0f}' for mean in np.mean(curve, axis=0))} |")
    assert end is not None
    preferences(*end)


def preferences(about, policies) -> None:
    """On states of the log: how a Q's choice of eight draws differs from a draw."""
    _, transitions = about
    rows = np.random.default_rng(0).choice(transitions.size, 2000, replace=False)
    batch = transitions.batch(jnp.asarray(rows))
    print("| who chooses of 8 | noise of the chosen | at a bound | distance to the logged action | to the clone's |")
    print("|---|---|---|---|---|")
    for name in ("a draw", "Q", "ensemble", "worst"):
        facts = []
        for policy, critics in policies:
            clone = DiffusionPolicy(policy.score, policy.guidance, policy.critic, policy.noise, 0.0, policy.steps)
            noise = np.random.default_rng(1).normal(size=(len(rows), 8, policy.noise.shape[-1])).astype(np.float32)
            made = np.asarray(candidates(clone, batch.obs, noise))
            middle = np.asarray(candidates(clone, batch.obs, np.zeros_like(noise[:, :1])))[:, 0]
            way = Way(candidates=1 if name == "a draw" else 8, by=name)
            take = np.arange(len(rows)), chosen(way, critics, batch.obs, made)
            action, logged = made[take], np.asarray(batch.action)
            away = lambda other, action=action: float(np.linalg.norm(action - other, axis=1).mean())
            size = float(np.linalg.norm(noise[take], axis=1).mean())
            facts.append((size, float((np.abs(action) > 0.99).mean()), away(logged), away(middle)))
        print(f"| {name} | {' | '.join(', '.join(f'{x:.3f}' for x in column) for column in np.transpose(facts))} |")


SIZES = {
    "a clone: no guidance, one candidate, 128 x 3": ((128,) * 3, (), 1),
    "the defaults: guided, one candidate": ((128,) * 3, (128,) * 2, 1),
    "guided, 8 candidates": ((128,) * 3, (128,) * 2, 8),
    "guided, 16 candidates, 256 wide": ((256,) * 3, (256,) * 2, 16),
}


def cost() -> None:
    """Processor time of a policy of random numbers, for 11 observed numbers and 3 actuators: medians of 30 calls."""
    rng = np.random.default_rng(0)
    print("| networks and candidates | one observation | 16 at once |\n|---|---|---|")
    for name, (score, guidance, count) in SIZES.items():
        layout = Sampler(11, 3, 15, count, 1, score, guidance, (256, 256) if count > 1 else ())
        tensors = {
            key: (rng.normal(size=shape) / np.sqrt(shape[-2] if len(shape) > 1 else 1)).astype(np.float32)
            for key, shape in layout.shapes.items()
        }
        tensors["solver"][:] = np.linspace(0.0, 0.5, tensors["solver"].shape[-1])
        policy, obs = Policy(layout, tensors), rng.normal(size=(16, 11)).astype(np.float32)
        texts = [f"{1e3 * np.median([timed(policy, x) for _ in range(30)]):.1f} ms" for x in (obs[0], obs)]
        print(f"| {name} | {' | '.join(texts)} |", flush=True)


def timed(policy: Policy, obs: np.ndarray) -> float:
    begin = time.process_time()
    policy(obs)
    return time.process_time() - begin


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("do", choices=("acting", "cost"))
    parser.add_argument("--log", default="bundled/hopper-replay:Hopper-v5")
    parser.add_argument("--seeds", nargs="*", type=int, default=[0, 1])
    parser.add_argument("--steps", type=int, default=9600)
    parser.add_argument("--last", type=int, default=5, help="evaluations, of ten, that count")
    args = parser.parse_args()
    if args.do == "cost":
        cost()
    else:
        acting(args.log, args.seeds, args.steps, args.last)
