"""The search for lam and eta of `odice toy`, as the paper's "we tuned hyper parameters for all gradient types".

    python benchmarks/toy_search.py search.jsonl [--rules semi ...] [--encoding raw] [--seeds 3] [--steps 10000]
    python benchmarks/toy_search.py chosen.jsonl --chosen --encoding fourier      # only the settings `odice toy` uses

Runs the grid below, one line of JSON per cell with the means over seeds; cells that are in the file already are not run
again. Prints the cells from best to worst. Performance decides: the share of seeds whose greedy walk reaches a goal,
that walk's return, then the share of the cells outside the data from which a goal is found (in steps of 5 %, less is
noise); only then the AUC with which V separates the data's cells from the others.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from odice.cli.toy import summarize
from odice.experiments import toy
from odice.experiments.gridworld import GridWorld

# The paper searches eta in 0.2 ... 1.0; 3 and 10 are here to see where its effect on the cells outside the data begins.
GRID = {
    "true": [{"lam": lam} for lam in (0.5, 0.6, 0.8, 0.9, 0.95, 0.99)],
    "semi": [{"lam": lam} for lam in (0.3, 0.4, 0.5, 0.6, 0.7)],
    "orthogonal": [{"lam": 0.5, "eta": eta} for eta in (0.2, 0.4, 0.6, 1.0, 3.0, 10.0)]
    + [{"lam": lam, "eta": 0.4} for lam in (0.3, 0.6)],
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path)
    parser.add_argument("--rules", nargs="+", default=list(GRID), choices=list(GRID))
    parser.add_argument("--chosen", action="store_true", help="not the grid: the chosen lam and eta")
    parser.add_argument("--encoding", default="raw")
    parser.add_argument("--goal-reward", type=float, default=10.0)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=10_000)
    options = parser.parse_args()

    shared = {name: getattr(options, name) for name in ("encoding", "goal_reward", "seeds", "steps")}
    done = [json.loads(line) for line in options.file.read_text().splitlines()] if options.file.exists() else []
    for rule in options.rules:
        for cell in [toy.CHOSEN[rule]] if options.chosen else GRID[rule]:
            head = {"rule": rule, **cell, **shared}
            if any(head.items() <= row.items() for row in done):
                continue
            config = toy.ToyConfig(
                rules=(rule,),
                seeds=options.seeds,
                steps=options.steps,
                encoding=options.encoding,
                world=GridWorld(goal_reward=options.goal_reward),
                **cell,
            )
            row = head | summarize(toy.run(config))[rule]
            done.append(row)
            with options.file.open("a") as file:
                file.write(json.dumps(row) + "\n")
            print(json.dumps(row), flush=True)

    print(
        "\n| rule | lam | eta | goal | return | V in | V out | AUC | near | match | back |\n|---" + "|---:" * 10 + "|"
    )
    performance = lambda row: (row["reached_goal"], row["return"], round(20 * row["outside_to_goal"]), row["auc"])
    rank = lambda row: (options.rules.index(row["rule"]), *(-number for number in performance(row)))
    for r in sorted((r for r in done if r["rule"] in options.rules and shared.items() <= r.items()), key=rank):
        print(
            f"| {r['rule']} | {r['lam']:g} | {r.get('eta', '-')} | {r['reached_goal']:.0%} | {r['return']:.1f} "
            f"| {r['value_inside']:.1f} | {r['value_outside']:.1f} | {r['auc']:.2f} | {r['auc_near']:.2f} "
            f"| {r['auc_matched']:.2f} | {r['back_to_support']:.0%} |"
        )


if __name__ == "__main__":
    main()
