"""O-DICE online: V-DICE as the critic of soft actor-critic (`experiments.dual_sac`), in the collector's loop.

    nice python benchmarks/online.py --out runs/online

Two small environments, two seeds, one update per step; the score is of the deterministic policy, mean of the last five
evaluations of ten episodes. Run it again to continue.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np

from odice.collection.behavior import Training, train
from odice.collection.sac import SACConfig
from odice.experiments.dual_sac import DualSACConfig

NETS = {"critic_hidden": (64, 64), "policy_hidden": (64, 64), "critic_lr": 1e-3, "policy_lr": 1e-3, "batch_size": 128}
AGENTS = {"SAC": SACConfig(**NETS)}
for gradient in ("true", "semi", "orthogonal"):
    for lam in (0.6, 0.9):  # what the replay's actions earn, and what its better ones do
        AGENTS[f"V-DICE, {gradient}, lam {lam}"] = DualSACConfig(**NETS, gradient=gradient, lam=lam, eta=0.5)
ENVS = {"odice/LQR-v0": 5_000, "Pendulum-v1": 8_000}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("runs/online"))
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--only", help="one critic of the table, by a part of its name")
    parser.add_argument("--env", choices=sorted(ENVS), action="append", help="only these")
    options = parser.parse_args()
    envs = {env: steps for env, steps in ENVS.items() if not options.env or env in options.env}
    print(f"| critic | {' | '.join(f'{env}, {steps:,} steps' for env, steps in envs.items())} |")
    print(f"|---|{'---|' * len(envs)}", flush=True)
    for name, agent in AGENTS.items():
        if options.only is not None and options.only not in name:
            continue
        cells = []
        for env, budget in envs.items():
            training = Training(sac=agent, warmup=1_000, eval_every=500, checkpoint_every=budget)
            scores = []
            for seed in range(options.seeds):
                folder = options.out / env.replace("/", "-") / name.replace(", ", "-").replace(" ", "-") / str(seed)
                result = train(env, folder, budget=budget, seed=seed, training=training, quiet=True)
                scores.append(float(np.mean([mean for _, mean in result.curve[-5:]])))
            cells.append(", ".join(f"{score:.1f}" for score in scores))
        print(f"| {name} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
