"""Candidates on worlds with computed truth and on robots' logs: the runner of benchmarks/auto.py and family.py.

All seeds of a candidate train in one compiled program. A world has a new log for each seed and the exact value of the
last policy; a robot has one log and the mean of the last five of ten evaluations. A row of the file is one (log,
candidate, steps, seeds): what is there is not run again.
"""

from __future__ import annotations

import dataclasses
import json
import time
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from odice.algos import entry
from odice.data.dataset import Dataset
from odice.data.load import load
from odice.data.preprocess import fit
from odice.data.transitions import to_transitions
from odice.evaluation.simulator.evaluate import Evaluator
from odice.experiments.worlds import WORLDS
from odice.training.prepare import measure_log
from odice.training.settings import Settings, resolve
from odice.types import Transitions

EVALUATIONS, EPISODES = 10, 10


def small_settings(
    candidate: Mapping[str, Any], steps: int, widths: Mapping[str, Any], optional: Collection[str]
) -> Settings:
    """A run's settings, with networks of these widths; what the algorithm does not have is left out.

    Args:
        candidate: Settings of `odice.train`.
        steps: The number of updates.
        widths: Sizes of the networks by setting.
        optional: Names of the candidate's settings that its algorithm need not have.
    """
    fields = {field.name for field in dataclasses.fields(entry(candidate["algo"]).config)}
    wanted = {key: value for key, value in candidate.items() if key not in optional}
    extra = {**widths, **{key: value for key, value in candidate.items() if key in optional}}
    return resolve("log", steps=steps, **wanted, **{key: value for key, value in extra.items() if key in fields})


def prepare(settings: Settings, dataset: Dataset):
    """The log as the algorithm sees it, what undoes that, and the config with what the log decides."""
    algorithm, convention = settings.algorithm, settings.options.convention
    if settings.best_episodes < 1.0:
        dataset = dataset.by_return(1.0 - settings.best_episodes)
    fitted = fit(settings.preprocess, dataset, convention)
    seen = fitted.apply(dataset)
    columns, chosen, settings = measure_log(settings.with_data(dataset, fitted, 0.0), seen)
    config = settings.config
    if algorithm.value_start:  # rounded, so that logs of one world share a compiled program
        config = dataclasses.replace(config, value_start=round(config.value_start, 1))
    transitions = to_transitions(seen, convention, columns)
    if algorithm.chosen_share and chosen is None:
        chosen = np.arange(transitions.size, dtype=np.int32)  # so that logs of one world share a compiled program
    return transitions._replace(chosen=chosen), fitted, config, seen.spec


def stacked(parts: list[Transitions]) -> tuple[Transitions, np.ndarray]:
    """Transitions of several logs in one, padded to the longest; and how many each has. Of the first states of
    episodes, each log keeps as many as the one with the fewest."""
    sizes = np.array([part.size for part in parts])
    firsts = [np.random.default_rng(0).permutation(np.asarray(part.initial)) for part in parts]
    fewest = min(map(len, firsts))

    def stack(*arrays):
        longest = max(len(array) for array in arrays)
        pad = lambda array: np.concatenate([array, np.repeat(array[-1:], longest - len(array), axis=0)])
        return jnp.asarray(np.stack([pad(array) for array in arrays]))

    cut = [part._replace(initial=first[:fewest]) for part, first in zip(parts, firsts, strict=True)]
    return jax.tree.map(stack, *cut), sizes


def train(algo, batch_size: int, data: Transitions, sizes: np.ndarray, seeds: list[int], steps: int, parts: int):
    """Yield the states of all seeds after each of `parts` equal parts of the run."""

    def update(carry, _, data, size):
        state, key = carry
        key, for_rows, for_update = jax.random.split(key, 3)
        rows = jax.random.randint(for_rows, (batch_size,), 0, size)
        batch = data.batch(rows)
        if data.chosen is not None:
            apart = jax.random.randint(jax.random.fold_in(for_rows, 1), (batch_size,), 0, size)
            batch = batch._replace(chosen=data.batch(data.chosen[apart]))
        if algo.initial_states:
            first = jax.random.randint(jax.random.fold_in(for_rows, 2), (batch_size,), 0, len(data.initial))
            batch = batch._replace(initial_obs=data.obs[data.initial[first]])
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


def policies(algo, states, fitted: list, count: int):
    """Each seed's policy as a function of raw observations."""

    def one(seed: int):
        policy = algo.policy(jax.tree.map(lambda leaf: leaf[seed], states))
        mode = jax.jit(lambda obs: policy.mode(obs))
        return lambda obs: fitted[seed].act(np.asarray(mode(fitted[seed].observe(obs))))

    return [one(seed) for seed in range(count)]


def run_world(name: str, settings: Settings, seeds: list[int], steps: int) -> dict[str, Any]:
    """The exact values of the policies of all seeds, each from a log of its own."""
    world = WORLDS[name]
    logs = [world.make_log(np.random.default_rng([7, seed])) for seed in seeds]
    prepared = [prepare(settings, log) for log in logs]
    data, sizes = stacked([each[0] for each in prepared])
    algo = settings.algorithm.build(prepared[0][2], prepared[0][3])
    *_, states = train(algo, settings.config.batch_size, data, sizes, seeds, steps, 1)
    acting = policies(algo, states, [each[1] for each in prepared], len(seeds))
    values = [world.true_value(policy) for policy in acting]
    row = {"values": values, "log_means": [float(log.returns.mean()) for log in logs]}
    if name.startswith("lottery"):
        row["sure"] = [float(world.policy_table(policy)[0, :, 0].mean()) for policy in acting]
    return row


def run_robot(where: str, settings: Settings, seeds: list[int], steps: int) -> dict[str, Any]:
    """What the policies of all seeds earn; `where` is LOG:ENVIRONMENT."""
    source, _, env = where.rpartition(":")
    dataset = load(source)
    transitions, fitted, config, spec = prepare(settings, dataset)
    data, sizes = stacked([transitions] * 1)
    data = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (len(seeds), *leaf.shape[1:])), data)
    algo = settings.algorithm.build(config, spec)
    sizes = np.repeat(sizes, len(seeds))
    curve = []
    with Evaluator(env) as evaluator:
        for at, states in enumerate(
            train(algo, settings.config.batch_size, data, sizes, seeds, steps, EVALUATIONS), start=1
        ):
            if at <= EVALUATIONS // 2:
                continue
            acting = policies(algo, states, [fitted] * len(seeds), len(seeds))
            curve.append([evaluator(act, episodes=EPISODES, seed=100 * at).mean for act in acting])
    values = np.mean(curve, axis=0).tolist()
    return {"values": values, "last": curve[-1], "log_means": [float(dataset.returns.mean())] * len(seeds)}


@dataclasses.dataclass(frozen=True)
class Runner:
    """Trains candidates, and keeps a row of each result in a file."""

    candidates: Mapping[str, Mapping[str, Any]]
    """Settings of `odice.train` by name."""
    file: Path
    """Of the rows, as JSON lines."""
    widths: Mapping[str, Any]
    """Sizes of the networks by setting, for the algorithms that have it."""
    optional: Collection[str]
    """Settings of candidates that their algorithm need not have."""

    def settings(self, who: str, steps: int) -> Settings:
        return small_settings(self.candidates[who], steps, self.widths, self.optional)

    def run(self, logs: Sequence[str], whos: Sequence[str], seeds: list[int], steps: int) -> None:
        """Train what has no row yet. A log is the name of a world, or NAME=LOG:ENVIRONMENT."""
        self.file.parent.mkdir(parents=True, exist_ok=True)
        done = {(row["log"], row["who"], row["steps"], tuple(row["seeds"])) for row in self.rows()}
        for log in logs:
            name, _, where = log.partition("=")
            for who in whos:
                if (name, who, steps, tuple(seeds)) in done:
                    continue
                begin, settings = time.time(), self.settings(who, steps)
                result = run_robot(where, settings, seeds, steps) if where else run_world(name, settings, seeds, steps)
                row = {"log": name, "who": who, "steps": steps, "seeds": seeds, **result}
                row["seconds"] = round(time.time() - begin, 1)
                with self.file.open("a") as file:
                    file.write(json.dumps(row) + "\n")
                values = " ".join(f"{value:.3f}" for value in row["values"])
                sure = " sure " + " ".join(f"{x:.2f}" for x in row["sure"]) if "sure" in row else ""
                print(f"{name:12s} {who:14s} {values}{sure}  [{row['seconds']:.0f} s]", flush=True)

    def rows(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.file.read_text().splitlines()] if self.file.exists() else []

    def table(self) -> None:
        """A line for each log, a column for each candidate: the mean over the seeds, and the worst of them."""
        cells = {(row["log"], row["who"]): row for row in self.rows()}
        whos = list(dict.fromkeys(who for _, who in cells))
        print(f"| log | the log | best possible | {' | '.join(whos)} |")
        print("|---" * (len(whos) + 3) + "|")
        for log in dict.fromkeys(log for log, _ in cells):
            world = WORLDS.get(log)
            means = next(row["log_means"] for (name, _), row in cells.items() if name == log)
            own = world.behavior_value if world else np.mean(means)
            texts = [
                f"{np.mean(cells[log, who]['values']):.4g} ({min(cells[log, who]['values']):.4g})"
                if (log, who) in cells
                else ""
                for who in whos
            ]
            print(f"| {log} | {own:.4g} | {f'{world.best_value:.4g}' if world else ''} | {' | '.join(texts)} |")
