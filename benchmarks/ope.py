"""How good are the estimates from a log? Policies whose true return the simulator knows, judged by every estimator.

    python benchmarks/ope.py run --out runs/ope --d3rlpy /path/of/venv/bin/python --logs cartpole hospital ...
    python benchmarks/ope.py run --out runs/ope --estimators dice gen-dice        # more of them, for the same policies
    python benchmarks/ope.py table --out runs/ope
    python benchmarks/ope.py runs --out runs/more --data LOG --runs runs/a runs/b ...   # the verdicts on runs that were
                                                                        # evaluated: their last evaluation is the truth

Each log has 21 policies: three algorithms at three checkpoints, and the last ones with noise on their weights at four
levels, so that they spread from good to bad. Logs are cut to 50,000 steps. Everything made is a file, and what is there
is not made again: stop it and start it again. Policies of all logs come in turns, so that a table can be made early.

| number   | what it is                                                                                        |
|----------|---------------------------------------------------------------------------------------------------|
| rank     | Spearman's correlation between estimate and truth, over the policies of a log                     |
| regret@1 | (best truth - truth of the policy with the best estimate) / (best - worst truth)                  |
| error    | mean absolute error of the estimate / (best - worst truth)                                        |
| coverage | share of 95 % intervals that hold the truth, give or take two standard errors of the truth itself |
| verdicts | how often it said "better", "not better" or "cannot tell", and how often the sign was wrong       |
| kept     | true return of what would have been taken, as a share of the best run's                           |
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from odice.evaluation.ope.bootstrap import Interval
from odice.evaluation.ope.log import make_log

import benchmarks.defaults  # noqa: F401  (it registers the ward)
import odice
from odice.data.dataset import Dataset
from odice.envs.make import make
from odice.evaluation.ope.dice import FORMS
from odice.evaluation.ope.estimate import DEFAULT, ESTIMATORS, Work, estimate
from odice.evaluation.ope.select import key
from odice.evaluation.ope.verdict import Verdict, together
from odice.evaluation.ope.verdict import judge as judge_all
from odice.jsonable import jsonable
from odice.policy.policy import Policy

STEPS, DISCOUNT = 50_000, 0.99
CHECKPOINTS = (500, 1000, 2000)
NOISE = (0.15, 0.3, 0.6, 1.0)
ENVS = 25
SMALL: dict[str, Any] = {"policy_hidden": (64, 64), "policy_lr": 1e-3}
CRITIC: dict[str, Any] = {"critic_hidden": (64, 64), "critic_lr": 1e-3}
VALUE: dict[str, Any] = {"value_hidden": (64, 64), "value_lr": 1e-3}


class World(NamedTuple):
    data: str
    env: str
    kind: str
    """`steps`, `discrete` or `maze`: which settings the algorithms get."""


WORLDS = {
    "cartpole": World("cartpole.hdf5", "CartPole-v1", "discrete"),
    "hospital": World("hospital.hdf5", "Hospital-v0", "discrete"),
    "bundled": World("bundled/hopper-replay", "Hopper-v5", "steps"),
    "hopper-replay": World("hopper-replay.hdf5", "Hopper-v5", "steps"),
    "hopper-medium-expert": World("hopper-medium-expert.hdf5", "Hopper-v5", "steps"),
    "halfcheetah-medium": World("halfcheetah-medium.hdf5", "HalfCheetah-v5", "steps"),
    "pointmaze-umaze-diverse": World("pointmaze-umaze-diverse.hdf5", "pointmaze-umaze-diverse", "maze"),
    "pointmaze-medium-diverse": World("pointmaze-medium-diverse.hdf5", "pointmaze-medium-diverse", "maze"),
}
MAZE = {"reward": "minus-1", "expectile": 0.9, "beta": 10.0}


def algorithms(kind: str) -> dict[str, dict[str, Any]]:
    """Three, by name."""
    return {
        "bc": SMALL,
        "iql": {**SMALL, **CRITIC, **VALUE, **(MAZE if kind == "maze" else {})},
        "auto": {**SMALL, **VALUE},
    }


# --- logs, policies, truth -------------------------------------------------------------------------------------------


def open_log(name: str, folders: list[Path]) -> Dataset:
    """At most `STEPS` steps of the log, whole episodes drawn at random."""
    given = WORLDS[name].data
    paths = [folder / given for folder in folders if (folder / given).exists()]
    data = odice.load(paths[0] if paths else given)
    order = np.random.default_rng(0).permutation(data.n_episodes)
    chosen = order[np.cumsum(data.lengths[order]) <= STEPS]
    return data.select(np.sort(chosen))


def make_policies(name: str, data: Dataset, folder: Path) -> dict[str, Policy]:
    """The policies of a log, by name; trained if they are not there."""
    found: dict[str, Policy] = {}
    for algo, settings in algorithms(WORLDS[name].kind).items():
        run = folder / "runs" / algo
        if not (run / "result.json").exists():
            every = {"steps": CHECKPOINTS[-1], "eval_every": 500, "checkpoint_every": 500, "keep": 10}
            odice.train(data, algo=algo, env="none", out=str(run), quiet=True, allow=("all",), **every, **settings)
        for step in CHECKPOINTS:
            found[f"{algo}-{step}"] = Policy.load(run / "policy" / f"step-{step}")
        for level in NOISE:
            found[f"{algo}-noise-{level:g}"] = perturbed(found[f"{algo}-{CHECKPOINTS[-1]}"], level, len(found))
    return found


def perturbed(policy: Policy, noise: float, seed: int) -> Policy:
    """Noise on every weight, in units of its layer's spread: another policy, as deterministic as before."""
    import dataclasses

    rng = np.random.default_rng(seed)
    shaken = {
        k: (t + noise * t.std() * rng.standard_normal(t.shape)).astype(np.float32) for k, t in policy.tensors.items()
    }
    return dataclasses.replace(policy, tensors=shaken)


def true_returns(policy: Policy, world: World, data: Dataset, episodes: int) -> np.ndarray:
    """(episodes, 2) discounted and undiscounted returns within the log's longest episode, many environments at once.

    A maze's log starts in every cell and its task in one: there the ball is put where an episode of the log started.
    """
    horizon, rng = int(data.lengths.max()), np.random.default_rng(5)
    envs = [make(world.env, max_steps=horizon) for _ in range(min(ENVS, episodes))]
    out: list[tuple[float, float]] = []
    while len(out) < episodes:
        observations = [env.reset(seed=777_000 + len(out) + i)[0] for i, env in enumerate(envs)]
        if world.kind == "maze":
            observations = [_put(env, data[int(rng.integers(data.n_episodes))].observations[0]) for env in envs]
        earned, alive = np.zeros((len(envs), 2)), list(range(len(envs)))
        for t in range(horizon):
            actions = policy(np.stack([observations[i] for i in alive]))
            still = []
            for i, action in zip(alive, actions, strict=True):
                observations[i], reward, terminated, truncated, _ = envs[i].step(action)
                earned[i] += float(reward) * np.array([DISCOUNT**t, 1.0])
                if not (terminated or truncated):
                    still.append(i)
            alive = still
            if not alive:
                break
        out += [tuple(row) for row in earned]
    for env in envs:
        env.close()
    return np.array(out[:episodes])


def _put(env: Any, obs: np.ndarray) -> np.ndarray:
    ball = env.unwrapped.point_env
    ball.set_state(obs[:2].astype(np.float64), obs[2:].astype(np.float64))
    return obs


# --- judging ----------------------------------------------------------------------------------------------------------


def save(file: Path, content: Any) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    temporary = file.with_suffix(".tmp")
    temporary.write_text(json.dumps(content))
    temporary.replace(file)


def judge(name: str, label: str, policy: Policy, data: Dataset, args) -> str:
    """The truth and every estimate, unless they are there."""
    said, folder = [], args.out / name
    if not (file := folder / "truth" / f"{label}.json").exists():
        episodes = args.episodes * (10 if WORLDS[name].kind == "discrete" else 1)
        truth = true_returns(policy, WORLDS[name], data, episodes)
        save(file, {"mean": truth.mean(0).tolist(), "error": (truth.std(0) / len(truth) ** 0.5).tolist()})
        said.append(f"truth {truth.mean(0)[0]:.3g}")
    file = folder / "odice" / f"{label}.json"
    if not file.exists():
        began = time.process_time()
        basic = [name for name in DEFAULT if name not in FORMS]
        found = estimate(policy, data, discount=DISCOUNT, estimators=basic, updates=args.updates).to_dict()
        save(file, {**found, "seconds": {"basic": time.process_time() - began}})
        said.append(f"fqe {found['estimates']['fqe']['discounted']['mean']:.3g} {found['verdict']['answer']}")
    found = json.loads(file.read_text())
    for form in args.estimators:
        if form in FORMS and form not in found["estimates"]:
            began = time.process_time()
            work = Work(make_log(policy, data), DISCOUNT, args.updates)
            found["estimates"][form] = jsonable(work.dice(form, work.behavior()).to_dict())
            found["seconds"][form] = time.process_time() - began
            save(file, found)
            said.append(f"{form} {found['estimates'][form]['discounted']['mean']:.3g}")
    return ", ".join(said)


def for_d3rlpy(name: str, policies: dict[str, Policy], data: Dataset, folder: Path) -> None:
    """The log and the policies as arrays."""
    (folder / "arrays").mkdir(parents=True, exist_ok=True)
    observations = data.step_observations()
    np.savez(
        folder / "arrays" / "log.npz",
        observations=observations,
        actions=data.actions[:, None] if data.discrete else data.actions,
        rewards=data.rewards,
        terminals=data.step_flags("terminated").astype(np.float32),
        timeouts=(~data.step_flags("terminated") & _last(data)).astype(np.float32),
        first=observations[data.starts],
        mean=observations.mean(0),
        scale=np.maximum(observations.std(0), 1e-6),
        choices=data.spec.action_dim if data.discrete else 0,
    )
    for label, policy in policies.items():
        layers = len(policy.layout.sizes) - 1
        nothing = np.zeros(0, np.float32)
        bounds = [nothing if b is None else b for b in (policy.action_low, policy.action_high)]
        np.savez(
            folder / "arrays" / f"{label}.npz",
            **{f"w{i}": policy.tensors[f"layers.{i}.weight"] for i in range(layers)},
            **{f"b{i}": policy.tensors[f"layers.{i}.bias"] for i in range(layers)},
            mean=np.zeros(policy.obs_dim) if policy.obs_mean is None else policy.obs_mean,
            scale=np.ones(policy.obs_dim) if policy.obs_scale is None else policy.obs_scale,
            low=bounds[0],
            high=bounds[1],
            output=policy.layout.output,
        )
        assert policy.layout._replace(sizes=(), output="") == ((), False, "relu", "")


def _last(data: Dataset) -> np.ndarray:
    flags = np.zeros(data.n_steps, bool)
    flags[data.ends] = True
    return flags


# --- the tables -------------------------------------------------------------------------------------------------------


def score(truth: np.ndarray, error: np.ndarray, mean: np.ndarray, interval: tuple | None) -> list[str]:
    from scipy.stats import rankdata

    spread = truth.max() - truth.min()
    if spread < 1e-6:  # all policies are alike: nothing to rank
        return ["-", "-", "-", "-"]
    rank = float(np.corrcoef(rankdata(truth), rankdata(mean))[0, 1]) if np.ptp(mean) > 0 else 0.0
    regret = (truth.max() - truth[int(mean.argmax())]) / spread
    cells = [f"{rank:.2f}", f"{regret:.2f}", f"{np.mean(np.abs(mean - truth)) / spread:.2f}"]
    if interval is None:
        return [*cells, "-"]
    low, high = interval
    return [*cells, f"{np.mean((low - 2 * error <= truth) & (truth <= high + 2 * error)):.0%}"]


def read(folder: Path) -> list[dict[str, Any]]:
    """All policies of a log of which truth and estimates are known, d3rlpy's too where it was asked."""
    rows = []
    for file in sorted((folder / "odice").glob("*.json")):
        other = folder / "d3rlpy" / file.name
        row = {"name": file.stem, **json.loads(file.read_text())}
        row["truth"] = json.loads((folder / "truth" / file.name).read_text())
        row["d3rlpy"] = json.loads(other.read_text()) if other.exists() else None
        rows.append(row)
    both = [row for row in rows if row["d3rlpy"]]
    return both or rows


def verdict_of(row: dict[str, Any]) -> Verdict:
    """The verdict by today's limits, from what was written down."""
    interval = lambda one: Interval(**one)
    estimates = row["estimates"]
    return judge_all(
        {name: interval(one["improvement"]) for name, one in estimates.items()},
        interval(estimates["fqe"]["undiscounted_improvement"]),
        {name: one["unusable"] for name, one in estimates.items()},
        episodes=row["episodes"],
        outside=row["outside"],
        spread=row["spread"],
    )


def select_key(row: dict[str, Any]) -> tuple[bool, float]:
    """What `odice select` ranks by."""
    bound, fqe = verdict_of(row).lower_bound, row["estimates"]["fqe"]["improvement"]["mean"]
    return key(bound, fqe)


def table(out: Path) -> None:
    print("| log | policies | estimator | rank | regret@1 | error | coverage |\n|---|---|---|---|---|---|---|")
    verdicts = ["\n| log | truly better | better | not better | wrong sign | cannot tell | FQE's sign wrong there |"]
    chosen = ["\n| log | `odice select` | first by FQE | the last run | a random one | least training loss | best |"]
    kept = []
    for folder in sorted(p.parent for p in out.glob("*/odice")):
        rows = read(folder)
        truth, error = (np.array([row["truth"][key][0] for row in rows]) for key in ("mean", "error"))
        head = f"| {folder.name} | {len(rows)} |"
        for name in ESTIMATORS:
            found = [row["estimates"].get(name) for row in rows]
            if all(found):
                mean, low, high = (np.array([one["discounted"][k] for one in found]) for k in ("mean", "low", "high"))
                used = sum(not one["unusable"] for one in found)
                print(head, f"{name} (used {used}) |", " | ".join(score(truth, error, mean, (low, high))), "|")
        bounds = [together({k: Interval(**one["discounted"]) for k, one in row["estimates"].items()}) for row in rows]
        ends = tuple(np.array([getattr(one, end) for one in bounds]) for end in ("low", "high"))
        print(head, "together |", " | ".join(score(truth, error, np.array([one.mean for one in bounds]), ends)), "|")
        ranked = sorted(range(len(rows)), key=lambda i: select_key(rows[i]))
        place = np.argsort(ranked).astype(float)
        print(head, "`odice select` |", " | ".join([*score(truth, error, place, None)[:2], "-", "-"]), "|")
        if all(row["d3rlpy"] for row in rows):
            other = np.array([row["d3rlpy"]["mean"] for row in rows])
            print(head, "d3rlpy FQE |", " | ".join(score(truth, error, other, None)), "|")
        verdicts.append(f"| {folder.name} | " + " | ".join(map(str, signs(rows))) + " |")
        *taken, best = choices(rows, folder)
        kept.append([value / best for value in taken])
        cells = [f"{value:.3g} ({value / best:.0%})" for value in taken]
        chosen.append(f"| {folder.name} | {' | '.join(cells)} | {best:.3g} |")
    print("\n".join([verdicts[0], "|---" * 7 + "|", *verdicts[1:]]))
    print("\n".join([chosen[0], "|---" * 7 + "|", *chosen[1:]]))
    print("| mean | " + " | ".join(f"{share:.0%}" for share in np.mean(kept, axis=0)) + " | |")


def signs(rows: list[dict[str, Any]]) -> list[int]:
    """How many are truly better, what the verdicts were, and where they could not tell what FQE's sign alone was."""
    better = [row["truth"]["mean"][0] > row["behavior"]["mean"] for row in rows]
    said = [verdict_of(row).answer for row in rows]
    wrong = sum(answer == ("not better" if true else "better") for answer, true in zip(said, better, strict=True))
    alone = [row["estimates"]["fqe"]["improvement"]["mean"] > 0 for row in rows]
    saved = sum(a == "cannot tell" and f != t for a, f, t in zip(said, alone, better, strict=True))
    return [sum(better), *map(said.count, ("better", "not better")), wrong, said.count("cannot tell"), saved]


def choices(rows: list[dict[str, Any]], folder: Path) -> list[float]:
    """True returns of what would have been taken among the policies without noise, and of the best. Where `odice
    select` says to clone the behavior, that is the last clone; the last run is that of the last algorithm."""
    plain = [row for row in rows if "noise" not in row["name"]]
    truth = {row["name"]: row["truth"]["mean"][0] for row in plain}
    if len(plain) < len(CHECKPOINTS) * len(algorithms("")):  # some are not judged yet
        return [np.nan] * 6
    better = [row for row in plain if verdict_of(row).answer == "better"]
    selected = max(better, key=select_key)["name"] if better else f"bc-{CHECKPOINTS[-1]}"
    last = f"odice-{CHECKPOINTS[-1]}"
    least = min(truth, key=lambda name: _loss(folder, name))
    names = selected, max(plain, key=select_key)["name"], last
    mean = float(np.mean(list(truth.values())))
    return [*(truth[name] for name in names), mean, truth[least], max(truth.values())]


def _loss(folder: Path, name: str) -> float:
    """How far the policy is from the actions it was trained on: the one loss that all algorithms have."""
    algo, step = name.split("-")
    lines = (folder / "runs" / algo / "metrics.jsonl").read_text().splitlines()
    return next(row["train_action_error"] for row in map(json.loads, lines) if row["step"] == int(step))


def run(args) -> None:
    """Policies and arrays first, then estimates in turns, a few policies of every log at a time."""
    logs = {name: open_log(name, args.data) for name in args.logs}
    known = {}
    for name, data in logs.items():
        began = time.process_time()
        known[name] = make_policies(name, data, args.out / name)
        for_d3rlpy(name, known[name], data, args.out / name)
        print(f"{name}: {data}, {len(known[name])} policies, {time.process_time() - began:.0f} s", flush=True)
    labels = {name: np.random.default_rng(3).permutation(sorted(known[name])).tolist() for name in logs}
    for first in range(0, max(map(len, labels.values())), args.turn):
        pairs = []
        for name, data in logs.items():
            for label in labels[name][first : first + args.turn]:
                began = time.process_time()
                said = judge(name, label, known[name][label], data, args)
                print(f"{name} {label}: {said} ({time.process_time() - began:.1f} s)", flush=True)
                pairs.append(f"{name}/{label}")
        if args.d3rlpy:
            script = Path(__file__).with_name("ope_d3rlpy.py")
            command = [args.d3rlpy, str(script), str(args.out), *pairs, "--updates", str(args.d3rlpy_updates)]
            subprocess.run(command, check=True)


def judge_runs(log: Path, runs: list[Path], out: Path) -> None:
    """The verdicts beside the last evaluations. These have no discount, so the undiscounted return is compared."""
    data = odice.load(log)
    print(f"| {log.stem} | true return | of the behavior | FQE, improvement | leaves the data | verdict |")
    print("|---" * 6 + "|")
    said: Counter[str] = Counter()
    for run in runs:
        name = "-".join(run.parts[-2:])
        if not (file := out / log.stem / f"{name}.json").exists():
            save(file, estimate(Policy.load(run / "policy" / "last"), data).to_dict())
        row = json.loads(file.read_text())
        last = json.loads((run / "evaluations.jsonl").read_text().splitlines()[-1])
        truth, error = last["mean"], np.std(last["returns"]) / len(last["returns"]) ** 0.5
        usual, more = row["behavior_undiscounted"]["mean"], row["estimates"]["fqe"]["undiscounted_improvement"]
        answer = verdict_of(row).answer
        sign = "" if answer == "cannot tell" else " (right)" if (truth > usual) == (answer == "better") else " (WRONG)"
        cells = (
            f"{truth:.4g} +- {error:.2g} | {usual:.4g} | {more['mean']:.4g} ({more['low']:.4g} to {more['high']:.4g})"
        )
        said[answer + sign] += 1
        print(f"| {name} | {cells} | {row['outside']:.0%} | {answer}{sign} |", flush=True)
    print(", ".join(f"{count} {what}" for what, count in sorted(said.items())))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=("run", "table", "runs"))
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--logs", nargs="+", default=list(WORLDS), choices=list(WORLDS))
    parser.add_argument(
        "--data", type=Path, nargs="*", default=[], help="folders that hold the logs; one log for `runs`"
    )
    parser.add_argument("--runs", type=Path, nargs="*", default=[], help="runs that were evaluated")
    parser.add_argument("--turn", type=int, default=4, help="policies of a log before the next log")
    parser.add_argument("--updates", type=int, default=None, help="updates of FQE; by default as odice evaluate")
    parser.add_argument("--estimators", nargs="*", default=[], choices=list(FORMS), help="of the DICE family")
    parser.add_argument("--episodes", type=int, default=25, help="of the truth; ten times as many for discrete worlds")
    parser.add_argument("--d3rlpy", default=None, help="a Python that has d3rlpy")
    parser.add_argument("--d3rlpy-updates", type=int, default=1500)
    args = parser.parse_args()
    if args.what == "runs":
        judge_runs(args.data[0], args.runs, args.out)
    else:
        table(args.out) if args.what == "table" else run(args)
    return 0


if __name__ == "__main__":
    sys.exit(main())
