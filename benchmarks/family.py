"""The algorithms that came after the paper, and the baselines practitioners know, on worlds and robot logs.

    python benchmarks/family.py run                                        # worlds with computed truth
    python benchmarks/family.py run --logs bundled=bundled/hopper-replay:Hopper-v5 --steps 9600 --seeds 0 1
    python benchmarks/family.py table

Networks and protocol are those of benchmarks/auto.py. An algorithm for continuous actions alone is left out where
actions are choices. docs/research/parity.md reads the table.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import auto
from runner import Runner

from odice.algos import entry
from odice.experiments.worlds import WORLDS

FAST = {**auto.FAST, "score_lr": 3e-3, "guidance_lr": 1e-3}
SMALL = {**auto.SMALL, "score_hidden": auto.WIDTH, "guidance_hidden": auto.WIDTH}
SPREAD = {"reward": "return-spread"}
CANDIDATES: dict[str, dict[str, Any]] = {
    "bc": {},
    "bc-10": {},
    "iql": {},
    "awac": {},
    "crr": {},
    "rebrac": {"batch_size": 256},
    "cors-dice": SPREAD,
    "idrl": SPREAD,
    "diffusion-dice": {},
}
RUNNER = Runner(
    {who: {"algo": who, **FAST, **more} for who, more in CANDIDATES.items()},
    Path("runs/family/rows.jsonl"),
    SMALL,
    FAST,
)
WORLD_LOGS = ("lottery-30", "lottery-10", "inventory", "bandit", "dosing")


def fits(log: str, who: str) -> bool:
    """Whether an algorithm has a form for the actions of a log."""
    name = log.partition("=")[0]
    return name not in WORLDS or not WORLDS[name].discrete or entry(who).discrete


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("do", choices=("run", "table"))
    parser.add_argument("--logs", nargs="*", default=list(WORLD_LOGS))
    parser.add_argument("--who", nargs="*", default=list(CANDIDATES))
    parser.add_argument("--seeds", nargs="*", type=int, default=[0, 1, 2])
    parser.add_argument("--steps", type=int, default=2000)
    args = parser.parse_args()
    if args.do == "table":
        RUNNER.table()
    else:
        for log in args.logs:
            RUNNER.run([log], [who for who in args.who if fits(log, who)], args.seeds, args.steps)
