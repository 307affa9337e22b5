"""The paper's toy experiment: V-DICE under three gradient rules in the grid world, and what their values are good for.

`run` trains the registered algorithms `vdice-true`, `sdice` and `odice` on a log of 800 moves and measures, per rule
and seed, whether the greedy walk on V finds a goal, and whether V tells the cells of the data from the others. A seed
draws the log and the networks. docs/research/toy.md has the results.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from threading import Event
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from odice import algos
from odice.core.gradients import RULES
from odice.core.gradients import rule as gradient_rule
from odice.errors import OdiceError, unknown_name
from odice.experiments import gridworld
from odice.experiments.gridworld import ENCODINGS, GridWorld, Moves
from odice.machine import cores
from odice.training.loop import initial_state, make_chunk
from odice.types import Spec, Transitions

ALGORITHM = {"true": "vdice-true", "semi": "sdice", "orthogonal": "odice"}
"""Gradient rule -> the registered algorithm that trains with it."""

CHOSEN: dict[str, dict[str, float]] = {
    "true": {"lam": 0.9},
    "semi": {"lam": 0.5},
    "orthogonal": {"lam": 0.5, "eta": 0.4},
}
"""lam and eta per rule, tuned by `benchmarks/toy_search.py`."""

NEAR, FAR = 3, 6
"""Cells up to NEAR moves from the data count as near, those more than FAR moves away as far."""

CHUNK = 500  # updates between two reports of progress


@dataclass(frozen=True)
class ToyConfig:
    """One toy experiment. Everything the paper names has its value; the rest is the plainest reading."""

    rules: tuple[str, ...] = RULES
    seed: int = 0
    seeds: int = 1
    steps: int = 10_000
    lam: float | None = None
    eta: float | None = None
    encoding: str = "raw"
    transitions: int = 800
    batch_size: int = 256
    discount: float = 0.99
    reward_scale: float = 1.0
    """Factor of the rewards in training, as D4RL's return scaling; the divergence's own scale is 1."""
    world: GridWorld = field(default_factory=GridWorld)

    def __post_init__(self):
        for name in self.rules:
            gradient_rule(name)
        if not self.rules or len(set(self.rules)) < len(self.rules):
            raise OdiceError(f"rules must name each of {', '.join(RULES)} at most once and one at least.")
        if self.encoding not in ENCODINGS:
            raise unknown_name("encoding", self.encoding, ENCODINGS)
        for name, value in (("steps", self.steps), ("seeds", self.seeds), ("transitions", self.transitions)):
            if value < 1:
                raise OdiceError(f"{name} must be at least 1, got {value}.")
        if not 0 <= self.seed < 2**31 - self.seeds:
            raise OdiceError(f"seed must lie between 0 and {2**31 - self.seeds - 1}, got {self.seed}.")
        if self.eta is not None and not 0 <= self.eta < math.inf:
            raise OdiceError(f"eta must be a finite number of at least 0, got {self.eta}.")
        for name, value in (("goal-reward", self.world.goal_reward), ("reward-scale", self.reward_scale)):
            if not 0 < value < math.inf:
                raise OdiceError(f"{name} must be positive and finite, got {value}.")
        for name in self.rules:
            self.algorithm(name)  # its config refuses a lam, eta or discount that makes no sense

    def settings(self, rule: str) -> dict[str, float]:
        """lam, and eta where the rule has one: the given values, else the tuned ones."""
        given = {"lam": self.lam, "eta": self.eta}
        return {name: given[name] if given[name] is not None else chosen for name, chosen in CHOSEN[rule].items()}  # pyright: ignore[reportReturnType]

    @property
    def spec(self) -> Spec:
        return Spec(obs_dim=ENCODINGS[self.encoding](self.world).shape[1], action_dim=4, discrete=True)

    def algorithm(self, rule: str):
        """The paper's network and optimizer. The policy is greedy on V, so the policy network is not used, and tiny."""
        return algos.make(
            ALGORITHM[rule],
            self.spec,
            **self.settings(rule),  # pyright: ignore[reportArgumentType]
            discount=self.discount,
            value_hidden=(128, 128),
            policy_hidden=(8,),
            value_lr=1e-4,
            polyak=5e-3,
            batch_size=self.batch_size,
        )


class ToyResult(NamedTuple):
    """One rule and seed: the value of every cell, the greedy walk from the start, and the measurements."""

    rule: str
    seed: int
    value: np.ndarray
    path: np.ndarray
    measures: dict[str, Any]


def transitions(config: ToyConfig, log: Moves) -> Transitions:
    """The log on the device; the observation table holds every cell of the world."""
    return Transitions(
        obs=jnp.asarray(ENCODINGS[config.encoding](config.world), jnp.float32),
        index=jnp.asarray(log.cell, jnp.int32),
        next_index=jnp.asarray(log.next_cell, jnp.int32),
        action=jnp.asarray(log.action, jnp.int32),
        reward=jnp.asarray(log.reward * config.reward_scale, jnp.float32),
        terminated=jnp.asarray(log.terminated),
    )


def measure(world: GridWorld, seen: np.ndarray, value: np.ndarray) -> tuple[np.ndarray, dict[str, Any]]:
    """The greedy walk from the start (flat cells), and what the values of all cells are good for."""
    table = gridworld.greedy_map(world, value)
    path = gridworld.walk(world, table)
    goals, away = world.goals(), gridworld.distance_to(seen)
    to_goal = np.minimum(world.distance(world.cells, 0), world.distance(world.cells, 1))
    outside = (~seen & ~goals).ravel()
    finds = gridworld.arrives(table, goals.ravel())
    separation = lambda others: gridworld.auc(value[seen], value[others])
    return path, {
        "reached_goal": bool(goals.flat[path[-1]]),
        "return": float(world.rewards().flat[path[1:]].sum()),
        "walk_in_support": float(seen.flat[path].mean()),
        "value_inside": float(value[seen].mean()),
        "value_outside": float(value[~seen].mean()),
        "auc": separation(~seen),
        "auc_near": separation((away > 0) & (away <= NEAR)),
        "auc_far": separation(away > FAR),
        "auc_matched": gridworld.matched_auc(value.ravel(), seen.ravel(), to_goal),
        "back_to_support": float(gridworld.arrives(table, seen.ravel())[outside].mean()),
        "inside_to_goal": float(finds[seen.ravel()].mean()),
        "outside_to_goal": float(finds[outside].mean()),
    }


def train_rule(config: ToyConfig, rule: str, advance: Callable[[int], None], stop: Event) -> list[ToyResult]:
    """Train one rule for every seed; one compiled program serves them all, as every log has the same length."""
    algo, world = config.algorithm(rule), config.world
    chunks = {length: make_chunk(algo, config.batch_size, length) for length in {CHUNK, config.steps % CHUNK} if length}
    results = []
    for seed in range(config.seed, config.seed + config.seeds):
        log = gridworld.collect(world, config.transitions, seed)
        data, state = transitions(config, log), initial_state(algo, seed)
        for first in range(0, config.steps, CHUNK):
            length = min(CHUNK, config.steps - first)
            state, _ = jax.block_until_ready(chunks[length](state, data, seed, first))
            advance(length)
            if stop.is_set():
                return results
        value = np.asarray(state.value.params(data.obs)[0], float).reshape(world.shape)
        results.append(ToyResult(rule, seed, value, *measure(world, gridworld.support(world, log), value)))
    return results


def run(config: ToyConfig, advance: Callable[[str, int], None] = lambda rule, updates: None) -> list[ToyResult]:
    """Train every rule, in parallel on the available cores. `advance(rule, updates)` is called after each chunk."""
    stop = Event()
    with ThreadPoolExecutor(max_workers=cores()) as pool:
        # The slowest rule first, so that the others fill the second core meanwhile.
        order = sorted(config.rules, key=RULES.index, reverse=True)
        jobs = {
            rule: pool.submit(train_rule, config, rule, lambda n, rule=rule: advance(rule, n), stop) for rule in order
        }
        try:
            return [result for rule in config.rules for result in jobs[rule].result()]
        finally:
            stop.set()  # an interrupt must not wait for the other threads to finish their training
