"""Is the default good on logs that nobody tuned it for? Candidates on worlds with computed truth, and on robots.

    python benchmarks/auto.py run --logs lottery-30 corridor --who bc iql auto
    python benchmarks/auto.py run --logs bundled=bundled/hopper-replay:Hopper-v5 --who auto --steps 10000
    python benchmarks/auto.py table

All seeds of a candidate train in one compiled program, 64-64 networks for everyone (`--width`). A world has a new log
for each seed and the exact value of the last policy; a robot has one log and the mean of the last five of ten
evaluations. A row of runs/auto/rows.jsonl is one (log, candidate, steps): what is there is not run again.
docs/research/auto.md reads the table.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from runner import Runner

from odice.experiments.worlds import WORLDS

ROWS = Path("runs/auto/rows.jsonl")
WIDTH = (64, 64)
SMALL = {"value_hidden": WIDTH, "policy_hidden": WIDTH, "critic_hidden": WIDTH}
FAST = {"value_lr": 1e-3, "policy_lr": 1e-3, "critic_lr": 1e-3}
CANDIDATES: dict[str, dict[str, Any]] = {
    "bc": {"algo": "bc", **FAST},
    "bc-10": {"algo": "bc-10", **FAST},
    "iql": {"algo": "iql", **FAST},
    "iql-spread": {"algo": "iql", "reward": "return-spread", **FAST},
    "sql": {"algo": "sql", **FAST},
    "paper": {"algo": "odice", "preset": "paper", "normalize_obs": True, "convention": "bootstrap", **FAST},
    "auto": {"algo": "auto"},
    "auto-orthogonal": {"algo": "auto", "gradient": "orthogonal"},
    "auto-unbalanced": {"algo": "auto", "balance": 0.0},
    "auto-unsquashed": {"algo": "auto", "tanh_mean": False},
    "auto-no-decay": {"algo": "auto", "policy_weight_decay": 0.0},
    "auto-decay-1e-2": {"algo": "auto", "policy_weight_decay": 1e-2},
    "auto-near": {"algo": "auto", "distance": "near"},
    "auto-far": {"algo": "auto", "distance": "far"},
    "auto-no-residual": {"algo": "auto", "credit_weight": 1000.0},
}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("do", choices=("run", "table"))
    parser.add_argument("--logs", nargs="*", default=list(WORLDS))
    parser.add_argument("--who", nargs="*", default=list(CANDIDATES))
    parser.add_argument("--seeds", nargs="*", type=int, default=[0, 1, 2])
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--width", type=int, default=WIDTH[0], help="of both hidden layers of every network")
    args = parser.parse_args()
    suffix = "" if args.width == WIDTH[0] else f", {args.width}"
    candidates = {who + suffix: candidate for who, candidate in CANDIDATES.items()}
    runner = Runner(candidates, ROWS, dict.fromkeys(SMALL, (args.width, args.width)), FAST)
    if args.do == "run":
        runner.run(args.logs, [who + suffix for who in args.who], args.seeds, args.steps)
    else:
        runner.table()
