"""The runs behind docs/research/public_agents.md: two studies, each a queue that can be stopped and continued.

    python benchmarks/evidence.py run rl --data DIR --out RUNS --core 1   # train what is missing, one after the other
    python benchmarks/evidence.py run imitation --data DIR --out RUNS --core 0
    python benchmarks/evidence.py table rl --out RUNS                            # the table, as Markdown

`rl`: every algorithm on hopper-medium-expert.hdf5 and halfcheetah-medium.hdf5. `imitation`: one trajectory of
hopper-expert.hdf5 or halfcheetah-expert.hdf5. DIR holds these logs (D4RL's layout; any will do). Every run is the
`odice` command that is printed before it starts. A finished run is skipped, so queues on two cores may share RUNS if
each takes its own `--seeds` or `--algorithms`.
"""

import argparse
import json
import statistics
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ODICE = Path(sys.executable).with_name("odice")

# S-DICE and the true gradient have no published lambda: they get O-DICE's, 0.5 on both data sets.
RL_DATA = {"hopper-medium-expert": ("0.5", "1.0"), "halfcheetah-medium": ("0.5", "0.2")}
# Official codes of IQL, SQL, EQL, f-DVL and O-DICE train on raw observations: on these logs that fails for cloning
# alone already (docs/research/public_agents.md), so every algorithm gets normalized ones.
NORMALIZED = ["--normalize-obs", "True"]
NARROW = ["--policy-hidden", "256", "256"]  # the released code's 1024 would triple the work
SHALLOW = ["--critic-hidden", "256", "256", *NARROW]  # half the work of three hidden layers

# algorithm: (preset, what differs from it)
RL = {
    "bc": ("corl", []),
    "bc-10": ("corl", []),
    "td3-bc": ("reference", []),
    "iql": ("reference", []),
    "sql": ("reference", []),
    "eql": ("reference", []),
    "sdice": ("reference", NARROW),
    "odice": ("reference", NARROW),
    "vdice-true": ("reference", NARROW),
    "optidice": ("reference", ["--batch-size", "256"]),
    "fdvl": ("reference", ["--batch-size", "256"]),
    "cql": ("reference", SHALLOW),
}
IMITATION_DATA = ("hopper-expert", "halfcheetah-expert")
EPISODES = (1, 30)
IMITATION = ("bc", "value-dice", "iq-learn", "odice", "oq-dice")


class Cell(NamedTuple):
    """One run: where it stands in the table, its folder, its command, its length."""

    row: tuple[str, ...]
    folder: Path
    command: list[str]
    steps: int


def rl_cells(arguments) -> Iterator[Cell]:
    for seed in arguments.seeds:
        for algo in arguments.algorithms or RL:
            for name, (lam, eta) in RL_DATA.items():
                preset, flags = RL[algo]
                steps = arguments.steps or (30_000 if algo == "cql" else 100_000)
                tuned = {
                    "odice": ["--lam", lam, "--eta", eta],
                    "sdice": ["--lam", lam],
                    "vdice-true": ["--lam", lam],
                    "optidice": ["--warmup-steps", str(steps // 6)],  # a sixth of the run, as published
                }
                folder = arguments.out / name / algo / f"seed-{seed}"
                start = ["train", "--data", data_file(arguments, name), "--algo", algo, "--preset", preset]
                command = [*start, *tuned.get(algo, []), *flags, *NORMALIZED, *common(folder, seed, steps)]
                yield Cell((name, algo, f"{seed}"), folder, command, steps)


def imitation_cells(arguments) -> Iterator[Cell]:
    for seed in arguments.seeds:
        for episode in EPISODES:
            for name in IMITATION_DATA:
                for algo in arguments.algorithms or IMITATION:
                    steps = arguments.steps or 50_000
                    folder = arguments.out / name / f"episode-{episode}" / algo / f"seed-{seed}"
                    start = ["imitate", "--data", data_file(arguments, name), "--episode", str(episode), "--algo", algo]
                    yield Cell(
                        (name, f"{episode}", algo, f"{seed}"), folder, [*start, *common(folder, seed, steps)], steps
                    )


STUDIES = {
    "rl": (rl_cells, "data | algorithm | seed"),
    "imitation": (imitation_cells, "data | episode | algorithm | seed"),
}


def data_file(arguments, name: str) -> str:
    return str((arguments.data or Path()) / f"{name}.hdf5")


def common(folder: Path, seed: int, steps: int) -> list[str]:
    """Ten evaluations of ten episodes."""
    often = ["--eval-every", str(steps // 10), "--eval-episodes", "10", "--checkpoint-every", str(steps // 10)]
    return ["--seed", str(seed), "--steps", str(steps), *often, "--keep", "1", "--out", str(folder)]


def evaluations(folder: Path) -> list[dict]:
    path = folder / "evaluations.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def run(arguments, cells: Iterator[Cell]) -> int:
    for cell in cells:
        if any(row["step"] == cell.steps for row in evaluations(cell.folder)):
            continue
        print("odice", *cell.command, flush=True)
        pinned = ["taskset", "-c", str(arguments.core)] if arguments.core is not None else []
        code = subprocess.run([*pinned, ODICE, *cell.command, "--quiet"]).returncode
        if code:
            print(f"exit code {code}: {' '.join(cell.row)}", flush=True)
        if code > 128 or code < 0:  # stopped by a signal: so is the queue
            return 1
    return 0


def table(cells: Iterator[Cell], head: str) -> int:
    print(f"| {head} | updates | last | best | mean of the last 5 | worst episode of the last |")
    print("|---" * (head.count("|") + 6) + "|")
    for cell in sorted(cells, key=lambda cell: cell.row):
        rows = evaluations(cell.folder)
        if rows:
            scores = [row["score"] for row in rows]
            cut = f"{rows[-1]['percent_difference']:.0f} %"
            numbers = (f"{x:.1f}" for x in (scores[-1], max(scores), statistics.fmean(scores[-5:])))
            print("|", " | ".join([*cell.row, f"{rows[-1]['step']:,}", *numbers, cut]), "|")
    return 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["run", "table"])
    parser.add_argument("study", choices=list(STUDIES))
    parser.add_argument("--out", type=Path, required=True, help="folder of the runs")
    parser.add_argument("--data", type=Path, help="folder of the logs")
    parser.add_argument("--core", type=int, help="pin the runs to this core")
    parser.add_argument("--steps", type=int, help="updates of each run instead of the study's own")
    parser.add_argument("--algorithms", nargs="+")
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1])
    arguments = parser.parse_args()
    if arguments.what == "run" and arguments.data is None:
        parser.error("run needs --data")
    make, head = STUDIES[arguments.study]
    return run(arguments, make(arguments)) if arguments.what == "run" else table(make(arguments), head)


if __name__ == "__main__":
    sys.exit(main())
