"""How soon does O-DICE's default reach its score, and does anything reach it sooner?

    python benchmarks/time_to_score.py run LOG... --out runs/time-to-score      # resumable: a run directory per cell
    python benchmarks/time_to_score.py table --out runs/time-to-score

A cell is a log and a variant: the default, or the default with one thing changed (half or twice the batch, fewer
updates with the same schedule squeezed into them, higher rates). The score of a cell is the mean return of its last
three evaluations. Updates to 95 % is the first evaluation from which the mean of three in a row reaches 95 % of the
*default's* score on that log. Seconds are those updates times the processor time of one update, as each run measured
it.

What this decides, written down before the first run: a preset `fast` exists if one variant, on every log, reaches 95 %
of the default's score in at most half of the default's seconds, and ends there too.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from pathlib import Path

VARIANTS: dict[str, dict] = {
    "default": {"steps": 20_000},
    "10,000 updates": {"steps": 10_000},
    "5,000 updates": {"steps": 5_000, "eval_every": 500},
    "10,000, rates x2": {"steps": 10_000, "value_lr": 2e-3, "policy_lr": 2e-3},
    "batch 128": {"batch_size": 128},
}


def cell(out: Path, log: str, variant: str) -> Path:
    name = log.removesuffix(Path(log).suffix).strip("/").replace("/", "-")
    return out / name / variant.replace(" ", "-").replace(",", "")


def run(out: Path, logs: list[str], variants: list[str]) -> None:
    import odice

    for variant in variants:
        for log in logs:
            folder = cell(out, log, variant)
            if (folder / "cost.json").exists():
                continue
            used = time.process_time()
            odice.train(log, algo="auto", out=str(folder), eval_episodes=10, quiet=True, **VARIANTS[variant])
            (folder / "cost.json").write_text(json.dumps({"log": log, "seconds": time.process_time() - used}))
            print(folder, flush=True)


def returns(folder: Path) -> list[tuple[int, float]]:
    rows = [json.loads(line) for line in (folder / "evaluations.jsonl").read_text().splitlines()]
    return [(row["step"], statistics.fmean(row["returns"])) for row in rows]


def final(curve: list[tuple[int, float]]) -> float:
    return statistics.fmean(score for _, score in curve[-3:])


def updates_to(curve: list[tuple[int, float]], goal: float) -> int | None:
    """The step of the first evaluation from which three in a row have a mean of at least `goal`."""
    for i in range(len(curve) - 2):
        if statistics.fmean(score for _, score in curve[i : i + 3]) >= goal:
            return curve[i][0]
    return None


def table(out: Path) -> None:
    print("| log | variant | score | updates to 95 % | seconds to 95 % | seconds in all |\n|---|---|---|---|---|---|")
    for log in sorted(path for path in out.iterdir() if (path / "default" / "cost.json").exists()):
        goal = 0.95 * final(returns(log / "default"))
        for variant in VARIANTS:
            folder = cell(out, log.name, variant)
            if not (folder / "cost.json").exists():
                continue
            curve, cost = returns(folder), json.loads((folder / "cost.json").read_text())["seconds"]
            reached = updates_to(curve, goal)
            seconds = "-" if reached is None else f"{cost * reached / curve[-1][0]:.0f}"
            shown = "not reached" if reached is None else f"{reached:,}"
            print(f"| {log.name} | {variant} | {final(curve):.1f} | {shown} | {seconds} | {cost:.0f} |")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", choices=("run", "table"))
    parser.add_argument("logs", nargs="*")
    parser.add_argument("--out", type=Path, default=Path("runs/time-to-score"))
    parser.add_argument("--variants", nargs="+", default=list(VARIANTS), choices=VARIANTS)
    args = parser.parse_args()
    table(args.out) if args.command == "table" else run(args.out, args.logs, args.variants)
