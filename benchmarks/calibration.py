"""How often is a stated bound false? Verdicts on worlds whose truth is known, counted.

    python benchmarks/calibration.py run --out OUT          # resumable; rows are appended to OUT/rows.jsonl
    python benchmarks/calibration.py table --out OUT        # from the rows, with the rules as they are now

Each world gives logs of two sizes. The first half of a log trains policies, the other half judges them. Each log has
two policies, in turn of these kinds:

    greedy    the best action by a regression of the returns, which is free to fit luck (continuous: a regression of the
              actions, weighted by exp(advantage))
    good      a policy that its author thinks good
    clone     the likeliest action, or the mean action
    random    as greedy, with the returns shuffled: no relation to what was earned

The truth is computed where the world is a table (odice/experiments/worlds.py), else simulated. The rules of the verdict
were chosen on the worlds marked `chosen`; the others report.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))

from odice.data.build import from_steps
from odice.data.dataset import Dataset
from odice.data.meta import Meta
from odice.evaluation.ope.estimate import FACTOR, estimate
from odice.evaluation.ope.intervals import Interval, student
from odice.evaluation.ope.verdict import Verdict, conclude
from odice.experiments import worlds as tables
from odice.jsonable import jsonable
from tests import worlds as simulated
from tests.worlds import collection, record

Act = Callable[[np.ndarray], np.ndarray]
KINDS = (("greedy", "good"), ("greedy", "random"), ("greedy", "clone"), ("good", "random"))
STEPS = 10_000
"""Of the larger logs, about."""
SIMULATED = 3000
"""Episodes of the truth where it is simulated, a quarter where they are long; ten times as many of the behavior's."""


class Case(NamedTuple):
    """One world as the benchmark needs it."""

    name: str
    discount: float
    make: Callable[[int, int], Dataset]
    """(seed, episodes) -> a log."""
    value: Callable[[Act], tuple[float, float]]
    """The true return of a policy, and its standard error."""
    behavior: Callable[[], float]
    good: Act
    length: float
    """Mean steps of an episode."""
    chosen: bool
    """Whether the rules were chosen on it."""


def table_case(name: str, chosen: bool, randomized: bool = False) -> Case:
    """A world of odice.experiments.worlds; the truth is exact. `randomized`: the log gives its propensities."""
    world = tables.WORLDS[name]
    mixed = sum(share * agent for share, agent in zip(world.shares, world.agents, strict=True))

    def make(seed: int, episodes: int) -> Dataset:
        data = world.make_log(np.random.default_rng([7, seed]), episodes)
        if not randomized:
            return data
        # one-step worlds only: the state is the row of the table with this observation
        rows = {row.tobytes(): s for s, row in enumerate(world.observe(np.arange(len(world.observations)), 0))}
        state = np.array([rows[row.tobytes()] for row in data.step_observations()])
        return replace(data, propensities=mixed[state, data.actions].astype(np.float32))

    best = world.best_table
    good = world.as_policy(0.8 * best + 0.2 * mixed if world.discrete else best)
    length = make(0, 200).lengths.mean()
    value = lambda act: (world.true_value(act), 0.0)
    title = f"{name} (randomized)" if randomized else f"{name} (table)"
    return Case(title, 1.0, make, value, lambda: world.behavior_value, good, float(length), chosen)


def simulated_case(module: Any, chosen: bool, discount: float = 0.99) -> Case:
    """A world of tests/worlds; the truth is simulated."""
    world = module.WORLD
    columns = module.COLUMNS
    simulated_episodes = SIMULATED if world.horizon <= 100 else SIMULATED // 4

    def make(seed: int, episodes: int) -> Dataset:
        steps = record(world, 1000 + seed, episodes)
        discrete = steps.actions.ndim == 1
        bounds = {key: columns[key] for key in ("action_low", "action_high") if key in columns}
        count = int(steps.actions.max()) + 1 if discrete else None
        flags = {"terminated": steps.terminated, "truncated": steps.truncated, "episode": steps.episode}
        meta = Meta(source=module.__name__.split(".")[-1], n_actions=count, **bounds)
        nexts = steps.next_observations
        return from_steps(steps.observations, steps.actions, steps.rewards, next_observations=nexts, meta=meta, **flags)

    def returns(seed: int, episodes: int, act: Act | None) -> np.ndarray:
        steps = record(world, seed, episodes, act)
        return np.bincount(steps.episode, steps.rewards * discount**steps.step, minlength=episodes)

    def value(act: Act) -> tuple[float, float]:
        earned = returns(77, simulated_episodes, act)
        return float(earned.mean()), float(earned.std() / len(earned) ** 0.5)

    behavior = lambda: float(np.mean([returns(78 + i, simulated_episodes, None).mean() for i in range(10)]))
    length = float(make(0, 50).lengths.mean())
    return Case(module.__name__.split(".")[-1], discount, make, value, behavior, module.good, length, chosen)


def cases() -> list[Callable[[], Case]]:
    s = simulated
    return [
        lambda: simulated_case(s.hospital, True),
        lambda: simulated_case(collection, False),
        lambda: table_case("lottery-30", True),
        lambda: table_case("lottery-10", False),
        lambda: simulated_case(s.ads, False),
        lambda: table_case("corridor", False),
        lambda: simulated_case(s.traffic, True),
        lambda: table_case("hospital", False),
        lambda: table_case("grid", True),
        lambda: simulated_case(s.game, False),
        lambda: simulated_case(s.inventory, True),
        lambda: table_case("dosing", False),
        lambda: simulated_case(s.batch, True),
        lambda: table_case("bandit", True, randomized=True),
        lambda: table_case("lottery-20", False, randomized=True),
        lambda: simulated_case(s.hvac, False),
        lambda: simulated_case(s.arm, True),
    ]


# --- policies ---------------------------------------------------------------------------------------------------------


class Features:
    """Random cosines of standardized observations: enough of them to fit luck."""

    def __init__(self, observations: np.ndarray, rng: np.random.Generator, count: int = 150):
        self.mean, self.scale = observations.mean(0), observations.std(0) + 1e-6
        self.weight = rng.normal(size=(observations.shape[1], count)) / observations.shape[1] ** 0.5
        self.phase = rng.uniform(0, 2 * np.pi, count)

    def __call__(self, observations: np.ndarray) -> np.ndarray:
        x = (observations - self.mean) / self.scale
        return np.concatenate([np.ones((len(x), 1)), x, np.cos(x @ self.weight + self.phase)], axis=1)


def ridge(x: np.ndarray, y: np.ndarray, weight: np.ndarray | None = None, strength: float = 1.0) -> np.ndarray:
    wx = x if weight is None else x * weight[:, None]
    return np.linalg.solve(wx.T @ x + strength * np.eye(x.shape[1]), wx.T @ y)


def make_policy(kind: str, data: Dataset, case: Case, seed: int) -> Act:
    if kind == "good":
        return case.good
    rng = np.random.default_rng([seed, len(kind)])
    observations = data.step_observations().astype(np.float64)
    features = Features(observations, rng)
    x = features(observations)
    to_go = data.rewards.astype(np.float64).copy()
    last = np.zeros(data.n_steps, bool)
    last[data.ends] = True
    for i in range(data.n_steps - 2, -1, -1):
        to_go[i] += 0.0 if last[i] else case.discount * to_go[i + 1]
    if kind == "random":
        to_go = rng.permutation(to_go)
    if data.discrete:
        actions = np.eye(data.spec.action_dim)[data.actions]
        if kind == "clone":
            weights = ridge(x, actions)
        else:
            left = to_go - x @ ridge(x, to_go)
            weights = np.stack([ridge(x, left, a) for a in actions.T], axis=1)
        return lambda seen: np.argmax(features(seen.astype(np.float64)) @ weights, axis=1)
    low, high = data.meta.action_low, data.meta.action_high
    importance = None
    if kind != "clone":
        left = to_go - x @ ridge(x, to_go)
        importance = np.exp(np.clip(2 * left / (left.std() + 1e-9), -6, 3))
    weights = ridge(x, data.actions.astype(np.float64), importance)
    bounds = (np.asarray(low), np.asarray(high)) if low is not None and high is not None else (-np.inf, np.inf)
    return lambda seen: np.clip(features(seen.astype(np.float64)) @ weights, *bounds)


# --- running ----------------------------------------------------------------------------------------------------------


def run(out: Path, logs: int, only: list[str], chosen: bool | None) -> None:
    file = out / "rows.jsonl"
    file.parent.mkdir(parents=True, exist_ok=True)
    done = {(row["world"], row["log"], row["policy"]) for row in read(out)}
    known: dict[str, tuple[Case, float]] = {}
    for make_case in cases():
        case = make_case()
        if (not only or case.name in only) and chosen in (None, case.chosen):
            known[case.name] = case, _behavior_value(case, out / "behavior.json")
    for number in range(logs):
        for case, usual in known.values():
            most = int(np.clip(STEPS / case.length, 100, 3000))
            episodes = most if number % 2 else min(100, most)
            kinds = [kind for kind in KINDS[number // 2 % len(KINDS)] if (case.name, number, kind) not in done]
            if not kinds:
                continue
            data = case.make(number, 2 * episodes)
            train, judge = data.select(np.arange(episodes)), data.select(np.arange(episodes, 2 * episodes))
            for kind in kinds:
                began = time.process_time()
                policy = make_policy(kind, train, case, number)
                truth, error = case.value(policy)
                simulating = time.process_time() - began
                estimates = estimate(policy, judge, discount=case.discount, seed=number)
                row = {
                    "world": case.name,
                    "chosen": case.chosen,
                    "log": number,
                    "policy": kind,
                    "gain": truth - usual,
                    "gain_error": error,
                    "factor": FACTOR,
                    "seconds": [simulating, time.process_time() - began - simulating],
                    **estimates.to_dict(),
                }
                with file.open("a") as stream:
                    stream.write(json.dumps(jsonable(row)) + "\n")
                print(
                    f"{case.name} {number} {kind} n={episodes}: true {truth - usual:.3g}, {estimates.verdict}",
                    flush=True,
                )


def _behavior_value(case: Case, file: Path) -> float:
    """What the behavior earns: simulated once."""
    known = json.loads(file.read_text()) if file.exists() else {}
    if case.name not in known:
        known[case.name] = case.behavior()
        file.write_text(json.dumps(known))
    return known[case.name]


def read(out: Path) -> list[dict[str, Any]]:
    file = out / "rows.jsonl"
    if not file.exists():
        return []
    rows = []
    for line in file.read_text().splitlines():
        try:
            rows.append(json.loads(line))
        except json.JSONDecodeError:  # the last line of a run that was killed
            continue
    return rows


def verdict_of(row: dict[str, Any]) -> Verdict:
    """The verdict by the rules as they are now, from the stored estimates."""
    base, (least, most) = row["behavior"]["mean"], row["possible"]
    improvement = {}
    for name, one in row["estimates"].items():
        if name == "propensity":
            improvement[name] = Interval(**one["improvement"])
            continue
        scale = FACTOR / row["factor"] if name == "fqe" else 1.0
        freedom = 7 if one["effective"] is None else one["effective"] - 1
        interval = student(one["improvement"]["mean"], scale * one["error"], freedom)
        improvement[name] = interval if name == "one-step" else interval.clipped(least - base, most - base)
    unusable = {name: one["unusable"] for name, one in row["estimates"].items()}
    facts = {"episodes": row["episodes"], "outside": row["outside"], "known": row["known"]}
    return conclude(improvement, unusable, **facts)


# --- the table --------------------------------------------------------------------------------------------------------


def counts(rows: Iterable[dict[str, Any]]) -> list[str]:
    """Of some verdicts: how many, bounds stated, false ones, and the answers against the truth."""
    rows = list(rows)
    verdicts = [verdict_of(row) for row in rows]
    gains = [row["gain"] for row in rows]
    stated = [(v, g) for v, g in zip(verdicts, gains, strict=True) if v.lower_bound is not None]
    false = sum(v.lower_bound > g for v, g in stated)
    better = [g for v, g in zip(verdicts, gains, strict=True) if v.answer == "better"]
    worse = [g for v, g in zip(verdicts, gains, strict=True) if v.answer == "not better"]
    truly = sum(g > 0 for g in gains)
    right, losing = sum(g > 0 for g in better), sum(g <= 0 for g in better)
    share = f"{false / len(stated):.0%}" if stated else "-"
    power = f"{right / truly:.0%}" if truly else "-"
    wrong = sum(g > 0 for g in worse)
    return [
        str(len(rows)),
        f"{len(stated)}",
        f"{false} ({share})",
        f"{right} of {truly} ({power})",
        str(losing),
        f"{len(worse) - wrong} of {len(rows) - truly}",
        str(wrong),
    ]


def table(out: Path) -> None:
    rows = read(out)
    head = ["world", "verdicts", "bounds", "false bounds", "truly better, called better", "better with a loss"]
    head += ["truly worse, called not better", "not better with a gain"]
    print("| " + " | ".join(head) + " |\n" + "|---" * len(head) + "|")
    for chosen in (True, False):
        part = [row for row in rows if row["chosen"] == chosen]
        for world in dict.fromkeys(row["world"] for row in part):
            print(f"| {world} | " + " | ".join(counts(row for row in part if row["world"] == world)) + " |")
        if part:
            title = "rules chosen on these" if chosen else "**reported**"
            print(f"| {title} | " + " | ".join(counts(part)) + " |")
    if rows:
        print("| all | " + " | ".join(counts(rows)) + " |")
    print("\n| episodes to judge by | " + " | ".join(head[1:]) + " |\n" + "|---" * len(head) + "|")
    for low, high in ((0, 150), (150, 500), (500, 1500), (1500, 5000)):
        part = [row for row in rows if low < row["episodes"] <= high]
        if part:
            print(f"| {low + 1} to {high} | " + " | ".join(counts(part)) + " |")
    print("\n| policy | " + " | ".join(head[1:]) + " |\n" + "|---" * len(head) + "|")
    for kind in dict.fromkeys(row["policy"] for row in rows):
        print(f"| {kind} | " + " | ".join(counts(row for row in rows if row["policy"] == kind)) + " |")
    seconds = [row["seconds"][1] for row in rows]
    print(f"\n{len(rows)} verdicts, {np.median(seconds):.1f} s of processor each (median), {sum(seconds) / 60:.0f} min")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=("run", "table"))
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--logs", type=int, default=20, help="of each world; two policies each")
    parser.add_argument("--worlds", nargs="*", default=[])
    parser.add_argument("--half", choices=("chosen", "reported"), default=None, help="only these worlds")
    args = parser.parse_args()
    if args.what == "table":
        table(args.out)
    else:
        run(args.out, args.logs, args.worlds, None if args.half is None else args.half == "chosen")
    return 0


if __name__ == "__main__":
    sys.exit(main())
