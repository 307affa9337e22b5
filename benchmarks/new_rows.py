"""What the newer members of the family score: on stochastic tabular problems, and on the bundled log.

    nice python benchmarks/new_rows.py table
    nice python benchmarks/new_rows.py hopper --out runs/new-rows
    nice python benchmarks/new_rows.py worlds --out runs/new-rows
    nice python benchmarks/new_rows.py rounds --data LOG.hdf5 --out runs/new-rows

`table`: five random MDPs (8 states, 3 actions, 3 next states each, discount 0.9), 2000 logged transitions of a random
policy, tables instead of networks, 4000 updates. 0 is what the behavior earns, 100 what the best policy earns, both by
exact evaluation; of the learned policy as it is, and of its best action. Those that imitate have 200 transitions of the
best policy beside the log.

`hopper`: `bundled/hopper-replay`, one seed, networks of 64-64, batches of 128, 5000 updates: far shorter than any
schedule is meant for. The mean of ten episodes. Those that imitate have the log's ten best episodes as demonstrations.

`worlds`: worlds of chance with computed truth (`odice.experiments.worlds`), a new log for each of three seeds, 64-64,
2000 updates: the exact value of the policy, and on a lottery how often it takes the sure action.

`rounds`: cloning, the clone of the best tenth, and IDRL with one and two rounds on one log; 64-64, two seeds.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))

import odice
from odice.algos import entry, make
from odice.data.dataset import Dataset
from odice.experiments.worlds import WORLDS
from odice.training.loop import initial_state, make_chunk
from odice.types import Spec, Transitions
from tests.algos.numpy_vdice import OFF
from tests.oracles import tabular

STATES, ACTIONS, ROWS, LIMIT = 8, 3, 2000, 0.45
UPDATES = {"table": 4000, "hopper": 5000, "worlds": 2000, "rounds": 10_000}


class Row(NamedTuple):
    label: str
    algo: str
    settings: dict[str, Any] = {}
    reward: float = 1.0
    """What the log's rewards are multiplied with."""


RULES = ("true", "semi", "orthogonal")
PAPER = OFF | {"lam": 0.6, "eta": 1.0, "polyak": 0.005, "value_lr": 1e-4, "policy_lr": 1e-4}
"""`auto` as the paper's O-DICE."""
SLOW = {"alpha": 0.3, "value_lr": 3e-3, "critic_lr": 3e-3, "state_lr": 3e-3, "cost_lr": 1e-3}
"""CORSDICE's price must not run ahead of its estimates."""
TABLE = [
    Row("bc", "bc"),
    Row("odice", "odice"),
    Row("odice, `double_sampling` both", "auto", PAPER | {"double_sampling": "both"}),
    Row("optidice", "optidice", {"normalize": True}),
    *[Row(f"algae-dice, {rule}", "algae-dice", {"gradient": rule}) for rule in RULES],
    Row("xql", "xql"),
    Row("copti-dice, no limit", "copti-dice", {"cost_limit": 10.0}),
    Row(f"copti-dice, limit {LIMIT}", "copti-dice", {"cost_limit": LIMIT}),
    Row("cors-dice, no limit", "cors-dice", SLOW | {"cost_limit": 10.0}),
    Row(f"cors-dice, limit {LIMIT}", "cors-dice", SLOW | {"cost_limit": LIMIT}),
    Row("idrl, 1 round", "idrl", {"rounds": 1}),
    Row("idrl, 2 rounds", "idrl", {"rounds": 2}),
    Row("demo-dice", "demo-dice"),
    Row("lobs-dice", "lobs-dice", {"discriminator_hidden": (64,)}),  # of pairs of states: no table
    Row("rgm", "rgm"),
    Row("rgm, rewards of the wrong sign", "rgm", {}, -1.0),
    Row("the same, not corrected", "rgm", {"correction_lr": 0.0}, -1.0),
]


# --- tables -----------------------------------------------------------------------------------------------------------


class World(NamedTuple):
    mdp: tabular.TabularMDP
    cost: np.ndarray
    behavior: np.ndarray
    best: np.ndarray
    data: Transitions


def best_policy(mdp: tabular.TabularMDP) -> np.ndarray:
    """By policy iteration."""
    policy = np.full((mdp.states, mdp.actions), 1 / mdp.actions)
    while True:
        q = mdp.reward + mdp.discount * mdp.onward @ tabular.evaluate(mdp, policy)
        better = np.eye(mdp.actions)[q.argmax(1)]
        if np.array_equal(better, policy):
            return policy
        policy = better


@cache
def world(seed: int) -> World:
    rng = np.random.default_rng(seed)
    mdp = tabular.random_mdp(rng, STATES, ACTIONS, terminals=0)
    cost, behavior = rng.random((STATES, ACTIONS)), rng.dirichlet(np.ones(ACTIONS), size=STATES)
    best = best_policy(mdp)
    shown, log = tabular.sample_log(mdp, best, rng, 200), tabular.sample_log(mdp, behavior, rng, ROWS)
    state, action, following = (np.concatenate([getattr(x, n) for x in (shown, log)]) for n in log._fields[:3])
    starts = rng.choice(STATES, 1000, p=mdp.initial)
    data = Transitions(
        obs=jnp.eye(STATES),
        index=jnp.asarray(state),
        next_index=jnp.asarray(following),
        action=jnp.asarray(action, jnp.int32),
        reward=jnp.asarray(mdp.reward[state, action], jnp.float32),
        terminated=jnp.zeros(len(state), bool),
        initial=jnp.asarray(starts),
        expert=jnp.arange(200),
        columns={"cost": jnp.asarray(cost[state, action], jnp.float32)},
    )
    return World(mdp, cost, behavior, best, data)


def without_demonstrations(data: Transitions) -> Transitions:
    cut = lambda name: getattr(data, name)[200:]
    names = ("index", "next_index", "action", "reward", "terminated")
    columns = {name: column[200:] for name, column in data.columns.items()}
    return data._replace(expert=None, columns=columns, **{name: cut(name) for name in names})


def tables(row: Row) -> dict[str, Any]:
    """A row's settings, for tables."""
    fields = entry(row.algo).config.__dataclass_fields__
    values: dict[str, Any] = {name: () for name in fields if name.endswith("_hidden")}
    values |= {name: 0.01 for name in fields if name.endswith("_lr")}
    shared = {"discount": 0.9, "batch_size": 256, "discriminator_steps": 1000, "layer_norm": False, "cosine_steps": 0}
    values |= {name: value for name, value in shared.items() if name in fields}
    return values | row.settings


def probabilities(policy: Any) -> np.ndarray:
    return np.asarray(jax.nn.softmax(policy.logits(jnp.eye(STATES)), axis=-1), np.float64)


def table_row(row: Row, updates: int) -> str:
    length = {"total_steps": updates} if row.algo == "idrl" else {}
    algo = make(row.algo, Spec(STATES, ACTIONS, discrete=True), **tables(row), **length)
    chunk, begin = make_chunk(algo, 256, updates // 4), jax.jit(lambda seed: initial_state(algo, seed))
    rows = []
    for seed in range(5):
        it = world(seed)
        data = it.data if algo.expert else without_demonstrations(it.data)
        state, data = begin(seed), data._replace(reward=row.reward * data.reward)
        for first in range(0, updates, updates // 4):
            state, metrics = chunk(state, data, seed, first)
        policy = probabilities(algo.policy(state))
        worth = lambda pi, it=it: float(it.mdp.initial @ tabular.evaluate(it.mdp, pi))
        low, high = worth(it.behavior), worth(it.best)
        scores = [100 * (worth(pi) - low) / (high - low) for pi in (policy, np.eye(ACTIONS)[policy.argmax(1)])]
        said = float(metrics.get("cost_estimate", np.nan))  # of the last quarter
        rows.append([*scores, float(np.sum(tabular.visitation(it.mdp, policy) * it.cost)), said])
    mean = np.mean(rows, axis=0)
    said = "" if np.isnan(mean[3]) else f"{mean[3]:.2f}"
    return f"| {row.label} | {mean[0]:.0f} | {mean[1]:.0f} | {mean[2]:.2f} | {said} |"


# --- the bundled log --------------------------------------------------------------------------------------------------

LOG = "bundled/hopper-replay"
SAVING = 0.7
HOPPER = [
    Row("bc", "bc"),
    Row("odice", "odice"),
    Row("odice, `double_sampling` both", "auto", PAPER | {"double_sampling": "both"}),
    Row("optidice", "optidice", {"reward": "standard-tenth"}),
    Row("optidice, cloning", "optidice", {"reward": "standard-tenth", "extraction": "cloning"}),
    *[Row(f"algae-dice, {rule}", "algae-dice", {"gradient": rule}) for rule in RULES],
    Row("xql", "xql", {"reward": "return-range"}),
    Row("copti-dice, no limit", "copti-dice", {"cost_limit": 10.0, "reward_scale": 0.2}),
    Row(f"copti-dice, limit {SAVING} of the log's cost", "copti-dice", {"reward_scale": 0.2}),
    Row("cors-dice, no limit", "cors-dice", {"cost_limit": 10.0, "reward_scale": 0.2}),
    Row(f"cors-dice, limit {SAVING} of the log's cost", "cors-dice", {"reward_scale": 0.2}),
    Row("demo-dice", "demo-dice"),
    Row("lobs-dice", "lobs-dice"),
    Row("rgm", "rgm"),
    Row("rgm, rewards of the wrong sign", "rgm", {}, -1.0),
]


def costly(log: Dataset) -> Dataset:
    """The log with the squared size of its actions as costs."""
    from dataclasses import replace

    return replace(log, costs=np.mean(np.square(log.actions), axis=1).astype(np.float32))


def hopper_row(row: Row, out: Path, updates: int) -> str:
    log = odice.load(LOG)
    options: dict[str, Any] = {"algo": row.algo, "steps": updates, "eval_every": updates, "quiet": True, "holdout": 0.0}
    fields = entry(row.algo).config.__dataclass_fields__
    options |= {name: (64, 64) for name in fields if name.endswith("_hidden")} | {"batch_size": 128}
    options |= {"discriminator_steps": updates // 5} if "discriminator_steps" in fields else {}
    options |= {"checkpoint_every": updates, "out": out / row.label.replace(" ", "-").replace("`", ""), **row.settings}
    if row.algo in ("copti-dice", "cors-dice"):
        log = costly(log)
        assert log.costs is not None
        options.setdefault("cost_limit", SAVING * float(np.mean(log.costs)))
    if row.reward != 1.0:
        options["reward_scale"] = row.reward
    if entry(row.algo).factory(entry(row.algo).config(), Spec(11, 3)).expert:
        best = np.argsort(log.returns)[-10:]
        rest = np.setdiff1d(np.arange(log.n_episodes), best)
        run = odice.imitate(log.select(best), suboptimal=log.select(rest), **options)
    else:
        run = odice.train(log, **options)
    lines = (run.path / "evaluations.jsonl").read_text().splitlines()
    last = json.loads(lines[-1])
    metrics = json.loads((run.path / "metrics.jsonl").read_text().splitlines()[-1])
    cost = f"{metrics['cost_estimate']:.3f} of {metrics['cost_of_data']:.3f}" if "cost_estimate" in metrics else ""
    return f"| {row.label} | {last['mean']:.0f} | {last['score']:.1f} | {cost} |"


# --- worlds of chance, and IDRL's rounds ------------------------------------------------------------------------------

CHANCE = ("lottery-30", "lottery-10", "inventory", "grid")
SHARP = {"reward": "return-spread", "alpha": 0.3}
"""Rewards in standard deviations of the log's returns, and weights that tell them apart."""
ON_WORLDS = [
    Row("bc", "bc"),
    Row("bc-10", "bc-10"),
    Row("iql", "iql"),
    Row("cors-dice", "cors-dice", SHARP),
    Row("idrl, 1 round", "idrl", SHARP | {"rounds": 1}),
    Row("idrl, 2 rounds", "idrl", SHARP | {"rounds": 2}),
]


def small(row: Row, updates: int, out: Path) -> dict[str, Any]:
    """The settings of a short run with small networks."""
    fields = entry(row.algo).config.__dataclass_fields__
    given: dict[str, Any] = {"algo": row.algo, "steps": updates, "checkpoint_every": updates, "quiet": True}
    given |= {name: (64, 64) for name in fields if name.endswith("_hidden")} | {"holdout": 0.0, "out": out}
    return given | {name: 1e-3 for name in fields if name.endswith("_lr") and name != "cost_lr"} | row.settings


def world_row(name: str, row: Row, out: Path, updates: int) -> str:
    here, values, sure = WORLDS[name], [], []
    for seed in range(3):
        log = here.make_log(np.random.default_rng([7, seed]))
        given = small(row, updates, out / f"{name}-{row.label}-{seed}".replace(" ", "-").replace(",", ""))
        policy = odice.train(log, seed=seed, **given).policy
        values.append(here.true_value(policy))
        if name.startswith("lottery"):
            sure.append(float(here.policy_table(policy)[0, :, 0].mean()))
    share = f"{np.mean(sure):.2f} ({min(sure):.2f})" if sure else ""
    return f"| {name} | {row.label} | {np.mean(values):.3f} | {min(values):.3f} | {here.behavior_value:.3f} | {share} |"


def rounds_row(data: str, row: Row, out: Path, updates: int) -> str:
    means = []
    for seed in range(2):
        given = small(row, updates, out / f"{Path(data).stem}-{row.label}-{seed}".replace(" ", "-").replace(",", ""))
        run = odice.train(data, seed=seed, eval_every=updates // 10, **given)
        scores = [json.loads(line)["mean"] for line in (run.path / "evaluations.jsonl").read_text().splitlines()]
        means.append(np.mean(scores[-5:]))
    kept = json.loads((run.path / "metrics.jsonl").read_text().splitlines()[-1]).get("kept")
    left = "" if kept is None else f"{kept:.2f}"
    return f"| {Path(data).stem} | {row.label} | {' '.join(f'{mean:.0f}' for mean in means)} | {left} |"


def lines(options: argparse.Namespace) -> Iterator[str]:
    updates = options.updates or UPDATES[options.part]
    if options.part == "worlds":
        yield "| world | algorithm | value, mean of 3 seeds | worst | the log's | sure action, mean (least) |"
        yield "|---|---|---|---|---|---|"
        chosen = [row for row in ON_WORLDS if not options.algo or row.algo in options.algo]
        yield from (world_row(name, row, options.out, updates) for name in CHANCE for row in chosen)
        return
    if options.part == "rounds":
        yield "| log | algorithm | return, two seeds | left |\n|---|---|---|---|"
        chosen = [row for row in ON_WORLDS if row.algo in (options.algo or ("bc", "bc-10", "idrl"))]
        yield from (rounds_row(options.data, row, options.out, updates) for row in chosen)
        return
    if options.part == "table":
        yield "| algorithm | policy | its best action | cost | its estimate |\n|---|---|---|---|---|"
        worlds = [world(seed) for seed in range(5)]
        cost_of = lambda it, policy: float(np.sum(tabular.visitation(it.mdp, policy) * it.cost))
        behavior, best = (np.mean([cost_of(it, getattr(it, name)) for it in worlds]) for name in ("behavior", "best"))
        yield f"| the behavior | 0 | | {behavior:.2f} | |\n| the best policy | 100 | 100 | {best:.2f} | |"
        yield from (table_row(row, updates) for row in TABLE if not options.algo or row.algo in options.algo)
        return
    yield "| algorithm | return | score | cost per step |\n|---|---|---|---|"
    chosen = [row for row in HOPPER if not options.algo or row.algo in options.algo]
    yield from (hopper_row(row, options.out, updates) for row in chosen)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=list(UPDATES))
    parser.add_argument("--data", default=LOG, help="the log of `rounds`")
    parser.add_argument("--algo", action="append", help="only these")
    parser.add_argument("--out", type=Path, default=Path("runs/new-rows"))
    parser.add_argument("--updates", type=int, help=f"if not {UPDATES}")
    for line in lines(parser.parse_args()):
        print(line, flush=True)


if __name__ == "__main__":
    main()
