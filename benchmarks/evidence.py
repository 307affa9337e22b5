"""The runs behind docs/results.md: every algorithm on two robots, a queue that can be stopped and continued.

    python benchmarks/evidence.py run --data DIR --out RUNS --core 1       # train what is missing, one after the other
    python benchmarks/evidence.py table --out RUNS                         # the table, as Markdown

DIR holds hopper-medium-expert.hdf5 and halfcheetah-medium.hdf5 (any logs in D4RL's layout). A queue per core: two queues with the same
RUNS share the work, because a finished run is skipped and each takes its own `--seed`. Every cell is the `odice train` command that
is printed before it starts.
"""

import argparse
import json
import statistics
import subprocess
import sys
from pathlib import Path

STEPS = 20_000
EVERY = 2_500

# S-DICE and the true gradient have no published lambda: they get O-DICE's, 0.5 on both data sets
DATA = {"hopper-medium-expert": {"lam": 0.5, "eta": 1.0}, "halfcheetah-medium": {"lam": 0.5, "eta": 0.2}}
NARROW = ["--policy-hidden", "256", "256"]  # the released code's 1024 would triple the work

# algorithm: (preset, what differs from it)
RUNS = {
    "bc": ("corl", []),
    "bc-10": ("corl", []),
    "td3-bc": ("reference", []),
    "iql": ("reference", []),
    "sdice": ("reference", NARROW),
    "odice": ("reference", NARROW),
    "vdice-true": ("reference", NARROW),
    "sql": ("reference", []),
    "eql": ("reference", []),
    "optidice": ("reference", ["--batch-size", "256", "--warmup-steps", str(STEPS // 6)]),
    "fdvl": ("reference", ["--batch-size", "256"]),
    "cql": ("corl", []),
}
SHORTER = {"cql": 6_000}


def command(algo: str, data: Path, seed: int, out: Path) -> list[str]:
    """One cell as a person would type it."""
    preset, flags = RUNS[algo]
    published = [x for name, value in DATA[data.stem].items() for x in (f"--{name}", str(value))]
    tuned = {"odice": published, "sdice": published[:2], "vdice-true": published[:2]}.get(algo, [])
    steps = SHORTER.get(algo, STEPS)
    length = ["--steps", str(steps), "--eval-every", str(min(EVERY, steps // 3)), "--eval-episodes", "10"]
    where = ["--data", str(data), "--algo", algo, "--preset", preset, "--seed", str(seed), "--out", str(out)]
    return ["train", *where, *length, *tuned, *flags, "--checkpoint-every", "5000", "--keep", "1"]


def cells(out: Path, algorithms: list[str], seeds: list[int]):
    for seed in seeds:
        for algo in algorithms:
            for name in DATA:
                yield algo, name, seed, out / name / algo / f"seed-{seed}"


def scores(folder: Path) -> dict[int, float]:
    """Mean normalised return by update."""
    path = folder / "evaluations.jsonl"
    lines = path.read_text().splitlines() if path.exists() else []
    return {row["step"]: row["score"] for row in map(json.loads, lines)}


def run(arguments) -> int:
    odice = Path(sys.executable).with_name("odice")
    for algo, name, seed, folder in cells(arguments.out, arguments.algorithms, arguments.seeds):
        if SHORTER.get(algo, STEPS) in scores(folder):
            continue
        line = command(algo, arguments.data / f"{name}.hdf5", seed, folder)
        print("odice", *line, flush=True)
        pinned = ["taskset", "-c", str(arguments.core)] if arguments.core is not None else []
        code = subprocess.run([*pinned, odice, *line, "--quiet"]).returncode
        if code:
            print(f"exit code {code}: {algo} on {name}, seed {seed}", flush=True)
            if code > 128:
                return code
    return 0


def table(arguments) -> int:
    print("| data | algorithm | updates | seed | last | best | mean of the last 5 |")
    print("|---|---|---|---|---|---|---|")
    for name in DATA:
        for algo in arguments.algorithms:
            for seed in arguments.seeds:
                found = list(scores(arguments.out / name / algo / f"seed-{seed}").items())
                if found:
                    values = [score for _, score in found]
                    tail = statistics.fmean(values[-5:])
                    print(
                        f"| {name} | {algo} | {found[-1][0]:,} | {seed} | {values[-1]:.1f} | {max(values):.1f} | {tail:.1f} |"
                    )
    return 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["run", "table"])
    parser.add_argument("--out", type=Path, required=True, help="folder of the runs")
    parser.add_argument("--data", type=Path, help="folder of the two logs")
    parser.add_argument("--core", type=int, help="pin the runs to this core")
    parser.add_argument("--algorithms", nargs="+", default=list(RUNS), choices=list(RUNS))
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1])
    arguments = parser.parse_args()
    if arguments.what == "run" and arguments.data is None:
        parser.error("run needs --data")
    return run(arguments) if arguments.what == "run" else table(arguments)


if __name__ == "__main__":
    sys.exit(main())
